//! Shared receive queues.

use std::net::SocketAddr;

use rdmacm::cm::ConnParam;
use rdmacm::verbs::{SendFlags, SendOperation, WcOpcode};

use crate::bed::{Side, rxe, siw};
use crate::shared::{Pair, Servers};

const SIGNALED: SendFlags = SendFlags::SIGNALED;

fn send(from: &Side, number: u64) {
    let sent = from.io.post_inline(number, SendOperation::Send, &number.to_ne_bytes(), SIGNALED);
    sent.expect("post a send");
}

/// The place of receive `wr_id`.
fn place(wr_id: u64) -> std::ops::Range<usize> {
    let start = usize::try_from(wr_id % 100).expect("small") * 8;
    start..start + 8
}

/// Whoever receives takes the request that was posted first, and its completion says who that is.
fn two_queue_pairs_share_one(address: SocketAddr) {
    let servers = Servers::new(address, 2, 16, &ConnParam::default());
    let Servers { pairs, shared, .. } = &servers;
    for (number, who) in (0..200).zip([0, 1, 1, 0, 1].into_iter().cycle()) {
        shared.receive(number, place(number)).expect("post a receive");
        let Pair { client, server } = &pairs[who];
        send(client, 1000 + number);
        let done = shared.done();
        assert_eq!((done.wr_id(), done.qp_num()), (number, server.io.qp().number()));
        assert_eq!((done.opcode(), done.byte_len()), (WcOpcode::IB_WC_RECV, 8));
        assert_eq!(shared.bytes(place(number)), (1000 + number).to_ne_bytes());
        client.io.done(1000 + number);
    }
    // The other way each has a queue of its own.
    for Pair { client, server } in pairs {
        assert_eq!(server.io.qp().srq(), Some(shared.queue()));
        assert_eq!(client.io.qp().srq(), None);
        client.io.receive(1, 0..8).expect("post a receive");
        send(server, 2);
        client.io.done(1);
        server.io.done(2);
    }
    servers.close();
}

#[test]
#[ignore = "needs the test bed: cargo xtask test"]
fn two_queue_pairs_share_one_on_rxe() {
    two_queue_pairs_share_one(rxe(0));
}

#[test]
#[ignore = "needs the test bed: cargo xtask test"]
fn two_queue_pairs_share_one_on_siw() {
    two_queue_pairs_share_one(siw(0));
}
