//! The extended write commands of uverbs, and an unused number.

use std::mem::{offset_of, size_of};

use nix::libc::{EBADF, EFAULT, EINVAL, ENOENT, EOPNOTSUPP};
use verbs_abi::*;

use super::super::command::{
    COMMON, Command, INIT, MLX5_CQ, MLX5_QP, NO_CHANNEL, NONE, Object, RC, TO_INIT, create, done,
    own, own_with, plain, unused,
};
use crate::conform::kernel::Outcome::{Done, Errno};

/// Offset of the attributes of MODIFY_QP in EX_MODIFY_QP.
const BASE: usize = offset_of!(ib_uverbs_ex_modify_qp, base);

/// Extended commands.
pub(super) const EXTENDED: &[Command] = &[
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
        own: own_with(
            &[],
            &[(offset_of!(ib_uverbs_ex_create_cq, comp_channel), 4, NONE)],
            MLX5_CQ,
            done(size_of::<ib_uverbs_ex_create_cq_resp>(), [16, 16, 4]),
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
        own: own_with(
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
            MLX5_QP,
            done(size_of::<ib_uverbs_ex_create_qp_resp>(), [32, 32, 40]),
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
            done(size_of::<ib_uverbs_ex_modify_qp_resp>(), [0, 0, 0]),
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
