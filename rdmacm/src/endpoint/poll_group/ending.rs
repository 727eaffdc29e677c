//! Members that end: by the peer, by the program, or by a failure.

use std::mem;

use super::event::{Event, MemberEnd};
use super::group::PollGroup;
use super::link::{Link, MissingResource, Phase};
use super::member_table::Member;
use super::sending::ended;
#[cfg(doc)]
use crate::cm::CmId;
use crate::endpoint::core::EndReason;
#[cfg(doc)]
use crate::error::ErrorKind;
use crate::error::{Error, Result, hint};
use crate::verbs::OwnedSends;

const CLOSE: &str = "close";

impl PollGroup {
    /// Closes a member after all of its posted messages are sent.
    ///
    /// Then the peer is disconnected, and [`Event::Ended`] follows when the peer has answered. Messages that arrive
    /// until then are reported.
    ///
    /// After the call, the program cannot post to the member. A member that is not established is
    /// [aborted](Self::abort). A peer that does not answer delays the event by a minute or longer;
    /// [`abort`](Self::abort) ends the member at once.
    ///
    /// Kernel command: `RDMA_USER_CM_CMD_DISCONNECT`, now or later.
    ///
    /// # Errors
    ///
    /// - [`ErrorKind::Disconnected`] if the member has ended.
    /// - [`ErrorKind::NotOwner`] after a fork.
    pub fn close(&mut self, member: Member) -> Result<()> {
        self.check_process(CLOSE)?;
        let Some(link) = self.members.get_mut(member) else { return Err(ended(CLOSE, member)) };
        match link.phase {
            Phase::Established => {
                link.phase = Phase::Closing;
                self.close_if_sent(member);
                // A member that ends at once is finished by the next call that returns events.
                self.returns.wake();
                Ok(())
            }
            Phase::Closing => Ok(()),
            Phase::Address | Phase::Route | Phase::Answer => self.abort(member),
        }
    }

    /// Ends a member at once, and discards messages that have not been sent.
    ///
    /// [`Event::Ended`] follows, after the events that the program has not received yet.
    ///
    /// Kernel commands: `RDMA_USER_CM_CMD_DESTROY_ID`, `IB_USER_VERBS_CMD_DESTROY_QP`.
    ///
    /// # Errors
    ///
    /// The errors of [`close`](Self::close).
    ///
    /// # Driver notes
    ///
    /// On iWARP the peer may not have answered an attempt to connect yet. The first command then takes until the peer
    /// answers or the driver gives up (siw about 10 s).
    pub fn abort(&mut self, member: Member) -> Result<()> {
        const OPERATION: &str = "abort";
        self.check_process(OPERATION)?;
        let Some(link) = self.members.get_mut(member) else {
            return Err(ended(OPERATION, member));
        };
        link.core.set_end(EndReason::Local);
        self.finish(member);
        self.returns.wake();
        Ok(())
    }

    /// Disconnects the peer of a closed member, if all messages have been sent.
    pub(super) fn close_if_sent(&mut self, member: Member) {
        let Some(link) = self.members.get_mut(member) else { return };
        // A message that was not sent has ended the member already, or will.
        let Some(Ok(())) = link.core.flushed() else { return };
        link.trace.set_state("closing");
        link.core.set_end(EndReason::Local);
        if link.id.disconnect().is_err() {
            // The connection has ended anyway, and possibly no event arrives.
            self.mark(member);
        }
    }

    /// Handles the event that the peer, or the kernel of this side, has ended the connection.
    pub(super) fn on_disconnected(&mut self, member: Member) {
        let Self { members, starvation, is_iwarp, .. } = self;
        let Some(link) = members.get_mut(member) else { return };
        let failure = match (&link.sends, *is_iwarp) {
            (Some(sends), true) => sends.qp().peer_failure(),
            _ => None,
        };
        if *is_iwarp && failure.is_none() && starvation.is_suspected(link.last_poll) {
            link.core.set_end(EndReason::Overrun);
        }
        link.on_disconnected(failure);
        self.report_changes(member);
    }

    /// Handles the removal of the device, which ends all members.
    pub(super) fn on_device_removed(&mut self) {
        if !mem::replace(&mut self.is_removed, true) {
            // Messages that have arrived come first. The removal is the error.
            let _ = self.poll_completions();
        }
        let Self { members, ending, .. } = self;
        for (member, link) in members.iter_mut() {
            link.core.on_device_removed();
            link.mark_ending(member, ending);
        }
    }

    /// Ends all members that have a queue pair, for `reason`.
    pub(super) fn end_all(&mut self, reason: EndReason) {
        let Self { members, ending, .. } = self;
        for (member, link) in members.iter_mut().filter(|(_, link)| link.sends.is_some()) {
            link.core.set_end(reason);
            link.mark_ending(member, ending);
        }
    }

    /// Ends a member for which connecting has failed.
    pub(super) fn fail_attempt(&mut self, member: Member, error: Error) {
        let Some(link) = self.members.get_mut(member) else { return };
        let error = link.attempt_peer().add_to(error);
        link.failure.get_or_insert(error);
        self.mark(member);
    }

    /// Marks a member, which then ends in the next step.
    fn mark(&mut self, member: Member) {
        let Self { members, ending, .. } = self;
        if let Some(link) = members.get_mut(member) {
            link.mark_ending(member, ending);
        }
    }

    /// Ends the members whose end is pending.
    ///
    /// They end even if events cannot be read.
    pub(super) fn finish_ending(&mut self) -> Result<()> {
        let mut read = Ok(());
        while !self.ending.is_empty() {
            // An unread event may have the reason why requests were flushed.
            let is_unreported = |member: &Member| {
                let link = self.members.get(*member);
                link.is_some_and(|link| link.core.end() == Some(EndReason::Unreported))
            };
            if self.ending.iter().any(is_unreported) {
                let (_, result) = self.read_events();
                read = read.and(result);
            }
            for member in mem::take(&mut self.ending) {
                self.finish(member);
            }
        }
        read
    }

    /// Removes a member, and reports its end.
    fn finish(&mut self, member: Member) {
        let Some(mut link) = self.take(member) else { return };
        if link.core.end() == Some(EndReason::Unreported) {
            let failure = link.sends.as_ref().and_then(|sends| sends.qp().peer_failure());
            failure.into_iter().for_each(|event_type| {
                link.core.set_end(EndReason::PeerRequestFailed(event_type));
            });
        }
        let end = match (link.failure.take(), link.core.end()) {
            (Some(error), _) => MemberEnd::Failed(error),
            (None, None | Some(EndReason::Local)) => MemberEnd::Local,
            (None, Some(EndReason::Remote)) => MemberEnd::Peer,
            (None, Some(end)) => {
                let kind = end.kind();
                let hint = hint::of_failure(&kind);
                MemberEnd::Failed(link.error("keep", kind).with_optional_hint(hint))
            }
        };
        match &end {
            MemberEnd::Failed(error) => link.trace.failed(error),
            MemberEnd::Peer => link.trace.set_state("disconnected"),
            MemberEnd::Local => link.trace.set_state("closed"),
        }
        self.release(link);
        self.events.push_back(Event::Ended(member, end));
    }

    /// Removes a member whose handle was not returned to the program.
    pub(super) fn discard(&mut self, member: Member) {
        if let Some(link) = self.take(member) {
            self.release(link);
        }
    }

    fn take(&mut self, member: Member) -> Option<Link> {
        let number = self.members.get(member)?.qp_num();
        let link = self.members.remove(member, number)?;
        self.unwritable_members -= usize::from(link.missing != MissingResource::None);
        Some(link)
    }

    /// Destroys the kernel objects of a member, and takes its buffers back.
    fn release(&mut self, mut link: Link) {
        while let Some(message) = link.core.next_message() {
            self.resources.unposted.extend(message.buffer.memory);
        }
        let Link { id, sends, core, .. } = link;
        let polled = self.poll_late_completions();
        if let Err(error) = self.unless_removed(polled) {
            self.deferred_error.get_or_insert(error);
        }
        // The id is dropped first: it holds the queue pair too, and dropping it notifies the peer.
        drop((id, core));
        if let Some(sends) = sends {
            self.resources.free_sends.extend(OwnedSends::destroy(sends));
            self.has_late_completions = true;
        }
    }
}
