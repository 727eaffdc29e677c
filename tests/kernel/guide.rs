//! The listings of the guide, as they stand there.

use std::net::SocketAddr;
use std::thread;

use rdmacm::endpoint::{Listener, Settings};

use crate::bed::{rxe, siw};
use crate::endpoint_connect::pair;

/// A listener at the address, on a port of the kernel's choice.
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
            served.join().expect("the server lives").expect("serve");
        });
    }
}

mod memory {
    include!("../../rdmacm/src/guide/snippets/memory.rs");

    pub(super) fn runs(address: super::SocketAddr) {
        let settings = super::Settings { receive_buffers: 32, ..super::Settings::default() };
        let [client, server] = super::pair(address, &settings);
        super::thread::scope(|scope| {
            let summed = scope.spawn(|| sum(&server));
            send_squares(&client, 100, 7).expect("send");
            client.close(super::super::bed::LONG).expect("close");
            let expected = (0..100).map(|n| n * n).sum::<u64>();
            assert_eq!(summed.join().expect("the receiver lives").expect("sum"), expected);
        });
    }
}

mod one_sided {
    include!("../../rdmacm/src/guide/snippets/one_sided.rs");

    pub(super) fn runs(address: super::SocketAddr) {
        let [client, server] = super::pair(address, &super::Settings::default());
        let mut memory = Memory::new(4096).expect("memory");
        memory.write(0, b"before").expect("write");
        // The side that connected is the first to send.
        let _export = lend(&client, &memory).expect("lend");
        let remote = borrowed(&server).expect("receive").expect("a message");
        assert_eq!(exchange(&server, &remote, b"behind").expect("exchange"), b"before");
        // On iWARP what was written is there before a message that comes later.
        let buffer = server.buffer().expect("a buffer");
        server.post(buffer).expect("post");
        client.recv().expect("receive").expect("a message");
        let mut now = [0; 6];
        memory.read(0, &mut now).expect("read");
        assert_eq!(now, *b"behind");
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
            serving.await.expect("the server lives")
        });
        done.expect("no failure");
    }
}

mod datagrams {
    include!("../../rdmacm/src/guide/snippets/datagrams.rs");

    pub(super) fn runs(local: SocketAddr) {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
        let answer = runtime.expect("a runtime").block_on(async {
            let socket = DatagramSocket::bind(local, &DatagramSettings::default()).await?;
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
        let nobody = connect(server, 2).expect_err("nobody listens");
        assert!(is_refused(&nobody), "{nobody}");
        let (listener, server) = super::listen(address);
        thread::scope(|scope| {
            let connecting = scope.spawn(|| connect(server, 1));
            let incoming = listener.incoming().expect("a request");
            incoming.reject(RejectReason::CONSUMER_DEFINED, b"not you").expect("reject");
            let refused = connecting.join().expect("it lives").expect_err("it is rejected");
            let said = refusal(&refused).expect("a rejection");
            assert!(said.starts_with(b"not you"), "{said:?}");
        });
    }
}

fn run(address: SocketAddr) {
    first_connection::runs(address);
    memory::runs(address);
    one_sided::runs(address);
    asynchronous::runs(address);
    errors::runs(address);
}

#[test]
#[ignore = "needs the test bed: cargo xtask test"]
fn the_listings_do_what_they_say() {
    run(rxe(0));
    datagrams::runs(rxe(0));
}

/// But for datagrams, which siw has not. A message that siw lets lie, as it comes while the server accepts, is seen when
/// the client looks after the peer, as it does by itself at first.
#[test]
#[ignore = "needs the test bed: cargo xtask test"]
fn siw_the_listings_do_what_they_say() {
    run(siw(0));
}
