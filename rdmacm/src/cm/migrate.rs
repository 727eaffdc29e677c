//! Migration of ids between channels, and waking the threads that wait on the new channel.

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
use super::mode::{SyncMode, busy_error};
use super::record::Inner;
use crate::addr::{self, Encoded};
use crate::error::{Error, ErrorKind, Result};
use crate::lock::ignore_poison;
use crate::sys::command::CommandError;
use crate::sys::poll::readable;

impl CmId {
    /// Moves the id to `channel`, with its unread events.
    ///
    /// The call returns when the events that the old channel has reported for the id are acknowledged. After that, no
    /// thread handles an event of the id from the old channel. Commands of other threads wait during the call, and go
    /// to the new channel.
    ///
    /// The unread requests to a listener move too, and the ids of later requests are created on the new channel. Ids of
    /// earlier requests stay on their channel. A listener keeps its former channels open until it is destroyed, because
    /// the kernel leaves the ids of unread requests on them. A request that arrives during the call may still arrive on
    /// the old channel; the call then waits for that event too.
    ///
    /// The kernel does not wake threads that wait on the new channel when events move to it. The call therefore makes
    /// the kernel post one more event there, which [`EventChannel::get_event`] discards. That event is the outcome of
    /// resolving a loopback address for an id that has no other purpose. It is not available in a network namespace
    /// without a loopback interface on a machine without RDMA device.
    ///
    /// After a change of its credentials, the commands of a thread on the old channel fail with
    /// [`ErrorKind::NotOwner`]. The thread can then move ids to a channel that it opens now.
    ///
    /// # Errors
    ///
    /// The id stays on the old channel if the call fails.
    ///
    /// - [`ErrorKind::WouldDeadlock`] if an event of the id that this thread received is not acknowledged yet.
    /// - [`ErrorKind::InvalidInput`] with EBUSY if the id is synchronous and another thread waits in a call of it.
    /// - [`ErrorKind::DeviceRemoved`] if the device was removed.
    /// - [`ErrorKind::NotOwner`] after a fork, because the id belongs to the parent.
    ///
    /// Kernel command: `RDMA_USER_CM_CMD_MIGRATE_ID`, sent to the new channel.
    #[doc(alias = "rdma_migrate_id")]
    pub fn migrate(&self, channel: &EventChannel) -> Result<()> {
        let mode = self.inner.synchronous();
        let _call = mode.as_ref().map(|mode| mode.lock_call(&self.inner)).transpose()?;
        self.inner.migrate(&channel.inner, mode.as_ref(), None)
    }
}

impl Inner {
    /// Moves the id to the channel `to`.
    ///
    /// `mode` is the synchronous state that the id must have now, and `sync` the one that it has afterwards.
    pub(super) fn migrate(
        &self,
        to: &Arc<ChannelInner>,
        mode: Option<&Arc<SyncMode>>,
        sync: Option<Arc<SyncMode>>,
    ) -> Result<()> {
        const OPERATION: &str = "migrate";
        self.check_process(OPERATION)?;
        if self.acks.held_by_this_thread() {
            let kind = ErrorKind::WouldDeadlock(
                "this thread holds an event of the id; drop the event first",
            );
            return Err(Error::new(OPERATION, self.to_string(), kind));
        }
        let _guard = ignore_poison(self.migration.lock());
        let reported = {
            let mut binding = self.binding_mut();
            // Another thread may have changed it meanwhile, and may wait in a call now.
            if binding.sync.as_ref().map(Arc::as_ptr) != mode.map(Arc::as_ptr) {
                return Err(busy_error(OPERATION, self));
            }
            if Arc::ptr_eq(&binding.channel, to) {
                return Ok(());
            }
            // No LISTEN is in flight while the lock is held.
            let listens = self.listens.load(Ordering::Relaxed);
            if listens {
                // Recorded first: a thread that reads a request from the old channel looks for the id of the request.
                to.add_former_channels(binding.former_channels.iter().chain([&binding.channel]));
            }
            let moved = to.take_id(self.handle, &binding.channel);
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
        // No thread waits on a channel that belongs to the id.
        if sync.is_none() {
            to.wake();
        }
        self.acks.wait_for_earlier(reported);
        Ok(())
    }
}

impl ChannelInner {
    /// Moves the id of a request that was read from this channel to this channel.
    ///
    /// `handle` is the kernel's number of the id. The id is on another channel if its listener has migrated meanwhile,
    /// and may already be destroyed.
    pub(super) fn take_request_id(&self, handle: u32) {
        // All channels refuse this except the one that has the id. If the id is on this channel already, all refuse.
        self.former_channels().iter().any(|origin| self.take_id(handle, origin).is_ok());
    }

    /// Moves the kernel's object to this channel.
    fn take_id(&self, handle: u32, from: &Self) -> Result<rdma_ucm_migrate_resp, CommandError> {
        // The kernel checks the credentials of the new channel only.
        from.file.check_process()?;
        let fd = from.file.as_fd().as_raw_fd();
        self.command(rdma_ucm_migrate_id {
            response: AlignedU64::default(),
            id: handle,
            fd: fd.unsigned_abs(),
        })
    }

    /// Wakes the threads that wait on the channel if the kernel moved unread events to it.
    ///
    /// The kernel wakes threads only for events that it posts. This call makes it post one more event, for an id that
    /// has no other purpose.
    fn wake(&self) {
        if readable(self.file.as_fd(), Some(Instant::now())) == Ok(false) {
            return;
        }
        let mut waker = self.waker();
        if !waker.request_wakeup() {
            return;
        }
        let created = self.file.command(rdma_ucm_create_id {
            uid: WAKER_UID.into(),
            response: AlignedU64::default(),
            ps: RDMA_PS_TCP,
            qp_type: ib_uverbs_qp_type::IB_UVERBS_QPT_RC.0,
            reserved: [0; 5],
        });
        let Ok(created) = created else { return };
        // The event arrives even if the address does not resolve. The kernel refuses the command if there is no route
        // to the first address, and if there is no device for the second.
        let sent = [Ipv4Addr::LOCALHOST, Ipv4Addr::UNSPECIFIED]
            .into_iter()
            .any(|destination| self.file.command(resolve(created.id, destination)).is_ok());
        if sent {
            waker.sent(created.id);
        } else {
            let _ = self.file.command(destroy_id(created.id));
        }
    }

    /// Ends a wakeup whose event was read from this channel.
    pub(super) fn on_wakeup_event(&self) {
        let Some(Woken { handle, needs_another }) = self.waker().on_event() else { return };
        if let Err(CommandError::NotOwner(_)) = self.command(destroy_id(handle)) {
            self.abandon(handle);
        }
        if needs_another {
            self.wake();
        }
    }
}

/// Returns the RESOLVE_ADDR command for `destination`, without a source address.
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

#[cfg(test)]
mod tests;
