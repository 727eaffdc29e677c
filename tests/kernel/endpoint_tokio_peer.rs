//! The safe tier for tasks: a peer ends while a task waits for it, in each call.

use std::future::{Future, poll_fn};
use std::io::{Read, Write};
use std::mem;
use std::net::SocketAddr;
use std::os::fd::AsFd;
use std::os::unix::net::UnixStream;
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::task::Poll;
use std::thread;
use std::time::Duration;

use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use rdmacm::cm::{CmId, ConnParam, Membership};
use rdmacm::endpoint::tokio::{Connection, DatagramSocket, Incoming, Listener};
use rdmacm::endpoint::{
    self, Buffer, ConnectionConfig, Connector, DatagramConfig, RemoteAccess, RemoteMemory,
};
use rdmacm::verbs::{QpState, WcStatus};
use rdmacm::{Error, ErrorKind, Result};
use tokio::runtime::Builder;

use crate::child::in_child;
use crate::endpoint_close::with_low_peer;
use crate::endpoint_connect::objects_at;
use crate::endpoint_keep_alive::Cut;
use crate::endpoint_tokio::{filled, pair};
use crate::executor::{self, Task, in_time, named_in_time, on_each_executor, tokios};
use crate::fixtures::{DEFAULT_SEND_BUFFERS, LONG, NO_LISTENER, Side, ask, channel, roce, siw};
use crate::modify::bring;
use crate::removal::Own;

type Ends<T> = Pin<Box<dyn Future<Output = Result<T>> + Send>>;

/// A call in which a task waits for the peer.
pub(crate) type Call = fn(Arc<Connection>, RemoteMemory) -> Ends<()>;

/// Returns a buffer with one byte.
async fn one(connection: &Connection) -> Result<Buffer> {
    let mut buffer = connection.acquire_buffer().await?;
    buffer.set_len(1)?;
    Ok(buffer)
}

/// Polls `call` once, without waiting.
async fn at_once<F: Future>(call: F) -> Poll<F::Output> {
    let mut call = pin!(call);
    poll_fn(|context| Poll::Ready(call.as_mut().poll(context))).await
}

/// All calls that wait for a peer without posted receives.
pub(crate) const CALLS: [(&str, Call); 10] = [
    ("recv", |connection, _| {
        Box::pin(async move {
            assert!(connection.recv().await?.is_none(), "the peer should have sent nothing");
            Ok(())
        })
    }),
    ("buffer", |connection, _| {
        Box::pin(async move {
            let mut taken = Vec::new();
            for _ in 0..=DEFAULT_SEND_BUFFERS {
                taken.push(connection.acquire_buffer().await?);
            }
            Ok(())
        })
    }),
    ("post_bytes", |connection, _| {
        Box::pin(async move {
            let mut taken = Vec::new();
            while let Poll::Ready(buffer) = at_once(connection.acquire_buffer()).await {
                taken.push(buffer?);
            }
            // A sent buffer may return.
            loop {
                connection.post_bytes(b"x").await?;
            }
        })
    }),
    ("send", |connection, _| {
        Box::pin(async move {
            let buffer = one(&connection).await?;
            connection.send(buffer).await.map(drop)
        })
    }),
    ("flush", |connection, _| Box::pin(async move { connection.flush().await })),
    ("write", |connection, theirs| {
        Box::pin(async move {
            let buffer = one(&connection).await?;
            connection.write(buffer, &theirs, 0).await.map(drop)
        })
    }),
    ("read", |connection, theirs| {
        Box::pin(async move {
            let buffer = one(&connection).await?;
            connection.read(buffer, &theirs, 0).await.map(drop)
        })
    }),
    ("compare_swap", |connection, theirs| {
        Box::pin(async move { connection.compare_swap(&theirs, 0, 1, 2).await.map(drop) })
    }),
    ("fetch_add", |connection, theirs| {
        Box::pin(async move { connection.fetch_add(&theirs, 0, 1).await.map(drop) })
    }),
    ("close", |connection, _| Box::pin(async move { connection.close(LONG).await })),
];

/// Calls for which the peer need not have received earlier messages.
///
/// On iWARP a message without a receive ends the connection.
pub(crate) const IDLE: &[(&str, Call)] = CALLS.split_at(3).0;

/// Returns remote memory that the peer can access only if it receives messages.
fn theirs() -> RemoteMemory {
    RemoteMemory::new(0x1000, 1, 8, RemoteAccess::all()).expect("the address should be valid")
}

pub(crate) const SILENCE: ErrorKind = ErrorKind::WorkRequestFailed(WcStatus::IB_WC_RETRY_EXC_ERR);

/// Begins a call, which must wait, and returns the task that awaits its result.
pub(crate) async fn waits<T: Send + 'static>(mut call: Ends<T>) -> Task<Result<T>> {
    let first = poll_fn(|context| Poll::Ready(call.as_mut().poll(context).map(drop)));
    assert!(first.await.is_pending(), "call should be pending");
    executor::spawn(call)
}

/// Waiting calls with their names.
pub(crate) type Waiters = Vec<(&'static str, Task<Result<()>>)>;

/// Makes each of `calls` wait on its connection.
///
/// If `sends`, two messages are sent before, which the peer does not receive.
pub(crate) async fn wait_in_every_call(
    calls: &[(&'static str, Call)],
    connections: Vec<Connection>,
    sends: bool,
) -> Waiters {
    let mut waiters = Vec::new();
    for ((name, call), connection) in calls.iter().zip(connections) {
        if sends {
            for _ in 0..2 {
                connection.post_send(filled(&connection, b"without receive").await).expect("post");
            }
        }
        waiters.push((*name, waits(call(Arc::new(connection), theirs())).await));
    }
    waiters
}

/// Asserts that each call returns one of `ends`, or the end of the messages.
pub(crate) async fn end(waiters: Waiters, ends: &[ErrorKind]) {
    end_by(waiters, |kind| ends.contains(kind)).await;
}

/// Asserts that each call returns an expected kind of error, or the end of the messages.
pub(crate) async fn end_by(waiters: Waiters, is_expected: impl Fn(&ErrorKind) -> bool) {
    for (name, waiter) in waiters {
        match named_in_time(name, waiter).await.expect("task should not panic") {
            Ok(()) => assert_eq!(name, "recv"),
            Err(error) => assert!(is_expected(error.kind()), "{name}: {error}"),
        }
    }
}

/// Makes all calls wait, then awaits `goes`, and checks the results.
async fn from_every_call(
    calls: &[(&'static str, Call)],
    connections: Vec<Connection>,
    sends: bool,
    ends: &[ErrorKind],
    goes: impl Future<Output = ()>,
) {
    let waiters = wait_in_every_call(calls, connections, sends).await;
    goes.await;
    end(waiters, ends).await;
}

/// Returns a connection for each call. The peers use the low-level interface.
async fn with_low_peers() -> (Vec<Connection>, Vec<Side>) {
    let make = || CALLS.iter().map(|_| with_low_peer(None)).unzip();
    let (connections, peers): (Vec<_>, Vec<_>) =
        executor::spawn_blocking(make).await.expect("blocking task should not panic");
    let connections = connections.into_iter().map(Connection::from_blocking);
    (
        connections.map(|made| made.expect("the runtime should watch the connection")).collect(),
        peers,
    )
}

#[test]
#[ignore = "needs the test bed: cargo xtask test"]
fn disconnect_by_peer_ends_every_task() {
    on_each_executor(roce(0), || async {
        let (connections, peers) = with_low_peers().await;
        let goes = async {
            executor::spawn_blocking(|| drop(peers))
                .await
                .expect("dropping the peers should not panic")
        };
        let ends = [ErrorKind::Disconnected, SILENCE];
        from_every_call(&CALLS, connections, true, &ends, goes).await;
    });
}

#[test]
#[ignore = "needs the test bed: cargo xtask test"]
fn silent_peer_ends_every_task() {
    on_each_executor(roce(0), || async {
        let (connections, peers) = with_low_peers().await;
        let goes =
            async { peers.iter().for_each(|peer| bring(peer.io.qp(), QpState::IB_QPS_RESET)) };
        from_every_call(&CALLS, connections, true, &[SILENCE], goes).await;
        drop(peers);
    });
}

/// Runs in a separate process that accepts `count` connections.
///
/// The process leaves one more request without an answer, and runs until the test sends a byte.
fn serve_until_byte(mut control: UnixStream, address: SocketAddr, count: usize) {
    let listener = endpoint::Listener::bind(address).expect("listen");
    let port = listener.local_addr().expect("an IP address").port();
    control.write_all(&port.to_ne_bytes()).expect("write to the test");
    let config = ConnectionConfig::new().receive_buffers(1);
    let accept = |_| {
        let incoming = listener.accept_timeout(LONG).expect("a request");
        incoming.accept(&config, &[], LONG).expect("accept")
    };
    let accepted: Vec<_> = (0..count).map(accept).collect();
    let unanswered = listener.accept_timeout(LONG).expect("a request");
    control.write_all(&[1]).expect("write to the test");
    // This process has a copy of the other end, so its read would never find an end of file.
    control.set_read_timeout(Some(LONG)).expect("set a deadline");
    control.read_exact(&mut [0]).expect("read from the test");
    // The process ends no object itself.
    mem::forget((listener, accepted, unanswered));
}

/// Ends the peer process as if it were killed: the kernel releases all its objects at once.
fn killed_peer_process_ends_every_task(
    address: SocketAddr,
    calls: &'static [(&'static str, Call)],
) {
    let before = objects_at(address);
    for runtime in tokios() {
        let (mut ours, theirs) = UnixStream::pair().expect("socket pair");
        thread::scope(|scope| {
            let child =
                scope.spawn(move || in_child(|| serve_until_byte(theirs, address, calls.len())));
            let mut port = [0; 2];
            ours.read_exact(&mut port).expect("the process should listen");
            let server = SocketAddr::new(address.ip(), u16::from_ne_bytes(port));
            let test = runtime.spawn(async move {
                let config = ConnectionConfig::new().retry_count(2);
                // The calls wait a quarter of a second, three times, on a machine of any speed.
                let connector = Connector::new().ack_timeout(16).config(config);
                let mut connections = Vec::new();
                for _ in calls {
                    let connected = in_time(Connection::connect(&connector, server)).await;
                    connections.push(connected.expect("connect"));
                }
                let connecting = async move { Connection::connect(&connector, server).await };
                let connecting = waits(Box::pin(connecting)).await;
                let goes = async {
                    let dies = move || {
                        ours.read_exact(&mut [0])
                            .expect("the process should have the last request");
                        ours.write_all(&[1]).expect("write to the test");
                    };
                    executor::spawn_blocking(dies).await.expect("blocking task should not panic");
                };
                let sends = address.ip() != siw(0).ip();
                let ends = [ErrorKind::Disconnected, SILENCE];
                from_every_call(calls, connections, sends, &ends, goes).await;
                was_refused(
                    &in_time(connecting)
                        .await
                        .expect("task should not panic")
                        .expect_err("no peer should answer"),
                );
            });
            runtime.block_on(test).expect("the task of the test should not panic");
            child.join().expect("the child should not panic");
        });
        drop(runtime);
        assert_eq!(objects_at(address), before);
    }
}

/// Checks that the peer, or its kernel, has rejected the request.
#[track_caller]
fn was_refused(error: &Error) {
    let is_refused = match error.kind() {
        ErrorKind::Rejected(_) => true,
        _ => [libc::ECONNREFUSED, libc::ECONNRESET].contains(&error.errno()),
    };
    assert!(is_refused, "{error}");
}

#[test]
#[ignore = "needs the test bed: cargo xtask test"]
fn rxe_killed_peer_process_ends_every_task() {
    killed_peer_process_ends_every_task(roce(0), &CALLS);
}

#[test]
#[ignore = "needs the test bed: cargo xtask test"]
fn siw_killed_peer_process_ends_every_task() {
    killed_peer_process_ends_every_task(siw(0), IDLE);
}

/// Cuts the wire. TCP gives up only if it has data to send: on an idle connection, a probe.
#[test]
#[ignore = "needs the test bed: cargo xtask test"]
fn siw_cut_wire_ends_every_task() {
    on_each_executor(siw(0), || async {
        let keep_alive = Some(Duration::from_millis(1));
        let looks = ConnectionConfig::new().keep_alive_interval(keep_alive);
        let (mut idle, mut peers) = (Vec::new(), Vec::new());
        for _ in IDLE {
            let [client, server] = pair(siw(0), &looks).await;
            idle.push(client);
            peers.push(server);
        }
        let [asks, _peer] = pair(siw(0), &ConnectionConfig::default()).await;
        let idle = wait_in_every_call(IDLE, idle, false).await;
        let cut = Cut::new();
        let read: Vec<_> = CALLS.into_iter().filter(|(name, _)| *name == "read").collect();
        let asking = wait_in_every_call(&read, vec![asks], false).await;
        end(idle, &[ErrorKind::Disconnected]).await;
        end(asking, &[ErrorKind::Disconnected]).await;
        drop(cut);
    });
}

/// Ends the peer while a close waits for its answer. The end counts as an answer.
fn instead_of_answering(address: SocketAddr) {
    on_each_executor(address, move || async move {
        let [client, server] = pair(address, &ConnectionConfig::default()).await;
        client.send(filled(&client, b"taken").await).await.expect("send");
        let closing = async move { client.close(LONG).await };
        // On iWARP no answer arrives.
        let closing = executor::spawn(closing);
        executor::yield_now().await;
        drop(server.into_blocking());
        in_time(closing).await.expect("task should not panic").expect("no message should be lost");
    });
}

#[test]
#[ignore = "needs the test bed: cargo xtask test"]
fn rxe_close_succeeds_when_peer_leaves_unanswered() {
    instead_of_answering(roce(0));
}

#[test]
#[ignore = "needs the test bed: cargo xtask test"]
fn siw_close_succeeds_when_peer_leaves_unanswered() {
    instead_of_answering(siw(0));
}

/// Drops the request after the peer accepted it from the listener, or drops the listener.
fn instead_of_accepting(address: SocketAddr) {
    on_each_executor(address, move || async move {
        for is_taken in [true, false] {
            let listener = Listener::bind(address).expect("listen");
            let server = listener.local_addr().expect("an IP address");
            let connect = async move { Connection::connect(&Connector::new(), server).await };
            let connecting = waits(Box::pin(connect)).await;
            let readable = |listener: endpoint::Listener| {
                wait_until_readable(&listener);
                listener
            };
            let listener = listener.into_blocking();
            let listener = executor::spawn_blocking(move || readable(listener))
                .await
                .expect("blocking task should not panic");
            if is_taken {
                drop(listener.accept().expect("a request"));
            }
            drop(listener);
            was_refused(
                &in_time(connecting)
                    .await
                    .expect("task should not panic")
                    .expect_err("the request should be refused"),
            );
        }
    });
}

#[test]
#[ignore = "needs the test bed: cargo xtask test"]
fn rxe_connect_fails_when_peer_leaves() {
    instead_of_accepting(roce(0));
}

#[test]
#[ignore = "needs the test bed: cargo xtask test"]
fn siw_connect_fails_when_peer_leaves() {
    instead_of_accepting(siw(0));
}

/// Waits until `fd` is readable.
fn wait_until_readable(fd: &impl AsFd) {
    let mut fds = [PollFd::new(fd.as_fd(), PollFlags::POLLIN)];
    let long = PollTimeout::try_from(LONG).expect("the timeout should fit");
    assert!(poll(&mut fds, long).expect("poll") > 0, "the descriptor should become readable");
}

async fn accept(incoming: Incoming) -> Result<Connection> {
    incoming.accept(&ConnectionConfig::default(), &[], LONG).await
}

/// Checks that only the accept fails if the peer leaves before its request is read or answered.
#[test]
#[ignore = "needs the test bed: cargo xtask test"]
fn late_accept_fails_when_peer_left() {
    on_each_executor(roce(0), || async {
        let listener = Arc::new(Listener::bind(roce(0)).expect("listen"));
        let server = listener.local_addr().expect("an IP address");
        let asks = move || {
            let channel = channel();
            let side = ask(&channel, server, &ConnParam::default());
            (channel, side)
        };
        for is_answered in [true, false] {
            let listens = Arc::clone(&listener);
            let listens = async move { listens.accept().await };
            let listening = waits(Box::pin(listens)).await;
            let (answers, side) =
                executor::spawn_blocking(asks).await.expect("blocking task should not panic");
            let incoming =
                in_time(listening).await.expect("task should not panic").expect("a request");
            let Side { id, io } = side;
            let goes = move || {
                if is_answered {
                    // The peer does not read the answer, and so does not confirm it.
                    wait_until_readable(&answers);
                }
                CmId::destroy(id).expect("destroy");
                drop((io, answers));
            };
            let goes = if is_answered {
                executor::spawn_blocking(goes)
            } else {
                executor::spawn_blocking(goes).await.expect("blocking task should not panic");
                executor::spawn_blocking(|| {})
            };
            let error = in_time(accept(incoming)).await.map(drop);
            goes.await.expect("blocking task should not panic");
            // The accept may have succeeded before. Then the connection has ended.
            if let Err(error) = error {
                assert_ne!(*error.kind(), ErrorKind::TimedOut, "{error}");
            }
        }
        // The listener still accepts.
        let connect = async move { Connection::connect(&Connector::new(), server).await };
        let connecting = executor::spawn(connect);
        let incoming = in_time(listener.accept()).await.expect("a request");
        let accepted = in_time(accept(incoming)).await.expect("accept");
        drop(in_time(connecting).await.expect("task should not panic").expect("connect"));
        assert!(
            in_time(accepted.recv()).await.expect("receive").is_none(),
            "the connection should have ended"
        );
    });
}

/// Checks that each call in which a task may wait ends when the device is removed.
#[test]
#[ignore = "needs the test bed: cargo xtask test"]
fn device_removal_ends_every_task() {
    let own = Own::roce();
    let address = own.address;
    let runtime = Builder::new_current_thread().enable_all().build().expect("a runtime");
    let deletion = runtime.block_on(async {
        let [client, server] = pair(address, &ConnectionConfig::default()).await.map(Arc::new);
        let listener = Listener::bind(address).expect("listen");
        let config = DatagramConfig::default();
        let socket = Arc::new(DatagramSocket::bind(address, &config).await.expect("bind"));
        let silent = DatagramSocket::bind(address, &config).await.expect("bind");
        let at = silent.local_addr().expect("an IP address");
        let mut waiters = Vec::new();
        for (_, call) in IDLE {
            waiters.push(waits(call(Arc::clone(&client), theirs())).await);
        }
        let receives = Arc::clone(&socket);
        let resolves = Arc::clone(&socket);
        let calls: [Ends<()>; 2] = [
            Box::pin(async move { listener.accept().await.map(drop) }),
            Box::pin(async move { receives.recv_from().await.map(drop) }),
        ];
        for call in calls {
            waiters.push(waits(call).await);
        }
        let resolving = async move { resolves.resolve_peer(at).await.map(drop) };
        let resolving = waits(Box::pin(resolving)).await;
        let deletion = own.delete();
        let unresolved = in_time(resolving)
            .await
            .expect("task should not panic")
            .expect_err("the resolution should fail");
        // The peer may lose the device first. Then the address has no listener.
        let is_known = matches!(unresolved.kind(), ErrorKind::DeviceRemoved(_))
            || *unresolved.kind() == ErrorKind::Unreachable(NO_LISTENER);
        assert!(is_known, "{unresolved}");
        for waiter in waiters {
            let error = in_time(waiter)
                .await
                .expect("task should not panic")
                .expect_err("device should be removed");
            assert!(matches!(error.kind(), ErrorKind::DeviceRemoved(_)), "{error}");
        }
        let group = SocketAddr::from(([239, 1, 7, 1], 0));
        for result in [
            in_time(server.flush()).await,
            in_time(silent.acquire_buffer()).await.map(drop),
            in_time(silent.join_multicast(group, Membership::Full)).await.map(drop),
        ] {
            if let Err(error) = result {
                assert!(matches!(error.kind(), ErrorKind::DeviceRemoved(_)), "{error}");
            }
        }
        deletion
    });
    drop(runtime);
    deletion.finish();
    own.comes_back();
}
