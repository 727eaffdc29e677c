//! [`Listener`], which waits for connection requests.

use std::iter;
use std::net::SocketAddr;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, RawFd};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use super::incoming::Incoming;
use super::port::PortRetry;
use crate::addr::Address;
use crate::cm::{CmId, Event, EventChannel, EventType, PortSpace};
use crate::endpoint::shared::trace::{RequestTrace, Trace};
use crate::endpoint::to_addresses::{ToAddresses, first_success};
use crate::endpoint::wait::deadline::deadline_after;
use crate::error::{Error, ErrorKind, IntoError as _, Result};
use crate::sync::{HandoffGuard, HandoffMutex, HeldByThisThread};
use crate::sys::process::Process;

const WAIT_FOR: &str = "wait for";

/// A listener for connection requests on a local address.
///
/// [`accept`](Self::accept) returns an [`Incoming`] request, which is not answered yet. The program looks at its peer and
/// private data, and then accepts or rejects it. Accepting waits for the peer, so a server does it in another thread.
///
/// All methods take `&self` and may be called from any thread at any time. Several threads may wait at once, and each
/// request is delivered to one of them. Tasks use [`task::Listener`](crate::endpoint::task::Listener).
///
/// # Examples
///
/// A server with a thread for each connection:
///
/// ```no_run
/// use std::{thread, time::Duration};
///
/// use rdmacm::endpoint::{ConnectionConfig, Incoming, Listener};
///
/// const TIMEOUT: Duration = Duration::from_secs(5);
///
/// /// Sends messages back until the client closes the connection.
/// fn serve(incoming: Incoming) -> rdmacm::Result<()> {
///     let connection = incoming.accept(&ConnectionConfig::new(), &[], TIMEOUT)?;
///     while let Some(message) = connection.recv()? {
///         connection.post_bytes(&message)?;
///     }
///     connection.close(TIMEOUT)
/// }
///
/// let listener = Listener::bind("0.0.0.0:7471")?;
/// loop {
///     let incoming = listener.accept()?;
///     thread::spawn(move || {
///         if let Err(error) = serve(incoming) {
///             eprintln!("{error}");
///         }
///     });
/// }
/// # Ok::<(), rdmacm::Error>(())
/// ```
///
/// # Waiting
///
/// The descriptor ([`AsFd`]) is readable when [`try_accept`](Self::try_accept) may find a request. A signal does not
/// end a call that waits: see [stopping a service](crate::guide::services).
///
/// # Closing
///
/// Dropping the listener rejects the requests that were not taken. Connections and [`Incoming`] requests that it has
/// returned are not affected. No call ends the wait of another thread in [`accept`](Self::accept): a server that must
/// stop waits with [`accept_timeout`](Self::accept_timeout) or for the descriptor.
#[derive(Debug)]
pub struct Listener {
    id: CmId,
    channel: EventChannel,
    address: Option<SocketAddr>,
    process: Process,
    /// Held by the thread that reads the channel.
    reader: HandoffMutex<()>,
    /// `true` if an event has reported that the device was removed.
    is_removed: AtomicBool,
    trace: Trace,
}

impl Listener {
    /// Listens on a local address.
    ///
    /// The unspecified address means all addresses, and so does a loopback address, which no RDMA device owns: a
    /// listener on 127.0.0.1 is reachable from other machines. With port 0 the kernel chooses a port; on iWARP up to 17
    /// ports are tried, because TCP may use the first ones. If `address` names several addresses, the first that can be
    /// listened on is used. The backlog is the largest that the kernel allows.
    ///
    /// Calls [`CmId::bind`] and [`CmId::listen`].
    ///
    /// # Errors
    ///
    /// The errors of the lookup of a name, of [`CmId::bind`] and of [`CmId::listen`], for the last address:
    /// - ENOENT or EACCES if the connection manager cannot be opened, and EMFILE if the process has too many
    ///   descriptors, each with a hint.
    /// - ENODEV if no device has the address.
    /// - EADDRNOTAVAIL if this machine does not have the address.
    /// - EADDRINUSE if the port is in use.
    ///
    /// # Examples
    ///
    /// ```no_run
    /// use rdmacm::endpoint::Listener;
    ///
    /// let listener = Listener::bind("10.0.0.1:0")?;
    /// println!("listening on {:?}", listener.local_addr());
    /// # Ok::<(), rdmacm::Error>(())
    /// ```
    #[doc(alias = "rdma_listen")]
    pub fn bind(address: impl ToAddresses) -> Result<Self> {
        let channel = EventChannel::new()?;
        channel.set_nonblocking(true)?;
        let addresses = address.to_target().resolve()?;
        let id = first_success(addresses, |address| listening(&channel, address))?;
        let address = id.local_addr()?;
        let (process, reader) = (Process::current(), HandoffMutex::default());
        let is_removed = AtomicBool::default();
        let trace = Trace::listener(id.token(), address);
        trace.set_state("listening");
        Ok(Self { id, channel, address, process, reader, is_removed, trace })
    }

    /// Waits for the next connection request and returns it.
    ///
    /// # Errors
    ///
    /// - [`ErrorKind::DeviceRemoved`] if the device of the listener was removed.
    /// - [`ErrorKind::NotOwner`] after a fork.
    ///
    /// A peer that ends its attempt causes no error here: [accepting](Incoming::accept) its request fails, and the
    /// listener continues.
    ///
    /// # Examples
    ///
    /// ```no_run
    /// use std::time::Duration;
    ///
    /// use rdmacm::endpoint::{ConnectionConfig, Listener};
    ///
    /// let listener = Listener::bind("0.0.0.0:7471")?;
    /// let incoming = listener.accept()?;
    /// println!("a request from {:?}", incoming.peer_addr());
    /// let connection = incoming.accept(&ConnectionConfig::new(), &[], Duration::from_secs(5))?;
    /// # Ok::<(), rdmacm::Error>(())
    /// ```
    #[doc(alias = "rdma_get_request")]
    pub fn accept(&self) -> Result<Incoming> {
        self.accept_with_deadline(None)
    }

    /// Waits at most `timeout` for the next connection request.
    ///
    /// # Errors
    ///
    /// In addition to the errors of [`accept`](Self::accept):
    /// - [`ErrorKind::TimedOut`] if `timeout` elapses.
    ///
    /// # Examples
    ///
    /// ```no_run
    /// use std::sync::atomic::{AtomicBool, Ordering};
    /// use std::time::Duration;
    ///
    /// use rdmacm::ErrorKind;
    /// use rdmacm::endpoint::{Incoming, Listener};
    ///
    /// /// Takes requests until another thread sets `is_over`.
    /// fn run(listener: &Listener, is_over: &AtomicBool, serve: fn(Incoming)) -> rdmacm::Result<()> {
    ///     while !is_over.load(Ordering::Relaxed) {
    ///         match listener.accept_timeout(Duration::from_millis(500)) {
    ///             Ok(incoming) => serve(incoming),
    ///             Err(error) if *error.kind() == ErrorKind::TimedOut => {}
    ///             Err(error) => return Err(error),
    ///         }
    ///     }
    ///     Ok(())
    /// }
    /// ```
    pub fn accept_timeout(&self, timeout: Duration) -> Result<Incoming> {
        self.accept_with_deadline(deadline_after(timeout))
    }

    /// Returns the next connection request if one has arrived.
    ///
    /// # Errors
    ///
    /// In addition to the errors of [`accept`](Self::accept):
    /// - [`ErrorKind::WouldBlock`] if no request has arrived, or if another thread waits.
    ///
    /// # Examples
    ///
    /// ```no_run
    /// use rdmacm::ErrorKind;
    /// use rdmacm::endpoint::{Incoming, Listener};
    ///
    /// /// Takes all requests that have arrived, when the descriptor is readable.
    /// fn on_readable(listener: &Listener, serve: fn(Incoming)) -> rdmacm::Result<()> {
    ///     loop {
    ///         match listener.try_accept() {
    ///             Ok(incoming) => serve(incoming),
    ///             Err(error) if *error.kind() == ErrorKind::WouldBlock => return Ok(()),
    ///             Err(error) => return Err(error),
    ///         }
    ///     }
    /// }
    /// ```
    pub fn try_accept(&self) -> Result<Incoming> {
        // A thread that waits takes the requests.
        let Some(_reader) = self.lock_reader(Some(Instant::now()))? else {
            return Err(self.failed(ErrorKind::WouldBlock));
        };
        loop {
            self.check()?;
            if let Some(incoming) = self.request(self.channel.get_event()?)? {
                return Ok(incoming);
            }
        }
    }

    /// Returns an iterator over the connection requests, which waits for each.
    ///
    /// The iterator does not end.
    ///
    /// # Errors
    ///
    /// An item is an error of [`accept`](Self::accept). Further items follow it, because each item is another call.
    ///
    /// # Examples
    ///
    /// ```no_run
    /// use std::{thread, time::Duration};
    ///
    /// use rdmacm::endpoint::{ConnectionConfig, Listener};
    ///
    /// let listener = Listener::bind("10.0.0.1:7471")?;
    /// for incoming in listener.incoming() {
    ///     let incoming = incoming?;
    ///     // Accepting waits for the peer: other clients are served meanwhile.
    ///     thread::spawn(move || {
    ///         let timeout = Duration::from_secs(5);
    ///         let connection = incoming.accept(&ConnectionConfig::new(), &[], timeout)?;
    ///         while let Some(message) = connection.recv()? {
    ///             connection.post_bytes(&message)?;
    ///         }
    ///         connection.close(timeout)
    ///     });
    /// }
    /// # Ok::<(), rdmacm::Error>(())
    /// ```
    pub fn incoming(&self) -> impl Iterator<Item = Result<Incoming>> + '_ {
        iter::repeat_with(|| self.accept())
    }

    /// Returns the address of the listener, or `None` for an InfiniBand address.
    pub fn local_addr(&self) -> Option<SocketAddr> {
        self.address
    }

    fn accept_with_deadline(&self, deadline: Option<Instant>) -> Result<Incoming> {
        let Some(_reader) = self.lock_reader(deadline)? else {
            return Err(self.failed(ErrorKind::TimedOut));
        };
        loop {
            self.check()?;
            let Some(event) = next(&self.channel, deadline)? else {
                return Err(self.failed(ErrorKind::TimedOut));
            };
            if let Some(incoming) = self.request(event)? {
                return Ok(incoming);
            }
        }
    }

    /// Returns the request of an event.
    ///
    /// Returns `None` for an event of an earlier request: the call that answers the request reports it.
    fn request(&self, mut event: Event) -> Result<Option<Incoming>> {
        self.trace.event(&event);
        let Some(id) = event.take_request() else {
            let is_of_listener = event.token() == self.id.token();
            if is_of_listener && event.event_type() == EventType::DeviceRemoval {
                self.is_removed.store(true, Ordering::Relaxed);
                self.trace.set_state("device removed");
            }
            return Ok(None);
        };
        let param = event.connection().cloned().unwrap_or_default();
        let trace = RequestTrace::new(id.token(), || id.peer_addr().ok().flatten());
        Ok(Some(Incoming { id, param, trace }))
    }
}

impl Listener {
    /// Waits until this thread may read the channel, but not beyond `deadline`.
    ///
    /// The call fails in a forked child, because the lock may never be released there.
    fn lock_reader(&self, deadline: Option<Instant>) -> Result<Option<HandoffGuard<'_, ()>>> {
        let checked = self.process.check();
        checked.map_err(|refused| refused.into_error(WAIT_FOR, self.subject()))?;
        let reader = self.reader.lock_until(deadline);
        reader.map_err(|HeldByThisThread| {
            self.failed(ErrorKind::WouldDeadlock("this thread waits on the listener already"))
        })
    }

    /// Returns an error if the device was removed.
    pub(in crate::endpoint) fn check(&self) -> Result<()> {
        match self.is_removed.load(Ordering::Relaxed) {
            true => Err(self.failed(ErrorKind::DeviceRemoved(libc::ENODEV))),
            false => Ok(()),
        }
    }

    fn failed(&self, kind: ErrorKind) -> Error {
        Error::new(WAIT_FOR, self.subject(), kind)
    }

    fn subject(&self) -> String {
        format!("a request to id {}", self.id.token())
    }
}

/// Returns an id that listens on `address`.
fn listening(channel: &EventChannel, address: Address) -> Result<CmId> {
    let mut ports = PortRetry::new(address.port());
    loop {
        let id = CmId::new(channel, PortSpace::Tcp)?;
        id.bind(address)?;
        match id.listen(0) {
            Ok(()) => return Ok(id),
            Err(error) if ports.try_another(&error) => {}
            Err(error) => return Err(error),
        }
    }
}

impl AsFd for Listener {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.channel.as_fd()
    }
}

impl AsRawFd for Listener {
    fn as_raw_fd(&self) -> RawFd {
        self.as_fd().as_raw_fd()
    }
}

/// Returns the next event on `channel`, or `None` if none arrives until `deadline`.
///
/// A signal does not end the wait.
fn next(channel: &EventChannel, deadline: Option<Instant>) -> Result<Option<Event>> {
    let rest = |deadline: Instant| deadline.saturating_duration_since(Instant::now());
    loop {
        // A time that the clock cannot represent means no deadline.
        match channel.get_event_timeout(deadline.map_or(Duration::MAX, rest)) {
            Err(error) if error.errno() == libc::EINTR => {}
            read => return read,
        }
    }
}

#[cfg(all(test, feature = "null", not(loom)))]
mod tests;
