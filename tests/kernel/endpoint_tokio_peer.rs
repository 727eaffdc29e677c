//! The safe tier for tasks: a peer that goes while a task waits for it, in whatever call.

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
use rdmacm::endpoint::{self, Buffer, Connector, DatagramSettings, Remote, Rights, Settings};
use rdmacm::verbs::{QpState, WcStatus};
use rdmacm::{Error, ErrorKind, Result};
use tokio::runtime::Builder;

use crate::bed::{LONG, Side, ask, channel, rxe, siw};
use crate::child::in_child;
use crate::endpoint_connect::objects_at;
use crate::endpoint_end::with_low_peer;
use crate::endpoint_keep_alive::Cut;
use crate::endpoint_tokio::{filled, pair};
use crate::executor::{self, Task, in_time, on_each_executor, tokios};
use crate::modify::bring;
use crate::removal::Own;

type Ends<T> = Pin<Box<dyn Future<Output = Result<T>> + Send>>;

/// What a task waits for.
pub(crate) type Call = fn(Arc<Connection>, Remote) -> Ends<()>;

/// One byte.
async fn one(connection: &Connection) -> Result<Buffer> {
    let mut buffer = connection.buffer().await?;
    buffer.set_len(1)?;
    Ok(buffer)
}

/// What comes of `call` without waiting.
async fn at_once<F: Future>(call: F) -> Poll<F::Output> {
    let mut call = pin!(call);
    poll_fn(|context| Poll::Ready(call.as_mut().poll(context))).await
}

/// All calls that wait for a peer which takes nothing.
pub(crate) const CALLS: [(&str, Call); 10] = [
    ("recv", |connection, _| {
        Box::pin(async move {
            assert!(connection.recv().await?.is_none(), "it has sent nothing");
            Ok(())
        })
    }),
    ("buffer", |connection, _| {
        Box::pin(async move {
            let mut taken = Vec::new();
            for _ in 0..=Settings::default().send_buffers {
                taken.push(connection.buffer().await?);
            }
            Ok(())
        })
    }),
    ("post_bytes", |connection, _| {
        Box::pin(async move {
            let mut taken = Vec::new();
            while let Poll::Ready(buffer) = at_once(connection.buffer()).await {
                taken.push(buffer?);
            }
            // A buffer may come back.
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

/// Those of them that do not need a peer which has taken what was sent before: on iWARP a message that finds no buffer is the end.
pub(crate) const IDLE: &[(&str, Call)] = CALLS.split_at(3).0;

/// Something of the peer's, which it comes to only when it takes messages.
fn theirs() -> Remote {
    Remote::new(0x1000, 1, 8, Rights::all()).expect("it may be")
}

pub(crate) const SILENCE: ErrorKind = ErrorKind::Failed(WcStatus::IB_WC_RETRY_EXC_ERR);

/// Begins a call, which must wait; what comes of it.
pub(crate) async fn waits<T: Send + 'static>(mut call: Ends<T>) -> Task<Result<T>> {
    let first = poll_fn(|context| Poll::Ready(call.as_mut().poll(context).map(drop)));
    assert!(first.await.is_pending(), "it waits for nobody");
    executor::spawn(call)
}

/// Calls that wait, each for what it is to say.
pub(crate) type Waiters = Vec<(&'static str, Task<Result<()>>)>;

/// Has each of `calls` wait on its connection, whose peer does not take two messages (if it can be sent such).
pub(crate) async fn wait_in_every_call(
    calls: &[(&'static str, Call)],
    connections: Vec<Connection>,
    sends: bool,
) -> Waiters {
    let mut waiters = Vec::new();
    for ((name, call), connection) in calls.iter().zip(connections) {
        if sends {
            for _ in 0..2 {
                connection.post(filled(&connection, b"nobody takes it").await).expect("post");
            }
        }
        waiters.push((*name, waits(call(Arc::new(connection), theirs())).await));
    }
    waiters
}

/// Each of them is to say one of `ends`, or that there are no more messages.
pub(crate) async fn end(waiters: Waiters, ends: &[ErrorKind]) {
    for (name, waiter) in waiters {
        match in_time(waiter).await.expect("it lives") {
            Ok(()) => assert_eq!(name, "recv"),
            Err(error) => assert!(ends.contains(error.kind()), "{name}: {error}"),
        }
    }
}

/// Has them wait until `goes` is done.
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

/// A connection whose peer is on the other level, for each of the calls.
async fn with_low_peers() -> (Vec<Connection>, Vec<Side>) {
    let make = || CALLS.iter().map(|_| with_low_peer(None)).unzip();
    let (connections, peers): (Vec<_>, Vec<_>) =
        executor::spawn_blocking(make).await.expect("they are made");
    let connections = connections.into_iter().map(Connection::from_blocking);
    (connections.map(|made| made.expect("it is watched")).collect(), peers)
}

#[test]
#[ignore = "needs the test bed: cargo xtask test"]
fn the_peer_ends_it() {
    on_each_executor(rxe(0), || async {
        let (connections, peers) = with_low_peers().await;
        let goes = async { executor::spawn_blocking(|| drop(peers)).await.expect("they go") };
        let ends = [ErrorKind::Disconnected, SILENCE];
        from_every_call(&CALLS, connections, true, &ends, goes).await;
    });
}

#[test]
#[ignore = "needs the test bed: cargo xtask test"]
fn the_peer_falls_silent() {
    on_each_executor(rxe(0), || async {
        let (connections, peers) = with_low_peers().await;
        let goes =
            async { peers.iter().for_each(|peer| bring(peer.io.qp(), QpState::IB_QPS_RESET)) };
        from_every_call(&CALLS, connections, true, &[SILENCE], goes).await;
        drop(peers);
    });
}

/// Runs as a process of its own: takes `count` connections, and one more request that it does not answer, and lives until it hears
/// something.
fn lives_and_dies(mut tells: UnixStream, address: SocketAddr, count: usize) {
    let listener = endpoint::Listener::bind(address).expect("listen");
    let port = listener.local_addr().expect("an IP address").port();
    tells.write_all(&port.to_ne_bytes()).expect("tell");
    let settings = Settings { receive_buffers: 1, ..Settings::default() };
    let accept = |_| {
        let incoming = listener.incoming_timeout(LONG).expect("a request");
        incoming.accept(&settings, &[], LONG).expect("accept")
    };
    let accepted: Vec<_> = (0..count).map(accept).collect();
    let unanswered = listener.incoming_timeout(LONG).expect("a request");
    tells.write_all(&[1]).expect("tell");
    // This process has the other end too, and hears of no end.
    tells.set_read_timeout(Some(LONG)).expect("set a deadline");
    tells.read_exact(&mut [0]).expect("hear");
    // Nothing of it is ended by the process.
    mem::forget((listener, accepted, unanswered));
}

/// A process that is killed, for all that is seen of it: its kernel takes everything away at once.
fn the_peers_process_dies(address: SocketAddr, calls: &'static [(&'static str, Call)]) {
    let before = objects_at(address);
    for runtime in tokios() {
        let (mut ours, theirs) = UnixStream::pair().expect("socket pair");
        thread::scope(|scope| {
            let child =
                scope.spawn(move || in_child(|| lives_and_dies(theirs, address, calls.len())));
            let mut port = [0; 2];
            ours.read_exact(&mut port).expect("it listens");
            let server = SocketAddr::new(address.ip(), u16::from_ne_bytes(port));
            let test = runtime.spawn(async move {
                let settings = Settings { retry_count: 2, ..Settings::default() };
                // A quarter of a second, three times: so long the calls wait, however busy the machine is.
                let connector = Connector::new().ack_timeout(16).settings(settings);
                let mut connections = Vec::new();
                for _ in calls {
                    let connected = in_time(Connection::connect(&connector, server)).await;
                    connections.push(connected.expect("connect"));
                }
                let connecting = async move { Connection::connect(&connector, server).await };
                let connecting = waits(Box::pin(connecting)).await;
                let goes = async {
                    let dies = move || {
                        ours.read_exact(&mut [0]).expect("it has the last request");
                        ours.write_all(&[1]).expect("tell");
                    };
                    executor::spawn_blocking(dies).await.expect("it dies");
                };
                let sends = address.ip() != siw(0).ip();
                let ends = [ErrorKind::Disconnected, SILENCE];
                from_every_call(calls, connections, sends, &ends, goes).await;
                was_refused(&in_time(connecting).await.expect("it lives").expect_err("nobody"));
            });
            runtime.block_on(test).expect("the test has ended well");
            child.join().expect("the child has ended well");
        });
        drop(runtime);
        assert_eq!(objects_at(address), before);
    }
}

/// That the peer, or its kernel, has said no.
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
fn rxe_the_peers_process_dies() {
    the_peers_process_dies(rxe(0), &CALLS);
}

#[test]
#[ignore = "needs the test bed: cargo xtask test"]
fn siw_the_peers_process_dies() {
    the_peers_process_dies(siw(0), IDLE);
}

/// TCP gives up, when it has something to send: of an idle connection what looks after the peer.
#[test]
#[ignore = "needs the test bed: cargo xtask test"]
fn siw_the_wire_is_cut() {
    on_each_executor(siw(0), || async {
        let keep_alive = Some(Duration::from_millis(1));
        let looks = Settings { keep_alive, ..Settings::default() };
        let (mut idle, mut peers) = (Vec::new(), Vec::new());
        for _ in IDLE {
            let [client, server] = pair(siw(0), &looks).await;
            idle.push(client);
            peers.push(server);
        }
        let [asks, _peer] = pair(siw(0), &Settings::default()).await;
        let idle = wait_in_every_call(IDLE, idle, false).await;
        let cut = Cut::new();
        let read: Vec<_> = CALLS.into_iter().filter(|(name, _)| *name == "read").collect();
        let asking = wait_in_every_call(&read, vec![asks], false).await;
        end(idle, &[ErrorKind::Disconnected]).await;
        end(asking, &[ErrorKind::Disconnected]).await;
        drop(cut);
    });
}

/// Closing waits for the peer's answer when all was sent; that the peer is gone is one too.
fn instead_of_answering(address: SocketAddr) {
    on_each_executor(address, move || async move {
        let [client, server] = pair(address, &Settings::default()).await;
        client.send(filled(&client, b"taken").await).await.expect("send");
        let closing = async move { client.close(LONG).await };
        // On iWARP nobody answers.
        let closing = executor::spawn(closing);
        executor::yield_now().await;
        drop(server.into_blocking());
        in_time(closing).await.expect("it lives").expect("nothing was lost");
    });
}

#[test]
#[ignore = "needs the test bed: cargo xtask test"]
fn rxe_the_peer_ends_it_instead_of_answering() {
    instead_of_answering(rxe(0));
}

#[test]
#[ignore = "needs the test bed: cargo xtask test"]
fn siw_the_peer_ends_it_instead_of_answering() {
    instead_of_answering(siw(0));
}

/// The request is dropped by who has taken it, or with the listener.
fn instead_of_accepting(address: SocketAddr) {
    on_each_executor(address, move || async move {
        for is_taken in [true, false] {
            let listener = Listener::bind(address).expect("listen");
            let server = listener.local_addr().expect("an IP address");
            let connect = async move { Connection::connect(&Connector::new(), server).await };
            let connecting = waits(Box::pin(connect)).await;
            let readable = |listener: endpoint::Listener| {
                is_readable(&listener);
                listener
            };
            let listener = listener.into_blocking();
            let listener =
                executor::spawn_blocking(move || readable(listener)).await.expect("it asks");
            if is_taken {
                drop(listener.incoming().expect("a request"));
            }
            drop(listener);
            was_refused(&in_time(connecting).await.expect("it lives").expect_err("refused"));
        }
    });
}

#[test]
#[ignore = "needs the test bed: cargo xtask test"]
fn rxe_the_peer_goes_instead_of_accepting() {
    instead_of_accepting(rxe(0));
}

#[test]
#[ignore = "needs the test bed: cargo xtask test"]
fn siw_the_peer_goes_instead_of_accepting() {
    instead_of_accepting(siw(0));
}

/// Waits until there is something to read.
fn is_readable(fd: &impl AsFd) {
    let mut fds = [PollFd::new(fd.as_fd(), PollFlags::POLLIN)];
    let long = PollTimeout::try_from(LONG).expect("it fits");
    assert!(poll(&mut fds, long).expect("poll") > 0, "nothing comes");
}

async fn accept(incoming: Incoming) -> Result<Connection> {
    incoming.accept(&Settings::default(), &[], LONG).await
}

/// A peer that asks, and is gone before it has heard the answer, or before anybody has looked at its request: that ends the
/// attempt to accept it, and nothing else.
#[test]
#[ignore = "needs the test bed: cargo xtask test"]
fn the_peer_asks_and_goes() {
    on_each_executor(rxe(0), || async {
        let listener = Arc::new(Listener::bind(rxe(0)).expect("listen"));
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
            let (answers, side) = executor::spawn_blocking(asks).await.expect("it asks");
            let incoming = in_time(listening).await.expect("it lives").expect("a request");
            let Side { id, io } = side;
            let goes = move || {
                if is_answered {
                    // Which the side does not read, and so does not answer.
                    is_readable(&answers);
                }
                CmId::destroy(id).expect("destroy");
                drop((io, answers));
            };
            let goes = if is_answered {
                executor::spawn_blocking(goes)
            } else {
                executor::spawn_blocking(goes).await.expect("it goes");
                executor::spawn_blocking(|| {})
            };
            let error = in_time(accept(incoming)).await.map(drop);
            goes.await.expect("it goes");
            // Accepted a moment before: then the connection has ended.
            if let Err(error) = error {
                assert_ne!(*error.kind(), ErrorKind::TimedOut, "{error}");
            }
        }
        // The listener goes on.
        let connect = async move { Connection::connect(&Connector::new(), server).await };
        let connecting = executor::spawn(connect);
        let incoming = in_time(listener.accept()).await.expect("a request");
        let accepted = in_time(accept(incoming)).await.expect("accept");
        drop(in_time(connecting).await.expect("it lives").expect("connect"));
        assert!(in_time(accepted.recv()).await.expect("receive").is_none(), "the end");
    });
}

/// What becomes of all that a task may wait for, when the device goes.
#[test]
#[ignore = "needs the test bed: cargo xtask test"]
fn the_device_goes() {
    let own = Own::rxe();
    let address = own.address;
    let runtime = Builder::new_current_thread().enable_all().build().expect("a runtime");
    let deletion = runtime.block_on(async {
        let [client, server] = pair(address, &Settings::default()).await.map(Arc::new);
        let listener = Listener::bind(address).expect("listen");
        let settings = DatagramSettings::default();
        let socket = Arc::new(DatagramSocket::bind(address, &settings).await.expect("bind"));
        let silent = DatagramSocket::bind(address, &settings).await.expect("bind");
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
        let unresolved = in_time(resolving).await.expect("it lives").expect_err("no device");
        // The peer may be the first to lose it: then nobody listens there.
        let is_known = matches!(unresolved.kind(), ErrorKind::DeviceGone(_))
            || *unresolved.kind() == ErrorKind::Unreachable(1);
        assert!(is_known, "{unresolved}");
        for waiter in waiters {
            let error = in_time(waiter).await.expect("it lives").expect_err("the device is gone");
            assert!(matches!(error.kind(), ErrorKind::DeviceGone(_)), "{error}");
        }
        let group = SocketAddr::from(([239, 1, 7, 1], 0));
        for result in [
            in_time(server.flush()).await,
            in_time(silent.buffer()).await.map(drop),
            in_time(silent.join_multicast(group, Membership::Full)).await.map(drop),
        ] {
            if let Err(error) = result {
                assert!(matches!(error.kind(), ErrorKind::DeviceGone(_)), "{error}");
            }
        }
        deletion
    });
    drop(runtime);
    deletion.finish();
    own.comes_back();
}
