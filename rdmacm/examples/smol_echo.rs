//! The server and the client of `tokio_echo` on smol: all connections of a program in one thread.
//! `cargo run --features smol --example smol_echo server 0.0.0.0:7471`
//! `cargo run --features smol --example smol_echo client 10.0.0.1:7471 1000`
use rdmacm::endpoint::smol::{Connection, Incoming, Listener};
use rdmacm::endpoint::{ConnectionConfig, Connector, Message};
use smol::{LocalExecutor, Timer, future::FutureExt, lock::Barrier};
use std::{error::Error, net::SocketAddr, sync::Arc, time::Duration};

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

async fn server(executor: &LocalExecutor<'_>, address: SocketAddr) -> Result<(), Box<dyn Error>> {
    let listener = Listener::bind(address)?;
    loop {
        let incoming = listener.accept().await?;
        let serving = async { serve(incoming).await.unwrap_or_else(|error| eprintln!("{error}")) };
        executor.spawn(serving).detach();
    }
}

/// Returns the next message, or an error after `TIMEOUT`. The dropped call has taken no message.
async fn receive(connection: &Connection) -> Result<Message, Box<dyn Error>> {
    let received =
        async { connection.recv().await?.ok_or_else(|| "the server closed the connection".into()) };
    let timeout = async { Err(format!("no answer {:?}", Timer::after(TIMEOUT).await).into()) };
    received.or(timeout).await
}

/// Sends messages, and receives each of them from the server.
async fn exchange(
    address: SocketAddr,
    number: u32,
    all: Arc<Barrier>,
) -> Result<(), Box<dyn Error>> {
    let connector = Connector::new().config(config()).total_timeout(TIMEOUT);
    let connection = Connection::connect(&connector, address).await?;
    all.wait().await;
    for round in 0..MESSAGES {
        let text = format!("message {round} of connection {number}");
        connection.post_bytes(text.as_bytes()).await?;
        if receive(&connection).await?[..] != *text.as_bytes() {
            return Err(format!("connection {number} received another answer").into());
        }
    }
    Ok(connection.close(TIMEOUT).await?)
}

async fn client(
    executor: &LocalExecutor<'_>,
    address: SocketAddr,
    connections: u32,
) -> Result<(), Box<dyn Error>> {
    let all = Arc::new(Barrier::new(usize::try_from(connections)?));
    let begun = (0..connections).map(|number| exchange(address, number, Arc::clone(&all)));
    for task in begun.map(|exchange| executor.spawn(exchange)).collect::<Vec<_>>() {
        task.await?;
    }
    println!("{connections} connections received {MESSAGES} answers each");
    Ok(())
}

fn main() -> Result<(), Box<dyn Error>> {
    let executor = LocalExecutor::new();
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    match arguments.iter().map(String::as_str).collect::<Vec<_>>()[..] {
        ["server", address] => smol::block_on(executor.run(server(&executor, address.parse()?))),
        ["client", address, connections] => {
            smol::block_on(executor.run(client(&executor, address.parse()?, connections.parse()?)))
        }
        _ => Err("usage: smol_echo server ADDRESS:PORT, or client ADDRESS:PORT CONNECTIONS".into()),
    }
}
