//! Faults of the emulated card: a late completion, a failed request, a lost doorbell.
//!
//! The card causes a fault when a test requests it (`tests/kmod/mlx5/fault.c`).

use std::fs;
use std::sync::mpsc;
use std::thread;

use rdmacm::ErrorKind;
use rdmacm::cm::ConnParam;
use rdmacm::verbs::{
    AddressHandle, Completion, Destination, GRH_LENGTH, QpState, QpType, QueuePairAttributes,
    QueuePairCaps, SendFlags, SendOperation, WcStatus,
};
use rdmacm_tests::{mount_debugfs, promised_device, wait_until};

use crate::fixtures::{Connection, announce, asleep, objects, roce, roce_name};
use crate::io::{Io, Shape};
use crate::manual_qp;

const FAULT: &str = "/sys/kernel/debug/mlx5_card/fault";
const SIGNALED: SendFlags = SendFlags::SIGNALED;

/// Returns two queue pairs of the card that are connected to each other.
fn connected() -> [Io; 2] {
    promised_device(roce_name());
    mount_debugfs();
    manual_qp::connected(QpType::IB_UVERBS_QPT_RC, Shape::default())
}

/// Requests the fault `kind` of the queue pair of `io`.
fn ask(kind: &str, io: &Io) {
    ask_with(kind, io, "");
}

fn ask_with(kind: &str, io: &Io, values: &str) {
    let text = format!("{kind} {} {values}", io.qp().number());
    fs::write(FAULT, &text).unwrap_or_else(|error| panic!("{text}: {error}"));
}

/// Waits until the fault has happened.
fn wait_for(kind: &str, io: &Io) {
    let wanted = format!("{kind} {} active", io.qp().number());
    wait_until(&wanted, || {
        let faults = fs::read_to_string(FAULT).expect("the faults");
        faults.lines().any(|line| line == wanted)
    });
}

fn send(io: &Io, wr_id: u64) {
    io.post(wr_id, SendOperation::Send, 0..8, SIGNALED).expect("post a send");
}

#[test]
#[ignore = "needs the test bed: cargo xtask test"]
fn late_completion_comes_with_its_event() {
    let [client, server] = connected();
    (1..=3).for_each(|wr_id| server.receive(wr_id, 0..8).expect("post a receive"));
    client.channel().set_nonblocking(true).expect("make it non-blocking");
    client.cq().request_notify(false).expect("arm");
    ask("late", &client);
    send(&client, 1);
    // The completion of a later send waits for the late one.
    send(&client, 2);
    server.done(1);
    server.done(2);
    wait_for("late", &client);
    assert!(client.polled().is_none());
    let error = client.channel().get_event().expect_err("no completion should have arrived");
    assert!(matches!(error.kind(), ErrorKind::WouldBlock), "{error}");
    client.channel().set_nonblocking(false).expect("make it blocking");
    ask("release", &client);
    let event = client.channel().get_event().expect("an event");
    assert_eq!(event.token(), client.cq().token());
    client.done(1);
    client.done(2);
    send(&client, 3);
    client.done(3);
    assert!(client.polled().is_none());
}

#[test]
#[ignore = "needs the test bed: cargo xtask test"]
fn late_receive_wakes_sleeping_thread() {
    let [mut client, server] = connected();
    client.fill(0, b"contents");
    server.receive(1, 0..8).expect("post a receive");
    ask("late", &server);
    send(&client, 1);
    client.done(1);
    wait_for("late", &server);
    let (tx, rx) = mpsc::channel();
    thread::scope(|scope| {
        scope.spawn(|| {
            announce(&tx);
            server.done(1);
        });
        asleep(rx.recv().expect("thread should send its id"));
        ask("release", &server);
    });
    assert_eq!(server.bytes(0..8), b"contents");
}

#[test]
#[ignore = "needs the test bed: cargo xtask test"]
fn late_completions_precede_reset() {
    let [client, server] = connected();
    (1..=2).for_each(|wr_id| server.receive(wr_id, 0..8).expect("post a receive"));
    ask("late", &client);
    send(&client, 1);
    server.done(1);
    wait_for("late", &client);
    // The device writes the completion during the command, and the library takes it from the queue.
    manual_qp::modify(client.qp(), QueuePairAttributes::to(QpState::IB_QPS_RESET));
    assert!(client.polled().is_none());
    manual_qp::connect(client.qp(), server.qp());
    send(&client, 2);
    server.done(2);
    client.done(2);
}

/// Checks resets while the completion queue has room for the requests of one round only.
///
/// A queue that has overrun takes no more completions.
#[test]
#[ignore = "needs the test bed: cargo xtask test"]
fn completions_before_reset_take_no_room() {
    const REQUESTS: u32 = 15;
    promised_device(roce_name());
    let caps = QueuePairCaps { max_send_wr: REQUESTS, ..Shape::default().caps };
    let shape = Shape { completions: REQUESTS, caps, ..Shape::default() };
    let [client, server] = manual_qp::connected(QpType::IB_UVERBS_QPT_RC, shape);
    for round in 1..=4 {
        let write = |bytes: &[u8]| client.post_inline(1, server.written_at(0), bytes, SIGNALED);
        (1..REQUESTS).for_each(|_| write(&[0]).expect("post a write"));
        write(&[round]).expect("post the last write");
        wait_until("all writes are executed", || server.bytes(0..1) == [round]);
        manual_qp::modify(client.qp(), QueuePairAttributes::to(QpState::IB_QPS_RESET));
        manual_qp::connect(client.qp(), server.qp());
    }
    assert!(client.polled().is_none());
    client.post_inline(2, server.written_at(0), &[9], SIGNALED).expect("post a write");
    client.done(2);
}

/// Checks that a failed send has the status that rdma-core's mlx5 driver gives to its syndrome.
#[test]
#[ignore = "needs the test bed: cargo xtask test"]
fn failed_send_has_status_and_flushes_later_sends() {
    for (syndrome, vendor, status) in [
        (0x01, 0x21, WcStatus::IB_WC_LOC_LEN_ERR),
        (0x02, 0x68, WcStatus::IB_WC_LOC_QP_OP_ERR),
        (0x04, 0x51, WcStatus::IB_WC_LOC_PROT_ERR),
        (0x06, 0x00, WcStatus::IB_WC_MW_BIND_ERR),
        (0x10, 0x01, WcStatus::IB_WC_BAD_RESP_ERR),
        (0x11, 0x02, WcStatus::IB_WC_LOC_ACCESS_ERR),
        (0x12, 0x8a, WcStatus::IB_WC_REM_INV_REQ_ERR),
        (0x13, 0x88, WcStatus::IB_WC_REM_ACCESS_ERR),
        (0x14, 0x89, WcStatus::IB_WC_REM_OP_ERR),
        (0x15, 0x81, WcStatus::IB_WC_RETRY_EXC_ERR),
        (0x16, 0x82, WcStatus::IB_WC_RNR_RETRY_EXC_ERR),
        (0x22, 0x03, WcStatus::IB_WC_REM_ABORT_ERR),
        (0x7f, 0xff, WcStatus::IB_WC_GENERAL_ERR),
    ] {
        let [client, server] = connected();
        (1..=4).for_each(|wr_id| server.receive(wr_id, 0..8).expect("post a receive"));
        client.receive(9, 0..8).expect("post a receive");
        send(&client, 1);
        client.done(1);
        ask_with("error", &client, &format!("{syndrome} {vendor}"));
        (2..=4).for_each(|wr_id| send(&client, wr_id));
        let failed = client.next();
        assert_eq!((failed.wr_id(), failed.status()), (2, status), "syndrome {syndrome:#x}");
        assert_eq!((failed.vendor_err(), failed.qp_num()), (vendor, client.qp().number()));
        let mut flushed = Vec::from_iter((0..3).map(|_| {
            let completion = client.next();
            assert_eq!(completion.status(), WcStatus::IB_WC_WR_FLUSH_ERR, "{completion:?}");
            completion.wr_id()
        }));
        flushed.sort_unstable();
        assert_eq!(flushed, [3, 4, 9]);
        let state = client.qp().query().expect("query").qp_state;
        assert_eq!(state, QpState::IB_QPS_ERR);
        server.done(1);
        assert!(server.polled().is_none(), "the failed send should not be executed");
    }
}

#[test]
#[ignore = "needs the test bed: cargo xtask test"]
fn next_doorbell_covers_lost_one() {
    let [client, server] = connected();
    for round in 0..20 {
        let [first, second] = [2 * round, 2 * round + 1];
        for wr_id in [first, second] {
            server.receive(wr_id, 0..8).expect("post a receive");
        }
        ask("lost", &client);
        send(&client, first);
        wait_for("lost", &client);
        assert!(client.polled().is_none() && server.polled().is_none());
        send(&client, second);
        for wr_id in [first, second] {
            server.done(wr_id);
            client.done(wr_id);
        }
    }
}

/// Checks that polling fails after a failed resize, and that the completion queue can be destroyed.
#[test]
#[ignore = "needs the test bed: cargo xtask test"]
fn resize_without_end_of_ring_is_reported() {
    let before = objects();
    let [client, server] = connected();
    (1..=3).for_each(|wr_id| server.receive(wr_id, 0..8).expect("post a receive"));
    send(&client, 1);
    client.done(1);
    ask("unended", &server);
    let error = server.cq().resize(500).expect_err("the ring should have no end");
    assert!(matches!(error.kind(), ErrorKind::MalformedResponse(_)), "{error}");
    let text = error.to_string();
    assert!(text.starts_with("cannot resize completion queue"), "{text}");
    assert!(text.contains("the device has not written the entry that ends the earlier ring"));
    let polled =
        server.cq().poll(&mut [Completion::default()]).expect_err("the ring should be unusable");
    assert!(matches!(polled.kind(), ErrorKind::InvalidInput { .. }), "{polled}");
    assert!(polled.to_string().contains("when the queue was resized"), "{polled}");
    // The device writes to the new ring, whose memory exists until the queue is destroyed.
    for wr_id in 2..=3 {
        send(&client, wr_id);
        client.done(wr_id);
    }
    drop([client, server]);
    assert_eq!(objects(), before);
    // Another queue is not affected.
    let [client, server] = connected();
    server.receive(1, 0..8).expect("post a receive");
    server.cq().resize(500).expect("resize");
    send(&client, 1);
    server.done(1);
}

/// Checks that a datagram which is longer than its receive ends the queue pair, as on hardware.
#[test]
#[ignore = "needs the test bed: cargo xtask test"]
fn short_receive_ends_queue_pair_of_datagrams() {
    promised_device(roce_name());
    let [client, server] = [(); 2].map(|()| manual_qp::datagrams(Shape::default()));
    let handle = AddressHandle::new(client.qp().pd(), &manual_qp::address()).expect("a handle");
    let qp_num = server.qp().number();
    let destination = Destination { address: &handle, qp_num, qkey: manual_qp::QKEY };
    let operation = SendOperation::SendTo { destination, imm_data: None };
    let send = |wr_id| {
        client.post(wr_id, operation, 0..8, SIGNALED).expect("post a send");
        client.done(wr_id);
    };
    let length = GRH_LENGTH + 8;
    server.receive(1, 0..length).expect("post a receive");
    server.receive(2, 0..length - 1).expect("post a receive");
    server.receive(3, 0..length).expect("post a receive");
    send(1);
    server.done(1);
    send(2);
    for (wr_id, status) in [(2, WcStatus::IB_WC_LOC_LEN_ERR), (3, WcStatus::IB_WC_WR_FLUSH_ERR)] {
        let failed = server.next();
        assert_eq!((failed.wr_id(), failed.status()), (wr_id, status));
    }
    assert_eq!(server.qp().query().expect("query").qp_state, QpState::IB_QPS_ERR);
}

/// Checks that a peer without resources for reads refuses them, as on hardware.
#[test]
#[ignore = "needs the test bed: cargo xtask test"]
fn read_without_responder_resources_is_refused() {
    promised_device(roce_name());
    let none = ConnParam { responder_resources: 0, initiator_depth: 0, ..ConnParam::default() };
    let connection = Connection::to(roce(0), Shape::default(), &none);
    let [client, server] = [&connection.client.io, &connection.server.io];
    client.post(1, server.written_at(0), 0..8, SIGNALED).expect("post a write");
    client.done(1);
    client.post(2, server.read_at(0), 0..8, SIGNALED).expect("post a read");
    let failed = client.next();
    assert_eq!((failed.wr_id(), failed.status()), (2, WcStatus::IB_WC_REM_ACCESS_ERR));
    connection.close();
}
