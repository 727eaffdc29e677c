//! What is on its way, what has come, and where the buffers are.

use std::collections::VecDeque;
use std::mem;

use super::counters::Counters;
use super::keep_alive::KeepAlive;
use super::overrun::Overrun;
use super::peer::{Peer, Senders};
use super::shared::Operation;
use super::trace::Trace;
use crate::error::ErrorKind;
use crate::verbs::{
    Buffer, BufferQueues, BufferRefused, Completion, GRH_LENGTH, SendOperation, WcOpcode, WcStatus,
};

/// What is on its way, what has come, and where the buffers are.
#[derive(Debug)]
pub(super) struct Traffic {
    /// Why nothing moves any more.
    pub(super) end: Option<End>,
    /// The buffers for sending that nobody has.
    pub(super) free: Vec<Buffer>,
    /// What becomes of each buffer for sending when its message was sent.
    pub(super) sends: Vec<Sent>,
    /// How many messages are on their way.
    pub(super) sending: usize,
    /// A message was not sent, for that reason.
    pub(super) lost: Option<WcStatus>,
    /// How many receives are posted.
    pub(super) receiving: usize,
    /// Messages that nobody has taken.
    pub(super) inbox: VecDeque<Arrived>,
    /// Where a message that finds no buffer ends the connection, whether one may have.
    pub(super) overrun: Option<Overrun>,
    /// What looks after an idle peer.
    pub(super) keep_alive: Option<KeepAlive>,
    pub(super) counters: Counters,
    pub(super) trace: Trace,
    /// The queue pair ends with the connection, of which an event tells, and not for other reasons.
    pub(super) ends_with_connection: bool,
    /// What the driver says of a receive whose message is too long.
    pub(super) too_long: WcStatus,
    /// What it says, besides that it was flushed, of a send that the end of the connection has overtaken.
    pub(super) overtaken: WcStatus,
    /// Of a socket for datagrams, who has sent them.
    pub(super) senders: Option<Box<Senders>>,
    /// The queue pair of a socket has failed, and is to be set up again.
    pub(super) is_broken: bool,
    /// It was brought to ERR for that.
    pub(super) is_flushed: bool,
    /// Buffers for receiving that wait for that, or could not be posted.
    pub(super) idle: Vec<Buffer>,
}

/// How a connection ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum End {
    /// This side has ended it.
    Here,
    /// The peer has, or its kernel.
    There,
    /// This side's kernel may have, as a message found no buffer.
    Overrun,
    /// A request failed, and the queue pair with it.
    Failed(WcStatus),
    /// The device is gone.
    Gone,
}

/// What becomes of a buffer when its message was sent.
#[derive(Debug)]
pub(super) enum Sent {
    /// It goes to the free ones.
    Unwanted,
    /// Somebody waits for it; who does not wait may have tried in vain to have it.
    Wanted { tried: bool },
    /// It is there for who waits, or tries again; how it went.
    Done { buffer: Buffer, status: WcStatus, tried: bool },
}

/// A message.
#[derive(Debug)]
pub(super) struct Arrived {
    pub(super) buffer: Buffer,
    /// Where it begins.
    pub(super) start: usize,
    pub(super) length: usize,
    pub(super) imm_data: Option<u32>,
    /// Who has sent it, if it is a datagram.
    pub(super) sender: Option<Peer>,
}

impl End {
    /// Of what is tried after it.
    pub(super) fn kind(self) -> ErrorKind {
        match self {
            Self::Here | Self::There => ErrorKind::Disconnected,
            Self::Overrun => ErrorKind::Overrun,
            Self::Failed(status) => ErrorKind::Failed(status),
            Self::Gone => ErrorKind::DeviceGone(libc::ENODEV),
        }
    }
}

impl Sent {
    /// The buffer, where it is there; nobody waits for it any more.
    pub(super) fn give_up(&mut self) -> Option<Buffer> {
        match mem::replace(self, Self::Unwanted) {
            Self::Done { buffer, .. } => Some(buffer),
            Self::Wanted { .. } | Self::Unwanted => None,
        }
    }
}

impl Traffic {
    /// A send, or what looks after the peer, has completed.
    #[inline(always)]
    pub(super) fn sent(&mut self, buffer: Buffer, completion: &Completion) {
        let status = completion.status();
        let Some(sent) = self.sends.get_mut(buffer.index()) else {
            return self.kept_alive(buffer, status);
        };
        self.sending -= 1;
        let is_wanted = match sent {
            Sent::Wanted { tried } => {
                *sent = Sent::Done { buffer, status, tried: *tried };
                true
            }
            _ => {
                self.free.push(buffer);
                false
            }
        };
        if !completion.is_success() {
            if !is_wanted || self.senders.is_none() {
                // The first one says why, of those behind it only that.
                self.lost.get_or_insert(status);
            }
            self.failed(status);
        }
    }

    /// A receive has completed.
    #[inline(always)]
    pub(super) fn received(&mut self, buffer: Buffer, completion: &Completion) {
        self.receiving -= 1;
        if !completion.is_success() {
            return self.not_received(buffer, completion.status());
        }
        if let Some(keep_alive) = &mut self.keep_alive {
            keep_alive.heard();
        }
        let length = match completion.opcode() {
            // Of what was written elsewhere: nothing is in the buffer.
            WcOpcode::IB_WC_RECV_RDMA_WITH_IMM => 0,
            _ => usize::try_from(completion.byte_len()).expect("32 bits fit"),
        };
        let (length, imm_data) = (length.min(buffer.len()), completion.imm_data());
        let arrived = Arrived { buffer, start: 0, length, imm_data, sender: None };
        match self.senders.is_some() {
            true => self.datagram(arrived, completion),
            false => self.arrived(arrived),
        }
    }

    #[inline]
    fn arrived(&mut self, arrived: Arrived) {
        self.counters.received(arrived.length);
        self.inbox.push_back(arrived);
    }

    /// A datagram has come, with a header in front of it.
    #[inline(never)]
    fn datagram(&mut self, arrived: Arrived, completion: &Completion) {
        let Arrived { buffer, length, .. } = &arrived;
        let header = buffer.first_chunk().expect("it has room for the header");
        let length = length.saturating_sub(GRH_LENGTH);
        match self.senders.as_mut().and_then(|senders| senders.of(completion, header)) {
            Some(sender) => {
                let sender = Some(sender);
                self.arrived(Arrived { start: GRH_LENGTH, length, sender, ..arrived });
            }
            // No device of InfiniBand or RoCE leaves such a header.
            None => self.idle.push(arrived.buffer),
        }
    }

    #[cold]
    fn not_received(&mut self, buffer: Buffer, status: WcStatus) {
        if self.senders.is_some() {
            self.idle.push(buffer);
        }
        let is_too_long = status == self.too_long && self.senders.is_none();
        self.failed(if is_too_long { WcStatus::IB_WC_LOC_LEN_ERR } else { status });
    }

    /// What looks after the peer has written to it.
    #[cold]
    fn kept_alive(&mut self, buffer: Buffer, status: WcStatus) {
        if let Some(keep_alive) = &mut self.keep_alive {
            keep_alive.give_back(buffer);
        }
        // The peer may just have ended the connection in good order, of which the event tells.
        if status != WcStatus::IB_WC_SUCCESS && !self.ends_with_connection {
            self.failed(status);
        }
    }

    /// Whether this status of a request says what came of it. Why one of a connection failed is how that ended.
    fn says(&self, status: WcStatus) -> bool {
        status == WcStatus::IB_WC_SUCCESS || self.senders.is_some()
    }

    /// Whether all that was posted has been sent, or it is known what was not.
    pub(super) fn is_sent(&self) -> bool {
        self.sending == 0 && !self.is_ending()
    }

    /// Whether something of a connection was lost, of which its end will say why.
    fn is_ending(&self) -> bool {
        self.lost.is_some() && self.senders.is_none()
    }

    /// Whether what was sent now would be lost.
    pub(super) fn loses(&self) -> bool {
        self.is_broken || self.is_ending()
    }

    /// Whether a buffer is there, or will not be, that somebody has tried to have.
    pub(super) fn has_outcome(&self) -> bool {
        let has_ended = self.end.is_some();
        self.sends.iter().any(|sent| match sent {
            Sent::Done { tried, status, .. } => *tried && (has_ended || self.says(*status)),
            Sent::Wanted { tried } => *tried && has_ended,
            Sent::Unwanted => false,
        })
    }

    /// Whether there is one for which that is worth trying again later.
    pub(super) fn wants_outcome(&self) -> bool {
        self.sends.iter().any(|sent| matches!(sent, Sent::Wanted { tried: true }))
    }

    /// Whether receives are to be polled as soon as one is posted again: see [`Overrun`].
    pub(super) fn is_behind(&self) -> bool {
        self.overrun.as_ref().is_some_and(|overrun| overrun.is_behind(self.receiving))
    }

    /// How the connection ended that the peer has ended, or this side's kernel.
    pub(super) fn end_there(&self) -> End {
        match &self.overrun {
            Some(overrun) if overrun.is_suspected() => End::Overrun,
            _ => End::There,
        }
    }

    /// Has `buffer` receive again.
    pub(super) fn receive(&mut self, queues: &mut BufferQueues, buffer: Buffer) {
        if self.is_broken {
            self.idle.push(buffer);
            return;
        }
        match self.post_receive(queues, buffer) {
            Ok(()) => self.counters.receives_reposted += 1,
            // Posted by who polls next, who is told where that cannot be either.
            Err(refused) => self.idle.extend(refused.buffer),
        }
    }

    /// Posts a buffer, for which somebody waits or not.
    #[inline(always)]
    pub(super) fn post_send(
        &mut self,
        queues: &mut BufferQueues,
        what: Operation,
        buffer: Buffer,
        length: usize,
        operation: SendOperation<'_>,
    ) -> Result<(), BufferRefused> {
        let posted = queues.send(buffer, length, operation);
        if !matches!(&posted, Err(refused) if refused.buffer.is_some()) {
            self.sending += 1;
            self.counters.posted(what, length);
        }
        posted
    }

    #[inline(always)]
    pub(super) fn post_receive(
        &mut self,
        queues: &mut BufferQueues,
        buffer: Buffer,
    ) -> Result<(), BufferRefused> {
        let posted = queues.receive(buffer);
        match &posted {
            Err(refused) if refused.buffer.is_some() => {}
            _ => self.receiving += 1,
        }
        posted
    }

    #[cold]
    fn failed(&mut self, status: WcStatus) {
        let is_flush = [WcStatus::IB_WC_WR_FLUSH_ERR, self.overtaken].contains(&status);
        self.counters.failures += u64::from(!is_flush);
        if self.senders.is_some() {
            self.is_broken = true;
            return;
        }
        if !(is_flush && self.ends_with_connection) {
            self.ended(End::Failed(status));
        }
    }

    /// Whether there is nothing more to hear of the peer.
    pub(super) fn is_dead(&self) -> bool {
        matches!(self.end, Some(End::Failed(_) | End::Gone))
    }

    /// Takes note of an end: the first counts, but a flush only says that there is another one, and
    /// this side's own comes behind the peer's.
    pub(super) fn ended(&mut self, end: End) {
        let is_better = match self.end {
            None | Some(End::Failed(WcStatus::IB_WC_WR_FLUSH_ERR)) => true,
            Some(End::There) => end == End::Here,
            Some(_) => false,
        };
        if is_better && self.end.replace(end) != Some(end) {
            match end {
                // Of that the call tells which has ended it.
                End::Here => {}
                End::There => self.trace.is("disconnected"),
                End::Overrun | End::Failed(_) => self.trace.failed(&end.kind()),
                End::Gone => self.trace.is("device gone"),
            }
            if let Some(keep_alive) = &mut self.keep_alive {
                keep_alive.stop();
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const FLUSH: WcStatus = WcStatus::IB_WC_WR_FLUSH_ERR;
    const GONE: WcStatus = WcStatus::IB_WC_RETRY_EXC_ERR;
    const OVERTAKEN: WcStatus = WcStatus::IB_WC_LOC_QP_OP_ERR;

    fn traffic(ends_with_connection: bool) -> Traffic {
        Traffic {
            end: None,
            free: Vec::new(),
            sends: Vec::new(),
            sending: 0,
            lost: None,
            receiving: 0,
            inbox: VecDeque::new(),
            overrun: None,
            keep_alive: None,
            counters: Counters::default(),
            trace: Trace::default(),
            ends_with_connection,
            too_long: WcStatus::IB_WC_LOC_LEN_ERR,
            overtaken: FLUSH,
            senders: None,
            is_broken: false,
            is_flushed: false,
            idle: Vec::new(),
        }
    }

    #[test]
    fn the_first_end_that_says_something_counts() {
        for (ends, counts) in [
            ([End::There, End::Failed(GONE)], End::There),
            ([End::Failed(GONE), End::There], End::Failed(GONE)),
            ([End::Failed(FLUSH), End::There], End::There),
            ([End::Failed(FLUSH), End::Failed(GONE)], End::Failed(GONE)),
            ([End::Failed(GONE), End::Failed(FLUSH)], End::Failed(GONE)),
            ([End::There, End::Here], End::Here),
            ([End::Here, End::There], End::Here),
            ([End::Failed(GONE), End::Here], End::Failed(GONE)),
            ([End::Gone, End::There], End::Gone),
        ] {
            let mut traffic = traffic(false);
            ends.iter().for_each(|end| traffic.ended(*end));
            assert_eq!(traffic.end, Some(counts), "of {ends:?}");
        }
    }

    #[test]
    fn a_flush_is_an_end_where_no_event_tells_of_it() {
        for (ends_with_connection, end) in [(false, Some(End::Failed(FLUSH))), (true, None)] {
            let mut traffic = traffic(ends_with_connection);
            traffic.failed(FLUSH);
            assert_eq!(traffic.end, end);
            traffic.failed(GONE);
            assert_eq!(traffic.end, Some(End::Failed(GONE)));
        }
    }

    #[test]
    fn a_send_that_the_end_overtakes_is_no_failure() {
        let mut traffic = Traffic { overtaken: OVERTAKEN, ..traffic(true) };
        traffic.failed(OVERTAKEN);
        assert_eq!((traffic.end, traffic.counters.failures), (None, 0));
        traffic.ended(End::There);
        assert_eq!(traffic.end, Some(End::There));
    }
}
