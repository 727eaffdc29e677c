//! The safe tier for tasks: allocations by messages.

use std::net::SocketAddr;

use rdmacm::cm::Membership;
use rdmacm::endpoint::tokio::{Connection, DatagramSocket};
use rdmacm::endpoint::{Buffer, ConnectionConfig, DatagramConfig, DmaMemory, RemoteAccess};
use rdmacm_tests::heap;
use tokio::runtime::Builder;
use tokio::task;

use crate::endpoint_tokio::{filled, pair};
use crate::executor::in_time;
use crate::fixtures::{roce, siw};

/// Acquires a buffer of 8 bytes.
async fn word(connection: &Connection) -> Buffer {
    let mut buffer = connection.acquire_buffer().await.expect("a buffer");
    buffer.set_len(8).expect("the length should fit");
    buffer
}

async fn echoes(server: Connection) {
    while let Some(message) = server.recv().await.expect("receive") {
        let mut answer = server.acquire_buffer().await.expect("a buffer");
        answer.copy_from(&message).expect("the length should fit");
        server.post_send(answer).expect("post");
    }
}

/// Makes all calls for messages and remote memory.
///
/// Each call has to wait, because one thread runs both sides.
async fn on_a_connection(address: SocketAddr) {
    let [client, server] = pair(address, &ConnectionConfig::default()).await;
    let memory = DmaMemory::new(64).expect("memory");
    let export = server.export(&memory, .., RemoteAccess::all()).await.expect("export");
    let remote = export.remote_memory();
    let server = task::spawn(echoes(server));
    let has_atomics = address.ip() != siw(0).ip();
    let mut before = 0;
    for round in 0..60 {
        // The first messages create objects.
        if round == 10 {
            before = heap::count();
        }
        client.post_send(filled(&client, b"one").await).expect("post");
        client.flush().await.expect("flush");
        drop(client.send(filled(&client, b"two").await).await.expect("send"));
        for text in [b"one", b"two"] {
            let message = client.recv().await.expect("receive").expect("an answer");
            assert_eq!(*message, *text);
        }
        client.post_write(filled(&client, b"posted").await, &remote, 8).expect("post");
        drop(client.write(word(&client).await, &remote, 0).await.expect("write"));
        drop(client.read(word(&client).await, &remote, 0).await.expect("read"));
        if has_atomics {
            client.fetch_add(&remote, 0, 1).await.expect("add");
            client.compare_swap(&remote, 0, 1, 2).await.expect("swap");
        }
    }
    assert_eq!(heap::count() - before, 0, "50 rounds should allocate nothing");
    // The peer answered each read after it had stored the bytes of the writes before.
    let mut posted = [0; 6];
    memory.read(8, &mut posted).expect("the range should be within the memory");
    assert_eq!(posted, *b"posted");
    drop(client);
    server.await.expect("server should get the end");
}

#[test]
#[ignore = "needs the test bed: cargo xtask test"]
fn rxe_task_messages_allocate_nothing() {
    alone(on_a_connection(roce(0)));
}

#[test]
#[ignore = "needs the test bed: cargo xtask test"]
fn siw_task_messages_allocate_nothing() {
    alone(on_a_connection(siw(0)));
}

/// Runs the test in this thread, whose allocations are counted.
fn alone(test: impl Future<Output = ()>) {
    let runtime = Builder::new_current_thread().enable_all().build().expect("a runtime");
    runtime.block_on(in_time(test));
}

async fn on_sockets() {
    let config = DatagramConfig::default();
    let [client, server] = [
        DatagramSocket::bind(roce(0), &config).await.expect("bind"),
        DatagramSocket::bind(roce(0), &config).await.expect("bind"),
    ];
    let at = server.local_addr().expect("an IP address");
    let serving = task::spawn(async move {
        loop {
            let (datagram, sender) = server.recv_from().await.expect("receive");
            let mut answer = server.acquire_buffer().await.expect("a buffer");
            answer.copy_from(&datagram).expect("the length should fit");
            server.post_send_to(answer, &sender).await.expect("post");
        }
    });
    let peer = client.resolve_peer(at).await.expect("resolve");
    let group = SocketAddr::from(([239, 1, 5, 1], 0));
    let group = client.join_multicast(group, Membership::Full).await.expect("join");
    let mut before = 0;
    for round in 0..60 {
        if round == 10 {
            before = heap::count();
        }
        for peer in [&peer, group.peer()] {
            let mut buffer = client.acquire_buffer().await.expect("a buffer");
            buffer.copy_from(b"there and back").expect("the length should fit");
            drop(client.send_to(buffer, peer).await.expect("send"));
            let (answer, _) = client.recv_from().await.expect("receive");
            assert_eq!(*answer, *b"there and back");
        }
        client.flush().await.expect("flush");
    }
    assert_eq!(heap::count() - before, 0, "50 rounds should allocate nothing");
    serving.abort();
}

#[test]
#[ignore = "needs the test bed: cargo xtask test"]
fn task_datagrams_allocate_nothing() {
    alone(on_sockets());
}
