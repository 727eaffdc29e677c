//! The safe tier and the traits of other libraries: addresses, iterators, streams, writers, bytes and descriptors.

use std::io::Write;
use std::net::{Ipv4Addr, SocketAddr};
use std::os::fd::{AsFd, AsRawFd};
use std::pin::{Pin, pin};
use std::thread;
use std::time::Duration;

use bytes::Bytes;
use futures_core::{FusedStream, Stream};
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use rdmacm::ErrorKind;
use rdmacm::device::ResourceCounts;
use rdmacm::endpoint::{
    Connection, ConnectionConfig, Connector, DatagramConfig, DatagramSocket, Listener, task,
};

use crate::child::child_cannot;
use crate::endpoint_connect::{objects_at, pair, pair_of};
use crate::endpoint_messages::receives;
use crate::executor::{in_time, on_each_executor};
use crate::fixtures::{LONG, roce, roce_ip, roce_v6, siw};

/// An address of the range for documentation, which this machine does not have and no route leads to.
const ABSENT: SocketAddr =
    SocketAddr::V4(std::net::SocketAddrV4::new(Ipv4Addr::new(192, 0, 2, 1), 7471));

/// Returns an address at which no program listens.
fn unused(address: SocketAddr) -> SocketAddr {
    let listener = Listener::bind(address).expect("listen");
    listener.local_addr().expect("an IP address")
}

/// Accepts requests on `listener` until `connect` returns.
fn while_accepting<T>(listener: &Listener, connect: impl FnOnce() -> T + Send) -> T
where
    T: Send,
{
    thread::scope(|scope| {
        let connecting = scope.spawn(connect);
        while !connecting.is_finished() {
            match listener.accept_timeout(Duration::from_millis(50)) {
                Ok(incoming) => drop(incoming.accept(&ConnectionConfig::new(), b"", LONG)),
                Err(error) => assert_eq!(*error.kind(), ErrorKind::TimedOut, "{error}"),
            }
        }
        connecting.join().expect("client should not panic")
    })
}

fn connect_tries_addresses_in_turn(address: SocketAddr) {
    let before = objects_at(address);
    let listener = Listener::bind(address).expect("listen");
    let server = listener.local_addr().expect("an IP address");
    let servers = [ABSENT, unused(address), server, ABSENT];
    let connection =
        while_accepting(&listener, || Connector::new().connect(&servers[..]).expect("connect"));
    assert_eq!(connection.peer_addr(), Some(server));
    drop(connection);
    // The descriptor remains the same when the next address is tried.
    let connection = while_accepting(&listener, || {
        let mut connecting = Connector::new().start_connect(&servers[1..]).expect("start");
        let descriptor = connecting.as_raw_fd();
        assert_eq!(descriptor, connecting.as_fd().as_raw_fd());
        loop {
            match connecting.try_wait() {
                Err(error) if *error.kind() == ErrorKind::WouldBlock => {
                    assert_eq!(connecting.as_raw_fd(), descriptor);
                    // A deadline that has passed takes effect even if the descriptor is not readable.
                    let mut descriptors = [PollFd::new(connecting.as_fd(), PollFlags::POLLIN)];
                    poll(&mut descriptors, PollTimeout::from(100_u8)).expect("poll");
                }
                connected => break connected.expect("connect"),
            }
        }
    });
    assert_eq!(connection.peer_addr(), Some(server));
    drop(connection);
    // The last error is returned.
    let error = Connector::new()
        .connect(&[unused(address), ABSENT][..])
        .expect_err("no server should be at the addresses");
    assert!(error.to_string().contains("192.0.2.1"), "{error}");
    drop(listener);
    assert_eq!(objects_at(address), before);
}

#[test]
#[ignore = "needs the test bed: cargo xtask test"]
fn rxe_connect_tries_addresses_in_turn() {
    connect_tries_addresses_in_turn(roce(0));
}

#[test]
#[ignore = "needs the test bed: cargo xtask test"]
fn siw_connect_tries_addresses_in_turn() {
    connect_tries_addresses_in_turn(siw(0));
}

#[test]
#[ignore = "needs the test bed: cargo xtask test"]
fn total_timeout_covers_all_addresses() {
    // The listener accepts no request, so each attempt lasts until its deadline.
    let listener = Listener::bind(roce(0)).expect("listen");
    let server = listener.local_addr().expect("an IP address");
    let connector = Connector::new().total_timeout(Duration::from_millis(300));
    let error =
        connector.connect(&[server, server, server][..]).expect_err("no server should answer");
    assert_eq!(*error.kind(), ErrorKind::TimedOut, "{error}");
    let mut requests = 0;
    while listener.accept_timeout(Duration::from_millis(500)).is_ok() {
        requests += 1;
    }
    assert_eq!(requests, 1, "the first attempt should use all the time");
}

#[test]
#[ignore = "needs the test bed: cargo xtask test"]
fn bind_tries_addresses_in_turn() {
    let addresses = [SocketAddr::new(ABSENT.ip(), 0), roce(0)];
    let listener = Listener::bind(&addresses[..]).expect("listen");
    assert_eq!(listener.local_addr().map(|local| local.ip()), Some(roce(0).ip()));
    let socket = DatagramSocket::bind(&addresses[..], &DatagramConfig::new()).expect("bind");
    assert_eq!(socket.local_addr().map(|local| local.ip()), Some(roce(0).ip()));
    let peer =
        DatagramSocket::bind(&*format!("{}:0", roce_ip()), &DatagramConfig::new()).expect("bind");
    // The socket uses the address of its own family.
    let port = peer.local_addr().expect("an IP address").port();
    thread::scope(|scope| {
        let asking = scope.spawn(|| {
            socket
                .start_resolve_peer(&[roce_v6(port), roce(port)][..])
                .and_then(|answer| answer.wait_timeout(LONG))
        });
        while !asking.is_finished() {
            let _ = peer.recv_from_timeout(Duration::from_millis(50));
        }
        let found = asking.join().expect("asking thread should not panic").expect("resolve");
        assert_eq!(found.qp_num(), peer.qp_num());
    });
}

#[test]
#[ignore = "needs the test bed: cargo xtask test"]
fn malformed_address_is_refused() {
    let error = Connector::new()
        .connect("10.0.0.1")
        .expect_err("an address without a port should be refused");
    assert_eq!(
        error.to_string(),
        "cannot use the address \"10.0.0.1\": an address has the form HOST:PORT (EINVAL)"
    );
}

#[test]
#[ignore = "needs the test bed: cargo xtask test"]
fn message_iterator_ends_with_connection() {
    let [client, server] = pair(roce(0), &ConnectionConfig::new());
    for text in ["one", "two"] {
        client.post_bytes(text.as_bytes()).expect("post");
    }
    // The peer answers the close in a call of its program.
    let received: Vec<Vec<u8>> = thread::scope(|scope| {
        scope.spawn(|| client.close(LONG).expect("close"));
        server.messages().map(|message| message.expect("a message").to_vec()).collect()
    });
    assert_eq!(received, [b"one", b"two"]);
    server.abort();
    let ended: Vec<_> = server.messages().map(|message| message.map(drop)).collect();
    assert_eq!(ended.len(), 1, "an error should end the iterator");
    assert_eq!(
        *ended[0].as_ref().expect_err("the connection should be aborted").kind(),
        ErrorKind::Disconnected
    );
}

#[test]
#[ignore = "needs the test bed: cargo xtask test"]
fn incoming_returns_each_request() {
    let listener = Listener::bind(roce(0)).expect("listen");
    let server = listener.local_addr().expect("an IP address");
    let accepted: Vec<Connection> = thread::scope(|scope| {
        let connect = move || Connector::new().connect(server).expect("connect");
        let clients = [(); 3].map(|()| scope.spawn(connect));
        let requests = listener.incoming().take(3);
        let accept = |incoming: rdmacm::Result<rdmacm::endpoint::Incoming>| {
            incoming.expect("a request").accept(&ConnectionConfig::new(), b"", LONG)
        };
        let accepted = requests.map(accept).map(|accepted| accepted.expect("accept")).collect();
        // A client that ends its connection early could end it before it is accepted.
        drop(clients.map(|client| client.join().expect("client should not panic")));
        accepted
    });
    assert_eq!(accepted.len(), 3);
}

#[test]
#[ignore = "needs the test bed: cargo xtask test"]
fn buffer_implements_write() {
    let config = ConnectionConfig::new().send_buffer_size(16);
    let [client, server] = pair(roce(0), &config);
    let mut buffer = client.acquire_buffer().expect("a buffer");
    assert_eq!(buffer.len(), 16, "a buffer should be full at first");
    buffer.set_len(0).expect("an empty message should fit");
    write!(buffer, "number {}", 7).expect("the text should fit");
    assert_eq!(buffer.as_ref(), b"number 7");
    let error = buffer.write_all(&[0; 9]).expect_err("the buffer should be full");
    assert_eq!((error.kind(), buffer.len()), (std::io::ErrorKind::WriteZero, 16));
    buffer.set_len(8).expect("the length should fit");
    buffer.as_mut()[0] = b'N';
    client.post_send(buffer).expect("post");
    receives(&server, b"Number 7");
}

#[test]
#[ignore = "needs the test bed: cargo xtask test"]
fn bytes_keep_receive_buffer() {
    let [client, server] = pair(roce(0), &ConnectionConfig::new().receive_buffers(1));
    let reposted = || server.stats().expect("this process").receives_reposted;
    client.post_bytes(b"shared").expect("post");
    let message = server.recv_timeout(LONG).expect("receive").expect("a message");
    let bytes = Bytes::from(message);
    let part = bytes.slice(..3);
    drop(bytes);
    assert_eq!((&part[..], reposted()), (&b"sha"[..], 0));
    thread::spawn(move || drop(part)).join().expect("last owner should not panic");
    assert_eq!(reposted(), 1);
    client.post_bytes(b"next").expect("post");
    receives(&server, b"next");
}

#[test]
#[ignore = "needs the test bed: cargo xtask test"]
fn rxe_depths_are_lower_of_both() {
    let ours = ConnectionConfig::new().initiator_depth(4).responder_resources(2);
    let theirs = ConnectionConfig::new().initiator_depth(1).responder_resources(3);
    let [client, server] = pair_of(roce(0), [&ours, &theirs]);
    let depths = |side: &Connection| (side.initiator_depth(), side.responder_resources());
    assert_eq!(depths(&client), (Some(3), Some(1)));
    assert_eq!(depths(&server), (Some(1), Some(3)));
}

#[test]
#[ignore = "needs the test bed: cargo xtask test"]
fn siw_depths_are_not_reported() {
    let [client, server] = pair(siw(0), &ConnectionConfig::new());
    for side in [client, server] {
        assert_eq!((side.initiator_depth(), side.responder_resources()), (None, None));
    }
}

#[test]
#[ignore = "needs the test bed: cargo xtask test"]
fn raw_descriptor_equals_borrowed_descriptor() {
    let listener = Listener::bind(roce(0)).expect("listen");
    assert_eq!(listener.as_raw_fd(), listener.as_fd().as_raw_fd());
    let [client, _server] = pair(roce(0), &ConnectionConfig::new());
    assert_eq!(client.as_raw_fd(), client.as_fd().as_raw_fd());
    let socket = DatagramSocket::bind(roce(0), &DatagramConfig::new()).expect("bind");
    assert_eq!(socket.as_raw_fd(), socket.as_fd().as_raw_fd());
}

#[test]
#[ignore = "needs the test bed: cargo xtask test"]
fn rxe_task_connection_reports_depths_and_stats() {
    on_each_executor(roce(0), || async {
        let ours = ConnectionConfig::new().initiator_depth(4).responder_resources(3);
        let theirs = ConnectionConfig::new().initiator_depth(2).responder_resources(3);
        let [client, _server] = pair_of(roce(0), [&ours, &theirs]);
        let client = task::Connection::from_blocking(client).expect("watch");
        assert_eq!((client.initiator_depth(), client.responder_resources()), (Some(3), Some(2)));
        in_time(client.post_bytes(b"counted")).await.expect("post");
        assert_eq!(client.stats().expect("count").messages_sent, 1);
        in_time(client.flush()).await.expect("flush");
        child_cannot(client.flush());
    });
}

/// Returns the next item of `stream`.
async fn next<S: Stream + Unpin>(stream: &mut S) -> Option<S::Item> {
    in_time(std::future::poll_fn(|context| Pin::new(&mut *stream).poll_next(context))).await
}

fn streams_return_requests_and_messages(address: SocketAddr) {
    let before: ResourceCounts = objects_at(address);
    on_each_executor(address, move || async move {
        let listener = task::Listener::bind(address).expect("listen");
        let server = listener.local_addr().expect("an IP address");
        let client = crate::executor::spawn(async move {
            let client = task::Connection::connect(&Connector::new(), server.to_string()).await;
            let client = client.expect("connect");
            for text in ["one", "two"] {
                client.post_bytes(text.as_bytes()).await.expect("post");
            }
            // siw drops unread messages when a connection ends, so the client waits for an answer.
            let answer = client.recv().await.expect("receive").expect("an answer");
            assert_eq!(&answer[..], b"received");
            client.close(LONG).await.expect("close");
        });
        let incoming = {
            let mut requests = pin!(listener.incoming());
            next(&mut requests).await.expect("the stream should not end").expect("a request")
        };
        let accepted = incoming.await.expect("accept");
        let mut messages = pin!(accepted.messages());
        for text in ["one", "two"] {
            let message = next(&mut messages)
                .await
                .expect("the stream should have a message")
                .expect("a message");
            assert_eq!(&message[..], text.as_bytes());
        }
        accepted.post_bytes(b"received").await.expect("post");
        assert!(!messages.is_terminated());
        assert!(next(&mut messages).await.is_none());
        assert!(messages.is_terminated());
        assert!(next(&mut messages).await.is_none());
        client.await.expect("the client should close");
    });
    assert_eq!(objects_at(address), before);
}

#[test]
#[ignore = "needs the test bed: cargo xtask test"]
fn rxe_streams_return_requests_and_messages() {
    streams_return_requests_and_messages(roce(0));
}

#[test]
#[ignore = "needs the test bed: cargo xtask test"]
fn siw_streams_return_requests_and_messages() {
    streams_return_requests_and_messages(siw(0));
}
