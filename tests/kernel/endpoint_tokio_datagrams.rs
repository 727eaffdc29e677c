//! The safe tier for tasks: datagrams, and each call dropped at each point at which it waits.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use rdmacm::ErrorKind;
use rdmacm::cm::Membership;
use rdmacm::endpoint::tokio::{DatagramSocket, MulticastGroup};
use rdmacm::endpoint::{Buffer, DatagramConfig, DatagramPeer};
use tokio::runtime::Builder;

use crate::child::child_cannot;
use crate::endpoint_datagrams;
use crate::endpoint_tokio::eventually_as;
use crate::endpoint_tokio_cancel::{Point, until_dropped};
use crate::executor::{self, Task, in_time, on_each_executor};
use crate::fixtures::{NO_LISTENER, objects, roce, roce_v6, siw};

/// Returns a multicast group for one test. Each test has its own groups, because all tests run on one kernel.
fn group(number: u8) -> SocketAddr {
    ([239, 1, 6, number], 0).into()
}

fn config() -> DatagramConfig {
    DatagramConfig::new().send_buffers(2)
}

async fn socket(address: SocketAddr) -> DatagramSocket {
    in_time(DatagramSocket::bind(address, &config())).await.expect("bind")
}

fn address(socket: &DatagramSocket) -> SocketAddr {
    socket.local_addr().expect("an IP address")
}

async fn filled(socket: &DatagramSocket, bytes: &[u8]) -> Buffer {
    let mut buffer = in_time(socket.acquire_buffer()).await.expect("a buffer");
    buffer.copy_from(bytes).expect("the length should fit");
    buffer
}

async fn send(socket: &DatagramSocket, bytes: &[u8], peer: &DatagramPeer) {
    in_time(socket.post_send_to(filled(socket, bytes).await, peer)).await.expect("post");
}

/// Receives a datagram, which must be `bytes`, and returns its sender.
async fn receives(socket: &DatagramSocket, bytes: &[u8]) -> DatagramPeer {
    let (message, sender) = in_time(socket.recv_from()).await.expect("receive");
    assert!(*message == *bytes, "{message:?} is not what was sent");
    sender
}

/// Starts a task that answers each datagram with the same bytes. Returns the task and its address.
async fn echoes(local: SocketAddr) -> (Task<()>, SocketAddr) {
    let server = socket(local).await;
    let at = address(&server);
    let echo = async move {
        loop {
            let (datagram, sender) = server.recv_from().await.expect("receive");
            send(&server, &datagram, &sender).await;
        }
    };
    (executor::spawn(echo), at)
}

/// Returns two sockets, and the second socket as a peer of the first.
async fn pair() -> (DatagramSocket, Arc<DatagramSocket>, DatagramPeer) {
    let (client, server) = (socket(roce(0)).await, Arc::new(socket(roce(0)).await));
    let at = address(&server);
    // The server answers resolution requests while one of its calls waits.
    let serving = Arc::clone(&server);
    let mut serving = executor::spawn(async move { serving.recv_from().await.map(drop) });
    let peer = in_time(client.resolve_peer(at)).await.expect("resolve");
    serving.abort();
    serving.await.expect_err("no datagram should arrive");
    (client, server, peer)
}

#[test]
#[ignore = "needs the test bed: cargo xtask test"]
fn tasks_exchange_datagrams() {
    for local in [roce(0), roce_v6(0)] {
        on_each_executor(roce(0), move || async move {
            let (mut serving, at) = echoes(local).await;
            let client = socket(local).await;
            let peer = in_time(client.resolve_peer(at)).await.expect("resolve");
            assert_eq!(at.ip(), address(&client).ip());
            for number in 0..20 {
                let text = vec![number; client.mtu() - usize::from(number)];
                let buffer = filled(&client, &text).await;
                let buffer = in_time(client.send_to(buffer, &peer)).await.expect("send");
                assert_eq!((buffer.len(), &buffer[..text.len()]), (client.mtu(), &text[..]));
                assert_eq!(receives(&client, &text).await, peer);
            }
            send(&client, b"posted", &peer).await;
            in_time(client.flush()).await.expect("flush");
            assert_eq!(client.stats().expect("count").messages_sent, 21);
            assert_eq!(receives(&client, b"posted").await, peer);
            assert_eq!(client.stats().expect("count").messages_received, 21);
            child_cannot(client.flush());
            serving.abort();
            client.abort().await;
        });
    }
}

/// Checks refused calls: iWARP, no listener, objects of other sockets, and joined groups.
#[test]
#[ignore = "needs the test bed: cargo xtask test"]
fn invalid_task_calls_are_refused_as_on_siw() {
    on_each_executor(roce(0), || async {
        let iwarp = DatagramSocket::bind(siw(0), &config()).await;
        let error = iwarp.expect_err("iWARP should have no datagrams");
        assert!(matches!(error.kind(), ErrorKind::Unsupported(_)), "{error}");
        let (client, server, peer) = pair().await;
        let error =
            in_time(client.resolve_peer(roce(7199))).await.expect_err("no program should listen");
        assert_eq!(*error.kind(), ErrorKind::Unreachable(NO_LISTENER), "{error}");
        let buffer = filled(&server, b"x").await;
        let error = server
            .post_send_to(buffer, &peer)
            .await
            .expect_err("a peer of another socket should be refused");
        assert!(matches!(error.kind(), ErrorKind::InvalidInput { .. }), "{error}");
        let buffer = filled(&server, b"x").await;
        let error = client
            .send_to(buffer, &peer)
            .await
            .expect_err("a buffer of another socket should be refused");
        assert!(matches!(error.kind(), ErrorKind::InvalidInput { .. }), "{error}");
        let joined = client.join_multicast(group(1), Membership::Full).await.expect("join");
        let again = client
            .join_multicast(group(1), Membership::Full)
            .await
            .expect_err("socket should be in the group already");
        assert_eq!(again.errno(), libc::EADDRINUSE, "{again}");
        drop(joined);
        has_all_buffers(&client).await;
        has_all_buffers(&server).await;
    });
}

/// Checks that the end of a socket wakes all waiting tasks, in each call.
#[test]
#[ignore = "needs the test bed: cargo xtask test"]
fn end_of_socket_wakes_all_tasks() {
    on_each_executor(roce(0), || async {
        let (client, silent) = (Arc::new(socket(roce(0)).await), socket(roce(0)).await);
        let held = [filled(&client, b"").await, filled(&client, b"").await];
        let at = address(&silent);
        let calls = (0..6).map(|which| {
            let client = Arc::clone(&client);
            executor::spawn(async move {
                match which / 2 {
                    0 => client.recv_from().await.map(drop),
                    1 => client.acquire_buffer().await.map(drop),
                    _ => client.resolve_peer(at).await.map(drop),
                }
            })
        });
        let calls: Vec<_> = calls.collect();
        executor::sleep(Duration::from_millis(5)).await;
        client.abort().await;
        for call in calls {
            let error = in_time(call)
                .await
                .expect("task should not panic")
                .expect_err("the socket should have ended");
            assert_eq!(*error.kind(), ErrorKind::Disconnected, "{error}");
        }
        let error = in_time(client.join_multicast(group(2), Membership::Full))
            .await
            .expect_err("the socket should have ended");
        assert_eq!(*error.kind(), ErrorKind::Disconnected, "{error}");
        drop(held);
    });
}

/// Checks that a socket is converted from threads to tasks and back, and keeps its unread datagrams.
#[test]
#[ignore = "needs the test bed: cargo xtask test"]
fn socket_converts_between_tasks_and_threads() {
    let [client, server] = [(); 2].map(|()| endpoint_datagrams::socket(roce(0)));
    let peer = endpoint_datagrams::found(&client, &server);
    client.post_send_to(endpoint_datagrams::filled(&client, b"one"), &peer).expect("post");
    let runtime = Builder::new_current_thread().enable_all().build().expect("a runtime");
    let server = runtime.block_on(async {
        let server =
            DatagramSocket::from_blocking(server).expect("the runtime should watch the object");
        let sender = receives(&server, b"one").await;
        send(&server, b"two", &sender).await;
        server.into_blocking()
    });
    assert_eq!(endpoint_datagrams::receives(&client, b"two"), peer);
    client.post_send_to(endpoint_datagrams::filled(&client, b"three"), &peer).expect("post");
    endpoint_datagrams::receives(&server, b"three");
}

/// Asserts that exactly the buffers of the socket are free.
async fn has_all_buffers(socket: &DatagramSocket) {
    let all = [filled(socket, b"").await, filled(socket, b"").await];
    let none = executor::timeout(Duration::ZERO, socket.acquire_buffer()).await;
    none.expect_err("no other buffer should be free");
    drop(all);
}

async fn binding() {
    let before = objects();
    for point in Point::all() {
        let bound = until_dropped(DatagramSocket::bind(roce(0), &config()), point).await;
        let is_bound = bound.is_some();
        drop(bound.map(|bound| bound.expect("bind")));
        eventually_as(roce(0), &before).await;
        if is_bound {
            break;
        }
    }
}

async fn resolving() {
    let (mut serving, at) = echoes(roce(0)).await;
    let client = socket(roce(0)).await;
    let before = objects();
    for point in Point::all() {
        let resolved = until_dropped(client.resolve_peer(at), point).await;
        let is_resolved = resolved.is_some();
        drop(resolved.map(|peer| peer.expect("resolve")));
        // The ids of the request are destroyed on both sides.
        eventually_as(roce(0), &before).await;
        if is_resolved {
            break;
        }
    }
    serving.abort();
}

async fn receiving() {
    let (client, server, peer) = pair().await;
    for (point, number) in Point::all().zip(0_u8..) {
        let text = [number];
        let posts = send(&client, &text, &peer);
        let received = if number % 2 == 0 {
            posts.await;
            until_dropped(server.recv_from(), point).await
        } else {
            let waits = Arc::clone(&server);
            let receiving =
                executor::spawn(async move { until_dropped(waits.recv_from(), point).await });
            posts.await;
            in_time(receiving).await.expect("task should not panic")
        };
        match &received {
            Some(received) => assert_eq!(*received.as_ref().expect("receive").0, [number]),
            None => drop(receives(&server, &[number]).await),
        }
        if received.is_some() && number % 2 == 1 {
            break;
        }
    }
    client.flush().await.expect("flush");
    has_all_buffers(&client).await;
}

async fn taking() {
    let (client, server, peer) = pair().await;
    for point in Point::all() {
        let held = [filled(&client, b"").await, filled(&client, b"").await];
        let taken = {
            let dropped = executor::spawn(async move { drop(held) });
            let taken = until_dropped(client.acquire_buffer(), point).await;
            dropped.await.expect("the task should drop the buffers");
            taken.is_some()
        };
        has_all_buffers(&client).await;
        send(&client, b"datagram", &peer).await;
        receives(&server, b"datagram").await;
        has_all_buffers(&client).await;
        if taken {
            break;
        }
    }
}

/// Drops calls that send, post and flush.
///
/// The first peer has no address handle yet. The second peer has one.
async fn sending() {
    let (client, server, peer) = pair().await;
    for is_first in [true, false] {
        for (point, number) in Point::all().zip(0_u8..) {
            let peer = if is_first {
                let serving = Arc::clone(&server);
                let mut serving =
                    executor::spawn(async move { serving.recv_from().await.map(drop) });
                let peer = in_time(client.resolve_peer(address(&server))).await.expect("resolve");
                serving.abort();
                drop(serving.await);
                peer
            } else {
                peer.clone()
            };
            let buffer = filled(&client, &[number, 1]).await;
            let sent = until_dropped(client.send_to(buffer, &peer), point).await;
            let is_sent = sent.is_some();
            drop(sent.map(|buffer| buffer.expect("send")));
            let buffer = filled(&client, &[number, 2]).await;
            let posted = until_dropped(client.post_send_to(buffer, &peer), point).await;
            if let Some(posted) = &posted {
                posted.as_ref().expect("post");
            }
            let bytes = [number, 3];
            let copied = until_dropped(client.post_bytes_to(&bytes, &peer), point).await;
            if let Some(copied) = &copied {
                copied.as_ref().expect("post");
            }
            let flushed = until_dropped(client.flush(), point).await;
            send(&client, b"end", &peer).await;
            // Messages whose send has completed arrive in order and once.
            let mut came = Vec::new();
            loop {
                let (datagram, _) = in_time(server.recv_from()).await.expect("receive");
                if *datagram == *b"end" {
                    break;
                }
                came.push(datagram.to_vec());
            }
            assert!(came.is_sorted() && came.iter().all(|it| it[0] == number), "{came:?}");
            assert!(!is_sent || came.contains(&vec![number, 1]), "{point:?}: {came:?}");
            assert!(posted.is_none() || came.contains(&vec![number, 2]), "{point:?}: {came:?}");
            assert!(copied.is_none() || came.contains(&vec![number, 3]), "{point:?}: {came:?}");
            in_time(client.flush()).await.expect("flush");
            has_all_buffers(&client).await;
            if is_sent && posted.is_some() && copied.is_some() && flushed.is_some() {
                break;
            }
        }
    }
}

async fn joining() {
    let member = socket(roce(0)).await;
    let is_in = |joined: &MulticastGroup| joined.check_membership().is_ok();
    for point in Point::all() {
        let joined = until_dropped(member.join_multicast(group(3), Membership::Full), point).await;
        let is_joined = joined.is_some();
        assert!(joined.is_none_or(|joined| is_in(&joined.expect("join"))));
        // After the group was left, it can be joined again.
        let joined =
            in_time(member.join_multicast(group(3), Membership::Full)).await.expect("join");
        send(&member, b"to all", joined.peer()).await;
        receives(&member, b"to all").await;
        if is_joined {
            break;
        }
    }
}

async fn aborting() {
    for point in Point::all() {
        let (client, server, peer) = pair().await;
        let aborted = until_dropped(client.abort(), point).await.is_some();
        if point.polls == 0 {
            send(&client, b"nothing has happened", &peer).await;
            receives(&server, b"nothing has happened").await;
            client.abort().await;
        }
        in_time(client.recv_from()).await.expect_err("this side should have ended it");
        if aborted {
            break;
        }
    }
}

macro_rules! dropped {
    ($($name:ident: $test:ident;)*) => {$(
        #[test]
        #[ignore = "needs the test bed: cargo xtask test"]
        fn $name() {
            on_each_executor(roce(0), $test);
        }
    )*};
}

dropped! {
    dropped_bind_leaves_nothing: binding;
    dropped_resolve_leaves_nothing: resolving;
    dropped_recv_loses_nothing: receiving;
    dropped_acquire_loses_no_buffer: taking;
    dropped_send_completes: sending;
    dropped_join_leaves_group: joining;
    dropped_abort_completes: aborting;
}
