//! Changes of a queue pair's state: requests that are posted meanwhile, and the state afterwards.

use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

use rdmacm::verbs::{
    AccessFlags, Completion, QpState, QueuePair, QueuePairAttributes, SendFlags, SendOperation,
};

use crate::fixtures::{Ending, assert_invalid, channel, listen, resolve, roce};
use crate::io::{Io, Shape};
use crate::siw::{connected, flushed};

const SIGNALED: SendFlags = SendFlags::SIGNALED;

/// Moves `qp` to `state`, which needs no other attribute.
pub(crate) fn bring(qp: &QueuePair, state: QpState) {
    qp.modify(&QueuePairAttributes::to(state)).expect("modify");
}

/// Changes access rights during posts: siw refuses a doorbell while it modifies the queue pair.
///
/// siw leaves each hundredth request of a queue pair to a separate thread, which gives up permanently if a change is in
/// progress. So each queue pair has fewer requests.
#[test]
#[ignore = "needs the test bed: cargo xtask test"]
fn access_changes_lose_no_post_on_siw() {
    for _ in 0..6 {
        let connection = connected(Shape::default());
        let (client, server) = (&connection.client.io, &connection.server.io);
        let rights = QueuePairAttributes::default().access(AccessFlags::from_bits_retain(7));
        let stop = AtomicBool::new(false);
        thread::scope(|scope| {
            let ending = Ending(&stop);
            scope.spawn(|| {
                while !stop.load(Ordering::SeqCst) {
                    client.qp().modify(&rights).expect("modify");
                }
            });
            for wr_id in 0..90 {
                client.post(wr_id, server.written_at(0), 0..64, SIGNALED).expect("post");
                let mut done = [Completion::default()];
                let found = client.cq().wait_timeout(&mut done, Duration::from_secs(10));
                assert_eq!(found.expect("wait"), 1, "request {wr_id} is not seen");
                assert_eq!(done[0].wr_id(), wr_id);
            }
            drop(ending);
        });
        connection.close();
    }
}

/// Posts a receive in ERR, which rxe accepts.
#[test]
#[ignore = "needs the test bed: cargo xtask test"]
fn late_receive_does_not_restore_err() {
    let channel = channel();
    let (_listener, address) = listen(&channel, roce(0));
    let id = resolve(&channel, address);
    let io = Io::with(&id, Shape::default(), QueuePair::new);
    let init = id.init_qp_attr(QpState::IB_QPS_INIT).expect("attributes");
    let state = || io.qp().query().expect("query").qp_state;
    let stop = AtomicBool::new(false);
    thread::scope(|scope| {
        let ending = Ending(&stop);
        scope.spawn(|| {
            while !stop.load(Ordering::SeqCst) {
                if let Err(error) = io.receive(1, 0..8) {
                    // The queue pair is in RESET, or the queue is full.
                    assert_invalid(&error, &["post a receive"]);
                }
                while io.polled().is_some() {}
            }
        });
        for _ in 0..300 {
            io.qp().modify(&init).expect("modify");
            assert_eq!(state(), QpState::IB_QPS_INIT);
            bring(io.qp(), QpState::IB_QPS_ERR);
            bring(io.qp(), QpState::IB_QPS_RESET);
        }
        drop(ending);
    });
}

/// Checks that siw accepts a step out of ERR, and stays in ERR.
#[test]
#[ignore = "needs the test bed: cargo xtask test"]
fn err_state_is_final_on_siw() {
    let connection = connected(Shape::default());
    let io = &connection.client.io;
    bring(io.qp(), QpState::IB_QPS_ERR);
    bring(io.qp(), QpState::IB_QPS_INIT);
    io.receive(1, 0..8).expect("post a receive");
    io.post(2, SendOperation::Send, 0..8, SIGNALED).expect("post a send");
    for (wr_id, is_receive) in [(1, true), (2, false)] {
        let done = io.polled().expect("the request should have completed");
        assert_eq!((flushed(done), done.is_receive()), (wr_id, is_receive));
    }
}
