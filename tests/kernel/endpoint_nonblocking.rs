//! The safe tier in an event loop: calls that do not wait, and one descriptor for each connection.

use std::collections::VecDeque;
use std::net::SocketAddr;
use std::os::fd::AsFd;
use std::sync::mpsc;
use std::thread;
use std::time::Duration;

use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::epoll::{Epoll, EpollCreateFlags, EpollEvent, EpollFlags, EpollTimeout};
use rdmacm::endpoint::{Connection, ConnectionConfig, Connector, Listener, Message};
use rdmacm::{ErrorKind, Result};

use crate::endpoint_connect::pair;
use crate::endpoint_messages::{filled, receives};
use crate::fixtures::{DEFAULT_SEND_BUFFERS, LONG, announce, asleep, roce, siw};

/// Returns the result of a call that does not wait, or `None` if it returned `WouldBlock`.
#[track_caller]
pub(crate) fn now<T>(result: Result<T>) -> Option<T> {
    match result {
        Ok(got) => Some(got),
        Err(error) if *error.kind() == ErrorKind::WouldBlock => None,
        Err(error) => panic!("{error}"),
    }
}

/// Returns `true` if the descriptor is readable within `timeout`.
pub(crate) fn is_readable(descriptor: &impl AsFd, timeout: PollTimeout) -> bool {
    let mut fds = [PollFd::new(descriptor.as_fd(), PollFlags::POLLIN)];
    poll(&mut fds, timeout).expect("poll") > 0
}

/// Waits until the descriptor is readable.
#[track_caller]
pub(crate) fn becomes_readable(connection: &Connection) {
    let long = PollTimeout::try_from(LONG).expect("the value should fit");
    assert!(is_readable(connection, long), "descriptor should become readable");
}

/// Retries until `attempt` succeeds, and waits for the descriptor in between.
#[track_caller]
pub(crate) fn eventually<T>(connection: &Connection, mut attempt: impl FnMut() -> Result<T>) -> T {
    loop {
        match now(attempt()) {
            Some(got) => return got,
            None => becomes_readable(connection),
        }
    }
}

/// Retries a call that returns `WouldBlock` until the descriptor is not readable.
///
/// Late kernel events may make the descriptor readable a few times.
#[track_caller]
pub(crate) fn settles(connection: &Connection, mut attempt: impl FnMut()) {
    let settled = (0..10).any(|_| {
        attempt();
        !is_readable(connection, PollTimeout::ZERO)
    });
    assert!(settled, "the descriptor should not stay readable");
}

/// Checks that a call that does not wait reads the late event after the end.
///
/// The descriptor is then not readable.
#[test]
#[ignore = "needs the test bed: cargo xtask test"]
fn try_call_after_end_silences_descriptor() {
    let config = ConnectionConfig::new().receive_buffer_size(64);
    let [client, server] = pair(roce(0), &config);
    client.post_send(filled(&client, &[7; 100])).expect("post");
    let error = client.flush_timeout(LONG).expect_err("the message should be too long");
    assert!(matches!(error.kind(), ErrorKind::WorkRequestFailed(_)), "{error}");
    let has_ended = || {
        assert_eq!(
            client.try_recv().expect_err("the connection should have ended").kind(),
            error.kind()
        )
    };
    settles(&client, has_ended);
    server.abort();
    becomes_readable(&client);
    settles(&client, has_ended);
}

fn descriptor_reports_progress(address: SocketAddr) {
    let config = ConnectionConfig::new().send_buffers(1);
    let [client, server] = pair(address, &config);
    // The descriptor also reports a first message, before any attempt to receive.
    client.post_send(filled(&client, b"first")).expect("post");
    becomes_readable(&server);
    receives(&server, b"first");
    assert!(now(server.try_recv()).is_none());
    assert!(!is_readable(&server, PollTimeout::ZERO), "no call should be able to make progress");

    // A message makes the descriptor readable, even if another call has polled its completion.
    client.post_send(filled(&client, b"second")).expect("post");
    becomes_readable(&server);
    server.try_flush().expect("a flush of no posts should succeed");
    let buffer = server.try_acquire_buffer().expect("a buffer");
    assert!(now(server.try_acquire_buffer()).is_none(), "no second buffer should be free");
    becomes_readable(&server);
    assert_eq!(
        *now(server.try_recv()).expect("a message").expect("the connection should not have ended"),
        *b"second"
    );
    assert!(now(server.try_recv()).is_none());
    assert!(!is_readable(&server, PollTimeout::ZERO), "no call should be able to make progress");

    // A buffer that another thread drops makes the descriptor readable, and so does the buffer of a completed send.
    thread::scope(|scope| {
        scope.spawn(|| drop(buffer));
        let buffer = eventually(&server, || server.try_acquire_buffer());
        server.post_send(buffer).expect("post");
        drop(eventually(&server, || server.try_acquire_buffer()));
    });
    eventually(&server, || server.try_flush());

    // The end makes the descriptor readable.
    assert!(now(server.try_recv()).is_none());
    thread::scope(|scope| {
        scope.spawn(|| {
            client.post_send(filled(&client, b"last")).expect("post");
            eventually(&client, || client.try_close());
        });
        assert_eq!(*eventually(&server, || server.try_recv()).expect("a message"), *b"last");
        assert!(
            eventually(&server, || server.try_recv()).is_none(),
            "the connection should have ended"
        );
    });
}

#[test]
#[ignore = "needs the test bed: cargo xtask test"]
fn rxe_descriptor_reports_progress() {
    descriptor_reports_progress(roce(0));
}

#[test]
#[ignore = "needs the test bed: cargo xtask test"]
fn siw_descriptor_reports_progress() {
    descriptor_reports_progress(siw(0));
}

/// Checks that the descriptor reports an awaited event that another call has read.
///
/// The other call has read the channel and polled some of the completions.
#[test]
#[ignore = "needs the test bed: cargo xtask test"]
fn descriptor_reports_events_read_by_other_call() {
    let config = ConnectionConfig::new().receive_buffers(1);
    let [client, server] = pair(roce(0), &config);
    let next = || server.recv_timeout(LONG).expect("receive").expect("a message");
    client.post_send(filled(&client, b"kept")).expect("post");
    let held = next();
    client.flush_timeout(LONG).expect("flush");
    client.post_send(filled(&client, b"first")).expect("post");
    client.post_send(filled(&client, b"second")).expect("post");
    assert!(now(client.try_flush()).is_none(), "no receive buffer should be free");
    drop(held);
    let held = next();
    becomes_readable(&client);
    assert!(now(client.try_recv()).is_none(), "the client should get no message");
    drop(held);
    receives(&server, b"second");
    becomes_readable(&client);
    eventually(&client, || client.try_flush());
}

/// Checks that a caller that from now on only sends gets events of sends.
///
/// The caller gets no repeated events for messages that may arrive.
#[test]
#[ignore = "needs the test bed: cargo xtask test"]
fn descriptor_ignores_unwanted_messages() {
    let config = ConnectionConfig::new().send_buffers(2).receive_buffers(1);
    let [client, server] = pair(roce(0), &config);
    let post =
        || server.post_send(eventually(&server, || server.try_acquire_buffer())).expect("post");
    let next = || client.recv_timeout(LONG).expect("receive").expect("a message");
    assert!(now(server.try_recv()).is_none());
    post();
    let mut held = next();
    for _ in 0..100 {
        // The message waits for a receive buffer, so no call can receive it now.
        post();
        let only = eventually(&server, || server.try_acquire_buffer());
        settles(&server, || {
            assert!(now(server.try_acquire_buffer()).is_none(), "one buffer should be free")
        });
        drop((held, only));
        held = next();
    }
    client.post_bytes(b"still wanted").expect("post");
    becomes_readable(&server);
    receives(&server, b"still wanted");
}

/// Checks that a blocked thread wakes in time, although another thread polls without success before.
#[test]
#[ignore = "needs the test bed: cargo xtask test"]
fn blocked_call_wakes_despite_try_calls() {
    let [client, _server] = pair(roce(0), &ConnectionConfig::new().send_buffers(1));
    let (tx, rx) = mpsc::channel();
    let (wakes, woken) = mpsc::channel();
    thread::scope(|scope| {
        for _ in 0..200 {
            let only = client.acquire_buffer_timeout(LONG).expect("the only buffer should be free");
            let sleeper = scope.spawn(|| {
                announce(&tx);
                drop(client.acquire_buffer().expect("a buffer should be free"));
                wakes.send(()).expect("the test should receive");
            });
            asleep(rx.recv().expect("the thread should begin"));
            drop(only);
            assert!(now(client.try_recv()).is_none());
            if woken.recv_timeout(LONG).is_err() {
                // This abort ends the blocked call, so that the test ends.
                client.abort();
                panic!("the blocked call should return");
            }
            sleeper.join().expect("thread should not panic");
        }
    });
}

/// Checks that an event loop wakes while another thread is blocked.
///
/// The thread waits for one direction, and the completions of the other direction wake the loop.
fn loop_wakes_beside_blocked_call(address: SocketAddr) {
    const ROUNDS: u8 = 40;

    let config = ConnectionConfig::new().send_buffers(1);
    let [client, server] = pair(address, &config);
    let (tx, rx) = mpsc::channel();
    // This call blocks until a buffer is free, while an event loop receives.
    let only = client.acquire_buffer_timeout(LONG).expect("the only buffer");
    thread::scope(|scope| {
        let blocked = scope.spawn(|| {
            announce(&tx);
            client.acquire_buffer_timeout(LONG * 2).map(drop)
        });
        let blocked_id = rx.recv().expect("the thread should begin");
        for round in 0..ROUNDS {
            assert!(now(client.try_recv()).is_none());
            asleep(blocked_id);
            server.post_bytes(&[round]).expect("post");
            let message = eventually(&client, || client.try_recv()).expect("a message");
            assert_eq!(*message, [round]);
        }
        assert!(!blocked.is_finished(), "no buffer should be free");
        drop(only);
        blocked.join().expect("thread should not panic").expect("a buffer");
    });
    // This call blocks until a message arrives, while an event loop sends.
    thread::scope(|scope| {
        let blocked = scope.spawn(|| {
            announce(&tx);
            client.recv_timeout(LONG * 2)
        });
        let blocked_id = rx.recv().expect("the thread should begin");
        for round in 0..ROUNDS {
            asleep(blocked_id);
            client.post_bytes(&[round]).expect("post");
            eventually(&client, || client.try_flush());
            receives(&server, &[round]);
        }
        assert!(!blocked.is_finished(), "no message should have arrived");
        server.post_bytes(b"last").expect("post");
        let message = blocked.join().expect("thread should not panic").expect("receive");
        assert_eq!(*message.expect("a message"), *b"last");
    });
    // This call blocks until the peer ends the connection. The loop may read the event of the end.
    thread::scope(|scope| {
        let blocked = scope.spawn(|| {
            announce(&tx);
            client.recv_timeout(LONG)
        });
        asleep(rx.recv().expect("the thread should begin"));
        let close = scope.spawn(|| server.close(LONG));
        while !blocked.is_finished() {
            let readable = is_readable(&client, PollTimeout::from(10_u8));
            match client.try_acquire_buffer() {
                Ok(_) => {}
                Err(error) if *error.kind() == ErrorKind::Disconnected => break,
                Err(error) => panic!("{error}, readable: {readable}"),
            }
        }
        let end = blocked.join().expect("thread should not panic").expect("receive");
        assert!(end.is_none(), "{end:?}");
        close.join().expect("thread should not panic").expect("close");
    });
}

#[test]
#[ignore = "needs the test bed: cargo xtask test"]
fn rxe_loop_wakes_beside_blocked_call() {
    loop_wakes_beside_blocked_call(roce(0));
}

#[test]
#[ignore = "needs the test bed: cargo xtask test"]
fn siw_loop_wakes_beside_blocked_call() {
    loop_wakes_beside_blocked_call(siw(0));
}

/// A connection that answers each message with the same bytes.
struct Echo {
    connection: Connection,
    unanswered: VecDeque<Message>,
}

impl Echo {
    /// Makes the calls that can make progress. Returns `true` if the peer has closed the connection.
    fn serve_ready(&mut self) -> bool {
        loop {
            match now(self.connection.try_recv()) {
                Some(Some(message)) => self.unanswered.push_back(message),
                Some(None) => return true,
                None => break,
            }
        }
        while let Some(message) = self.unanswered.front() {
            let Some(mut buffer) = now(self.connection.try_acquire_buffer()) else { break };
            buffer.copy_from(message).expect("the length should fit");
            self.connection.post_send(buffer).expect("post");
            self.unanswered.pop_front();
        }
        false
    }
}

/// Serves many connections, which begin and end meanwhile, in one thread.
fn one_thread_serves_many_connections(address: SocketAddr) {
    const CLIENTS: usize = 10;
    let listener = Listener::bind(address).expect("listen");
    let server = listener.local_addr().expect("an IP address");
    thread::scope(|scope| {
        let accepted = [(); CLIENTS].map(|()| mpsc::channel());
        let (tx, rx): (Vec<_>, Vec<_>) = accepted.into_iter().unzip();
        for (rx, number) in rx.into_iter().zip(0_u8..) {
            scope.spawn(move || {
                let connector = Connector::new().private_data(&[number]);
                let connection = connector.connect(server).expect("connect");
                // On siw a message that arrives before the accept may stay unread: see `CmId::accept`.
                rx.recv().expect("the server should have accepted");
                for round in 0..20 {
                    let text = [number, round];
                    connection.post_send(filled(&connection, &text)).expect("post");
                    receives(&connection, &text);
                }
                connection.close(LONG).expect("close");
            });
        }
        let epoll = Epoll::new(EpollCreateFlags::empty()).expect("epoll");
        let readable = |data| EpollEvent::new(EpollFlags::EPOLLIN, data);
        epoll.add(&listener, readable(0)).expect("add");
        let mut echoes: Vec<Option<Echo>> = Vec::new();
        let mut ended = 0;
        while ended < CLIENTS {
            let mut events = [EpollEvent::empty(); 8];
            let long = EpollTimeout::try_from(LONG).expect("the value should fit");
            let count = epoll.wait(&mut events, long).expect("wait");
            assert!(count > 0, "descriptor should become readable");
            for event in &events[..count] {
                let Some(which) = event.data().checked_sub(1) else {
                    while let Some(incoming) = now(listener.try_accept()) {
                        let accepted = incoming.accept(&ConnectionConfig::default(), &[], LONG);
                        let connection = accepted.expect("accept");
                        let number = usize::from(connection.private_data()[0]);
                        tx[number].send(()).expect("the client should wait");
                        echoes.push(None);
                        let data = u64::try_from(echoes.len()).expect("the value should fit");
                        epoll.add(&connection, readable(data)).expect("add");
                        let unanswered = VecDeque::new();
                        *echoes.last_mut().expect("the list should have the new entry") =
                            Some(Echo { connection, unanswered });
                    }
                    continue;
                };
                let place = &mut echoes[usize::try_from(which).expect("the value should fit")];
                if place.as_mut().is_some_and(Echo::serve_ready) {
                    *place = None;
                    ended += 1;
                }
            }
        }
    });
}

#[test]
#[ignore = "needs the test bed: cargo xtask test"]
fn rxe_one_thread_serves_many_connections() {
    one_thread_serves_many_connections(roce(0));
}

#[test]
#[ignore = "needs the test bed: cargo xtask test"]
fn siw_one_thread_serves_many_connections() {
    one_thread_serves_many_connections(siw(0));
}

/// Checks that a call whose deadline has passed loses no later message.
#[test]
#[ignore = "needs the test bed: cargo xtask test"]
fn elapsed_deadlines_lose_nothing() {
    let [client, server] = pair(roce(0), &ConnectionConfig::new().receive_buffers(1));
    for _ in 0..3 {
        let error = server
            .recv_timeout(Duration::ZERO)
            .expect_err("no call should be able to make progress");
        assert_eq!(*error.kind(), ErrorKind::TimedOut, "{error}");
    }
    // The first message uses the only buffer, and the second message waits for a buffer.
    client.post_send(filled(&client, b"one")).expect("post");
    let kept = server.recv_timeout(LONG).expect("receive").expect("a message");
    let buffer = filled(&client, b"two");
    let sent =
        client.start_send(buffer).and_then(|send| send.wait_timeout(Duration::from_millis(20)));
    let error = sent.expect_err("no receive buffer should be free");
    assert_eq!(*error.kind(), ErrorKind::TimedOut, "{error}");
    drop(kept);
    receives(&server, b"two");
    client.flush_timeout(LONG).expect("flush");
    // All buffers are free again.
    let all = DEFAULT_SEND_BUFFERS;
    let taken: Vec<_> = (0..all).map(|_| client.try_acquire_buffer().expect("a buffer")).collect();
    assert!(now(client.try_acquire_buffer()).is_none());
    drop(taken);
}
