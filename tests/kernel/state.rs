//! Calls that are made too early, too late or twice.

use std::thread;
use std::time::Duration;

use rdmacm::Error;
use rdmacm::cm::{CmId, ConnParam, EndpointQpInit, EventType};
use rdmacm::verbs::{
    Completion, CompletionQueue, Context, ProtectionDomain, QpCreateFlags, QueuePair,
    QueuePairCaps, QueuePairInit, SendFlags, SendOperation, WcStatus,
};

use crate::fixtures::{
    Connection, LONG, Side, ask, assert_invalid, channel, device, id, listen, request, resolve,
    roce, roce_name, siw,
};
use crate::io::{Shape, receive_nothing};

/// Checks that the kernel, or the library, refused the call in this state.
///
/// The error names the call and the id.
#[track_caller]
fn misplaced(result: Result<(), Error>, operation: &str, id: &CmId) {
    let error = result.expect_err("the call should be refused in this state");
    assert_eq!(error.errno(), libc::EINVAL, "{error}");
    assert_eq!(error.operation(), operation, "{error}");
    assert!(error.subject().contains(&format!("id {}", id.token())), "{error}");
}

#[test]
#[ignore = "needs the test bed: cargo xtask test"]
fn calls_before_resolved_address_are_refused() {
    let channel = channel();
    let id = id(&channel);
    for result in [id.connect(&ConnParam::default()), id.accept(&ConnParam::default())] {
        let error = result.expect_err("the id should have no device");
        assert_invalid(&error, &["not bound to a device", "resolve an address first"]);
        assert_eq!(error.errno(), libc::EINVAL);
        assert!(error.subject().contains(&format!("id {}", id.token())), "{error}");
    }
    assert_invalid(
        &id.reject(b"").expect_err("the id should have no request"),
        &["not bound to a device"],
    );
    assert_invalid(
        &id.disconnect().expect_err("the id should have no connection"),
        &["not bound to a device"],
    );
    misplaced(id.resolve_route(LONG), "resolve the route of", &id);
    // The refused calls have not changed the id.
    id.resolve_addr(None, roce(7471), LONG).expect("resolve");
    channel.expect_event(EventType::AddrResolved).expect("the address should be resolved");
}

#[test]
#[ignore = "needs the test bed: cargo xtask test"]
fn calls_before_resolved_route_are_refused() {
    let channel = channel();
    let id = id(&channel);
    id.resolve_addr(None, roce(7471), LONG).expect("resolve");
    channel.expect_event(EventType::AddrResolved).expect("the address should be resolved");
    let error = id.connect(&ConnParam::default()).expect_err("the id should have no queue pair");
    assert_invalid(&error, &["no queue pair"]);
    let side = Side::new(id, Shape::default());
    misplaced(side.id.connect(&ConnParam::default()), "connect", &side.id);
    misplaced(side.id.resolve_route(Duration::ZERO), "resolve the route of", &side.id);
    misplaced(side.id.resolve_addr(None, roce(7471), LONG), "resolve the address", &side.id);
    side.id.resolve_route(LONG).expect("resolve the route");
    channel.expect_event(EventType::RouteResolved).expect("the route should be resolved");
    misplaced(side.id.resolve_route(LONG), "resolve the route of", &side.id);
    misplaced(side.id.bind(roce(0)), "bind", &side.id);
    misplaced(side.id.listen(0), "listen on", &side.id);
}

#[test]
#[ignore = "needs the test bed: cargo xtask test"]
fn invalid_calls_on_connection_are_refused() {
    let connection = Connection::new(Shape::default());
    let Connection { client, server, .. } = &connection;
    let param = ConnParam::default();
    assert_invalid(
        &server.id.accept(&param).expect_err("a second accept should be refused"),
        &["accepted already"],
    );
    misplaced(server.id.reject(b""), "reject", &server.id);
    misplaced(client.id.connect(&param), "connect", &client.id);
    assert_invalid(
        &client.id.accept(&param).expect_err("a client should not accept"),
        &["no request"],
    );
    for side in [client, server] {
        misplaced(side.id.listen(0), "listen on", &side.id);
        misplaced(side.id.bind(roce(0)), "bind", &side.id);
        misplaced(side.id.resolve_addr(None, roce(1), LONG), "resolve the address", &side.id);
    }
    // The refused calls have not changed the connection.
    server.io.receive(1, 0..8).expect("post a receive");
    client.io.post(2, SendOperation::Send, 0..8, SendFlags::SIGNALED).expect("post a send");
    server.io.done(1);
    client.io.done(2);
    connection.close();
}

#[test]
#[ignore = "needs the test bed: cargo xtask test"]
fn invalid_calls_on_listener_are_refused() {
    let channel = channel();
    let (listener, _) = listen(&channel, roce(0));
    let param = ConnParam::default();
    misplaced(listener.bind(roce(0)), "bind", &listener);
    misplaced(listener.connect(&param), "connect", &listener);
    misplaced(listener.accept(&param), "accept", &listener);
    misplaced(listener.resolve_addr(None, roce(1), LONG), "resolve the address", &listener);
}

#[test]
#[ignore = "needs the test bed: cargo xtask test"]
fn calls_after_rejection_are_refused() {
    let (ours, theirs) = (channel(), channel());
    let (_listener, address) = listen(&theirs, roce(0));
    let client = ask(&ours, address, &ConnParam::default());
    let unwanted = Side::new(request(&theirs), Shape::default());
    unwanted.id.reject(b"").expect("reject");
    misplaced(unwanted.id.reject(b""), "reject", &unwanted.id);
    let error = unwanted
        .id
        .accept(&ConnParam::default())
        .expect_err("a rejected request should not be accepted");
    assert_eq!(error.errno(), libc::EINVAL, "{error}");
    ours.expect_event(EventType::Established).expect_err("the request should be rejected");
    misplaced(client.id.connect(&ConnParam::default()), "connect", &client.id);
}

#[test]
#[ignore = "needs the test bed: cargo xtask test"]
fn impossible_queue_pairs_are_refused() {
    let channel = channel();
    let (_listener, address) = listen(&channel, roce(0));
    let side = Side::new(resolve(&channel, address), Shape::default());
    let (pd, cq) = (side.io.qp().pd(), side.io.cq());
    let caps = QueuePairCaps::default();
    let init = QueuePairInit { caps, ..QueuePairInit::new(cq) };
    let error = side.id.create_qp(pd, &init).expect_err("a second one should be refused");
    assert_invalid(&error, &["create the queue pair of id", "already has a queue pair"]);
    let error = id(&channel).create_qp(pd, &init).expect_err("the id should have no device");
    assert_invalid(&error, &["not bound to a device"]);
    // Objects of two contexts of a device cannot be combined.
    let other = Context::open(&device(roce_name())).expect("open");
    let foreign = ProtectionDomain::new(&other).expect("protection domain");
    let error = resolve(&channel, address)
        .create_qp(&foreign, &init)
        .expect_err("an object of another context or domain should be refused");
    assert_invalid(&error, &["another context"]);
    let error = QueuePair::new(&foreign, &init)
        .expect_err("an object of another context or domain should be refused");
    assert_invalid(&error, &["another context"]);
    let events = rdmacm::verbs::CompletionChannel::new(&other).expect("completion channel");
    let error = CompletionQueue::new(cq.context(), 1, Some(&events))
        .expect_err("an object of another context or domain should be refused");
    assert_invalid(&error, &["another context"]);
}

#[test]
#[ignore = "needs the test bed: cargo xtask test"]
fn queue_pair_flags_are_refused_on_rxe_and_siw() {
    for address in [roce(0), siw(0)] {
        let channel = channel();
        let (_listener, address) = listen(&channel, address);
        let id = resolve(&channel, address);
        let pd = id.default_pd().expect("protection domain");
        let cq = CompletionQueue::new(pd.context(), 1, None).expect("completion queue");
        for (create_flags, errno) in [
            (QpCreateFlags::IB_UVERBS_QP_CREATE_BLOCK_MULTICAST_LOOPBACK, libc::EOPNOTSUPP),
            // The ioctl has this flag. The write command has a separate field.
            (QpCreateFlags::IB_UVERBS_QP_CREATE_SQ_SIG_ALL, libc::EINVAL),
        ] {
            let init = QueuePairInit { create_flags, ..QueuePairInit::new(&cq) };
            let error = id.create_qp(&pd, &init).expect_err("the flags should be refused");
            assert_eq!(error.errno(), errno, "{error}");
            let init = EndpointQpInit { create_flags, ..EndpointQpInit::default() };
            let error = id.create_ep_qp(&init).expect_err("the flags should be refused");
            assert_eq!(error.errno(), errno, "{error}");
            assert!(id.qp().is_none());
        }
        id.create_qp(&pd, &QueuePairInit::new(&cq)).expect("create a queue pair without flags");
    }
}

#[test]
#[ignore = "needs the test bed: cargo xtask test"]
fn one_of_two_threads_creates_queue_pair() {
    let channel = channel();
    let (_listener, address) = listen(&channel, roce(0));
    for _ in 0..10 {
        let id = resolve(&channel, address);
        let context = id.context().expect("context");
        let pd = ProtectionDomain::new(&context).expect("protection domain");
        let cq = CompletionQueue::new(&context, 1, None).expect("completion queue");
        let caps = QueuePairCaps::default();
        let init = QueuePairInit { caps, ..QueuePairInit::new(&cq) };
        let made = thread::scope(|scope| {
            let make = || id.create_qp(&pd, &init);
            let makers = [scope.spawn(make), scope.spawn(make)];
            makers.map(|maker| maker.join().expect("maker should not panic"))
        });
        let (made, refused): (Vec<_>, Vec<_>) = made.into_iter().partition(Result::is_ok);
        let [Ok(made)] = &made[..] else { panic!("{made:?}") };
        assert_eq!(id.qp().as_ref(), Some(made));
        let [Err(refused)] = &refused[..] else { panic!("{refused:?}") };
        assert_invalid(refused, &["already has a queue pair"]);
    }
}

#[test]
#[ignore = "needs the test bed: cargo xtask test"]
fn queue_pair_can_be_replaced_before_connect() {
    let channel = channel();
    let (_listener, address) = listen(&channel, roce(0));
    let id = resolve(&channel, address);
    let first = Side::new(id, Shape::default());
    // Each kept handle would keep the first queue pair, and the second one would not replace it.
    let number = first.io.qp().number();
    first.id.destroy_qp();
    assert!(first.id.qp().is_none());
    let Side { id, io } = first;
    drop(io);
    let second = Side::new(id, Shape::default());
    assert_eq!(second.id.qp().as_ref(), Some(second.io.qp()));
    assert_ne!(second.io.qp().number(), number);
}

#[test]
#[ignore = "needs the test bed: cargo xtask test"]
fn post_in_wrong_state_is_refused() {
    let channel = channel();
    let (_listener, address) = listen(&channel, roce(0));
    let side = Side::new(resolve(&channel, address), Shape::default());
    // A queue pair in INIT accepts receives, but no sends.
    side.io.receive(1, 0..8).expect("post a receive");
    let send = |wr_id| side.io.post(wr_id, SendOperation::Send, 0..8, SendFlags::SIGNALED);
    let error = send(2).expect_err("peer should be unknown");
    assert_invalid(&error, &["post a send", "IB_QPS_INIT", "IB_QPS_RTS"]);
    assert_eq!(error.errno(), libc::EINVAL);
    // A queue pair in RESET accepts no request.
    let (pd, cq) = (side.io.qp().pd(), side.io.cq());
    let caps = QueuePairCaps::default();
    let init = QueuePairInit { caps, ..QueuePairInit::new(cq) };
    let fresh = QueuePair::new(pd, &init).expect("queue pair");
    let error = receive_nothing(&fresh, 3).expect_err("the queue pair should be in RESET");
    assert_invalid(&error, &["post a receive", "IB_QPS_RESET"]);
    fresh.destroy().expect("destroy");
    // The failed call moves the queue pair to ERR. There it accepts both requests, and flushes both.
    side.id.disconnect().expect_err("the id should have no connection");
    send(4).expect("post a send");
    let mut flushed = [side.io.next(), side.io.next()].map(|done: Completion| {
        assert_eq!(done.status(), WcStatus::IB_WC_WR_FLUSH_ERR, "{done:?}");
        done.wr_id()
    });
    flushed.sort_unstable();
    assert_eq!(flushed, [1, 4]);
}
