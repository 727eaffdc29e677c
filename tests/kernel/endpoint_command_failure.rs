//! The safe tier: single commands of one thread that the kernel refuses during an operation.

use std::fs;
use std::net::SocketAddr;
use std::thread;
use std::time::Duration;

use nix::poll::PollTimeout;
use rdmacm::endpoint::{Connection, ConnectionConfig, DatagramSocket};
use rdmacm::verbs::{CompletionQueue, Context};
use rdmacm::{Error, ErrorKind, NotOwner, Result};

use crate::child::{forbid_to_this_thread, with_refused_commands};
use crate::endpoint_connect::pair;
use crate::endpoint_datagrams::{self, Nowhere, becomes_readable, no_route, with_nowhere};
use crate::endpoint_messages::{filled, receives};
use crate::endpoint_nonblocking;
use crate::fixtures::{DEFAULT_SEND_BUFFERS, LONG, device, roce, roce_name, siw};

/// Returns the error of a call whose command was refused.
#[track_caller]
fn refused<T>(result: Result<T>) -> Error {
    let Err(error) = result else { panic!("the call should fail") };
    let how = NotOwner::Credentials;
    assert_eq!(*error.kind(), ErrorKind::NotOwner(how), "{error}");
    error
}

/// Asserts that exactly the buffers of the socket are free.
fn has_all_buffers(socket: &DatagramSocket) {
    let all = DEFAULT_SEND_BUFFERS;
    let taken: Vec<_> =
        (0..all).map(|_| socket.acquire_buffer_timeout(LONG).expect("a buffer")).collect();
    assert!(endpoint_datagrams::now(socket.try_acquire_buffer()).is_none());
    drop(taken);
}

/// Checks that the next successful call makes a failed socket usable, and that no buffer is lost.
#[test]
#[ignore = "needs the test bed: cargo xtask test"]
fn failed_socket_recovers_at_later_call() {
    let Nowhere { client, server, back, nowhere } = with_nowhere();
    for round in 0..3_u8 {
        let filled = |bytes: &[u8]| endpoint_datagrams::filled(&client, bytes);
        drop(
            client
                .start_send_to(filled(&[round]), &back)
                .and_then(|send| send.wait_timeout(LONG))
                .expect("send"),
        );
        endpoint_datagrams::receives(&server, &[round]);
        let held = filled(b"held");
        assert!(endpoint_datagrams::now(client.try_recv_from()).is_none());
        client.post_send_to(filled(b"lost"), &nowhere).expect("post");
        with_refused_commands(|| {
            refused(loop {
                becomes_readable(&[&client]);
                match client.try_recv_from() {
                    // The descriptor may be readable without a reason.
                    Err(error) if *error.kind() == ErrorKind::WouldBlock => {}
                    other => break other,
                }
            });
            refused(client.post_send_to(held, &back));
            refused(client.recv_from_timeout(LONG));
        });
        let error = client.flush_timeout(LONG).expect_err("one datagram should be lost");
        assert!(no_route(&error), "{error}");
        has_all_buffers(&client);
    }
}

fn has_all_of(connection: &Connection) {
    let all = DEFAULT_SEND_BUFFERS;
    let taken: Vec<_> =
        (0..all).map(|_| connection.acquire_buffer_timeout(LONG).expect("a buffer")).collect();
    assert!(endpoint_nonblocking::now(connection.try_acquire_buffer()).is_none());
    drop(taken);
}

/// Checks that after a refused doorbell, the next post also sends the stored message.
///
/// The buffer of that message returns to the connection, because no caller waits for it.
fn message_is_sent_after_refused_post(address: SocketAddr) {
    let [client, server] = pair(address, &ConnectionConfig::default());
    client.post_send(filled(&client, b"first")).expect("post");
    receives(&server, b"first");
    client.flush_timeout(LONG).expect("flush");
    let second = filled(&client, b"second");
    with_refused_commands(|| {
        refused(client.start_send(second).and_then(|send| send.wait_timeout(LONG)))
    });
    with_refused_commands(|| refused(client.post_bytes(b"third")));
    client.post_send(filled(&client, b"fourth")).expect("post");
    receives(&server, b"second");
    receives(&server, b"third");
    receives(&server, b"fourth");
    client.flush_timeout(LONG).expect("flush");
    has_all_of(&client);
}

#[test]
#[ignore = "needs the test bed: cargo xtask test"]
fn rxe_message_is_sent_after_refused_post() {
    message_is_sent_after_refused_post(roce(0));
}

#[test]
#[ignore = "needs the test bed: cargo xtask test"]
fn siw_message_is_sent_after_refused_post() {
    message_is_sent_after_refused_post(siw(0));
}

/// Runs `call` in a thread to which the kernel refuses the system call `number`.
fn without<T: Send>(number: libc::c_long, call: impl FnOnce() -> T + Send) -> T {
    thread::scope(|scope| {
        let thread = scope.spawn(|| {
            forbid_to_this_thread(number, libc::EPERM);
            call()
        });
        thread.join().expect("the thread should not panic")
    })
}

/// Checks that calls that do not wait, unlike destructors, report a refused `epoll_ctl`.
///
/// The descriptor reports the missed readiness as soon as another thread may change it.
#[test]
#[ignore = "needs the test bed: cargo xtask test"]
fn refused_wakeup_is_reported() {
    let config = ConnectionConfig::new().send_buffers(1);
    let [client, server] = pair(roce(0), &config);
    let only = client.acquire_buffer_timeout(LONG).expect("the only buffer");
    assert!(endpoint_nonblocking::now(client.try_acquire_buffer()).is_none());
    without(libc::SYS_epoll_ctl, || {
        drop(only);
        let error = client.try_recv().expect_err("the refused epoll_ctl should be reported");
        assert_eq!(*error.kind(), ErrorKind::Os(libc::EPERM), "{error}");
        // A refused call loses no event that it has read.
        server.post_bytes(b"found").expect("post");
        let message = loop {
            match client.try_recv() {
                Ok(message) => break message.expect("a message"),
                Err(error) => assert_eq!(*error.kind(), ErrorKind::Os(libc::EPERM), "{error}"),
            }
        };
        assert_eq!(*message, *b"found");
    });
    assert!(endpoint_nonblocking::now(client.try_recv()).is_none());
    assert!(
        endpoint_nonblocking::is_readable(&client, PollTimeout::ZERO),
        "the buffer should be free"
    );
    drop(client.try_acquire_buffer().expect("a buffer"));
    // An abort reports no error, and ends the connection.
    without(libc::SYS_epoll_ctl, || client.abort());
    let error = client.try_recv().expect_err("the connection should have ended");
    assert_eq!(*error.kind(), ErrorKind::Disconnected, "{error}");
    assert!(
        server.recv_timeout(LONG).expect("receive").is_none(),
        "the connection should have ended"
    );
}

/// Checks that a connection ends although the kernel refuses to stop its timer.
#[test]
#[ignore = "needs the test bed: cargo xtask test"]
fn refused_timer_stop_ends_connection() {
    let keep_alive = Some(Duration::from_secs(1));
    let [client, server] = pair(roce(0), &ConnectionConfig::new().keep_alive_interval(keep_alive));
    without(libc::SYS_timerfd_settime, || drop(client));
    assert!(
        server.recv_timeout(LONG).expect("receive").is_none(),
        "the connection should have ended"
    );
}

/// Checks that rings stay mapped if the kernel refuses to unmap them.
#[test]
#[ignore = "needs the test bed: cargo xtask test"]
fn refused_munmap_leaves_rings_mapped() {
    let mapped = || {
        let maps = fs::read_to_string("/proc/self/maps").expect("list the mappings");
        maps.lines().filter(|line| line.contains("infiniband")).count()
    };
    let context = Context::open(&device(roce_name())).expect("open");
    let cq = CompletionQueue::new(&context, 16, None).expect("completion queue");
    let before = mapped();
    without(libc::SYS_munmap, || drop(cq));
    assert_eq!(mapped(), before);
}
