//! Moving ids from channel to channel, and waking who sleeps on the new one.

use std::mem;
use std::net::Ipv4Addr;
use std::os::fd::{AsFd, AsRawFd};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use ucma_abi::{
    RDMA_PS_TCP, rdma_ucm_create_id, rdma_ucm_migrate_id, rdma_ucm_migrate_resp,
    rdma_ucm_resolve_addr,
};
use verbs_abi::{AlignedU64, ib_uverbs_qp_type};

use super::address::milliseconds;
use super::channel::{ChannelInner, EventChannel, destroy_id};
use super::channel_waker::{WAKER_UID, Woken};
use super::id::CmId;
use super::mode::{SyncMode, busy};
use super::record::Inner;
use crate::addr::{self, Encoded};
use crate::error::{Error, ErrorKind, Result};
use crate::lock::unpoisoned;
use crate::sys::command::Refused;
use crate::sys::poll::readable;

impl CmId {
    /// Moves the id to `channel`, with its events that were not read yet.
    ///
    /// `RDMA_USER_CM_CMD_MIGRATE_ID`, sent to the new channel. Returns when the events that the old
    /// channel has reported for the id are acknowledged: from then on nobody handles one that came
    /// from there. Commands of other threads wait meanwhile, and go to the new channel.
    ///
    /// Requests to a listener that were not read yet move too, and the ids of later ones are born on
    /// the new channel; ids that it brought before stay where they are. A listener keeps the
    /// channels that it was on open until it is destroyed, as the kernel leaves the ids of unread
    /// requests there. A request that arrives during the call may still come on the old channel, and
    /// counts as one of those that the call waits for.
    ///
    /// The kernel does not wake who sleeps on the new channel when events come along, so the call
    /// makes it post one more event there, which [`EventChannel::get_event`] swallows: the outcome
    /// of resolving a loopback address for an id that serves nothing else. (That is not to be had in a
    /// network namespace without a loopback interface on a machine without RDMA device.)
    ///
    /// A thread whose commands on the old channel have [`ErrorKind::WrongProcess`], because its
    /// credentials changed, can move ids to a channel that it opens now.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::WouldDeadlock`] where an event of the id that this thread received is still out;
    /// EBUSY where another thread waits in a call of the id, which is synchronous;
    /// [`ErrorKind::DeviceGone`]; [`ErrorKind::WrongProcess`] after a fork, as the id is the parent's.
    /// The id is on the old channel then.
    #[doc(alias = "rdma_migrate_id")]
    pub fn migrate(&self, channel: &EventChannel) -> Result<()> {
        let mode = self.inner.synchronous();
        let _turn = mode.as_ref().map(|mode| mode.turn(&self.inner)).transpose()?;
        self.inner.migrate(&channel.inner, mode.as_ref(), None)
    }
}

impl Inner {
    /// Moves the id, which is synchronous by `mode` if at all, to `to`, which belongs to what it has
    /// as a synchronous id, if it is to be one.
    pub(super) fn migrate(
        &self,
        to: &Arc<ChannelInner>,
        mode: Option<&Arc<SyncMode>>,
        sync: Option<Arc<SyncMode>>,
    ) -> Result<()> {
        const OPERATION: &str = "migrate";
        self.check_process(OPERATION)?;
        if self.acks.held_by_this_thread() {
            let kind = ErrorKind::WouldDeadlock("it holds an event of the id; drop it first");
            return Err(Error::new(OPERATION, self.to_string(), kind));
        }
        let _alone = unpoisoned(self.migration.lock());
        let reported = {
            let mut binding = self.binding_mut();
            // Another thread may have changed it, and may wait in a call by now.
            if binding.sync.as_ref().map(Arc::as_ptr) != mode.map(Arc::as_ptr) {
                return Err(busy(OPERATION, self));
            }
            if Arc::ptr_eq(&binding.channel, to) {
                return Ok(());
            }
            // No LISTEN is under way while the lock is held.
            let listens = self.listens.load(Ordering::Relaxed);
            if listens {
                // First: who reads a request from there looks for the id that it brings.
                to.add_former_channels(binding.former_channels.iter().chain([&binding.channel]));
            }
            let moved = to.fetch(self.handle, &binding.channel);
            let moved =
                moved.map_err(|refused| Self::refused(OPERATION, self.to_string(), refused));
            let events_reported = moved?.events_reported;
            let from = mem::replace(&mut binding.channel, Arc::clone(to));
            if listens && !binding.former_channels.iter().any(|former| Arc::ptr_eq(former, &from)) {
                binding.former_channels.push(from);
            }
            binding.sync = sync.clone();
            self.acks.moved();
            events_reported
        };
        // Nobody sleeps on a channel that is the id's own.
        if sync.is_none() {
            to.wake();
        }
        self.acks.wait_for_earlier(reported);
        Ok(())
    }
}

impl ChannelInner {
    /// Brings the id of a request that was read from this channel, which the kernel calls `handle`,
    /// here. It is on another one where its listener has migrated in between, and that may be gone
    /// by now.
    pub(super) fn collect(&self, handle: u32) {
        // Refused by all channels but the one that has it, and by all where it is here already.
        self.former_channels().iter().any(|origin| self.fetch(handle, origin).is_ok());
    }

    /// Moves the kernel's object to this channel.
    fn fetch(&self, handle: u32, from: &Self) -> Result<rdma_ucm_migrate_resp, Refused> {
        // The kernel looks at the credentials of the new channel only.
        from.file.check_process()?;
        let fd = from.file.as_fd().as_raw_fd();
        self.command(rdma_ucm_migrate_id {
            response: AlignedU64::default(),
            id: handle,
            fd: fd.unsigned_abs(),
        })
    }

    /// Wakes who sleeps on the channel if there is something to read that the kernel moved here.
    ///
    /// The kernel wakes sleepers for what it posts, so this makes it post one event more, for an
    /// id that only serves this.
    fn wake(&self) {
        if readable(self.file.as_fd(), Some(Instant::now())) == Ok(false) {
            return;
        }
        let mut waker = self.waker();
        if !waker.has_to_wake() {
            return;
        }
        let made = self.file.command(rdma_ucm_create_id {
            uid: WAKER_UID.into(),
            response: AlignedU64::default(),
            ps: RDMA_PS_TCP,
            qp_type: ib_uverbs_qp_type::IB_UVERBS_QPT_RC.0,
            reserved: [0; 5],
        });
        let Ok(made) = made else { return };
        // Whether the address resolves or not, the event comes. The command is refused where no route leads to the first one,
        // and where there is no device for the second.
        let sent = [Ipv4Addr::LOCALHOST, Ipv4Addr::UNSPECIFIED]
            .into_iter()
            .any(|destination| self.file.command(resolve(made.id, destination)).is_ok());
        if sent {
            waker.sent(made.id);
        } else {
            let _ = self.file.command(destroy_id(made.id));
        }
    }

    /// Ends a wakeup, whose event was read from this channel.
    pub(super) fn on_wakeup_event(&self) {
        let Some(Woken { handle, again }) = self.waker().on_event() else { return };
        if let Err(Refused::WrongProcess(_)) = self.command(destroy_id(handle)) {
            self.abandon(handle);
        }
        if again {
            self.wake();
        }
    }
}

/// RESOLVE_ADDR of `destination`, from nowhere in particular.
fn resolve(id: u32, destination: Ipv4Addr) -> rdma_ucm_resolve_addr {
    let destination = addr::encode(&(destination, 0).into());
    rdma_ucm_resolve_addr {
        id,
        timeout_ms: milliseconds(Duration::from_secs(1)),
        src_size: Encoded::NONE.length,
        dst_size: destination.length,
        reserved: 0,
        src_addr: Encoded::NONE.slot,
        dst_addr: destination.slot,
    }
}
