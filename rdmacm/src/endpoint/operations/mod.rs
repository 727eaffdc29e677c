//! Operations that a call starts and whose results a later call returns.

pub(super) mod multicast_group;
pub(super) mod remote_operation;
pub(super) mod resolving;
