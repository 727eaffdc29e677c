//! Posts and polls, each kind in a function of its own, for a profiler that counts their instructions.
//!
//! `valgrind --tool=callgrind` reports the cost of each function without the kernel: `COUNT` times the cost of one
//! request or poll. `cargo xtask bench posts` runs it beside `posts.c`.
//!
//! Connects to itself at ADDRESS, which chooses the device.
#![expect(unsafe_code, reason = "posts requests over memory that outlives them")]

use std::env;
use std::error::Error;
use std::io::{self, Write};
use std::thread;

use rdmacm::addr::{AddrInfoFlags, AddrInfoHints};
use rdmacm::cm::{CmId, ConnParam, EndpointQpInit, PortSpace, getaddrinfo};
use rdmacm::verbs::{
    AccessFlags, Completion, CompletionQueue, MemoryRegion, Payload, QueuePair, QueuePairCaps,
    ReceiveRequest, SendFlags, SendOperation, SendRequest,
};

type Outcome = Result<(), Box<dyn Error>>;

const PORT: &str = "7475";

/// Number of requests per doorbell, and of completions per poll, in a list.
const LIST: usize = 16;

/// The length of a message.
const MESSAGE: usize = 64;

fn main() -> Outcome {
    let usage = "usage: bench-posts ADDRESS COUNT";
    let mut arguments = env::args().skip(1);
    let address = arguments.next().ok_or(usage)?;
    let count: usize = arguments.next().ok_or(usage)?.parse()?;
    let count = count.next_multiple_of(LIST);
    // Each way of posting has its turn, and nothing is polled meanwhile.
    let most = u32::try_from(4 * count)?;
    let caps = QueuePairCaps {
        max_send_wr: 2 * most,
        max_recv_wr: most,
        max_inline_data: u32::try_from(MESSAGE)?,
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
        let memory = MemoryRegion::alloc(receiver.pd(), MESSAGE, access)?;
        let scatter = [memory.sge(..)?];
        let request = ReceiveRequest { wr_id: 1, scatter: &scatter };
        receive(&receiver, &request, count)?;
        receive_kept(&receiver, &request, count)?;
        receive_list(&receiver, &request, 2 * count)?;
        server.accept(&ConnParam::default())?;
        connecting.join().map_err(|_| "the client panicked")??;
        let sender = client.qp().ok_or("no queue pair")?;
        send_all(&sender, &memory, count)?;
        poll(receiver.recv_cq(), count)?;
        poll_kept(receiver.recv_cq(), count)?;
        poll_list(receiver.recv_cq(), count)?;
        poll_list_kept(receiver.recv_cq(), count)?;
        poll_empty(receiver.recv_cq(), count)?;
        poll_empty_kept(receiver.recv_cq(), count)?;
        writeln!(io::stdout(), "bench-posts: {count} of each")?;
        // Nothing is torn down: the memory outlives the process's last request.
        std::process::exit(0)
    })
}

fn send_all(sender: &QueuePair, memory: &MemoryRegion, count: usize) -> Outcome {
    let access = AccessFlags::IB_UVERBS_ACCESS_LOCAL_WRITE;
    let local = MemoryRegion::alloc(sender.pd(), MESSAGE, access)?;
    let pieces = [local.sge(..)?];
    let request = |operation| SendRequest {
        wr_id: 1,
        operation,
        payload: Payload::Gather(&pieces),
        flags: SendFlags::empty(),
    };
    let message = request(SendOperation::Send);
    send(sender, &message, count)?;
    send_kept(sender, &message, count)?;
    send_list(sender, &message, count)?;
    send_inline(sender, message, count)?;
    // The peer answers it when it has all that was sent before.
    let operation = SendOperation::Read { remote_addr: memory.addr(), rkey: memory.rkey() };
    let read = request(operation);
    let read = SendRequest { flags: SendFlags::SIGNALED, ..read };
    // SAFETY: no thread reads the memory, which stays registered.
    unsafe { sender.post_send(&read) }?;
    let mut done = [Completion::default()];
    while sender.send_cq().poll(&mut done)? == 0 {}
    match done[0].is_success() {
        true => Ok(()),
        false => Err(format!("the last request failed: {}", done[0].status()).into()),
    }
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

#[inline(never)]
fn send(qp: &QueuePair, request: &SendRequest<'_>, count: usize) -> Outcome {
    for _ in 0..count {
        // SAFETY: as above.
        unsafe { qp.post_send(request) }?;
    }
    Ok(())
}

#[inline(never)]
fn send_inline(qp: &QueuePair, message: SendRequest<'_>, count: usize) -> Outcome {
    let request = SendRequest { payload: Payload::Inline(&[0; MESSAGE]), ..message };
    for _ in 0..count {
        // SAFETY: as above.
        unsafe { qp.post_send(&request) }?;
    }
    Ok(())
}

#[inline(never)]
fn send_kept(qp: &QueuePair, request: &SendRequest<'_>, count: usize) -> Outcome {
    let mut queue = qp.lock_send_queue()?;
    for _ in 0..count {
        // SAFETY: as above.
        unsafe { queue.post(request) }?;
    }
    Ok(())
}

#[inline(never)]
fn send_list(qp: &QueuePair, request: &SendRequest<'_>, count: usize) -> Outcome {
    for _ in 0..count / LIST {
        let mut queue = qp.lock_send_queue()?;
        for _ in 0..LIST {
            // SAFETY: as above.
            unsafe { queue.push(request) }?;
        }
        queue.ring_doorbell()?;
    }
    Ok(())
}

fn check(polled: usize, due: usize) -> Outcome {
    if polled == due { Ok(()) } else { Err(format!("{polled} of {due} completions").into()) }
}

#[inline(never)]
fn poll(cq: &CompletionQueue, count: usize) -> Outcome {
    let mut done = [Completion::default()];
    let mut polled = 0;
    for _ in 0..count {
        polled += cq.poll(&mut done)?;
    }
    check(polled, count)
}

#[inline(never)]
fn poll_kept(cq: &CompletionQueue, count: usize) -> Outcome {
    let mut done = [Completion::default()];
    let mut poller = cq.lock_poller()?;
    let mut polled = 0;
    for _ in 0..count {
        polled += poller.poll(&mut done)?;
    }
    check(polled, count)
}

#[inline(never)]
fn poll_list(cq: &CompletionQueue, count: usize) -> Outcome {
    let mut done = [Completion::default(); LIST];
    let mut polled = 0;
    for _ in 0..count / LIST {
        polled += cq.poll(&mut done)?;
    }
    check(polled, count)
}

#[inline(never)]
fn poll_list_kept(cq: &CompletionQueue, count: usize) -> Outcome {
    let mut done = [Completion::default(); LIST];
    let mut poller = cq.lock_poller()?;
    let mut polled = 0;
    for _ in 0..count / LIST {
        polled += poller.poll(&mut done)?;
    }
    check(polled, count)
}

#[inline(never)]
fn poll_empty(cq: &CompletionQueue, count: usize) -> Outcome {
    let mut done = [Completion::default()];
    let mut polled = 0;
    for _ in 0..count {
        polled += cq.poll(&mut done)?;
    }
    check(polled, 0)
}

#[inline(never)]
fn poll_empty_kept(cq: &CompletionQueue, count: usize) -> Outcome {
    let mut done = [Completion::default()];
    let mut poller = cq.lock_poller()?;
    let mut polled = 0;
    for _ in 0..count {
        polled += poller.poll(&mut done)?;
    }
    check(polled, 0)
}
