//! The write commands of uverbs, as used by the checks.

use std::mem::{offset_of, size_of};

use nix::libc::{EBADF, EFAULT, EINVAL, ENOENT, ENOTCONN, EOPNOTSUPP};
use verbs_abi::*;

use super::super::check::Version;
use super::super::kernel::Outcome::{Done, Errno, Stored};
use super::command::{
    COMMON, Command, Handle, INIT, NO_CHANNEL, NONE, Object, ObjectUse, RC, Support, TO_INIT,
    create, done, own, plain, unused,
};

const LIMIT: u64 = ib_srq_attr_mask::IB_SRQ_LIMIT.bits() as u64;
/// The first bytes of the GID of a multicast group, ff0e::.
const GROUP: u64 = u16::from_ne_bytes([0xff, 0x0e]) as u64;
/// Offsets of substructures of requests.
///
/// They are the address and the global route in CREATE_AH, and the attributes of MODIFY_QP in EX_MODIFY_QP.
const AH: usize = offset_of!(ib_uverbs_create_ah, attr);
const AH_GRH: usize = AH + offset_of!(ib_uverbs_ah_attr, grh);
const BASE: usize = offset_of!(ib_uverbs_ex_modify_qp, base);
/// Length of the response of POST_SEND in bytes.
const BAD_WR: usize = size_of::<ib_uverbs_post_send_resp>();

/// Every used write command, and some unused numbers.
pub(super) const COMMANDS: &[Command] = &[
    Command {
        name: "get_context",
        own: own(&[], &[], done(size_of::<ib_uverbs_get_context_resp>(), [0, 8])),
        number: IB_USER_VERBS_CMD_GET_CONTEXT,
        source: "ib_uverbs_get_context",
        request: size_of::<ib_uverbs_get_context>(),
        floor: size_of::<ib_uverbs_get_context>(),
        response: size_of::<ib_uverbs_get_context_resp>(),
        least: size_of::<ib_uverbs_get_context_resp>(),
        has_driver_data: true,
        // The kernel stores the response before it rejects a second context.
        unknown: Stored(EINVAL, size_of::<ib_uverbs_get_context_resp>()),
        lost: Errno(EFAULT),
        descriptor: Some(offset_of!(ib_uverbs_get_context_resp, async_fd)),
        ..COMMON
    },
    Command {
        name: "query_device",
        number: IB_USER_VERBS_CMD_QUERY_DEVICE,
        source: "ib_uverbs_query_device",
        request: size_of::<ib_uverbs_query_device>(),
        floor: size_of::<ib_uverbs_query_device>(),
        response: size_of::<ib_uverbs_query_device_resp>(),
        least: size_of::<ib_uverbs_query_device_resp>(),
        unknown: Done(size_of::<ib_uverbs_query_device_resp>()),
        lost: Errno(EFAULT),
        ..COMMON
    },
    Command {
        name: "query_port",
        reserved: &[(
            "reserved",
            offset_of!(ib_uverbs_query_port, reserved),
            Done(size_of::<ib_uverbs_query_port_resp>()),
        )],
        number: IB_USER_VERBS_CMD_QUERY_PORT,
        source: "ib_uverbs_query_port",
        request: size_of::<ib_uverbs_query_port>(),
        floor: size_of::<ib_uverbs_query_port>(),
        response: size_of::<ib_uverbs_query_port_resp>(),
        least: size_of::<ib_uverbs_query_port_resp>(),
        fields: &[(offset_of!(ib_uverbs_query_port, port_num), 1, 1)],
        unknown: Done(size_of::<ib_uverbs_query_port_resp>()),
        lost: Errno(EFAULT),
        ..COMMON
    },
    Command {
        name: "alloc_pd",
        own: own(&[], &[], done(size_of::<ib_uverbs_alloc_pd_resp>(), [0, 0])),
        number: IB_USER_VERBS_CMD_ALLOC_PD,
        source: "ib_uverbs_alloc_pd",
        request: size_of::<ib_uverbs_alloc_pd>(),
        floor: size_of::<ib_uverbs_alloc_pd>(),
        response: size_of::<ib_uverbs_alloc_pd_resp>(),
        least: size_of::<ib_uverbs_alloc_pd_resp>(),
        has_driver_data: true,
        unknown: Done(size_of::<ib_uverbs_alloc_pd_resp>()),
        lost: Errno(EFAULT),
        ..COMMON
    },
    Command {
        own: own(&[(0, Object::ProtectionDomain)], &[], done(0, [0, 0])),
        handle: Some((0, Handle::ProtectionDomain)),
        ..plain(("dealloc_pd", IB_USER_VERBS_CMD_DEALLOC_PD, "ib_uverbs_dealloc_pd"), 4, 0, 0)
    },
    Command {
        own: own(
            &[(offset_of!(ib_uverbs_create_ah, pd_handle), Object::ProtectionDomain)],
            &[
                (AH_GRH + offset_of!(ib_uverbs_global_route, dgid), 2, GROUP),
                (AH_GRH + offset_of!(ib_uverbs_global_route, hop_limit), 1, 1),
                (AH + offset_of!(ib_uverbs_ah_attr, is_global), 1, 1),
            ],
            // The response has only a number, although the room is 8 bytes.
            done(size_of::<ib_uverbs_create_ah_resp>(), [4, 0]),
        ),
        reserved: &[("reserved", offset_of!(ib_uverbs_create_ah, reserved), Errno(ENOENT))],
        fields: &[(AH + offset_of!(ib_uverbs_ah_attr, port_num), 1, 1)],
        support: Support::Rxe,
        ..create(
            ("create_ah", IB_USER_VERBS_CMD_CREATE_AH, "ib_uverbs_create_ah"),
            size_of::<ib_uverbs_create_ah>(),
            size_of::<ib_uverbs_create_ah_resp>(),
            offset_of!(ib_uverbs_create_ah, pd_handle),
        )
    },
    unused("modify_ah", IB_USER_VERBS_CMD_MODIFY_AH),
    unused("query_ah", IB_USER_VERBS_CMD_QUERY_AH),
    Command {
        own: own(&[(0, Object::AddressHandle)], &[], done(0, [0, 0])),
        support: Support::Rxe,
        ..plain(("destroy_ah", IB_USER_VERBS_CMD_DESTROY_AH, "ib_uverbs_destroy_ah"), 4, 0, 0)
    },
    Command {
        own: Some(ObjectUse {
            objects: &[(offset_of!(ib_uverbs_reg_mr, pd_handle), Object::ProtectionDomain)],
            fields: &[(offset_of!(ib_uverbs_reg_mr, length), 8, ObjectUse::MEMORY as u64)],
            memory: &[offset_of!(ib_uverbs_reg_mr, start), offset_of!(ib_uverbs_reg_mr, hca_va)],
            request: [0, 8],
            outcomes: done(size_of::<ib_uverbs_reg_mr_resp>(), [0, 8]),
        }),
        ..create(
            ("reg_mr", IB_USER_VERBS_CMD_REG_MR, "ib_uverbs_reg_mr"),
            size_of::<ib_uverbs_reg_mr>(),
            size_of::<ib_uverbs_reg_mr_resp>(),
            offset_of!(ib_uverbs_reg_mr, pd_handle),
        )
    },
    unused("reg_smr", IB_USER_VERBS_CMD_REG_SMR),
    Command {
        own: own(
            &[
                (offset_of!(ib_uverbs_rereg_mr, mr_handle), Object::MemoryRegion),
                (offset_of!(ib_uverbs_rereg_mr, pd_handle), Object::ProtectionDomain),
            ],
            &[],
            done(size_of::<ib_uverbs_rereg_mr_resp>(), [0, 0]),
        ),
        reserved: &[("flags", offset_of!(ib_uverbs_rereg_mr, flags) + 3, Errno(EOPNOTSUPP))],
        fields: &[(offset_of!(ib_uverbs_rereg_mr, flags), 4, 2)],
        has_driver_data: true,
        support: Support::RxeSince(Version(6, 5)),
        ..plain(
            ("rereg_mr", IB_USER_VERBS_CMD_REREG_MR, "ib_uverbs_rereg_mr"),
            size_of::<ib_uverbs_rereg_mr>(),
            size_of::<ib_uverbs_rereg_mr_resp>(),
            offset_of!(ib_uverbs_rereg_mr, mr_handle),
        )
    },
    unused("query_mr", IB_USER_VERBS_CMD_QUERY_MR),
    Command {
        own: own(&[(0, Object::MemoryRegion)], &[], done(0, [0, 0])),
        ..plain(("dereg_mr", IB_USER_VERBS_CMD_DEREG_MR, "ib_uverbs_dereg_mr"), 4, 0, 0)
    },
    Command {
        own: own(
            &[(offset_of!(ib_uverbs_alloc_mw, pd_handle), Object::ProtectionDomain)],
            &[(offset_of!(ib_uverbs_alloc_mw, mw_type), 1, 1)],
            done(size_of::<ib_uverbs_alloc_mw_resp>(), [0, 0]),
        ),
        reserved: &[("reserved", offset_of!(ib_uverbs_alloc_mw, reserved), Errno(ENOENT))],
        support: Support::Rxe,
        ..create(
            ("alloc_mw", IB_USER_VERBS_CMD_ALLOC_MW, "ib_uverbs_alloc_mw"),
            size_of::<ib_uverbs_alloc_mw>(),
            size_of::<ib_uverbs_alloc_mw_resp>(),
            offset_of!(ib_uverbs_alloc_mw, pd_handle),
        )
    },
    unused("bind_mw", IB_USER_VERBS_CMD_BIND_MW),
    Command {
        own: own(&[(0, Object::MemoryWindow)], &[], done(0, [0, 0])),
        support: Support::Rxe,
        ..plain(("dealloc_mw", IB_USER_VERBS_CMD_DEALLOC_MW, "ib_uverbs_dealloc_mw"), 4, 0, 0)
    },
    Command {
        name: "create_comp_channel",
        number: IB_USER_VERBS_CMD_CREATE_COMP_CHANNEL,
        source: "ib_uverbs_create_comp_channel",
        request: size_of::<ib_uverbs_create_comp_channel>(),
        floor: size_of::<ib_uverbs_create_comp_channel>(),
        response: size_of::<ib_uverbs_create_comp_channel_resp>(),
        least: size_of::<ib_uverbs_create_comp_channel_resp>(),
        descriptor: Some(0),
        unknown: Done(size_of::<ib_uverbs_create_comp_channel_resp>()),
        lost: Errno(EFAULT),
        ..COMMON
    },
    Command {
        name: "create_cq",
        own: own(
            &[],
            &[(offset_of!(ib_uverbs_create_cq, comp_channel), 4, NONE)],
            done(size_of::<ib_uverbs_create_cq_resp>(), [16, 16]),
        ),
        reserved: &[("reserved", offset_of!(ib_uverbs_create_cq, reserved), Errno(EBADF))],
        number: IB_USER_VERBS_CMD_CREATE_CQ,
        source: "ib_uverbs_create_cq",
        request: size_of::<ib_uverbs_create_cq>(),
        floor: size_of::<ib_uverbs_create_cq>(),
        response: size_of::<ib_uverbs_create_cq_resp>(),
        least: size_of::<ib_uverbs_create_cq_resp>(),
        has_driver_data: true,
        fields: &[
            (offset_of!(ib_uverbs_create_cq, cqe), 4, 1),
            (offset_of!(ib_uverbs_create_cq, comp_channel), 4, NO_CHANNEL),
        ],
        unknown: Errno(EBADF),
        lost: Errno(EBADF),
        ..COMMON
    },
    Command {
        own: own(
            &[(offset_of!(ib_uverbs_resize_cq, cq_handle), Object::CompletionQueue)],
            &[],
            done(size_of::<ib_uverbs_resize_cq_resp>(), [16, 0]),
        ),
        fields: &[(offset_of!(ib_uverbs_resize_cq, cqe), 4, 1)],
        has_driver_data: true,
        support: Support::Rxe,
        ..plain(
            ("resize_cq", IB_USER_VERBS_CMD_RESIZE_CQ, "ib_uverbs_resize_cq"),
            size_of::<ib_uverbs_resize_cq>(),
            size_of::<ib_uverbs_resize_cq_resp>(),
            offset_of!(ib_uverbs_resize_cq, cq_handle),
        )
    },
    Command {
        own: own(
            &[(offset_of!(ib_uverbs_destroy_cq, cq_handle), Object::CompletionQueue)],
            &[],
            done(size_of::<ib_uverbs_destroy_cq_resp>(), [0, 0]),
        ),
        reserved: &[("reserved", offset_of!(ib_uverbs_destroy_cq, reserved), Errno(ENOENT))],
        ..plain(
            ("destroy_cq", IB_USER_VERBS_CMD_DESTROY_CQ, "ib_uverbs_destroy_cq"),
            size_of::<ib_uverbs_destroy_cq>(),
            size_of::<ib_uverbs_destroy_cq_resp>(),
            offset_of!(ib_uverbs_destroy_cq, cq_handle),
        )
    },
    Command {
        support: Support::Neither,
        ..plain(
            ("poll_cq", IB_USER_VERBS_CMD_POLL_CQ, "ib_uverbs_poll_cq"),
            size_of::<ib_uverbs_poll_cq>(),
            size_of::<ib_uverbs_poll_cq_resp>(),
            offset_of!(ib_uverbs_poll_cq, cq_handle),
        )
    },
    unused("peek_cq", IB_USER_VERBS_CMD_PEEK_CQ),
    Command {
        own: own(
            &[(offset_of!(ib_uverbs_req_notify_cq, cq_handle), Object::CompletionQueue)],
            &[],
            done(0, [0, 0]),
        ),
        support: Support::Rxe,
        ..plain(
            ("req_notify_cq", IB_USER_VERBS_CMD_REQ_NOTIFY_CQ, "ib_uverbs_req_notify_cq"),
            size_of::<ib_uverbs_req_notify_cq>(),
            0,
            offset_of!(ib_uverbs_req_notify_cq, cq_handle),
        )
    },
    Command {
        own: own(
            &[
                (offset_of!(ib_uverbs_create_qp, pd_handle), Object::ProtectionDomain),
                (offset_of!(ib_uverbs_create_qp, send_cq_handle), Object::CompletionQueue),
                (offset_of!(ib_uverbs_create_qp, recv_cq_handle), Object::CompletionQueue),
            ],
            &[
                (offset_of!(ib_uverbs_create_qp, max_send_wr), 4, 1),
                (offset_of!(ib_uverbs_create_qp, max_recv_wr), 4, 1),
                (offset_of!(ib_uverbs_create_qp, max_send_sge), 4, 1),
                (offset_of!(ib_uverbs_create_qp, max_recv_sge), 4, 1),
            ],
            done(size_of::<ib_uverbs_create_qp_resp>(), [32, 32]),
        ),
        reserved: &[("reserved", offset_of!(ib_uverbs_create_qp, reserved), Errno(ENOENT))],
        fields: &[(offset_of!(ib_uverbs_create_qp, qp_type), 1, RC)],
        ..create(
            ("create_qp", IB_USER_VERBS_CMD_CREATE_QP, "ib_uverbs_create_qp"),
            size_of::<ib_uverbs_create_qp>(),
            size_of::<ib_uverbs_create_qp_resp>(),
            offset_of!(ib_uverbs_create_qp, pd_handle),
        )
    },
    Command {
        own: own(
            &[(offset_of!(ib_uverbs_query_qp, qp_handle), Object::QueuePair)],
            &[(offset_of!(ib_uverbs_query_qp, attr_mask), 4, 1)],
            done(size_of::<ib_uverbs_query_qp_resp>(), [0, 0]),
        ),
        ..plain(
            ("query_qp", IB_USER_VERBS_CMD_QUERY_QP, "ib_uverbs_query_qp"),
            size_of::<ib_uverbs_query_qp>(),
            size_of::<ib_uverbs_query_qp_resp>(),
            offset_of!(ib_uverbs_query_qp, qp_handle),
        )
    },
    Command {
        own: own(
            &[(offset_of!(ib_uverbs_modify_qp, qp_handle), Object::QueuePair)],
            &[
                (offset_of!(ib_uverbs_modify_qp, attr_mask), 4, TO_INIT),
                (offset_of!(ib_uverbs_modify_qp, qp_state), 1, INIT),
                (offset_of!(ib_uverbs_modify_qp, port_num), 1, 1),
            ],
            done(0, [0, 0]),
        ),
        reserved: &[
            ("reserved", offset_of!(ib_uverbs_modify_qp, reserved), Errno(ENOENT)),
            ("attr_mask", offset_of!(ib_uverbs_modify_qp, attr_mask) + 3, Errno(EOPNOTSUPP)),
        ],
        ..plain(
            ("modify_qp", IB_USER_VERBS_CMD_MODIFY_QP, "ib_uverbs_modify_qp"),
            size_of::<ib_uverbs_modify_qp>(),
            0,
            offset_of!(ib_uverbs_modify_qp, qp_handle),
        )
    },
    Command {
        own: own(
            &[(offset_of!(ib_uverbs_destroy_qp, qp_handle), Object::QueuePair)],
            &[],
            done(size_of::<ib_uverbs_destroy_qp_resp>(), [0, 0]),
        ),
        reserved: &[("reserved", offset_of!(ib_uverbs_destroy_qp, reserved), Errno(ENOENT))],
        ..plain(
            ("destroy_qp", IB_USER_VERBS_CMD_DESTROY_QP, "ib_uverbs_destroy_qp"),
            size_of::<ib_uverbs_destroy_qp>(),
            size_of::<ib_uverbs_destroy_qp_resp>(),
            offset_of!(ib_uverbs_destroy_qp, qp_handle),
        )
    },
    Command {
        own: own(
            &[(offset_of!(ib_uverbs_post_send, qp_handle), Object::QueuePair)],
            &[],
            // The queue pair is in RESET. The number of rejected requests is stored nevertheless.
            [Stored(EINVAL, BAD_WR), Stored(ENOTCONN, BAD_WR)],
        ),
        fields: &[(
            offset_of!(ib_uverbs_post_send, wqe_size),
            4,
            size_of::<ib_uverbs_send_wr>() as u64,
        )],
        ..plain(
            ("post_send", IB_USER_VERBS_CMD_POST_SEND, "ib_uverbs_post_send"),
            size_of::<ib_uverbs_post_send>(),
            size_of::<ib_uverbs_post_send_resp>(),
            offset_of!(ib_uverbs_post_send, qp_handle),
        )
    },
    Command {
        support: Support::Neither,
        ..plain(
            ("post_recv", IB_USER_VERBS_CMD_POST_RECV, "ib_uverbs_post_recv"),
            size_of::<ib_uverbs_post_recv>(),
            size_of::<ib_uverbs_post_recv_resp>(),
            offset_of!(ib_uverbs_post_recv, qp_handle),
        )
    },
    Command {
        own: own(
            &[(offset_of!(ib_uverbs_attach_mcast, qp_handle), Object::DatagramQueuePair)],
            &[(offset_of!(ib_uverbs_attach_mcast, gid), 2, GROUP)],
            done(0, [0, 0]),
        ),
        reserved: &[("reserved", offset_of!(ib_uverbs_attach_mcast, reserved), Errno(ENOENT))],
        support: Support::Rxe,
        ..plain(
            ("attach_mcast", IB_USER_VERBS_CMD_ATTACH_MCAST, "ib_uverbs_attach_mcast"),
            size_of::<ib_uverbs_attach_mcast>(),
            0,
            offset_of!(ib_uverbs_attach_mcast, qp_handle),
        )
    },
    Command {
        own: own(
            &[(offset_of!(ib_uverbs_detach_mcast, qp_handle), Object::Member)],
            &[(offset_of!(ib_uverbs_detach_mcast, gid), 2, GROUP)],
            done(0, [0, 0]),
        ),
        reserved: &[("reserved", offset_of!(ib_uverbs_detach_mcast, reserved), Errno(ENOENT))],
        support: Support::Rxe,
        ..plain(
            ("detach_mcast", IB_USER_VERBS_CMD_DETACH_MCAST, "ib_uverbs_detach_mcast"),
            size_of::<ib_uverbs_detach_mcast>(),
            0,
            offset_of!(ib_uverbs_detach_mcast, qp_handle),
        )
    },
    Command {
        own: own(
            &[(offset_of!(ib_uverbs_create_srq, pd_handle), Object::ProtectionDomain)],
            &[
                (offset_of!(ib_uverbs_create_srq, max_wr), 4, 1),
                (offset_of!(ib_uverbs_create_srq, max_sge), 4, 1),
            ],
            // rxe does not write a reserved field.
            done(size_of::<ib_uverbs_create_srq_resp>(), [20, 16]),
        ),
        ..create(
            ("create_srq", IB_USER_VERBS_CMD_CREATE_SRQ, "ib_uverbs_create_srq"),
            size_of::<ib_uverbs_create_srq>(),
            size_of::<ib_uverbs_create_srq_resp>(),
            offset_of!(ib_uverbs_create_srq, pd_handle),
        )
    },
    Command {
        own: Some(ObjectUse {
            objects: &[(offset_of!(ib_uverbs_modify_srq, srq_handle), Object::SharedReceiveQueue)],
            fields: &[(offset_of!(ib_uverbs_modify_srq, attr_mask), 4, LIMIT)],
            memory: &[],
            request: [8, 0],
            outcomes: done(0, [0, 0]),
        }),
        has_driver_data: true,
        ..plain(
            ("modify_srq", IB_USER_VERBS_CMD_MODIFY_SRQ, "ib_uverbs_modify_srq"),
            size_of::<ib_uverbs_modify_srq>(),
            0,
            offset_of!(ib_uverbs_modify_srq, srq_handle),
        )
    },
    Command {
        own: own(
            &[(offset_of!(ib_uverbs_query_srq, srq_handle), Object::SharedReceiveQueue)],
            &[],
            done(size_of::<ib_uverbs_query_srq_resp>(), [0, 0]),
        ),
        reserved: &[("reserved", offset_of!(ib_uverbs_query_srq, reserved), Errno(ENOENT))],
        ..plain(
            ("query_srq", IB_USER_VERBS_CMD_QUERY_SRQ, "ib_uverbs_query_srq"),
            size_of::<ib_uverbs_query_srq>(),
            size_of::<ib_uverbs_query_srq_resp>(),
            offset_of!(ib_uverbs_query_srq, srq_handle),
        )
    },
    Command {
        own: own(
            &[(offset_of!(ib_uverbs_destroy_srq, srq_handle), Object::SharedReceiveQueue)],
            &[],
            done(size_of::<ib_uverbs_destroy_srq_resp>(), [0, 0]),
        ),
        reserved: &[("reserved", offset_of!(ib_uverbs_destroy_srq, reserved), Errno(ENOENT))],
        ..plain(
            ("destroy_srq", IB_USER_VERBS_CMD_DESTROY_SRQ, "ib_uverbs_destroy_srq"),
            size_of::<ib_uverbs_destroy_srq>(),
            size_of::<ib_uverbs_destroy_srq_resp>(),
            offset_of!(ib_uverbs_destroy_srq, srq_handle),
        )
    },
    Command {
        support: Support::Neither,
        ..plain(
            ("post_srq_recv", IB_USER_VERBS_CMD_POST_SRQ_RECV, "ib_uverbs_post_srq_recv"),
            size_of::<ib_uverbs_post_srq_recv>(),
            size_of::<ib_uverbs_post_srq_recv_resp>(),
            offset_of!(ib_uverbs_post_srq_recv, srq_handle),
        )
    },
    Command {
        support: Support::Neither,
        ..create(
            ("open_xrcd", IB_USER_VERBS_CMD_OPEN_XRCD, "ib_uverbs_open_xrcd"),
            size_of::<ib_uverbs_open_xrcd>(),
            size_of::<ib_uverbs_open_xrcd_resp>(),
            offset_of!(ib_uverbs_open_xrcd, fd),
        )
    },
    Command {
        support: Support::Neither,
        ..plain(("close_xrcd", IB_USER_VERBS_CMD_CLOSE_XRCD, "ib_uverbs_close_xrcd"), 4, 0, 0)
    },
    Command {
        own: own(
            &[(offset_of!(ib_uverbs_create_xsrq, pd_handle), Object::ProtectionDomain)],
            &[
                (offset_of!(ib_uverbs_create_xsrq, max_wr), 4, 1),
                (offset_of!(ib_uverbs_create_xsrq, max_sge), 4, 1),
            ],
            // rxe does not write a reserved field.
            done(size_of::<ib_uverbs_create_srq_resp>(), [20, 16]),
        ),
        ..create(
            ("create_xsrq", IB_USER_VERBS_CMD_CREATE_XSRQ, "ib_uverbs_create_xsrq"),
            size_of::<ib_uverbs_create_xsrq>(),
            size_of::<ib_uverbs_create_srq_resp>(),
            offset_of!(ib_uverbs_create_xsrq, pd_handle),
        )
    },
    Command {
        reserved: &[("reserved", offset_of!(ib_uverbs_open_qp, reserved), Errno(ENOENT))],
        support: Support::Neither,
        ..create(
            ("open_qp", IB_USER_VERBS_CMD_OPEN_QP, "ib_uverbs_open_qp"),
            size_of::<ib_uverbs_open_qp>(),
            size_of::<ib_uverbs_create_qp_resp>(),
            offset_of!(ib_uverbs_open_qp, pd_handle),
        )
    },
    unused("41", 41),
    unused("255", 255),
    Command {
        name: "ex_query_device",
        reserved: &[
            ("comp_mask", offset_of!(ib_uverbs_ex_query_device, comp_mask), Errno(EINVAL)),
            ("reserved", offset_of!(ib_uverbs_ex_query_device, reserved), Errno(EINVAL)),
        ],
        number: IB_USER_VERBS_EX_CMD_QUERY_DEVICE,
        is_extended: true,
        source: "ib_uverbs_ex_query_device",
        request: size_of::<ib_uverbs_ex_query_device>(),
        floor: size_of::<ib_uverbs_ex_query_device>(),
        response: size_of::<ib_uverbs_ex_query_device_resp>(),
        least: offset_of!(ib_uverbs_ex_query_device_resp, odp_caps),
        unknown: Done(size_of::<ib_uverbs_ex_query_device_resp>()),
        lost: Errno(EFAULT),
        ..COMMON
    },
    Command {
        name: "ex_create_cq",
        own: own(
            &[],
            &[(offset_of!(ib_uverbs_ex_create_cq, comp_channel), 4, NONE)],
            done(size_of::<ib_uverbs_ex_create_cq_resp>(), [16, 16]),
        ),
        reserved: &[
            ("comp_mask", offset_of!(ib_uverbs_ex_create_cq, comp_mask), Errno(EINVAL)),
            ("reserved", offset_of!(ib_uverbs_ex_create_cq, reserved), Errno(EINVAL)),
        ],
        number: IB_USER_VERBS_EX_CMD_CREATE_CQ,
        is_extended: true,
        source: "ib_uverbs_ex_create_cq",
        request: size_of::<ib_uverbs_ex_create_cq>(),
        floor: size_of::<ib_uverbs_ex_create_cq>(),
        response: size_of::<ib_uverbs_ex_create_cq_resp>(),
        least: size_of::<ib_uverbs_ex_create_cq_resp>(),
        fields: &[
            (offset_of!(ib_uverbs_ex_create_cq, cqe), 4, 1),
            (offset_of!(ib_uverbs_ex_create_cq, comp_channel), 4, NO_CHANNEL),
        ],
        unknown: Errno(EBADF),
        lost: Errno(EBADF),
        ..COMMON
    },
    Command {
        own: own(
            &[
                (offset_of!(ib_uverbs_ex_create_qp, pd_handle), Object::ProtectionDomain),
                (offset_of!(ib_uverbs_ex_create_qp, send_cq_handle), Object::CompletionQueue),
                (offset_of!(ib_uverbs_ex_create_qp, recv_cq_handle), Object::CompletionQueue),
            ],
            &[
                (offset_of!(ib_uverbs_ex_create_qp, max_send_wr), 4, 1),
                (offset_of!(ib_uverbs_ex_create_qp, max_recv_wr), 4, 1),
                (offset_of!(ib_uverbs_ex_create_qp, max_send_sge), 4, 1),
                (offset_of!(ib_uverbs_ex_create_qp, max_recv_sge), 4, 1),
            ],
            done(size_of::<ib_uverbs_ex_create_qp_resp>(), [32, 32]),
        ),
        reserved: &[
            ("comp_mask", offset_of!(ib_uverbs_ex_create_qp, comp_mask), Errno(EINVAL)),
            ("reserved", offset_of!(ib_uverbs_ex_create_qp, reserved), Errno(EINVAL)),
        ],
        is_extended: true,
        floor: offset_of!(ib_uverbs_ex_create_qp, rwq_ind_tbl_handle),
        has_driver_data: false,
        fields: &[(offset_of!(ib_uverbs_ex_create_qp, qp_type), 1, RC)],
        ..create(
            ("ex_create_qp", IB_USER_VERBS_EX_CMD_CREATE_QP, "ib_uverbs_ex_create_qp"),
            size_of::<ib_uverbs_ex_create_qp>(),
            size_of::<ib_uverbs_ex_create_qp_resp>(),
            offset_of!(ib_uverbs_ex_create_qp, pd_handle),
        )
    },
    Command {
        own: own(
            &[(BASE + offset_of!(ib_uverbs_modify_qp, qp_handle), Object::QueuePair)],
            &[
                (BASE + offset_of!(ib_uverbs_modify_qp, attr_mask), 4, TO_INIT),
                (BASE + offset_of!(ib_uverbs_modify_qp, qp_state), 1, INIT),
                (BASE + offset_of!(ib_uverbs_modify_qp, port_num), 1, 1),
            ],
            done(size_of::<ib_uverbs_ex_modify_qp_resp>(), [0, 0]),
        ),
        reserved: &[
            ("reserved", offset_of!(ib_uverbs_ex_modify_qp, reserved), Errno(ENOENT)),
            ("attr_mask", BASE + offset_of!(ib_uverbs_modify_qp, attr_mask) + 3, Errno(EOPNOTSUPP)),
        ],
        is_extended: true,
        floor: offset_of!(ib_uverbs_ex_modify_qp, rate_limit),
        ..plain(
            ("ex_modify_qp", IB_USER_VERBS_EX_CMD_MODIFY_QP, "ib_uverbs_ex_modify_qp"),
            size_of::<ib_uverbs_ex_modify_qp>(),
            size_of::<ib_uverbs_ex_modify_qp_resp>(),
            BASE + offset_of!(ib_uverbs_modify_qp, qp_handle),
        )
    },
    Command { is_extended: true, ..unused("ex_255", 255) },
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_number_up_to_first_unused_is_listed() {
        let has = |number| COMMANDS.iter().any(|all| all.number == number && !all.is_extended);
        (0..=41).for_each(|number| assert!(has(number), "{number}"));
    }

    #[test]
    fn sizes_are_whole_words() {
        for command in COMMANDS {
            let word = if command.is_extended { 8 } else { 4 };
            let Command { request, floor, response, least, .. } = *command;
            for size in [request, floor, response, least] {
                assert_eq!(size % word, 0, "{}", command.name);
            }
            assert!(floor <= request && least <= response, "{}", command.name);
            for (offset, length, _) in command.fields {
                assert!(offset + length <= request, "{}", command.name);
            }
        }
    }

    /// Returns the structure of a command's request.
    fn structure(command: &Command) -> Option<&'static layout::Struct> {
        let name = format!("ib_uverbs_{}", command.name);
        LAYOUT.iter().copied().flatten().find(|structure| structure.name == name)
    }

    #[test]
    fn every_reserved_field_is_set_once() {
        let mut count = 0;
        for command in COMMANDS {
            let fields = structure(command).map_or(&[][..], |structure| structure.fields);
            for field in fields {
                if field.name.starts_with("reserved") || field.name == "comp_mask" {
                    let mut set = command.reserved.iter();
                    let is_set =
                        set.any(|(name, at, _)| (*name, *at) == (field.name, field.offset));
                    assert!(is_set, "{} of {}", field.name, command.name);
                    count += 1;
                }
            }
        }
        assert!(count > 15, "{count}");
    }

    /// Checks that each command of a known driver has a successful use, with its response.
    #[test]
    fn every_supported_command_has_success() {
        for command in COMMANDS {
            let has_it = !matches!(command.support, Support::Neither | Support::None);
            let has_success = command.own.is_some() || matches!(command.unknown, Done(_));
            assert_eq!(has_success, has_it, "{}", command.name);
            for (offset, _) in command.own.iter().flat_map(|own| own.objects) {
                assert!(offset + 4 <= command.request, "{}", command.name);
            }
        }
    }
}
