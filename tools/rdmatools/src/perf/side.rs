//! One side of a measurement: its connection, its memory, and what moves data between the two.
//!
//! # Safety
//!
//! Posting gives memory to the device. It is memory of the regions that the [`Side`] owns and drops
//! after its queue pair, and that is reached by copying only, which copes with a device that writes
//! meanwhile.
#![expect(unsafe_code, reason = "posts work requests")]

use std::time::{Duration, Instant};

use rdmacm::cm::{CmId, EventChannel};
use rdmacm::device::Transport;
use rdmacm::verbs::{
    AccessFlags, Completion, CompletionQueue, MemoryRegion, Payload, Poller, ProtectionDomain,
    QueuePair, QueuePairAttributes, QueuePairCaps, QueuePairInit, ReceiveQueue, ReceiveRequest,
    SendFlags, SendOperation, SendQueue, SendRequest, Sge,
};

use super::Operation;
use super::plan::{Plan, Remote};
use crate::endpoint::check;
use crate::failure::Failure;

/// A connection in the making, or made, of which nobody reads the events meanwhile.
pub(super) struct Side {
    pub(super) id: CmId,
    pub(super) channel: EventChannel,
    role: Role,
    // Before the regions: fields are dropped in this order.
    qp: QueuePair,
    send_cq: CompletionQueue,
    recv_cq: CompletionQueue,
    outgoing: MemoryRegion,
    incoming: MemoryRegion,
}

/// Which end of the connection a side is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Role {
    /// It asks for the connection.
    Client,
    /// It is asked.
    Server,
}

/// What a thread has for itself while it measures: no lock is taken for a message.
pub(super) struct Hands<'a> {
    send: SendQueue<'a>,
    receive: ReceiveQueue<'a>,
    sent: Poller<'a>,
    received: Poller<'a>,
    /// What was polled last.
    done: [Completion; 16],
    /// Told of the end of the connection.
    channel: &'a EventChannel,
    /// The parts of memory that are sent from, or read to, and received in.
    outgoing: &'a mut MemoryRegion,
    incoming: &'a MemoryRegion,
    gather: [Sge; 1],
    scatter: [Sge; 1],
    operation: SendOperation<'static>,
    /// The bytes of a message that its request carries.
    inline: Option<Vec<u8>>,
    last: usize,
}

/// How often a queue or a byte is looked at before somebody asks whether the peer is still there.
const PATIENCE: u32 = 1 << 22;
/// How long who serves does not even ask: who waits for as long as the client measures what needs no help of this side.
const LONG_PATIENCE: Duration = Duration::from_secs(10);

/// 0.64 ms, as the field has it.
const MIN_RNR_TIMER: u8 = 12;

impl Side {
    /// Gives `id`, which has a device, what it takes to carry out `plan`.
    pub(super) fn new(
        id: CmId,
        channel: EventChannel,
        plan: &Plan,
        role: Role,
    ) -> Result<Self, Failure> {
        let context = id.context()?;
        let pd = ProtectionDomain::new(&context)?;
        let send_cq = CompletionQueue::new(&context, plan.tx_depth.saturating_add(1), None)?;
        let recv_cq = CompletionQueue::new(&context, plan.rx_depth, None)?;
        let caps = QueuePairCaps {
            max_send_wr: plan.tx_depth.saturating_add(1),
            max_recv_wr: plan.rx_depth,
            max_inline_data: plan.inline,
            ..QueuePairCaps::default()
        };
        let init = QueuePairInit { recv_cq: &recv_cq, caps, ..QueuePairInit::new(&send_cq) };
        let qp = id.create_qp(&pd, &init)?;
        let size = usize::try_from(plan.largest).expect("32 bits fit");
        let local = AccessFlags::IB_UVERBS_ACCESS_LOCAL_WRITE;
        let remote =
            AccessFlags::IB_UVERBS_ACCESS_REMOTE_WRITE | AccessFlags::IB_UVERBS_ACCESS_REMOTE_READ;
        // A read on iWARP writes to the local memory as the peer does.
        let outgoing = MemoryRegion::alloc(&pd, size, local | remote)?;
        let incoming = MemoryRegion::alloc(&pd, size, local | remote)?;
        let side = Self { id, channel, role, qp, send_cq, recv_cq, outgoing, incoming };
        let scatter = [side.incoming.sge(..)?];
        let mut receive = side.qp.receive_queue()?;
        for _ in 0..plan.rx_depth {
            // SAFETY: the memory is dropped, and with that deregistered and freed, after the queue pair
            // was destroyed, see `drop`; and it is read by copying only.
            unsafe { receive.push(&ReceiveRequest { wr_id: 0, scatter: &scatter }) }?;
        }
        drop(receive);
        Ok(side)
    }

    /// The connection stands. A peer that sends before a receive is posted is to try again soon, as with
    /// perftest: what the connection manager leaves in the queue pair means 655 ms.
    pub(super) fn established(&self) -> Result<(), Failure> {
        if self.id.context()?.device().transport() == Some(Transport::InfiniBand) {
            let attributes = QueuePairAttributes::default().min_rnr_timer(MIN_RNR_TIMER);
            let modified = self.qp.modify(&attributes);
            if modified.is_err() {
                check_connection(&self.channel)?;
            }
            modified?;
        }
        Ok(())
    }

    /// Where the peer may write and read.
    pub(super) fn local(&self) -> Remote {
        Remote { addr: self.incoming.addr(), rkey: self.incoming.rkey() }
    }

    /// The device's name.
    pub(super) fn device(&self) -> Result<String, Failure> {
        Ok(self.id.context()?.device().name().to_owned())
    }

    /// Takes everything for measuring `operation` with messages of `size` bytes.
    pub(super) fn hands(
        &mut self,
        operation: Operation,
        size: u32,
        peer: Remote,
    ) -> Result<Hands<'_>, Failure> {
        let Self { channel, qp, send_cq, recv_cq, outgoing, incoming, .. } = self;
        let size = usize::try_from(size).expect("32 bits fit");
        let Remote { addr: remote_addr, rkey } = peer;
        let operation = match operation {
            Operation::Send => SendOperation::Send,
            Operation::Write => SendOperation::Write { remote_addr, rkey },
            Operation::Read => SendOperation::Read { remote_addr, rkey },
        };
        let reads = matches!(operation, SendOperation::Read { .. });
        let fits = usize::try_from(qp.caps().max_inline_data).is_ok_and(|most| size <= most);
        Ok(Hands {
            send: qp.send_queue()?,
            receive: qp.receive_queue()?,
            sent: send_cq.poller()?,
            received: recv_cq.poller()?,
            done: [Completion::default(); 16],
            channel,
            gather: [outgoing.sge(..size)?],
            scatter: [incoming.sge(..)?],
            outgoing,
            incoming,
            operation,
            inline: (fits && !reads).then(|| vec![0; size]),
            last: size - 1,
        })
    }

    /// Clears the last byte of what the peer writes in messages of `size` bytes, then meets the peer:
    /// both have come here before either goes on.
    ///
    /// Polls, as perftest does: a processor that sleeps takes its time to see what the device has.
    pub(super) fn meet(&mut self, size: u32) -> Result<(), Failure> {
        let last = usize::try_from(size).expect("32 bits fit") - 1;
        self.incoming.write(last, &[0])?;
        // On iWARP the side that was asked for the connection must not be the first to send.
        if self.role == Role::Server {
            self.hear()?;
            self.say()
        } else {
            self.say()?;
            self.hear()
        }
    }

    /// Sends a message without content.
    fn say(&self) -> Result<(), Failure> {
        let request = SendRequest {
            wr_id: 0,
            operation: SendOperation::Send,
            payload: Payload::Gather(&[]),
            flags: SendFlags::SIGNALED,
        };
        // SAFETY: the request names no memory.
        unsafe { self.qp.post_send(&request) }?;
        self.said()
    }

    /// Polls until what was posted alone has completed.
    fn said(&self) -> Result<(), Failure> {
        let mut done = [Completion::default()];
        spin(&self.channel, || Ok((self.send_cq.poll(&mut done)? > 0).then_some(())))?;
        check(&done)
    }

    /// Receives one.
    fn hear(&self) -> Result<(), Failure> {
        let mut done = [Completion::default()];
        let mut look = || Ok((self.recv_cq.poll(&mut done)? > 0).then_some(()));
        let mut asked = Instant::now();
        while spin_patiently(&mut look)?.is_none() {
            if self.role == Role::Server && asked.elapsed() < LONG_PATIENCE {
                continue;
            }
            asked = Instant::now();
            check_connection(&self.channel)?;
            self.nudge()?;
        }
        check(&done)?;
        let scatter = [self.incoming.sge(..)?];
        // SAFETY: as in `new`.
        unsafe { self.qp.post_recv(&ReceiveRequest { wr_id: 0, scatter: &scatter }) }?;
        Ok(())
    }

    /// Has the server's kernel look at what it has of the client. siw lets the first message lie that comes while
    /// the server accepts, until something else comes: a write without bytes, which changes nothing.
    fn nudge(&self) -> Result<(), Failure> {
        let transport = self.id.context()?.device().transport();
        if self.role == Role::Server || transport != Some(Transport::Iwarp) {
            return Ok(());
        }
        let request = SendRequest {
            wr_id: 0,
            operation: SendOperation::Write { remote_addr: 0, rkey: 0 },
            payload: Payload::Gather(&[]),
            flags: SendFlags::SIGNALED,
        };
        // SAFETY: the request names no memory.
        unsafe { self.qp.post_send(&request) }?;
        self.said()
    }
}

impl Hands<'_> {
    /// Puts a request into the send queue. What it completes with, if it is `signaled`, is `wr_id`.
    #[inline(always)]
    pub(super) fn push(&mut self, wr_id: u64, signaled: bool) -> Result<(), Failure> {
        let payload = match &self.inline {
            Some(bytes) => Payload::Inline(bytes),
            None => Payload::Gather(&self.gather),
        };
        let flags = if signaled { SendFlags::SIGNALED } else { SendFlags::empty() };
        let request = SendRequest { wr_id, operation: self.operation, payload, flags };
        // SAFETY: bytes in the request are copied; the memory is dropped, and with that deregistered and
        // freed, after the queue pair was destroyed, see `drop`; it is read and written by copying only.
        unsafe { self.send.push(&request) }?;
        Ok(())
    }

    /// Has the device look at what was pushed.
    #[inline(always)]
    pub(super) fn ring(&mut self) -> Result<(), Failure> {
        Ok(self.send.ring()?)
    }

    /// Polls until requests of the send queue have completed: the `wr_id` of the last one.
    #[inline(always)]
    pub(super) fn sent(&mut self) -> Result<u64, Failure> {
        let count = spin(self.channel, || {
            let count = self.sent.poll(&mut self.done)?;
            Ok((count > 0).then_some(count))
        })?;
        check(&self.done[..count])?;
        Ok(self.done[count - 1].wr_id())
    }

    /// Polls until messages were received, at most `limit`, and posts as many receives: how many.
    #[inline(always)]
    pub(super) fn received(&mut self, limit: usize) -> Result<usize, Failure> {
        let room = limit.min(self.done.len());
        let count = spin(self.channel, || {
            let count = self.received.poll(&mut self.done[..room])?;
            Ok((count > 0).then_some(count))
        })?;
        check(&self.done[..count])?;
        for _ in 0..count {
            let request = ReceiveRequest { wr_id: 0, scatter: &self.scatter };
            // SAFETY: as in `push`.
            unsafe { self.receive.push(&request) }?;
        }
        self.receive.ring()?;
        Ok(count)
    }

    /// Makes `mark` the last byte of the next message.
    #[inline(always)]
    pub(super) fn mark(&mut self, mark: u8) -> Result<(), Failure> {
        match &mut self.inline {
            Some(bytes) => bytes[self.last] = mark,
            None => self.outgoing.write(self.last, &[mark])?,
        }
        Ok(())
    }

    /// Looks at the memory until the last byte of what the peer writes is `mark`.
    #[inline(always)]
    pub(super) fn written(&mut self, mark: u8) -> Result<(), Failure> {
        spin(self.channel, || {
            let mut byte = [0];
            self.incoming.read(self.last, &mut byte)?;
            Ok((byte == [mark]).then_some(()))
        })
    }
}

/// Looks until there is something. It gives the processor to nobody; now and then it asks whether
/// there still is a connection that something can come by.
#[inline(always)]
fn spin<T>(
    channel: &EventChannel,
    mut look: impl FnMut() -> rdmacm::Result<Option<T>>,
) -> Result<T, Failure> {
    loop {
        if let Some(found) = spin_patiently(&mut look)? {
            return Ok(found);
        }
        check_connection(channel)?;
    }
}

/// Looks until there is something, or for as long as nobody need ask.
#[inline(always)]
fn spin_patiently<T>(
    look: &mut impl FnMut() -> rdmacm::Result<Option<T>>,
) -> Result<Option<T>, Failure> {
    for _ in 0..PATIENCE {
        if let Some(found) = look()? {
            return Ok(Some(found));
        }
    }
    Ok(None)
}

/// That no event says that there is no connection any more.
fn check_connection(channel: &EventChannel) -> Result<(), Failure> {
    match channel.get_event_timeout(Duration::ZERO)? {
        None => Ok(()),
        Some(event) => {
            let message = format!("the connection has ended: {}", event.event_type());
            Err(Failure::because(message))
        }
    }
}

impl Drop for Side {
    fn drop(&mut self) {
        // It may have ended already.
        let _ = self.id.disconnect();
        // The id lets go of the queue pair first, so that it is destroyed when the field is dropped.
        self.id.destroy_qp();
    }
}
