//! The safe tier for tasks against rdma-core's `rdma_server` and `rdma_client`, and in place of one of two `rping`s.

use std::future::Future;
use std::net::{IpAddr, SocketAddr};
use std::time::Duration;

use rdmacm::ErrorKind;
use rdmacm::endpoint::tokio::{Connection, Listener};
use rdmacm::endpoint::{ConnectionConfig, Connector, DmaMemory, Message, RemoteAccess};
use rdmacm_tests::roce::roce_ip;
use rdmacm_tests::siw::has_unread_bytes;
use rdmacm_tests::{Process, try_again};
use tokio::runtime::Builder;
use tokio::time;

use crate::connections::printed;
use crate::endpoint_rping::{COUNT, config, named, naming, ping};
use crate::rping::{Program, Server, listening, port};
use crate::{SIW, assert_lines};

const LONG: Duration = Duration::from_secs(60);

/// Runs `test` in a runtime of one thread, and returns its output.
fn run_in_task<T>(test: impl Future<Output = T>) -> T {
    let runtime = Builder::new_current_thread().enable_all().build().expect("a runtime");
    runtime
        .block_on(async { time::timeout(2 * LONG, test).await.expect("test should end in time") })
}

/// Connects to `server`, on which a program is known to listen.
async fn connect(server: SocketAddr, config: ConnectionConfig) -> Connection {
    let connector = Connector::new().config(config).total_timeout(LONG);
    Connection::connect(&connector, server).await.expect("connect")
}

/// Returns the next message, of 16 bytes, if there is one.
async fn receive_bytes(connection: &Connection) -> Option<Message> {
    let message = connection.recv().await.expect("receive");
    assert!(message.as_ref().is_none_or(|message| message.len() == 16), "{message:?}");
    message
}

async fn send_bytes(connection: &Connection, bytes: &[u8]) {
    connection.post_bytes(bytes).await.expect("post");
}

/// Starts a client with `start`. Returns the client, its connection, and the first message of the connection.
async fn first_message(
    listener: &Listener,
    config: &ConnectionConfig,
    start: impl Fn() -> Process,
) -> (Process, Connection, Message) {
    const TRIES: usize = 3;
    for _ in 0..TRIES {
        let client = start();
        let incoming = listener.accept().await.expect("a request");
        let connection = incoming.accept(config, &[], LONG).await.expect("accept");
        match time::timeout(LONG / 6, receive_bytes(&connection)).await {
            Ok(first) => return (client, connection, first.expect("a message")),
            Err(_late) => {
                assert!(has_unread_bytes(), "no message arrived");
                try_again("siw did not deliver the first message");
            }
        }
    }
    panic!("siw leaves the first message unread in each attempt");
}

/// Closes a connection whose peer left after the last message. The driver may report the message as lost.
async fn close_after_last_message(connection: Connection) {
    if let Err(error) = connection.close(LONG).await {
        assert_eq!(*error.kind(), ErrorKind::Disconnected, "{error}");
    }
}

fn task_reaches_c_server(address: &str) {
    let port = port();
    let server = listening(Program::C.run("rdma_server", &["-p", &port]));
    let address = format!("{address}:{port}").parse().expect("an address");
    run_in_task(async {
        let connection = connect(address, ConnectionConfig::default()).await;
        send_bytes(&connection, &[1; 16]).await;
        drop(receive_bytes(&connection).await.expect("a message"));
        assert!(receive_bytes(&connection).await.is_none(), "the server should have closed");
        connection.close(LONG).await.expect("close");
    });
    printed(server, &["rdma_server: start", "rdma_server: end 0"]);
}

fn task_serves_c_client(address: &str) {
    let port = port();
    let bound: SocketAddr = format!("{address}:{port}").parse().expect("an address");
    let start = || Program::C.run("rdma_client", &["-s", address, "-p", &port]);
    let client = run_in_task(async {
        let listener = Listener::bind(bound).expect("listen");
        let (client, connection, message) =
            first_message(&listener, &ConnectionConfig::default(), start).await;
        send_bytes(&connection, &message).await;
        drop(message);
        assert!(receive_bytes(&connection).await.is_none(), "the client should have closed");
        close_after_last_message(connection).await;
        client
    });
    printed(client, &["rdma_client: start", "rdma_client: end 0"]);
}

fn tasks_serve_c_rping(address: &str, size: usize) {
    let ip: IpAddr = address.parse().expect("an IP address");
    let client = run_in_task(async {
        let listener = Listener::bind(SocketAddr::new(ip, 0)).expect("listen");
        let port = listener.local_addr().expect("an IP address").port();
        let [port, size_text, count] = [port.into(), size, COUNT].map(|number| number.to_string());
        let arguments =
            ["-c", "-a", address, "-p", &port, "-S", &size_text, "-C", &count, "-v", "-V"];
        let start = || Program::C.start(&arguments);
        let (client, connection, mut message) =
            first_message(&listener, &config(size), start).await;
        for number in 0..COUNT {
            if number > 0 {
                message = receive_bytes(&connection)
                    .await
                    .expect("the message should name the memory to read");
            }
            let source = named(&message);
            let mut buffer = connection.acquire_buffer().await.expect("a buffer");
            buffer
                .set_len(usize::try_from(source.len()).expect("the length should fit"))
                .expect("the length should fit into a buffer");
            let read = connection.read(buffer, &source, 0).await.expect("read");
            assert!(*read == ping(number, size), "{number}: {}", String::from_utf8_lossy(&read));
            send_bytes(&connection, &[0; 16]).await;
            let sink = named(
                &receive_bytes(&connection)
                    .await
                    .expect("the message should name the memory to write"),
            );
            drop(connection.write(read, &sink, 0).await.expect("write"));
            send_bytes(&connection, &[0; 16]).await;
        }
        drop(message);
        assert!(receive_bytes(&connection).await.is_none(), "the client should have closed");
        close_after_last_message(connection).await;
        client
    });
    let client = client.finish();
    assert!(client.status.success(), "{}", client.stderr);
    assert_lines(&client.stdout, "ping data", size, COUNT, "the client of C");
}

fn tasks_reach_c_rping(address: &str, size: usize) {
    let server = Server::start(Program::C, address, &["-v", "-V", "-S", &size.to_string()]);
    run_in_task(async {
        let connection = connect(server.address(), config(size)).await;
        let [mut source, sink] = [0, 1].map(|_| DmaMemory::new(size).expect("memory"));
        let given = connection.export(&source, .., RemoteAccess::READ).await.expect("export");
        let taken = connection.export(&sink, .., RemoteAccess::WRITE).await.expect("export");
        for number in 0..COUNT {
            source.write(0, &ping(number, size)).expect("the range should be within the memory");
            send_bytes(&connection, &naming(&given)).await;
            drop(receive_bytes(&connection).await.expect("the peer should have read"));
            send_bytes(&connection, &naming(&taken)).await;
            drop(receive_bytes(&connection).await.expect("the peer should have written"));
            let mut back = vec![0; size];
            sink.read(0, &mut back).expect("the range should be within the memory");
            assert!(back == ping(number, size), "ping {number}");
        }
        connection.close(LONG).await.expect("close");
        for export in [given, taken] {
            export.revoke().await.expect("revoke");
        }
    });
    let server = server.process.finish();
    assert!(server.status.success(), "{}", server.stderr);
    assert_lines(&server.stdout, "server ping data", size, COUNT, "the server of C");
}

#[test]
#[ignore = "needs the test bed: cargo xtask test"]
fn tasks_reach_c_rping_server() {
    task_reaches_c_server(roce_ip());
    tasks_reach_c_rping(roce_ip(), 64);
}

#[test]
#[ignore = "needs the test bed: cargo xtask test"]
fn siw_tasks_reach_c_rping_server() {
    task_reaches_c_server(SIW);
    tasks_reach_c_rping(SIW, 65_535);
}

#[test]
#[ignore = "needs the test bed: cargo xtask test"]
fn tasks_serve_c_rping_client() {
    task_serves_c_client(roce_ip());
    tasks_serve_c_rping(roce_ip(), 65_535);
}

#[test]
#[ignore = "needs the test bed: cargo xtask test"]
fn siw_tasks_serve_c_rping_client() {
    task_serves_c_client(SIW);
    tasks_serve_c_rping(SIW, 64);
}
