//! Moving ids from channel to channel.

use std::env;
use std::os::fd::AsFd;
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{self, Sender};
use std::thread;

use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sched::{CloneFlags, unshare};
use nix::sys::epoll::{Epoll, EpollCreateFlags, EpollEvent, EpollFlags, EpollTimeout};
use nix::unistd::Pid;
use rdmacm::cm::{CmId, ConnParam, Event, EventChannel, EventType};
use rdmacm::verbs::{SendFlags, SendOperation};
use rdmacm::{ErrorKind, NotOwner, Token};

use crate::child::{change_credentials_of_this_thread, in_child};
use crate::fixtures::{
    Connection, LONG, Side, announce, ask, asleep, channel, id, ids, listen, request, resolve,
    roce, roce_v6,
};
use crate::io::Shape;

fn wait(channel: &EventChannel) -> bool {
    let mut fds = [PollFd::new(channel.as_fd(), PollFlags::POLLIN)];
    poll(&mut fds, PollTimeout::NONE).expect("poll") > 0
}

/// Returns an id that has an event waiting on `channel`.
fn with_pending_event(channel: &EventChannel) -> CmId {
    let id = id(channel);
    id.resolve_addr(None, roce(7471), LONG).expect("resolve the address");
    wait(channel);
    id
}

#[track_caller]
fn empty(channel: &EventChannel) {
    let event = channel.get_event_timeout(std::time::Duration::ZERO).expect("look");
    assert!(event.is_none(), "{event:?}");
}

/// Returns the token of the next event, which is of `wanted` type.
#[track_caller]
fn next(channel: &EventChannel, wanted: EventType) -> Token {
    channel.expect_event(wanted).expect("an event").token()
}

#[test]
#[ignore = "needs the test bed: cargo xtask test"]
fn pending_and_later_events_move() {
    let (old, new) = (channel(), channel());
    let staying = with_pending_event(&old);
    let id = with_pending_event(&old);
    id.migrate(&new).expect("migrate");
    assert_eq!(next(&new, EventType::AddrResolved), id.token());
    empty(&new);
    assert_eq!(next(&old, EventType::AddrResolved), staying.token());
    empty(&old);
    id.resolve_route(LONG).expect("commands should use the new channel");
    assert_eq!(next(&new, EventType::RouteResolved), id.token());
    // The id moves back, and then to its own channel.
    id.migrate(&old).expect("migrate");
    id.migrate(&old).expect("migrate");
    drop(new);
    let side = Side::new(id, Shape::default());
    side.id.destroy().expect("destroy");
}

/// A call with which a thread waits for an event of a channel.
type Sleep = fn(&EventChannel, &Sender<Pid>) -> Event;

fn in_get_event(channel: &EventChannel, tx: &Sender<Pid>) -> Event {
    announce(tx);
    channel.get_event().expect("an event")
}

fn with_deadline(channel: &EventChannel, tx: &Sender<Pid>) -> Event {
    announce(tx);
    channel.get_event_timeout(LONG).expect("wait").expect("an event before the deadline")
}

fn in_poll(channel: &EventChannel, tx: &Sender<Pid>) -> Event {
    announce(tx);
    wait(channel);
    channel.get_event().expect("an event")
}

fn in_edge_triggered_epoll(channel: &EventChannel, tx: &Sender<Pid>) -> Event {
    channel.set_nonblocking(true).expect("make it non-blocking");
    let epoll = Epoll::new(EpollCreateFlags::empty()).expect("epoll");
    let interest = EpollEvent::new(EpollFlags::EPOLLIN | EpollFlags::EPOLLET, 0);
    epoll.add(channel.as_fd(), interest).expect("watch the channel");
    loop {
        announce(tx);
        let edges = epoll.wait(&mut [EpollEvent::empty()], EpollTimeout::NONE).expect("wait");
        assert_eq!(edges, 1);
        if let Some(event) = until_it_would_block(channel) {
            return event;
        }
    }
}

/// Reads as an edge-triggered event loop does.
fn until_it_would_block(channel: &EventChannel) -> Option<Event> {
    let mut last = None;
    loop {
        match channel.get_event() {
            Ok(event) => last = Some(event),
            Err(error) => {
                assert!(matches!(error.kind(), ErrorKind::WouldBlock), "{error}");
                return last;
            }
        }
    }
}

/// Checks that a thread that waits on the new channel gets the pending event of an id that moves there.
fn is_woken(sleep: Sleep, pending: impl Fn(&EventChannel) -> CmId) {
    for _ in 0..10 {
        let (old, new) = (channel(), channel());
        let (tx, rx) = mpsc::channel();
        let id = pending(&old);
        thread::scope(|scope| {
            let sleeper = scope.spawn(|| sleep(&new, &tx).token());
            asleep(rx.recv().expect("thread should send its id"));
            id.migrate(&new).expect("migrate");
            assert_eq!(sleeper.join().expect("sleeper should not panic"), id.token());
        });
        assert!(new.get_event_timeout(std::time::Duration::ZERO).expect("look").is_none());
    }
}

#[test]
#[ignore = "needs the test bed: cargo xtask test"]
fn migration_wakes_reader_of_new_channel() {
    for sleep in [in_get_event, with_deadline, in_poll, in_edge_triggered_epoll] {
        is_woken(sleep, with_pending_event);
    }
}

#[test]
#[ignore = "needs the test bed: cargo xtask test"]
fn migration_wakes_reader_without_loopback() {
    in_child(|| {
        unshare(CloneFlags::CLONE_NEWNET).expect("a network namespace");
        // The network namespace has the device, but no addresses.
        let pending = |channel: &EventChannel| {
            let id = id(channel);
            id.resolve_addr(None, ([0, 0, 0, 0], 7471), LONG).expect("resolve");
            wait(channel);
            id
        };
        let before = ids();
        is_woken(in_get_event, pending);
        assert_eq!(ids(), before, "wakeup ids should be destroyed");
    });
}

#[test]
#[ignore = "needs the test bed: cargo xtask test"]
fn several_readers_share_moved_events() {
    let (old, new) = (channel(), channel());
    let moving: Vec<_> = (0..4).map(|_| with_pending_event(&old)).collect();
    let (tx, rx) = mpsc::channel();
    thread::scope(|scope| {
        let sleepers: Vec<_> = moving
            .iter()
            .map(|_| {
                let tx = tx.clone();
                let new = &new;
                scope.spawn(move || in_get_event(new, &tx).token())
            })
            .collect();
        for _ in &sleepers {
            asleep(rx.recv().expect("thread should send its id"));
        }
        for id in &moving {
            id.migrate(&new).expect("migrate");
        }
        let mut woken: Vec<_> = sleepers
            .into_iter()
            .map(|sleeper| sleeper.join().expect("thread should not panic"))
            .collect();
        woken.sort_unstable();
        let mut tokens: Vec<_> = moving.iter().map(CmId::token).collect();
        tokens.sort_unstable();
        assert_eq!(woken, tokens);
    });
    empty(&new);
}

/// Moves events while one reader has read the wakeup of all readers and has not acted on it.
///
/// In three runs of `several_readers_share_moved_events`, the first commands of each thread are delayed.
#[test]
#[ignore = "needs the test bed: cargo xtask test"]
fn readers_share_moved_events_if_one_wakes_late() {
    for _ in 0..3 {
        let late = "inject=write:delay_exit=300000:when=1..3";
        let status = Command::new("timeout")
            .args(["60", "strace", "-f", "-o", "/dev/null", "-e", "trace=write", "-e", late])
            .arg(env::current_exe().expect("the test's program"))
            .args(["--ignored", "--exact", "migrate::several_readers_share_moved_events"])
            .stdout(Stdio::null())
            .status();
        assert!(status.expect("start timeout and strace").success());
    }
}

#[test]
#[ignore = "needs the test bed: cargo xtask test"]
fn unread_requests_move_with_listener() {
    for address in [roce(0), roce_v6(0), ([0; 4], 0).into()] {
        let [ours, old, new, newest] = [(); 4].map(|()| channel());
        let (listener, bound) = listen(&old, address);
        let server = if address.is_ipv6() { roce_v6(bound.port()) } else { roce(bound.port()) };
        let early = ask(&ours, server, &ConnParam::default());
        wait(&old);
        listener.migrate(&new).expect("migrate");
        listener.migrate(&newest).expect("migrate");
        drop(new);
        let late = ask(&ours, server, &ConnParam::default());
        // Each request is on the channel from which it was read. A command on another channel would fail.
        let servers = [(); 2].map(|()| Side::new(request(&newest), Shape::default()));
        for (client, server) in [early, late].iter().zip(&servers) {
            server.id.accept(&ConnParam::default()).expect("accept");
            assert_eq!(next(&ours, EventType::Established), client.id.token());
            assert_eq!(next(&newest, EventType::Established), server.id.token());
        }
        empty(&old);
        listener.destroy().expect("destroy");
    }
}

#[test]
#[ignore = "needs the test bed: cargo xtask test"]
fn unread_requests_end_with_moved_listener() {
    let [ours, old, new] = [(); 3].map(|()| channel());
    let (listener, server) = listen(&old, roce(0));
    let _client = ask(&ours, server, &ConnParam::default());
    wait(&old);
    listener.migrate(&new).expect("migrate");
    listener.destroy().expect("destroy");
    empty(&new);
    let error = ours.expect_event(EventType::Established).expect_err("no peer should answer");
    assert!(matches!(error.kind(), ErrorKind::Rejected(_)), "{error}");
}

/// Checks that each request moves to its own channel.
///
/// The kernel has no number for a request before the accept.
#[test]
#[ignore = "needs the test bed: cargo xtask test"]
fn each_request_moves_to_own_channel() {
    let (ours, listening) = (channel(), channel());
    let (_listener, server) = listen(&listening, roce(0));
    let clients = [(); 3].map(|()| ask(&ours, server, &ConnParam::default()));
    let servers = clients.each_ref().map(|_| {
        let id = request(&listening);
        let own = channel();
        id.migrate(&own).expect("migrate");
        (Side::new(id, Shape::default()), own)
    });
    for (server, own) in &servers {
        server.id.accept(&ConnParam::default()).expect("accept");
        ours.expect_event(EventType::Established).expect("the connection should be established");
        assert_eq!(next(own, EventType::Established), server.id.token());
    }
    for client in &clients {
        client.id.disconnect().expect("disconnect");
    }
    for (server, own) in servers {
        assert_eq!(next(&own, EventType::Disconnected), server.id.token());
        server.id.destroy().expect("destroy");
    }
    empty(&listening);
}

#[test]
#[ignore = "needs the test bed: cargo xtask test"]
fn connection_continues_on_new_channel() {
    let connection = Connection::new(Shape::default());
    let new = channel();
    connection.client.id.migrate(&new).expect("migrate");
    let Connection { client, server, client_channel, server_channel } = connection;
    drop(client_channel);
    server.io.receive(1, 0..8).expect("post a receive");
    client.io.post(2, SendOperation::Send, 0..8, SendFlags::SIGNALED).expect("post a send");
    server.io.done(1);
    client.io.done(2);
    Connection { client, server, client_channel: new, server_channel }.close();
}

/// Checks that the unread answer of the peer moves with the id.
///
/// The thread that reads the answer moves the queue pair and confirms the connection.
#[test]
#[ignore = "needs the test bed: cargo xtask test"]
fn unread_answer_moves_with_id() {
    let [ours, theirs, new] = [(); 3].map(|()| channel());
    let (_listener, address) = listen(&theirs, roce(0));
    let client = ask(&ours, address, &ConnParam::default());
    let server = Side::new(request(&theirs), Shape::default());
    server.id.accept(&ConnParam::default()).expect("accept");
    wait(&ours);
    client.id.migrate(&new).expect("migrate");
    assert_eq!(next(&new, EventType::Established), client.id.token());
    assert_eq!(next(&theirs, EventType::Established), server.id.token());
    empty(&ours);
}

#[test]
#[ignore = "needs the test bed: cargo xtask test"]
fn migration_waits_for_event_of_other_thread() {
    let (old, new) = (channel(), channel());
    let id = with_pending_event(&old);
    let event = old.get_event().expect("an event");
    let dropped = AtomicBool::new(false);
    thread::scope(|scope| {
        let (tx, rx) = mpsc::channel();
        let (id, new, dropped) = (&id, &new, &dropped);
        let mover = scope.spawn(move || {
            announce(&tx);
            id.migrate(new).expect("migrate");
            assert!(dropped.load(Ordering::SeqCst), "the call should wait for the event");
        });
        asleep(rx.recv().expect("thread should send its id"));
        // The kernel has already moved the id.
        id.resolve_route(LONG).expect("commands should not wait");
        assert_eq!(next(new, EventType::RouteResolved), id.token());
        assert!(!mover.is_finished(), "the call should wait for the event");
        dropped.store(true, Ordering::SeqCst);
        drop(event);
        mover.join().expect("thread should not panic");
    });
}

#[test]
#[ignore = "needs the test bed: cargo xtask test"]
fn migration_with_own_event_is_refused() {
    let (old, new) = (channel(), channel());
    let id = with_pending_event(&old);
    let event = old.get_event().expect("an event");
    let error = id.migrate(&new).expect_err("this thread should hold an event of the id");
    assert!(matches!(error.kind(), ErrorKind::WouldDeadlock(_)), "{error:?}");
    assert!(error.subject().contains(&format!("id {}", id.token())), "{error}");
    drop(event);
    // The id is still on the first channel.
    id.resolve_route(LONG).expect("resolve the route");
    assert_eq!(next(&old, EventType::RouteResolved), id.token());
    id.migrate(&new).expect("migrate");
}

#[test]
#[ignore = "needs the test bed: cargo xtask test"]
fn ids_move_to_channel_with_new_credentials() {
    let (old, theirs) = (channel(), channel());
    let (_listener, server) = listen(&theirs, roce(0));
    let id = resolve(&old, server);
    thread::scope(|scope| {
        scope.spawn(|| {
            change_credentials_of_this_thread();
            let error = id.resolve_route(LONG).expect_err("the credentials should be refused");
            let credentials = NotOwner::Credentials;
            assert!(
                matches!(error.kind(), ErrorKind::NotOwner(how) if *how == credentials),
                "{error}"
            );
            let new = channel();
            id.migrate(&new).expect("migrate");
            let error = id.resolve_route(LONG).expect_err("the route should be resolved already");
            assert_eq!(error.errno(), libc::EINVAL, "{error}");
        });
    });
}

#[test]
#[ignore = "needs the test bed: cargo xtask test"]
fn forked_child_cannot_migrate_ids() {
    let old = channel();
    let id = with_pending_event(&old);
    in_child(|| {
        let error = id.migrate(&channel()).expect_err("the object should belong to the parent");
        let forked = NotOwner::Forked;
        assert!(matches!(error.kind(), ErrorKind::NotOwner(how) if *how == forked), "{error}");
    });
    assert_eq!(next(&old, EventType::AddrResolved), id.token());
    id.destroy().expect("destroy");
}
