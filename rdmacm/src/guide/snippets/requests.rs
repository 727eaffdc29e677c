use rdmacm::Error;
use rdmacm::endpoint::tokio::{Connection, Incoming, Listener};
use rdmacm::endpoint::{ConnectionConfig, Connector};
use std::{future::Future, io, net::SocketAddr, pin::pin, time::Duration};
use tokio::{sync::watch, task::JoinSet, time};

const LONG: Duration = Duration::from_secs(30);

/// Serves clients until `stop` completes. The connections then have `grace` to close.
async fn serve_until(
    listener: Listener,
    stop: impl Future<Output = ()>,
    grace: Duration,
) -> rdmacm::Result<()> {
    let mut clients = JoinSet::new();
    let (stopping, is_stopping) = watch::channel(false);
    let mut stop = pin!(stop);
    loop {
        let incoming = tokio::select! {
            incoming = listener.accept() => incoming?,
            // Otherwise the set would keep each finished task until the end.
            Some(_) = clients.join_next(), if !clients.is_empty() => continue,
            () = &mut stop => break,
        };
        let served = serve(incoming, is_stopping.clone());
        clients.spawn(async { served.await.unwrap_or_else(|error| eprintln!("{error}")) });
    }
    // Rejects the requests that were not accepted.
    drop(listener);
    stopping.send_replace(true);
    let finished = async { while clients.join_next().await.is_some() {} };
    if time::timeout(grace, finished).await.is_err() {
        // Drops the connections, which ends them at once.
        clients.shutdown().await;
    }
    Ok(())
}

/// Answers each request of a client with the request's number and the response.
async fn serve(incoming: Incoming, mut stop: watch::Receiver<bool>) -> rdmacm::Result<()> {
    let connection = incoming.accept(&ConnectionConfig::default(), &[], LONG).await?;
    loop {
        // `recv` is cancel safe: a request is either answered or was not taken.
        let request = tokio::select! {
            request = connection.recv() => request?,
            _ = stop.wait_for(|is_stopping| *is_stopping) => break,
        };
        let Some(request) = request else { break };
        // A message without a number is not a request.
        let Some((number, body)) = request.split_first_chunk::<8>() else { break };
        connection.post_bytes(&[&number[..], &body.to_ascii_uppercase()].concat()).await?;
    }
    connection.close(LONG).await
}

/// A client that sends one request at a time, and connects again after the end of a connection.
struct Client {
    server: SocketAddr,
    connection: Option<Connection>,
    last_number: u64,
    /// The error of the last attempt to connect.
    failure: Option<Error>,
}

impl Client {
    fn new(server: SocketAddr) -> Self {
        Self { server, connection: None, last_number: 0, failure: None }
    }

    /// Sends a request and returns the response. After `timeout`, the error is `TimedOut`, or that of
    /// the last attempt to connect.
    async fn call(&mut self, request: &[u8], timeout: Duration) -> io::Result<Vec<u8>> {
        self.last_number += 1;
        self.failure = None;
        let number = self.last_number.to_be_bytes();
        let exchange = async {
            let connection = self.connected().await?;
            connection.post_bytes(&[&number, request].concat()).await?;
            loop {
                let response = connection.recv().await?.ok_or(io::ErrorKind::ConnectionReset)?;
                match response.split_first_chunk() {
                    Some((answered, body)) if *answered == number => return Ok(body.to_vec()),
                    // This message is the late response to a request that has timed out.
                    _ => {}
                }
            }
        };
        match time::timeout(timeout, exchange).await {
            Ok(Ok(response)) => Ok(response),
            Ok(Err(error)) => {
                self.connection = None;
                Err(error)
            }
            // The connection is not affected: a future that is dropped loses no message.
            Err(elapsed) => Err(self.failure.take().map_or_else(|| elapsed.into(), Into::into)),
        }
    }

    /// Returns the connection. If there is none, connects, and retries while the server is starting.
    async fn connected(&mut self) -> io::Result<Connection> {
        let connector = Connector::new().total_timeout(LONG);
        let mut pause = Duration::from_millis(10);
        loop {
            if let Some(connection) = &self.connection {
                return Ok(connection.clone());
            }
            match Connection::connect(&connector, self.server).await {
                Ok(connection) => (self.connection, self.failure) = (Some(connection), None),
                Err(error) if is_temporary(&error) => {
                    self.failure = Some(error);
                    time::sleep(pause).await;
                    pause = (pause * 2).min(Duration::from_secs(1));
                }
                Err(error) => return Err(error.into()),
            }
        }
    }
}

/// Returns `true` if a later attempt to connect may succeed: the server or the network may come back.
fn is_temporary(error: &Error) -> bool {
    use io::ErrorKind::{ConnectionRefused, HostUnreachable, NetworkUnreachable, TimedOut};
    matches!(
        error.io_kind(),
        ConnectionRefused | HostUnreachable | NetworkUnreachable | TimedOut
    )
}
