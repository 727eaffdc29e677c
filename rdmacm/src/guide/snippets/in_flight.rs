use rdmacm::endpoint::tokio::Connection;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::{collections::HashMap, io, time::Duration};
use tokio::{sync::{OwnedSemaphorePermit, Semaphore, oneshot}, time};

/// The callers that wait for a response, by the numbers of their requests. The permit is released
/// when the response arrives: a request that has timed out is in flight until then.
type Callers = HashMap<u64, (oneshot::Sender<Vec<u8>>, OwnedSemaphorePermit)>;

/// The callers, or the reason for which no response follows.
type State = Result<Callers, io::ErrorKind>;

/// A client with several requests in flight.
struct Client {
    connection: Connection,
    callers: Arc<Mutex<State>>,
    permits: Arc<Semaphore>,
    next_number: AtomicU64,
}

impl Client {
    /// Creates a client. Both sides must have at least `in_flight` receive buffers.
    fn new(connection: Connection, in_flight: usize) -> Self {
        let callers = Arc::new(Mutex::new(Ok(Callers::new())));
        tokio::spawn(receive(connection.clone(), Arc::clone(&callers)));
        let (permits, next_number) = (Arc::new(Semaphore::new(in_flight)), AtomicU64::new(0));
        Self { connection, callers, permits, next_number }
    }

    /// Sends a request and returns the response.
    async fn call(&self, request: &[u8], timeout: Duration) -> io::Result<Vec<u8>> {
        let exchange = async {
            let permit = Arc::clone(&self.permits).acquire_owned().await.map_err(io::Error::other)?;
            let mut buffer = self.connection.acquire_buffer().await?;
            // No `await` follows until the request is posted. So a timeout leaves no caller in the
            // map whose request is not in flight.
            let number = self.next_number.fetch_add(1, Ordering::Relaxed);
            buffer.copy_from(&[&number.to_be_bytes(), request].concat())?;
            let (sender, response) = oneshot::channel();
            // The response may arrive as soon as the request is posted.
            with_callers(&self.callers, |callers| callers.insert(number, (sender, permit)))?;
            if let Err(error) = self.connection.post_send(buffer) {
                let _ = with_callers(&self.callers, |callers| callers.remove(&number));
                return Err(error.into());
            }
            match response.await {
                Ok(response) => Ok(response),
                // The end of the connection has dropped the sender, and the state has the reason.
                Err(_) => with_callers(&self.callers, |_| Vec::new()),
            }
        };
        time::timeout(timeout, exchange).await?
    }

    /// Returns `true` if the connection has ended.
    fn has_ended(&self) -> bool {
        with_callers(&self.callers, |_| ()).is_err()
    }

    /// Closes the connection after the requests were sent. Waiting callers return an error.
    async fn close(&self, timeout: Duration) -> io::Result<()> {
        Ok(self.connection.close(timeout).await?)
    }
}

/// Calls `apply` with the map, unless no response follows.
fn with_callers<T>(
    callers: &Mutex<State>,
    apply: impl FnOnce(&mut Callers) -> T,
) -> io::Result<T> {
    let mut callers = callers.lock().unwrap_or_else(PoisonError::into_inner);
    callers.as_mut().map(apply).map_err(|reason| (*reason).into())
}

/// Returns responses to their callers until the connection ends.
async fn receive(connection: Connection, callers: Arc<Mutex<State>>) {
    let mut reason = io::ErrorKind::ConnectionReset;
    while let Ok(Some(response)) = connection.recv().await {
        let answer = response.split_first_chunk().map(|(number, body)| (*number, body.to_vec()));
        // Dropping the response posts its buffer again, before the permit is released.
        drop(response);
        let caller = answer.as_ref().and_then(|(number, _)| {
            let number = u64::from_be_bytes(*number);
            with_callers(&callers, |callers| callers.remove(&number)).ok().flatten()
        });
        let (Some((_, body)), Some((sender, _permit))) = (answer, caller) else {
            // The message answers no request, so the server violates the protocol.
            reason = io::ErrorKind::InvalidData;
            connection.abort().await;
            break;
        };
        // The caller may have timed out.
        let _ = sender.send(body);
    }
    // Drops the senders: the callers return an error.
    *callers.lock().unwrap_or_else(PoisonError::into_inner) = Err(reason);
}
