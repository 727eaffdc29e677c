//! A connection of the low level.
//!
//! # Safety
//!
//! Posting gives memory to the device. It is memory of a region that the [`Half`] owns and drops after its queue
//! pair, and that is reached by copying only.
#![expect(unsafe_code, reason = "posts work requests")]

use std::net::{IpAddr, SocketAddr};
use std::sync::mpsc::{self, Receiver, Sender};
use std::thread;

use rdmacm::ErrorKind;
use rdmacm::cm::{CmId, ConnParam, EventChannel, EventType, PortSpace};
use rdmacm::verbs::{
    AccessFlags, Completion, CompletionChannel, CompletionQueue, MemoryRegion, Payload,
    ProtectionDomain, QueuePair, QueuePairCaps, QueuePairInit, ReceiveRequest, SendFlags,
    SendOperation, SendRequest,
};

use crate::load::Server;
use crate::round::{Fate, LONG, LONGEST, Part, Round, Side};
use crate::{Outcome, joined};

/// Numbers of the requests.
const RECEIVE: u64 = 1;
const SEND: u64 = 2;

/// Offset of the receives in an end's memory; the sends and the peer's part follow.
const INBOX: usize = 0;
const OUTBOX: usize = LONGEST;
const REMOTE: usize = 2 * LONGEST;
const MEMORY: usize = 3 * LONGEST;

pub(crate) struct Listener {
    address: SocketAddr,
    _id: CmId,
    channel: EventChannel,
}

impl Server for Listener {
    fn listen(address: IpAddr) -> Outcome<Self> {
        let channel = EventChannel::new()?;
        let id = CmId::new(&channel, PortSpace::Tcp)?;
        id.bind(SocketAddr::new(address, 0))?;
        id.listen(0)?;
        let address = id.local_addr()?.ok_or("the listener has no IP address")?;
        Ok(Self { address, _id: id, channel })
    }

    fn play(&self, round: &Round) -> Outcome {
        if round.fate == Fate::Abandoned {
            return self.connect(round, &mpsc::channel().1);
        }
        thread::scope(|scope| {
            let (accepted, signal) = mpsc::channel();
            let server = scope.spawn(|| self.serve(round, accepted));
            let client = self.connect(round, &signal);
            joined(client, server.join())
        })
    }
}

impl Listener {
    /// Serves a connection. It signals when it has accepted, and sends the place of its memory to the client.
    fn serve(&self, round: &Round, accepted: Sender<()>) -> Outcome {
        let mut request = self.channel.expect_event_timeout(EventType::ConnectRequest, LONG)?;
        let id = request.take_request().ok_or("a request without an id")?;
        drop(request);
        if round.fate == Fate::Rejected {
            // Otherwise the request is dropped without an answer, which rejects it too.
            if round.rng.clone().roll(2) == 0 {
                id.reject(b"no")?;
            }
            return Ok(());
        }
        let channel = EventChannel::new()?;
        id.migrate(&channel)?;
        let mut end = Half::new(id, channel)?;
        let mut private_data = end.memory.addr().to_ne_bytes().to_vec();
        private_data.extend(end.memory.rkey().to_ne_bytes());
        end.id.accept(&ConnParam { private_data, ..end.param() })?;
        end.channel.expect_event_timeout(EventType::Established, LONG)?;
        drop(accepted);
        for number in 0..round.messages {
            round.check(Part::ToServer(number), &end.receive()?)?;
            let bytes = round.bytes(Part::ToClient(number));
            let is_last = number + 1 == round.messages && !round.remote;
            if is_last { end.send_last(round, Side::Server, &bytes)? } else { end.send(&bytes)? }
        }
        if round.remote {
            end.receive()?;
            round.check(Part::Remote, &end.bytes(REMOTE, round.size)?)?;
        }
        end.end(round, Side::Server)
    }

    /// Sends after the server has accepted and has closed the channel. siw may leave an earlier message unread.
    fn connect(&self, round: &Round, signal: &Receiver<()>) -> Outcome {
        let channel = EventChannel::new()?;
        let id = CmId::new(&channel, PortSpace::Tcp)?;
        let mut stages = match round.fate {
            Fate::Abandoned => round.rng.clone().roll(4),
            _ => usize::MAX,
        };
        let mut gives_up = || {
            stages = stages.saturating_sub(1);
            stages == 0
        };
        if gives_up() {
            return Ok(());
        }
        id.resolve_addr(None, self.address, LONG)?;
        if gives_up() {
            return Ok(());
        }
        channel.expect_event_timeout(EventType::AddrResolved, LONG)?;
        id.resolve_route(LONG)?;
        channel.expect_event_timeout(EventType::RouteResolved, LONG)?;
        let mut end = Half::new(id, channel)?;
        if round.fate == Fate::Abandoned {
            return Ok(());
        }
        end.id.connect(&end.param())?;
        let connected = end.channel.expect_event_timeout(EventType::Established, LONG);
        let established = match (connected, round.fate) {
            (Err(error), Fate::Rejected) if matches!(error.kind(), ErrorKind::Rejected(_)) => {
                return Ok(());
            }
            (Ok(_), Fate::Rejected) => return Err("a rejected connection was established".into()),
            (connected, _) => connected?,
        };
        let place = established.private_data().to_vec();
        drop(established);
        // The server signals by closing the channel, which is an error here.
        let _ = signal.recv();
        for number in 0..round.messages {
            let bytes = round.bytes(Part::ToServer(number));
            let is_last = number + 1 == round.messages && !round.remote;
            if is_last {
                end.send_last(round, Side::Client, &bytes)?
            } else {
                end.send(&bytes)?
            }
            round.check(Part::ToClient(number), &end.receive()?)?;
        }
        if round.remote {
            let (address, rest) = place.split_at_checked(8).ok_or("no address")?;
            let remote_addr = u64::from_ne_bytes(address.try_into()?) + REMOTE as u64;
            let rkey = u32::from_ne_bytes(rest.get(..4).ok_or("no key")?.try_into()?);
            end.memory.write(OUTBOX, &round.bytes(Part::Remote))?;
            end.carry_out(SendOperation::Write { remote_addr, rkey }, OUTBOX, round.size)?;
            end.carry_out(SendOperation::Read { remote_addr, rkey }, REMOTE, round.size)?;
            round.check(Part::Remote, &end.bytes(REMOTE, round.size)?)?;
            end.send_last(round, Side::Client, b"done")?;
        }
        end.end(round, Side::Client)
    }
}

/// One side of a connection, with its own queues and memory. A receive is always posted.
struct Half {
    // Before the region: fields are dropped in this order.
    qp: QueuePair,
    cq: CompletionQueue,
    memory: MemoryRegion,
    id: CmId,
    channel: EventChannel,
    /// Lengths of messages that have arrived and were not taken: at most one, because the peers take turns.
    arrived: Option<usize>,
    /// `true` if the last message was sent, for which no thread waits.
    has_sent_last: bool,
}

impl Half {
    fn new(id: CmId, channel: EventChannel) -> Outcome<Self> {
        let context = id.context()?;
        let pd = ProtectionDomain::new(&context)?;
        let events = CompletionChannel::new(&context)?;
        let cq = CompletionQueue::new(&context, 8, Some(&events))?;
        let caps = QueuePairCaps { max_send_wr: 4, max_recv_wr: 4, ..QueuePairCaps::default() };
        let init = QueuePairInit { caps, ..QueuePairInit::new(&cq) };
        let qp = id.create_qp(&pd, &init)?;
        let access = AccessFlags::IB_UVERBS_ACCESS_LOCAL_WRITE
            | AccessFlags::IB_UVERBS_ACCESS_REMOTE_READ
            | AccessFlags::IB_UVERBS_ACCESS_REMOTE_WRITE;
        let memory = MemoryRegion::alloc(&pd, MEMORY, access)?;
        let end = Self { qp, cq, memory, id, channel, arrived: None, has_sent_last: false };
        end.post_receive()?;
        Ok(end)
    }

    fn param(&self) -> ConnParam {
        ConnParam {
            responder_resources: ConnParam::DEVICE_MAX,
            initiator_depth: ConnParam::DEVICE_MAX,
            retry_count: 6,
            rnr_retry_count: 7,
            ..ConnParam::default()
        }
    }

    fn post_receive(&self) -> Outcome {
        let scatter = [self.memory.sge(INBOX..INBOX + LONGEST)?];
        // SAFETY: the memory is the region's, which is dropped, and with that deregistered, after the queue
        // pair (`drop`); it is read by copying only.
        Ok(unsafe { self.qp.post_recv(&ReceiveRequest { wr_id: RECEIVE, scatter: &scatter }) }?)
    }

    /// Posts a receive of `length` bytes at `place` of the memory.
    fn post(&self, operation: SendOperation<'_>, place: usize, length: usize) -> Outcome {
        let gather = [self.memory.sge(place..place + length)?];
        let (payload, flags) = (Payload::Gather(&gather), SendFlags::SIGNALED);
        let request = SendRequest { wr_id: SEND, operation, payload, flags };
        // SAFETY: as with a receive.
        Ok(unsafe { self.qp.post_send(&request) }?)
    }

    /// Posts a request, and waits until it has completed.
    fn carry_out(&mut self, operation: SendOperation<'_>, place: usize, length: usize) -> Outcome {
        self.post(operation, place, length)?;
        while self.complete()? != SEND {}
        Ok(())
    }

    fn send(&mut self, bytes: &[u8]) -> Outcome {
        self.memory.write(OUTBOX, bytes)?;
        self.carry_out(SendOperation::Send, OUTBOX, bytes.len())
    }

    /// Sends a message that the peer may answer by ending the connection.
    ///
    /// Then rxe may leave the message unacknowledged, and siw may report a failure. The peer checks that it has arrived.
    fn send_last(&mut self, round: &Round, side: Side, bytes: &[u8]) -> Outcome {
        if round.ender == side {
            return self.send(bytes);
        }
        self.has_sent_last = true;
        self.memory.write(OUTBOX, bytes)?;
        self.post(SendOperation::Send, OUTBOX, bytes.len())
    }

    /// Returns the next message.
    fn receive(&mut self) -> Outcome<Vec<u8>> {
        while self.arrived.is_none() {
            self.complete()?;
        }
        let length = self.arrived.take().unwrap_or_default();
        let bytes = self.bytes(INBOX, length)?;
        self.post_receive()?;
        Ok(bytes)
    }

    /// Waits for a completion, and returns the number of its request.
    fn complete(&mut self) -> Outcome<u64> {
        let mut done = [Completion::default()];
        if self.cq.wait_timeout(&mut done, LONG)? == 0 {
            return Err("nothing completed in time".into());
        }
        let [done] = done;
        let is_overtaken = self.has_sent_last && done.wr_id() == SEND;
        if !(done.is_success() || is_overtaken) {
            return Err(format!("request {} failed: {}", done.wr_id(), done.status()).into());
        }
        if done.wr_id() == RECEIVE {
            self.arrived = Some(usize::try_from(done.byte_len())?);
        }
        Ok(done.wr_id())
    }

    fn bytes(&self, place: usize, length: usize) -> Outcome<Vec<u8>> {
        let mut bytes = vec![0; length];
        self.memory.read(place, &mut bytes)?;
        Ok(bytes)
    }

    /// Ends the connection, or waits until the peer does.
    fn end(self, round: &Round, side: Side) -> Outcome {
        if round.ender != side {
            self.channel.expect_event_timeout(EventType::Disconnected, LONG)?;
        }
        if round.in_order {
            self.id.disconnect()?;
            if round.ender == side {
                self.channel.expect_event_timeout(EventType::Disconnected, LONG)?;
            }
        }
        Ok(())
    }
}

impl Drop for Half {
    fn drop(&mut self) {
        // The id releases the queue pair, so that it is destroyed when the field is dropped.
        self.id.destroy_qp();
    }
}
