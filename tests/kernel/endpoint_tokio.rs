//! Connections of tasks: messages, clones, deadlines and ends, on each executor.

use std::future::{Future, IntoFuture};
use std::net::SocketAddr;
use std::pin::{Pin, pin};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, mpsc};
use std::task::{Context, Wake, Waker};
use std::thread;
use std::time::Duration;

use rdmacm::ErrorKind;
use rdmacm::device::Resources;
use rdmacm::endpoint::tokio::{Connection, Listener};
use rdmacm::endpoint::{Buffer, Connector, Memory, Rights, Settings};
use tokio::runtime::Builder;
use tokio::task;

use crate::bed::{LONG, assert_invalid, rxe, siw};
use crate::endpoint_connect::{self, objects_at};
use crate::endpoint_messages;
use crate::executor::{self, in_time, on_each_executor, tokios};

/// A connection within this process: the side that connected, and the one that accepted.
pub(crate) async fn pair(address: SocketAddr, settings: &Settings) -> [Connection; 2] {
    let listener = Listener::bind(address).expect("listen");
    let server = listener.local_addr().expect("an IP address");
    let theirs = settings.clone();
    let accepting = executor::spawn(async move {
        let incoming = listener.accept().await.expect("a request");
        // It goes here and now, and not when there is a thread for it.
        drop(listener.into_blocking());
        incoming.accept(&theirs, b"pong", LONG).await.expect("accept")
    });
    let connector = Connector::new().settings(settings.clone()).timeout(LONG);
    let client = Connection::connect(&connector, server).await.expect("connect");
    [client, accepting.await.expect("it has accepted")]
}

/// A buffer with `bytes`.
pub(crate) async fn filled(connection: &Connection, bytes: &[u8]) -> Buffer {
    let mut buffer = connection.buffer().await.expect("a buffer");
    buffer.copy_from(bytes).expect("it fits");
    buffer
}

/// Sends a message.
pub(crate) async fn send(connection: &Connection, bytes: &[u8]) {
    connection.post(filled(connection, bytes).await).expect("post");
}

/// Receives a message, which must be `bytes`.
pub(crate) async fn receives(connection: &Connection, bytes: &[u8]) {
    let message = in_time(connection.recv()).await.expect("receive").expect("a message");
    assert!(*message == *bytes, "{message:?} is not what was sent");
}

fn messages_go_both_ways(address: SocketAddr) {
    on_each_executor(address, move || async move {
        let [client, server] = pair(address, &Settings::default()).await;
        assert_eq!(
            (client.peer_addr(), client.local_addr()),
            (server.local_addr(), server.peer_addr())
        );
        assert!(client.private_data().starts_with(b"pong"));
        for number in 0..20 {
            let text = [number; 100];
            let buffer = in_time(client.send(filled(&client, &text).await)).await.expect("send");
            assert_eq!((buffer.len(), &buffer[..100]), (4096, &text[..]), "all of it is back");
            drop(buffer);
            receives(&server, &text).await;
            send(&server, &text).await;
            receives(&client, &text).await;
        }
        in_time(server.flush()).await.expect("flush");
        // The peer goes on for as long as there are messages, and hears of the end after them.
        send(&client, b"last").await;
        let closing = executor::spawn(async move { client.close(LONG).await });
        receives(&server, b"last").await;
        assert!(in_time(server.recv()).await.expect("receive").is_none(), "the end");
        in_time(closing).await.expect("it lives").expect("close");
        server.close(LONG).await.expect("close");
    });
}

#[test]
#[ignore = "needs the test bed: cargo xtask test"]
fn rxe_tasks_exchange_messages() {
    messages_go_both_ways(rxe(0));
}

#[test]
#[ignore = "needs the test bed: cargo xtask test"]
fn siw_tasks_exchange_messages() {
    messages_go_both_ways(siw(0));
}

/// Waits until there are only so many objects as there were: what is dropped goes off the thread.
pub(crate) async fn eventually_as(address: SocketAddr, before: &Resources) {
    let wait = async {
        while objects_at(address) != *before {
            executor::sleep(Duration::from_millis(2)).await;
        }
    };
    in_time(wait).await;
}

/// How a task sends a message.
type Way = fn(Arc<Connection>, Buffer) -> Pin<Box<dyn Future<Output = ()> + Send>>;

/// Three tasks send, each in its own way and with fewer buffers than there are tasks, and three receive, until the
/// connection ends.
#[test]
#[ignore = "needs the test bed: cargo xtask test"]
fn many_tasks_share_a_connection() {
    const EACH: u32 = 60;
    const WAYS: [Way; 3] = [
        |client, buffer| Box::pin(async move { client.post(buffer).expect("post") }),
        |client, buffer| Box::pin(async move { drop(client.send(buffer).await.expect("send")) }),
        |client, buffer| {
            Box::pin(async move {
                client.post(buffer).expect("post");
                client.flush().await.expect("flush");
            })
        },
    ];
    on_each_executor(rxe(0), || async {
        let settings = Settings { send_buffers: 2, receive_buffers: 4, ..Settings::default() };
        let [client, server] = pair(rxe(0), &settings).await.map(Arc::new);
        let receivers = [(); 3].map(|()| {
            let server = Arc::clone(&server);
            executor::spawn(async move {
                let mut numbers = Vec::new();
                while let Some(message) = server.recv().await.expect("receive") {
                    numbers.push(u32::from_ne_bytes(message[..].try_into().expect("4 bytes")));
                }
                numbers
            })
        });
        let senders = [0, 1, 2].map(|which| {
            let client = Arc::clone(&client);
            let first = u32::try_from(which).expect("it fits") * EACH;
            executor::spawn(async move {
                for number in first..first + EACH {
                    let buffer = filled(&client, &number.to_ne_bytes()).await;
                    WAYS[which](Arc::clone(&client), buffer).await;
                }
            })
        });
        for sender in senders {
            in_time(sender).await.expect("it has sent");
        }
        client.close(LONG).await.expect("close");
        let mut received = Vec::new();
        for receiver in receivers {
            received.extend(in_time(receiver).await.expect("it has received"));
        }
        received.sort_unstable();
        assert!(received.into_iter().eq(0..3 * EACH), "each number once");
    });
}

/// Tasks that wait for a buffer have it from whoever drops one, or sends one that comes back: in this runtime or not.
#[test]
#[ignore = "needs the test bed: cargo xtask test"]
fn tasks_that_want_a_buffer_are_told() {
    on_each_executor(rxe(0), || async {
        let [client, server] =
            pair(rxe(0), &Settings { send_buffers: 2, ..Settings::default() }).await;
        let client = Arc::new(client);
        let mut held =
            [client.buffer().await.expect("one"), client.buffer().await.expect("two")].map(Some);
        let waits = |client: &Arc<Connection>| {
            let client = Arc::clone(client);
            executor::spawn(async move { drop(client.buffer().await.expect("a buffer")) })
        };
        let both = [waits(&client), waits(&client)];
        // They wait before there is one, if there is more than one thread too.
        executor::sleep(Duration::from_millis(5)).await;
        let [first, second] = &mut held;
        let first = first.take();
        thread::spawn(move || drop(first)).join().expect("it has dropped it");
        for waiting in both {
            in_time(waiting).await.expect("it had a buffer");
        }
        let third = in_time(client.buffer()).await.expect("it is back");
        let both = [waits(&client), waits(&client)];
        executor::sleep(Duration::from_millis(5)).await;
        client.post(second.take().expect("it is there")).expect("post");
        for waiting in both {
            in_time(waiting).await.expect("it had a buffer");
        }
        drop(third);
        drop(in_time(server.recv()).await.expect("receive").expect("a message"));
    });
}

/// Whatever tasks wait for, all of them hear of the end: by the peer, by its death, by this side.
fn everybody_hears_of_the_end(address: SocketAddr) {
    on_each_executor(address, move || async move {
        for way in 0..4 {
            let settings = Settings { send_buffers: 1, ..Settings::default() };
            let [client, server] = pair(address, &settings).await;
            let client = Arc::new(client);
            let held = client.buffer().await.expect("a buffer");
            let (mut receiving, mut taking) = (Vec::new(), Vec::new());
            for _ in 0..2 {
                let who = Arc::clone(&client);
                receiving
                    .push(executor::spawn(async move { who.recv().await.map(|m| m.is_none()) }));
                let who = Arc::clone(&client);
                taking.push(executor::spawn(async move { who.buffer().await.map(drop) }));
            }
            executor::sleep(Duration::from_millis(5)).await;
            match way {
                0 => server.abort().await,
                1 => drop(server),
                2 => client.abort().await,
                _ => {
                    let who = Arc::clone(&client);
                    let closing = executor::spawn(async move { who.close(LONG).await });
                    assert!(in_time(server.recv()).await.expect("receive").is_none(), "the end");
                    in_time(closing).await.expect("it lives").expect("close");
                }
            }
            for waiting in receiving {
                match in_time(waiting).await.expect("it lives") {
                    Ok(is_end) => assert!(is_end, "there was no message"),
                    Err(error) => assert_eq!(*error.kind(), ErrorKind::Disconnected, "{error}"),
                }
            }
            for waiting in taking {
                let error = in_time(waiting).await.expect("it lives").expect_err("no buffer");
                assert_eq!(*error.kind(), ErrorKind::Disconnected, "{error}");
            }
            client.close(LONG).await.expect("it has ended");
            drop((client, held));
        }
    });
}

#[test]
#[ignore = "needs the test bed: cargo xtask test"]
fn rxe_all_tasks_hear_of_the_end() {
    everybody_hears_of_the_end(rxe(0));
}

#[test]
#[ignore = "needs the test bed: cargo xtask test"]
fn siw_all_tasks_hear_of_the_end() {
    everybody_hears_of_the_end(siw(0));
}

/// Two tasks of each side close one connection.
fn everybody_closes(address: SocketAddr) {
    on_each_executor(address, || async move {
        let both = pair(address, &Settings::default()).await.map(Arc::new);
        let closing = both.iter().chain(&both).map(|connection| {
            let connection = Arc::clone(connection);
            executor::spawn(async move { connection.close(LONG).await })
        });
        for closing in closing.collect::<Vec<_>>() {
            in_time(closing).await.expect("it lives").expect("close");
        }
    });
}

#[test]
#[ignore = "needs the test bed: cargo xtask test"]
fn rxe_all_tasks_close() {
    everybody_closes(rxe(0));
}

#[test]
#[ignore = "needs the test bed: cargo xtask test"]
fn siw_all_tasks_close() {
    everybody_closes(siw(0));
}

/// A task for which there is always a buffer does not keep its thread.
#[test]
#[ignore = "needs the test bed: cargo xtask test"]
fn task_that_never_waits_lets_others_run() {
    on_each_executor(rxe(0), || async {
        let [client, _server] = pair(rxe(0), &Settings::default()).await;
        let has_run = Arc::new(AtomicBool::new(false));
        let sets = Arc::clone(&has_run);
        let other = executor::spawn(async move { sets.store(true, Ordering::Relaxed) });
        let mut calls = 0;
        // On more than one thread the other task may begin late, although it is let.
        while !has_run.load(Ordering::Relaxed) {
            drop(client.buffer().await.expect("a buffer"));
            calls += 1;
            assert!(calls < 10_000_000, "the other task should run");
        }
        other.await.expect("it has run");
    });
}

/// A request that is awaited is accepted with the defaults.
fn awaiting_accepts(address: SocketAddr) {
    on_each_executor(address, move || async move {
        let listener = Listener::bind(address).expect("listen");
        let server = listener.local_addr().expect("an IP address");
        let connecting =
            executor::spawn(async move { Connection::connect(&Connector::new(), server).await });
        let incoming = in_time(listener.accept()).await.expect("a request");
        assert_eq!(incoming.local_addr().expect("an address"), Some(server));
        let accepted = in_time(incoming.into_future()).await.expect("accept");
        let connected = in_time(connecting).await.expect("it lives").expect("connect");
        send(&accepted, b"welcome").await;
        receives(&connected, b"welcome").await;
    });
}

#[test]
#[ignore = "needs the test bed: cargo xtask test"]
fn rxe_awaited_request_is_accepted() {
    awaiting_accepts(rxe(0));
}

#[test]
#[ignore = "needs the test bed: cargo xtask test"]
fn siw_awaited_request_is_accepted() {
    awaiting_accepts(siw(0));
}

/// What a task posts while another one closes the connection arrives, or is refused.
#[test]
#[ignore = "needs the test bed: cargo xtask test"]
fn closing_loses_nothing_that_another_task_posts() {
    on_each_executor(rxe(0), || async {
        for number in 0..20 {
            let [client, server] = pair(rxe(0), &Settings::default()).await.map(Arc::new);
            let posts = Arc::clone(&client);
            let posting = executor::spawn(async move {
                let mut posted = 0;
                while posts.post_bytes(b"").await.is_ok() {
                    posted += 1;
                    // So that there are times when nothing is on its way.
                    let _ended = posts.flush().await;
                }
                posted
            });
            let receiving = executor::spawn(async move {
                let mut received = 0;
                while server.recv().await.expect("receive").is_some() {
                    received += 1;
                }
                received
            });
            in_time(client.close(LONG)).await.expect("nothing is lost");
            let posted: u32 = in_time(posting).await.expect("it lives");
            let received = in_time(receiving).await.expect("it lives");
            assert_eq!(received, posted, "connection {number}");
        }
    });
}

/// Connections that tasks have end with their runtime; those that live elsewhere outlive it.
fn a_runtime_ends(address: SocketAddr) {
    let before = objects_at(address);
    for runtime in tokios() {
        let [lives, peer] = runtime.block_on(pair(address, &Settings::default()));
        let both = runtime.block_on(pair(address, &Settings::default()));
        for connection in both {
            // In the middle of everything.
            runtime.spawn(async move {
                connection.post(filled(&connection, b"nobody answers").await).expect("post");
                loop {
                    let received = connection.recv().await;
                    if !received.is_ok_and(|message| message.is_some()) {
                        return;
                    }
                }
            });
        }
        runtime.spawn(async move {
            let listener = Listener::bind(address).expect("listen");
            drop(listener.accept().await);
        });
        runtime.spawn(async move {
            // Nobody is there.
            let nobody = SocketAddr::from(([10, 0, 0, 99], 7471));
            drop(Connection::connect(&Connector::new().source(address), nobody).await);
        });
        runtime.block_on(async { executor::sleep(Duration::from_millis(20)).await });
        drop(runtime);
        let other = Builder::new_current_thread().enable_all().build().expect("a runtime");
        let error = other.block_on(lives.recv()).expect_err("there is nothing, and nobody watches");
        assert_eq!(error.errno(), libc::ECANCELED, "{error}");
        // What does not have to wait does not need it.
        other.block_on(send(&lives, b"still there"));
        let [lives, peer] = [lives, peer].map(Connection::into_blocking);
        endpoint_messages::receives(&peer, b"still there");
        drop((lives, peer));
        assert_eq!(objects_at(address), before, "the runtime was waited for");
    }
}

#[test]
#[ignore = "needs the test bed: cargo xtask test"]
fn rxe_a_runtime_ends_with_connections_alive() {
    a_runtime_ends(rxe(0));
}

#[test]
#[ignore = "needs the test bed: cargo xtask test"]
fn siw_a_runtime_ends_with_connections_alive() {
    a_runtime_ends(siw(0));
}

/// A connection of threads becomes one of tasks, and back, with what is in it.
#[test]
#[ignore = "needs the test bed: cargo xtask test"]
fn tasks_and_threads_pass_a_connection_on() {
    let [client, server] = endpoint_connect::pair(rxe(0), &Settings::default());
    client.post(endpoint_messages::filled(&client, b"one")).expect("post");
    client.post(endpoint_messages::filled(&client, b"two")).expect("post");
    endpoint_messages::receives(&server, b"one");
    let runtime = Builder::new_current_thread().enable_all().build().expect("a runtime");
    let server = runtime.block_on(async {
        let server = Connection::from_blocking(server).expect("the runtime watches it");
        receives(&server, b"two").await;
        send(&server, b"three").await;
        server.into_blocking()
    });
    endpoint_messages::receives(&client, b"three");
    client.post(endpoint_messages::filled(&client, b"four")).expect("post");
    endpoint_messages::receives(&server, b"four");
    server.recv_timeout(Duration::ZERO).expect_err("there is nothing");
}

/// The deadlines of connecting and accepting are the runtime's, and those of others lose nothing.
/// Clones for tasks and for threads are handles of one connection, which the last of them ends.
#[test]
#[ignore = "needs the test bed: cargo xtask test"]
fn tokio_clones_share_connection() {
    on_each_executor(rxe(0), || async {
        let [client, server] = pair(rxe(0), &Settings::default()).await;
        let clone = client.clone();
        let waiting = executor::spawn(async move {
            receives(&clone, b"to the task").await;
            clone
        });
        let thread = client.into_blocking();
        send(&server, b"to the task").await;
        let clone = in_time(waiting).await.expect("the task should not panic");
        let refused = Connection::from_blocking(thread.clone()).expect_err("watched already");
        assert_eq!(refused.errno(), libc::EEXIST, "{refused}");
        drop(clone);
        let again = Connection::from_blocking(thread.clone()).expect("not watched any more");
        thread.post_bytes(b"from the thread").expect("post");
        receives(&server, b"from the thread").await;
        drop(thread);
        send(&again, b"from the last").await;
        receives(&server, b"from the last").await;
        drop(again);
        assert!(in_time(server.recv()).await.expect("receive").is_none(), "the end");
    });
}

#[test]
#[ignore = "needs the test bed: cargo xtask test"]
fn tasks_have_deadlines() {
    on_each_executor(rxe(0), move || async move {
        let listener = Listener::bind(rxe(0)).expect("listen");
        let server = listener.local_addr().expect("an IP address");
        let short = Duration::from_millis(30);
        // The second one may be late before it has asked.
        for (connector, asks) in [
            (Connector::new().connect_timeout(short), true),
            (Connector::new().timeout(short), false),
        ] {
            let connected = Connection::connect(&connector, server).await;
            let error = connected.expect_err("nobody answers");
            assert_eq!(*error.kind(), ErrorKind::TimedOut, "{error}");
            if asks {
                drop(listener.accept().await.expect("it is there"));
            }
        }
        drop(executor::timeout(short, listener.accept()).await);
        executor::timeout(short, listener.accept()).await.expect_err("nobody asks");
        drop(listener);
        let [client, server] = pair(rxe(0), &Settings::default()).await;
        for number in 0..3 {
            executor::timeout(Duration::from_millis(1), server.recv())
                .await
                .expect_err("there is nothing");
            send(&client, &[number]).await;
            receives(&server, &[number]).await;
        }
        // The peer does not hear of it before its program does.
        let error = client.close(short).await.expect_err("the peer does not answer");
        assert_eq!(*error.kind(), ErrorKind::TimedOut, "{error}");
        drop((client, server));
    });
}

/// The time for a connection begins with the call, also where that has to wait for a thread.
#[test]
#[ignore = "needs the test bed: cargo xtask test"]
fn deadlines_begin_with_the_call() {
    let before = objects_at(rxe(0));
    let runtime = Builder::new_current_thread().max_blocking_threads(1).enable_all().build();
    let runtime = runtime.expect("a runtime");
    let short = Duration::from_millis(200);
    // Has the only thread wait until the time of what is begun meanwhile is over.
    async fn late<F: Future>(short: Duration, begun: F) -> F::Output {
        let (ends, ended) = mpsc::channel::<()>();
        let busy =
            executor::spawn_blocking(move || ended.recv().expect_err("nobody says anything"));
        // In this thread too: when `begun` has begun.
        let over = executor::spawn(async move {
            executor::sleep(2 * short).await;
            drop(ends);
        });
        let outcome = begun.await;
        over.await.expect("it is over");
        busy.await.expect("it ends");
        outcome
    }
    runtime.block_on(async {
        let listener = Listener::bind(rxe(0)).expect("listen");
        let server = listener.local_addr().expect("an IP address");
        // Whoever asks is accepted.
        let accepting = task::spawn(async move {
            let incoming = listener.accept().await.expect("a request");
            let accepted = incoming.accept(&Settings::default(), &[], LONG).await;
            drop(accepted);
            listener
        });
        let connector = Connector::new().timeout(short);
        let error = late(short, Connection::connect(&connector, server)).await;
        let error = error.expect_err("it is late");
        assert_eq!(*error.kind(), ErrorKind::TimedOut, "{error}");
        assert!(!accepting.is_finished(), "nobody has asked");
        let asked = Connection::connect(&Connector::new(), server).await.expect("connect");
        let listener = in_time(accepting).await.expect("it lives");
        drop(asked);

        let asking = thread::spawn(move || Connector::new().connect(server));
        let incoming = in_time(listener.accept()).await.expect("a request");
        let settings = Settings::default();
        let error = late(short, incoming.accept(&settings, &[], short)).await;
        let error = error.expect_err("it is late");
        assert_eq!(*error.kind(), ErrorKind::TimedOut, "{error}");
        let refused = asking.join().expect("it lives").expect_err("nobody has accepted");
        assert!(matches!(refused.kind(), ErrorKind::Rejected(_)), "{refused}");
    });
    drop(runtime);
    assert_eq!(objects_at(rxe(0)), before);
}

/// Tasks, too, make no reads where the two sides have settled on none.
#[test]
#[ignore = "needs the test bed: cargo xtask test"]
fn tasks_do_not_wait_for_reads_that_were_not_settled_on() {
    on_each_executor(rxe(0), || async {
        let settings = Settings { initiator_depth: 0, ..Settings::default() };
        let [client, server] = pair(rxe(0), &settings).await;
        let memory = Memory::new(64).expect("memory");
        let export = server.export(&memory, Rights::all()).await.expect("export");
        let remote = export.remote();
        let read = in_time(client.read(filled(&client, &[0; 8]).await, &remote, 0)).await.map(drop);
        let added = in_time(client.fetch_add(&remote, 0, 1)).await.map(drop);
        for refused in [read, added] {
            assert_invalid(&refused.expect_err("no depth"), &["initiator depth"]);
        }
        send(&client, b"goes on").await;
        receives(&server, b"goes on").await;
    });
}

/// A waker that ends the connection, on the thread that wakes it.
struct Ends {
    connection: Mutex<Option<Arc<Connection>>>,
    says: mpsc::Sender<()>,
}

impl Wake for Ends {
    fn wake(self: Arc<Self>) {
        let connection = self.connection.lock().expect("nobody panics").take();
        if let Some(connection) = connection {
            // Done here where there is no runtime, and begun where there is one.
            let _ = pin!(connection.abort()).poll(&mut Context::from_waker(Waker::noop()));
            self.says.send(()).expect("the test listens");
        }
    }
}

/// What a waker does may come back to the connection, also while that is aborted.
#[test]
#[ignore = "needs the test bed: cargo xtask test"]
fn a_waker_comes_back_to_a_connection_that_ends() {
    let runtime = Builder::new_multi_thread().worker_threads(1).enable_all().build();
    let runtime = runtime.expect("a runtime");
    let both = endpoint_connect::pair(rxe(0), &Settings::default());
    let [client, _server] = runtime.block_on(async {
        both.map(|one| Arc::new(Connection::from_blocking(one).expect("it is watched")))
    });
    let (says, hears) = mpsc::channel();
    let ends = Ends { connection: Mutex::new(Some(Arc::clone(&client))), says: says.clone() };
    thread::spawn(move || {
        let waker = Waker::from(Arc::new(ends));
        let mut receiving = pin!(client.recv());
        assert!(receiving.as_mut().poll(&mut Context::from_waker(&waker)).is_pending());
        let ended = pin!(client.abort()).poll(&mut Context::from_waker(Waker::noop()));
        assert!(ended.is_ready(), "there is no other thread for it");
        says.send(()).expect("the test listens");
    });
    for _ in 0..2 {
        hears.recv_timeout(LONG).expect("each comes to an end");
    }
}
