//! Queue pairs whose states the test changes itself.
//!
//! They are unreliable connections, and the kernel reports each attribute.

use std::net::Ipv4Addr;
use std::thread;

use rdmacm::ErrorKind;
use rdmacm::verbs::{
    AccessFlags, Mtu, QpState, QpType, QueuePairAttributes, QueuePairCaps, SendFlags,
    SendOperation, WcStatus,
};
use rdmacm_tests::try_again;

use crate::fixtures::{assert_invalid, is_card, roce_ip};
use crate::io::{Io, Shape};
use crate::manual_qp::{self, ACCESS, connect, first_packet, io, modify};

const SIGNALED: SendFlags = SendFlags::SIGNALED;

fn connected(qp_type: QpType) -> [Io; 2] {
    manual_qp::connected(qp_type, Shape { memory: 8192, ..Shape::default() })
}

#[test]
#[ignore = "needs the test bed: cargo xtask test"]
fn uc_message_without_receive_is_lost() {
    for attempt in 1.. {
        let [from, to] = connected(QpType::IB_UVERBS_QPT_UC);
        // Without a receive the message is lost, and no side detects the loss.
        from.post(5, SendOperation::Send, 0..8, SIGNALED).expect("post a send");
        from.done(5);
        to.receive(6, 0..8).expect("post a receive");
        from.post_inline(7, SendOperation::Send, b"found", SIGNALED).expect("post a send");
        from.done(7);
        match to.done(6).byte_len() {
            5 => return,
            // The send completes before the peer's kernel has handled the packet.
            8 if attempt < 20 => try_again("rxe handled the message after the receive was posted"),
            length => panic!("a message of {length} bytes at attempt {attempt}"),
        }
    }
}

#[test]
#[ignore = "needs the test bed: cargo xtask test"]
fn unsupported_uc_operations_are_refused() {
    let [from, to] = connected(QpType::IB_UVERBS_QPT_UC);
    let (remote_addr, rkey) = (to.memory().addr(), to.memory().rkey());
    let swap = SendOperation::CompareSwap { remote_addr, rkey, compare: 0, swap: 0 };
    for operation in [to.read_at(0), swap] {
        let refused = from
            .post(1, operation, 0..8, SIGNALED)
            .expect_err("reads and atomics should be refused");
        assert_invalid(&refused, &["type UC support no reads"]);
    }
    // The driver of mlx5 stores these requests, as rdma-core's does.
    if !is_card() {
        for operation in
            [SendOperation::SendWithInvalidate { rkey }, SendOperation::LocalInvalidate { rkey }]
        {
            let error =
                from.post_bare(1, operation).expect_err("rxe should not support the operation");
            assert!(matches!(error.kind(), ErrorKind::Unsupported(_)), "{error}");
        }
    }
    assert!(from.polled().is_none());
    to.receive(2, 0..8).expect("post a receive");
    from.post(3, SendOperation::Send, 0..8, SIGNALED).expect("a later post should succeed");
    from.done(3);
    to.done(2);
}

#[test]
#[ignore = "needs the test bed: cargo xtask test"]
fn query_returns_attributes_of_connection() {
    for qp_type in [QpType::IB_UVERBS_QPT_RC, QpType::IB_UVERBS_QPT_UC] {
        let [one, other] = connected(qp_type);
        let answer = one.qp().query().expect("query");
        assert_eq!(answer.qp_state, QpState::IB_QPS_RTS);
        assert_eq!(answer.path_mtu, Mtu::IB_MTU_1024);
        assert_eq!(answer.dest_qp_num, other.qp().number());
        assert_eq!(answer.sq_psn, first_packet(one.qp()));
        assert_eq!(answer.rq_psn, first_packet(other.qp()));
        assert_eq!((answer.port_num, answer.pkey_index, answer.dest.is_global), (1, 0, 1));
        let address: Ipv4Addr = roce_ip().parse().expect("an address");
        assert_eq!(answer.dest.dgid, address.to_ipv6_mapped().octets());
        assert_eq!(answer.qp_access_flags, ACCESS);
        if qp_type == QpType::IB_UVERBS_QPT_RC {
            assert_eq!((answer.timeout, answer.retry_cnt, answer.rnr_retry), (14, 5, 6));
            assert_eq!(answer.min_rnr_timer, 12);
            // The devices round these numbers up to a power of two.
            assert_eq!((answer.max_rd_atomic, answer.max_dest_rd_atomic), (2, 4));
        }
    }
}

#[test]
#[ignore = "needs the test bed: cargo xtask test"]
fn queue_pair_passes_all_states_back_to_reset() {
    let [one, other] = connected(QpType::IB_UVERBS_QPT_RC);
    let state = |io: &Io| io.qp().query().expect("query").qp_state;
    // The send queue pauses in SQD, and continues.
    modify(one.qp(), QueuePairAttributes::to(QpState::IB_QPS_SQD));
    assert_eq!(state(&one), QpState::IB_QPS_SQD);
    while one.qp().query().expect("query").sq_draining != 0 {
        thread::yield_now();
    }
    other.receive(1, 0..8).expect("post a receive");
    one.post(2, SendOperation::Send, 0..8, SIGNALED).expect("post a send");
    assert!(one.polled().is_none() && other.polled().is_none());
    modify(one.qp(), QueuePairAttributes::to(QpState::IB_QPS_RTS));
    // This post rings the doorbell for the paused request, too.
    one.post(3, other.written_at(0), 0..8, SIGNALED).expect("post a write");
    one.done(2);
    one.done(3);
    other.done(1);
    modify(one.qp(), QueuePairAttributes::to(QpState::IB_QPS_ERR));
    assert_eq!(state(&one), QpState::IB_QPS_ERR);
    one.post(4, SendOperation::Send, 0..8, SIGNALED).expect("post a send");
    assert_eq!(one.next().status(), WcStatus::IB_WC_WR_FLUSH_ERR);
    modify(one.qp(), QueuePairAttributes::to(QpState::IB_QPS_RESET));
    assert_eq!(state(&one), QpState::IB_QPS_RESET);
    let refused = one
        .post(5, SendOperation::Send, 0..8, SIGNALED)
        .expect_err("the queue pair should be in RESET");
    assert_invalid(&refused, &["IB_QPS_RESET"]);
    assert_invalid(
        &one.receive(5, 0..8).expect_err("the queue pair should be in RESET"),
        &["IB_QPS_RESET"],
    );
    one.qp()
        .drain(crate::fixtures::LONG, |_| panic!("no request should be posted"))
        .expect("drain");
    // An invalid step is refused, and so are missing attributes.
    let attributes = QueuePairAttributes::to(QpState::IB_QPS_RTS);
    let error = one.qp().modify(&attributes).expect_err("the step should not begin in RESET");
    assert_eq!(error.errno(), libc::EINVAL, "{error}");
    // The queue pair is connected to another peer.
    let third = io(QpType::IB_UVERBS_QPT_RC, Shape::default());
    connect(one.qp(), third.qp());
    connect(third.qp(), one.qp());
    third.receive(6, 0..8).expect("post a receive");
    one.post(7, SendOperation::Send, 0..8, SIGNALED).expect("post a send");
    third.done(6);
    one.done(7);
}

/// Checks that the access flags of the queue pair limit those of the memory.
///
/// The memory permits all accesses.
#[test]
#[ignore = "needs the test bed: cargo xtask test"]
fn queue_pair_has_own_access_flags() {
    let write = AccessFlags::IB_UVERBS_ACCESS_REMOTE_WRITE;
    for (access, reads) in [(AccessFlags::IB_UVERBS_ACCESS_REMOTE_READ, true), (write, false)] {
        let [from, to] = connected(QpType::IB_UVERBS_QPT_RC);
        modify(to.qp(), QueuePairAttributes::default().access(access));
        let (granted, other) = match reads {
            true => (to.read_at(0), to.written_at(0)),
            false => (to.written_at(0), to.read_at(0)),
        };
        from.post(1, granted, 0..8, SIGNALED).expect("post");
        from.done(1);
        from.post(2, other, 0..8, SIGNALED).expect("post");
        let refused = from.next();
        let status = match is_card() {
            true => WcStatus::IB_WC_REM_ACCESS_ERR,
            false => WcStatus::IB_WC_REM_INV_REQ_ERR,
        };
        assert_eq!((refused.wr_id(), refused.status()), (2, status));
    }
}

#[test]
#[ignore = "needs the test bed: cargo xtask test"]
fn queues_hold_reported_capacity() {
    for asked in [1, 3, 10, 16, 100] {
        let caps = QueuePairCaps {
            max_send_wr: asked,
            max_recv_wr: asked,
            max_send_sge: 3,
            max_recv_sge: 3,
            max_inline_data: 50,
            ..QueuePairCaps::default()
        };
        let io = io(QpType::IB_UVERBS_QPT_RC, Shape { caps, ..Shape::default() });
        let held = io.qp().caps();
        assert!(held.max_send_wr >= asked && held.max_recv_wr >= asked, "{held:?}");
        assert!(held.max_inline_data >= 50 && held.max_send_sge >= 3, "{held:?}");
        let other = self::io(QpType::IB_UVERBS_QPT_RC, Shape::default());
        connect(io.qp(), other.qp());
        let count = (0..).take_while(|wr_id| io.receive(*wr_id, 0..8).is_ok()).count();
        assert_eq!(count, held.max_recv_wr as usize, "{held:?}");
    }
}
