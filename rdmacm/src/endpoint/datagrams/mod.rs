//! A datagram socket: its setup, its messages and its handle.

mod bind;
mod messages;
pub(super) mod socket;
