//! The safe tier: commands that the kernel refuses, to one thread and for once, in the middle of something.

use std::fs;
use std::net::SocketAddr;
use std::thread;
use std::time::Duration;

use nix::poll::PollTimeout;
use rdmacm::endpoint::{Connection, DatagramSettings, DatagramSocket, Settings};
use rdmacm::verbs::{CompletionQueue, Context};
use rdmacm::{Error, ErrorKind, Result, WrongProcess};

use crate::bed::{LONG, device, rxe, siw};
use crate::child::{by_a_stranger, forbid_to_this_thread};
use crate::endpoint_connect::pair;
use crate::endpoint_datagrams::{self, Nowhere, becomes_readable, no_route, with_nowhere};
use crate::endpoint_loop;
use crate::endpoint_messages::{filled, receives};

/// The error of a call whose command was refused.
#[track_caller]
fn refused<T>(result: Result<T>) -> Error {
    let Err(error) = result else { panic!("it had success") };
    let how = WrongProcess::Credentials;
    assert_eq!(*error.kind(), ErrorKind::WrongProcess(how), "{error}");
    error
}

/// That all the buffers are there, and no more.
fn has_all_buffers(socket: &DatagramSocket) {
    let all = DatagramSettings::default().send_buffers;
    let taken: Vec<_> = (0..all).map(|_| socket.buffer_timeout(LONG).expect("a buffer")).collect();
    assert!(endpoint_datagrams::now(socket.try_buffer()).is_none());
    drop(taken);
}

/// A socket that has failed is set up again by the next call that can, and loses no buffer by those that cannot.
#[test]
#[ignore = "needs the test bed: cargo xtask test"]
fn a_socket_is_set_up_again_later() {
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
        client.post_to(filled(b"lost"), &nowhere).expect("post");
        by_a_stranger(|| {
            refused(loop {
                becomes_readable(&[&client]);
                match client.try_recv_from() {
                    // It was readable for nothing.
                    Err(error) if *error.kind() == ErrorKind::WouldBlock => {}
                    other => break other,
                }
            });
            refused(client.post_to(held, &back));
            refused(client.recv_from_timeout(LONG));
        });
        let error = client.flush_timeout(LONG).expect_err("one is lost");
        assert!(no_route(&error), "{error}");
        has_all_buffers(&client);
    }
}

fn has_all_of(connection: &Connection) {
    let all = Settings::default().send_buffers;
    let taken: Vec<_> =
        (0..all).map(|_| connection.buffer_timeout(LONG).expect("a buffer")).collect();
    assert!(endpoint_loop::now(connection.try_buffer()).is_none());
    drop(taken);
}

/// A message that stands in the queue, of which the device was not told, goes out with the next one, and its buffer
/// comes back to the connection, as nobody waits for it.
fn a_message_goes_later(address: SocketAddr) {
    let [client, server] = pair(address, &Settings::default());
    client.post(filled(&client, b"first")).expect("post");
    receives(&server, b"first");
    client.flush_timeout(LONG).expect("flush");
    let second = filled(&client, b"second");
    by_a_stranger(|| refused(client.start_send(second).and_then(|send| send.wait_timeout(LONG))));
    by_a_stranger(|| refused(client.post_bytes(b"third")));
    client.post(filled(&client, b"fourth")).expect("post");
    receives(&server, b"second");
    receives(&server, b"third");
    receives(&server, b"fourth");
    client.flush_timeout(LONG).expect("flush");
    has_all_of(&client);
}

#[test]
#[ignore = "needs the test bed: cargo xtask test"]
fn rxe_a_message_goes_later() {
    a_message_goes_later(rxe(0));
}

#[test]
#[ignore = "needs the test bed: cargo xtask test"]
fn siw_a_message_goes_later() {
    a_message_goes_later(siw(0));
}

/// Runs `call` in a thread to which the kernel refuses the system call `number`.
fn without<T: Send>(number: libc::c_long, call: impl FnOnce() -> T + Send) -> T {
    thread::scope(|scope| {
        let thread = scope.spawn(|| {
            forbid_to_this_thread(number, libc::EPERM);
            call()
        });
        thread.join().expect("the thread does not panic")
    })
}

/// If the kernel refuses `epoll_ctl`, a call that waits for nothing says so, a destructor does not, and the descriptor tells of
/// what was missed as soon as another thread may change it.
#[test]
#[ignore = "needs the test bed: cargo xtask test"]
fn refused_wakeup_is_an_error() {
    let settings = Settings { send_buffers: 1, ..Settings::default() };
    let [client, server] = pair(rxe(0), &settings);
    let only = client.buffer_timeout(LONG).expect("the only buffer");
    assert!(endpoint_loop::now(client.try_buffer()).is_none());
    without(libc::SYS_epoll_ctl, || {
        drop(only);
        let error = client.try_recv().expect_err("the buffer is not reported");
        assert_eq!(*error.kind(), ErrorKind::Os(libc::EPERM), "{error}");
        // What is found is not lost.
        server.post_bytes(b"found").expect("post");
        let message = loop {
            match client.try_recv() {
                Ok(message) => break message.expect("a message"),
                Err(error) => assert_eq!(*error.kind(), ErrorKind::Os(libc::EPERM), "{error}"),
            }
        };
        assert_eq!(*message, *b"found");
    });
    assert!(endpoint_loop::now(client.try_recv()).is_none());
    assert!(endpoint_loop::is_readable(&client, PollTimeout::ZERO), "the buffer is free");
    drop(client.try_buffer().expect("a buffer"));
    // Ending the connection reports nothing and ends it.
    without(libc::SYS_epoll_ctl, || client.abort());
    let error = client.try_recv().expect_err("the end");
    assert_eq!(*error.kind(), ErrorKind::Disconnected, "{error}");
    assert!(server.recv_timeout(LONG).expect("receive").is_none(), "the end");
}

/// If the kernel refuses to stop the timer of a connection, the connection ends all the same.
#[test]
#[ignore = "needs the test bed: cargo xtask test"]
fn refused_timer_stop_ends_the_connection() {
    let keep_alive = Some(Duration::from_secs(1));
    let [client, server] = pair(rxe(0), &Settings { keep_alive, ..Settings::default() });
    without(libc::SYS_timerfd_settime, || drop(client));
    assert!(server.recv_timeout(LONG).expect("receive").is_none(), "the end");
}

/// If the kernel refuses to unmap rings, they stay mapped.
#[test]
#[ignore = "needs the test bed: cargo xtask test"]
fn refused_munmap_leaves_rings_mapped() {
    let mapped = || {
        let maps = fs::read_to_string("/proc/self/maps").expect("list the mappings");
        maps.lines().filter(|line| line.contains("infiniband")).count()
    };
    let context = Context::open(&device("rxe0")).expect("open");
    let cq = CompletionQueue::new(&context, 16, None).expect("completion queue");
    let before = mapped();
    without(libc::SYS_munmap, || drop(cq));
    assert_eq!(mapped(), before);
}
