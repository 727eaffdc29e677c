use rdmacm::endpoint::tokio::{Connection, Listener};
use rdmacm::endpoint::{Connector, ConnectionConfig};
use std::{net::SocketAddr, time::Duration};

const LONG: Duration = Duration::from_secs(30);

/// Accepts `count` clients, and serves each in a separate task.
async fn serve(listener: Listener, count: usize) -> rdmacm::Result<()> {
    for _ in 0..count {
        let incoming = listener.accept().await?;
        tokio::spawn(async move {
            let accepted = incoming.accept(&ConnectionConfig::default(), &[], LONG).await;
            let served = match accepted {
                Ok(connection) => echo(connection).await,
                Err(error) => Err(error),
            };
            served.unwrap_or_else(|error| eprintln!("{error}"));
        });
    }
    Ok(())
}

async fn echo(connection: Connection) -> rdmacm::Result<()> {
    while let Some(message) = connection.recv().await? {
        connection.post_bytes(&message).await?;
    }
    connection.close(LONG).await
}

/// Returns the server's answer to `text`, or `None` if none arrives in time.
async fn ask(server: SocketAddr, text: &[u8]) -> rdmacm::Result<Option<Vec<u8>>> {
    let connection = Connection::connect(&Connector::new().total_timeout(LONG), server).await?;
    connection.post_bytes(text).await?;
    // `recv` is cancel safe: if the timeout drops the call, it has taken no message.
    let answer = match tokio::time::timeout(LONG, connection.recv()).await {
        Ok(message) => message?.map(|message| message.to_vec()),
        Err(_too_late) => None,
    };
    connection.close(LONG).await?;
    Ok(answer)
}
