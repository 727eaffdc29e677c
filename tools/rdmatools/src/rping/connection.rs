//! The data path of one side of a connection.
//!
//! # Safety
//!
//! Posting passes memory to the device. The memory is in regions that the [`Connection`] owns and drops after its queue
//! pair. The program accesses it only by copying, which is sound while a device writes.
#![expect(unsafe_code, reason = "posts work requests")]

use rdmacm::ErrorKind;
use rdmacm::cm::EventType;
use rdmacm::verbs::{
    AccessFlags, Completion, CompletionChannel, CompletionQueue, MemoryRegion, Payload,
    ProtectionDomain, QueuePair, QueuePairCaps, QueuePairInit, ReceiveRequest, SendFlags,
    SendOperation, SendRequest, WcStatus,
};

use super::log::Log;
use super::peer::Peer;
use super::wire::Advertisement;
use crate::failure::{Failure, retry_interrupted};

/// Length of a message, as reported by completions.
const MESSAGE_LENGTH: u32 = 16;

/// A posted operation; its number is the `wr_id` of the request, which identifies failed requests too.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Work {
    Receive = 1,
    Send,
    Read,
    Write,
}

impl Work {
    fn wr_id(self) -> u64 {
        self as u64
    }

    fn of(wr_id: u64) -> Self {
        let all = [Self::Receive, Self::Send, Self::Read, Self::Write];
        let known = all.into_iter().find(|work| work.wr_id() == wr_id);
        known.expect("a completion should have the number of a request")
    }
}

/// A queue pair with the memory that it uses.
///
/// A receive is posted at the start, and again after each message, so that one receive is always flushed when the
/// connection ends.
pub(super) struct Connection<'a, 'out> {
    peer: &'a Peer,
    log: &'a Log<'out>,
    // Declared before the regions: fields drop in this order.
    qp: QueuePair,
    cq: CompletionQueue,
    inbox: MemoryRegion,
    data: MemoryRegion,
}

impl<'a, 'out> Connection<'a, 'out> {
    /// Creates the queue pair of an id that has a device, and `size` bytes of memory for data.
    pub(super) fn new(peer: &'a Peer, size: usize, log: &'a Log<'out>) -> Result<Self, Failure> {
        let context = peer.id.context()?;
        let pd = ProtectionDomain::new(&context)?;
        let channel = CompletionChannel::new(&context)?;
        let cq = CompletionQueue::new(&context, 32, Some(&channel))?;
        let caps = QueuePairCaps { max_inline_data: MESSAGE_LENGTH, ..QueuePairCaps::default() };
        let init = QueuePairInit { caps, ..QueuePairInit::new(&cq) };
        let qp = peer.id.create_qp(&pd, &init)?;
        let device = context.device().name();
        log.debug(peer.id.token(), format_args!("queue pair {} on {device}", qp.number()))?;
        let local = AccessFlags::IB_UVERBS_ACCESS_LOCAL_WRITE;
        let inbox = MemoryRegion::alloc(&pd, Advertisement::LENGTH, local)?;
        let remote = AccessFlags::IB_UVERBS_ACCESS_REMOTE_WRITE;
        let data = MemoryRegion::alloc(&pd, size, local | remote)?;
        let mut connection = Self { peer, log, qp, cq, inbox, data };
        connection.post_receive()?;
        Ok(connection)
    }

    pub(super) fn pd(&self) -> &ProtectionDomain {
        self.qp.pd()
    }

    /// Returns the first `length` bytes of the data, which were read from the peer or written by it.
    pub(super) fn data(&self, length: usize) -> Result<Vec<u8>, Failure> {
        let mut data = vec![0; length];
        self.data.read(0, &mut data)?;
        Ok(data)
    }

    /// Returns the memory that the peer may write to.
    pub(super) fn sink(&self) -> Advertisement {
        advertise(&self.data)
    }

    /// Sends `message` and waits for the peer's answer.
    pub(super) fn exchange(&mut self, message: Advertisement) -> Result<(), Failure> {
        self.send(message, SendFlags::SIGNALED)?;
        self.complete(&[Work::Send, Work::Receive])?;
        self.take_message().map(drop)
    }

    /// Receives the next message, or returns `None` if the peer has disconnected.
    pub(super) fn receive(&mut self) -> Result<Option<Advertisement>, Failure> {
        if self.wait_for(&[Work::Receive])? { self.take_message().map(Some) } else { Ok(None) }
    }

    /// Sends a go-ahead. It is unsignaled: the next read or write of the queue completes it.
    pub(super) fn go_ahead(&mut self) -> Result<(), Failure> {
        self.send(Advertisement::default(), SendFlags::empty())
    }

    /// Reads the advertised memory of the peer into the data.
    pub(super) fn read(&mut self, source: Advertisement, length: usize) -> Result<(), Failure> {
        let Advertisement { addr: remote_addr, rkey, .. } = source;
        self.transfer(Work::Read, SendOperation::Read { remote_addr, rkey }, length)
    }

    /// Writes data to the advertised memory of the peer.
    pub(super) fn write(&mut self, sink: Advertisement, length: usize) -> Result<(), Failure> {
        let Advertisement { addr: remote_addr, rkey, .. } = sink;
        self.transfer(Work::Write, SendOperation::Write { remote_addr, rkey }, length)
    }

    fn post_receive(&mut self) -> Result<(), Failure> {
        let scatter = [self.inbox.sge(..)?];
        let request = ReceiveRequest { wr_id: Work::Receive.wr_id(), scatter: &scatter };
        // SAFETY: the memory is the inbox. It is dropped, and thereby deregistered and freed, after the queue pair is
        // destroyed, see `drop`; the program reads it only by copying.
        unsafe { self.qp.post_recv(&request) }?;
        Ok(())
    }

    fn send(&mut self, message: Advertisement, flags: SendFlags) -> Result<(), Failure> {
        let bytes = message.to_bytes();
        let request = SendRequest {
            wr_id: Work::Send.wr_id(),
            operation: SendOperation::Send,
            payload: Payload::Inline(&bytes),
            flags,
        };
        // SAFETY: inline data is copied: no memory is passed to the device.
        unsafe { self.qp.post_send(&request) }?;
        Ok(self.debug(format_args!("sent {message}"))?)
    }

    fn transfer(
        &mut self,
        work: Work,
        operation: SendOperation<'_>,
        length: usize,
    ) -> Result<(), Failure> {
        let gather = [self.data.sge(..length)?];
        let request = SendRequest {
            wr_id: work.wr_id(),
            operation,
            payload: Payload::Gather(&gather),
            flags: SendFlags::SIGNALED,
        };
        // SAFETY: the memory is the data region. It is dropped, and thereby deregistered and freed, after the queue
        // pair is destroyed, see `drop`; the program reads it only by copying, and only devices write to it.
        unsafe { self.qp.post_send(&request) }?;
        self.complete(&[work])?;
        Ok(self.debug(format_args!("{work:?} of {length} bytes completed"))?)
    }

    /// Waits until each of `works` has completed, in any order.
    fn complete(&mut self, works: &[Work]) -> Result<(), Failure> {
        match self.wait_for(works)? {
            true => Ok(()),
            false => Err(unexpected_disconnect()),
        }
    }

    /// Waits until each of `works` has completed. Returns `false` if the peer has disconnected instead.
    fn wait_for(&mut self, works: &[Work]) -> Result<bool, Failure> {
        let mut missing = works.to_vec();
        while !missing.is_empty() {
            let mut completions = [Completion::default()];
            retry_interrupted(|| self.cq.wait(&mut completions))?;
            let [completion] = completions;
            let work = Work::of(completion.wr_id());
            match (completion.status(), self.peer.ended()) {
                (WcStatus::IB_WC_SUCCESS, _) => {}
                (WcStatus::IB_WC_WR_FLUSH_ERR, None | Some(EventType::Disconnected)) => {
                    return Ok(false);
                }
                (WcStatus::IB_WC_WR_FLUSH_ERR, Some(event)) => {
                    return Err(Failure::new(format!(
                        "cannot continue the pings: the connection ended with {event}"
                    )));
                }
                (status, _) => {
                    let kind = ErrorKind::WorkRequestFailed(status);
                    return Err(Failure::new(format!("cannot complete {work:?}: {kind}")));
                }
            }
            let Some(place) = missing.iter().position(|other| *other == work) else {
                let message =
                    format!("cannot continue the pings: {work:?} completed instead of {missing:?}");
                return Err(Failure::new(message));
            };
            missing.swap_remove(place);
            if work == Work::Receive && completion.byte_len() != MESSAGE_LENGTH {
                let length = completion.byte_len();
                let message = format!(
                    "cannot read a message: the message has {length} bytes instead of {MESSAGE_LENGTH}"
                );
                return Err(Failure::new(message));
            }
        }
        Ok(true)
    }

    /// Returns the received message, and posts the receive of the next one.
    fn take_message(&mut self) -> Result<Advertisement, Failure> {
        let mut bytes = [0; Advertisement::LENGTH];
        self.inbox.read(0, &mut bytes)?;
        self.post_receive()?;
        let message = Advertisement::from_bytes(bytes);
        self.debug(format_args!("received {message}"))?;
        Ok(message)
    }

    fn debug(&self, what: std::fmt::Arguments<'_>) -> std::io::Result<()> {
        self.log.debug(self.peer.id.token(), what)
    }
}

impl Drop for Connection<'_, '_> {
    fn drop(&mut self) {
        self.peer.disconnect();
        // The id releases the queue pair first, so that dropping the field destroys it.
        self.peer.id.destroy_qp();
    }
}

/// Returns the failure for a peer that disconnects during a ping.
pub(super) fn unexpected_disconnect() -> Failure {
    Failure::new("cannot complete a ping: the peer disconnected")
}

/// Returns an advertisement of the whole `region`.
pub(super) fn advertise(region: &MemoryRegion) -> Advertisement {
    let size = u32::try_from(region.len()).expect("no region should have more than 65535 bytes");
    Advertisement { addr: region.addr(), rkey: region.rkey(), size }
}
