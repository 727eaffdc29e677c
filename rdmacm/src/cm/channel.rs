//! Event channels: the descriptor and its blocking mode.

use std::mem;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, RawFd};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, Weak};

use ucma_abi::{Command, rdma_ucm_destroy_id};
use verbs_abi::AlignedU64;

#[cfg(doc)]
use super::Event;
use super::channel_waker::ChannelWaker;
#[cfg(doc)]
use super::id::CmId;
use crate::device;
#[cfg(doc)]
use crate::error::ErrorKind;
use crate::error::{IntoError as _, Result};
use crate::lock::ignore_poison;
use crate::sys::command::CommandError;
use crate::sys::poll::Waiting;
use crate::sys::ucma::UcmaFile;

/// A channel on which the events of ids arrive: one open `/dev/infiniband/rdma_cm`.
///
/// The descriptor ([`AsFd`]) is readable if an event is pending, and works with poll and epoll.
/// Several threads may read the channel; each event is delivered to one of them. The descriptor
/// stays open until the channel and every id on it are dropped.
///
/// Programs that poll the channel make it [non-blocking](Self::set_nonblocking). The event that
/// made it readable may be internal to the library: an event of a destroyed id, or the one with
/// which [`CmId::migrate`] wakes waiting threads. A blocking [`get_event`](Self::get_event) skips
/// such an event and waits for the next one.
///
/// After a fork the channel belongs to the parent. Every call of the child fails with
/// [`ErrorKind::NotOwner`], and drops in the child do nothing.
#[doc(alias = "rdma_event_channel")]
#[doc(alias = "rdma_destroy_event_channel")]
#[derive(Debug)]
pub struct EventChannel {
    pub(super) inner: Arc<ChannelInner>,
}

#[derive(Debug)]
pub(super) struct ChannelInner {
    pub(super) file: UcmaFile,
    pub(super) waiting: Waiting,
    /// Kernel ids that were dropped by a thread whose commands the kernel refused.
    orphans: Mutex<Vec<u32>>,
    /// `true` if `orphans` is not empty.
    ///
    /// It is set under the lock of `orphans`. Every command reads it without taking that lock.
    has_orphans: AtomicBool,
    waker: Mutex<ChannelWaker>,
    /// The channels from which listeners were migrated to this one. The listeners keep them open.
    former_channels: Mutex<Vec<Weak<Self>>>,
}

impl ChannelInner {
    pub(super) fn new(file: UcmaFile) -> Arc<Self> {
        Arc::new(Self {
            file,
            waiting: Waiting::default(),
            orphans: Mutex::default(),
            has_orphans: AtomicBool::new(false),
            waker: Mutex::default(),
            former_channels: Mutex::default(),
        })
    }

    /// Sends a command. If it succeeds, destroys the orphaned ids too.
    ///
    /// A success proves that the credentials are right for destroying them.
    pub(super) fn command<C: Command>(&self, request: C) -> Result<C::Response, CommandError> {
        self.run(|file| file.command(request))
    }

    /// Calls `command`, which sends a command. If the call succeeds, destroys the orphaned ids too.
    pub(super) fn run<T>(
        &self,
        command: impl FnOnce(&UcmaFile) -> Result<T, CommandError>,
    ) -> Result<T, CommandError> {
        let response = command(&self.file)?;
        if self.has_orphans.load(Ordering::Acquire) {
            self.destroy_orphans();
        }
        Ok(response)
    }

    /// Leaves the destruction of a kernel id to the next command that succeeds.
    pub(super) fn abandon(&self, handle: u32) {
        let mut orphans = self.orphans();
        orphans.push(handle);
        self.has_orphans.store(true, Ordering::Release);
    }

    #[cold]
    fn destroy_orphans(&self) {
        let mut orphans = self.orphans();
        self.has_orphans.store(false, Ordering::Release);
        let handles = mem::take(&mut *orphans);
        drop(orphans);
        for handle in handles {
            // The kernel refuses this only if the id does not exist.
            let _ = self.file.command(destroy_id(handle));
        }
    }

    fn orphans(&self) -> MutexGuard<'_, Vec<u32>> {
        ignore_poison(self.orphans.lock())
    }

    /// Returns the open channels from which listeners were migrated to this one.
    pub(super) fn former_channels(&self) -> Vec<Arc<Self>> {
        let former_channels = ignore_poison(self.former_channels.lock());
        former_channels.iter().filter_map(Weak::upgrade).collect()
    }

    /// Records that a listener moves to this channel from `channels`.
    pub(super) fn add_former_channels<'a>(&self, channels: impl Iterator<Item = &'a Arc<Self>>) {
        let mut former_channels = ignore_poison(self.former_channels.lock());
        former_channels.retain(|former| former.strong_count() > 0);
        for channel in channels {
            let known = |former: &Weak<Self>| former.as_ptr() == Arc::as_ptr(channel);
            if !former_channels.iter().any(known) {
                former_channels.push(Arc::downgrade(channel));
            }
        }
    }

    pub(super) fn waker(&self) -> MutexGuard<'_, ChannelWaker> {
        ignore_poison(self.waker.lock())
    }
}

/// Returns the DESTROY_ID command for the id with the kernel's `handle`.
pub(super) fn destroy_id(handle: u32) -> rdma_ucm_destroy_id {
    rdma_ucm_destroy_id { response: AlignedU64::default(), id: handle, reserved: 0 }
}

impl EventChannel {
    /// Opens a channel.
    ///
    /// The call sends no command. The first call of the process asks RDMA netlink or sysfs for the
    /// ABI version; RDMA netlink loads the kernel module if it is missing.
    ///
    /// # Errors
    ///
    /// - ENOENT if the kernel has no connection manager, or EACCES if the user may not open the
    ///   node, both with a [hint](crate::Error::hint).
    /// - [`ErrorKind::Unsupported`] if the ABI version of the kernel is not 4.
    ///
    /// # Examples
    ///
    /// ```no_run
    /// use std::net::SocketAddr;
    /// use std::time::Duration;
    ///
    /// use rdmacm::cm::{CmId, EventChannel, EventType, PortSpace};
    ///
    /// let channel = EventChannel::new()?;
    /// let id = CmId::new(&channel, PortSpace::Tcp)?;
    /// let server = SocketAddr::from(([10, 0, 0, 1], 7471));
    /// id.resolve_addr(None, server, Duration::from_secs(2))?;
    /// channel.expect_event(EventType::AddrResolved)?;
    /// # Ok::<(), rdmacm::Error>(())
    /// ```
    #[doc(alias = "rdma_create_event_channel")]
    pub fn new() -> Result<Self> {
        Ok(Self { inner: ChannelInner::new(UcmaFile::new(device::open_rdma_cm()?)) })
    }

    /// Sets whether [`get_event`](Self::get_event) waits for an event.
    ///
    /// If `nonblocking` is `true`, `get_event` returns [`ErrorKind::WouldBlock`] instead of
    /// waiting. A descriptor that was made non-blocking once stays non-blocking itself; `get_event`
    /// then waits by polling.
    ///
    /// # Errors
    ///
    /// - The errors of `fcntl`.
    /// - [`ErrorKind::NotOwner`] after a fork, because the child shares the mode with the parent.
    pub fn set_nonblocking(&self, nonblocking: bool) -> Result<()> {
        let file = &self.inner.file;
        file.check_process()
            .and_then(|()| self.inner.waiting.set_nonblocking(file.as_fd(), nonblocking))
            .map_err(|refused| refused.into_error("set the blocking mode of", "the event channel"))
    }
}

impl AsFd for EventChannel {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.inner.file.as_fd()
    }
}

impl AsRawFd for EventChannel {
    fn as_raw_fd(&self) -> RawFd {
        self.as_fd().as_raw_fd()
    }
}
