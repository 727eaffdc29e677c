//! The safe tier: bytes that are copied into a buffer and posted by one call.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::mpsc;
use std::thread;

use nix::poll::PollTimeout;
use rdmacm::ErrorKind;
use rdmacm::endpoint::tokio::{Connection as Task, DatagramSocket as TaskSocket};
use rdmacm::endpoint::{Connection, ConnectionConfig, DatagramConfig, DatagramSocket};
use rdmacm_tests::heap::allocations;

use crate::child::in_child;
use crate::endpoint_connect::pair;
use crate::endpoint_datagrams::{self, found, now};
use crate::endpoint_messages::receives;
use crate::endpoint_nonblocking::is_readable;
use crate::endpoint_tokio;
use crate::endpoint_tokio_cancel::{Point, has_all_buffers, until_dropped};
use crate::executor::{self, in_time, on_each_executor};
use crate::fixtures::{LONG, announce, asleep, assert_invalid, roce, siw};
use crate::process::forked;

/// Returns the number of messages that the connection has sent, and that of their bytes.
fn sent(connection: &Connection) -> (u64, u64) {
    let counters = connection.stats().expect("count");
    (counters.messages_sent, counters.bytes_sent)
}

/// Posts as many bytes as the library copies under its lock, and more.
fn many_bytes_arrive(address: SocketAddr) {
    let [client, server] =
        pair(address, &ConnectionConfig::new().send_buffer_size(8192).receive_buffer_size(8192));
    for length in [4096, 4097, 8192] {
        let bytes: Vec<u8> = (0..length).map(|place: u32| place.to_ne_bytes()[0]).collect();
        client.post_bytes(&bytes).expect("post");
        receives(&server, &bytes);
    }
    let error = client.post_bytes(&[0; 8193]).expect_err("the message should exceed a buffer");
    assert_eq!(error.errno(), libc::EMSGSIZE, "{error}");
    assert_eq!(sent(&client), (3, 4096 + 4097 + 8192));
}

fn bytes_arrive(address: SocketAddr) {
    let [client, server] =
        pair(address, &ConnectionConfig::new().send_buffer_size(100).receive_buffer_size(100));
    for length in [0, 1, 16, 100] {
        let bytes: Vec<u8> = (0..length).collect();
        client.post_bytes(&bytes).expect("post");
        receives(&server, &bytes);
        server.try_post_bytes(&bytes).expect("post");
        receives(&client, &bytes);
    }
    let error = client.post_bytes(&[0; 101]).expect_err("the message should exceed a buffer");
    assert_invalid(&error, &["101 bytes", "room for 100"]);
    assert_eq!(error.errno(), libc::EMSGSIZE);
    assert_eq!((sent(&client), sent(&server)), ((4, 117), (4, 117)));
    let round = || {
        client.post_bytes(b"there").expect("post");
        receives(&server, b"there");
        server.post_bytes(b"back").expect("post");
        receives(&client, b"back");
    };
    round();
    assert_eq!(allocations(|| (0..50).for_each(|_| round())), 0);
    let (sender, receiver) = (client.clone(), client);
    sender.post_bytes(b"1").expect("post");
    sender.try_post_bytes(b"2").expect("post");
    [b"1", b"2"].iter().for_each(|bytes| receives(&server, *bytes));
    server.abort();
    assert!(receiver.recv_timeout(LONG).expect("receive").is_none());
    let error = sender.post_bytes(b"late").expect_err("the connection should have ended");
    assert_eq!(*error.kind(), ErrorKind::Disconnected, "{error}");
    let error = server.try_post_bytes(b"nor here").expect_err("the connection should have ended");
    assert_eq!(*error.kind(), ErrorKind::Disconnected, "{error}");
}

#[test]
#[ignore = "needs the test bed: cargo xtask test"]
fn rxe_bytes_arrive() {
    bytes_arrive(roce(0));
    many_bytes_arrive(roce(0));
}

#[test]
#[ignore = "needs the test bed: cargo xtask test"]
fn siw_bytes_arrive() {
    bytes_arrive(siw(0));
    many_bytes_arrive(siw(0));
}

#[test]
#[ignore = "needs the test bed: cargo xtask test"]
fn post_bytes_waits_for_free_buffer() {
    let [client, server] = pair(roce(0), &ConnectionConfig::new().send_buffers(1));
    let held = client.acquire_buffer().expect("a buffer should be free");
    assert!(now(client.try_post_bytes(b"too early")).is_none());
    assert!(!is_readable(&client, PollTimeout::ZERO), "no buffer should be free yet");
    drop(held);
    assert!(is_readable(&client, PollTimeout::ZERO), "a buffer should be free");
    client.try_post_bytes(b"by a try").expect("post");
    receives(&server, b"by a try");
    let held = client.acquire_buffer_timeout(LONG).expect("the buffer should return");
    let (tx, rx) = mpsc::channel();
    thread::scope(|scope| {
        let waiting = scope.spawn(|| {
            announce(&tx);
            client.post_bytes(b"by a waiter")
        });
        asleep(rx.recv().expect("the thread should begin"));
        drop(held);
        waiting.join().expect("thread should not panic").expect("post");
    });
    receives(&server, b"by a waiter");
    client.flush_timeout(LONG).expect("flush");
    assert_eq!(sent(&client), (2, 19), "refused bytes should not be counted");
    let mut connection = Some(client);
    in_child(|| {
        let connection = connection.take().expect("the object should exist");
        forked(connection.post_bytes(b"the child's"));
        forked(connection.try_post_bytes(b"the child's"));
    });
}

#[test]
#[ignore = "needs the test bed: cargo xtask test"]
fn posted_datagrams_arrive() {
    let config = DatagramConfig::new().send_buffers(1);
    let bind = || DatagramSocket::bind(roce(0), &config).expect("bind");
    let (client, server) = (bind(), bind());
    let peer = found(&client, &server);
    let all = vec![7; client.mtu()];
    for bytes in [&all[..0], &all[..1], &all] {
        client.post_bytes_to(bytes, &peer).expect("post");
        let sender = endpoint_datagrams::receives(&server, bytes);
        server.post_bytes_to(bytes, &sender).expect("post");
        endpoint_datagrams::receives(&client, bytes);
    }
    let error = client
        .post_bytes_to(&[all, vec![8]].concat(), &peer)
        .expect_err("the datagram should be too long");
    assert_eq!(error.errno(), libc::EMSGSIZE, "{error}");
    let error =
        server.post_bytes_to(b"x", &peer).expect_err("a peer of another socket should be refused");
    assert_invalid(&error, &["send on", "of another socket"]);
    let held = client.acquire_buffer_timeout(LONG).expect("the buffer should return");
    assert!(now(client.try_post_bytes_to(b"too early", &peer)).is_none());
    drop(held);
    client.try_post_bytes_to(b"in time", &peer).expect("post");
    endpoint_datagrams::receives(&server, b"in time");
    assert_eq!(client.stats().expect("count").messages_sent, 4);
    client.abort();
    let error = client.post_bytes_to(b"x", &peer).expect_err("the socket should have ended");
    assert_eq!(*error.kind(), ErrorKind::Disconnected, "{error}");
}

/// Drops a task that waits for a buffer, at each point at which it waits.
async fn dropped(address: SocketAddr) {
    const TOO_LONG: usize = 4096 + 1;
    let config = ConnectionConfig::new().send_buffers(1);
    let [client, server] = endpoint_tokio::pair(address, &config).await;
    let error =
        client.post_bytes(&vec![0; TOO_LONG]).await.expect_err("the message should be too long");
    assert_eq!(error.errno(), libc::EMSGSIZE, "{error}");
    for (point, number) in Point::all().zip(0_u8..) {
        let held = client.acquire_buffer().await.expect("a buffer should be free");
        let lets_go = executor::spawn(async move { drop(held) });
        let posted = until_dropped(client.post_bytes(&[number]), point).await;
        lets_go.await.expect("the task should drop the buffer");
        if let Some(posted) = &posted {
            posted.as_ref().expect("post");
            endpoint_tokio::receives(&server, &[number]).await;
        }
        // The dropped tasks have posted no bytes.
        in_time(client.post_bytes(b"after it")).await.expect("post");
        endpoint_tokio::receives(&server, b"after it").await;
        has_all_buffers(&client, 1).await;
        if posted.is_some() {
            break;
        }
    }
    let large = ConnectionConfig::new().send_buffer_size(8192).receive_buffer_size(8192);
    let [from, to] = endpoint_tokio::pair(address, &large).await;
    from.post_bytes(&[7; 8192]).await.expect("post");
    endpoint_tokio::receives(&to, &[7; 8192]).await;
    let (sender, receiver) = (client.clone(), client);
    sender.post_bytes(b"of a clone").await.expect("post");
    endpoint_tokio::receives(&server, b"of a clone").await;
    drop((sender, receiver));
    assert!(
        in_time(server.recv()).await.expect("receive").is_none(),
        "the connection should have ended"
    );
    let ended = in_time(Task::post_bytes(&server, b"late")).await;
    assert_eq!(
        *ended.expect_err("the connection should have ended").kind(),
        ErrorKind::Disconnected
    );
}

#[test]
#[ignore = "needs the test bed: cargo xtask test"]
fn rxe_dropped_post_bytes_task_loses_nothing() {
    on_each_executor(roce(0), || dropped(roce(0)));
}

#[test]
#[ignore = "needs the test bed: cargo xtask test"]
fn siw_dropped_post_bytes_task_loses_nothing() {
    on_each_executor(siw(0), || dropped(siw(0)));
}

#[test]
#[ignore = "needs the test bed: cargo xtask test"]
fn datagrams_posted_by_task_arrive() {
    on_each_executor(roce(0), || async {
        let bind = || async {
            let config = DatagramConfig::new().send_buffers(1);
            in_time(TaskSocket::bind(roce(0), &config)).await.expect("bind")
        };
        let (client, server) = (bind().await, Arc::new(bind().await));
        let at = server.local_addr().expect("an IP address");
        // A receiving call answers its resolution requests.
        let serves = Arc::clone(&server);
        let answering = executor::spawn(async move {
            let (message, sender) = serves.recv_from().await.expect("receive");
            assert!(*message == *b"question", "{message:?}");
            serves.post_bytes_to(b"answer", &sender).await.expect("post");
        });
        let peer = in_time(client.resolve_peer(at)).await.expect("resolve");
        let long = vec![0; client.mtu() + 1];
        let error =
            client.post_bytes_to(&long, &peer).await.expect_err("the datagram should be too long");
        assert_eq!(error.errno(), libc::EMSGSIZE, "{error}");
        in_time(client.post_bytes_to(b"question", &peer)).await.expect("post");
        in_time(answering).await.expect("the call should return");
        let (message, sender) = in_time(client.recv_from()).await.expect("receive");
        assert_eq!((&*message, &sender), (&b"answer"[..], &peer));
        let error = in_time(server.post_bytes_to(b"x", &peer))
            .await
            .expect_err("a peer of another socket should be refused");
        assert_invalid(&error, &["of another socket"]);
    });
}
