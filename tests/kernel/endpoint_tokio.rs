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
use rdmacm::device::ResourceCounts;
use rdmacm::endpoint::tokio::{Connection, Listener};
use rdmacm::endpoint::{Buffer, ConnectionConfig, Connector, DmaMemory, RemoteAccess};
use tokio::runtime::Builder;
use tokio::task;

use crate::endpoint_connect::{self, objects_at};
use crate::endpoint_messages;
use crate::executor::{self, in_time, on_each_executor, tokios};
use crate::fixtures::{LONG, assert_invalid, roce, siw};

/// Returns both sides of a connection in this process: first the connecting side.
pub(crate) async fn pair(address: SocketAddr, config: &ConnectionConfig) -> [Connection; 2] {
    let listener = Listener::bind(address).expect("listen");
    let server = listener.local_addr().expect("an IP address");
    let theirs = config.clone();
    let accepting = executor::spawn(async move {
        let incoming = listener.accept().await.expect("a request");
        // This destroys the listener at once. A dropped listener of tasks is destroyed on another thread.
        drop(listener.into_blocking());
        incoming.accept(&theirs, b"pong", LONG).await.expect("accept")
    });
    let connector = Connector::new().config(config.clone()).total_timeout(LONG);
    let client = Connection::connect(&connector, server).await.expect("connect");
    [client, accepting.await.expect("the task should have accepted")]
}

/// Returns a buffer with `bytes`.
pub(crate) async fn filled(connection: &Connection, bytes: &[u8]) -> Buffer {
    let mut buffer = connection.acquire_buffer().await.expect("a buffer");
    buffer.copy_from(bytes).expect("the bytes should fit");
    buffer
}

/// Sends a message.
pub(crate) async fn send(connection: &Connection, bytes: &[u8]) {
    connection.post_send(filled(connection, bytes).await).expect("post");
}

/// Receives a message, which must be `bytes`.
pub(crate) async fn receives(connection: &Connection, bytes: &[u8]) {
    let message =
        in_time(connection.recv()).await.expect("receive").expect("a message should arrive");
    assert!(*message == *bytes, "{message:?} is not what was sent");
}

fn messages_go_both_ways(address: SocketAddr) {
    on_each_executor(address, move || async move {
        let [client, server] = pair(address, &ConnectionConfig::default()).await;
        assert_eq!(
            (client.peer_addr(), client.local_addr()),
            (server.local_addr(), server.peer_addr())
        );
        assert!(client.private_data().starts_with(b"pong"));
        for number in 0..20 {
            let text = [number; 100];
            let buffer = in_time(client.send(filled(&client, &text).await)).await.expect("send");
            assert_eq!(
                (buffer.len(), &buffer[..100]),
                (4096, &text[..]),
                "the buffer should have its full capacity"
            );
            drop(buffer);
            receives(&server, &text).await;
            send(&server, &text).await;
            receives(&client, &text).await;
        }
        in_time(server.flush()).await.expect("flush");
        // The peer continues while there are messages, and gets the end after them.
        send(&client, b"last").await;
        let closing = executor::spawn(async move { client.close(LONG).await });
        receives(&server, b"last").await;
        assert!(
            in_time(server.recv()).await.expect("receive").is_none(),
            "the connection should have ended"
        );
        in_time(closing).await.expect("task should not panic").expect("close");
        server.close(LONG).await.expect("close");
    });
}

#[test]
#[ignore = "needs the test bed: cargo xtask test"]
fn rxe_tasks_exchange_messages() {
    messages_go_both_ways(roce(0));
}

#[test]
#[ignore = "needs the test bed: cargo xtask test"]
fn siw_tasks_exchange_messages() {
    messages_go_both_ways(siw(0));
}

/// Waits until the object counts are those of `before`, because objects are dropped on another thread.
pub(crate) async fn eventually_as(address: SocketAddr, before: &ResourceCounts) {
    let wait = async {
        while objects_at(address) != *before {
            executor::sleep(Duration::from_millis(2)).await;
        }
    };
    in_time(wait).await;
}

/// A function with which a task sends a message.
type Way = fn(Arc<Connection>, Buffer) -> Pin<Box<dyn Future<Output = ()> + Send>>;

/// Sends in three tasks, each by another function, and receives in three until the end.
///
/// There are fewer buffers than sending tasks.
#[test]
#[ignore = "needs the test bed: cargo xtask test"]
fn many_tasks_share_one_connection() {
    const EACH: u32 = 60;
    const WAYS: [Way; 3] = [
        |client, buffer| Box::pin(async move { client.post_send(buffer).expect("post") }),
        |client, buffer| Box::pin(async move { drop(client.send(buffer).await.expect("send")) }),
        |client, buffer| {
            Box::pin(async move {
                client.post_send(buffer).expect("post");
                client.flush().await.expect("flush");
            })
        },
    ];
    on_each_executor(roce(0), || async {
        let config = ConnectionConfig::new().send_buffers(2).receive_buffers(4);
        let [client, server] = pair(roce(0), &config).await.map(Arc::new);
        let receivers = [(); 3].map(|()| {
            let server = Arc::clone(&server);
            executor::spawn(async move {
                let mut numbers = Vec::new();
                while let Some(message) = server.recv().await.expect("receive") {
                    numbers.push(u32::from_ne_bytes(
                        message[..].try_into().expect("the slice should have 4 bytes"),
                    ));
                }
                numbers
            })
        });
        let senders = [0, 1, 2].map(|which| {
            let client = Arc::clone(&client);
            let first = u32::try_from(which).expect("the bytes should fit") * EACH;
            executor::spawn(async move {
                for number in first..first + EACH {
                    let buffer = filled(&client, &number.to_ne_bytes()).await;
                    WAYS[which](Arc::clone(&client), buffer).await;
                }
            })
        });
        for sender in senders {
            in_time(sender).await.expect("sender should not panic");
        }
        client.close(LONG).await.expect("close");
        let mut received = Vec::new();
        for receiver in receivers {
            received.extend(in_time(receiver).await.expect("receiver should not panic"));
        }
        received.sort_unstable();
        assert!(received.into_iter().eq(0..3 * EACH), "each number should arrive once");
    });
}

/// Tasks that wait for a buffer get a dropped buffer, or the buffer of a completed send.
///
/// The buffer comes from a task of this runtime or from another thread.
#[test]
#[ignore = "needs the test bed: cargo xtask test"]
fn free_buffer_wakes_waiting_task() {
    on_each_executor(roce(0), || async {
        let [client, server] = pair(roce(0), &ConnectionConfig::new().send_buffers(2)).await;
        let client = Arc::new(client);
        let mut held = [
            client.acquire_buffer().await.expect("a first buffer should be free"),
            client.acquire_buffer().await.expect("a second buffer should be free"),
        ]
        .map(Some);
        let waits = |client: &Arc<Connection>| {
            let client = Arc::clone(client);
            executor::spawn(async move { drop(client.acquire_buffer().await.expect("a buffer")) })
        };
        let both = [waits(&client), waits(&client)];
        // Both tasks should wait before a buffer is free, even if they run on other threads.
        executor::sleep(Duration::from_millis(5)).await;
        let [first, second] = &mut held;
        let first = first.take();
        thread::spawn(move || drop(first)).join().expect("thread should not panic");
        for waiting in both {
            in_time(waiting).await.expect("the task should have had a buffer");
        }
        let third =
            in_time(client.acquire_buffer()).await.expect("the buffer should have returned");
        let both = [waits(&client), waits(&client)];
        executor::sleep(Duration::from_millis(5)).await;
        client.post_send(second.take().expect("the buffer should be held")).expect("post");
        for waiting in both {
            in_time(waiting).await.expect("the task should have had a buffer");
        }
        drop(third);
        drop(in_time(server.recv()).await.expect("receive").expect("a message should arrive"));
    });
}

/// Checks that an end by the peer, by its failure or by this side wakes all waiting tasks.
fn end_wakes_all_tasks(address: SocketAddr) {
    on_each_executor(address, move || async move {
        for way in 0..4 {
            let config = ConnectionConfig::new().send_buffers(1);
            let [client, server] = pair(address, &config).await;
            let client = Arc::new(client);
            let held = client.acquire_buffer().await.expect("a buffer");
            let (mut receiving, mut taking) = (Vec::new(), Vec::new());
            for _ in 0..2 {
                let caller = Arc::clone(&client);
                receiving
                    .push(executor::spawn(async move { caller.recv().await.map(|m| m.is_none()) }));
                let caller = Arc::clone(&client);
                taking
                    .push(executor::spawn(async move { caller.acquire_buffer().await.map(drop) }));
            }
            executor::sleep(Duration::from_millis(5)).await;
            match way {
                0 => server.abort().await,
                1 => drop(server),
                2 => client.abort().await,
                _ => {
                    let caller = Arc::clone(&client);
                    let closing = executor::spawn(async move { caller.close(LONG).await });
                    assert!(
                        in_time(server.recv()).await.expect("receive").is_none(),
                        "the connection should have ended"
                    );
                    in_time(closing).await.expect("task should not panic").expect("close");
                }
            }
            for waiting in receiving {
                match in_time(waiting).await.expect("task should not panic") {
                    Ok(is_end) => assert!(is_end, "the messages should have ended"),
                    Err(error) => assert_eq!(*error.kind(), ErrorKind::Disconnected, "{error}"),
                }
            }
            for waiting in taking {
                let error = in_time(waiting)
                    .await
                    .expect("task should not panic")
                    .expect_err("the task should get no buffer");
                assert_eq!(*error.kind(), ErrorKind::Disconnected, "{error}");
            }
            client.close(LONG).await.expect("closing an ended connection should succeed");
            drop((client, held));
        }
    });
}

#[test]
#[ignore = "needs the test bed: cargo xtask test"]
fn rxe_end_wakes_all_tasks() {
    end_wakes_all_tasks(roce(0));
}

#[test]
#[ignore = "needs the test bed: cargo xtask test"]
fn siw_end_wakes_all_tasks() {
    end_wakes_all_tasks(siw(0));
}

/// Closes one connection in two tasks of each side.
fn all_tasks_may_close(address: SocketAddr) {
    on_each_executor(address, || async move {
        let both = pair(address, &ConnectionConfig::default()).await.map(Arc::new);
        let closing = both.iter().chain(&both).map(|connection| {
            let connection = Arc::clone(connection);
            executor::spawn(async move { connection.close(LONG).await })
        });
        for closing in closing.collect::<Vec<_>>() {
            in_time(closing).await.expect("task should not panic").expect("close");
        }
    });
}

#[test]
#[ignore = "needs the test bed: cargo xtask test"]
fn rxe_all_tasks_may_close() {
    all_tasks_may_close(roce(0));
}

#[test]
#[ignore = "needs the test bed: cargo xtask test"]
fn siw_all_tasks_may_close() {
    all_tasks_may_close(siw(0));
}

/// Checks that a task that always finds a free buffer lets other tasks of its thread run.
#[test]
#[ignore = "needs the test bed: cargo xtask test"]
fn task_that_never_waits_lets_others_run() {
    on_each_executor(roce(0), || async {
        let [client, _server] = pair(roce(0), &ConnectionConfig::default()).await;
        let has_run = Arc::new(AtomicBool::new(false));
        let sets = Arc::clone(&has_run);
        let other = executor::spawn(async move { sets.store(true, Ordering::Relaxed) });
        let mut calls = 0;
        // On another thread, the other task may begin late.
        while !has_run.load(Ordering::Relaxed) {
            drop(client.acquire_buffer().await.expect("a buffer"));
            calls += 1;
            assert!(calls < 10_000_000, "the other task should run");
        }
        other.await.expect("the other task should not panic");
    });
}

/// Checks that an awaited request is accepted with the default config.
fn awaiting_accepts(address: SocketAddr) {
    on_each_executor(address, move || async move {
        let listener = Listener::bind(address).expect("listen");
        let server = listener.local_addr().expect("an IP address");
        let connecting =
            executor::spawn(async move { Connection::connect(&Connector::new(), server).await });
        let incoming = in_time(listener.accept()).await.expect("a request");
        assert_eq!(incoming.local_addr(), Some(server));
        let accepted = in_time(incoming.into_future()).await.expect("accept");
        let connected = in_time(connecting).await.expect("task should not panic").expect("connect");
        send(&accepted, b"welcome").await;
        receives(&connected, b"welcome").await;
    });
}

#[test]
#[ignore = "needs the test bed: cargo xtask test"]
fn rxe_awaited_request_is_accepted() {
    awaiting_accepts(roce(0));
}

#[test]
#[ignore = "needs the test bed: cargo xtask test"]
fn siw_awaited_request_is_accepted() {
    awaiting_accepts(siw(0));
}

/// Checks that a message posted during another task's close arrives, or is refused.
#[test]
#[ignore = "needs the test bed: cargo xtask test"]
fn tokio_close_delivers_concurrent_posts() {
    on_each_executor(roce(0), || async {
        for number in 0..20 {
            let [client, server] = pair(roce(0), &ConnectionConfig::default()).await.map(Arc::new);
            let posts = Arc::clone(&client);
            let posting = executor::spawn(async move {
                let mut posted = 0;
                while posts.post_bytes(b"").await.is_ok() {
                    posted += 1;
                    // The flush creates moments at which no message is in flight.
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
            in_time(client.close(LONG)).await.expect("no message should be lost");
            let posted: u32 = in_time(posting).await.expect("task should not panic");
            let received = in_time(receiving).await.expect("task should not panic");
            assert_eq!(received, posted, "connection {number}");
        }
    });
}

/// Checks that the calls of a runtime's tasks end with the runtime.
///
/// A connection outside of the tasks outlives the runtime.
fn runtime_may_end_before_connections(address: SocketAddr) {
    let before = objects_at(address);
    for runtime in tokios() {
        let [lives, peer] = runtime.block_on(pair(address, &ConnectionConfig::default()));
        let both = runtime.block_on(pair(address, &ConnectionConfig::default()));
        for connection in both {
            // The runtime ends while these calls are pending.
            runtime.spawn(async move {
                connection.post_send(filled(&connection, b"no answer").await).expect("post");
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
            // No machine has this address.
            let absent = SocketAddr::from(([10, 0, 0, 99], 7471));
            drop(Connection::connect(&Connector::new().local_addr(address), absent).await);
        });
        runtime.block_on(async { executor::sleep(Duration::from_millis(20)).await });
        drop(runtime);
        let other = Builder::new_current_thread().enable_all().build().expect("a runtime");
        let error = other.block_on(lives.recv()).expect_err("the runtime should have ended");
        assert_eq!(error.errno(), libc::ECANCELED, "{error}");
        // A call that need not wait needs no runtime.
        other.block_on(send(&lives, b"still there"));
        let [lives, peer] = [lives, peer].map(Connection::into_blocking);
        endpoint_messages::receives(&peer, b"still there");
        drop((lives, peer));
        assert_eq!(objects_at(address), before, "the runtime should have dropped its objects");
    }
}

#[test]
#[ignore = "needs the test bed: cargo xtask test"]
fn rxe_runtime_may_end_before_connections() {
    runtime_may_end_before_connections(roce(0));
}

#[test]
#[ignore = "needs the test bed: cargo xtask test"]
fn siw_runtime_may_end_before_connections() {
    runtime_may_end_before_connections(siw(0));
}

/// Checks that a connection is converted from threads to tasks and back, and keeps its unread messages.
#[test]
#[ignore = "needs the test bed: cargo xtask test"]
fn connection_converts_between_tasks_and_threads() {
    let [client, server] = endpoint_connect::pair(roce(0), &ConnectionConfig::default());
    client.post_send(endpoint_messages::filled(&client, b"one")).expect("post");
    client.post_send(endpoint_messages::filled(&client, b"two")).expect("post");
    endpoint_messages::receives(&server, b"one");
    let runtime = Builder::new_current_thread().enable_all().build().expect("a runtime");
    let server = runtime.block_on(async {
        let server =
            Connection::from_blocking(server).expect("the runtime should watch the object");
        receives(&server, b"two").await;
        send(&server, b"three").await;
        server.into_blocking()
    });
    endpoint_messages::receives(&client, b"three");
    client.post_send(endpoint_messages::filled(&client, b"four")).expect("post");
    endpoint_messages::receives(&server, b"four");
    server.recv_timeout(Duration::ZERO).expect_err("no message should arrive");
}

/// Clones for tasks and for threads are handles of one connection. The last handle ends the connection.
#[test]
#[ignore = "needs the test bed: cargo xtask test"]
fn tokio_clones_share_connection() {
    on_each_executor(roce(0), || async {
        let [client, server] = pair(roce(0), &ConnectionConfig::default()).await;
        let clone = client.clone();
        let waiting = executor::spawn(async move {
            receives(&clone, b"to the task").await;
            clone
        });
        let thread = client.into_blocking();
        send(&server, b"to the task").await;
        let clone = in_time(waiting).await.expect("the task should not panic");
        let refused = Connection::from_blocking(thread.clone())
            .expect_err("the runtime should already watch the connection");
        assert_eq!(refused.errno(), libc::EEXIST, "{refused}");
        drop(clone);
        let again = Connection::from_blocking(thread.clone())
            .expect("the runtime should no longer watch the connection");
        thread.post_bytes(b"from the thread").expect("post");
        receives(&server, b"from the thread").await;
        drop(thread);
        send(&again, b"from the last").await;
        receives(&server, b"from the last").await;
        drop(again);
        assert!(
            in_time(server.recv()).await.expect("receive").is_none(),
            "the connection should have ended"
        );
    });
}

/// Checks that a deadline ends a call, and that the call then loses no message.
#[test]
#[ignore = "needs the test bed: cargo xtask test"]
fn task_calls_end_at_deadline() {
    on_each_executor(roce(0), move || async move {
        let listener = Listener::bind(roce(0)).expect("listen");
        let server = listener.local_addr().expect("an IP address");
        let short = Duration::from_millis(30);
        // The second call may time out before it has sent a request.
        for (connector, asks) in [
            (Connector::new().response_timeout(short), true),
            (Connector::new().total_timeout(short), false),
        ] {
            let connected = Connection::connect(&connector, server).await;
            let error = connected.expect_err("no peer should answer");
            assert_eq!(*error.kind(), ErrorKind::TimedOut, "{error}");
            if asks {
                drop(listener.accept().await.expect("a request should have arrived"));
            }
        }
        drop(executor::timeout(short, listener.accept()).await);
        executor::timeout(short, listener.accept()).await.expect_err("no request should come");
        drop(listener);
        let [client, server] = pair(roce(0), &ConnectionConfig::default()).await;
        for number in 0..3 {
            executor::timeout(Duration::from_millis(1), server.recv())
                .await
                .expect_err("no message should arrive");
            send(&client, &[number]).await;
            receives(&server, &[number]).await;
        }
        // The peer detects the end only in a call of its program.
        let error = client.close(short).await.expect_err("the peer should not answer");
        assert_eq!(*error.kind(), ErrorKind::TimedOut, "{error}");
        drop((client, server));
    });
}

/// Checks that the deadline of a connection begins with the call, even if the call waits for a thread.
#[test]
#[ignore = "needs the test bed: cargo xtask test"]
fn deadline_starts_with_call() {
    let before = objects_at(roce(0));
    let runtime = Builder::new_current_thread().max_blocking_threads(1).enable_all().build();
    let runtime = runtime.expect("a runtime");
    let short = Duration::from_millis(200);
    // Occupies the only blocking thread until the deadline of `begun` has passed.
    async fn late<F: Future>(short: Duration, begun: F) -> F::Output {
        let (ends, ended) = mpsc::channel::<()>();
        let busy =
            executor::spawn_blocking(move || ended.recv().expect_err("channel should be closed"));
        // This task runs on the thread of `begun`, so it starts when `begun` waits.
        let over = executor::spawn(async move {
            executor::sleep(2 * short).await;
            drop(ends);
        });
        let outcome = begun.await;
        over.await.expect("the timer should not panic");
        busy.await.expect("the blocking thread should end");
        outcome
    }
    runtime.block_on(async {
        let listener = Listener::bind(roce(0)).expect("listen");
        let server = listener.local_addr().expect("an IP address");
        // The server accepts the request.
        let accepting = task::spawn(async move {
            let incoming = listener.accept().await.expect("a request");
            let accepted = incoming.accept(&ConnectionConfig::default(), &[], LONG).await;
            drop(accepted);
            listener
        });
        let connector = Connector::new().total_timeout(short);
        let error = late(short, Connection::connect(&connector, server)).await;
        let error = error.expect_err("the call should be late");
        assert_eq!(*error.kind(), ErrorKind::TimedOut, "{error}");
        assert!(!accepting.is_finished(), "no request should have come");
        let asked = Connection::connect(&Connector::new(), server).await.expect("connect");
        let listener = in_time(accepting).await.expect("task should not panic");
        drop(asked);

        let asking = thread::spawn(move || Connector::new().connect(server));
        let incoming = in_time(listener.accept()).await.expect("a request");
        let config = ConnectionConfig::default();
        let error = late(short, incoming.accept(&config, &[], short)).await;
        let error = error.expect_err("the call should be late");
        assert_eq!(*error.kind(), ErrorKind::TimedOut, "{error}");
        let refused = asking
            .join()
            .expect("thread should not panic")
            .expect_err("no peer should have accepted");
        assert!(matches!(refused.kind(), ErrorKind::Rejected(_)), "{refused}");
    });
    drop(runtime);
    assert_eq!(objects_at(roce(0)), before);
}

/// Tasks issue no reads if the two sides have negotiated none.
#[test]
#[ignore = "needs the test bed: cargo xtask test"]
fn task_reads_without_depth_are_refused() {
    on_each_executor(roce(0), || async {
        let config = ConnectionConfig::new().initiator_depth(0);
        let [client, server] = pair(roce(0), &config).await;
        let memory = DmaMemory::new(64).expect("memory");
        let export = server.export(&memory, .., RemoteAccess::all()).await.expect("export");
        let remote = export.remote_memory();
        let read = in_time(client.read(filled(&client, &[0; 8]).await, &remote, 0)).await.map(drop);
        let added = in_time(client.fetch_add(&remote, 0, 1)).await.map(drop);
        for refused in [read, added] {
            assert_invalid(
                &refused.expect_err("the reads should be refused"),
                &["initiator depth"],
            );
        }
        send(&client, b"goes on").await;
        receives(&server, b"goes on").await;
    });
}

/// A waker that aborts the connection on the thread that calls the waker.
struct Ends {
    connection: Mutex<Option<Arc<Connection>>>,
    tx: mpsc::Sender<()>,
}

impl Wake for Ends {
    fn wake(self: Arc<Self>) {
        let connection = self.connection.lock().expect("no thread should panic").take();
        if let Some(connection) = connection {
            // Without a runtime, this poll completes the abort. With a runtime, it begins the abort.
            let _ = pin!(connection.abort()).poll(&mut Context::from_waker(Waker::noop()));
            self.tx.send(()).expect("the test should listen");
        }
    }
}

/// Checks that a waker may call back into the connection, even during an abort.
#[test]
#[ignore = "needs the test bed: cargo xtask test"]
fn waker_may_reenter_during_abort() {
    let runtime = Builder::new_multi_thread().worker_threads(1).enable_all().build();
    let runtime = runtime.expect("a runtime");
    let both = endpoint_connect::pair(roce(0), &ConnectionConfig::default());
    let [client, _server] = runtime.block_on(async {
        both.map(|one| {
            Arc::new(
                Connection::from_blocking(one).expect("the runtime should watch the connection"),
            )
        })
    });
    let (tx, rx) = mpsc::channel();
    let ends = Ends { connection: Mutex::new(Some(Arc::clone(&client))), tx: tx.clone() };
    thread::spawn(move || {
        let waker = Waker::from(Arc::new(ends));
        let mut receiving = pin!(client.recv());
        assert!(receiving.as_mut().poll(&mut Context::from_waker(&waker)).is_pending());
        let ended = pin!(client.abort()).poll(&mut Context::from_waker(Waker::noop()));
        assert!(ended.is_ready(), "the abort should complete at once");
        tx.send(()).expect("the test should listen");
    });
    for _ in 0..2 {
        rx.recv_timeout(LONG).expect("both aborts should complete");
    }
}
