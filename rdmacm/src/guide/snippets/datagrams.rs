use rdmacm::endpoint::DatagramSettings;
use rdmacm::endpoint::tokio::DatagramSocket;
use std::{net::SocketAddr, time::Duration};

/// How long an answer may take. It may also be lost.
const PATIENCE: Duration = Duration::from_secs(1);

/// Answers each datagram with the same, to whoever has sent it.
async fn echo(socket: DatagramSocket) -> rdmacm::Result<()> {
    loop {
        let (datagram, sender) = socket.recv_from().await?;
        socket.post_bytes_to(&datagram, &sender).await?;
    }
}

/// Returns the answer of the socket at `server` to `text`.
async fn ask(local: SocketAddr, server: SocketAddr, text: &[u8]) -> rdmacm::Result<Vec<u8>> {
    let socket = DatagramSocket::bind(local, &DatagramSettings::default()).await?;
    let server = socket.resolve_peer(server).await?;
    loop {
        socket.post_bytes_to(text, &server).await?;
        // Dropped by the timeout, the call has taken no datagram.
        if let Ok(answer) = tokio::time::timeout(PATIENCE, socket.recv_from()).await {
            return Ok(answer?.0.to_vec());
        }
    }
}
