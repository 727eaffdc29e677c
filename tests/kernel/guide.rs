//! The listings of the guide, executed without changes.

use std::net::SocketAddr;
use std::thread;

use rdmacm::endpoint::{ConnectionConfig, Listener};

use crate::endpoint_connect::pair;
use crate::fixtures::{roce, siw};

/// Returns a listener at the address, on a port that the kernel selects.
fn listen(address: SocketAddr) -> (Listener, SocketAddr) {
    let listener = Listener::bind(address).expect("listen");
    let address = listener.local_addr().expect("an IP address");
    (listener, address)
}

mod first_connection {
    include!("../../rdmacm/src/guide/snippets/first_connection.rs");

    pub(super) fn runs(address: SocketAddr) {
        let (listener, server) = super::listen(address);
        super::thread::scope(|scope| {
            let served = scope.spawn(|| serve_one(&listener));
            assert_eq!(ask(server, b"hello").expect("ask"), Some(b"hello".to_vec()));
            served.join().expect("server should not panic").expect("serve");
        });
    }
}

mod memory {
    include!("../../rdmacm/src/guide/snippets/memory.rs");

    pub(super) fn runs(address: super::SocketAddr) {
        let config = super::ConnectionConfig::new().receive_buffers(32);
        let [client, server] = super::pair(address, &config);
        super::thread::scope(|scope| {
            let summed = scope.spawn(|| sum(&server));
            send_squares(&client, 100, 7).expect("send");
            client.close(super::super::fixtures::LONG).expect("close");
            let expected = (0..100).map(|n| n * n).sum::<u64>();
            assert_eq!(summed.join().expect("receiver should not panic").expect("sum"), expected);
        });
    }
}

mod one_sided {
    include!("../../rdmacm/src/guide/snippets/one_sided.rs");

    pub(super) fn runs(address: super::SocketAddr) {
        let [client, server] = super::pair(address, &super::ConnectionConfig::default());
        let mut memory = DmaMemory::new(4096).expect("memory");
        memory.write(0, b"before").expect("write");
        // On iWARP the connecting side must send first.
        let _export = lend(&client, &memory).expect("lend");
        let remote = borrowed(&server).expect("receive").expect("a message");
        assert_eq!(exchange(&server, &remote, b"behind").expect("exchange"), b"before");
        if address.ip() == super::roce(0).ip() {
            let counter = client.export(&memory, 8.., RemoteAccess::ATOMIC).expect("export");
            let next = || take_ticket(&server, &counter.remote_memory()).expect("add");
            assert_eq!([next(), next()], [0, 1]);
        }
        // On iWARP the written bytes have arrived before a later message.
        let buffer = server.acquire_buffer().expect("a buffer");
        server.post_send(buffer).expect("post");
        client.recv().expect("receive").expect("a message");
        let mut now = [0; 6];
        memory.read(0, &mut now).expect("read");
        assert_eq!(now, *b"behind");
    }
}

mod versions {
    include!("../../rdmacm/src/guide/snippets/versions.rs");

    const LENGTH: usize = 4000;
    const LAST: u8 = 40;
    /// The owner does not change the data for this time, so that a reader finds one version.
    const PAUSE: std::time::Duration = std::time::Duration::from_millis(5);

    pub(super) fn runs(address: super::SocketAddr) {
        use rdmacm::endpoint::RemoteAccess;

        let [client, server] = super::pair(address, &super::ConnectionConfig::default());
        let mut memory = DmaMemory::new(VERSION + LENGTH).expect("memory");
        // On iWARP the connecting side must send first.
        client.post_bytes(b"table").expect("post");
        server.recv().expect("receive").expect("a message");
        let export = server.export(&memory, .., RemoteAccess::READ).expect("export");
        server.post_bytes(&export.remote_memory().to_bytes()).expect("post");
        let table = client.recv().expect("receive").expect("a message");
        let table = RemoteMemory::from_bytes(&table).expect("a descriptor");
        super::thread::scope(|scope| {
            scope.spawn(move || {
                for version in 1..=LAST {
                    publish(&mut memory, &[version; LENGTH]).expect("publish");
                    super::thread::sleep(PAUSE);
                }
            });
            let mut last = 0;
            while last < LAST {
                let data = snapshot(&client, &table, LENGTH, 1000).expect("read");
                let data = data.expect("the reader should find one version");
                assert!(
                    data.iter().all(|byte| *byte == data[0]),
                    "the data should belong to one version"
                );
                assert!(data[0] >= last, "version {} after {last}", data[0]);
                last = data[0];
            }
        });
    }
}

mod asynchronous {
    include!("../../rdmacm/src/guide/snippets/asynchronous.rs");

    pub(super) fn runs(address: SocketAddr) {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
        let done = runtime.expect("a runtime").block_on(async {
            let listener = Listener::bind(address).expect("listen");
            let server = listener.local_addr().expect("an IP address");
            let serving = tokio::spawn(serve(listener, 2));
            for text in [b"one", b"two"] {
                assert_eq!(ask(server, text).await?, Some(text.to_vec()));
            }
            serving.await.expect("server should not panic")
        });
        done.expect("no call of the listing should fail");
    }
}

mod datagrams {
    include!("../../rdmacm/src/guide/snippets/datagrams.rs");

    pub(super) fn runs(local: SocketAddr) {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
        let answer = runtime.expect("a runtime").block_on(async {
            let socket = DatagramSocket::bind(local, &DatagramConfig::default()).await?;
            let server = socket.local_addr().expect("an IP address");
            let serving = tokio::spawn(echo(socket));
            let answer = ask(local, server, b"hello").await;
            serving.abort();
            answer
        });
        assert_eq!(answer.expect("ask"), b"hello");
    }
}

mod errors {
    include!("../../rdmacm/src/guide/snippets/errors.rs");

    pub(super) fn runs(address: SocketAddr) {
        use rdmacm::cm::RejectReason;

        let (listener, server) = super::listen(address);
        drop(listener);
        let refused = connect(server, 2).expect_err("no program should listen");
        assert!(is_refused(&refused), "{refused}");
        let (listener, server) = super::listen(address);
        assert!(is_timeout(
            &listener.accept_timeout(Duration::ZERO).expect_err("no client should connect")
        ));
        thread::scope(|scope| {
            let connecting = scope.spawn(|| connect(server, 1));
            let incoming = listener.accept().expect("a request");
            incoming.reject(RejectReason::CONSUMER_DEFINED, b"not you").expect("reject");
            let refused = connecting
                .join()
                .expect("thread should not panic")
                .expect_err("the request should be rejected");
            let reason = refusal(&refused).expect("a rejection");
            assert!(reason.starts_with(b"not you"), "{reason:?}");
        });
    }
}

mod requests {
    include!("../../rdmacm/src/guide/snippets/requests.rs");

    const SHORT: Duration = Duration::from_millis(200);

    pub(super) fn runs(address: SocketAddr) {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
        let done: io::Result<()> = runtime.expect("a runtime").block_on(async {
            let (stop, stopped) = tokio::sync::oneshot::channel::<()>();
            let listener = Listener::bind(address).expect("listen");
            let server = listener.local_addr().expect("an IP address");
            let stopped = async { drop(stopped.await) };
            let serving = tokio::spawn(serve_until(listener, stopped, SHORT));
            let mut client = Client::new(server);
            assert_eq!(client.call(b"one", LONG).await?, b"ONE");
            assert_eq!(client.call(b"two", LONG).await?, b"TWO");
            // On RoCE the client does not answer the close, because it makes no call. So the server waits for its grace
            // period.
            stop.send(()).expect("the server should run");
            serving.await.expect("server should not panic")?;
            let error =
                client.call(b"three", LONG).await.expect_err("the server should have stopped");
            assert_ne!(error.kind(), io::ErrorKind::TimedOut, "{error}");
            // This server answers the first request after the second one. The client connects when the server has
            // started.
            let serving = tokio::spawn(async move {
                time::sleep(SHORT).await;
                let connection = Listener::bind(server)?.accept().await?.await?;
                let late = connection.recv().await?.expect("a request").to_vec();
                let next = connection.recv().await?.expect("a request").to_vec();
                connection.post_bytes(&late).await?;
                connection.post_bytes(&next).await?;
                connection.recv().await
            });
            assert_eq!(client.connected().await?.peer_addr(), Some(server));
            let error = client.call(b"four", SHORT).await.expect_err("no response should arrive");
            assert_eq!(error.kind(), io::ErrorKind::TimedOut, "{error}");
            assert_eq!(client.call(b"five", LONG).await?, b"five");
            drop(client);
            assert!(serving.await.expect("server should not panic")?.is_none());
            Ok(())
        });
        done.expect("no call of the listing should fail");
    }
}

mod in_flight {
    include!("../../rdmacm/src/guide/snippets/in_flight.rs");

    const LONG: Duration = Duration::from_secs(60);
    const REQUESTS: u8 = 100;

    /// Runs `ask` with a client whose connection `serve` serves.
    fn run_beside<S, A>(
        address: super::SocketAddr,
        in_flight: usize,
        serve: impl FnOnce(Connection) -> S + Send + 'static,
        ask: impl FnOnce(Client) -> A,
    ) where
        S: Future<Output = io::Result<()>> + Send + 'static,
        A: Future<Output = io::Result<()>>,
    {
        use rdmacm::endpoint::tokio::Listener;
        use rdmacm::endpoint::{ConnectionConfig, Connector};

        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
        let done: io::Result<()> = runtime.expect("a runtime").block_on(async {
            let listener = Listener::bind(address).expect("listen");
            let server = listener.local_addr().expect("an IP address");
            let serving = tokio::spawn(async move {
                let config = ConnectionConfig::default();
                serve(listener.accept().await?.accept(&config, &[], LONG).await?).await
            });
            let connection = Connection::connect(&Connector::new(), server).await?;
            ask(Client::new(connection, in_flight)).await?;
            serving.await.expect("server should not panic")
        });
        done.expect("no call of the listing should fail");
    }

    pub(super) fn runs(address: super::SocketAddr) {
        let serve = |connection: Connection| async move {
            // Answers each two requests in reverse order, and not the last one.
            for _ in 0..REQUESTS / 2 {
                let first = connection.recv().await?.expect("a request").to_vec();
                let second = connection.recv().await?.expect("a request").to_vec();
                connection.post_bytes(&second).await?;
                connection.post_bytes(&first).await?;
            }
            let late = connection.recv().await?.expect("a request").to_vec();
            let next = connection.recv().await?.expect("a request").to_vec();
            connection.post_bytes(&late).await?;
            connection.post_bytes(&next).await?;
            connection.recv().await?.expect("the last request");
            assert!(connection.recv().await?.is_none());
            Ok(())
        };
        run_beside(address, 8, serve, |client| async move {
            let client = Arc::new(client);
            let mut calls = tokio::task::JoinSet::new();
            for number in 0..REQUESTS {
                let client = Arc::clone(&client);
                calls.spawn(async move { (number, client.call(&[number], LONG).await) });
            }
            while let Some(call) = calls.join_next().await {
                let (number, response) = call.expect("a call should not panic");
                assert_eq!(response?, [number]);
            }
            assert_eq!(client.permits.available_permits(), 8);
            let late = client.call(b"late", Duration::from_millis(50)).await;
            assert_eq!(
                late.expect_err("no response should arrive").kind(),
                io::ErrorKind::TimedOut
            );
            assert_eq!(client.permits.available_permits(), 7, "request should be in flight");
            assert_eq!(client.call(b"next", LONG).await?, b"next");
            assert_eq!(client.permits.available_permits(), 8, "late response should be taken");
            let last = tokio::spawn({
                let client = Arc::clone(&client);
                async move { client.call(b"last", LONG).await }
            });
            while client.permits.available_permits() == 8 {
                tokio::task::yield_now().await;
            }
            client.close(LONG).await?;
            let last = last
                .await
                .expect("a call should not panic")
                .expect_err("no response should arrive");
            assert_eq!(last.kind(), io::ErrorKind::ConnectionReset, "{last}");
            let after =
                client.call(b"after", LONG).await.expect_err("the connection should have ended");
            assert!(after.to_string().contains("this side has closed"), "{after}");
            Ok(())
        });
    }

    /// Checks that a message with the number of no request ends the connection.
    pub(super) fn reports_unknown_number(address: super::SocketAddr) {
        let serve = |connection: Connection| async move {
            connection.recv().await?.expect("a request");
            connection.post_bytes(&u64::MAX.to_be_bytes()).await?;
            // The client aborts the connection, which fails or ends the call.
            let _ = connection.recv().await;
            Ok(())
        };
        run_beside(address, 1, serve, |client| async move {
            assert!(!client.has_ended());
            let error = client.call(b"request", LONG).await.expect_err("no response should arrive");
            assert_eq!(error.kind(), io::ErrorKind::InvalidData, "{error}");
            assert!(client.has_ended());
            Ok(())
        });
    }
}

fn run(address: SocketAddr) {
    requests::runs(address);
    in_flight::runs(address);
    in_flight::reports_unknown_number(address);
    first_connection::runs(address);
    memory::runs(address);
    one_sided::runs(address);
    versions::runs(address);
    asynchronous::runs(address);
    errors::runs(address);
}

#[test]
#[ignore = "needs the test bed: cargo xtask test"]
fn listings_run_as_described() {
    run(roce(0));
    datagrams::runs(roce(0));
}

/// Runs the listings except those on datagrams, which siw does not have.
///
/// siw may leave a message unread that arrives during the accept. The first keep-alive probe of the client makes siw
/// read it.
#[test]
#[ignore = "needs the test bed: cargo xtask test"]
fn siw_listings_run_as_described() {
    run(siw(0));
}
