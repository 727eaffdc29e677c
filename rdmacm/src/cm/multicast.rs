//! Multicast groups: joining, leaving, and attaching the id's queue pair.

use std::mem;
use std::sync::{Arc, MutexGuard};

use nix::errno::Errno;
use ucma_abi::{rdma_ucm_join_mcast, rdma_ucm_leave_mcast};
use verbs_abi::AlignedU64;

use super::group::{GROUPS, Group, GroupEntry, Membership};
use super::id::CmId;
use super::mode::Awaited;
use super::parse::{EventData, EventType, RawEvent};
use super::record::Inner;
use super::service_type::ServiceType;
use crate::acks::Acks;
use crate::addr::{self, Address};
use crate::device::Gid;
use crate::error::{Error, ErrorKind, Result};
use crate::lock::ignore_poison;
use crate::sys::command::CommandError;
#[cfg(doc)]
use crate::verbs::QueuePair;

impl CmId {
    /// Joins a multicast group.
    ///
    /// `MulticastJoin` or `MulticastError` follows, and names the [group](super::Event::multicast). `MulticastJoin` has
    /// the [address](super::Event::datagram) to which to send. When that event is read from the channel, the id's queue
    /// pair is attached to the group, unless the membership is for sending only. If attaching fails, the event is
    /// `MulticastError`. The program [attaches](QueuePair::attach_multicast) queue pairs that do not belong to the id.
    ///
    /// The id must be bound to a device, by [`bind`](Self::bind) or by [`resolve_addr`](Self::resolve_addr), and must
    /// not have a route yet. It leaves its groups when it is destroyed. A group may be joined several times, and is
    /// then left as often.
    ///
    /// # Errors
    ///
    /// - EINVAL if the id has no device, listens, or has a route.
    /// - [`ErrorKind::InvalidInput`] if the id is for connections.
    /// - Errno 524 (the kernel's ENOTSUPP) for IPv6 groups on RoCE v2.
    /// - ENODEV if the network device was removed.
    ///
    /// Kernel command: `RDMA_USER_CM_CMD_JOIN_MCAST`, then with the event `IB_USER_VERBS_CMD_ATTACH_MCAST`.
    #[doc(alias = "rdma_join_multicast")]
    #[doc(alias = "rdma_join_multicast_ex")]
    pub fn join_multicast(&self, group: impl Into<Address>, membership: Membership) -> Result<()> {
        const OPERATION: &str = "join the multicast group";
        let address = group.into();
        let subject = || format!("{address} on {}", self.inner);
        if self.inner.service() != ServiceType::Datagram {
            let reason = "the id is for connections, and groups are for datagrams";
            return Err(Error::invalid(OPERATION, subject(), reason));
        }
        self.inner.start_and_wait(Awaited::join(address), || {
            self.inner
                .join(address, membership)
                .map_err(|refused| self.inner.not_done(OPERATION, subject(), refused))
        })
    }

    /// Leaves a multicast group and waits until the events of the membership are acknowledged.
    ///
    /// If the id is still joining the group, the call cancels that. If the group was joined several times under this
    /// address, the call ends the last membership. Unread events of the membership are discarded. Datagrams that
    /// arrived before may still complete.
    ///
    /// # Errors
    ///
    /// The id stays in the group if the call fails.
    ///
    /// - [`ErrorKind::InvalidInput`] with EADDRNOTAVAIL if the id has not joined the group.
    /// - [`ErrorKind::WouldDeadlock`] if an event of the membership that this thread received is not acknowledged yet.
    /// - [`ErrorKind::InvalidInput`] with EBUSY if the id is synchronous and another thread waits in a call of it.
    /// - [`ErrorKind::DeviceRemoved`] if the device was removed.
    /// - [`ErrorKind::NotOwner`] if the process forked or changed its credentials.
    ///
    /// Kernel command: `RDMA_USER_CM_CMD_LEAVE_MCAST`, and `IB_USER_VERBS_CMD_DETACH_MCAST` if the id's queue pair is
    /// attached.
    #[doc(alias = "rdma_leave_multicast")]
    pub fn leave_multicast(&self, group: impl Into<Address>) -> Result<()> {
        const OPERATION: &str = "leave the multicast group";
        self.inner.check_process(OPERATION)?;
        let address = group.into();
        let subject = || format!("{address} on {}", self.inner);
        // If the id is synchronous, no thread may wait for the event of the membership.
        let mode = self.inner.synchronous();
        let _call = mode.as_ref().map(|mode| mode.lock_call(&self.inner)).transpose()?;
        let mut groups = self.inner.groups();
        let Some(place) = groups.iter().rposition(|joined| joined.group.address == address) else {
            let reason = "the id has not joined it".into();
            let kind = ErrorKind::InvalidInput { errno: Errno::EADDRNOTAVAIL as i32, reason };
            return Err(Error::new(OPERATION, subject(), kind));
        };
        let GroupEntry { handle, ref group, .. } = groups[place];
        if group.acks.held_by_this_thread() {
            let kind = ErrorKind::WouldDeadlock(
                "this thread holds an event of the group; drop the event first",
            );
            return Err(Error::new(OPERATION, subject(), kind));
        }
        let request = rdma_ucm_leave_mcast::new(handle);
        let reported = self.inner.command(OPERATION, subject, request)?.events_reported;
        let left = groups.remove(place);
        self.inner.detach(&groups, left.attached);
        drop(groups);
        if let Some(mode) = &mode {
            mode.forget_join(&address);
        }
        left.group.acks.wait(reported);
        GROUPS.remove(left.group.token);
        Ok(())
    }
}

impl Inner {
    /// Starts to join a group.
    fn join(&self, address: Address, membership: Membership) -> Result<(), CommandError> {
        self.process.check()?;
        let encoded = addr::encode(&address);
        let token = GROUPS.reserve();
        let group =
            Arc::new(Group { token, id: self.token, address, membership, acks: Acks::default() });
        // Set before the kernel has the token: another thread may read the event at once.
        GROUPS.set(token, &group);
        let request = rdma_ucm_join_mcast {
            response: AlignedU64::default(),
            uid: token.get().into(),
            id: self.handle,
            addr_size: encoded.length,
            join_flags: membership.flags(),
            addr: encoded.slot,
        };
        let mut groups = self.groups();
        let handle = self.send(request).inspect_err(|_| GROUPS.remove(token))?.id;
        groups.push(GroupEntry { handle, group, attached: None });
        Ok(())
    }

    /// Locks and returns the groups that the id is in, in the order of the kernel.
    ///
    /// The lock is held across the commands that join and leave. If an address was joined several times, the kernel
    /// ends its newest membership, regardless of the one that was named. The lock is also held while the queue pair is
    /// attached or detached, so that the list matches the groups of the queue pair.
    fn groups(&self) -> MutexGuard<'_, Vec<GroupEntry>> {
        ignore_poison(self.groups.lock())
    }

    /// Detaches the id's queue pair from `attached`, unless one of the `others` uses it too.
    fn detach(&self, others: &[GroupEntry], attached: Option<(Gid, u16)>) {
        let Some((gid, lid)) = attached else { return };
        if others.iter().any(|other| other.attached == attached) {
            return;
        }
        if let Some(qp) = self.queue_pair() {
            // An error is ignored: the queue pair may not be the attached one.
            let _ = qp.detach_multicast(gid, lid);
        }
    }

    /// Releases the id's queue pair after taking it out of the id's groups.
    pub(super) fn release_qp(&self) {
        if self.process.is_current() {
            let mut groups = self.groups();
            self.detach_all(&mut groups);
            let qp = self.state().qp.take();
            drop(qp);
        }
    }

    /// Detaches the id's queue pair from all groups.
    fn detach_all(&self, groups: &mut [GroupEntry]) {
        for place in 0..groups.len() {
            let attached = groups[place].attached.take();
            self.detach(groups, attached);
        }
    }

    /// Releases the objects that the id holds, after the kernel's object was destroyed.
    ///
    /// Returns the groups, for [`group::forget`](super::group::forget).
    pub(super) fn release_resources(&self) -> Vec<GroupEntry> {
        let mut groups = self.groups();
        self.detach_all(&mut groups);
        let mut state = self.state();
        // The queue pair is dropped first: it may receive from the shared queue.
        let (qp, srq) = (state.qp.take(), state.srq.take());
        drop(state);
        drop(qp);
        drop(srq);
        mem::take(&mut *groups)
    }
}

impl Group {
    /// Does the work of the library for an event before the program gets it.
    ///
    /// Returns the event type and status that the program gets, or `None` if it has left the group.
    pub(super) fn react(&self, id: &Inner, raw: &RawEvent) -> Option<(EventType, i32)> {
        let seen = (raw.event_type(), raw.status());
        let mut groups = id.groups();
        let joined = groups.iter_mut().find(|joined| joined.group.token == self.token)?;
        let qp = id.queue_pair();
        match (raw.data(ServiceType::Datagram), qp) {
            (EventData::Datagram(param), Some(qp)) if self.membership == Membership::Full => {
                let (gid, lid) = (Gid(param.ah_attr.grh.dgid), param.ah_attr.dlid);
                match qp.attach_multicast(gid, lid) {
                    Ok(()) => {
                        joined.attached = Some((gid, lid));
                        Some(seen)
                    }
                    Err(error) => Some((EventType::MulticastError, -error.errno())),
                }
            }
            _ => Some(seen),
        }
    }
}

#[cfg(test)]
mod tests;
