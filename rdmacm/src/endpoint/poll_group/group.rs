//! [`PollGroup`]: its parts and its creation.

use std::cell::Cell;
use std::collections::VecDeque;
use std::fmt;
use std::marker::PhantomData;
use std::net::SocketAddr;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, RawFd};
use std::sync::Arc;

use nix::sys::epoll::Epoll;

use super::config::PollGroupConfig;
use super::descriptor::Descriptor;
use super::event::Event;
use super::link::Link;
use super::member_table::{Member, MemberTable};
use super::resources::Resources;
use super::return_list::{ReturnList, Returned};
use super::starvation::Starvation;
use crate::cm::EventChannel;
use crate::device::{Device, Transport};
use crate::endpoint::core::Arming;
use crate::endpoint::core::stats::EndpointStats;
use crate::endpoint::shared::timer::Timer;
#[cfg(doc)]
use crate::error::ErrorKind;
use crate::error::{Error, IntoError as _, Result};
use crate::sys::process::Process;
use crate::verbs::{
    CompletionChannel, CompletionQueue, Context, OwnedReceives, ProtectionDomain, RegisteredBuffer,
    SharedReceiveQueue, SharedReceiveQueueAttributes,
};

/// Many connections that one thread or task serves over shared queues and buffers.
///
/// A program adds members with [`connect`](Self::connect) and [`add`](Self::add), and [`wait`](Self::wait) returns the
/// events of all members. A call that concerns one member takes its [`Member`]. The [module](super) describes the
/// costs. Dropping the group ends all members at once.
///
/// # Examples
///
/// A client with many connections, which sends a message over each and waits for all answers:
///
/// ```no_run
/// # use rdmacm::{device::Device, endpoint::{Connector, PollGroup}};
/// # use rdmacm::endpoint::poll_group::{Event, PollGroupConfig};
/// # fn run(device: &Device) -> rdmacm::Result<()> {
/// let mut group = PollGroup::new(device, &PollGroupConfig::new())?;
/// for _ in 0..100 {
///     group.connect(&Connector::new(), "10.0.0.1:7471")?;
/// }
/// let mut events = Vec::new();
/// while !group.is_empty() {
///     group.wait(&mut events, None)?;
///     for event in events.drain(..) {
///         match event {
///             Event::Established(member) => group.post_bytes(member, b"hello")?,
///             Event::Message(member, _answer) => group.close(member)?,
///             Event::Ended(member, end) => println!("{member}: {end:?}"),
///             _ => {}
///         }
///     }
/// }
/// # Ok(())
/// # }
/// ```
///
/// A group is `Send` and not `Sync`: it has one owner at a time, and no lock. This does not compile:
///
/// ```compile_fail,E0277
/// fn is_sync<T: Sync>() {}
/// is_sync::<rdmacm::endpoint::PollGroup>();
/// ```
pub struct PollGroup {
    // Declared first: queue pairs are destroyed before the shared receive queue.
    pub(super) members: MemberTable<Link>,
    pub(super) resources: Resources,
    pub(super) channel: EventChannel,
    pub(super) descriptor: Descriptor,
    pub(super) returns: Arc<ReturnList>,
    /// The list that is exchanged with that of `returns`; empty between calls.
    pub(super) returned: Vec<Returned>,
    pub(super) config: PollGroupConfig,
    pub(super) is_iwarp: bool,
    pub(super) arming: Arming,
    pub(super) starvation: Starvation,
    /// Events that the program has not got yet.
    pub(super) events: VecDeque<Event>,
    /// An error for the next call of `wait` or `poll`.
    ///
    /// The last call has returned events, or the error occurred while a member ended.
    pub(super) deferred_error: Option<Error>,
    /// Members that end with the next step.
    pub(super) ending: Vec<Member>,
    /// Members for which there was no buffer, in the order of their calls.
    pub(super) waiting: VecDeque<Member>,
    /// The timer of attempts, and of members with first writes on iWARP.
    ///
    /// It is absent while there are none.
    pub(super) attempts_timer: Option<Timer>,
    /// `true` if the timer of attempts has expired since their deadlines were checked.
    pub(super) has_unchecked_deadlines: bool,
    pub(super) keep_alive_timer: Option<Timer>,
    /// The number of members for which there was no buffer or no place.
    pub(super) unwritable_members: usize,
    /// `true` if the device was removed: nothing can be posted, and nothing completes any more.
    pub(super) is_removed: bool,
    /// `true` if a completion queue may have completions of a queue pair that was destroyed.
    pub(super) has_late_completions: bool,
    /// Number of consecutive calls that have not checked the descriptor.
    pub(super) unread_calls: u32,
    pub(super) process: Process,
    pub(super) not_sync: PhantomData<Cell<()>>,
}

impl PollGroup {
    /// Creates a group without members for connections over `device`.
    ///
    /// The call opens the device, unless the process has it open. It creates a protection domain, a completion channel,
    /// two completion queues, a shared receive queue and an event channel. It registers all buffers and posts the
    /// buffers for receiving.
    ///
    /// # Errors
    ///
    /// - [`ErrorKind::InvalidInput`] if a parameter is out of its range.
    /// - [`ErrorKind::Os`] with EINVAL or ENOMEM if `config` exceeds the limits of the device.
    /// - ENOMEM or EPERM, with a [hint](crate::Error::hint), if the user may not pin as much memory.
    /// - The errors of [`Context::open`].
    pub fn new(device: &Device, config: &PollGroupConfig) -> Result<Self> {
        config.check()?;
        let context = Context::shared(device)?;
        let is_iwarp = context.transport() == Transport::Iwarp;
        let completions = CompletionChannel::new(&context)?;
        Self::with_context(&context, is_iwarp, completions, EventChannel::new()?, config)
    }

    /// Returns the epoll instance of the group, for a runtime that watches it.
    pub(in crate::endpoint) fn epoll(&self) -> Arc<Epoll> {
        self.descriptor.epoll()
    }

    /// Creates a group whose events arrive on `completions` and `channel`.
    pub(super) fn with_context(
        context: &Context,
        is_iwarp: bool,
        completions: CompletionChannel,
        channel: EventChannel,
        config: &PollGroupConfig,
    ) -> Result<Self> {
        let posted = config.posted_receives(is_iwarp);
        let pd = ProtectionDomain::new(context)?;
        completions.set_nonblocking(true)?;
        let cq = |size| CompletionQueue::new(context, size, Some(&completions));
        let (recv_cq, send_cq) =
            (cq(posted)?, cq(config.send_completions(config.initial_members))?);
        let attributes = SharedReceiveQueueAttributes { max_wr: posted, ..Default::default() };
        let srq = SharedReceiveQueue::new(&pd, attributes)?;
        let [sends, receives] =
            [config.send_buffers, posted].map(|count| usize::try_from(count).expect("32 bits fit"));
        let groups = [(sends, config.send_buffer_size), (receives, config.receive_buffer_size)];
        let mut free_sends = RegisteredBuffer::alloc_groups(&pd, groups, 0)?;
        let unposted = free_sends.split_off(sends);
        let receives = OwnedReceives::new(srq, receives);
        let mut resources =
            Resources { receives, recv_cq, send_cq, completions, pd, free_sends, unposted };
        resources.post_receives()?;
        // This matches the initial state of `Arming`: the first message raises an event.
        resources.recv_cq.request_notify(false)?;
        channel.set_nonblocking(true)?;
        let returns = ReturnList::new()?;
        let descriptor = Descriptor::new(&channel, &resources.completions, returns.wakeup())?;
        let timer = |interval| Timer::new(interval, "the keep-alive timer of a poll group");
        let keep_alive_timer = config.keep_alive_interval.map(timer).transpose()?;
        keep_alive_timer.iter().try_for_each(|timer| descriptor.add_keep_alive(timer))?;
        let mut arming = Arming::new();
        arming.read_events_first(context.driver_capabilities().raises_event_per_read);
        Ok(Self {
            members: MemberTable::default(),
            starvation: Starvation::new(resources.receives.posted()),
            resources,
            channel,
            descriptor,
            returns,
            returned: Vec::new(),
            // The limit must fit into the indices of buffers.
            config: config.clone().max_held(config.max_held.min(posted)),
            is_iwarp,
            arming,
            events: VecDeque::new(),
            ending: Vec::new(),
            waiting: VecDeque::new(),
            attempts_timer: None,
            has_unchecked_deadlines: false,
            keep_alive_timer,
            unwritable_members: 0,
            deferred_error: None,
            is_removed: false,
            has_late_completions: false,
            unread_calls: 0,
            process: Process::current(),
            not_sync: PhantomData,
        })
    }

    /// Returns the device of the group.
    pub fn device(&self) -> &Device {
        self.resources.pd.context().device()
    }

    /// Returns the number of members that have not ended, attempts to connect included.
    ///
    /// A program that needs the handles of all members keeps those that [`add`](Self::add) and
    /// [`connect`](Self::connect) return.
    pub fn len(&self) -> usize {
        self.members.len()
    }

    /// Returns `true` if the group has no members.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Returns the address of the peer.
    ///
    /// Returns `None` before the member is established, after it has ended, and for an InfiniBand address.
    pub fn peer_addr(&self, member: Member) -> Option<SocketAddr> {
        self.members.get(member)?.peer_addr
    }

    /// Returns the private data of the peer's program, from its request or its answer.
    ///
    /// It is empty before the member is established and after it has ended. On InfiniBand and RoCE zeros follow the
    /// peer's data.
    pub fn private_data(&self, member: Member) -> &[u8] {
        self.members.get(member).map_or(&[], |link| &link.private_data)
    }

    /// Returns the statistics of a member, or `None` after it has ended.
    pub fn stats(&self, member: Member) -> Option<EndpointStats> {
        Some(*self.members.get(member)?.core.stats())
    }

    /// Refuses `operation` in a forked child.
    pub(super) fn check_process(&self, operation: &'static str) -> Result<()> {
        self.process.check().map_err(|refused| refused.into_error(operation, "a poll group"))
    }

    /// Adds an event outside of a call that returns events.
    pub(super) fn announce(&mut self, event: Event) {
        self.events.push_back(event);
        self.returns.wake();
    }
}

impl AsFd for PollGroup {
    /// Returns the descriptor of the group: see [`poll`](Self::poll).
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.descriptor.as_fd()
    }
}

impl AsRawFd for PollGroup {
    fn as_raw_fd(&self) -> RawFd {
        self.as_fd().as_raw_fd()
    }
}

impl Drop for PollGroup {
    fn drop(&mut self) {
        self.returns.close();
    }
}

impl fmt::Debug for PollGroup {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("PollGroup")
            .field("device", &self.device().name())
            .field("members", &self.len())
            .field("receives_posted", &self.resources.receives.posted())
            .finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn group_is_send() {
        fn is_send<T: Send>() {}
        is_send::<PollGroup>();
    }
}
