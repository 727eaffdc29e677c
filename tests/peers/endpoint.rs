//! The safe tier against rdma-core's `rdma_server` and `rdma_client`, whose messages have 16 bytes.
//!
//! The examples run against each other and against a peer that is killed.

use std::fs;
use std::time::Duration;

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use rdmacm::ErrorKind;
use rdmacm::endpoint::{Connection, ConnectionConfig, Connector, Listener, Message};
use rdmacm_tests::roce::{roce_ip, roce_name};
use rdmacm_tests::siw::has_unread_bytes;
use rdmacm_tests::{Process, promised_device, try_again, wait_until};

use crate::SIW;
use crate::connections::printed;
use crate::examples::example;
use crate::rping::{Program, listening, port};

const LONG: Duration = Duration::from_secs(60);

/// Connects to `address`, on which a server is known to listen.
fn connect(address: &str) -> Connection {
    let address: std::net::SocketAddr = address.parse().expect("an address");
    Connector::new().total_timeout(LONG).connect(address).expect("connect")
}

fn send(connection: &Connection, bytes: &[u8]) {
    connection.post_bytes(bytes).expect("post");
}

/// Closes a connection whose peer left after the last message. The driver may report the message as lost.
pub(crate) fn close_after_last_message(connection: &Connection) {
    if let Err(error) = connection.close(LONG) {
        assert_eq!(*error.kind(), ErrorKind::Disconnected, "{error}");
    }
}

fn client_reaches_c_server(address: &str) {
    let port = port();
    let server = listening(Program::C.run("rdma_server", &["-p", &port]));
    let connection = connect(&format!("{address}:{port}"));
    send(&connection, &[1; 16]);
    let message = connection.recv_timeout(LONG).expect("receive").expect("a message");
    assert_eq!(message.len(), 16);
    assert!(
        connection.recv_timeout(LONG).expect("receive").is_none(),
        "the server should have closed"
    );
    connection.close(LONG).expect("close");
    printed(server, &["rdma_server: start", "rdma_server: end 0"]);
}

/// Starts a client with `start`. Returns the client, its connection, and the first message of the connection.
pub(crate) fn first_message(
    listener: &Listener,
    config: &ConnectionConfig,
    start: impl Fn() -> Process,
) -> (Process, Connection, Message) {
    const TRIES: usize = 3;
    for _ in 0..TRIES {
        let client = start();
        let incoming = listener.accept_timeout(LONG).expect("a request");
        let connection = incoming.accept(config, &[], LONG).expect("accept");
        match connection.recv_timeout(LONG / 6) {
            Ok(Some(first)) => return (client, connection, first),
            Err(error) if *error.kind() == ErrorKind::TimedOut && has_unread_bytes() => {
                try_again("siw did not deliver the first message");
            }
            other => panic!("no message arrived: {other:?}"),
        }
    }
    panic!("siw leaves the first message unread in each attempt");
}

fn server_serves_c_client(address: &str) {
    let port = port();
    let bound: std::net::SocketAddr = format!("{address}:{port}").parse().expect("an address");
    let listener = Listener::bind(bound).expect("listen");
    let start = || Program::C.run("rdma_client", &["-s", address, "-p", &port]);
    let (client, connection, message) =
        first_message(&listener, &ConnectionConfig::default(), start);
    assert_eq!(message.len(), 16);
    send(&connection, &message);
    assert!(
        connection.recv_timeout(LONG).expect("receive").is_none(),
        "the client should have closed"
    );
    close_after_last_message(&connection);
    printed(client, &["rdma_client: start", "rdma_client: end 0"]);
}

#[test]
#[ignore = "needs the test bed: cargo xtask test"]
fn endpoint_client_reaches_c_server() {
    client_reaches_c_server(roce_ip());
}

#[test]
#[ignore = "needs the test bed: cargo xtask test"]
fn siw_endpoint_client_reaches_c_server() {
    client_reaches_c_server(SIW);
}

#[test]
#[ignore = "needs the test bed: cargo xtask test"]
fn endpoint_server_serves_c_client() {
    server_serves_c_client(roce_ip());
}

#[test]
#[ignore = "needs the test bed: cargo xtask test"]
fn siw_endpoint_server_serves_c_client() {
    server_serves_c_client(SIW);
}

/// Stops the process for a moment, as Ctrl-Z and `fg` on a terminal do.
fn stop_for_a_moment(process: &Process) {
    let pid = Pid::from_raw(i32::try_from(process.id()).expect("a process id"));
    kill(pid, Signal::SIGSTOP).expect("stop it");
    let stat =
        || fs::read_to_string(format!("/proc/{pid}/stat")).expect("the process should exist");
    wait_until("the process is stopped", || {
        stat().rsplit(") ").next().expect("a state").starts_with('T')
    });
    kill(pid, Signal::SIGCONT).expect("continue it");
}

/// Runs the server of each example with three clients, one after the other and two at once.
fn echoes(server: &[&str], address: &str) {
    let address = format!("{address}:{}", port());
    let server = listening(example(server[0], &[&server[1..], &[address.as_str()][..]].concat()));
    let client = |text| example("echo", &["client", &address, text]);
    let check = |client: Process, text: &str| {
        let client = client.finish();
        assert!(client.status.success(), "{}", client.stderr);
        assert_eq!(client.stdout, [text]);
    };
    check(client("alone"), "alone");
    // A signal that interrupts a wait of the server does not end the server.
    stop_for_a_moment(&server);
    let both = ["one of two", "the other"].map(|text| (client(text), text));
    both.into_iter().for_each(|(client, text)| check(client, text));
    drop(server);
}

#[test]
#[ignore = "needs the test bed: cargo xtask test"]
fn examples_echo() {
    promised_device(roce_name());
    echoes(&["echo", "server"], roce_ip());
    echoes(&["epoll"], roce_ip());
}

#[test]
#[ignore = "needs the test bed: cargo xtask test"]
fn siw_examples_echo() {
    promised_device("siw0");
    echoes(&["echo", "server"], SIW);
    echoes(&["epoll"], SIW);
}

#[test]
#[ignore = "needs the test bed: cargo xtask test"]
fn poll_group_example_echoes() {
    promised_device(roce_name());
    echoes(&["poll_group"], roce_ip());
}

#[test]
#[ignore = "needs the test bed: cargo xtask test"]
fn siw_poll_group_example_echoes() {
    promised_device("siw0");
    echoes(&["poll_group"], SIW);
}

/// Checks that calls that wait return, and that closing ends, after the peer is killed.
fn peer_death_is_reported(address: &str) {
    let address = format!("{address}:{}", port());
    let mut server = listening(example("echo", &["server", &address]));
    let connection = connect(&address);
    send(&connection, b"hello");
    let message = connection.recv_timeout(LONG).expect("receive").expect("a message");
    assert_eq!(*message, *b"hello");
    server.kill();
    let ended = connection.recv_timeout(LONG);
    assert!(
        ended.expect("kernel should report the end").is_none(),
        "no other message should arrive"
    );
    let error = connection.acquire_buffer().expect_err("the connection should have ended");
    assert_eq!(*error.kind(), ErrorKind::Disconnected, "{error}");
    connection.close(LONG).expect("close");
    wait_until("the server ends", || !server.is_running());
}

#[test]
#[ignore = "needs the test bed: cargo xtask test"]
fn killed_peer_is_reported() {
    promised_device(roce_name());
    peer_death_is_reported(roce_ip());
}

#[test]
#[ignore = "needs the test bed: cargo xtask test"]
fn siw_killed_peer_is_reported() {
    promised_device("siw0");
    peer_death_is_reported(SIW);
}
