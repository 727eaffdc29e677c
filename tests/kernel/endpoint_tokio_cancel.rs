//! Each awaited call, dropped at each point at which it waits.
//!
//! A call is dropped before its first poll, and after each later one.

use std::future::{Future, poll_fn};
use std::net::SocketAddr;
use std::pin::pin;
use std::sync::Arc;
use std::task::Poll;
use std::time::Duration;

use rdmacm::endpoint::tokio::{Connection, Listener};
use rdmacm::endpoint::{ConnectionConfig, Connector, DmaMemory, RemoteAccess, RemoteMemory};

use crate::endpoint_connect::objects_at;
use crate::endpoint_tokio::{eventually_as, filled, pair, receives, send};
use crate::executor::{self, in_time, on_each_executor};
use crate::fixtures::{LONG, roce, siw};

/// A point at which a call is dropped.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Point {
    pub(crate) polls: usize,
    /// `true` if the call is dropped after its wakeup, `false` if before.
    is_woken: bool,
}

impl Point {
    pub(crate) fn all() -> impl Iterator<Item = Self> {
        (0..).flat_map(|polls| [false, true].map(|is_woken| Self { polls, is_woken }))
    }
}

/// Polls `future` until it is dropped, and returns its output if it completes before.
pub(crate) async fn until_dropped<F: Future>(future: F, point: Point) -> Option<F::Output> {
    let mut future = pin!(future);
    let mut left = point.polls;
    let until = poll_fn(|context| {
        if left == 0 {
            return Poll::Ready(None);
        }
        left -= 1;
        match future.as_mut().poll(context) {
            Poll::Ready(output) => Poll::Ready(Some(output)),
            Poll::Pending if left == 0 && !point.is_woken => Poll::Ready(None),
            Poll::Pending => Poll::Pending,
        }
    });
    // The future is woken within this time.
    in_time(until).await
}

/// Asserts that exactly the buffers of the connection are free.
pub(crate) async fn has_all_buffers(connection: &Connection, send_buffers: u32) {
    let mut all = Vec::new();
    for _ in 0..send_buffers {
        all.push(in_time(connection.acquire_buffer()).await.expect("a buffer"));
    }
    let none = executor::timeout(Duration::ZERO, connection.acquire_buffer()).await;
    none.expect_err("no other buffer should be free");
}

async fn receiving(address: SocketAddr) {
    let config = ConnectionConfig::new().send_buffers(2).receive_buffers(2);
    let [client, server] = pair(address, &config).await;
    let client = Arc::new(client);
    for (point, number) in Point::all().zip(0_u8..) {
        let peer = Arc::clone(&client);
        let sent = executor::spawn(async move { send(&peer, &[number]).await });
        let received = until_dropped(server.recv(), point).await;
        match &received {
            Some(message) => {
                let message = message.as_ref().expect("receive").as_ref().expect("a message");
                assert_eq!(**message, [number], "{point:?}");
            }
            None => receives(&server, &[number]).await,
        }
        sent.await.expect("sender should not panic");
        if received.is_some() {
            break;
        }
    }
    client.flush().await.expect("flush");
    has_all_buffers(&client, 2).await;
}

async fn taking(address: SocketAddr) {
    let config = ConnectionConfig::new().send_buffers(1);
    let [client, server] = pair(address, &config).await;
    for point in Point::all() {
        // The buffer returns when it is dropped, and then when its send has completed.
        let held = client.acquire_buffer().await.expect("a buffer should be free");
        let dropped = executor::spawn(async move { drop(held) });
        let first = until_dropped(client.acquire_buffer(), point).await.is_some();
        dropped.await.expect("task should not panic");
        has_all_buffers(&client, 1).await;
        send(&client, b"message").await;
        let second = until_dropped(client.acquire_buffer(), point).await.is_some();
        receives(&server, b"message").await;
        has_all_buffers(&client, 1).await;
        if first && second {
            break;
        }
    }
}

async fn sending(address: SocketAddr) {
    let config = ConnectionConfig::new().send_buffers(2);
    let [client, server] = pair(address, &config).await;
    for (point, number) in Point::all().zip(0_u8..) {
        let buffer = filled(&client, &[number]).await;
        let sent = until_dropped(client.send(buffer), point).await;
        // After its first poll the message is in flight, and the next message follows it.
        send(&client, b"next").await;
        if point.polls > 0 {
            receives(&server, &[number]).await;
        }
        receives(&server, b"next").await;
        let is_sent = sent.is_some();
        drop(sent.map(|buffer| buffer.expect("send")));
        in_time(client.flush()).await.expect("flush");
        has_all_buffers(&client, 2).await;
        if is_sent {
            break;
        }
    }
}

async fn flushing(address: SocketAddr) {
    let config = ConnectionConfig::new().send_buffers(2);
    let [client, server] = pair(address, &config).await;
    for point in Point::all() {
        send(&client, b"message").await;
        let flushed = until_dropped(client.flush(), point).await;
        receives(&server, b"message").await;
        in_time(client.flush()).await.expect("flush");
        has_all_buffers(&client, 2).await;
        if flushed.is_some() {
            break;
        }
    }
}

/// Drops calls that write, read and change memory of the server.
async fn reaching_memory(address: SocketAddr) {
    // Each call has its own buffer, which a dropped call may keep.
    let config = ConnectionConfig::new().send_buffers(4);
    let [client, server] = pair(address, &config).await;
    let memory = DmaMemory::new(4096).expect("memory");
    let has_atomics = address == roce(0);
    let mut rights = RemoteAccess::READ | RemoteAccess::WRITE;
    rights.set(RemoteAccess::ATOMIC, has_atomics);
    let before = objects_at(address);
    for point in Point::all() {
        let exported = until_dropped(server.export(&memory, .., rights), point).await;
        if exported.is_some() {
            break;
        }
        eventually_as(address, &before).await;
    }
    let export = server.export(&memory, .., rights).await.expect("export");
    let remote =
        RemoteMemory::from_bytes(&export.remote_memory().to_bytes()).expect("a descriptor");
    let mut changes = 0;
    for (point, number) in Point::all().zip(1_u8..) {
        let buffer = filled(&client, &[number]).await;
        let written = until_dropped(client.write(buffer, &remote, 100), point).await;
        let mut are_done = vec![written.is_some()];
        drop(written);
        let mut buffer = client.acquire_buffer().await.expect("a buffer");
        buffer.set_len(1).expect("the length should fit");
        let read = until_dropped(client.read(buffer, &remote, 100), point).await;
        are_done.push(read.is_some());
        if let Some(read) = read {
            assert_eq!(*read.expect("read"), [number]);
        }
        if has_atomics {
            let added = until_dropped(client.fetch_add(&remote, 0, 1), point).await;
            are_done.push(added.is_some());
            changes += u64::from(point.polls > 0);
            let swapped = client.compare_swap(&remote, 0, u64::MAX, 0);
            are_done.push(until_dropped(swapped, point).await.is_some());
        }
        in_time(client.flush()).await.expect("flush");
        has_all_buffers(&client, 4).await;
        // On siw the written bytes have arrived when a later message has arrived.
        send(&client, b"look").await;
        receives(&server, b"look").await;
        let mut bytes = [0; 1];
        memory.read(100, &mut bytes).expect("the range should be within the memory");
        assert_eq!(bytes[0], if point.polls > 0 { number } else { 0 }, "{point:?}");
        if has_atomics {
            let there = in_time(client.fetch_add(&remote, 0, 0)).await.expect("add");
            assert_eq!(there, changes, "{point:?}");
        }
        if are_done.iter().all(|is_done| *is_done) {
            break;
        }
    }
    export.revoke().await.expect("revoke");
}

/// Drops closing calls and repeats them, and then drops a connection in the middle of a close.
async fn closing(address: SocketAddr) {
    for again in [true, false] {
        for point in Point::all() {
            let [client, server] = pair(address, &ConnectionConfig::default()).await;
            send(&client, b"last").await;
            let peer = executor::spawn(async move {
                receives(&server, b"last").await;
                assert!(
                    server.recv().await.expect("receive").is_none(),
                    "the connection should have ended"
                );
                server.close(LONG).await.expect("close");
            });
            let closed = until_dropped(client.close(LONG), point).await.is_some();
            if again {
                client.close(LONG).await.expect("close");
            } else {
                in_time(client.flush()).await.ok();
                drop(client);
            }
            in_time(peer).await.expect("the peer should have closed");
            if closed {
                break;
            }
        }
    }
}

async fn aborting(address: SocketAddr) {
    for point in Point::all() {
        let [client, server] = pair(address, &ConnectionConfig::default()).await;
        let aborted = until_dropped(client.abort(), point).await.is_some();
        match point.polls {
            0 => {
                send(&client, b"nothing has happened").await;
                receives(&server, b"nothing has happened").await;
                client.abort().await;
            }
            _ => {
                in_time(client.recv()).await.expect_err("this side should have ended it");
            }
        }
        assert!(
            in_time(server.recv()).await.expect("receive").is_none(),
            "the connection should have ended"
        );
        if aborted {
            break;
        }
    }
}

/// The time for which a server waits for a client that it has accepted.
///
/// The kernel handles arrivals on each processor separately. So the end of a client may overtake its request, and then
/// no event reaches the server.
const SOON: Duration = Duration::from_secs(10);

/// Accepts each request, and waits for the end of its connection.
async fn serve(listener: Arc<Listener>) {
    loop {
        let incoming = listener.accept().await.expect("a request");
        executor::spawn(async move {
            let accepted = incoming.accept(&ConnectionConfig::default(), &[], SOON).await;
            if let Ok(connection) = accepted {
                while let Ok(Some(message)) = connection.recv().await {
                    send(&connection, &message).await;
                }
            }
        });
    }
}

async fn connecting(address: SocketAddr) {
    let listener = Arc::new(Listener::bind(address).expect("listen"));
    let server = listener.local_addr().expect("an IP address");
    let mut serving = executor::spawn(serve(Arc::clone(&listener)));
    let before = objects_at(address);
    for point in Point::all() {
        let connector = Connector::new();
        let connected = until_dropped(Connection::connect(&connector, server), point).await;
        let is_connected = connected.is_some();
        if let Some(connection) = connected {
            let connection = connection.expect("connect");
            send(&connection, b"hello").await;
            receives(&connection, b"hello").await;
        }
        // The objects of both sides are destroyed in the end.
        eventually_as(address, &before).await;
        if is_connected {
            break;
        }
    }
    serving.abort();
}

async fn accepting(address: SocketAddr) {
    let listener = Listener::bind(address).expect("listen");
    let server = listener.local_addr().expect("an IP address");
    let before = objects_at(address);
    for point in Point::all() {
        let client = executor::spawn(async move {
            // The kernel handles arrivals on each processor separately. So the end of the server may overtake its answer,
            // and then only a probe detects it.
            let probed = ConnectionConfig::new().keep_alive_interval(Some(Duration::from_secs(1)));
            let connector = Connector::new().config(probed);
            let connection = Connection::connect(&connector, server).await?;
            // If the connection was accepted and dropped, this call returns its end.
            connection.recv().await.map(drop)
        });
        // A dropped accept loses no request.
        let incoming = match until_dropped(listener.accept(), point).await {
            Some(incoming) => incoming,
            None => in_time(listener.accept()).await,
        };
        let config = ConnectionConfig::default();
        let incoming = incoming.expect("a request");
        let accepting = incoming.accept(&config, &[], LONG);
        let accepted = until_dropped(accepting, point).await.map(|it| it.expect("accept"));
        let is_accepted = accepted.is_some();
        drop(accepted);
        // The client was rejected, or its connection has ended.
        let ended = in_time(client).await.expect("task should not panic");
        assert!(ended.is_ok() || !is_accepted, "{ended:?}");
        eventually_as(address, &before).await;
        if is_accepted {
            break;
        }
    }
}

macro_rules! dropped {
    ($($rxe:ident, $siw:ident: $test:ident;)*) => {$(
        #[test]
        #[ignore = "needs the test bed: cargo xtask test"]
        fn $rxe() {
            on_each_executor(roce(0), || $test(roce(0)));
        }

        #[test]
        #[ignore = "needs the test bed: cargo xtask test"]
        fn $siw() {
            on_each_executor(siw(0), || $test(siw(0)));
        }
    )*};
}

dropped! {
    rxe_dropped_recv_loses_nothing, siw_dropped_recv_loses_nothing: receiving;
    rxe_dropped_acquire_loses_no_buffer, siw_dropped_acquire_loses_no_buffer: taking;
    rxe_dropped_send_completes, siw_dropped_send_completes: sending;
    rxe_dropped_flush_loses_nothing, siw_dropped_flush_loses_nothing: flushing;
    rxe_dropped_remote_operation_completes, siw_dropped_remote_operation_completes: reaching_memory;
    rxe_dropped_close_may_be_repeated, siw_dropped_close_may_be_repeated: closing;
    rxe_dropped_abort_completes, siw_dropped_abort_completes: aborting;
    rxe_dropped_connect_leaves_nothing, siw_dropped_connect_leaves_nothing: connecting;
    rxe_dropped_accept_leaves_nothing, siw_dropped_accept_leaves_nothing: accepting;
}
