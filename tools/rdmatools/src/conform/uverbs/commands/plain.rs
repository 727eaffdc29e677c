//! The plain write commands of uverbs, and some unused numbers.

use std::mem::{offset_of, size_of};

use nix::libc::{EBADF, EFAULT, EINVAL, ENOENT, ENOTCONN, EOPNOTSUPP, O_CREAT};
use verbs_abi::*;

use super::super::command::{
    COMMON, Command, DriverData, Handle, INIT, MLX5_CONTEXT, MLX5_CQ, MLX5_GROUP, MLX5_QP,
    MLX5_RESIZED_CQ, MLX5_SRQ, Mlx5, NO_CHANNEL, NONE, Object, ObjectUse, RC, Support, TO_INIT,
    create, done, own, own_with, plain, unused,
};
use super::super::request::UNKNOWN_HANDLE;
use crate::conform::check::Version;
use crate::conform::kernel::Outcome::{Done, Errno, Stored};

const LIMIT: u64 = ib_srq_attr_mask::IB_SRQ_LIMIT.bits() as u64;
/// The first bytes of the GID of a multicast group, ff0e::.
const GROUP: u64 = u16::from_ne_bytes([0xff, 0x0e]) as u64;
/// Offsets of the address and of its global route in CREATE_AH.
const AH: usize = offset_of!(ib_uverbs_create_ah, attr);
const AH_GRH: usize = AH + offset_of!(ib_uverbs_ah_attr, grh);
/// Length of the response of POST_SEND in bytes.
const BAD_WR: usize = size_of::<ib_uverbs_post_send_resp>();

/// Plain commands in the order of their numbers.
pub(super) const PLAIN: &[Command] = &[
    Command {
        name: "get_context",
        own: own_with(
            &[],
            &[],
            MLX5_CONTEXT,
            done(size_of::<ib_uverbs_get_context_resp>(), [0, 8, 64]),
        ),
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
        mlx5: Mlx5::NeedsRoom,
        own: own(&[], &[], done(size_of::<ib_uverbs_alloc_pd_resp>(), [0, 0, 4])),
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
        own: own(&[(0, Object::ProtectionDomain)], &[], done(0, [0, 0, 0])),
        handle: Some((0, Handle::ProtectionDomain)),
        ..plain(("dealloc_pd", IB_USER_VERBS_CMD_DEALLOC_PD, "ib_uverbs_dealloc_pd"), 4, 0, 0)
    },
    Command {
        mlx5: Mlx5::MayLackPart,
        own: own(
            &[(offset_of!(ib_uverbs_create_ah, pd_handle), Object::ProtectionDomain)],
            &[
                (AH_GRH + offset_of!(ib_uverbs_global_route, dgid), 2, GROUP),
                (AH_GRH + offset_of!(ib_uverbs_global_route, hop_limit), 1, 1),
                (AH + offset_of!(ib_uverbs_ah_attr, is_global), 1, 1),
            ],
            // The response has only a number, although the room is 8 bytes.
            done(size_of::<ib_uverbs_create_ah_resp>(), [4, 0, 10]),
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
        own: own(&[(0, Object::AddressHandle)], &[], done(0, [0, 0, 0])),
        support: Support::Rxe,
        ..plain(("destroy_ah", IB_USER_VERBS_CMD_DESTROY_AH, "ib_uverbs_destroy_ah"), 4, 0, 0)
    },
    Command {
        own: Some(ObjectUse {
            objects: &[(offset_of!(ib_uverbs_reg_mr, pd_handle), Object::ProtectionDomain)],
            fields: &[(offset_of!(ib_uverbs_reg_mr, length), 8, ObjectUse::REGION as u64)],
            memory: &[offset_of!(ib_uverbs_reg_mr, start), offset_of!(ib_uverbs_reg_mr, hca_va)],
            driver_data: [DriverData::NONE, DriverData::zeros(8), DriverData::NONE],
            outcomes: done(size_of::<ib_uverbs_reg_mr_resp>(), [0, 8, 0]),
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
            done(size_of::<ib_uverbs_rereg_mr_resp>(), [0, 0, 0]),
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
        own: own(&[(0, Object::MemoryRegion)], &[], done(0, [0, 0, 0])),
        ..plain(("dereg_mr", IB_USER_VERBS_CMD_DEREG_MR, "ib_uverbs_dereg_mr"), 4, 0, 0)
    },
    Command {
        mlx5: Mlx5::ByDevice,
        own: own(
            &[(offset_of!(ib_uverbs_alloc_mw, pd_handle), Object::ProtectionDomain)],
            &[(offset_of!(ib_uverbs_alloc_mw, mw_type), 1, 1)],
            done(size_of::<ib_uverbs_alloc_mw_resp>(), [0, 0, 0]),
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
        mlx5: Mlx5::ByDevice,
        own: own(&[(0, Object::MemoryWindow)], &[], done(0, [0, 0, 0])),
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
        own: own_with(
            &[],
            &[(offset_of!(ib_uverbs_create_cq, comp_channel), 4, NONE)],
            MLX5_CQ,
            done(size_of::<ib_uverbs_create_cq_resp>(), [16, 16, 4]),
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
        mlx5: Mlx5::ByDevice,
        own: own_with(
            &[(offset_of!(ib_uverbs_resize_cq, cq_handle), Object::CompletionQueue)],
            &[],
            MLX5_RESIZED_CQ,
            done(size_of::<ib_uverbs_resize_cq_resp>(), [16, 0, 0]),
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
            done(size_of::<ib_uverbs_destroy_cq_resp>(), [0, 0, 0]),
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
        support: Support::Others,
        mlx5: Mlx5::Lacks,
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
            done(0, [0, 0, 0]),
        ),
        support: Support::Rxe,
        mlx5: Mlx5::Lacks,
        ..plain(
            ("req_notify_cq", IB_USER_VERBS_CMD_REQ_NOTIFY_CQ, "ib_uverbs_req_notify_cq"),
            size_of::<ib_uverbs_req_notify_cq>(),
            0,
            offset_of!(ib_uverbs_req_notify_cq, cq_handle),
        )
    },
    Command {
        own: own_with(
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
            MLX5_QP,
            done(size_of::<ib_uverbs_create_qp_resp>(), [32, 32, 40]),
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
            done(size_of::<ib_uverbs_query_qp_resp>(), [0, 0, 0]),
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
            done(0, [0, 0, 0]),
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
            done(size_of::<ib_uverbs_destroy_qp_resp>(), [0, 0, 0]),
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
            [Stored(EINVAL, BAD_WR), Stored(ENOTCONN, BAD_WR), Errno(EOPNOTSUPP)],
        ),
        fields: &[(
            offset_of!(ib_uverbs_post_send, wqe_size),
            4,
            size_of::<ib_uverbs_send_wr>() as u64,
        )],
        mlx5: Mlx5::Lacks,
        ..plain(
            ("post_send", IB_USER_VERBS_CMD_POST_SEND, "ib_uverbs_post_send"),
            size_of::<ib_uverbs_post_send>(),
            size_of::<ib_uverbs_post_send_resp>(),
            offset_of!(ib_uverbs_post_send, qp_handle),
        )
    },
    Command {
        support: Support::Others,
        mlx5: Mlx5::Lacks,
        ..plain(
            ("post_recv", IB_USER_VERBS_CMD_POST_RECV, "ib_uverbs_post_recv"),
            size_of::<ib_uverbs_post_recv>(),
            size_of::<ib_uverbs_post_recv_resp>(),
            offset_of!(ib_uverbs_post_recv, qp_handle),
        )
    },
    Command {
        own: own_with(
            &[(offset_of!(ib_uverbs_attach_mcast, qp_handle), Object::DatagramQueuePair)],
            &[(offset_of!(ib_uverbs_attach_mcast, gid), 2, GROUP)],
            MLX5_GROUP,
            done(0, [0, 0, 0]),
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
        own: own_with(
            &[(offset_of!(ib_uverbs_detach_mcast, qp_handle), Object::Member)],
            &[(offset_of!(ib_uverbs_detach_mcast, gid), 2, GROUP)],
            MLX5_GROUP,
            done(0, [0, 0, 0]),
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
        own: own_with(
            &[(offset_of!(ib_uverbs_create_srq, pd_handle), Object::ProtectionDomain)],
            &[
                (offset_of!(ib_uverbs_create_srq, max_wr), 4, 1),
                (offset_of!(ib_uverbs_create_srq, max_sge), 4, 1),
            ],
            MLX5_SRQ,
            // rxe does not write a reserved field.
            done(size_of::<ib_uverbs_create_srq_resp>(), [20, 16, 8]),
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
            driver_data: [DriverData::zeros(8), DriverData::NONE, DriverData::NONE],
            outcomes: done(0, [0, 0, 0]),
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
            done(size_of::<ib_uverbs_query_srq_resp>(), [0, 0, 0]),
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
            done(size_of::<ib_uverbs_destroy_srq_resp>(), [0, 0, 0]),
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
        support: Support::Others,
        mlx5: Mlx5::Lacks,
        ..plain(
            ("post_srq_recv", IB_USER_VERBS_CMD_POST_SRQ_RECV, "ib_uverbs_post_srq_recv"),
            size_of::<ib_uverbs_post_srq_recv>(),
            size_of::<ib_uverbs_post_srq_recv_resp>(),
            offset_of!(ib_uverbs_post_srq_recv, srq_handle),
        )
    },
    Command {
        mlx5: Mlx5::ByDevice,
        name: "open_xrcd",
        own: own(
            &[],
            &[
                (offset_of!(ib_uverbs_open_xrcd, fd), 4, NONE),
                (offset_of!(ib_uverbs_open_xrcd, oflags), 4, O_CREAT as u64),
            ],
            done(size_of::<ib_uverbs_open_xrcd_resp>(), [0, 0, 0]),
        ),
        number: IB_USER_VERBS_CMD_OPEN_XRCD,
        source: "ib_uverbs_open_xrcd",
        request: size_of::<ib_uverbs_open_xrcd>(),
        floor: size_of::<ib_uverbs_open_xrcd>(),
        response: size_of::<ib_uverbs_open_xrcd_resp>(),
        least: size_of::<ib_uverbs_open_xrcd_resp>(),
        has_driver_data: true,
        fields: &[(offset_of!(ib_uverbs_open_xrcd, fd), 4, NO_CHANNEL)],
        unknown: Errno(EBADF),
        lost: Errno(EBADF),
        no_context: Errno(EBADF),
        support: Support::Mlx5,
        ..COMMON
    },
    Command {
        mlx5: Mlx5::ByDevice,
        own: own(&[(0, Object::XrcDomain)], &[], done(0, [0, 0, 0])),
        support: Support::Mlx5,
        ..plain(("close_xrcd", IB_USER_VERBS_CMD_CLOSE_XRCD, "ib_uverbs_close_xrcd"), 4, 0, 0)
    },
    Command {
        mlx5: Mlx5::ByDevice,
        own: own_with(
            &[(offset_of!(ib_uverbs_create_xsrq, pd_handle), Object::ProtectionDomain)],
            &[
                (offset_of!(ib_uverbs_create_xsrq, max_wr), 4, 1),
                (offset_of!(ib_uverbs_create_xsrq, max_sge), 4, 1),
            ],
            MLX5_SRQ,
            // rxe does not write a reserved field.
            done(size_of::<ib_uverbs_create_srq_resp>(), [20, 16, 8]),
        ),
        ..create(
            ("create_xsrq", IB_USER_VERBS_CMD_CREATE_XSRQ, "ib_uverbs_create_xsrq"),
            size_of::<ib_uverbs_create_xsrq>(),
            size_of::<ib_uverbs_create_srq_resp>(),
            offset_of!(ib_uverbs_create_xsrq, pd_handle),
        )
    },
    Command {
        mlx5: Mlx5::ByDevice,
        name: "open_qp",
        // For a nonexistent XRC domain the kernel returns EINVAL, not ENOENT.
        reserved: &[("reserved", offset_of!(ib_uverbs_open_qp, reserved), Errno(EINVAL))],
        number: IB_USER_VERBS_CMD_OPEN_QP,
        source: "ib_uverbs_open_qp",
        request: size_of::<ib_uverbs_open_qp>(),
        floor: size_of::<ib_uverbs_open_qp>(),
        response: size_of::<ib_uverbs_create_qp_resp>(),
        least: size_of::<ib_uverbs_create_qp_resp>(),
        has_driver_data: true,
        fields: &[(offset_of!(ib_uverbs_open_qp, pd_handle), 4, UNKNOWN_HANDLE as u64)],
        unknown: Errno(EINVAL),
        lost: Errno(EINVAL),
        support: Support::Mlx5,
        ..COMMON
    },
    unused("41", 41),
    unused("255", 255),
];
