//! Posts and polls, each kind in a function of its own, for a profiler that counts their instructions.
//!
//! `valgrind --tool=callgrind` reports the cost of each function without the kernel: `COUNT` times the cost of one
//! request or poll. `cargo xtask bench posts` runs it beside `posts.c`.
//!
//! Connects to itself at ADDRESS, which chooses the device. With a third argument, `idle`, it waits after each post to a
//! send queue until the device is idle. The functions that wait have names of their own, such as `send_idle`. siw always
//! rings the doorbell of an idle queue. Otherwise that depends on the timing of the kernel.
#![expect(unsafe_code, reason = "posts requests over memory that outlives them")]

use std::env;
use std::error::Error;
use std::io::{self, Write};
use std::thread;
use std::time::{Duration, Instant};

use rdmacm::addr::{AddrInfoFlags, AddrInfoHints};
use rdmacm::cm::{CmId, ConnParam, EndpointQpInit, PortSpace, getaddrinfo};
use rdmacm::verbs::{
    AccessFlags, BufferedQueuePair, Completion, CompletionQueue, MemoryRegion, Payload, QueuePair,
    QueuePairCaps, ReceiveRequest, RegisteredBuffer, SendFlags, SendOperation, SendRequest, Sge,
};

type Outcome = Result<(), Box<dyn Error>>;

const PORT: &str = "7475";

/// Number of requests per doorbell, and of completions per poll, in a list.
const LIST: usize = 16;

/// The length of a message.
const MESSAGE: usize = 64;

/// The length of a message whose bytes are part of the request.
const INLINE: usize = 32;

fn main() -> Outcome {
    let usage = "usage: bench-posts ADDRESS COUNT [idle]";
    let mut arguments = env::args().skip(1);
    let address = arguments.next().ok_or(usage)?;
    let count: usize = arguments.next().ok_or(usage)?.parse()?;
    let count = count.next_multiple_of(LIST);
    let waits = match arguments.next().as_deref() {
        None => false,
        Some("idle") => true,
        Some(_) => return Err(usage.into()),
    };
    // Four kinds of messages are received, and nothing is polled meanwhile.
    let most = u32::try_from(4 * count)?;
    let caps = QueuePairCaps {
        max_send_wr: most,
        max_recv_wr: most,
        max_inline_data: u32::try_from(INLINE)?,
        ..QueuePairCaps::default()
    };
    let endpoint = EndpointQpInit { caps, ..EndpointQpInit::default() };
    let hints = AddrInfoHints { port_space: Some(PortSpace::Tcp), ..AddrInfoHints::default() };
    let passive = AddrInfoHints { flags: AddrInfoFlags::PASSIVE, ..hints };
    let id = |hints| -> Result<CmId, Box<dyn Error>> {
        let found = getaddrinfo(Some(&address), Some(PORT), Some(hints))?;
        Ok(CmId::create_ep(found.first().ok_or("no such address")?, Some(&endpoint))?)
    };
    let listener = id(&passive)?;
    listener.listen(1)?;
    let client = id(&hints)?;
    thread::scope(|scope| {
        let connecting = scope.spawn(|| client.connect(&ConnParam::default()));
        let server = listener.get_request()?;
        let receiver = server.qp().ok_or("no queue pair")?;
        let access =
            AccessFlags::IB_UVERBS_ACCESS_LOCAL_WRITE | AccessFlags::IB_UVERBS_ACCESS_REMOTE_READ;
        let access = access | AccessFlags::IB_UVERBS_ACCESS_REMOTE_WRITE;
        let mut memory = MemoryRegion::alloc(receiver.pd(), MESSAGE + 1, access)?;
        memory.write(MESSAGE, &[ARRIVED])?;
        let scatter = [memory.sge(..MESSAGE)?];
        let request = ReceiveRequest { wr_id: 1, scatter: &scatter };
        receive(&receiver, &request, count)?;
        receive_kept(&receiver, &request, count)?;
        receive_list(&receiver, &request, 2 * count)?;
        server.accept(&ConnParam::default())?;
        connecting.join().map_err(|_| "the client panicked")??;
        let mut sender = Sender::new(client.qp().ok_or("no queue pair")?, &memory)?;
        send_all(&mut sender, count, waits)?;
        poll(receiver.recv_cq(), count)?;
        poll_kept(receiver.recv_cq(), count)?;
        poll_list(receiver.recv_cq(), count)?;
        poll_list_kept(receiver.recv_cq(), count)?;
        poll_empty(receiver.recv_cq(), count)?;
        poll_empty_kept(receiver.recv_cq(), count)?;
        buffers(receiver, sender.qp, &mut memory, count)?;
        writeln!(io::stdout(), "bench-posts: {count} of each")?;
        // No object is destroyed, so the memory outlives the last request of the process.
        std::process::exit(0)
    })
}

/// The byte after the message in the memory of the server. When the client has read it, all of its earlier requests have been
/// executed.
const ARRIVED: u8 = 1;

/// The time within which the data of a read arrive.
const LIMIT: Duration = Duration::from_secs(60);

/// The sending side: its queue pair, its memory, and the memory of the server.
struct Sender {
    qp: QueuePair,
    local: MemoryRegion,
    remote_addr: u64,
    rkey: u32,
}

impl Sender {
    fn new(qp: QueuePair, memory: &MemoryRegion) -> Result<Self, Box<dyn Error>> {
        let access = AccessFlags::IB_UVERBS_ACCESS_LOCAL_WRITE;
        let local = MemoryRegion::alloc(qp.pd(), MESSAGE + 1, access)?;
        Ok(Self { qp, local, remote_addr: memory.addr(), rkey: memory.rkey() })
    }

    /// Posts a read of the byte that shows that all earlier requests have been executed.
    fn post_read(&self, flags: SendFlags) -> Outcome {
        let remote_addr = self.remote_addr + MESSAGE as u64;
        let operation = SendOperation::Read { remote_addr, rkey: self.rkey };
        let sges = [self.local.sge(MESSAGE..)?];
        let request = SendRequest { flags, ..request(operation, Payload::Gather(&sges)) };
        // SAFETY: the memory stays registered, and the program reads it only by copying.
        Ok(unsafe { self.qp.post_send(&request) }?)
    }

    /// Waits until all requests, which are unsignaled, have completed.
    fn settle(&self) -> Outcome {
        self.post_read(SendFlags::SIGNALED)?;
        let mut done = [Completion::default()];
        while self.qp.send_cq().poll(&mut done)? == 0 {}
        match done[0].is_success() {
            true => Ok(()),
            false => Err(format!("the last request failed: {}", done[0].status()).into()),
        }
    }

    /// Waits until the completions of all requests are in the queue, without polling it.
    ///
    /// The device handles the answers of the peer in order, so the data of a read arrive after these completions.
    fn settle_unpolled(&mut self) -> Outcome {
        self.local.write(MESSAGE, &[0])?;
        self.post_read(SendFlags::empty())?;
        wait_for_arrival(&self.local, MESSAGE)
    }
}

/// Waits until a request has stored [`ARRIVED`] in `memory` at `offset`.
fn wait_for_arrival(memory: &MemoryRegion, offset: usize) -> Outcome {
    let mut byte = [0];
    let deadline = Instant::now() + LIMIT;
    while byte != [ARRIVED] {
        if Instant::now() > deadline {
            return Err("the data of a request did not arrive".into());
        }
        memory.read(offset, &mut byte)?;
    }
    Ok(())
}

fn send_all(sender: &mut Sender, count: usize, waits: bool) -> Outcome {
    let Sender { qp, local, remote_addr, rkey } = &*sender;
    let to = SendOperation::Write { remote_addr: *remote_addr, rkey: *rkey };
    let (sges, bytes) = ([local.sge(..MESSAGE)?], [1; INLINE]);
    sends(qp, &sges, count, waits)?;
    sender.settle()?;
    inline_sends(qp, bytes, count, waits)?;
    sender.settle()?;
    writes(qp, to, &sges, count, waits)?;
    sender.settle()?;
    inline_writes(qp, to, bytes, count, waits)?;
    sender.settle()?;
    lists(qp, to, count, waits)?;
    sender.settle()?;
    let signaled = request(to, Payload::Gather(&sges));
    let signaled = SendRequest { flags: SendFlags::SIGNALED, ..signaled };
    for _ in 0..2 * count {
        // SAFETY: no thread writes the memory, which stays registered.
        unsafe { qp.post_send(&signaled) }?;
    }
    sender.settle_unpolled()?;
    poll_sends(sender.qp.send_cq(), count)?;
    poll_sends_kept(sender.qp.send_cq(), count)
}

#[inline(never)]
fn receive(qp: &QueuePair, request: &ReceiveRequest<'_>, count: usize) -> Outcome {
    for _ in 0..count {
        // SAFETY: no thread reads the memory, which stays registered.
        unsafe { qp.post_recv(request) }?;
    }
    Ok(())
}

#[inline(never)]
fn receive_kept(qp: &QueuePair, request: &ReceiveRequest<'_>, count: usize) -> Outcome {
    let mut queue = qp.lock_receive_queue()?;
    for _ in 0..count {
        // SAFETY: as above.
        unsafe { queue.post(request) }?;
    }
    Ok(())
}

#[inline(never)]
fn receive_list(qp: &QueuePair, request: &ReceiveRequest<'_>, count: usize) -> Outcome {
    for _ in 0..count / LIST {
        let mut queue = qp.lock_receive_queue()?;
        for _ in 0..LIST {
            // SAFETY: as above.
            unsafe { queue.push(request) }?;
        }
        queue.ring_doorbell()?;
    }
    Ok(())
}

/// Waits until the device has executed the last `count` requests, so that it is idle.
///
/// The profiler does not count the instructions of this function.
///
/// # Panics
///
/// Panics if a request fails.
#[inline(never)]
fn wait_until_idle(qp: &QueuePair, count: usize) {
    let mut done = [Completion::default()];
    for _ in 0..count {
        while qp.send_cq().poll(&mut done).expect("the queue should be polled") == 0 {}
        assert!(done[0].is_success(), "a request failed: {}", done[0].status());
    }
}

/// Defines a function `all` that posts a request `count` times in each of two ways.
///
/// The first function makes a call for each request, and the second one keeps the queue. If `waits` is `true`, two other
/// functions do the same, and wait until the device is idle after each request.
macro_rules! posts {
    ($all:ident, [$plain:ident, $kept:ident], [$idle:ident, $idle_kept:ident],
     |$($argument:ident: $type:ty),*| $request:expr) => {
        posts!($plain, $kept, SendFlags::empty(), |_, _| (), |$($argument: $type),*| $request);
        posts!($idle, $idle_kept, SendFlags::SIGNALED, wait_until_idle,
               |$($argument: $type),*| $request);

        fn $all(qp: &QueuePair, $($argument: $type,)* count: usize, waits: bool) -> Outcome {
            if waits {
                $idle(qp, $($argument,)* count)?;
                return $idle_kept(qp, $($argument,)* count);
            }
            $plain(qp, $($argument,)* count)?;
            $kept(qp, $($argument,)* count)
        }
    };
    ($plain:ident, $kept:ident, $flags:expr, $after:expr,
     |$($argument:ident: $type:ty),*| $request:expr) => {
        #[inline(never)]
        fn $plain(qp: &QueuePair, $($argument: $type,)* count: usize) -> Outcome {
            let request = SendRequest { flags: $flags, ..$request };
            for _ in 0..count {
                // SAFETY: no thread writes the memory, which stays registered.
                unsafe { qp.post_send(&request) }?;
                $after(qp, 1);
            }
            Ok(())
        }

        #[inline(never)]
        fn $kept(qp: &QueuePair, $($argument: $type,)* count: usize) -> Outcome {
            let request = SendRequest { flags: $flags, ..$request };
            let mut queue = qp.lock_send_queue()?;
            for _ in 0..count {
                // SAFETY: as above.
                unsafe { queue.post(&request) }?;
                $after(qp, 1);
            }
            Ok(())
        }
    };
}

posts!(sends, [send, send_kept], [send_idle, send_idle_kept], |sges: &[Sge]| {
    request(SendOperation::Send, Payload::Gather(sges))
});
posts!(
    inline_sends,
    [send_inline, send_inline_kept],
    [send_inline_idle, send_inline_idle_kept],
    |bytes: [u8; INLINE]| request(SendOperation::Send, Payload::Inline(&bytes))
);
posts!(
    writes,
    [write, write_kept],
    [write_idle, write_idle_kept],
    |to: SendOperation<'_>, sges: &[Sge]| request(to, Payload::Gather(sges))
);
posts!(
    inline_writes,
    [write_inline, write_inline_kept],
    [write_inline_idle, write_inline_idle_kept],
    |to: SendOperation<'_>, bytes: [u8; INLINE]| request(to, Payload::Inline(&bytes))
);

fn request<'a>(operation: SendOperation<'a>, payload: Payload<'a>) -> SendRequest<'a> {
    SendRequest { wr_id: 1, operation, payload, flags: SendFlags::empty() }
}

/// Defines two functions that write in lists: one locks the queue for each list, and one keeps it.
macro_rules! lists {
    ($plain:ident, $kept:ident, $flags:expr, $after:expr) => {
        #[inline(never)]
        fn $plain(qp: &QueuePair, to: SendOperation<'_>, count: usize) -> Outcome {
            let request =
                SendRequest { flags: $flags, ..request(to, Payload::Inline(&[1; INLINE])) };
            for _ in 0..count / LIST {
                let mut queue = qp.lock_send_queue()?;
                for _ in 0..LIST {
                    // SAFETY: as above.
                    unsafe { queue.push(&request) }?;
                }
                queue.ring_doorbell()?;
                drop(queue);
                $after(qp, LIST);
            }
            Ok(())
        }

        #[inline(never)]
        fn $kept(qp: &QueuePair, to: SendOperation<'_>, count: usize) -> Outcome {
            let request =
                SendRequest { flags: $flags, ..request(to, Payload::Inline(&[1; INLINE])) };
            let mut queue = qp.lock_send_queue()?;
            for _ in 0..count / LIST {
                for _ in 0..LIST {
                    // SAFETY: as above.
                    unsafe { queue.push(&request) }?;
                }
                queue.ring_doorbell()?;
                $after(qp, LIST);
            }
            Ok(())
        }
    };
}

lists!(write_list, write_list_kept, SendFlags::empty(), |_, _| ());
lists!(write_list_idle, write_list_idle_kept, SendFlags::SIGNALED, wait_until_idle);

fn lists(qp: &QueuePair, to: SendOperation<'_>, count: usize, waits: bool) -> Outcome {
    if waits {
        write_list_idle(qp, to, count)?;
        return write_list_idle_kept(qp, to, count);
    }
    write_list(qp, to, count)?;
    write_list_kept(qp, to, count)
}

/// Defines a function that polls up to `room` completions, `count / room` times, and one that does so with a poller that it
/// keeps. `check` gets the number of completions, the count, and the last completions.
macro_rules! polls {
    ($plain:ident, $kept:ident, $room:expr, $check:expr) => {
        #[inline(never)]
        fn $plain(cq: &CompletionQueue, count: usize) -> Outcome {
            let mut done = [Completion::default(); $room];
            let mut polled = 0;
            for _ in 0..count / $room {
                polled += cq.poll(&mut done)?;
            }
            $check(polled, count, &done)
        }

        #[inline(never)]
        fn $kept(cq: &CompletionQueue, count: usize) -> Outcome {
            let mut done = [Completion::default(); $room];
            let mut poller = cq.lock_poller()?;
            let mut polled = 0;
            for _ in 0..count / $room {
                polled += poller.poll(&mut done)?;
            }
            $check(polled, count, &done)
        }
    };
}

polls!(poll, poll_kept, 1, |polled, count, _: &[_]| check(polled, count));
polls!(poll_list, poll_list_kept, LIST, |polled, count, _: &[_]| check(polled, count));
polls!(poll_empty, poll_empty_kept, 1, |polled, _, _: &[_]| check(polled, 0));
polls!(poll_sends, poll_sends_kept, 1, check_writes);

fn check(polled: usize, expected: usize) -> Outcome {
    if polled == expected {
        Ok(())
    } else {
        Err(format!("{polled} of {expected} completions").into())
    }
}

/// Checks that all writes have completed, and that the last one has succeeded.
fn check_writes(polled: usize, expected: usize, last: &[Completion; 1]) -> Outcome {
    check(polled, expected)?;
    match last[0].is_success() {
        true => Ok(()),
        false => Err(format!("a write failed: {}", last[0].status()).into()),
    }
}

/// Sends messages in buffers that are posted without `unsafe`, as the safe tier does.
///
/// A last request writes to `memory` of the receiver. The device executes it after the messages, so their completions are in
/// the queues when the data arrives.
fn buffers(
    receiver: QueuePair,
    sender: QueuePair,
    memory: &mut MemoryRegion,
    count: usize,
) -> Outcome {
    let byte = MESSAGE - 1;
    memory.write(byte, &[0])?;
    let mut receives = RegisteredBuffer::alloc(receiver.pd(), count, MESSAGE)?;
    let mut sends = RegisteredBuffer::alloc(sender.pd(), count + 1, MESSAGE)?;
    let mut last = sends.pop().ok_or("no buffer")?;
    let [mut receiver, mut sender] =
        [BufferedQueuePair::new(receiver)?, BufferedQueuePair::new(sender)?];
    receiver.reserve(count);
    sender.reserve(count + 1);
    receive_buffers(&mut receiver, &mut receives)?;
    send_buffers(&mut sender, &mut sends)?;
    last[0] = ARRIVED;
    let remote_addr = memory.addr() + byte as u64;
    sender.post_send(last, 1, SendOperation::Write { remote_addr, rkey: memory.rkey() })?;
    wait_for_arrival(memory, byte)?;
    poll_received_buffers(&mut receiver, &mut receives, count)?;
    poll_sent_buffers(&mut sender, &mut sends, count + 1)
}

#[inline(never)]
fn receive_buffers(queues: &mut BufferedQueuePair, buffers: &mut Vec<RegisteredBuffer>) -> Outcome {
    while let Some(buffer) = buffers.pop() {
        queues.post_recv(buffer)?;
    }
    Ok(())
}

#[inline(never)]
fn send_buffers(queues: &mut BufferedQueuePair, buffers: &mut Vec<RegisteredBuffer>) -> Outcome {
    while let Some(buffer) = buffers.pop() {
        queues.post_send(buffer, MESSAGE, SendOperation::Send)?;
    }
    Ok(())
}

#[inline(never)]
fn poll_received_buffers(
    queues: &mut BufferedQueuePair,
    buffers: &mut Vec<RegisteredBuffer>,
    count: usize,
) -> Outcome {
    let mut polled = 0;
    while polled < count {
        polled += queues.poll_recv(|buffer, _| buffers.push(buffer))?;
    }
    check(polled, count)
}

#[inline(never)]
fn poll_sent_buffers(
    queues: &mut BufferedQueuePair,
    buffers: &mut Vec<RegisteredBuffer>,
    count: usize,
) -> Outcome {
    let mut polled = 0;
    while polled < count {
        polled += queues.poll_send(|buffer, _| buffers.push(buffer))?;
    }
    check(polled, count)
}
