//! Asynchronous events: which ones the kernels raise, and which channel receives them.

use std::net::SocketAddr;
use std::os::fd::AsFd;
use std::sync::mpsc;
use std::thread;
use std::time::Duration;

use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use rdmacm::cm::ConnParam;
use rdmacm::verbs::{
    AsyncElement, AsyncEvent, AsyncEventChannel, AsyncEventType, CompletionQueue, Context,
    ProtectionDomain, QpState, QueuePair, QueuePairAttributes, QueuePairInit, SendFlags,
    SendOperation, SharedReceiveQueue, SharedReceiveQueueAttributes,
};
use rdmacm::{Error, ErrorKind, Token};

use crate::child::in_child;
use crate::fixtures::{Connection, LONG, announce, asleep, is_card, objects, promised, roce, siw};
use crate::io::Shape;
use crate::kt::Kt;
use crate::netdev::ip;
use crate::process::forked;
use crate::removal::Own;
use crate::shared::{Pair, Servers};

const SIGNALED: SendFlags = SendFlags::SIGNALED;

/// Returns the event channel of the context of a queue pair.
fn events(qp: &QueuePair) -> AsyncEventChannel {
    qp.pd().context().async_events()
}

/// Reads events until one of this type about `element` arrives.
///
/// Earlier events may concern ports, or earlier steps of a test.
#[track_caller]
fn expect(
    events: &AsyncEventChannel,
    event_type: AsyncEventType,
    element: AsyncElement,
) -> AsyncEvent {
    loop {
        let event = events.get_event_timeout(LONG).expect("read");
        let event = event.unwrap_or_else(|| panic!("{event_type} should arrive"));
        if event.event_type() == event_type {
            assert_eq!(event.element(), element);
            return event;
        }
    }
}

/// Checks that no event about any object is pending.
#[track_caller]
fn expect_none(events: &AsyncEventChannel) {
    while let Some(event) = events.get_event_timeout(Duration::ZERO).expect("read") {
        assert_eq!(event.token(), None, "{event:?}");
    }
}

/// Sends a message into one of the shared receives.
fn take(servers: &Servers) {
    let Pair { client, .. } = &servers.pairs[0];
    client.io.post_inline(1, SendOperation::Send, b"message", SIGNALED).expect("post a send");
    servers.shared.done();
    client.io.done(1);
}

fn limit_event_is_raised_once(address: SocketAddr) {
    let servers = Servers::new(address, 1, 16, &ConnParam::default());
    let srq = servers.shared.queue();
    let events = srq.pd().context().async_events();
    let limit = AsyncEventType::IB_EVENT_SRQ_LIMIT_REACHED;
    let about = AsyncElement::SharedReceiveQueue(srq.token());
    let post = |count| {
        (0..count).for_each(|wr_id| servers.shared.receive(wr_id, 0..8).expect("post a receive"));
    };
    post(8);
    srq.set_limit(6).expect("arm");
    // Six receives are left.
    (0..2).for_each(|_| take(&servers));
    expect_none(&events);
    take(&servers);
    assert_eq!(expect(&events, limit, about).token(), Some(srq.token()));
    // No further event is raised, however few receives are left.
    (0..3).for_each(|_| take(&servers));
    post(8);
    (0..8).for_each(|_| take(&servers));
    expect_none(&events);
    // Two receives are left, and the kernel compares the limit when the next message arrives.
    srq.set_limit(6).expect("arm");
    expect_none(&events);
    take(&servers);
    expect(&events, limit, about);
    // The limit is set and removed again.
    srq.set_limit(6).expect("arm");
    srq.set_limit(0).expect("disarm");
    take(&servers);
    expect_none(&events);
    servers.close();
}

#[test]
#[ignore = "needs the test bed: cargo xtask test"]
fn limit_event_is_raised_once_on_rxe() {
    limit_event_is_raised_once(roce(0));
}

#[test]
#[ignore = "needs the test bed: cargo xtask test"]
fn limit_event_is_raised_once_on_siw() {
    limit_event_is_raised_once(siw(0));
}

/// Returns a connection whose server has overflowed its completion queue.
fn overflowed(address: SocketAddr) -> Connection {
    let shape = Shape { completions: 1, ..Shape::default() };
    let connection = Connection::to(address, shape, &ConnParam::default());
    let Connection { client, server, .. } = &connection;
    assert_eq!(server.io.cq().capacity(), 1);
    // The ring of mlx5 has one entry more than the capacity.
    let room = if is_card() { 2 } else { 1 };
    for wr_id in 0..=room {
        server.io.receive_into(wr_id, &[]).expect("post a receive");
    }
    for wr_id in 10..10 + room {
        client.io.post_parts(wr_id, SendOperation::Send, &[], SIGNALED).expect("post a send");
        client.io.done(wr_id);
    }
    client.io.post_parts(20, SendOperation::Send, &[], SIGNALED).expect("post a send");
    connection
}

fn overflow_is_reported(address: SocketAddr) {
    let connection = overflowed(address);
    let io = &connection.server.io;
    let about = AsyncElement::CompletionQueue(io.cq().token());
    expect(&events(io.qp()), AsyncEventType::IB_EVENT_CQ_ERR, about);
}

#[test]
#[ignore = "needs the test bed: cargo xtask test"]
fn overflow_is_reported_on_rxe() {
    overflow_is_reported(roce(0));
}

#[test]
#[ignore = "needs the test bed: cargo xtask test"]
fn overflow_is_reported_on_siw() {
    overflow_is_reported(siw(0));
}

/// Moves a queue pair to a state that needs no further attribute, except a notification for SQD.
fn go(qp: &QueuePair, state: QpState) {
    let mut attributes = QueuePairAttributes::to(state);
    if state == QpState::IB_QPS_SQD {
        attributes = attributes.en_sqd_async_notify(true);
    }
    qp.modify(&attributes).expect("modify");
}

#[test]
#[ignore = "needs the test bed: cargo xtask test"]
fn drained_send_queue_is_reported() {
    let connection = Connection::new(Shape::default());
    let qp = connection.client.io.qp();
    expect_none(&events(qp));
    go(qp, QpState::IB_QPS_SQD);
    let about = AsyncElement::QueuePair(qp.token());
    expect(&events(qp), AsyncEventType::IB_EVENT_SQ_DRAINED, about);
}

/// Checks that the device reports the last receive of a shared queue.
///
/// rxe of Linux 6.1 raises no such event, but the card does.
#[test]
#[ignore = "needs the test bed: cargo xtask test"]
fn last_receive_of_shared_queue_is_reported() {
    let servers = Servers::new(roce(0), 2, 4, &ConnParam::default());
    let qp = servers.pairs[1].server.io.qp();
    let events = events(qp);
    go(qp, QpState::IB_QPS_ERR);
    if promised("RDMACM_TEST_KERNEL") == "6.1" && !is_card() {
        expect_none(&events);
        return;
    }
    let about = AsyncElement::QueuePair(qp.token());
    expect(&events, AsyncEventType::IB_EVENT_QP_LAST_WQE_REACHED, about);
}

/// Asserts that siw ends a connection after `end`, and that the server's queue pair gets the event.
fn ended_on_siw(event_type: AsyncEventType, end: impl FnOnce(&Connection)) {
    let connection = Connection::to(siw(0), Shape::default(), &ConnParam::default());
    end(&connection);
    let qp = connection.server.io.qp();
    expect(&events(qp), event_type, AsyncElement::QueuePair(qp.token()));
}

#[test]
#[ignore = "needs the test bed: cargo xtask test"]
fn oversized_message_is_fatal_on_siw() {
    ended_on_siw(AsyncEventType::IB_EVENT_QP_FATAL, |connection| {
        let Connection { client, server, .. } = connection;
        server.io.receive(1, 0..4).expect("post a receive");
        client.io.post(2, SendOperation::Send, 0..100, SIGNALED).expect("post a send");
    });
}

#[test]
#[ignore = "needs the test bed: cargo xtask test"]
fn write_beyond_memory_is_access_error_on_siw() {
    ended_on_siw(AsyncEventType::IB_EVENT_QP_ACCESS_ERR, |connection| {
        let Connection { client, server, .. } = connection;
        let beyond = server.io.written_at(4096 - 50);
        client.io.post(1, beyond, 0..100, SIGNALED).expect("post a write");
    });
}

#[test]
#[ignore = "needs the test bed: cargo xtask test"]
fn read_beyond_memory_is_request_error_on_siw() {
    ended_on_siw(AsyncEventType::IB_EVENT_QP_REQ_ERR, |connection| {
        let Connection { client, server, .. } = connection;
        let beyond = server.io.read_at(4096 - 50);
        client.io.post(1, beyond, 0..100, SIGNALED).expect("post a read");
    });
}

#[test]
#[ignore = "needs the test bed: cargo xtask test"]
fn flushed_sends_are_reported_on_siw() {
    // The message is longer than the buffers of the socket, so some requests stay in the ring.
    const LENGTH: usize = 3 << 20;
    let shape = Shape { memory: LENGTH, ..Shape::default() };
    let connection = Connection::to(siw(0), shape, &ConnParam::default());
    let Connection { client, server, .. } = &connection;
    let there = server.io.written_at(0);
    for wr_id in 0..4 {
        client.io.post(wr_id, there, 0..LENGTH, SIGNALED).expect("post a write");
    }
    let qp = client.io.qp();
    go(qp, QpState::IB_QPS_ERR);
    let about = AsyncElement::QueuePair(qp.token());
    expect(&events(qp), AsyncEventType::IB_EVENT_SQ_DRAINED, about);
}

/// Changes the network device, and waits for the event of the context.
#[track_caller]
fn change(context: &Context, arguments: &[&str], event_type: AsyncEventType) {
    ip(arguments);
    let event = expect(&context.async_events(), event_type, AsyncElement::Port(1));
    assert_eq!(event.token(), None);
}

#[test]
#[ignore = "needs the test bed: cargo xtask test"]
fn rxe_port_reports_state_of_network_device() {
    let own = Own::roce();
    let context = Context::open(&crate::fixtures::device(own.name)).expect("open");
    let netdev = own.netdev;
    change(&context, &["link", "set", netdev, "down"], AsyncEventType::IB_EVENT_PORT_ERR);
    change(&context, &["link", "set", netdev, "up"], AsyncEventType::IB_EVENT_PORT_ACTIVE);
    let address = ["address", "add", "10.6.1.1/24", "dev", netdev];
    change(&context, &address, AsyncEventType::IB_EVENT_GID_CHANGE);
}

#[test]
#[ignore = "needs the test bed: cargo xtask test"]
fn siw_port_reports_state_of_network_device() {
    let own = Own::siw();
    let context = Context::open(&crate::fixtures::device(own.name)).expect("open");
    let netdev = own.netdev;
    change(&context, &["link", "set", netdev, "down"], AsyncEventType::IB_EVENT_PORT_ERR);
    change(&context, &["link", "set", netdev, "up"], AsyncEventType::IB_EVENT_PORT_ACTIVE);
    let address = ["link", "set", netdev, "address", "02:00:00:00:07:01"];
    change(&context, &address, AsyncEventType::IB_EVENT_LID_CHANGE);
}

#[test]
#[ignore = "needs the test bed: cargo xtask test"]
fn all_port_and_device_events_are_read() {
    use AsyncEventType as T;
    let kt = Kt::load();
    let context = kt.context();
    let events = context.async_events();
    for port_event in [
        T::IB_EVENT_PORT_ACTIVE,
        T::IB_EVENT_PORT_ERR,
        T::IB_EVENT_LID_CHANGE,
        T::IB_EVENT_PKEY_CHANGE,
        T::IB_EVENT_SM_CHANGE,
        T::IB_EVENT_CLIENT_REREGISTER,
    ] {
        kt.raise(port_event, 1);
        expect(&events, port_event, AsyncElement::Port(1));
    }
    kt.raise(T::IB_EVENT_DEVICE_FATAL, 1);
    assert!(!context.is_device_removed());
    expect(&events, T::IB_EVENT_DEVICE_FATAL, AsyncElement::Device);
    assert!(context.is_device_removed());
    let error = context.query_device().expect_err("the device should be removed");
    assert!(matches!(error.kind(), ErrorKind::DeviceRemoved(libc::EIO)), "{error:?}");
    // A later kernel may raise an event of an unknown type.
    kt.raise(AsyncEventType(77), 5);
    expect(&events, AsyncEventType(77), AsyncElement::Unknown(5));
}

#[test]
#[ignore = "needs the test bed: cargo xtask test"]
fn all_object_events_are_read() {
    use AsyncEventType as T;
    let kt = Kt::load();
    let context = kt.context();
    let events = context.async_events();
    let pd = ProtectionDomain::new(&context).expect("protection domain");
    let cq = CompletionQueue::new(&context, 8, None).expect("completion queue");
    let attributes = SharedReceiveQueueAttributes::default();
    let srq = SharedReceiveQueue::new(&pd, attributes).expect("shared receive queue");
    let init = QueuePairInit { srq: Some(&srq), ..QueuePairInit::new(&cq) };
    // Tokens distinguish the events.
    let [other, qp] = [(); 2].map(|()| QueuePair::new(&pd, &init).expect("queue pair"));
    let about = AsyncElement::QueuePair(qp.token());
    for event_type in [
        T::IB_EVENT_QP_FATAL,
        T::IB_EVENT_QP_REQ_ERR,
        T::IB_EVENT_QP_ACCESS_ERR,
        T::IB_EVENT_COMM_EST,
        T::IB_EVENT_SQ_DRAINED,
        T::IB_EVENT_PATH_MIG,
        T::IB_EVENT_PATH_MIG_ERR,
        T::IB_EVENT_QP_LAST_WQE_REACHED,
    ] {
        kt.raise(event_type, other.number());
        kt.raise(event_type, qp.number());
        expect(&events, event_type, AsyncElement::QueuePair(other.token()));
        expect(&events, event_type, about);
    }
    for (event_type, element) in [
        (T::IB_EVENT_CQ_ERR, AsyncElement::CompletionQueue(cq.token())),
        (T::IB_EVENT_SRQ_ERR, AsyncElement::SharedReceiveQueue(srq.token())),
        (T::IB_EVENT_SRQ_LIMIT_REACHED, AsyncElement::SharedReceiveQueue(srq.token())),
    ] {
        kt.raise(event_type, qp.number());
        expect(&events, event_type, element);
    }
    // Events that were read are acknowledged. Unread events are dropped.
    kt.raise(T::IB_EVENT_QP_FATAL, other.number());
    kt.raise(T::IB_EVENT_QP_FATAL, qp.number());
    other.destroy().expect("destroy");
    expect(&events, T::IB_EVENT_QP_FATAL, about);
    qp.destroy().expect("destroy");
    srq.destroy().expect("destroy");
    cq.destroy().expect("destroy");
    assert!(events.get_event_timeout(Duration::ZERO).expect("read").is_none());
}

/// Checks that `destroy` waits until another thread drops its event.
///
/// Destroying refuses to wait for an event of the same thread.
fn waits<T: Send>(
    object: T,
    kind: &str,
    destroy: fn(T) -> Result<(), rdmacm::DestroyError<T>>,
    event: AsyncEvent,
) {
    let (object, error) =
        destroy(object).expect_err("the call should not wait for its own thread").into_parts();
    assert!(matches!(error.kind(), ErrorKind::WouldDeadlock(_)), "{error}");
    let count = || objects().count(kind).unwrap_or(0);
    let before = count();
    thread::scope(|scope| {
        let waiter = scope.spawn(|| destroy(object).map_err(Error::from));
        // The kernel has destroyed the object. Linux 6.1 does not count shared receive queues.
        while before > 0 && count() == before {
            thread::yield_now();
        }
        for _ in 0..20 {
            objects();
            assert!(!waiter.is_finished(), "the thread should wait for the event");
        }
        drop(event);
        waiter.join().expect("waiter should not panic").expect("destroy");
    });
}

/// Returns an event about an object that [`waits`] will destroy. No other thread holds the event.
fn event_of(events: &AsyncEventChannel, token: Token) -> AsyncEvent {
    loop {
        let event = events.get_event_timeout(LONG).expect("read").expect("an event");
        if event.token() == Some(token) {
            return event;
        }
    }
}

#[test]
#[ignore = "needs the test bed: cargo xtask test"]
fn srq_destroy_waits_for_events() {
    let servers = Servers::new(roce(0), 1, 4, &ConnParam::default());
    let srq = servers.shared.queue().clone();
    let events = srq.pd().context().async_events();
    servers.shared.receive(1, 0..8).expect("post a receive");
    srq.set_limit(1).expect("arm");
    take(&servers);
    let event = event_of(&events, srq.token());
    // After this drop, only the orphaned memory refers to the queue.
    drop(servers);
    waits(srq, "srq", SharedReceiveQueue::destroy, event);
}

#[test]
#[ignore = "needs the test bed: cargo xtask test"]
fn qp_destroy_waits_for_events() {
    let connection = Connection::new(Shape::default());
    let qp = connection.client.io.qp().clone();
    let events = events(&qp);
    go(&qp, QpState::IB_QPS_SQD);
    let event = event_of(&events, qp.token());
    drop(connection);
    waits(qp, "qp", QueuePair::destroy, event);
}

#[test]
#[ignore = "needs the test bed: cargo xtask test"]
fn cq_destroy_waits_for_events() {
    let connection = overflowed(roce(0));
    let cq = connection.server.io.cq().clone();
    let events = events(connection.server.io.qp());
    let event = event_of(&events, cq.token());
    drop(connection);
    waits(cq, "cq", CompletionQueue::destroy, event);
}

#[test]
#[ignore = "needs the test bed: cargo xtask test"]
fn events_of_destroyed_objects_are_discarded() {
    let connection = Connection::new(Shape::default());
    let io = &connection.client.io;
    let (events, token) = (events(io.qp()), io.qp().token());
    go(io.qp(), QpState::IB_QPS_SQD);
    // The channel is readable while the queue pair exists.
    let mut descriptor = [PollFd::new(events.as_fd(), PollFlags::POLLIN)];
    assert_eq!(poll(&mut descriptor, PollTimeout::from(60_000_u16)).expect("poll"), 1);
    drop(connection);
    while let Some(event) = events.get_event_timeout(Duration::ZERO).expect("read") {
        assert_ne!(event.token(), Some(token), "{event:?}");
    }
    // The object is dropped while its event is held. The event stays valid, and does not affect the next object.
    let connection = Connection::new(Shape::default());
    let io = &connection.client.io;
    go(io.qp(), QpState::IB_QPS_SQD);
    let event = event_of(&events, io.qp().token());
    drop(connection);
    let connection = Connection::new(Shape::default());
    assert_ne!(Some(connection.client.io.qp().token()), event.token());
    connection.close();
    drop(event);
}

#[test]
#[ignore = "needs the test bed: cargo xtask test"]
fn read_follows_blocking_mode() {
    let kt = Kt::load();
    let context = kt.context();
    let events = context.async_events();
    let raise = || kt.raise(AsyncEventType::IB_EVENT_SM_CHANGE, 1);
    let is_raised = |event: &AsyncEvent| event.event_type() == AsyncEventType::IB_EVENT_SM_CHANGE;
    events.set_nonblocking(true).expect("make it non-blocking");
    let error = events.get_event().expect_err("no event should be pending");
    assert!(matches!(error.kind(), ErrorKind::WouldBlock), "{error}");
    assert_eq!(error.errno(), libc::EAGAIN);
    events.set_nonblocking(false).expect("make it blocking");
    assert!(events.get_event_timeout(Duration::from_millis(5)).expect("read").is_none());
    // One thread waits with a deadline and one without, and each gets an event.
    let (tx, rx) = mpsc::channel();
    thread::scope(|scope| {
        let timed = {
            let (tx, events) = (tx.clone(), events.clone());
            scope.spawn(move || {
                announce(&tx);
                events.get_event_timeout(LONG).expect("read").is_some_and(|event| is_raised(&event))
            })
        };
        let untimed = scope.spawn(|| {
            announce(&tx);
            is_raised(&context.async_events().get_event().expect("read"))
        });
        (0..2).for_each(|_| asleep(rx.recv().expect("thread should send its id")));
        (0..2).for_each(|_| raise());
        assert!(
            timed.join().expect("thread should not panic")
                && untimed.join().expect("thread should not panic")
        );
    });
    // The kernel keeps unread events.
    (0..5).for_each(|_| raise());
    (0..5).for_each(|_| assert!(is_raised(&events.get_event().expect("read"))));
    assert!(events.get_event_timeout(Duration::ZERO).expect("read").is_none());
}

#[test]
#[ignore = "needs the test bed: cargo xtask test"]
fn forked_child_reads_no_events() {
    let connection = Connection::new(Shape::default());
    let qp = connection.client.io.qp();
    let events = events(qp);
    go(qp, QpState::IB_QPS_SQD);
    let mut event = Some(event_of(&events, qp.token()));
    go(qp, QpState::IB_QPS_RTS);
    go(qp, QpState::IB_QPS_SQD);
    in_child(|| {
        forked(events.get_event());
        forked(events.get_event_timeout(Duration::ZERO));
        forked(events.set_nonblocking(true));
        // This drop acknowledges no event.
        drop(event.take());
    });
    let (second, event) = (event_of(&events, qp.token()), event.expect("the event should be held"));
    drop(second);
    let qp = qp.clone();
    drop(connection);
    waits(qp, "qp", QueuePair::destroy, event);
}
