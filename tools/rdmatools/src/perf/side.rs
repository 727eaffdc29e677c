//! One side of a measurement: its connection, its memory and its data path.
//!
//! # Safety
//!
//! Posting passes memory to the device. The memory is in the regions that the [`Side`] owns and drops after its queue
//! pair. The program accesses it only by copying, which is sound while a device writes.
#![expect(unsafe_code, reason = "posts work requests")]

use std::time::{Duration, Instant};

use rdmacm::cm::{CmId, EventChannel};
use rdmacm::device::Transport;
use rdmacm::verbs::{
    AccessFlags, Completion, CompletionQueue, MemoryRegion, Payload, Poller, ProtectionDomain,
    QueuePair, QueuePairAttributes, QueuePairCaps, QueuePairInit, ReceiveQueueGuard,
    ReceiveRequest, SendFlags, SendOperation, SendQueueGuard, SendRequest, Sge,
};

use super::Operation;
use super::plan::{Plan, Remote};
use crate::endpoint::check_status;
use crate::failure::Failure;

/// A connection, pending or established, whose events are not read during a measurement.
pub(super) struct Side {
    pub(super) id: CmId,
    pub(super) channel: EventChannel,
    role: Role,
    // Declared before the regions: fields drop in this order.
    qp: QueuePair,
    send_cq: CompletionQueue,
    recv_cq: CompletionQueue,
    outgoing: MemoryRegion,
    incoming: MemoryRegion,
}

/// The role of a side in the connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Role {
    /// The side that sends the connection request.
    Client,
    /// The side that receives the connection request.
    Server,
}

/// Exclusive access to the queues during a measurement, so that no lock is taken per message.
pub(super) struct DataPath<'a> {
    send: SendQueueGuard<'a>,
    receive: ReceiveQueueGuard<'a>,
    sent: Poller<'a>,
    received: Poller<'a>,
    /// The completions of the last poll.
    done: [Completion; 16],
    /// Receives the event of a disconnect.
    channel: &'a EventChannel,
    /// Memory of sent messages or of read data, and below it memory of received messages.
    outgoing: &'a mut MemoryRegion,
    incoming: &'a MemoryRegion,
    gather: [Sge; 1],
    scatter: [Sge; 1],
    operation: SendOperation<'static>,
    /// The bytes of a message that is sent as inline data.
    inline: Option<Vec<u8>>,
    last: usize,
}

/// Number of polls between two checks of the connection.
const POLLS_PER_CHECK: u32 = 1 << 22;
/// Time without checks of the connection on the serving side.
///
/// The server may wait while the client measures operations that the device answers.
const MAX_TIME_WITHOUT_CHECK: Duration = Duration::from_secs(10);

/// Code of 0.64 ms in the field of the RNR timer.
const MIN_RNR_TIMER: u8 = 12;

impl Side {
    /// Creates the resources that `id`, which has a device, needs for `plan`.
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
        let size = usize::try_from(plan.largest).expect("32 bits should fit");
        let local = AccessFlags::IB_UVERBS_ACCESS_LOCAL_WRITE;
        let remote =
            AccessFlags::IB_UVERBS_ACCESS_REMOTE_WRITE | AccessFlags::IB_UVERBS_ACCESS_REMOTE_READ;
        // A read on iWARP writes to the local memory as the peer does.
        let outgoing = MemoryRegion::alloc(&pd, size, local | remote)?;
        let incoming = MemoryRegion::alloc(&pd, size, local | remote)?;
        let side = Self { id, channel, role, qp, send_cq, recv_cq, outgoing, incoming };
        let scatter = [side.incoming.sge(..)?];
        let mut receive = side.qp.lock_receive_queue()?;
        for _ in 0..plan.rx_depth {
            // SAFETY: the memory is dropped, and thereby deregistered and freed, after the queue pair is destroyed, see
            // `drop`; the program reads it only by copying.
            unsafe { receive.push(&ReceiveRequest { wr_id: 0, scatter: &scatter }) }?;
        }
        drop(receive);
        Ok(side)
    }

    /// Configures the queue pair of an established connection.
    ///
    /// A peer that sends before a receive is posted must retry soon, as with perftest: the value of the connection
    /// manager means 655 ms.
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

    /// Returns the memory that the peer may write and read.
    pub(super) fn local(&self) -> Remote {
        Remote { addr: self.incoming.addr(), rkey: self.incoming.rkey() }
    }

    /// Returns the device's name.
    pub(super) fn device(&self) -> Result<String, Failure> {
        Ok(self.id.context()?.device().name().to_owned())
    }

    /// Locks all queues for a measurement of `operation` with messages of `size` bytes.
    pub(super) fn data_path(
        &mut self,
        operation: Operation,
        size: u32,
        peer: Remote,
    ) -> Result<DataPath<'_>, Failure> {
        let Self { channel, qp, send_cq, recv_cq, outgoing, incoming, .. } = self;
        let size = usize::try_from(size).expect("32 bits should fit");
        let Remote { addr: remote_addr, rkey } = peer;
        let operation = match operation {
            Operation::Send => SendOperation::Send,
            Operation::Write => SendOperation::Write { remote_addr, rkey },
            Operation::Read => SendOperation::Read { remote_addr, rkey },
        };
        let reads = matches!(operation, SendOperation::Read { .. });
        let fits = usize::try_from(qp.caps().max_inline_data).is_ok_and(|most| size <= most);
        Ok(DataPath {
            send: qp.lock_send_queue()?,
            receive: qp.lock_receive_queue()?,
            sent: send_cq.lock_poller()?,
            received: recv_cq.lock_poller()?,
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

    /// Synchronizes with the peer: both sides reach this point before either side continues.
    ///
    /// Before, it clears the last byte of the memory for the peer's messages of `size` bytes.
    ///
    /// Polls, as perftest does: a sleeping processor reacts to the device with a delay.
    pub(super) fn synchronize(&mut self, size: u32) -> Result<(), Failure> {
        let last = usize::try_from(size).expect("32 bits should fit") - 1;
        self.incoming.write(last, &[0])?;
        // On iWARP the passive side of the connection must not be the first to send.
        if self.role == Role::Server {
            self.receive_empty()?;
            self.send_empty()
        } else {
            self.send_empty()?;
            self.receive_empty()
        }
    }

    /// Sends an empty message.
    fn send_empty(&self) -> Result<(), Failure> {
        let request = SendRequest {
            wr_id: 0,
            operation: SendOperation::Send,
            payload: Payload::Gather(&[]),
            flags: SendFlags::SIGNALED,
        };
        // SAFETY: the request contains no address.
        unsafe { self.qp.post_send(&request) }?;
        self.wait_for_send()
    }

    /// Polls until the only outstanding request has completed.
    fn wait_for_send(&self) -> Result<(), Failure> {
        let mut done = [Completion::default()];
        spin(&self.channel, || Ok((self.send_cq.poll(&mut done)? > 0).then_some(())))?;
        check_status(&done)
    }

    /// Receives an empty message.
    fn receive_empty(&self) -> Result<(), Failure> {
        let mut done = [Completion::default()];
        let mut look = || Ok((self.recv_cq.poll(&mut done)? > 0).then_some(()));
        let mut asked = Instant::now();
        while spin_bounded(&mut look)?.is_none() {
            if self.role == Role::Server && asked.elapsed() < MAX_TIME_WITHOUT_CHECK {
                continue;
            }
            asked = Instant::now();
            check_connection(&self.channel)?;
            self.send_empty_write()?;
        }
        check_status(&done)?;
        let scatter = [self.incoming.sge(..)?];
        // SAFETY: as in `new`.
        unsafe { self.qp.post_recv(&ReceiveRequest { wr_id: 0, scatter: &scatter }) }?;
        Ok(())
    }

    /// Sends a write without data, which makes the server's kernel look at its received data.
    ///
    /// siw ignores the first message if it arrives while the server accepts, until more data arrive.
    fn send_empty_write(&self) -> Result<(), Failure> {
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
        // SAFETY: the request contains no address.
        unsafe { self.qp.post_send(&request) }?;
        self.wait_for_send()
    }
}

impl DataPath<'_> {
    /// Adds a request to the send queue. If it is `signaled`, its completion has this `wr_id`.
    #[inline(always)]
    pub(super) fn push(&mut self, wr_id: u64, signaled: bool) -> Result<(), Failure> {
        let payload = match &self.inline {
            Some(bytes) => Payload::Inline(bytes),
            None => Payload::Gather(&self.gather),
        };
        let flags = if signaled { SendFlags::SIGNALED } else { SendFlags::empty() };
        let request = SendRequest { wr_id, operation: self.operation, payload, flags };
        // SAFETY: inline data is copied; the memory is dropped, and thereby deregistered and freed, after the queue
        // pair is destroyed, see `drop`; the program reads and writes it only by copying.
        unsafe { self.send.push(&request) }?;
        Ok(())
    }

    /// Rings the doorbell for the added requests.
    #[inline(always)]
    pub(super) fn ring_doorbell(&mut self) -> Result<(), Failure> {
        Ok(self.send.ring_doorbell()?)
    }

    /// Polls until requests of the send queue have completed. Returns the `wr_id` of the last one.
    #[inline(always)]
    pub(super) fn sent(&mut self) -> Result<u64, Failure> {
        let count = spin(self.channel, || {
            let count = self.sent.poll(&mut self.done)?;
            Ok((count > 0).then_some(count))
        })?;
        check_status(&self.done[..count])?;
        Ok(self.done[count - 1].wr_id())
    }

    /// Polls until messages have arrived, at most `limit`, and posts as many receives.
    ///
    /// Returns their number.
    #[inline(always)]
    pub(super) fn received(&mut self, limit: usize) -> Result<usize, Failure> {
        let room = limit.min(self.done.len());
        let count = spin(self.channel, || {
            let count = self.received.poll(&mut self.done[..room])?;
            Ok((count > 0).then_some(count))
        })?;
        check_status(&self.done[..count])?;
        for _ in 0..count {
            let request = ReceiveRequest { wr_id: 0, scatter: &self.scatter };
            // SAFETY: as in `push`.
            unsafe { self.receive.push(&request) }?;
        }
        self.receive.ring_doorbell()?;
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

    /// Polls the memory until the last byte of the peer's message is `mark`.
    #[inline(always)]
    pub(super) fn wait_for_mark(&mut self, mark: u8) -> Result<(), Failure> {
        spin(self.channel, || {
            let mut byte = [0];
            self.incoming.read(self.last, &mut byte)?;
            Ok((byte == [mark]).then_some(()))
        })
    }
}

/// Polls until there is a result, without yielding. Regularly checks that the connection still exists.
#[inline(always)]
fn spin<T>(
    channel: &EventChannel,
    mut look: impl FnMut() -> rdmacm::Result<Option<T>>,
) -> Result<T, Failure> {
    loop {
        if let Some(found) = spin_bounded(&mut look)? {
            return Ok(found);
        }
        check_connection(channel)?;
    }
}

/// Polls until there is a result, or until the connection should be checked.
#[inline(always)]
fn spin_bounded<T>(
    look: &mut impl FnMut() -> rdmacm::Result<Option<T>>,
) -> Result<Option<T>, Failure> {
    for _ in 0..POLLS_PER_CHECK {
        if let Some(found) = look()? {
            return Ok(Some(found));
        }
    }
    Ok(None)
}

/// Returns an error if an event reports the end of the connection.
fn check_connection(channel: &EventChannel) -> Result<(), Failure> {
    match channel.get_event_timeout(Duration::ZERO)? {
        None => Ok(()),
        Some(event) => {
            let message = format!(
                "cannot continue the measurement: the connection ended with {}",
                event.event_type()
            );
            Err(Failure::new(message))
        }
    }
}

impl Drop for Side {
    fn drop(&mut self) {
        // The connection may have ended already.
        let _ = self.id.disconnect();
        // The id releases the queue pair first, so that dropping the field destroys it.
        self.id.destroy_qp();
    }
}
