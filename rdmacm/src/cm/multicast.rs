//! Multicast groups: joining, leaving, and the id's queue pair in them.

use std::mem;
use std::sync::{Arc, MutexGuard};

use nix::errno::Errno;
use ucma_abi::{rdma_ucm_join_mcast, rdma_ucm_leave_mcast};
use verbs_abi::AlignedU64;

use super::group::{GROUPS, Group, Joined, Membership};
use super::id::CmId;
use super::mode::Awaited;
use super::parse::{EventData, EventType, RawEvent};
use super::record::Inner;
use super::service_type::ServiceType;
use crate::acks::Acks;
use crate::addr::{self, Address};
use crate::device::Gid;
use crate::error::{Error, ErrorKind, Result};
use crate::lock::unpoisoned;
use crate::sys::command::Refused;
#[cfg(doc)]
use crate::verbs::QueuePair;

impl CmId {
    /// Joins a multicast group.
    ///
    /// `RDMA_USER_CM_CMD_JOIN_MCAST`. `MulticastJoin` or `MulticastError` follows, and says the
    /// [group](super::Event::multicast); the former [where to send](super::Event::datagram). With it
    /// the queue pair that the id has then is attached to the group as it is read from the channel
    /// (`IB_USER_VERBS_CMD_ATTACH_MCAST`), unless the membership is to send only; where that fails
    /// the event is `MulticastError`. A program's own queue pair is its own to
    /// [attach](QueuePair::attach_multicast).
    ///
    /// The id must be bound to a device, by [`bind`](Self::bind) or by
    /// [`resolve_addr`](Self::resolve_addr), and not yet be further. It leaves its groups when it
    /// goes. A group may be joined more than once, and is left as often.
    ///
    /// # Errors
    ///
    /// EINVAL where the id has no device, or listens, or has a route; [`ErrorKind::Invalid`] where
    /// it is for connections; errno 524 (the kernel's ENOTSUPP) for IPv6 groups on RoCE v2; ENODEV
    /// where the network device is gone.
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
        self.inner.complete(Awaited::join(address), || {
            self.inner
                .join(address, membership)
                .map_err(|refused| self.inner.not_done(OPERATION, subject(), refused))
        })
    }

    /// Leaves a multicast group, or gives up joining it, and waits until the events of the
    /// membership are acknowledged.
    ///
    /// `RDMA_USER_CM_CMD_LEAVE_MCAST`, and `IB_USER_VERBS_CMD_DETACH_MCAST` where the id's queue pair
    /// is attached. The group is the one that was joined last under this address. Events of it that
    /// were not read yet are dropped. Datagrams that came before may still complete.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::Invalid`] with EADDRNOTAVAIL where the id has not joined the group;
    /// [`ErrorKind::WouldDeadlock`] where an event of it that this thread received is still out;
    /// EBUSY where another thread waits in a call of the id, which is synchronous;
    /// [`ErrorKind::DeviceGone`]; [`ErrorKind::WrongProcess`]. The id is still in the group then.
    #[doc(alias = "rdma_leave_multicast")]
    pub fn leave_multicast(&self, group: impl Into<Address>) -> Result<()> {
        const OPERATION: &str = "leave the multicast group";
        self.inner.check_process(OPERATION)?;
        let address = group.into();
        let subject = || format!("{address} on {}", self.inner);
        // Of a synchronous id, no thread may wait for the event that goes with the membership.
        let mode = self.inner.synchronous();
        let _turn = mode.as_ref().map(|mode| mode.turn(&self.inner)).transpose()?;
        let mut groups = self.inner.groups();
        let Some(place) = groups.iter().rposition(|joined| joined.group.address == address) else {
            let reason = "the id has not joined it".into();
            let kind = ErrorKind::Invalid { errno: Errno::EADDRNOTAVAIL as i32, reason };
            return Err(Error::new(OPERATION, subject(), kind));
        };
        let Joined { handle, ref group, .. } = groups[place];
        if group.acks.held_by_this_thread() {
            let kind = ErrorKind::WouldDeadlock("it holds an event of the group; drop it first");
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
    /// Begins to join a group.
    fn join(&self, address: Address, membership: Membership) -> Result<(), Refused> {
        self.process.check()?;
        let encoded = addr::encode(&address);
        let token = GROUPS.reserve();
        let group =
            Arc::new(Group { token, id: self.token, address, membership, acks: Acks::default() });
        // Before the kernel knows of it: another thread may read the event at once.
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
        groups.push(Joined { handle, group, attached: None });
        Ok(())
    }

    /// The groups that the id is in, in the order in which the kernel has them.
    ///
    /// Held across the commands that join and leave, as the kernel leaves the membership of an
    /// address that is its newest, whichever was named; and while the queue pair is attached or
    /// detached, so that it is in a group if and only if this says so.
    fn groups(&self) -> MutexGuard<'_, Vec<Joined>> {
        unpoisoned(self.groups.lock())
    }

    /// Detaches the id's queue pair from what it is `attached` to, unless it is for one of the
    /// `others` too.
    fn detach(&self, others: &[Joined], attached: Option<(Gid, u16)>) {
        let Some((gid, lid)) = attached else { return };
        if others.iter().any(|other| other.attached == attached) {
            return;
        }
        let qp = self.state().qp.clone();
        if let Some(qp) = qp {
            // It may be another queue pair than the one that was attached.
            let _ = qp.detach_multicast(gid, lid);
        }
    }

    /// Lets go of the id's queue pair, which is in none of the id's groups any more then.
    pub(super) fn let_go_of_qp(&self) {
        if self.process.is_current() {
            let mut groups = self.groups();
            self.detach_all(&mut groups);
            let qp = self.state().qp.take();
            drop(qp);
        }
    }

    /// Takes the id's queue pair out of its groups.
    fn detach_all(&self, groups: &mut [Joined]) {
        for place in 0..groups.len() {
            let attached = groups[place].attached.take();
            self.detach(groups, attached);
        }
    }

    /// Releases the objects that the id holds, after the kernel's object was destroyed. Returns the
    /// groups, for [`group::forget`](super::group::forget).
    pub(super) fn release_resources(&self) -> Vec<Joined> {
        let mut groups = self.groups();
        self.detach_all(&mut groups);
        let mut state = self.state();
        // The queue pair goes first, which may take its receives from the shared queue.
        let (qp, srq) = (state.qp.take(), state.srq.take());
        drop(state);
        drop(qp);
        drop(srq);
        mem::take(&mut *groups)
    }
}

impl Group {
    /// Does what the library owes to an event before the program sees it; the event type and status
    /// that the program sees, or `None` where it has left the group.
    pub(super) fn react(&self, id: &Inner, raw: &RawEvent) -> Option<(EventType, i32)> {
        let seen = (raw.event_type(), raw.status());
        let mut groups = id.groups();
        let joined = groups.iter_mut().find(|joined| joined.group.token == self.token)?;
        let qp = id.state().qp.clone();
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
mod tests {
    use std::fs;
    use std::io::{ErrorKind::WouldBlock, Read, Write};
    use std::os::fd::AsFd;
    use std::os::unix::net::UnixStream;
    use std::sync::{TryLockError, mpsc};
    use std::thread;

    use nix::unistd::gettid;

    use super::*;
    use crate::addr::port_space::PortSpace;
    use crate::cm::EventChannel;
    use crate::cm::id::tests::{fake_channel, fake_id};

    /// That nobody else gets at the groups of `id` while the kernel, to which `channel` leads, is at
    /// the command that `call` sends.
    fn holds_the_groups(
        id: &CmId,
        channel: &EventChannel,
        mut kernel: &UnixStream,
        call: impl FnOnce() -> Result<()> + Send,
    ) {
        // The command waits as long as nobody reads what is before it.
        let descriptor = channel.as_fd().try_clone_to_owned().expect("a copy of the descriptor");
        let mut before = UnixStream::from(descriptor);
        before.set_nonblocking(true).expect("do not block");
        while before.write(&[0; 512]).is_ok() {}
        before.set_nonblocking(false).expect("block again");
        kernel.set_nonblocking(true).expect("do not block");
        thread::scope(|scope| {
            let (says, hears) = mpsc::channel();
            let caller = scope.spawn(move || {
                says.send(gettid()).expect("the test listens");
                call()
            });
            let thread = hears.recv().expect("the thread says who it is");
            let stat = || fs::read_to_string(format!("/proc/self/task/{thread}/stat"));
            while !stat().is_ok_and(|stat| stat.contains(") S ")) {
                thread::yield_now();
            }
            let held = matches!(id.inner.groups.try_lock(), Err(TryLockError::WouldBlock));
            while !caller.is_finished() {
                match kernel.read(&mut [0; 4096]) {
                    Err(error) if error.kind() == WouldBlock => thread::yield_now(),
                    read => drop(read.expect("read what was sent")),
                }
            }
            assert!(held, "it does not hold them");
            caller.join().expect("the caller lives").expect("success");
        });
    }

    #[test]
    fn one_thread_at_a_time_joins_or_leaves() {
        let (channel, kernel) = fake_channel();
        let id = CmId::from_inner(fake_id(&channel, PortSpace::Udp));
        let group = std::net::SocketAddr::from(([239, 1, 2, 3], 0));
        let join = || id.join_multicast(group, Membership::Full);
        holds_the_groups(&id, &channel, &kernel, join);
        holds_the_groups(&id, &channel, &kernel, || id.leave_multicast(group));
    }
}
