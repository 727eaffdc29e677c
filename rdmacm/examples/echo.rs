//! A server that sends every message back, and a client that sends one message:
//! `cargo run --example echo server 0.0.0.0:7471`
//! `cargo run --example echo client 10.0.0.1:7471 hello`
use rdmacm::endpoint::{Connection, ConnectionConfig, Connector, Listener};
use std::{error::Error, net::SocketAddr, thread, time::Duration};

const TIMEOUT: Duration = Duration::from_secs(10);

/// Sends messages back until the client closes the connection.
fn serve(connection: Connection) -> rdmacm::Result<()> {
    while let Some(message) = connection.recv()? {
        connection.post_bytes(&message)?;
    }
    connection.close(TIMEOUT)
}

fn server(address: SocketAddr) -> rdmacm::Result<()> {
    let listener = Listener::bind(address)?;
    loop {
        let incoming = listener.accept()?;
        thread::spawn(move || {
            let connection = incoming.accept(&ConnectionConfig::default(), &[], TIMEOUT);
            if let Err(error) = connection.and_then(serve) {
                eprintln!("{error}");
            }
        });
    }
}

fn client(address: SocketAddr, text: &str) -> Result<(), Box<dyn Error>> {
    let connection = Connector::new().total_timeout(TIMEOUT).connect(address)?;
    connection.post_bytes(text.as_bytes())?;
    let answer = connection.recv_timeout(TIMEOUT)?.ok_or("the server closed the connection")?;
    println!("{}", String::from_utf8_lossy(&answer));
    Ok(connection.close(TIMEOUT)?)
}

fn main() -> Result<(), Box<dyn Error>> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    match arguments.iter().map(String::as_str).collect::<Vec<_>>()[..] {
        ["server", address] => Ok(server(address.parse()?)?),
        ["client", address, text] => client(address.parse()?, text),
        _ => Err("usage: echo server ADDRESS:PORT, or echo client ADDRESS:PORT TEXT".into()),
    }
}
