//! The form of a write command of uverbs, as the checks use it.

use std::mem::offset_of;

use nix::libc::{EINVAL, ENOENT};
use verbs_abi::mlx5::{
    mlx5_ib_alloc_ucontext_req_v2, mlx5_ib_create_cq, mlx5_ib_create_qp, mlx5_ib_create_srq,
    mlx5_ib_resize_cq,
};
use verbs_abi::{ib_qp_attr_mask, ib_qp_state, ib_uverbs_qp_type};
use verbs_abi::{ib_uverbs_attach_mcast, ib_uverbs_resize_cq};

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
    /// The answers of mlx5 that differ.
    pub(super) mlx5: Mlx5,
}

/// The answers of mlx5 that differ from those of rxe and siw.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Mlx5 {
    /// No answer differs.
    Equal,
    /// The driver does not have the command.
    Lacks,
    /// The driver always stores its part of the response, for which there must be room before Linux 7.2.
    NeedsRoom,
    /// The driver stores its part of the response on Ethernet ports only.
    MayLackPart,
    /// Some devices lack the command.
    ByDevice,
}

/// The object that a handle refers to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Handle {
    ProtectionDomain,
    Other,
}

/// The known drivers that have a command, apart from [mlx5](Command::mlx5).
///
/// The others answer EOPNOTSUPP.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Support {
    /// Both rxe and siw.
    Both,
    /// rxe, and not siw.
    Rxe,
    /// rxe since this version, and not siw.
    RxeSince(Version),
    /// mlx5, and neither rxe nor siw.
    Mlx5,
    /// None of the known drivers; another driver may have the command.
    Others,
    /// No driver: no kernel has ever had the command.
    None,
}

/// An object that one command creates and others use.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Object {
    ProtectionDomain,
    XrcDomain,
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
    /// The driver's part of the request: rxe, siw, mlx5.
    pub(super) driver_data: [DriverData; 3],
    /// The answers of rxe, siw and mlx5.
    pub(super) outcomes: [Outcome; 3],
}

/// The driver's part of a request.
#[derive(Debug, Clone, Copy)]
pub(super) struct DriverData {
    /// Length in bytes.
    pub(super) length: usize,
    /// Fields that are not 0: offset, length in bytes, value.
    pub(super) fields: &'static [(usize, usize, u64)],
    /// Offsets of memory addresses.
    pub(super) memory: &'static [usize],
    /// Other fields of the core request that differ from those of the use: offset, length in bytes, value.
    pub(super) core: &'static [(usize, usize, u64)],
}

impl DriverData {
    pub(super) const NONE: Self = Self::zeros(0);

    /// Returns `length` bytes of 0.
    pub(super) const fn zeros(length: usize) -> Self {
        Self { length, fields: &[], memory: &[], core: &[] }
    }
}

impl ObjectUse {
    /// Length of a memory region in bytes.
    pub(super) const REGION: usize = 64;
    /// Length of the memory for rings in bytes.
    ///
    /// The rings of a queue with few entries fit. The memory is aligned to this length, also at the end of a page.
    pub(super) const RINGS: usize = 2048;
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
    mlx5: Mlx5::Equal,
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
    outcomes: [Outcome; 3],
) -> Option<ObjectUse> {
    own_with(objects, fields, DriverData::NONE, outcomes)
}

/// Returns the use of a command with `objects`, with driver data for mlx5 alone.
pub(super) const fn own_with(
    objects: &'static [(usize, Object)],
    fields: &'static [(usize, usize, u64)],
    mlx5: DriverData,
    outcomes: [Outcome; 3],
) -> Option<ObjectUse> {
    let driver_data = [DriverData::NONE, DriverData::NONE, mlx5];
    Some(ObjectUse { objects, fields, memory: &[], driver_data, outcomes })
}

/// Returns success with this length of the core response and of the drivers' responses.
pub(super) const fn done(response: usize, [rxe, siw, mlx5]: [usize; 3]) -> [Outcome; 3] {
    [Done(response + rxe), Done(response + siw), Done(response + mlx5)]
}

/// Driver data of mlx5 for GET_CONTEXT: 16 registers, 4 of low latency, and completions of version 0.
pub(super) const MLX5_CONTEXT: DriverData = DriverData {
    length: size_of::<mlx5_ib_alloc_ucontext_req_v2>(),
    fields: &[
        (offset_of!(mlx5_ib_alloc_ucontext_req_v2, total_num_bfregs), 4, 16),
        (offset_of!(mlx5_ib_alloc_ucontext_req_v2, num_low_latency_bfregs), 4, 4),
    ],
    memory: &[],
    core: &[],
};

/// Driver data of mlx5 for a completion queue of completions with 64 bytes.
pub(super) const MLX5_CQ: DriverData = DriverData {
    length: size_of::<mlx5_ib_create_cq>(),
    fields: &[(offset_of!(mlx5_ib_create_cq, cqe_size), 4, 64)],
    memory: &[offset_of!(mlx5_ib_create_cq, buf_addr), offset_of!(mlx5_ib_create_cq, db_addr)],
    core: &[],
};

/// The requests of multicast membership on mlx5: on InfiniBand ports the LID of the group counts.
pub(super) const MLX5_GROUP: DriverData = DriverData {
    length: 0,
    fields: &[],
    memory: &[],
    core: &[(offset_of!(ib_uverbs_attach_mcast, mlid), 2, 0xc001)],
};

/// The index that a queue has for the driver if completions have version 0.
const NO_INDEX: u64 = 0xff_ffff;

/// Driver data of mlx5 for a queue pair with 4 entries of 32 bytes for receives, and 4 blocks for sends.
pub(super) const MLX5_QP: DriverData = DriverData {
    length: size_of::<mlx5_ib_create_qp>(),
    fields: &[
        (offset_of!(mlx5_ib_create_qp, sq_wqe_count), 4, 4),
        (offset_of!(mlx5_ib_create_qp, rq_wqe_count), 4, 4),
        (offset_of!(mlx5_ib_create_qp, rq_wqe_shift), 4, 5),
        (offset_of!(mlx5_ib_create_qp, uidx), 4, NO_INDEX),
    ],
    memory: &[offset_of!(mlx5_ib_create_qp, buf_addr), offset_of!(mlx5_ib_create_qp, db_addr)],
    core: &[],
};

/// Driver data of mlx5 for a shared receive queue.
pub(super) const MLX5_SRQ: DriverData = DriverData {
    length: size_of::<mlx5_ib_create_srq>(),
    fields: &[(offset_of!(mlx5_ib_create_srq, uidx), 4, NO_INDEX)],
    memory: &[offset_of!(mlx5_ib_create_srq, buf_addr), offset_of!(mlx5_ib_create_srq, db_addr)],
    core: &[],
};

/// Driver data of mlx5 for the new ring of a completion queue, which has another size.
pub(super) const MLX5_RESIZED_CQ: DriverData = DriverData {
    length: size_of::<mlx5_ib_resize_cq>(),
    fields: &[(offset_of!(mlx5_ib_resize_cq, cqe_size), 2, 64)],
    memory: &[offset_of!(mlx5_ib_resize_cq, buf_addr)],
    core: &[(offset_of!(ib_uverbs_resize_cq, cqe), 4, 20)],
};
