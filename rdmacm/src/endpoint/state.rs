//! What a connection is at a time, and how completions and events change it.

use std::mem;

use super::parts::Parts;
use super::rendezvous::Rendezvous;
use super::shared::Operation;
use super::traffic::{Arrived, End, Sent, Traffic};
use crate::cm::{Event, EventChannel, EventType};
use crate::error::{Error, ErrorKind, Result};
use crate::verbs::{
    Buffer, CompletionChannel, CompletionQueue, QpState, QueuePairAttributes, SendOperation,
    WcStatus,
};

/// How many events are read at once. A socket may have them without end: each peer that asks is one.
const EVENTS: usize = 16;

/// The state of a connection.
#[derive(Debug)]
pub(super) struct State {
    /// Absent once the connection was ended here.
    pub(super) parts: Option<Parts>,
    pub(super) traffic: Traffic,
    /// Of a socket for datagrams, until it was ended here.
    pub(super) rendezvous: Option<Box<Rendezvous>>,
    /// The kernel has said that both sides know of the end, or that it says nothing more.
    pub(super) disconnected: bool,
    receives: Arming,
    sends: Arming,
    /// What is in the completion channel without telling anything new.
    stale: Stale,
}

/// Whether a completion queue tells of its next completion on the completion channel, with one event.
///
/// The kernel puts a completion into the queue, and then looks whether it is armed. So who polls in between and arms
/// anew may have that taken away by the event of what was polled already: an event behind which there is nothing leaves it
/// open whether the queue is armed, and it is armed once more.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Arming {
    /// No.
    Off,
    /// Yes, unless that has come already.
    Armed,
    /// The channel has told of something since, which may be that.
    Told,
}

/// Events that nobody needs any more: they are in the completion channel, or will be at once. Each was armed for.
///
/// Whoever sleeps is told of an event when it comes, and of none twice, so they are read only where they have become many.
/// Among them may be what nobody was told of yet: all that is armed is polled then, by one who is awake while nobody
/// sleeps.
#[derive(Debug, Default)]
struct Stale {
    /// At most so many, but for those that were late when it was tried to read them.
    count: usize,
    /// Who sleeps may yet be told of the latest of them.
    untold: bool,
}

/// What somebody waits for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Interest {
    /// A message, or what keeps one from coming.
    Messages,
    /// That something was sent, or why not.
    Sends,
    /// Anything.
    All,
}

impl State {
    /// That of new parts, whose receives' completion queue is armed.
    pub(super) fn new(parts: Parts, traffic: Traffic) -> Self {
        let (parts, rendezvous, stale) = (Some(parts), None, Stale::default());
        let [receives, sends] = [Arming::Armed, Arming::Off];
        Self { parts, traffic, rendezvous, disconnected: false, receives, sends, stale }
    }

    /// A buffer for sending that nobody has, where there is one or will be none.
    pub(super) fn buffer(&mut self) -> Option<Result<Buffer, End>> {
        match self.traffic.end {
            None if self.traffic.loses() => None,
            None => self.traffic.free.pop().map(Ok),
            Some(end) => Some(Err(end)),
        }
    }

    /// Posts `bytes` in a buffer that nobody has, where there is one or will be none.
    pub(super) fn post_bytes(
        &mut self,
        bytes: &[u8],
        operation: SendOperation<'_>,
    ) -> Option<Result<Result<()>, End>> {
        let taken = self.buffer()?;
        Some(taken.and_then(|mut buffer| {
            let (Some(parts), traffic) = (&mut self.parts, &mut self.traffic) else {
                return Err(End::Here);
            };
            buffer[..bytes.len()].copy_from_slice(bytes);
            let (queues, what) = (&mut parts.queues, Operation::Send);
            let posted = traffic.post_send(queues, what, buffer, bytes.len(), operation);
            Ok(posted.map_err(|refused| {
                traffic.free.extend(refused.buffer);
                refused.error
            }))
        }))
    }

    /// The buffer for sending that has this index, where its message was sent or will not be.
    pub(super) fn sent(&mut self, index: usize) -> Option<Result<Buffer, End>> {
        let sent = &mut self.traffic.sends[index];
        match sent {
            Sent::Done { status: WcStatus::IB_WC_SUCCESS, .. } => sent.give_up().map(Ok),
            // It is there still, for who gives up.
            Sent::Done { status, .. } if self.traffic.senders.is_some() => {
                Some(Err(End::Failed(*status)))
            }
            _ => self.traffic.end.map(Err),
        }
    }

    /// The same for who tries again later, as the descriptor is to tell.
    pub(super) fn tried(&mut self, index: usize) -> Option<Result<Buffer, End>> {
        let found = self.sent(index);
        if let Sent::Wanted { tried } | Sent::Done { tried, .. } = &mut self.traffic.sends[index] {
            *tried = found.is_none();
        }
        found
    }

    /// That all was sent, where it was or will not be.
    pub(super) fn flushed(&mut self) -> Option<Result<(), End>> {
        let traffic = &mut self.traffic;
        if !traffic.is_sent() {
            return traffic.end.map(Err);
        }
        Some(traffic.lost.take().map_or(Ok(()), |status| Err(End::Failed(status))))
    }

    /// The next message, or that there is none, where it is there or will not be.
    pub(super) fn message(&mut self) -> Option<Result<Option<Arrived>, End>> {
        if let Some(arrived) = self.traffic.inbox.pop_front() {
            return Some(Ok(Some(arrived)));
        }
        match self.traffic.end {
            Some(End::There) => Some(Ok(None)),
            end => end.map(Err),
        }
    }

    /// The next datagram, or the loss of a group, where there is one or will be none.
    pub(super) fn datagram(&mut self) -> Option<Result<Result<Arrived>, End>> {
        if let Some(arrived) = self.traffic.inbox.pop_front() {
            return Some(Ok(Ok(arrived)));
        }
        let loss = self.rendezvous.as_mut().and_then(|rendezvous| rendezvous.groups.loss());
        match loss {
            Some(error) => Some(Ok(Err(error))),
            None => self.traffic.end.map(Err),
        }
    }

    /// That there is nothing more to hear of the peer, which was told of the end.
    pub(super) fn closed(&mut self) -> Option<Result<(), End>> {
        let is_over = self.disconnected || self.parts.is_none() || self.traffic.is_dead();
        is_over.then_some(Ok(()))
    }

    /// Takes what has completed; whether there was something. Who is interested in one queue polls the other one only
    /// where that may say why nothing comes, or where it may be what the channel has told of, which others may wait for.
    pub(super) fn poll(&mut self, interest: Interest) -> Result<bool> {
        let mut polled = 0;
        if self.wants_receives(interest) || self.receives == Arming::Told {
            let Some(parts) = &mut self.parts else { return Ok(false) };
            let traffic = &mut self.traffic;
            let before = traffic.counters.messages_received;
            polled = parts.queues.poll_received(|buffer, done| traffic.received(buffer, done))?;
            if let Some(overrun) = &mut traffic.overrun {
                let messages = traffic.counters.messages_received - before;
                overrun.has_polled(messages, traffic.receiving);
            }
            self.receives.has_polled(polled, &mut self.stale);
        }
        if self.wants_sends(interest) || self.sends == Arming::Told {
            let Some(parts) = &mut self.parts else { return Ok(false) };
            let sent = |buffer, done: &_| self.traffic.sent(buffer, done);
            let sent = parts.queues.poll_sent(sent)?;
            self.sends.has_polled(sent, &mut self.stale);
            polled += sent;
        }
        if self.traffic.is_broken || !self.traffic.idle.is_empty() {
            self.mend()?;
        }
        Ok(polled > 0)
    }

    /// Sets a socket's queue pair up again that has failed, and has the buffers receive that wait for that, or could not
    /// be posted before.
    #[cold]
    fn mend(&mut self) -> Result<()> {
        let (Some(parts), traffic) = (&mut self.parts, &mut self.traffic) else { return Ok(()) };
        if traffic.end.is_some() {
            return Ok(());
        }
        if traffic.is_broken {
            let qp = parts.queues.qp();
            if !traffic.is_flushed {
                // What is posted comes back then, also what was posted when it had failed already.
                qp.modify(&QueuePairAttributes::to(QpState::IB_QPS_ERR))?;
                traffic.is_flushed = true;
            }
            if parts.queues.outstanding() == 0 {
                parts.set_up_again()?;
                (traffic.is_broken, traffic.is_flushed) = (false, false);
            }
        }
        if !traffic.is_broken {
            while let Some(buffer) = traffic.idle.pop() {
                traffic.post_receive(&mut parts.queues, buffer).map_err(|refused| {
                    traffic.idle.extend(refused.buffer);
                    refused.error
                })?;
            }
        }
        Ok(())
    }

    /// Whether who has `interest` is to look at receives: also where nothing that is sent would say that the queue pair
    /// has failed.
    #[inline(always)]
    fn wants_receives(&self, interest: Interest) -> bool {
        interest != Interest::Sends || self.is_over() || self.traffic.sending == 0
    }

    /// Whether who has `interest` is to look at sends: also where no receive would say that.
    #[inline(always)]
    fn wants_sends(&self, interest: Interest) -> bool {
        interest != Interest::Messages || self.is_over() || self.traffic.receiving == 0
    }

    /// Whether everything is to come back.
    #[inline(always)]
    fn is_over(&self) -> bool {
        self.traffic.end.is_some() || self.traffic.is_broken
    }

    /// It is time to see whether the peer is there. Whether something had completed.
    pub(super) fn keep_alive(&mut self) -> Result<bool> {
        // The last write may be done.
        let polled = self.poll(Interest::All)?;
        if let (Some(parts), Some(keep_alive)) = (&mut self.parts, &mut self.traffic.keep_alive) {
            keep_alive.is_due(&mut parts.queues);
        }
        Ok(polled)
    }

    /// Whether it is not certain that the next completion of `interest` is told of.
    pub(super) fn is_deaf(&self, interest: Interest) -> bool {
        let uncertain = self.wanted(interest, |arming| arming != Arming::Armed);
        self.parts.is_some() && uncertain != [false; 2]
    }

    /// Whether receives, and whether sends, are wanted whose queue `is` so.
    #[inline(always)]
    fn wanted(&self, interest: Interest, is: impl Fn(Arming) -> bool) -> [bool; 2] {
        let receives = is(self.receives) && self.wants_receives(interest);
        let sends = is(self.sends) && self.wants_sends(interest);
        [receives, sends]
    }

    /// Whether [arming](Self::arm) drops events: of what was armed somebody else may have to see to it then.
    pub(super) fn drops_events(&self, is_asleep: bool) -> bool {
        self.stale.count >= EVENTS && !is_asleep
    }

    /// Sees to it that the next completion of `interest` is told of on the completion channel, where a thread may be asleep.
    /// Whether it was not seen to before: what completed meanwhile is to be polled then.
    pub(super) fn arm(
        &mut self,
        interest: Interest,
        completions: &CompletionChannel,
        is_asleep: bool,
    ) -> Result<bool> {
        let is_full = self.drops_events(is_asleep);
        let [receives, sends] = self.wanted(interest, |arming| arming == Arming::Off);
        let Some(parts) = &self.parts else { return Ok(false) };
        if !(is_full || receives || sends) {
            return Ok(false);
        }
        let qp = parts.queues.qp();
        let mut arm = || -> Result<()> {
            if is_full {
                completions.drop_events::<EVENTS>()?;
                self.stale.count -= EVENTS;
                self.receives.is_told();
                self.sends.is_told();
            }
            if receives {
                self.receives.arm(qp.recv_cq())?;
            }
            if sends {
                self.sends.arm(qp.send_cq())?;
            }
            Ok(())
        };
        let armed = arm();
        self.unless_gone(armed)?;
        Ok(true)
    }

    /// The completion channel has told of something.
    pub(super) fn is_told(&mut self) {
        self.receives.is_told();
        self.sends.is_told();
        self.stale.untold = false;
    }

    /// Whether the completion channel may yet tell of what is known.
    pub(super) fn is_untold(&self) -> bool {
        self.stale.untold
    }

    /// That the device is gone is no failure of a command, but an end: the event that tells of it has not been read.
    fn unless_gone(&mut self, commanded: Result<()>) -> Result<()> {
        match commanded {
            Err(error) if matches!(error.kind(), ErrorKind::DeviceGone(_)) => {
                self.is_gone();
                Ok(())
            }
            other => other,
        }
    }

    /// The device is gone, and with it who would tell what the peer knows.
    pub(super) fn is_gone(&mut self) {
        self.traffic.ended(End::Gone);
        self.disconnected = true;
    }

    /// Reads what has made the event channel readable, or some of it: it stays readable then.
    pub(super) fn read_events(&mut self, channel: &EventChannel) -> Result<()> {
        for _ in 0..EVENTS {
            match channel.get_event() {
                Ok(event) => self.happened(event)?,
                Err(error) => return nothing(error),
            }
        }
        Ok(())
    }

    fn happened(&mut self, event: Event) -> Result<()> {
        self.traffic.trace.event(&event);
        let end = match (event.event_type(), &mut self.rendezvous, &self.parts) {
            (EventType::DeviceRemoval, ..) => End::Gone,
            (_, Some(rendezvous), Some(parts)) => {
                rendezvous.happened(parts.queues.qp().number(), event);
                return Ok(());
            }
            (EventType::Disconnected, ..) => End::There,
            // Of neighbours and addresses that changed, which ends nothing, and of what is over.
            _ => return Ok(()),
        };
        // What came before is there before the end is, and no flush is taken for a failure.
        let polled = self.poll(Interest::All);
        self.traffic.ended(match end {
            End::There => self.traffic.end_there(),
            end => end,
        });
        self.disconnected = true;
        // The peer hears only now that this side knows.
        if let Some(parts) = self.parts.as_ref().filter(|_| end == End::There) {
            // Where it cannot be said the connection is over all the same.
            let _ = parts.id.disconnect();
        }
        polled.map(drop)
    }

    /// Tells the peer that the connection ends, where all was sent that was posted; that it was told, or need not be.
    pub(super) fn finish(&mut self) -> Option<Result<Result<()>, End>> {
        let flushed = self.flushed()?;
        Some(flushed.map(|()| self.disconnect()))
    }

    /// Tells the peer that the connection ends, unless it has ended.
    pub(super) fn disconnect(&mut self) -> Result<()> {
        let Some(parts) = self.parts.as_ref().filter(|_| self.traffic.end.is_none()) else {
            return Ok(());
        };
        let disconnected = parts.id.disconnect();
        self.unless_gone(disconnected)?;
        if self.traffic.end.is_none() {
            self.traffic.trace.is("closing");
            self.traffic.ended(End::Here);
        }
        Ok(())
    }

    /// Ends the connection here and at once. The kernel's objects go, the queue pair before the
    /// memory, with what is returned: without a lock that others wait for.
    #[must_use]
    pub(super) fn abort(&mut self) -> impl Sized + use<> {
        self.traffic.ended(End::Here);
        if self.parts.is_some() {
            self.traffic.trace.is("closed");
        }
        let Traffic { free, idle, inbox, senders, keep_alive, .. } = &mut self.traffic;
        let queues = (self.parts.take(), self.rendezvous.take());
        let buffers = (mem::take(free), mem::take(idle), mem::take(inbox), keep_alive.take());
        (queues, buffers, senders.take())
    }
}

impl Arming {
    /// Arms the queue.
    fn arm(&mut self, cq: &CompletionQueue) -> Result<()> {
        cq.request_notify(false)?;
        *self = Self::Armed;
        Ok(())
    }

    fn is_told(&mut self) {
        if *self == Self::Armed {
            *self = Self::Told;
        }
    }

    /// The queue had `count` completions.
    fn has_polled(&mut self, count: usize, stale: &mut Stale) {
        *self = match (*self, count) {
            (Self::Off, _) => Self::Off,
            (Self::Armed, 0) => Self::Armed,
            (was, _) => {
                stale.count += 1;
                stale.untold |= was == Self::Armed;
                Self::Off
            }
        };
    }
}

/// That there is nothing to read, or not now, is no failure.
fn nothing(error: Error) -> Result<()> {
    match error.kind() {
        ErrorKind::WouldBlock | ErrorKind::Os(libc::EINTR) => Ok(()),
        _ => Err(error),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The kernel puts a completion into the queue; it is polled, and the queue armed anew; then the kernel takes that for
    /// what it looks for, and tells of the first. Nothing will tell of the second.
    #[test]
    fn an_event_behind_which_there_is_nothing_may_have_taken_the_arming_away() {
        let mut stale = Stale::default();
        let mut arming = Arming::Armed;
        arming.has_polled(1, &mut stale);
        assert_eq!((arming, stale.count, stale.untold), (Arming::Off, 1, true));
        arming = Arming::Armed;
        arming.has_polled(0, &mut stale);
        assert_eq!((arming, stale.count), (Arming::Armed, 1), "nothing is known of it");
        arming.is_told();
        arming.has_polled(0, &mut stale);
        // Its own event may come yet.
        assert_eq!((arming, stale.count), (Arming::Off, 2));
    }
}
