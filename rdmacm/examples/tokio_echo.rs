//! A server that sends every message back, and a client with many connections to it. Each program
//! uses one thread. A connection has three descriptors: for a thousand, run `ulimit -n 8192` first.
//! `cargo run --features tokio --example tokio_echo server 0.0.0.0:7471`
//! `cargo run --features tokio --example tokio_echo client 10.0.0.1:7471 1000`
use rdmacm::endpoint::tokio::{Connection, Incoming, Listener};
use rdmacm::endpoint::{ConnectionConfig, Connector};
use std::{error::Error, net::SocketAddr, sync::Arc, time::Duration};
use tokio::{runtime, sync::Barrier, task::JoinSet, time};

const TIMEOUT: Duration = Duration::from_secs(60);
const MESSAGES: u32 = 10;

/// Returns the configuration of a connection with one message in flight, in either direction.
fn config() -> ConnectionConfig {
    ConnectionConfig::new()
        .send_buffers(2)
        .receive_buffers(2)
        .send_buffer_size(64)
        .receive_buffer_size(64)
}

/// Sends messages back until the client closes the connection.
async fn serve(incoming: Incoming) -> rdmacm::Result<()> {
    let connection = incoming.accept(&config(), &[], TIMEOUT).await?;
    while let Some(message) = connection.recv().await? {
        connection.post_bytes(&message).await?;
    }
    connection.close(TIMEOUT).await
}

async fn server(address: SocketAddr) -> rdmacm::Result<()> {
    let listener = Listener::bind(address)?;
    loop {
        let incoming = listener.accept().await?;
        tokio::spawn(async {
            if let Err(error) = serve(incoming).await {
                eprintln!("{error}");
            }
        });
    }
}

/// Sends messages, and receives each of them from the server.
async fn exchange(
    address: SocketAddr,
    number: u32,
    all: Arc<Barrier>,
) -> Result<(), Box<dyn Error + Send + Sync>> {
    let connector = Connector::new().config(config()).total_timeout(TIMEOUT);
    let connection = Connection::connect(&connector, address).await?;
    all.wait().await;
    for round in 0..MESSAGES {
        let text = format!("message {round} of connection {number}");
        connection.post_bytes(text.as_bytes()).await?;
        let answer = time::timeout(TIMEOUT, connection.recv()).await??;
        if answer.ok_or("the server closed the connection")?[..] != *text.as_bytes() {
            return Err(format!("connection {number} received another answer").into());
        }
    }
    Ok(connection.close(TIMEOUT).await?)
}

async fn client(address: SocketAddr, connections: u32) -> Result<(), Box<dyn Error + Send + Sync>> {
    let all = Arc::new(Barrier::new(usize::try_from(connections)?));
    let mut tasks = JoinSet::new();
    for number in 0..connections {
        tasks.spawn(exchange(address, number, Arc::clone(&all)));
    }
    while let Some(ended) = tasks.join_next().await {
        ended??;
    }
    println!("{connections} connections received {MESSAGES} answers each");
    Ok(())
}

fn main() -> Result<(), Box<dyn Error + Send + Sync>> {
    // Commands that block, such as creating and destroying connections, share four other threads.
    let runtime =
        runtime::Builder::new_current_thread().enable_all().max_blocking_threads(4).build()?;
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    match arguments.iter().map(String::as_str).collect::<Vec<_>>()[..] {
        ["server", address] => Ok(runtime.block_on(server(address.parse()?))?),
        ["client", address, connections] => {
            runtime.block_on(client(address.parse()?, connections.parse()?))
        }
        _ => {
            Err("usage: tokio_echo server ADDRESS:PORT, or client ADDRESS:PORT CONNECTIONS".into())
        }
    }
}
