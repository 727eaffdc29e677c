//! The safe tier: memory and descriptors of a connection.

use std::net::SocketAddr;
use std::thread;

use rdmacm::endpoint::tokio::Connection as Task;
use rdmacm::endpoint::{
    Buffer, Connection, ConnectionConfig, Connector, DmaMemory, Listener, RemoteAccess,
};
use rdmacm_tests::heap::{allocations, kept};
use rdmacm_tests::open_descriptors;
use tokio::runtime::Builder;

use crate::endpoint_connect::pair;
use crate::endpoint_messages::filled;
use crate::endpoint_nonblocking::{eventually, now};
use crate::fixtures::{LONG, is_card, roce, siw};

const CONNECTIONS: usize = 8;

/// Maximum heap of one more connection, in bytes.
///
/// It counts the connection's own memory, its watcher for tasks, and the memory for each of its buffers. Private data
/// that the peer's program sent along is not counted. The buffers themselves, and the queues that the driver maps, are
/// not on the heap.
const HEAP: isize = 4096;
const HEAP_FOR_TASKS: isize = 4576;
const HEAP_OF_BUFFER: isize = 64;

/// Returns the bytes that mlx5 keeps in tables of the identifiers of posted requests.
pub(crate) fn heap_of_tables() -> isize {
    if is_card() { 1500 } else { 0 }
}

/// Returns the bytes of these tables for another buffer, because queues have a power of two of entries.
fn heap_of_entry() -> isize {
    if is_card() { 64 } else { 0 }
}

/// The number of descriptors of one connection.
const DESCRIPTORS: usize = 3;

/// Connections, and the bytes of the heap for each of them.
type Made = (Vec<Connection>, isize);

/// Connects and accepts `count` times, with `buffers` buffers in each direction.
fn connected(address: SocketAddr, count: usize, buffers: u32) -> [Made; 2] {
    let config = &ConnectionConfig::new().send_buffers(buffers).receive_buffers(buffers);
    let listener = Listener::bind(address).expect("listen");
    let server = listener.local_addr().expect("an IP address");
    let connector = Connector::new().config(config.clone()).total_timeout(LONG);
    let connect = || (0..count).map(|_| connector.connect(server).expect("connect")).collect();
    let accept = || {
        let accept = |_| {
            let incoming = listener.accept_timeout(LONG).expect("a request");
            incoming.accept(config, &[], LONG).expect("accept")
        };
        (0..count).map(accept).collect()
    };
    let each = |(connections, bytes): (Vec<Connection>, isize)| {
        let sent: usize = connections.iter().map(|each| each.private_data().len()).sum();
        let number = |count| isize::try_from(count).expect("the count should fit");
        let bytes = (bytes - number(sent)) / number(connections.len());
        (connections, bytes)
    };
    thread::scope(|scope| {
        let clients = scope.spawn(|| kept(connect));
        let servers = kept(accept);
        [clients.join().expect("the clients should not panic"), servers].map(each)
    })
}

fn idle_connection_uses_little_memory(address: SocketAddr) {
    // The connecting side of an iWARP connection has a timer until a message of the peer has arrived.
    let timers = if address == siw(0) { CONNECTIONS } else { 0 };
    // The first connection creates objects that later ones share.
    let first = connected(address, 1, 1);
    let before = open_descriptors();
    let few = connected(address, CONNECTIONS, 1);
    let more = open_descriptors() - before;
    let all = 2 * CONNECTIONS * DESCRIPTORS + timers;
    assert!((all..=all + 1).contains(&more), "{more} descriptors of {} ends", 2 * CONNECTIONS);
    let many = connected(address, CONNECTIONS, 33);
    let runtime = Builder::new_current_thread().enable_all().build().expect("a runtime");
    let _within = runtime.enter();
    for ((connections, few), (_, many)) in few.into_iter().zip(&many) {
        let buffer = (many - few) / 64;
        let own = few - 2 * buffer;
        // A task also has a registration with its runtime.
        let watched =
            |each| Task::from_blocking(each).expect("the runtime should watch the object");
        let (tasks, more) = kept(|| connections.into_iter().map(watched).collect::<Vec<_>>());
        let of_tasks = own + more / isize::try_from(tasks.len()).expect("the count should fit");
        let text = format!(
            "{own} bytes of the heap for a connection, {buffer} for a buffer, {of_tasks} of tasks"
        );
        let tables = heap_of_tables();
        let (heap, heap_for_tasks) = (HEAP + tables, HEAP_FOR_TASKS + tables);
        let heap_of_buffer = HEAP_OF_BUFFER + heap_of_entry();
        assert!(own <= heap && of_tasks <= heap_for_tasks && buffer <= heap_of_buffer, "{text}");
    }
    drop((first, many));
}

#[test]
#[ignore = "needs the test bed: cargo xtask test"]
fn rxe_idle_connection_uses_little_memory() {
    idle_connection_uses_little_memory(roce(0));
}

#[test]
#[ignore = "needs the test bed: cargo xtask test"]
fn siw_idle_connection_uses_little_memory() {
    idle_connection_uses_little_memory(siw(0));
}

/// Calls that do not wait, even without success, and one-sided operations allocate nothing.
///
/// `endpoint_messages` tests the other calls.
fn message_path_allocates_nothing(address: SocketAddr) {
    let [client, server] = pair(address, &ConnectionConfig::default());
    let memory = DmaMemory::new(64).expect("memory");
    let export = server.export(&memory, .., RemoteAccess::all()).expect("export");
    let remote = export.remote_memory();
    let has_atomics = address.ip() != siw(0).ip();
    let round = || {
        client.post_send(filled(&client, b"there")).expect("post");
        client.flush_timeout(LONG).expect("flush");
        let received = eventually(&server, || server.try_recv()).expect("a message");
        assert_eq!(*received, *b"there");
        assert!(now(server.try_recv()).is_none(), "only one message should arrive");
        let buffer = eventually(&client, || client.try_acquire_buffer());
        let buffer = client
            .start_write(sized(buffer), &remote, 0)
            .and_then(|write| write.wait_timeout(LONG))
            .expect("write");
        client.post_write(sized(buffer), &remote, 8).expect("write");
        eventually(&client, || client.try_flush());
        let buffer = client.acquire_buffer_timeout(LONG).expect("a buffer");
        drop(
            client
                .start_read(sized(buffer), &remote, 0)
                .and_then(|read| read.wait_timeout(LONG))
                .expect("read"),
        );
        if has_atomics {
            client
                .start_fetch_add(filled(&client, b""), &remote, 0, 1)
                .and_then(|add| add.wait_timeout(LONG))
                .expect("add");
        }
    };
    // The first message creates objects. The first message of the server ends the first writes of a client on iWARP, and
    // the end of their timer allocates.
    round();
    server.post_bytes(b"answer").expect("post");
    drop(client.recv_timeout(LONG).expect("receive").expect("an answer"));
    round();
    assert_eq!(allocations(|| (0..50).for_each(|_| round())), 0);
}

/// Sets the length of a buffer to 8 bytes.
fn sized(mut buffer: Buffer) -> Buffer {
    buffer.set_len(8).expect("the length should fit");
    buffer
}

#[test]
#[ignore = "needs the test bed: cargo xtask test"]
fn rxe_message_path_allocates_nothing() {
    message_path_allocates_nothing(roce(0));
}

#[test]
#[ignore = "needs the test bed: cargo xtask test"]
fn siw_message_path_allocates_nothing() {
    message_path_allocates_nothing(siw(0));
}
