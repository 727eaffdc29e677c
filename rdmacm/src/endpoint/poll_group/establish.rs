//! New members: requests that are accepted, and attempts to connect.

use std::time::Duration;

use super::event::Event;
use super::group::PollGroup;
use super::link::{Attempt, Link, Phase};
use super::member_table::Member;
use crate::cm::{CmId, Event as CmEvent};
use crate::endpoint::connect::attempt::{connect, resolve_route};
use crate::endpoint::connect::attempt_peer::AttemptPeer;
use crate::endpoint::connect::connector::Connector;
use crate::endpoint::connect::incoming::Incoming;
use crate::endpoint::core::FIRST_WRITE_INTERVAL;
use crate::endpoint::shared::kernel_objects::set_min_rnr_timer;
use crate::endpoint::shared::timer::Timer;
use crate::endpoint::shared::trace::Trace;
use crate::endpoint::to_addresses::ToAddresses;
use crate::endpoint::wait::deadline::{deadline_after, earlier, has_passed};
use crate::error::{Error, ErrorKind, Result};
use crate::verbs::{OwnedSends, QueuePair, QueuePairCaps, QueuePairInit};

const ADD: &str = "add a member to";
const GROUP: &str = "a poll group";

impl PollGroup {
    /// Accepts a request with private data, and adds its connection to the group.
    ///
    /// `private_data` is for the peer's program, with at most 196 bytes on InfiniBand and RoCE, and 251 on iWARP.
    /// [`Event::Established`] follows, or [`Event::Ended`]. The end is [`MemberEnd::Failed`](super::MemberEnd::Failed) with
    /// [`ErrorKind::TimedOut`] if the peer does not continue within `timeout`.
    ///
    /// Kernel commands: `RDMA_USER_CM_CMD_MIGRATE_ID`, `IB_USER_VERBS_CMD_CREATE_QP`, `RDMA_USER_CM_CMD_ACCEPT` and
    /// those that move the queue pair to RTS.
    ///
    /// # Errors
    ///
    /// The peer is rejected if it was not accepted yet, and the group is unchanged.
    /// - [`ErrorKind::InvalidInput`] if the request arrived over another [`device`](Incoming::device), or if the
    ///   private data is too long.
    /// - [`ErrorKind::InvalidInput`] if the completion queue has no room for one more member and the driver cannot
    ///   resize it.
    /// - [`ErrorKind::Os`] with ENOMEM or EINVAL if the device has no more queue pairs.
    /// - [`ErrorKind::Os`] with EINVAL, on siw ECONNRESET, if the peer has ended its attempt.
    /// - [`ErrorKind::DeviceRemoved`] if the device was removed.
    /// - [`ErrorKind::NotOwner`] after a fork.
    pub fn add(
        &mut self,
        incoming: Incoming,
        private_data: &[u8],
        timeout: Duration,
    ) -> Result<Member> {
        self.check_process(ADD)?;
        let deadline = deadline_after(timeout);
        let (id, param, trace) = incoming.into_parts();
        let peer = AttemptPeer::query_client(&id);
        let attempt = Attempt {
            connect_attempt: None,
            peer,
            private_data: param.private_data,
            deadline,
            total_deadline: deadline,
        };
        let accepted = self.accept(id, attempt, private_data, trace);
        accepted.map_err(|error| peer.command_error(error))
    }

    /// Accepts the request of `id` with the private data of this side.
    fn accept(
        &mut self,
        id: CmId,
        attempt: Attempt,
        private_data: &[u8],
        trace: Trace,
    ) -> Result<Member> {
        self.check_device(&id)?;
        self.reserve_completions()?;
        id.migrate(&self.channel)?;
        self.make_room_for_qp()?;
        let qp = self.create_qp(&id)?;
        let context = self.resources.pd.context();
        let link = Link::new(id, context, &self.config, (Phase::Answer, attempt), false, trace);
        let member = self.insert(link, Some(qp))?;
        let param = self.config.param(private_data);
        if let Some(Err(error)) = self.members.get(member).map(|link| link.id.accept(&param)) {
            self.discard(member);
            return Err(error);
        }
        Ok(member)
    }

    /// Starts to connect to a listener at `server`.
    ///
    /// The addresses, timeouts and private data are those of `connector`. The configuration is that of the group, not
    /// the [`config`](Connector::config) of the connector. [`Event::Established`] follows, or [`Event::Ended`] with the
    /// reason.
    ///
    /// If `server` names several addresses, only the first is tried. A name is looked up before this returns, which
    /// blocks.
    ///
    /// Deadlines of the connector have a resolution of 100 ms, and apply while the program waits for the group.
    ///
    /// Kernel command: `RDMA_USER_CM_CMD_RESOLVE_ADDR`. On iWARP a later call that waits or polls connects TCP, which
    /// no deadline interrupts.
    ///
    /// # Errors
    ///
    /// After an error the group is unchanged.
    /// - [`ErrorKind::NameResolution`] if a name is not found.
    /// - [`ErrorKind::Os`] with ENODEV if no device leads to `server`.
    /// - [`ErrorKind::InvalidInput`] if the completion queue has no room for one more member and the driver cannot
    ///   resize it.
    /// - [`ErrorKind::NotOwner`] after a fork.
    pub fn connect(&mut self, connector: &Connector, server: impl ToAddresses) -> Result<Member> {
        self.check_process(ADD)?;
        self.reserve_completions()?;
        let total_deadline = connector.total_deadline();
        let (id, connect_attempt, deadline, trace) =
            connector.start_resolving(&self.channel, server.to_target().resolve()?[0])?;
        let deadline = earlier(deadline, total_deadline);
        let attempt = Attempt {
            peer: AttemptPeer::Server(connect_attempt.server),
            connect_attempt: Some(connect_attempt),
            private_data: Vec::new(),
            deadline,
            total_deadline,
        };
        let context = self.resources.pd.context();
        let first = (Phase::Address, attempt);
        let link = Link::new(id, context, &self.config, first, self.is_iwarp, trace);
        self.insert(link, None)
    }

    /// Adds a member, to which its events are delivered from now on.
    pub(super) fn insert(&mut self, link: Link, qp: Option<QueuePair>) -> Result<Member> {
        if self.attempts_timer.is_none() {
            let timer = Timer::new(FIRST_WRITE_INTERVAL, "the timer of attempts to connect")?;
            self.descriptor.add_attempts(&timer)?;
            self.attempts_timer = Some(timer);
        }
        let last_poll = self.starvation.current_poll();
        let member = self.members.insert(Link { last_poll, ..link });
        if let Some(link) = self.members.get(member) {
            link.id.set_user_data(u64::try_from(member.index()).expect("64 bits fit"));
        }
        if let Some(qp) = qp {
            self.set_qp(member, qp);
        }
        Ok(member)
    }

    fn set_qp(&mut self, member: Member, qp: QueuePair) {
        let number = qp.number();
        if let Some(link) = self.members.get_mut(member) {
            link.sends = Some(OwnedSends::new(qp));
            self.members.set_qp(member, number);
        }
    }

    fn check_device(&self, id: &CmId) -> Result<()> {
        let own = self.resources.pd.context();
        if self.is_removed || own.is_device_removed() {
            return Err(Error::new(ADD, GROUP, ErrorKind::DeviceRemoved(libc::ENODEV)));
        }
        let context = id.context()?;
        if context == *own {
            return Ok(());
        }
        let [connection_device, group_device] =
            [&context, own].map(|context| context.device().name().to_owned());
        let reason = format!(
            "the connection is over {connection_device}, but the group is over {group_device}"
        );
        Err(Error::invalid(ADD, GROUP, reason))
    }

    /// Polls the completions of destroyed queue pairs before a call of the program creates another one.
    pub(super) fn make_room_for_qp(&mut self) -> Result<()> {
        let polled = self.poll_late_completions();
        // The poll may have ended members, or freed buffers, even if it has failed.
        self.wake_for_progress();
        polled
    }

    /// Makes room for the completions of one more member.
    fn reserve_completions(&mut self) -> Result<()> {
        let members = u32::try_from(self.members.len() + 1).unwrap_or(u32::MAX);
        let (needed, cq) = (self.config.send_completions(members), &self.resources.send_cq);
        if needed <= cq.capacity() {
            return Ok(());
        }
        let twice = self.config.send_completions(members.saturating_mul(2));
        cq.resize(twice).or_else(|_| cq.resize(needed)).map_err(|error| {
            if matches!(error.kind(), ErrorKind::DeviceRemoved(_)) {
                return error;
            }
            let reason = format!("the completion queue has no room for {members} members: {error}");
            Error::invalid(ADD, GROUP, reason)
        })
    }

    /// Creates the queue pair of a member.
    ///
    /// Its number may be that of a destroyed queue pair. So no completion of that queue pair may be left.
    fn create_qp(&self, id: &CmId) -> Result<QueuePair> {
        id.create_qp(&self.resources.pd, &self.qp_init())
    }

    /// Returns the attributes with which the queue pair of a member is created.
    pub(super) fn qp_init(&self) -> QueuePairInit<'_> {
        let shared = &self.resources;
        let caps = QueuePairCaps {
            max_send_wr: self.config.send_queue_depth(),
            max_recv_wr: 0,
            ..QueuePairCaps::default()
        };
        QueuePairInit {
            caps,
            send_cq: &shared.send_cq,
            srq: Some(shared.receives.srq()),
            ..QueuePairInit::new(&shared.recv_cq)
        }
    }

    /// Handles an event of a member that is not established.
    pub(super) fn on_attempt_event(&mut self, member: Member, event: &CmEvent) {
        let Some(link) = self.members.get(member) else { return };
        let phase = link.phase;
        let Some(awaited) = phase.awaited() else { return };
        let advanced = match (event.error_for(awaited), phase) {
            (Some(error), _) => Err(link.attempt_peer().event_error(error, awaited, self.is_iwarp)),
            (None, Phase::Address) => self.resolve_route(member),
            (None, Phase::Route) => self.request_connection(member),
            (None, _) => self.on_established(member, event),
        };
        if let Err(error) = advanced {
            self.fail_attempt(member, error);
        }
    }

    fn resolve_route(&mut self, member: Member) -> Result<()> {
        let Some(link) = self.members.get_mut(member) else { return Ok(()) };
        let timeout = link.begin(Phase::Route, |connector| connector.resolve_route_timeout)?;
        resolve_route(&link.id, timeout, link.attempt_peer())
    }

    /// Creates the queue pair of a member that connects, and asks the peer.
    fn request_connection(&mut self, member: Member) -> Result<()> {
        self.poll_late_completions()?;
        let Some(link) = self.members.get(member) else { return Ok(()) };
        self.check_device(&link.id)?;
        let Some(link) = self.members.get_mut(member) else { return Ok(()) };
        link.begin(Phase::Answer, |connector| connector.response_timeout)?;
        let Some(link) = self.members.get(member) else { return Ok(()) };
        let qp = self.create_qp(&link.id)?;
        self.set_qp(member, qp);
        let Self { members, config, .. } = self;
        let Some(link) = members.get_mut(member) else { return Ok(()) };
        let Some(attempt) = &link.attempt else { return Ok(()) };
        let private_data = attempt
            .connect_attempt
            .as_ref()
            .map(|connect_attempt| &connect_attempt.connector.private_data[..]);
        let param = config.param(private_data.unwrap_or_default());
        match connect(&link.id, &param, link.attempt_peer(), attempt.deadline) {
            Ok(()) => {
                link.trace.set_state("connecting");
                Ok(())
            }
            Err(error) => self.retry_on_new_port(member, error),
        }
    }

    /// Begins again after `error`, if another port may help.
    fn retry_on_new_port(&mut self, member: Member, error: Error) -> Result<()> {
        let Self { members, channel, .. } = self;
        let Some(link) = members.get_mut(member) else { return Ok(()) };
        let Some(attempt) = &mut link.attempt else { return Err(error) };
        let Some(connect_attempt) = &mut attempt.connect_attempt else { return Err(error) };
        let (id, deadline) = connect_attempt.retry_on_new_port(channel, error)?;
        attempt.deadline = earlier(deadline, attempt.total_deadline);
        id.set_user_data(link.id.user_data());
        link.trace.record_retry(id.token());
        link.phase = Phase::Address;
        let number = link.qp_num();
        // The old id is dropped first: it holds the queue pair too.
        drop(std::mem::replace(&mut link.id, id));
        drop(link.sends.take());
        self.members.forget_qp(member, number);
        self.has_late_completions = true;
        Ok(())
    }

    fn on_established(&mut self, member: Member, event: &CmEvent) -> Result<()> {
        let Some(link) = self.members.get_mut(member) else { return Ok(()) };
        let peer_addr = match link.attempt_peer() {
            AttemptPeer::Client(Some(client)) => Some(client),
            // Queried first: if that fails, the attempt still exists, and the error names its peer.
            _ => link.id.peer_addr()?,
        };
        let Some(attempt) = link.attempt.take() else { return Ok(()) };
        let private_data = match attempt.connect_attempt {
            Some(_) => event.private_data().to_vec(),
            None => attempt.private_data,
        };
        link.private_data = private_data.into_boxed_slice();
        link.phase = Phase::Established;
        link.peer_addr = peer_addr;
        if let Some(sends) = &link.sends {
            set_min_rnr_timer(sends.qp());
        }
        link.trace.set_state("connected");
        self.events.push_back(Event::Established(member));
        // Messages may have arrived before.
        self.report_changes(member);
        self.queue_for_buffer(member);
        Ok(())
    }

    /// Posts the first writes of members on iWARP. Requests a check of the deadlines of attempts.
    pub(super) fn on_attempts_timer(&mut self) {
        if let Some(timer) = &self.attempts_timer {
            timer.clear();
        }
        self.has_unchecked_deadlines = true;
        let is_needed = |link: &Link| link.attempt.is_some() || link.writes_first;
        if !self.members.iter_mut().any(|(_, link)| is_needed(link)) {
            self.attempts_timer = None;
        }
        self.keep_alive(|link| link.writes_first);
    }

    /// Ends attempts that have timed out.
    pub(super) fn end_late_attempts(&mut self) {
        let mut late = Vec::new();
        for (member, link) in self.members.iter_mut() {
            let deadline = link.attempt.as_ref().and_then(|attempt| attempt.deadline);
            if has_passed(deadline) && !link.is_ending {
                late.push(member);
            }
        }
        for member in late {
            let Some(link) = self.members.get(member) else { continue };
            let error = link.timeout_error();
            self.fail_attempt(member, error);
        }
    }

    /// Checks that the peers of all members still exist.
    pub(super) fn on_keep_alive_timer(&mut self) {
        if let Some(timer) = &self.keep_alive_timer {
            timer.clear();
        }
        self.keep_alive(|_| true);
    }

    /// Posts a write without bytes for each member that `is_meant` accepts.
    fn keep_alive(&mut self, is_meant: impl Fn(&Link) -> bool) {
        let Self { members, resources, .. } = self;
        for (_, link) in members.iter_mut() {
            if link.phase == Phase::Established && is_meant(link) {
                link.on_timer(resources);
            }
        }
    }
}
