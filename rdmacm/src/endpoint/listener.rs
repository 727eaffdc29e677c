//! [`Listener`], which waits for peers that want to connect.

use std::net::SocketAddr;
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use super::deadline::within;
use super::incoming::Incoming;
use super::port::PortRetry;
use super::trace::{RequestTrace, Trace};
use crate::addr::Address;
use crate::cm::{CmId, Event, EventChannel, EventType, PortSpace};
use crate::concurrent::{HandoffGuard, HandoffMutex, HeldByThisThread};
use crate::error::{Error, ErrorKind, IntoError as _, Result};
use crate::sys::process::Process;

const WAIT_FOR: &str = "wait for";

/// Waits for peers that want to connect.
///
/// `Send + Sync`: several threads may wait, and each request goes to one of them. Dropping the
/// listener rejects the requests that nobody has taken; connections and [`Incoming`] requests that
/// it brought live on.
///
/// The descriptor ([`AsFd`]) is readable when [`try_incoming`](Self::try_incoming) may find
/// something.
#[derive(Debug)]
pub struct Listener {
    id: CmId,
    channel: EventChannel,
    address: Option<SocketAddr>,
    process: Process,
    /// Held by the one thread that reads the channel.
    reader: HandoffMutex<()>,
    /// The device is gone, of which one event has told.
    is_gone: AtomicBool,
    trace: Trace,
}

impl Listener {
    /// Listens on a local address: on all of them with the unspecified one, or with a loopback
    /// address, which the kernel takes for that; on a port of the kernel's choice with port 0, for
    /// which up to 17 are tried on iWARP, where TCP may have them. As many requests wait as the
    /// kernel allows.
    ///
    /// [`CmId::bind`], [`CmId::listen`].
    ///
    /// # Errors
    ///
    /// The errors of [`CmId::bind`] and [`CmId::listen`]: ENODEV where no device has the address,
    /// EADDRNOTAVAIL where this machine does not have it, EADDRINUSE.
    #[doc(alias = "rdma_listen")]
    pub fn bind(address: impl Into<Address>) -> Result<Self> {
        let channel = EventChannel::new()?;
        channel.set_nonblocking(true)?;
        let id = listening(&channel, address.into())?;
        let address = id.local_addr()?;
        let (process, reader) = (Process::current(), HandoffMutex::default());
        let is_gone = AtomicBool::default();
        let trace = Trace::listener(id.token(), address);
        trace.is("listening");
        Ok(Self { id, channel, address, process, reader, is_gone, trace })
    }

    /// The address that it listens on; `None` for one of InfiniBand.
    pub fn local_addr(&self) -> Option<SocketAddr> {
        self.address
    }

    /// The next request; waits for one. A signal does not end that.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::DeviceGone`] where the device went that it listens on;
    /// [`ErrorKind::WrongProcess`] after a fork.
    #[doc(alias = "rdma_get_request")]
    pub fn incoming(&self) -> Result<Incoming> {
        self.incoming_by(None)
    }

    /// The same, for at most `timeout`.
    ///
    /// # Errors
    ///
    /// As [`incoming`](Self::incoming), and [`ErrorKind::TimedOut`].
    pub fn incoming_timeout(&self, timeout: Duration) -> Result<Incoming> {
        self.incoming_by(within(timeout))
    }

    /// The next request, if one has come.
    ///
    /// # Errors
    ///
    /// As [`incoming`](Self::incoming), and [`ErrorKind::WouldBlock`].
    pub fn try_incoming(&self) -> Result<Incoming> {
        // Who waits takes what comes.
        let Some(_reader) = self.lock_reader(Some(Instant::now()))? else {
            return Err(self.failed(ErrorKind::WouldBlock));
        };
        loop {
            self.check()?;
            match self.channel.get_event() {
                Ok(event) => {
                    if let Some(incoming) = self.request(event)? {
                        return Ok(incoming);
                    }
                }
                Err(error) if error.errno() == libc::EINTR => {}
                Err(error) => return Err(error),
            }
        }
    }

    fn incoming_by(&self, deadline: Option<Instant>) -> Result<Incoming> {
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

    /// What comes with an event; nothing, where it is of a request that waits for its answer:
    /// answering will tell.
    fn request(&self, mut event: Event) -> Result<Option<Incoming>> {
        self.trace.event(&event);
        let Some(id) = event.take_request() else {
            let is_mine = event.token() == self.id.token();
            if is_mine && event.event_type() == EventType::DeviceRemoval {
                self.is_gone.store(true, Ordering::Relaxed);
                self.trace.is("device gone");
            }
            return Ok(None);
        };
        let param = event.connection().cloned().unwrap_or_default();
        let trace = RequestTrace::new(id.token(), || id.peer_addr().ok().flatten());
        Ok(Some(Incoming { id, param, trace }))
    }
}

impl Listener {
    /// Waits until this thread may read the channel; not in a forked child, where that may never be.
    /// Returns `None` if it may not at `deadline`.
    fn lock_reader(&self, deadline: Option<Instant>) -> Result<Option<HandoffGuard<'_, ()>>> {
        let here = self.process.check();
        here.map_err(|refused| refused.during(WAIT_FOR, self.subject()))?;
        let reader = self.reader.lock_until(deadline);
        reader.map_err(|HeldByThisThread| {
            self.failed(ErrorKind::WouldDeadlock("this thread waits on it already"))
        })
    }

    /// That more may come.
    pub(super) fn check(&self) -> Result<()> {
        match self.is_gone.load(Ordering::Relaxed) {
            true => Err(self.failed(ErrorKind::DeviceGone(libc::ENODEV))),
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

/// The next event on `channel`, or `None` if none came until `deadline`. A signal ends no wait.
fn next(channel: &EventChannel, deadline: Option<Instant>) -> Result<Option<Event>> {
    let rest = |deadline: Instant| deadline.saturating_duration_since(Instant::now());
    loop {
        // So long a time that its end is beyond the clock has none.
        match channel.get_event_timeout(deadline.map_or(Duration::MAX, rest)) {
            Err(error) if error.errno() == libc::EINTR => {}
            read => return read,
        }
    }
}
