//! The safe tier for tasks against rdma-core's `rdma_server` and `rdma_client`, and in place of one of two `rping`s.

use std::future::Future;
use std::net::{IpAddr, SocketAddr};
use std::time::Duration;

use rdmacm::ErrorKind;
use rdmacm::endpoint::tokio::{Connection, Listener};
use rdmacm::endpoint::{Connector, Memory, Message, Rights, Settings};
use rdmacm_tests::siw::has_left_bytes_lying;
use rdmacm_tests::{Process, try_again};
use tokio::runtime::Builder;
use tokio::time;

use crate::connections::printed;
use crate::endpoint_rping::{COUNT, named, naming, ping, settings};
use crate::rping::{Program, Server, listening, port};
use crate::{SIW, V4, assert_lines};

const LONG: Duration = Duration::from_secs(60);

/// What comes of `test`, in a runtime of one thread.
fn in_a_task<T>(test: impl Future<Output = T>) -> T {
    let runtime = Builder::new_current_thread().enable_all().build().expect("a runtime");
    runtime.block_on(async { time::timeout(2 * LONG, test).await.expect("it waits for ever") })
}

/// Connects to `server`, where one is known to listen.
async fn connect(server: SocketAddr, settings: Settings) -> Connection {
    let connector = Connector::new().settings(settings).timeout(LONG);
    Connection::connect(&connector, server).await.expect("connect")
}

/// The next message, of 16 bytes, where there is one.
async fn hear(connection: &Connection) -> Option<Message> {
    let message = connection.recv().await.expect("receive");
    assert!(message.as_ref().is_none_or(|message| message.len() == 16), "{message:?}");
    message
}

async fn say(connection: &Connection, bytes: &[u8]) {
    connection.post_bytes(bytes).await.expect("post");
}

/// A client that `start` starts, its connection, and the first message of that.
async fn first_message(
    listener: &Listener,
    settings: &Settings,
    start: impl Fn() -> Process,
) -> (Process, Connection, Message) {
    const TRIES: usize = 3;
    for _ in 0..TRIES {
        let client = start();
        let incoming = listener.accept().await.expect("a request");
        let connection = incoming.accept(settings, &[], LONG).await.expect("accept");
        match time::timeout(LONG / 6, hear(&connection)).await {
            Ok(first) => return (client, connection, first.expect("a message")),
            Err(_late) => {
                assert!(has_left_bytes_lying(), "no message has come");
                try_again("siw did not deliver the first message");
            }
        }
    }
    panic!("siw leaves lying what comes");
}

/// Closes a connection whose peer went when it had the last message: the driver may not hear that it had.
async fn close_after_the_last(connection: Connection) {
    if let Err(error) = connection.close(LONG).await {
        assert_eq!(*error.kind(), ErrorKind::Disconnected, "{error}");
    }
}

fn a_server_of_c(address: &str) {
    let port = port();
    let server = listening(Program::C.run("rdma_server", &["-p", &port]));
    let address = format!("{address}:{port}").parse().expect("an address");
    in_a_task(async {
        let connection = connect(address, Settings::default()).await;
        say(&connection, &[1; 16]).await;
        drop(hear(&connection).await.expect("a message"));
        assert!(hear(&connection).await.is_none(), "the server has closed");
        connection.close(LONG).await.expect("close");
    });
    printed(server, &["rdma_server: start", "rdma_server: end 0"]);
}

fn a_client_of_c(address: &str) {
    let port = port();
    let bound: SocketAddr = format!("{address}:{port}").parse().expect("an address");
    let start = || Program::C.run("rdma_client", &["-s", address, "-p", &port]);
    let client = in_a_task(async {
        let listener = Listener::bind(bound).expect("listen");
        let (client, connection, message) =
            first_message(&listener, &Settings::default(), start).await;
        say(&connection, &message).await;
        drop(message);
        assert!(hear(&connection).await.is_none(), "the client has closed");
        close_after_the_last(connection).await;
        client
    });
    printed(client, &["rdma_client: start", "rdma_client: end 0"]);
}

fn an_rping_of_c_asks(address: &str, size: usize) {
    let ip: IpAddr = address.parse().expect("an IP address");
    let client = in_a_task(async {
        let listener = Listener::bind(SocketAddr::new(ip, 0)).expect("listen");
        let port = listener.local_addr().expect("an IP address").port();
        let [port, size_text, count] = [port.into(), size, COUNT].map(|number| number.to_string());
        let arguments =
            ["-c", "-a", address, "-p", &port, "-S", &size_text, "-C", &count, "-v", "-V"];
        let start = || Program::C.start(&arguments);
        let (client, connection, mut message) =
            first_message(&listener, &settings(size), start).await;
        for number in 0..COUNT {
            if number > 0 {
                message = hear(&connection).await.expect("where to read");
            }
            let source = named(&message);
            let mut buffer = connection.buffer().await.expect("a buffer");
            buffer.set_len(usize::try_from(source.len()).expect("short")).expect("it fits");
            let read = connection.read(buffer, &source, 0).await.expect("read");
            assert!(*read == ping(number, size), "{number}: {}", String::from_utf8_lossy(&read));
            say(&connection, &[0; 16]).await;
            let sink = named(&hear(&connection).await.expect("where to write"));
            drop(connection.write(read, &sink, 0).await.expect("write"));
            say(&connection, &[0; 16]).await;
        }
        drop(message);
        assert!(hear(&connection).await.is_none(), "the client has closed");
        close_after_the_last(connection).await;
        client
    });
    let client = client.finish();
    assert!(client.status.success(), "{}", client.stderr);
    assert_lines(&client.stdout, "ping data", size, COUNT, "the client of C");
}

fn an_rping_of_c_answers(address: &str, size: usize) {
    let server = Server::start(Program::C, address, &["-v", "-V", "-S", &size.to_string()]);
    in_a_task(async {
        let connection = connect(server.address(), settings(size)).await;
        let [mut source, sink] = [0, 1].map(|_| Memory::new(size).expect("memory"));
        let given = connection.export(&source, Rights::READ).await.expect("export");
        let taken = connection.export(&sink, Rights::WRITE).await.expect("export");
        for number in 0..COUNT {
            source.write(0, &ping(number, size)).expect("within");
            say(&connection, &naming(&given)).await;
            drop(hear(&connection).await.expect("it has read"));
            say(&connection, &naming(&taken)).await;
            drop(hear(&connection).await.expect("it has written"));
            let mut back = vec![0; size];
            sink.read(0, &mut back).expect("within");
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
fn tasks_and_servers_of_rdma_core() {
    a_server_of_c(V4);
    an_rping_of_c_answers(V4, 64);
}

#[test]
#[ignore = "needs the test bed: cargo xtask test"]
fn siw_tasks_and_servers_of_rdma_core() {
    a_server_of_c(SIW);
    an_rping_of_c_answers(SIW, 65_535);
}

#[test]
#[ignore = "needs the test bed: cargo xtask test"]
fn tasks_and_clients_of_rdma_core() {
    a_client_of_c(V4);
    an_rping_of_c_asks(V4, 65_535);
}

#[test]
#[ignore = "needs the test bed: cargo xtask test"]
fn siw_tasks_and_clients_of_rdma_core() {
    a_client_of_c(SIW);
    an_rping_of_c_asks(SIW, 64);
}
