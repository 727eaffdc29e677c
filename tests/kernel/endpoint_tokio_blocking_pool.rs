//! The safe tier for tasks: calls that block in the kernel, while the only thread for blocking work is busy.

use std::future::{Future, poll_fn};
use std::net::SocketAddr;
use std::pin::pin;
use std::sync::mpsc;
use std::task::Poll;
use std::thread;
use std::time::Duration;

use rdmacm::ErrorKind;
use rdmacm::cm::{Membership, RejectReason};
use rdmacm::device::ResourceCounts;
use rdmacm::endpoint::tokio::{Connection, DatagramSocket, Listener};
use rdmacm::endpoint::{ConnectionConfig, Connector, DatagramConfig, DmaMemory, RemoteAccess};
use tokio::runtime::Builder;
use tokio::sync::oneshot;
use tokio::task::{self, JoinHandle};
use tokio::time;

use crate::endpoint_connect::{self, objects_at};
use crate::endpoint_tokio::{eventually_as, pair};
use crate::executor::in_time;
use crate::fixtures::{LONG, roce};

fn objects() -> ResourceCounts {
    objects_at(roce(0))
}

/// Runs a test with one thread for tasks and one for blocking work. No object may be left afterwards.
fn with_one_thread_for_blocking_work(test: impl Future<Output = ()>) {
    let before = objects();
    let runtime = Builder::new_current_thread().max_blocking_threads(1).enable_all().build();
    let runtime = runtime.expect("a runtime");
    runtime.block_on(test);
    drop(runtime);
    assert_eq!(objects(), before);
}

/// A value that keeps the thread for blocking work busy until it is released.
struct Held {
    releases: mpsc::Sender<()>,
    busy: JoinHandle<()>,
}

impl Held {
    /// Occupies the thread after its earlier work is done.
    async fn new() -> Self {
        let (begins, begun) = oneshot::channel();
        let (releases, released) = mpsc::channel::<()>();
        let busy = task::spawn_blocking(move || {
            begins.send(()).expect("the caller should wait");
            released.recv().expect_err("channel should be closed");
        });
        in_time(begun).await.expect("the blocking task should begin");
        Self { releases, busy }
    }

    async fn release(self) {
        drop(self.releases);
        in_time(self.busy).await.expect("the blocking task should end");
    }
}

/// Awaits `call`, which must not do anything before it has a thread.
async fn waits_for_a_thread<F: Future>(call: F) -> F::Output {
    let held = Held::new().await;
    let there = objects();
    let mut call = pin!(call);
    let first = poll_fn(|context| Poll::Ready(call.as_mut().poll(context).map(drop)));
    assert!(first.await.is_pending(), "call should be pending");
    assert_eq!(objects(), there, "this thread should send no command");
    held.release().await;
    in_time(call).await
}

async fn socket() -> DatagramSocket {
    DatagramSocket::bind(roce(0), &DatagramConfig::default()).await.expect("bind")
}

#[test]
#[ignore = "needs the test bed: cargo xtask test"]
fn export_and_revoke_leave_runtime_thread() {
    with_one_thread_for_blocking_work(async {
        let [client, server] = pair(roce(0), &ConnectionConfig::default()).await;
        let memory = DmaMemory::new(4096).expect("memory");
        let without = objects();
        let export = waits_for_a_thread(server.export(&memory, .., RemoteAccess::READ)).await;
        let export = export.expect("export");
        assert_ne!(objects(), without);
        waits_for_a_thread(export.revoke()).await.expect("revoke");
        assert_eq!(objects(), without, "the export should be revoked");
        drop((client, server));
    });
}

#[test]
#[ignore = "needs the test bed: cargo xtask test"]
fn abort_leaves_runtime_thread() {
    with_one_thread_for_blocking_work(async {
        let [client, server] = pair(roce(0), &ConnectionConfig::default()).await;
        let there = objects();
        waits_for_a_thread(client.abort()).await;
        assert_ne!(objects(), there, "the connection should have ended");
        let socket = socket().await;
        let there = objects();
        waits_for_a_thread(socket.abort()).await;
        assert_ne!(objects(), there, "the socket should have ended");
        drop(server);
    });
}

/// Checks that the connection ends for each call while the disconnect command waits.
///
/// The command waits for its thread after all messages are sent.
#[test]
#[ignore = "needs the test bed: cargo xtask test"]
fn close_command_delays_no_other_call() {
    with_one_thread_for_blocking_work(async {
        let [client, server] = pair(roce(0), &ConnectionConfig::default()).await;
        let buffer = in_time(client.acquire_buffer()).await.expect("a buffer");
        let held = Held::new().await;
        let mut closing = pin!(client.close(LONG));
        let first = poll_fn(|context| Poll::Ready(closing.as_mut().poll(context).map(drop)));
        assert!(first.await.is_pending(), "the peer should not be notified yet");
        // No message arrives between the last one and the end.
        let post = client.post_send(buffer);
        let calls = [post, in_time(client.recv()).await.map(drop)];
        for call in calls.into_iter().chain([in_time(client.acquire_buffer()).await.map(drop)]) {
            let error = call.expect_err("the connection should have ended");
            assert_eq!(*error.kind(), ErrorKind::Disconnected, "{error}");
        }
        held.release().await;
        let peer = task::spawn(async move {
            assert!(
                server.recv().await.expect("receive").is_none(),
                "the connection should have ended"
            );
            server.abort().await;
        });
        in_time(closing).await.expect("close");
        in_time(peer).await.expect("the peer should get the end");
    });
}

#[test]
#[ignore = "needs the test bed: cargo xtask test"]
fn end_of_close_leaves_runtime_thread() {
    with_one_thread_for_blocking_work(async {
        let [client, server] = pair(roce(0), &ConnectionConfig::default()).await;
        let held = Held::new().await;
        let there = objects();
        let closing = task::spawn(async move { client.close(Duration::ZERO).await });
        // The deadline passes before the thread is free. Then the call only ends the connection.
        time::sleep(Duration::from_millis(20)).await;
        assert!(!closing.is_finished(), "call should be pending");
        assert_eq!(objects(), there, "the connection should exist");
        held.release().await;
        let error = in_time(closing)
            .await
            .expect("task should not panic")
            .expect_err("the call should be late");
        assert_eq!(*error.kind(), ErrorKind::TimedOut, "{error}");
        drop(server);
    });
}

#[test]
#[ignore = "needs the test bed: cargo xtask test"]
fn reject_leaves_runtime_thread() {
    with_one_thread_for_blocking_work(async {
        let listener = Listener::bind(roce(0)).expect("listen");
        let server = listener.local_addr().expect("an IP address");
        let asking = thread::spawn(move || Connector::new().total_timeout(LONG).connect(server));
        let incoming = in_time(listener.accept()).await.expect("a request");
        let rejecting = incoming.reject(RejectReason::CONSUMER_DEFINED, b"no");
        waits_for_a_thread(rejecting).await.expect("reject");
        let error = asking
            .join()
            .expect("thread should not panic")
            .expect_err("the request should be rejected");
        let ErrorKind::Rejected(rejection) = error.kind() else { panic!("{error}") };
        assert!(rejection.private_data.starts_with(b"no"), "{error}");
    });
}

#[test]
#[ignore = "needs the test bed: cargo xtask test"]
fn bind_and_leave_of_group_leave_runtime_thread() {
    with_one_thread_for_blocking_work(async {
        let config = DatagramConfig::default();
        let socket = waits_for_a_thread(DatagramSocket::bind(roce(0), &config)).await;
        let socket = socket.expect("bind");
        for _ in 0..2 {
            // In the second round, the socket is no longer in the group.
            let group = SocketAddr::from(([239, 1, 8, 1], 0));
            let group =
                in_time(socket.join_multicast(group, Membership::Full)).await.expect("join");
            waits_for_a_thread(group.leave()).await.expect("leave");
        }
    });
}

/// Drops each object, with all objects that belong to it, on the thread for blocking work.
#[test]
#[ignore = "needs the test bed: cargo xtask test"]
fn drops_leave_runtime_thread() {
    with_one_thread_for_blocking_work(async {
        let before = objects();
        let connection = || async {
            let both = endpoint_connect::pair(roce(0), &ConnectionConfig::default());
            both.map(|one| {
                Connection::from_blocking(one).expect("the runtime should watch the object")
            })
        };
        goes_later(connection().await, &before).await;
        let [client, server] = connection().await;
        goes_later([(client.clone(), client), (server.clone(), server)], &before).await;
        goes_later(socket().await, &before).await;
        goes_later(Listener::bind(roce(0)).expect("listen"), &before).await;
    });
}

/// Checks that the thread for blocking work rejects a dropped request.
#[test]
#[ignore = "needs the test bed: cargo xtask test"]
fn tokio_dropped_request_leaves_runtime_thread() {
    with_one_thread_for_blocking_work(async {
        let listener = Listener::bind(roce(0)).expect("listen");
        let server = listener.local_addr().expect("an IP address");
        let asking = thread::spawn(move || Connector::new().total_timeout(LONG).connect(server));
        let incoming = in_time(listener.accept()).await.expect("a request");
        let held = Held::new().await;
        drop(incoming);
        assert!(!asking.is_finished(), "this thread should not reject the request");
        held.release().await;
        let asked = task::spawn_blocking(move || asking.join().expect("thread should not panic"));
        let error = in_time(asked)
            .await
            .expect("task should not panic")
            .expect_err("the request should be rejected");
        assert!(matches!(error.kind(), ErrorKind::Rejected(_)), "{error}");
    });
}

#[test]
#[ignore = "needs the test bed: cargo xtask test"]
fn tokio_without_io_or_time_is_refused() {
    let before = objects();
    let mut builders = [Builder::new_current_thread(), Builder::new_current_thread()];
    builders[1].enable_io();
    for mut builder in builders {
        let runtime = builder.build().expect("a runtime");
        let both = endpoint_connect::pair(roce(0), &ConnectionConfig::default());
        let errors = runtime.block_on(async {
            let [client, _server] = both;
            let config = DatagramConfig::default();
            [
                Listener::bind(roce(0)).map(drop),
                Connection::from_blocking(client).map(drop),
                DatagramSocket::bind(roce(0), &config).await.map(drop),
            ]
        });
        for refused in errors {
            let error = refused.expect_err("the runtime should lack I/O or time");
            assert!(matches!(error.kind(), ErrorKind::Unsupported(_)), "{error}");
            assert!(error.to_string().contains("enable_all"), "{error}");
        }
    }
    assert_eq!(objects(), before);
}

/// Drops `value`, whose objects must exist until the thread is free.
async fn goes_later<T>(value: T, before: &ResourceCounts) {
    let held = Held::new().await;
    let there = objects();
    assert_ne!(there, *before);
    drop(value);
    assert_eq!(objects(), there, "objects should be destroyed");
    held.release().await;
    eventually_as(roce(0), before).await;
}
