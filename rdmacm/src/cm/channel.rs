//! Event channels: the descriptor, and whether it blocks.

use std::mem;
use std::os::fd::{AsFd, BorrowedFd};
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
use crate::lock::unpoisoned;
use crate::sys::command::Refused;
use crate::sys::poll::Waiting;
use crate::sys::ucma::UcmaFile;

/// A channel on which the events of ids arrive: one open `/dev/infiniband/rdma_cm`.
///
/// The channel is a plain descriptor ([`AsFd`]): readable when an event waits, fit for poll and
/// epoll. Programs that poll it make it [non-blocking](Self::set_nonblocking): what made it readable
/// may be an event that the library keeps for itself (of an id that is gone, or the one with which
/// [`CmId::migrate`] wakes sleepers), behind which a blocking [`get_event`](Self::get_event) waits
/// for the next. Several threads may read it; each event goes to one of them. The descriptor stays
/// open until the channel and every id on it are gone.
///
/// After a fork the channel belongs to the parent: every call of the child fails with
/// [`ErrorKind::WrongProcess`], and drops there do nothing.
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
    /// There are such. Set while they are locked; read by every command, which takes no lock for them.
    has_orphans: AtomicBool,
    waker: Mutex<ChannelWaker>,
    /// The channels on which listeners were before they came here. The listeners keep them open.
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

    /// Sends a command, and after it had success, from the right credentials then, destroys what
    /// was left behind.
    pub(super) fn command<C: Command>(&self, request: C) -> Result<C::Response, Refused> {
        self.run(|file| file.command(request))
    }

    /// Calls `command`, which sends a command, as [`command`](Self::command) does.
    pub(super) fn run<T>(
        &self,
        command: impl FnOnce(&UcmaFile) -> Result<T, Refused>,
    ) -> Result<T, Refused> {
        let response = command(&self.file)?;
        if self.has_orphans.load(Ordering::Acquire) {
            self.destroy_orphans();
        }
        Ok(response)
    }

    /// Leaves the destruction of a kernel id to the next command that has success.
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
            // Refused only if the kernel does not have it.
            let _ = self.file.command(destroy_id(handle));
        }
    }

    fn orphans(&self) -> MutexGuard<'_, Vec<u32>> {
        unpoisoned(self.orphans.lock())
    }

    /// Returns the open channels on which listeners were before they came here.
    pub(super) fn former_channels(&self) -> Vec<Arc<Self>> {
        let former_channels = unpoisoned(self.former_channels.lock());
        former_channels.iter().filter_map(Weak::upgrade).collect()
    }

    /// Records that a listener, which was on `channels`, moves here.
    pub(super) fn add_former_channels<'a>(&self, channels: impl Iterator<Item = &'a Arc<Self>>) {
        let mut former_channels = unpoisoned(self.former_channels.lock());
        former_channels.retain(|former| former.strong_count() > 0);
        for channel in channels {
            let known = |former: &Weak<Self>| former.as_ptr() == Arc::as_ptr(channel);
            if !former_channels.iter().any(known) {
                former_channels.push(Arc::downgrade(channel));
            }
        }
    }

    pub(super) fn waker(&self) -> MutexGuard<'_, ChannelWaker> {
        unpoisoned(self.waker.lock())
    }
}

/// DESTROY_ID for the id that the kernel calls `handle`.
pub(super) fn destroy_id(handle: u32) -> rdma_ucm_destroy_id {
    rdma_ucm_destroy_id { response: AlignedU64::default(), id: handle, reserved: 0 }
}

impl EventChannel {
    /// Opens a channel.
    ///
    /// Sends no command. The first time, asks RDMA netlink (which loads the kernel's module where it
    /// is missing) or sysfs for the ABI version.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::Remedy`] with ENOENT where the kernel has no connection manager, with EACCES
    /// where the node is closed to the user; [`ErrorKind::Unsupported`] where its ABI version
    /// is not 4.
    #[doc(alias = "rdma_create_event_channel")]
    pub fn new() -> Result<Self> {
        Ok(Self { inner: ChannelInner::new(UcmaFile::new(device::open_rdma_cm()?)) })
    }

    /// Makes [`get_event`](Self::get_event) return [`ErrorKind::WouldBlock`] instead of waiting, or
    /// wait again. A descriptor that was non-blocking once stays so itself.
    ///
    /// # Errors
    ///
    /// The errors of `fcntl`; [`ErrorKind::WrongProcess`] after a fork: the mode is the parent's too.
    pub fn set_nonblocking(&self, nonblocking: bool) -> Result<()> {
        let file = &self.inner.file;
        file.check_process()
            .and_then(|()| self.inner.waiting.set_nonblocking(file.as_fd(), nonblocking))
            .map_err(|refused| refused.during("set the blocking mode of", "the event channel"))
    }
}

impl AsFd for EventChannel {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.inner.file.as_fd()
    }
}
