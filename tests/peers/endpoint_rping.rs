//! The safe tier in place of one of two `rping`s of rdma-core.
//!
//! Each side sends the address, key and length of its memory, which the server reads and then writes.

use std::net::{IpAddr, SocketAddr};
use std::time::Duration;

use rdmacm::endpoint::{
    Connection, ConnectionConfig, Connector, DmaMemory, ExportedMemory, Listener, Message,
    RemoteAccess, RemoteMemory,
};

use crate::endpoint::{close_after_last_message, first_message};
use crate::rping::{Program, Server, expected};
use crate::{SIW, SIW_V6, assert_lines};
use rdmacm_tests::roce::{roce_ip, roce_ip_v6};

const LONG: Duration = Duration::from_secs(60);
pub(crate) const COUNT: usize = 10;

pub(crate) fn config(size: usize) -> ConnectionConfig {
    ConnectionConfig::new().send_buffer_size(size).receive_buffer_size(size)
}

/// Returns the bytes that `rping` sends in ping `number`: its text, and a zero.
pub(crate) fn ping(number: usize, size: usize) -> Vec<u8> {
    let line = expected("", number, size);
    [line.trim_start_matches(": ").as_bytes(), &[0]].concat()
}

fn send_bytes(connection: &Connection, bytes: &[u8]) {
    connection.post_bytes(bytes).expect("post");
}

fn receive_bytes(connection: &Connection) -> Option<Message> {
    let message = connection.recv_timeout(LONG).expect("receive");
    assert!(message.as_ref().is_none_or(|message| message.len() == 16), "{message:?}");
    message
}

/// Returns the memory that a message of `rping` names. The message does not state the access.
pub(crate) fn named(message: &[u8]) -> RemoteMemory {
    let [addr, rkey, length] = [0..8, 8..12, 12..16]
        .map(|part| message[part].iter().fold(0, |number, byte| number << 8 | u64::from(*byte)));
    let rkey = u32::try_from(rkey).expect("the number should have 4 bytes");
    RemoteMemory::new(addr, rkey, length, RemoteAccess::all())
        .expect("the description should be valid")
}

/// Returns the message that names the exported memory of this side.
pub(crate) fn naming(export: &ExportedMemory) -> Vec<u8> {
    let remote = export.remote_memory();
    let length = u32::try_from(remote.len()).expect("the length should fit");
    [&remote.addr().to_be_bytes()[..], &remote.rkey().to_be_bytes(), &length.to_be_bytes()].concat()
}

fn serves_c(address: &str, size: usize) {
    let ip: IpAddr = address.parse().expect("an IP address");
    let listener = Listener::bind(SocketAddr::new(ip, 0)).expect("listen");
    let port = listener.local_addr().expect("an IP address").port();
    let [port, size_text, count] = [port.into(), size, COUNT].map(|number| number.to_string());
    let arguments = ["-c", "-a", address, "-p", &port, "-S", &size_text, "-C", &count, "-v", "-V"];
    let start = || Program::C.start(&arguments);
    let (client, connection, mut message) = first_message(&listener, &config(size), start);
    for number in 0..COUNT {
        if number > 0 {
            message =
                receive_bytes(&connection).expect("the message should name the memory to read");
        }
        let source = named(&message);
        let mut buffer = connection.acquire_buffer_timeout(LONG).expect("a buffer");
        buffer
            .set_len(usize::try_from(source.len()).expect("the length should fit"))
            .expect("the length should fit into a buffer");
        let read = connection
            .start_read(buffer, &source, 0)
            .and_then(|read| read.wait_timeout(LONG))
            .expect("read");
        assert!(*read == ping(number, size), "ping {number}: {}", String::from_utf8_lossy(&read));
        send_bytes(&connection, &[0; 16]);
        let sink = named(
            &receive_bytes(&connection).expect("the message should name the memory to write"),
        );
        drop(
            connection
                .start_write(read, &sink, 0)
                .and_then(|write| write.wait_timeout(LONG))
                .expect("write"),
        );
        send_bytes(&connection, &[0; 16]);
    }
    assert!(receive_bytes(&connection).is_none(), "the client should have closed");
    close_after_last_message(&connection);
    let client = client.finish();
    assert!(client.status.success(), "{}", client.stderr);
    assert_lines(&client.stdout, "ping data", size, COUNT, "the client of C");
}

fn is_served_by_c(address: &str, size: usize) {
    let server = Server::start(Program::C, address, &["-v", "-V", "-S", &size.to_string()]);
    let connector = Connector::new().config(config(size)).total_timeout(LONG);
    let connection = connector.connect(server.address()).expect("connect");
    let [mut source, sink] = [0, 1].map(|_| DmaMemory::new(size).expect("memory"));
    let gives = |memory: &DmaMemory, rights| connection.export(memory, .., rights).expect("export");
    let (given, taken) = (gives(&source, RemoteAccess::READ), gives(&sink, RemoteAccess::WRITE));
    for number in 0..COUNT {
        source.write(0, &ping(number, size)).expect("the range should be within the memory");
        send_bytes(&connection, &naming(&given));
        drop(receive_bytes(&connection).expect("the peer should have read"));
        send_bytes(&connection, &naming(&taken));
        drop(receive_bytes(&connection).expect("the peer should have written"));
        let mut back = vec![0; size];
        sink.read(0, &mut back).expect("the range should be within the memory");
        assert!(back == ping(number, size), "ping {number}");
    }
    connection.close(LONG).expect("close");
    let server = server.process.finish();
    assert!(server.status.success(), "{}", server.stderr);
    assert_lines(&server.stdout, "server ping data", size, COUNT, "the server of C");
}

#[test]
#[ignore = "needs the test bed: cargo xtask test"]
fn endpoint_serves_c_rping_client() {
    serves_c(roce_ip(), 64);
    serves_c(roce_ip(), 65_535);
    serves_c(roce_ip_v6(), 100);
}

#[test]
#[ignore = "needs the test bed: cargo xtask test"]
fn siw_endpoint_serves_c_rping_client() {
    serves_c(SIW, 64);
    serves_c(SIW_V6, 65_535);
}

#[test]
#[ignore = "needs the test bed: cargo xtask test"]
fn endpoint_reaches_c_rping_server() {
    is_served_by_c(roce_ip(), 64);
    is_served_by_c(roce_ip(), 65_535);
    is_served_by_c(roce_ip_v6(), 100);
}

#[test]
#[ignore = "needs the test bed: cargo xtask test"]
fn siw_endpoint_reaches_c_rping_server() {
    is_served_by_c(SIW, 64);
    is_served_by_c(SIW_V6, 65_535);
}
