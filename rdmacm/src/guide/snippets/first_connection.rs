use rdmacm::endpoint::{Connector, Listener, ConnectionConfig};
use std::{net::SocketAddr, time::Duration};

const LONG: Duration = Duration::from_secs(30);

/// Accepts one client, and sends its messages back until the client closes the connection.
fn serve_one(listener: &Listener) -> rdmacm::Result<()> {
    let incoming = listener.accept()?;
    let connection = incoming.accept(&ConnectionConfig::default(), b"welcome", LONG)?;
    while let Some(message) = connection.recv()? {
        connection.post_bytes(&message)?;
    }
    connection.close(LONG)
}

/// Returns the server's answer to `text`, or `None` if the server closes the connection instead.
fn ask(server: SocketAddr, text: &[u8]) -> rdmacm::Result<Option<Vec<u8>>> {
    let connection = Connector::new().total_timeout(LONG).connect(server)?;
    connection.post_bytes(text)?;
    let answer = connection.recv_timeout(LONG)?.map(|message| message.to_vec());
    connection.close(LONG)?;
    Ok(answer)
}
