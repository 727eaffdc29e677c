//! Ends of a connection of the low level.
//!
//! Ends that sleep detect the end of the connection, as those of the safe tier do, unless they sleep for data only.
//!
//! # Safety
//!
//! Posting gives memory to the device. The memory belongs to regions that are never dropped. Their bytes are never
//! read, and are written only by calls that a region allows at any time.
#![expect(unsafe_code, reason = "posts requests over memory that outlives them")]

use std::mem::ManuallyDrop;
use std::net::IpAddr;
use std::os::fd::{AsFd, BorrowedFd};
use std::thread;

use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use rdmacm::Result;
use rdmacm::addr::{AddrInfoFlags, AddrInfoHints};
use rdmacm::cm::{CmId, ConnParam, EndpointQpInit, EventChannel, PortSpace, getaddrinfo};
use rdmacm::verbs::{
    AccessFlags, Completion, CompletionQueue, MemoryRegion, Payload, QueuePair, QueuePairCaps,
    ReceiveRequest, SendFlags, SendOperation, SendRequest, Sge,
};

use crate::many::{Member, SIZE};
use crate::{DEPTH, End, Outcome, Waiting, many, short};

const PORT: &str = "7476";

pub(crate) struct Low {
    id: CmId,
    /// Channel of the event that ends the connection.
    events: EventChannel,
    waiting: Waiting,
    qp: QueuePair,
    /// Memory in which messages arrive, and which the peer reads and writes. Never dropped.
    memory: ManuallyDrop<MemoryRegion>,
    sges: [Sge; 1],
    /// Memory from which messages are sent. Never dropped.
    message: ManuallyDrop<MemoryRegion>,
    sent_from: [Sge; 1],
    /// The peer's memory.
    remote: (u64, u32),
    /// Number of sends that may be posted.
    room: usize,
    done: [Completion; 16],
    /// Number of messages that were polled, and not taken yet.
    arrived: usize,
}

/// Returns two connected ends.
pub(crate) fn pair(address: IpAddr, waiting: Waiting, size: usize) -> Outcome<[Low; 2]> {
    pairs(address, waiting, size, DEPTH, 1)?.pop().ok_or_else(|| "no pair".into())
}

/// Returns `count` pairs of connected ends for a loop.
pub(crate) fn many(address: IpAddr, count: usize) -> Outcome<Vec<[Low; 2]>> {
    let ends = pairs(address, Waiting::Sleeps, SIZE, many::BUFFERS, count)?;
    for end in ends.iter().flatten() {
        end.qp.recv_cq().request_notify(false)?;
    }
    Ok(ends)
}

/// Returns the ends of `count` connections, each with at most `depth` sends and receives in flight.
fn pairs(
    address: IpAddr,
    waiting: Waiting,
    size: usize,
    depth: u32,
    count: usize,
) -> Outcome<Vec<[Low; 2]>> {
    let address = address.to_string();
    let caps = QueuePairCaps { max_send_wr: depth, max_recv_wr: depth, ..QueuePairCaps::default() };
    let endpoint = EndpointQpInit { caps, ..EndpointQpInit::default() };
    let hints = AddrInfoHints { port_space: Some(PortSpace::Tcp), ..AddrInfoHints::default() };
    let passive = AddrInfoHints { flags: AddrInfoFlags::PASSIVE, ..hints };
    let id = |hints| -> Outcome<CmId> {
        let found = getaddrinfo(Some(&address), Some(PORT), Some(hints))?;
        Ok(CmId::create_ep(found.first().ok_or("no such address")?, Some(&endpoint))?)
    };
    let listener = id(&passive)?;
    listener.listen(1)?;
    let param = ConnParam {
        responder_resources: ConnParam::DEVICE_MAX,
        initiator_depth: ConnParam::DEVICE_MAX,
        ..ConnParam::default()
    };
    let connected = || -> Outcome<[Low; 2]> {
        let mut client = Low::new(id(&hints)?, waiting, size, depth)?;
        let mut server = thread::scope(|scope| -> Outcome<Low> {
            let connecting = scope.spawn(|| client.id.connect(&param));
            let server = Low::new(listener.get_request()?, waiting, size, depth)?;
            server.id.accept(&param)?;
            connecting.join().map_err(|_| "the client panicked")??;
            Ok(server)
        })?;
        for end in [&client, &server] {
            end.id.migrate(&end.events)?;
        }
        client.remote = (server.memory.addr(), server.memory.rkey());
        server.remote = (client.memory.addr(), client.memory.rkey());
        Ok([client, server])
    };
    (0..count).map(|_| connected()).collect()
}

impl Low {
    fn new(id: CmId, waiting: Waiting, size: usize, depth: u32) -> Outcome<Self> {
        let qp = id.qp().ok_or("no queue pair")?;
        let access = AccessFlags::IB_UVERBS_ACCESS_LOCAL_WRITE
            | AccessFlags::IB_UVERBS_ACCESS_REMOTE_READ
            | AccessFlags::IB_UVERBS_ACCESS_REMOTE_WRITE;
        let memory = ManuallyDrop::new(MemoryRegion::alloc(qp.pd(), size, access)?);
        let message = ManuallyDrop::new(MemoryRegion::alloc(qp.pd(), size, access)?);
        let (sges, sent_from) = ([memory.sge(..)?], [message.sge(..)?]);
        let room = usize::try_from(depth)?;
        let (done, remote) = ([Completion::default(); 16], (0, 0));
        let events = EventChannel::new()?;
        let arrived = 0;
        let end = Self {
            id,
            events,
            waiting,
            qp,
            memory,
            sges,
            message,
            sent_from,
            remote,
            room,
            done,
            arrived,
        };
        (0..room).try_for_each(|_| end.post_receive())?;
        Ok(end)
    }

    fn post_receive(&self) -> Result<()> {
        let request = ReceiveRequest { wr_id: 1, scatter: &self.sges };
        // SAFETY: the memory is never deregistered, and no thread reads it.
        unsafe { self.qp.post_recv(&request) }
    }

    fn post_send(&mut self, operation: SendOperation<'_>) -> Result<()> {
        let (payload, flags) = (Payload::Gather(&self.sent_from), SendFlags::SIGNALED);
        // SAFETY: the memory is never deregistered, and written only by `MemoryRegion::write`, which
        // copes with a device.
        unsafe { self.qp.post_send(&SendRequest { wr_id: 1, operation, payload, flags }) }?;
        self.room -= 1;
        Ok(())
    }

    fn post_message(&mut self) -> Result<()> {
        if let Some(bytes) = short(self.message.len()) {
            self.message.write(0, bytes)?;
        }
        self.post_send(SendOperation::Send)
    }

    /// Waits until sends are done.
    fn sent(&mut self) -> Outcome {
        self.room += wait(self.qp.send_cq(), &self.events, self.waiting, &mut self.done)?;
        Ok(())
    }

    /// Waits until there is room for a send.
    fn make_room(&mut self) -> Outcome {
        if self.room == 0 { self.sent() } else { Ok(()) }
    }
}

/// Waits for completions, which must be successful. Returns their number.
fn wait(
    cq: &CompletionQueue,
    events: &EventChannel,
    waiting: Waiting,
    done: &mut [Completion],
) -> Outcome<usize> {
    let count = match waiting {
        Waiting::SleepsForData => cq.wait(done)?,
        Waiting::Sleeps | Waiting::Polls => loop {
            let count = cq.poll(done)?;
            if count > 0 {
                break count;
            }
            if waiting == Waiting::Sleeps {
                let count = sleep(cq, events, done)?;
                if count > 0 {
                    break count;
                }
            }
        },
    };
    checked(count, done)
}

/// Returns the number of completions, which must be successful.
fn checked(count: usize, done: &[Completion]) -> Outcome<usize> {
    match done[..count].iter().find(|done| !done.is_success()) {
        None => Ok(count),
        Some(done) => Err(format!("a request failed: {}", done.status()).into()),
    }
}

/// Arms the queue and polls it. If it is empty, sleeps until an event arrives. Returns the number of polled completions.
///
/// Fails if the connection ends.
fn sleep(cq: &CompletionQueue, events: &EventChannel, done: &mut [Completion]) -> Outcome<usize> {
    cq.request_notify(false)?;
    let count = cq.poll(done)?;
    if count > 0 {
        return Ok(count);
    }
    let channel = cq.channel().ok_or("no completion channel")?;
    let readable = |fd| PollFd::new(fd, PollFlags::POLLIN);
    let mut descriptors = [readable(channel.as_fd()), readable(events.as_fd())];
    poll(&mut descriptors, PollTimeout::NONE)?;
    let [completed, ended] = descriptors.map(|each| each.any().unwrap_or(true));
    if ended {
        return Err("the connection has ended".into());
    }
    if completed {
        channel.get_event()?;
    }
    Ok(0)
}

impl Member for Low {
    fn descriptors(&self) -> Outcome<[Option<BorrowedFd<'_>>; 2]> {
        let channel = self.qp.recv_cq().channel().ok_or("no completion channel")?;
        Ok([channel.as_fd(), self.events.as_fd()].map(Some))
    }

    fn wake(&mut self) -> Outcome {
        let cq = self.qp.recv_cq();
        cq.channel().ok_or("no completion channel")?.get_event()?;
        Ok(cq.request_notify(false)?)
    }

    fn receive_now(&mut self) -> Outcome<bool> {
        if self.arrived == 0 {
            self.arrived = checked(self.qp.recv_cq().poll(&mut self.done)?, &self.done)?;
        }
        let Some(left) = self.arrived.checked_sub(1) else { return Ok(false) };
        self.arrived = left;
        self.post_receive()?;
        Ok(true)
    }

    fn send_now(&mut self) -> Outcome {
        if self.room == 0 {
            self.room += checked(self.qp.send_cq().poll(&mut self.done)?, &self.done)?;
        }
        if self.room == 0 {
            return Err("there is no room".into());
        }
        Ok(self.post_message()?)
    }
}

impl End for Low {
    fn post(&mut self) -> Outcome {
        self.make_room()?;
        Ok(self.post_message()?)
    }

    fn receive(&mut self) -> Outcome {
        if self.arrived == 0 {
            self.arrived = wait(self.qp.recv_cq(), &self.events, self.waiting, &mut self.done)?;
        }
        self.arrived -= 1;
        Ok(self.post_receive()?)
    }

    fn write(&mut self) -> Outcome {
        self.make_room()?;
        let (remote_addr, rkey) = self.remote;
        Ok(self.post_send(SendOperation::Write { remote_addr, rkey })?)
    }

    fn read(&mut self) -> Outcome {
        let (remote_addr, rkey) = self.remote;
        self.post_send(SendOperation::Read { remote_addr, rkey })?;
        self.flush()
    }

    fn flush(&mut self) -> Outcome {
        while self.room < usize::try_from(DEPTH)? {
            self.sent()?;
        }
        Ok(())
    }
}
