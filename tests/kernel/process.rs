//! Objects that belong to the process that opened them: children, and threads with other credentials.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc;
use std::thread;
use std::time::Duration;

use nix::sched::{CloneFlags, unshare};
use nix::unistd::alarm;
use rdmacm::cm::{CmId, ConnParam, EventChannel, EventType, PortSpace};
use rdmacm::device::Gid;
use rdmacm::verbs::{
    AccessFlags, AddressHandle, CompletionChannel, CompletionQueue, Context, MemoryRegion,
    MemoryWindow, MemoryWindowType, ProtectionDomain, QueuePair, QueuePairAttributes,
    QueuePairCaps, QueuePairInit, SendFlags, SendOperation, SharedReceiveQueueAttributes,
    XrcDomain,
};
use rdmacm::{Error, ErrorKind, NotOwner};

use crate::child::{change_credentials_of_this_thread, in_child};
use crate::fixtures::{
    Connection, Ending, LONG, announce, asleep, channel, device, id, ids, listen, objects, roce,
    roce_name,
};
use crate::io::Shape;

const SIGNALED: SendFlags = SendFlags::SIGNALED;

#[track_caller]
fn wrong_process<T>(result: Result<T, Error>, how: NotOwner) {
    let Err(error) = result else { panic!("the call should fail") };
    match error.kind() {
        ErrorKind::NotOwner(found) => assert_eq!(*found, how, "{error}"),
        _ => panic!("{error:?}"),
    }
    assert_eq!(error.errno(), libc::EACCES);
}

#[track_caller]
pub(crate) fn forked<T>(result: Result<T, Error>) {
    wrong_process(result, NotOwner::Forked);
}

/// Sends a message in each direction.
fn exchange(connection: &Connection) {
    let Connection { client, server, .. } = connection;
    for (from, to) in [(client, server), (server, client)] {
        to.io.receive(1, 0..8).expect("post a receive");
        from.io.post(2, SendOperation::Send, 8..16, SIGNALED).expect("post a send");
        to.io.done(1);
        from.io.done(2);
    }
}

#[test]
#[ignore = "needs the test bed: cargo xtask test"]
fn forked_child_calls_are_refused() {
    let connection = Connection::new(Shape::default());
    let Connection { client, client_channel: channel, .. } = &connection;
    let fresh = id(channel);
    let before = objects();
    in_child(|| {
        forked(CmId::new(channel, PortSpace::Tcp));
        forked(channel.get_event());
        forked(channel.get_event_timeout(Duration::from_secs(1)));
        forked(channel.expect_event(EventType::Established));
        forked(channel.set_nonblocking(true));
        forked(fresh.bind(roce(0)));
        forked(fresh.resolve_addr(None, roce(1), LONG));
        forked(fresh.resolve_route(LONG));
        forked(fresh.listen(0));
        forked(fresh.context());
        forked(fresh.local_addr());
        forked(client.id.peer_addr());
        forked(client.id.connect(&ConnParam::default()));
        forked(client.id.accept(&ConnParam::default()));
        forked(client.id.reject(b""));
        forked(client.id.disconnect());
        let io = &client.io;
        let context = io.cq().context();
        forked(context.query_device());
        forked(context.query_port(1));
        forked(ProtectionDomain::new(context));
        forked(CompletionChannel::new(context));
        forked(CompletionQueue::new(context, 1, None));
        forked(MemoryRegion::alloc(io.qp().pd(), 64, AccessFlags::empty()));
        let caps = QueuePairCaps::default();
        let init = QueuePairInit { caps, ..QueuePairInit::new(io.cq()) };
        forked(QueuePair::new(io.qp().pd(), &init));
        forked(io.qp().query());
        forked(MemoryWindow::new(io.qp().pd(), MemoryWindowType::IB_MW_TYPE_1));
        forked(AddressHandle::new(io.qp().pd(), &crate::manual_qp::address()));
        forked(XrcDomain::new(context));
        forked(io.cq().resize(8));
        // The calls do not reach the rings either, which the child shares.
        forked(io.receive(1, 0..8));
        forked(io.post(2, SendOperation::Send, 0..8, SIGNALED));
        forked(io.cq().poll(&mut [rdmacm::verbs::Completion::default()]));
        forked(io.cq().request_notify(false));
        forked(io.cq().wait(&mut [rdmacm::verbs::Completion::default()]));
        forked(io.cq().wait_timeout(&mut [rdmacm::verbs::Completion::default()], LONG));
        forked(io.channel().get_event());
        forked(io.channel().get_event_timeout(LONG));
        forked(io.qp().attach_multicast(Gid::default(), 0));
        forked(io.qp().detach_multicast(Gid::default(), 0));
        forked(io.channel().set_nonblocking(true));
    });
    assert_eq!(objects(), before);
    exchange(&connection);
    drop(fresh);
    connection.close();
}

#[test]
#[ignore = "needs the test bed: cargo xtask test"]
fn forked_child_skips_locks_of_waiting_parent() {
    let connection = Connection::new(Shape::default());
    let Connection { client, server, .. } = &connection;
    server.io.receive(1, 0..8).expect("post a receive");
    let (tx, rx) = mpsc::channel();
    thread::scope(|scope| {
        scope.spawn(|| {
            announce(&tx);
            let mut done = [rdmacm::verbs::Completion::default()];
            assert_eq!(server.io.cq().wait_timeout(&mut done, LONG).expect("wait"), 1);
        });
        asleep(rx.recv().expect("thread should send its id"));
        in_child(|| {
            // If the child waited for the lock of the parent's thread, it would wait forever.
            alarm::set(10);
            forked(server.io.cq().wait(&mut [rdmacm::verbs::Completion::default()]));
        });
        client.io.post(2, SendOperation::Send, 8..16, SIGNALED).expect("post a send");
        client.io.done(2);
    });
    connection.close();
}

/// Forks while a thread of the parent holds a lock for which a call of the child would wait.
#[test]
#[ignore = "needs the test bed: cargo xtask test"]
fn forked_child_skips_locks_of_busy_parent() {
    let connection = Connection::new(Shape::default());
    let (io, server) = (&connection.client.io, &connection.server.io);
    let rights = QueuePairAttributes::default().access(AccessFlags::from_bits_retain(7));
    let there = server.written_at(0);
    let stop = AtomicBool::new(false);
    thread::scope(|scope| {
        let _ending = Ending(&stop);
        scope.spawn(|| {
            while !stop.load(Ordering::SeqCst) {
                io.post(1, there, 0..64, SIGNALED).expect("post a write");
                io.done(1);
            }
        });
        scope.spawn(|| {
            while !stop.load(Ordering::SeqCst) {
                io.qp().modify(&rights).expect("modify");
            }
        });
        for _ in 0..20 {
            in_child(|| {
                alarm::set(10);
                forked(io.qp().modify(&rights));
                forked(io.qp().query());
                forked(io.post(2, there, 0..64, SIGNALED));
                forked(io.receive(3, 0..64));
                forked(io.cq().poll(&mut [rdmacm::verbs::Completion::default()]));
                forked(connection.client.id.disconnect());
            });
        }
    });
    connection.close();
}

#[test]
#[ignore = "needs the test bed: cargo xtask test"]
fn forked_child_skips_lock_of_srq_creation() {
    let connection = Connection::new(Shape::default());
    let id = &connection.client.id;
    let attributes = SharedReceiveQueueAttributes { max_wr: 1, ..Default::default() };
    let stop = AtomicBool::new(false);
    thread::scope(|scope| {
        let _ending = Ending(&stop);
        scope.spawn(|| {
            while !stop.load(Ordering::SeqCst) {
                drop(id.create_srq(None, attributes).expect("shared receive queue"));
                id.destroy_srq();
            }
        });
        for _ in 0..20 {
            in_child(|| {
                alarm::set(10);
                assert!(
                    id.srq().is_none() && id.qp().is_none(),
                    "the child should have neither object"
                );
                id.destroy_srq();
                forked(id.create_srq(None, attributes));
            });
        }
    });
    connection.close();
}

#[test]
#[ignore = "needs the test bed: cargo xtask test"]
fn drop_in_forked_child_is_noop() {
    let connection = Connection::new(Shape::default());
    let channel = channel();
    let id = id(&channel);
    id.resolve_addr(None, roce(1), LONG).expect("resolve the address");
    let event =
        channel.expect_event(EventType::AddrResolved).expect("the address should be resolved");
    let (_listener, address) = listen(&channel, roce(0));
    let ours = crate::fixtures::channel();
    let client = crate::fixtures::ask(&ours, address, &ConnParam::default());
    let request = channel.expect_event(EventType::ConnectRequest).expect("a request");
    let before = objects();
    // The child gets copies of these objects.
    let mut things = Some((connection, channel, id, event, client, request));
    in_child(|| drop(things.take()));
    let (connection, channel, id, event, client, mut request) =
        things.expect("the objects should still exist");
    assert_eq!(objects(), before);
    exchange(&connection);
    connection.close();
    drop(event);
    id.resolve_route(LONG).expect("the id should be unchanged");
    channel.expect_event(EventType::RouteResolved).expect("the route should be resolved");
    id.destroy().expect("destroy");
    request.take_request().expect("an id").reject(b"").expect("reject");
    ours.expect_event(EventType::Established).expect_err("the request should be rejected");
    client.id.destroy().expect("destroy");
}

#[test]
#[ignore = "needs the test bed: cargo xtask test"]
fn destroy_in_forked_child_is_refused() {
    let mut connection = Some(Connection::new(Shape::default()));
    let channel = channel();
    let mut id = Some(id(&channel));
    let mut parts = {
        let context =
            connection.as_ref().expect("the object should exist").client.io.cq().context();
        let cq = CompletionQueue::new(context, 1, None).expect("completion queue");
        let pd = ProtectionDomain::new(context).expect("protection domain");
        let caps = QueuePairCaps::default();
        let init = QueuePairInit { caps, ..QueuePairInit::new(&cq) };
        let qp = QueuePair::new(&pd, &init).expect("queue pair");
        Some((qp, cq, pd))
    };
    let before = objects();
    in_child(|| {
        forked(id.take().expect("the object should exist").destroy().map_err(Error::from));
        let (qp, cq, pd) = parts.take().expect("the objects should exist");
        forked(qp.destroy().map_err(Error::from));
        forked(cq.destroy().map_err(Error::from));
        forked(pd.destroy().map_err(Error::from));
        drop(connection.take());
    });
    assert_eq!(objects(), before);
    let (qp, cq, pd) = parts.expect("the objects should still exist");
    qp.destroy().expect("destroy");
    cq.destroy().expect("destroy");
    pd.destroy().expect("destroy");
    id.expect("the objects should still exist").destroy().expect("destroy");
    connection.expect("the objects should still exist").close();
}

#[test]
#[ignore = "needs the test bed: cargo xtask test"]
fn forked_child_cannot_change_blocking_mode() {
    let channel = channel();
    let connection = Connection::new(Shape::default());
    in_child(|| {
        forked(channel.get_event_timeout(Duration::ZERO));
        forked(channel.set_nonblocking(true));
        forked(connection.client.io.channel().set_nonblocking(true));
    });
    let (wait, end) = mpsc::channel();
    thread::scope(|scope| {
        let reader = scope.spawn(|| {
            wait.send(()).expect("the test should receive");
            channel.get_event().expect("the call should wait for an event").token()
        });
        end.recv().expect("the reader should start");
        for _ in 0..20 {
            objects();
            assert!(!reader.is_finished(), "the reader should wait");
        }
        let id = id(&channel);
        id.resolve_addr(None, roce(1), LONG).expect("resolve the address");
        assert_eq!(reader.join().expect("reader should not panic"), id.token());
    });
    connection.close();
}

#[test]
#[ignore = "needs the test bed: cargo xtask test"]
fn forked_child_connects_with_own_objects() {
    let connection = Connection::new(Shape::default());
    in_child(|| {
        let own = Connection::new(Shape::default());
        exchange(&own);
        own.close();
        // A child of a child is a further process.
        let own = Connection::new(Shape::default());
        in_child(|| forked(own.client.id.local_addr()));
        exchange(&own);
        own.close();
    });
    exchange(&connection);
    connection.close();
}

#[test]
#[ignore = "needs the test bed: cargo xtask test"]
fn forked_child_skips_locks_of_parent_threads() {
    let (rxe0, is_over) = (device(roce_name()), AtomicBool::new(false));
    thread::scope(|scope| {
        let _ending = Ending(&is_over);
        // Opening a device locks the list of contexts. Creating an id locks the list of ids.
        scope.spawn(|| {
            while !is_over.load(Ordering::SeqCst) {
                drop(Context::shared(&rxe0).expect("open"));
            }
        });
        scope.spawn(|| {
            let channel = channel();
            while !is_over.load(Ordering::SeqCst) {
                drop(id(&channel));
            }
        });
        for _ in 0..20 {
            in_child(|| {
                alarm::set(10);
                let own = Connection::new(Shape::default());
                exchange(&own);
                own.close();
            });
        }
    });
}

/// Runs `body` in a thread with its own credentials.
fn in_changed_thread(body: impl FnOnce() + Send) {
    thread::scope(|scope| {
        let changed = scope.spawn(|| {
            change_credentials_of_this_thread();
            body();
        });
        changed.join().expect("thread should not panic");
    });
}

#[test]
#[ignore = "needs the test bed: cargo xtask test"]
fn credential_error_differs_from_other_refusals() {
    let channel = channel();
    let (listener, _) = listen(&channel, roce(0));
    let id = id(&channel);
    in_changed_thread(|| {
        let credentials = NotOwner::Credentials;
        wrong_process(CmId::new(&channel, PortSpace::Tcp), credentials);
        wrong_process(channel.get_event(), credentials);
        wrong_process(id.bind(roce(0)), credentials);
        wrong_process(id.resolve_addr(None, roce(1), LONG), credentials);
        wrong_process(listener.local_addr(), credentials);
        // The child may use the objects that it opens itself.
        Connection::new(Shape::default()).close();
    });
    // Threads with the first credentials still may use the objects.
    id.bind(roce(0)).expect("bind");
    listener.destroy().expect("destroy");
}

#[test]
#[ignore = "needs the test bed: cargo xtask test"]
fn destroy_with_other_credentials_returns_id() {
    let channel = channel();
    let before = ids();
    let id = id(&channel);
    id.bind(roce(0)).expect("bind");
    assert_eq!(ids(), before + 1);
    let mut back = None;
    in_changed_thread(|| {
        let (id, error) = id.destroy().expect_err("the call should be refused").into_parts();
        wrong_process(Err::<(), _>(error), NotOwner::Credentials);
        back = Some(id);
    });
    let id = back.expect("the failed call should return the id");
    assert!(id.local_addr().expect("the id should be unchanged").is_some());
    id.destroy().expect("destroy");
    assert_eq!(ids(), before);
}

#[test]
#[ignore = "needs the test bed: cargo xtask test"]
fn id_dropped_with_other_credentials_ends_later() {
    let channel = channel();
    let other = id(&channel);
    let before = ids();
    let id = id(&channel);
    id.bind(roce(0)).expect("bind");
    in_changed_thread(|| drop(id));
    assert_eq!(ids(), before + 1);
    assert_eq!(other.local_addr().expect("query"), None);
    assert_eq!(ids(), before);
}

#[test]
#[ignore = "needs the test bed: cargo xtask test"]
fn verbs_work_with_other_credentials() {
    let connection = Connection::new(Shape::default());
    let before = objects();
    in_changed_thread(|| {
        exchange(&connection);
        let context = connection.client.io.cq().context();
        context.query_device().expect("query");
        context.query_port(1).expect("query");
        // One object of each type is created and destroyed.
        let events = CompletionChannel::new(context).expect("completion channel");
        let cq = CompletionQueue::new(context, 1, Some(&events)).expect("completion queue");
        let pd = ProtectionDomain::new(context).expect("protection domain");
        let access = AccessFlags::IB_UVERBS_ACCESS_LOCAL_WRITE;
        let region = MemoryRegion::alloc(&pd, 4096, access).expect("memory region");
        let caps = QueuePairCaps::default();
        let init = QueuePairInit { caps, ..QueuePairInit::new(&cq) };
        let qp = QueuePair::new(&pd, &init).expect("queue pair");
        qp.query().expect("query");
        cq.request_notify(false).expect("arm");
        qp.destroy().expect("destroy");
        drop(region);
        cq.destroy().expect("destroy");
        pd.destroy().expect("destroy");
    });
    assert_eq!(objects(), before);
    exchange(&connection);
    connection.close();
}

#[test]
#[ignore = "needs the test bed: cargo xtask test"]
fn user_namespace_counts_as_other_credentials() {
    in_child(|| {
        let channel = channel();
        let connection = Connection::new(Shape::default());
        unshare(CloneFlags::CLONE_NEWUSER).expect("a user namespace");
        wrong_process(CmId::new(&channel, PortSpace::Tcp), NotOwner::Credentials);
        exchange(&connection);
        drop::<EventChannel>(channel);
    });
}
