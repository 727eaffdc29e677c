//! Waiting for events and ownership of objects when ids and events are destroyed.

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::mpsc;
use std::thread;
use std::time::Duration;

use rdmacm::cm::{CmId, ConnParam, Event, EventChannel, EventType};
use rdmacm::verbs::{CompletionQueue, Context, ProtectionDomain, QueuePairInit};
use rdmacm::{Error, ErrorKind};

use crate::fixtures::{
    Ending, LONG, Side, ask, assert_invalid, channel, device, id, ids, listen, objects, request,
    resolve, roce, roce_name,
};
use crate::io::Shape;

/// Returns an id, and the event that its address is resolved.
fn with_event(channel: &EventChannel) -> (CmId, Event) {
    let id = id(channel);
    id.resolve_addr(None, roce(7471), LONG).expect("resolve the address");
    let event =
        channel.expect_event(EventType::AddrResolved).expect("the address should be resolved");
    (id, event)
}

#[test]
#[ignore = "needs the test bed: cargo xtask test"]
fn shared_context_objects_serve_several_ids() {
    let shared = Context::shared(&device(roce_name())).expect("open");
    let pd = ProtectionDomain::new(&shared).expect("protection domain");
    let cq = CompletionQueue::new(&shared, 16, None).expect("completion queue");
    let init = QueuePairInit::new(&cq);
    let channel = channel();
    let (_listener, server) = listen(&channel, roce(0));
    for _ in 0..2 {
        let id = resolve(&channel, server);
        assert_eq!(id.context().expect("open"), shared);
        id.create_qp(&pd, &init).expect("a domain of the same context should be accepted");
    }
    // A context that the program opens itself is another one.
    let own = Context::open(&device(roce_name())).expect("open");
    assert_ne!(own, shared);
    let pd = ProtectionDomain::new(&own).expect("protection domain");
    let error = resolve(&channel, server)
        .create_qp(&pd, &init)
        .expect_err("a domain of another context should be refused");
    assert_invalid(&error, &["another context"]);
}

#[test]
#[ignore = "needs the test bed: cargo xtask test"]
fn dropped_event_is_acknowledged() {
    let channel = channel();
    let before = ids();
    let (id, event) = with_event(&channel);
    assert_eq!(ids(), before + 1);
    drop(event);
    id.destroy().expect("destroy");
    assert_eq!(ids(), before);
}

/// Checks that destroying `id` waits until `event`, which another thread received, is dropped.
fn waits_for(event: Event, id: CmId) {
    let before = ids();
    let dropped = AtomicBool::new(false);
    thread::scope(|scope| {
        let destroyer = scope.spawn(|| {
            id.destroy().expect("destroy");
            assert!(dropped.load(Ordering::SeqCst), "the call should wait for the event");
        });
        // The kernel's object is destroyed first. Then the call waits.
        while ids() == before {
            thread::yield_now();
        }
        for _ in 0..20 {
            objects();
            assert!(!destroyer.is_finished(), "the call should wait for the event");
        }
        dropped.store(true, Ordering::SeqCst);
        drop(event);
        destroyer.join().expect("destroyer should not panic");
    });
}

#[test]
#[ignore = "needs the test bed: cargo xtask test"]
fn destroy_waits_for_event_of_other_thread() {
    let channel = channel();
    let (id, event) = with_event(&channel);
    waits_for(event, id);
}

#[test]
#[ignore = "needs the test bed: cargo xtask test"]
fn destroy_waits_for_request_of_other_thread() {
    let (ours, theirs) = (channel(), channel());
    let (listener, address) = listen(&theirs, roce(0));
    let _client = ask(&ours, address, &ConnParam::default());
    let mut event = theirs.expect_event(EventType::ConnectRequest).expect("a request");
    // The event of a request belongs to the listener, even after the id of the request is taken.
    let request = event.take_request().expect("an id");
    request.destroy().expect("the id should have no events");
    waits_for(event, listener);
}

#[test]
#[ignore = "needs the test bed: cargo xtask test"]
fn destroy_with_own_event_is_refused() {
    let channel = channel();
    let before = ids();
    let (id, event) = with_event(&channel);
    let (id, error) =
        id.destroy().expect_err("this thread should hold an event of the id").into_parts();
    assert!(matches!(error.kind(), ErrorKind::WouldDeadlock(_)), "{error:?}");
    assert_eq!(error.errno(), libc::EDEADLK);
    assert!(error.subject().contains(&format!("id {}", id.token())), "{error}");
    // The failed call has not changed the id, which can continue with the next step.
    assert_eq!(ids(), before + 1);
    drop(event);
    id.resolve_route(LONG).expect("resolve the route");
    let event =
        channel.expect_event(EventType::RouteResolved).expect("the route should be resolved");
    assert_eq!(event.token(), id.token());
    drop(event);
    id.destroy().expect("destroy");
    assert_eq!(ids(), before);
}

#[test]
#[ignore = "needs the test bed: cargo xtask test"]
fn events_of_other_ids_do_not_block_destroy() {
    let channel = channel();
    let (_other, event) = with_event(&channel);
    let (id, own) = with_event(&channel);
    drop(own);
    id.destroy().expect("destroy");
    drop(event);
}

#[test]
#[ignore = "needs the test bed: cargo xtask test"]
fn drop_never_waits() {
    let channel = channel();
    let before = ids();
    let (id, event) = with_event(&channel);
    drop(id);
    assert_eq!(ids(), before);
    // The contents of an event outlive the event and its id.
    assert_eq!(event.event_type(), EventType::AddrResolved);
    // Dropping an id does not wait for an event that another thread holds either.
    let (id, event) = with_event(&channel);
    let (pass, take) = mpsc::channel::<Event>();
    let (end, ended) = mpsc::channel();
    let holder = thread::spawn(move || {
        let held = take.recv().expect("an event");
        ended.recv().expect("the test should end the thread");
        drop(held);
    });
    pass.send(event).expect("the holder should take the event");
    drop(id);
    assert_eq!(ids(), before);
    end.send(()).expect("the holder should wait");
    holder.join().expect("holder should not panic");
}

#[test]
#[ignore = "needs the test bed: cargo xtask test"]
fn request_outlives_listener() {
    let (ours, theirs) = (channel(), channel());
    let (listener, address) = listen(&theirs, roce(0));
    let client = ask(&ours, address, &ConnParam::default());
    let server = request(&theirs);
    listener.destroy().expect("destroy");
    drop(theirs);
    let server = Side::new(server, Shape::default());
    server.id.accept(&ConnParam::default()).expect("accept");
    let event =
        ours.expect_event(EventType::Established).expect("the connection should be established");
    assert_eq!(event.token(), client.id.token());
}

#[test]
#[ignore = "needs the test bed: cargo xtask test"]
fn unread_requests_are_destroyed_with_listener() {
    let (ours, theirs) = (channel(), channel());
    let (listener, address) = listen(&theirs, roce(0));
    let before = ids();
    let client = ask(&ours, address, &ConnParam::default());
    while ids() < before + 2 {
        thread::yield_now();
    }
    listener.destroy().expect("destroy");
    let error =
        ours.expect_event(EventType::Established).expect_err("the request should be rejected");
    assert!(matches!(error.kind(), ErrorKind::Rejected(_)), "{error:?}");
    client.id.destroy().expect("destroy");
    assert_eq!(ids(), before - 1);
    theirs.set_nonblocking(true).expect("make it non-blocking");
    theirs.get_event().expect_err("no event of the destroyed id should be left");
}

#[test]
#[ignore = "needs the test bed: cargo xtask test"]
fn unread_events_are_destroyed_with_id() {
    let channel = channel();
    channel.set_nonblocking(true).expect("make it non-blocking");
    for destroy in [true, false] {
        let id = id(&channel);
        id.resolve_addr(None, roce(7471), LONG).expect("resolve the address");
        // If an id has a device, its event is pending, too.
        while id.context().is_err() {
            thread::yield_now();
        }
        match destroy {
            true => id.destroy().map_err(Error::from).expect("destroy"),
            false => drop(id),
        }
        let error = channel.get_event().expect_err("no event of the destroyed id should be left");
        assert!(matches!(error.kind(), ErrorKind::WouldBlock), "{error}");
    }
}

#[test]
#[ignore = "needs the test bed: cargo xtask test"]
fn event_keeps_token_after_id_slot_is_reused() {
    let channel = channel();
    let (id, event) = with_event(&channel);
    let old = id.token();
    drop(id);
    let (next, second) = with_event(&channel);
    assert_ne!(next.token(), old);
    assert_eq!((event.token(), second.token()), (old, next.token()));
}

/// Runs `body` while two threads read `channel` and drop the events.
///
/// The body gets the number of events.
fn while_drained(channel: &EventChannel, body: impl FnOnce(&AtomicUsize)) {
    let (end, seen) = (AtomicBool::new(false), AtomicUsize::new(0));
    let drain = || {
        while !end.load(Ordering::SeqCst) {
            let event = channel.get_event_timeout(Duration::from_millis(1)).expect("wait");
            seen.fetch_add(usize::from(event.is_some()), Ordering::SeqCst);
        }
    };
    thread::scope(|scope| {
        let _ending = Ending(&end);
        scope.spawn(drain);
        scope.spawn(drain);
        body(&seen);
    });
}

/// Waits longer in each round, from zero to the time until an event arrives.
///
/// So in some round the event arrives at the same time as the call.
fn delay(round: usize) {
    (0..round % 100).for_each(|_| thread::yield_now());
}

/// Returns at least `least` rounds, and continues until an event was seen.
fn rounds(least: usize, seen: &AtomicUsize) -> impl Iterator<Item = usize> {
    (0..).take_while(move |round| *round < least || seen.load(Ordering::SeqCst) == 0)
}

#[test]
#[ignore = "needs the test bed: cargo xtask test"]
fn ids_may_be_destroyed_while_events_arrive() {
    let channel = channel();
    let before = ids();
    while_drained(&channel, |seen| {
        for round in rounds(300, seen) {
            let id = id(&channel);
            id.resolve_addr(None, roce(7471), LONG).expect("resolve the address");
            delay(round);
            match round % 3 {
                0 => id.destroy().map_err(Error::from).expect("destroy"),
                1 => drop(id),
                // Some events are read before.
                _ => {
                    while id.context().is_err() {
                        thread::yield_now();
                    }
                    id.destroy().map_err(Error::from).expect("destroy");
                }
            }
        }
    });
    assert_eq!(ids(), before);
}

#[test]
#[ignore = "needs the test bed: cargo xtask test"]
fn listeners_may_be_destroyed_amid_requests() {
    let (ours, theirs) = (channel(), channel());
    let before = ids();
    while_drained(&theirs, |seen| {
        for round in rounds(200, seen) {
            let (listener, address) = listen(&theirs, roce(0));
            let client = ask(&ours, address, &ConnParam::default());
            delay(round);
            match round % 2 {
                0 => listener.destroy().map_err(Error::from).expect("destroy"),
                _ => drop(listener),
            }
            let error = ours
                .expect_event(EventType::Established)
                .expect_err("the request should be rejected");
            assert!(matches!(error.kind(), ErrorKind::Rejected(_)), "{error:?}");
            client.id.destroy().expect("destroy");
        }
    });
    assert_eq!(ids(), before);
}
