//! The commands of ucma: position of the handle, first checks of the kernel, and stored response.

use std::mem::{offset_of, size_of};

use nix::libc::{AF_INET, EAGAIN, EFAULT, EINVAL, ENODATA, ENOENT, ENOSPC, ENOSYS};
use ucma_abi::*;
use verbs_abi::ib_uverbs_qp_attr;

use super::super::check::Version;
use super::super::kernel::Outcome::{self, Done, Errno};

/// A valid command.
#[derive(Debug, Clone, Copy)]
pub(super) struct Command {
    pub(super) name: &'static str,
    pub(super) number: u32,
    /// Function in `drivers/infiniband/core/ucma.c`.
    pub(super) source: &'static str,
    /// Length of the request in bytes.
    pub(super) request: usize,
    /// Minimum length in the header, if the kernel checks it.
    pub(super) floor: Option<usize>,
    /// Offset of the handle, and the object that it refers to.
    pub(super) handle: Option<(usize, Handle)>,
    pub(super) response: Option<Response>,
    /// Offset of the address of data, and the data.
    pub(super) data: Option<(usize, &'static [u8])>,
    /// Offset of the channel's own descriptor.
    pub(super) descriptor: Option<usize>,
    /// Other fields that are not 0: offset, length in bytes, value.
    pub(super) fields: &'static [(usize, usize, u64)],
    /// Fields that must be 0, and the answer for a nonexistent handle if they are not.
    pub(super) reserved: &'static [(&'static str, usize, Outcome)],
    /// The answer for a nonexistent handle, or for a command without a handle.
    pub(super) unknown: Outcome,
    /// The answer for a new id; `None` if it depends on the machine.
    pub(super) fresh: Option<Outcome>,
    /// The answer for a new id if the address of the response is invalid.
    pub(super) lost: Outcome,
    /// The answer for a header without a request.
    pub(super) bare: Outcome,
    pub(super) presence: Presence,
}

/// The object that a handle refers to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Handle {
    Id,
    /// The membership of a multicast group.
    Group,
}

/// The destination of a response, and its length.
#[derive(Debug, Clone, Copy)]
pub(super) struct Response {
    /// Offset of its address in the request.
    pub(super) address: usize,
    /// Number of stored bytes if there is room for them.
    pub(super) size: usize,
    /// Minimum room.
    pub(super) least: usize,
    /// `true` if the kernel checks the room.
    pub(super) is_checked: bool,
}

/// The kernels that have a command.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Presence {
    Always,
    /// Kernels since this version; earlier ones do not know the command number.
    Since(Version),
    /// Kernels since this version; earlier ones know the command number, but not the option.
    OptionSince(Version),
    /// No kernel.
    Never,
}

const V6_18: Version = Version(6, 18);

/// Returns a response at the start of the request that is stored completely or not at all.
const fn response(size: usize) -> Option<Response> {
    Some(Response { address: 0, size, least: size, is_checked: true })
}

/// The common properties of most commands.
///
/// They have the handle of an id and no response, and do not succeed without a device.
const COMMON: Command = Command {
    name: "",
    number: u32::MAX,
    source: "ucma_write",
    request: 0,
    floor: None,
    handle: None,
    response: None,
    data: None,
    descriptor: None,
    fields: &[],
    reserved: &[],
    unknown: Errno(ENOENT),
    fresh: Some(Errno(EINVAL)),
    lost: Errno(EINVAL),
    bare: Errno(EFAULT),
    presence: Presence::Always,
};

/// Returns a command with an unused number.
const fn unused(name: &'static str, number: u32, answer: Outcome) -> Command {
    Command {
        name,
        number,
        request: 64,
        unknown: answer,
        fresh: None,
        bare: answer,
        presence: Presence::Never,
        ..COMMON
    }
}

const INET: u64 = AF_INET as u64;
/// Length of `sockaddr_in` in bytes.
const INET_SIZE: u64 = 16;
/// The address 239.1.1.1 as a number with these bytes.
const GROUP: u64 = u32::from_ne_bytes([239, 1, 1, 1]) as u64;
const VALID: usize = offset_of!(rdma_ucm_conn_param, valid);

/// Returns the QUERY of an option.
const fn query(name: &'static str, option: u32, source: &'static str) -> Command {
    Command {
        name,
        number: RDMA_USER_CM_CMD_QUERY,
        source,
        request: size_of::<rdma_ucm_query>(),
        handle: Some((offset_of!(rdma_ucm_query, id), Handle::Id)),
        fresh: Some(Done(size_of::<rdma_ucm_query_addr_resp>())),
        lost: Errno(EFAULT),
        response: Some(Response {
            address: 0,
            size: size_of::<rdma_ucm_query_addr_resp>(),
            least: rdma_ucm_query_addr_resp::MIN_SIZE,
            is_checked: true,
        }),
        // The layout test of the ABI crate has the offset and length of this field.
        fields: match option {
            RDMA_USER_CM_QUERY_ADDR => &[],
            RDMA_USER_CM_QUERY_PATH => &[(12, 4, RDMA_USER_CM_QUERY_PATH as u64)],
            RDMA_USER_CM_QUERY_GID => &[(12, 4, RDMA_USER_CM_QUERY_GID as u64)],
            RDMA_USER_CM_QUERY_IB_SERVICE => &[(12, 4, RDMA_USER_CM_QUERY_IB_SERVICE as u64)],
            _ => &[(12, 4, 0xffff)],
        },
        ..COMMON
    }
}

/// Every command, every option of QUERY, and some unused numbers.
pub(super) const COMMANDS: &[Command] = &[
    Command {
        name: "create_id",
        number: RDMA_USER_CM_CMD_CREATE_ID,
        source: "ucma_create_id",
        request: size_of::<rdma_ucm_create_id>(),
        response: Some(Response {
            address: offset_of!(rdma_ucm_create_id, response),
            size: 4,
            least: 4,
            is_checked: true,
        }),
        fields: &[
            (offset_of!(rdma_ucm_create_id, uid), 8, 1),
            (offset_of!(rdma_ucm_create_id, ps), 2, RDMA_PS_TCP as u64),
        ],
        reserved: &[("reserved", offset_of!(rdma_ucm_create_id, reserved), Done(4))],
        unknown: Done(4),
        fresh: None,
        lost: Errno(EFAULT),
        bare: Errno(ENOSPC),
        ..COMMON
    },
    Command {
        name: "destroy_id",
        number: RDMA_USER_CM_CMD_DESTROY_ID,
        source: "ucma_destroy_id",
        request: size_of::<rdma_ucm_destroy_id>(),
        handle: Some((offset_of!(rdma_ucm_destroy_id, id), Handle::Id)),
        response: response(4),
        reserved: &[("reserved", offset_of!(rdma_ucm_destroy_id, reserved), Errno(ENOENT))],
        fresh: Some(Done(4)),
        lost: Errno(EFAULT),
        bare: Errno(ENOSPC),
        ..COMMON
    },
    Command {
        name: "bind_ip",
        number: RDMA_USER_CM_CMD_BIND_IP,
        source: "ucma_bind_ip",
        request: size_of::<rdma_ucm_bind_ip>(),
        handle: Some((offset_of!(rdma_ucm_bind_ip, id), Handle::Id)),
        fields: &[(offset_of!(rdma_ucm_bind_ip, addr), 2, INET)],
        reserved: &[("response", offset_of!(rdma_ucm_bind_ip, response), Errno(ENOENT))],
        fresh: Some(Done(0)),
        ..COMMON
    },
    Command {
        name: "resolve_ip",
        number: RDMA_USER_CM_CMD_RESOLVE_IP,
        source: "ucma_resolve_ip",
        request: size_of::<rdma_ucm_resolve_ip>(),
        handle: Some((offset_of!(rdma_ucm_resolve_ip, id), Handle::Id)),
        fields: &[(offset_of!(rdma_ucm_resolve_ip, dst_addr), 2, INET)],
        fresh: None,
        ..COMMON
    },
    Command {
        name: "resolve_route",
        number: RDMA_USER_CM_CMD_RESOLVE_ROUTE,
        source: "ucma_resolve_route",
        request: size_of::<rdma_ucm_resolve_route>(),
        handle: Some((offset_of!(rdma_ucm_resolve_route, id), Handle::Id)),
        fields: &[(offset_of!(rdma_ucm_resolve_route, timeout_ms), 4, 1000)],
        ..COMMON
    },
    Command {
        name: "query_route",
        number: RDMA_USER_CM_CMD_QUERY_ROUTE,
        source: "ucma_query_route",
        request: size_of::<rdma_ucm_query>(),
        handle: Some((offset_of!(rdma_ucm_query, id), Handle::Id)),
        response: Some(Response {
            address: 0,
            size: size_of::<rdma_ucm_query_route_resp>(),
            least: rdma_ucm_query_route_resp::MIN_SIZE,
            is_checked: true,
        }),
        reserved: &[("option", offset_of!(rdma_ucm_query, option), Errno(ENOENT))],
        fresh: Some(Done(size_of::<rdma_ucm_query_route_resp>())),
        lost: Errno(EFAULT),
        bare: Errno(ENOSPC),
        ..COMMON
    },
    Command {
        name: "connect",
        number: RDMA_USER_CM_CMD_CONNECT,
        source: "ucma_connect",
        request: size_of::<rdma_ucm_connect>(),
        floor: Some(offset_of!(rdma_ucm_connect, ece)),
        handle: Some((offset_of!(rdma_ucm_connect, id), Handle::Id)),
        fields: &[(offset_of!(rdma_ucm_connect, conn_param) + VALID, 1, 1)],
        reserved: &[("reserved", offset_of!(rdma_ucm_connect, reserved), Errno(ENOENT))],
        bare: Errno(EINVAL),
        ..COMMON
    },
    Command {
        name: "listen",
        number: RDMA_USER_CM_CMD_LISTEN,
        source: "ucma_listen",
        request: size_of::<rdma_ucm_listen>(),
        handle: Some((offset_of!(rdma_ucm_listen, id), Handle::Id)),
        // The command would use a port of every device.
        fresh: None,
        ..COMMON
    },
    Command {
        name: "accept",
        number: RDMA_USER_CM_CMD_ACCEPT,
        source: "ucma_accept",
        request: size_of::<rdma_ucm_accept>(),
        floor: Some(offset_of!(rdma_ucm_accept, ece)),
        handle: Some((offset_of!(rdma_ucm_accept, id), Handle::Id)),
        fields: &[(offset_of!(rdma_ucm_accept, conn_param) + VALID, 1, 1)],
        reserved: &[("reserved", offset_of!(rdma_ucm_accept, reserved), Errno(ENOENT))],
        bare: Errno(EINVAL),
        ..COMMON
    },
    Command {
        name: "reject",
        number: RDMA_USER_CM_CMD_REJECT,
        source: "ucma_reject",
        request: size_of::<rdma_ucm_reject>(),
        handle: Some((offset_of!(rdma_ucm_reject, id), Handle::Id)),
        reserved: &[
            ("reserved", offset_of!(rdma_ucm_reject, reserved), Errno(ENOENT)),
            ("reason", offset_of!(rdma_ucm_reject, reason), Errno(EINVAL)),
        ],
        ..COMMON
    },
    Command {
        name: "disconnect",
        number: RDMA_USER_CM_CMD_DISCONNECT,
        source: "ucma_disconnect",
        request: size_of::<rdma_ucm_disconnect>(),
        handle: Some((offset_of!(rdma_ucm_disconnect, id), Handle::Id)),
        ..COMMON
    },
    Command {
        name: "init_qp_attr",
        number: RDMA_USER_CM_CMD_INIT_QP_ATTR,
        source: "ucma_init_qp_attr",
        request: size_of::<rdma_ucm_init_qp_attr>(),
        handle: Some((offset_of!(rdma_ucm_init_qp_attr, id), Handle::Id)),
        response: response(size_of::<ib_uverbs_qp_attr>()),
        fields: &[(offset_of!(rdma_ucm_init_qp_attr, qp_state), 4, 1)],
        bare: Errno(ENOSPC),
        ..COMMON
    },
    Command {
        name: "get_event",
        number: RDMA_USER_CM_CMD_GET_EVENT,
        source: "ucma_get_event",
        request: size_of::<rdma_ucm_get_event>(),
        response: Some(Response {
            address: 0,
            size: size_of::<rdma_ucm_event_resp>(),
            least: rdma_ucm_event_resp::MIN_SIZE,
            is_checked: true,
        }),
        unknown: Errno(EAGAIN),
        fresh: Some(Errno(EAGAIN)),
        lost: Errno(EAGAIN),
        bare: Errno(ENOSPC),
        ..COMMON
    },
    unused("get_option", RDMA_USER_CM_CMD_GET_OPTION, Errno(ENOSYS)),
    Command {
        name: "set_option",
        number: RDMA_USER_CM_CMD_SET_OPTION,
        source: "ucma_set_option",
        request: size_of::<rdma_ucm_set_option>(),
        handle: Some((offset_of!(rdma_ucm_set_option, id), Handle::Id)),
        data: Some((offset_of!(rdma_ucm_set_option, optval), &[0])),
        fields: &[(offset_of!(rdma_ucm_set_option, optlen), 4, 1)],
        fresh: Some(Done(0)),
        ..COMMON
    },
    Command {
        name: "notify",
        number: RDMA_USER_CM_CMD_NOTIFY,
        source: "ucma_notify",
        request: size_of::<rdma_ucm_notify>(),
        handle: Some((offset_of!(rdma_ucm_notify, id), Handle::Id)),
        ..COMMON
    },
    Command {
        name: "join_ip_mcast",
        number: RDMA_USER_CM_CMD_JOIN_IP_MCAST,
        source: "ucma_join_ip_multicast",
        request: size_of::<rdma_ucm_join_ip_mcast>(),
        handle: Some((offset_of!(rdma_ucm_join_ip_mcast, id), Handle::Id)),
        response: response(4),
        fields: &[
            (offset_of!(rdma_ucm_join_ip_mcast, addr), 2, INET),
            (offset_of!(rdma_ucm_join_ip_mcast, addr) + 4, 4, GROUP),
        ],
        ..COMMON
    },
    Command {
        name: "leave_mcast",
        number: RDMA_USER_CM_CMD_LEAVE_MCAST,
        source: "ucma_leave_multicast",
        request: size_of::<rdma_ucm_destroy_id>(),
        handle: Some((offset_of!(rdma_ucm_destroy_id, id), Handle::Group)),
        response: response(4),
        reserved: &[("reserved", offset_of!(rdma_ucm_destroy_id, reserved), Errno(ENOENT))],
        fresh: None,
        lost: Errno(ENOENT),
        bare: Errno(ENOSPC),
        ..COMMON
    },
    Command {
        name: "migrate_id",
        number: RDMA_USER_CM_CMD_MIGRATE_ID,
        source: "ucma_migrate_id",
        request: size_of::<rdma_ucm_migrate_id>(),
        handle: Some((offset_of!(rdma_ucm_migrate_id, id), Handle::Id)),
        response: Some(Response { address: 0, size: 4, least: 4, is_checked: false }),
        descriptor: Some(offset_of!(rdma_ucm_migrate_id, fd)),
        fresh: Some(Done(4)),
        lost: Errno(EFAULT),
        ..COMMON
    },
    query("query.addr", RDMA_USER_CM_QUERY_ADDR, "ucma_query_addr"),
    Command {
        response: response(size_of::<rdma_ucm_query_path_resp>()),
        fresh: Some(Done(size_of::<rdma_ucm_query_path_resp>())),
        ..query("query.path", RDMA_USER_CM_QUERY_PATH, "ucma_query_path")
    },
    query("query.gid", RDMA_USER_CM_QUERY_GID, "ucma_query_gid"),
    Command {
        response: response(size_of::<rdma_ucm_query_ib_service_resp>()),
        // A new id has no path records.
        fresh: Some(Errno(ENODATA)),
        lost: Errno(ENODATA),
        presence: Presence::OptionSince(V6_18),
        ..query("query.ib_service", RDMA_USER_CM_QUERY_IB_SERVICE, "ucma_query_ib_service")
    },
    Command {
        fresh: Some(Errno(ENOSYS)),
        lost: Errno(ENOSYS),
        response: None,
        ..query("query.unknown", u32::MAX, "ucma_query")
    },
    Command {
        name: "bind",
        number: RDMA_USER_CM_CMD_BIND,
        source: "ucma_bind",
        request: size_of::<rdma_ucm_bind>(),
        handle: Some((offset_of!(rdma_ucm_bind, id), Handle::Id)),
        fields: &[
            (offset_of!(rdma_ucm_bind, addr_size), 2, INET_SIZE),
            (offset_of!(rdma_ucm_bind, addr), 2, INET),
        ],
        reserved: &[("reserved", offset_of!(rdma_ucm_bind, reserved), Errno(EINVAL))],
        fresh: Some(Done(0)),
        ..COMMON
    },
    Command {
        name: "resolve_addr",
        number: RDMA_USER_CM_CMD_RESOLVE_ADDR,
        source: "ucma_resolve_addr",
        request: size_of::<rdma_ucm_resolve_addr>(),
        handle: Some((offset_of!(rdma_ucm_resolve_addr, id), Handle::Id)),
        fields: &[
            (offset_of!(rdma_ucm_resolve_addr, dst_size), 2, INET_SIZE),
            (offset_of!(rdma_ucm_resolve_addr, dst_addr), 2, INET),
        ],
        reserved: &[("reserved", offset_of!(rdma_ucm_resolve_addr, reserved), Errno(EINVAL))],
        fresh: None,
        ..COMMON
    },
    Command {
        name: "join_mcast",
        number: RDMA_USER_CM_CMD_JOIN_MCAST,
        source: "ucma_join_multicast",
        request: size_of::<rdma_ucm_join_mcast>(),
        handle: Some((offset_of!(rdma_ucm_join_mcast, id), Handle::Id)),
        response: response(4),
        fields: &[
            (offset_of!(rdma_ucm_join_mcast, addr_size), 2, INET_SIZE),
            (offset_of!(rdma_ucm_join_mcast, addr), 2, INET),
            (offset_of!(rdma_ucm_join_mcast, addr) + 4, 4, GROUP),
        ],
        reserved: &[("join_flags", offset_of!(rdma_ucm_join_mcast, join_flags), Errno(EINVAL))],
        ..COMMON
    },
    Command {
        name: "resolve_ib_service",
        number: RDMA_USER_CM_CMD_RESOLVE_IB_SERVICE,
        source: "ucma_resolve_ib_service",
        request: size_of::<rdma_ucm_resolve_ib_service>(),
        handle: Some((offset_of!(rdma_ucm_resolve_ib_service, id), Handle::Id)),
        reserved: &[("reserved", offset_of!(rdma_ucm_resolve_ib_service, reserved), Errno(ENOENT))],
        presence: Presence::Since(V6_18),
        ..COMMON
    },
    Command {
        name: "write_cm_event",
        number: RDMA_USER_CM_CMD_WRITE_CM_EVENT,
        source: "ucma_write_cm_event",
        request: size_of::<rdma_ucm_write_cm_event>(),
        handle: Some((offset_of!(rdma_ucm_write_cm_event, id), Handle::Id)),
        fields: &[(
            offset_of!(rdma_ucm_write_cm_event, event),
            4,
            rdma_cm_event_type::RDMA_CM_EVENT_USER.0 as u64,
        )],
        reserved: &[
            ("event", offset_of!(rdma_ucm_write_cm_event, event), Errno(EINVAL)),
            ("reserved", offset_of!(rdma_ucm_write_cm_event, reserved), Errno(ENOENT)),
        ],
        fresh: Some(Done(0)),
        presence: Presence::Since(V6_18),
        ..COMMON
    },
    unused("25", 25, Errno(EINVAL)),
    unused("65535", 0xffff, Errno(EINVAL)),
    unused("4294967295", u32::MAX, Errno(EINVAL)),
];

#[cfg(test)]
mod tests;
