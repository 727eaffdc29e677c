use rdmacm::endpoint::DatagramConfig;
use rdmacm::endpoint::tokio::DatagramSocket;
use std::{net::SocketAddr, time::Duration};

/// The time to wait for an answer, which may be lost.
const TIMEOUT: Duration = Duration::from_secs(1);

/// Returns each datagram to its sender.
async fn echo(socket: DatagramSocket) -> rdmacm::Result<()> {
    loop {
        let (datagram, sender) = socket.recv_from().await?;
        socket.post_bytes_to(&datagram, &sender).await?;
    }
}

/// Returns the answer of the socket at `server` to `text`.
async fn ask(local: SocketAddr, server: SocketAddr, text: &[u8]) -> rdmacm::Result<Vec<u8>> {
    let socket = DatagramSocket::bind(local, &DatagramConfig::default()).await?;
    let server = socket.resolve_peer(server).await?;
    loop {
        socket.post_bytes_to(text, &server).await?;
        // `recv_from` is cancel safe: if the timeout drops the call, it has taken no datagram.
        if let Ok(answer) = tokio::time::timeout(TIMEOUT, socket.recv_from()).await {
            return Ok(answer?.0.to_vec());
        }
    }
}
