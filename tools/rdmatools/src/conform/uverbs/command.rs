//! The form of a write command of uverbs, as the checks use it.

use nix::libc::{EINVAL, ENOENT};
use verbs_abi::{ib_qp_attr_mask, ib_qp_state, ib_uverbs_qp_type};

use super::super::check::Version;
use super::super::kernel::Outcome::{self, Done, Errno};

/// A valid command.
#[derive(Debug, Clone, Copy)]
pub(super) struct Command {
    pub(super) name: &'static str,
    /// Command number, without the bit of extended commands.
    pub(super) number: u32,
    pub(super) is_extended: bool,
    /// Function in `drivers/infiniband/core/uverbs_cmd.c`.
    pub(super) source: &'static str,
    /// Length of the core request in bytes.
    pub(super) request: usize,
    /// Length of the core request in bytes, without the additions of later kernels.
    pub(super) floor: usize,
    /// Length of the core response in bytes.
    pub(super) response: usize,
    /// Length of the core response in bytes, without the additions of later kernels.
    pub(super) least: usize,
    /// `true` if driver data follow the core request.
    pub(super) has_driver_data: bool,
    /// Offset of a handle, and the object that it refers to.
    pub(super) handle: Option<(usize, Handle)>,
    /// Other fields that are not 0: offset, length in bytes, value.
    pub(super) fields: &'static [(usize, usize, u64)],
    /// Fields that must be 0 or contain flags, and the answer for an undefined value.
    pub(super) reserved: &'static [(&'static str, usize, Outcome)],
    /// Offset of a descriptor in the response.
    pub(super) descriptor: Option<usize>,
    /// The command's use with existing objects, if a known driver supports it.
    pub(super) own: Option<ObjectUse>,
    /// The answer for a nonexistent handle, or for a command without a handle.
    pub(super) unknown: Outcome,
    /// The answer for a nonexistent handle if the address of the response is invalid.
    pub(super) lost: Outcome,
    /// The answer for a nonexistent handle before GET_CONTEXT.
    pub(super) no_context: Outcome,
    pub(super) support: Support,
}

/// The object that a handle refers to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Handle {
    ProtectionDomain,
    Other,
}

/// The known drivers that have a command. The others answer EOPNOTSUPP.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Support {
    Both,
    Rxe,
    RxeSince(Version),
    /// Neither driver; another driver may have the command.
    Neither,
    /// No driver: no kernel has ever had the command.
    None,
}

/// An object that one command creates and others use.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Object {
    ProtectionDomain,
    AddressHandle,
    MemoryRegion,
    MemoryWindow,
    CompletionQueue,
    /// A queue pair in RESET.
    QueuePair,
    /// A datagram queue pair.
    DatagramQueuePair,
    /// A queue pair that is attached to a multicast group.
    Member,
    SharedReceiveQueue,
}

/// The use of a command with existing objects.
#[derive(Debug, Clone, Copy)]
pub(super) struct ObjectUse {
    /// Offsets of the objects' handles.
    pub(super) objects: &'static [(usize, Object)],
    /// Other fields that differ from the command's: offset, length in bytes, value.
    pub(super) fields: &'static [(usize, usize, u64)],
    /// Offsets of memory addresses.
    pub(super) memory: &'static [usize],
    /// Length of the driver's part of the request in bytes: rxe, siw.
    pub(super) request: [usize; 2],
    /// The answers of rxe and siw.
    pub(super) outcomes: [Outcome; 2],
}

impl ObjectUse {
    /// Length of the memory at an address in a request, in bytes.
    pub(super) const MEMORY: usize = 64;
}

pub(super) const COMMON: Command = Command {
    name: "",
    number: 0,
    is_extended: false,
    source: "",
    request: 0,
    floor: 0,
    response: 0,
    least: 0,
    has_driver_data: false,
    handle: None,
    fields: &[],
    reserved: &[],
    descriptor: None,
    own: None,
    unknown: Errno(ENOENT),
    lost: Errno(ENOENT),
    no_context: Errno(EINVAL),
    support: Support::Both,
};

/// Returns a plain command with a handle at `handle`, without optional parts.
pub(super) const fn plain(
    (name, number, source): (&'static str, u32, &'static str),
    request: usize,
    response: usize,
    handle: usize,
) -> Command {
    Command {
        name,
        number,
        source,
        request,
        floor: request,
        response,
        least: response,
        handle: Some((handle, Handle::Other)),
        // The handle is looked up before the context is needed.
        no_context: Errno(ENOENT),
        ..COMMON
    }
}

/// Returns a command that creates an object in a protection domain, and accepts driver data.
pub(super) const fn create(
    name: (&'static str, u32, &'static str),
    request: usize,
    response: usize,
    pd_handle: usize,
) -> Command {
    Command {
        has_driver_data: true,
        handle: Some((pd_handle, Handle::ProtectionDomain)),
        no_context: Errno(EINVAL),
        ..plain(name, request, response, pd_handle)
    }
}

/// Returns a command with a number that no kernel has ever used.
pub(super) const fn unused(name: &'static str, number: u32) -> Command {
    Command {
        name,
        number,
        source: "ib_uverbs_notsupp",
        request: 64,
        floor: 64,
        support: Support::None,
        ..COMMON
    }
}

/// A descriptor that no completion channel has.
pub(super) const NO_CHANNEL: u64 = 0x7fff_fff0;
/// The value for no completion channel.
pub(super) const NONE: u64 = u32::MAX as u64;
pub(super) const RC: u64 = ib_uverbs_qp_type::IB_UVERBS_QPT_RC.0 as u64;
pub(super) const INIT: u64 = ib_qp_state::IB_QPS_INIT.0 as u64;
/// The attributes that move a queue pair to INIT.
pub(super) const TO_INIT: u64 = ib_qp_attr_mask::IB_QP_STATE
    .union(ib_qp_attr_mask::IB_QP_PKEY_INDEX)
    .union(ib_qp_attr_mask::IB_QP_PORT)
    .union(ib_qp_attr_mask::IB_QP_ACCESS_FLAGS)
    .bits() as u64;

/// Returns the use of a command with `objects`, without driver data.
pub(super) const fn own(
    objects: &'static [(usize, Object)],
    fields: &'static [(usize, usize, u64)],
    outcomes: [Outcome; 2],
) -> Option<ObjectUse> {
    Some(ObjectUse { objects, fields, memory: &[], request: [0, 0], outcomes })
}

/// Returns success with this length of the core response and of the drivers' responses.
pub(super) const fn done(response: usize, [rxe, siw]: [usize; 2]) -> [Outcome; 2] {
    [Done(response + rxe), Done(response + siw)]
}
