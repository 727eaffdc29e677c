//! Posts and polls on the null driver, each kind in a function of its own: `cargo xtask bench null`.
//!
//! A profiler counts the instructions of the functions.
//!
//! # Safety
//!
//! The null driver accesses no memory, and the memory of the requests outlives their queue pair.
#![expect(unsafe_code, reason = "posts requests to a driver that accesses no memory")]

use std::env;
use std::error::Error;
use std::sync::Mutex;
use std::sync::atomic::AtomicBool;

use rdmacm::verbs::{
    AccessFlags, BufferedQueuePair, Completion, CompletionQueue, Context, MemoryRegion, Payload,
    ProtectionDomain, QpState, QpType, QueuePair, QueuePairAttributes, QueuePairCaps,
    QueuePairInit, ReceiveRequest, RegisteredBuffer, SendFlags, SendOperation, SendRequest, Sge,
};
use verbs_abi::{ib_uverbs_create_cq, ib_uverbs_ex_create_qp};
use verbs_core::driver::{
    CommandContext, CqControls, CqOps, CreatedCq, CreatedQp, Doorbell, Driver, RecvOps, SendOps,
};
use verbs_core::drivers::null::{Null, NullCqRing, NullRecvRing, NullSendRing};
use verbs_core::sys::uverbs::UverbsFile;

type Outcome = Result<(), Box<dyn Error>>;

/// The length of a message.
const MESSAGE: usize = 64;

fn main() -> Outcome {
    let count = env::args().nth(1).ok_or("usage: bench-null COUNT")?.parse()?;
    let context = Context::null();
    let pd = ProtectionDomain::new(&context)?;
    work_requests(&context, &pd, count)?;
    buffers(&context, &pd, count)?;
    driver(count)
}

/// Creates a queue pair, in RTS, for twice as many requests as `count`.
fn queue_pair(
    pd: &ProtectionDomain,
    cqs: [&CompletionQueue; 2],
    count: usize,
) -> Result<QueuePair, Box<dyn Error>> {
    let most = u32::try_from(2 * count)?;
    let caps = QueuePairCaps { max_send_wr: most, max_recv_wr: most, ..QueuePairCaps::default() };
    let init = QueuePairInit { caps, send_cq: cqs[0], ..QueuePairInit::new(cqs[1]) };
    let qp = QueuePair::new(pd, &init)?;
    qp.modify(&QueuePairAttributes::to(QpState::IB_QPS_RTS))?;
    Ok(qp)
}

fn completion_queues(
    context: &Context,
    count: usize,
) -> Result<[CompletionQueue; 2], Box<dyn Error>> {
    let capacity = u32::try_from(2 * count)?;
    let cq = || CompletionQueue::new(context, capacity, None);
    Ok([cq()?, cq()?])
}

/// Posts and polls work requests, with `unsafe` code of the program.
fn work_requests(context: &Context, pd: &ProtectionDomain, count: usize) -> Outcome {
    let [send_cq, recv_cq] = &completion_queues(context, count)?;
    let memory = MemoryRegion::alloc(pd, MESSAGE, AccessFlags::IB_UVERBS_ACCESS_LOCAL_WRITE)?;
    let qp = queue_pair(pd, [send_cq, recv_cq], count)?;
    let sges = [memory.sge(..)?];
    let request = ReceiveRequest { wr_id: 1, scatter: &sges };
    receive(&qp, &request, count)?;
    receive_kept(&qp, &request, count)?;
    let message = message(&sges);
    send(&qp, &message, count)?;
    send_kept(&qp, &message, count)?;
    poll(recv_cq, count)?;
    poll_kept(recv_cq, count)?;
    poll_empty(recv_cq, count)?;
    poll_empty_kept(recv_cq, count)
}

fn message(sges: &[Sge]) -> SendRequest<'_> {
    let payload = Payload::Gather(sges);
    SendRequest { wr_id: 1, operation: SendOperation::Send, payload, flags: SendFlags::SIGNALED }
}

#[inline(never)]
fn receive(qp: &QueuePair, request: &ReceiveRequest<'_>, count: usize) -> Outcome {
    for _ in 0..count {
        // SAFETY: the driver accesses no memory.
        unsafe { qp.post_recv(request) }?;
    }
    Ok(())
}

#[inline(never)]
fn receive_kept(qp: &QueuePair, request: &ReceiveRequest<'_>, count: usize) -> Outcome {
    let mut queue = qp.lock_receive_queue()?;
    for _ in 0..count {
        // SAFETY: the driver accesses no memory.
        unsafe { queue.post(request) }?;
    }
    Ok(())
}

#[inline(never)]
fn send(qp: &QueuePair, request: &SendRequest<'_>, count: usize) -> Outcome {
    for _ in 0..count {
        // SAFETY: the driver accesses no memory.
        unsafe { qp.post_send(request) }?;
    }
    Ok(())
}

#[inline(never)]
fn send_kept(qp: &QueuePair, request: &SendRequest<'_>, count: usize) -> Outcome {
    let mut queue = qp.lock_send_queue()?;
    for _ in 0..count {
        // SAFETY: the driver accesses no memory.
        unsafe { queue.post(request) }?;
    }
    Ok(())
}

fn check(polled: usize, expected: usize) -> Outcome {
    if polled == expected {
        Ok(())
    } else {
        Err(format!("{polled} of {expected} completions").into())
    }
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

/// Posts and polls buffers without `unsafe`, as the safe tier does.
fn buffers(context: &Context, pd: &ProtectionDomain, count: usize) -> Outcome {
    let [send_cq, recv_cq] = &completion_queues(context, count)?;
    let mut queues = BufferedQueuePair::new(queue_pair(pd, [send_cq, recv_cq], count)?)?;
    queues.reserve(2 * count);
    let mut receives = RegisteredBuffer::alloc(pd, count, MESSAGE)?;
    let mut sends = RegisteredBuffer::alloc(pd, count, MESSAGE)?;
    receive_buffer(&mut queues, &mut receives)?;
    send_buffer(&mut queues, &mut sends)?;
    poll_buffers(&mut queues, &mut receives, count)?;
    poll_buffers_empty(&mut queues, count)
}

#[inline(never)]
fn receive_buffer(queues: &mut BufferedQueuePair, buffers: &mut Vec<RegisteredBuffer>) -> Outcome {
    while let Some(buffer) = buffers.pop() {
        queues.post_recv(buffer)?;
    }
    Ok(())
}

#[inline(never)]
fn send_buffer(queues: &mut BufferedQueuePair, buffers: &mut Vec<RegisteredBuffer>) -> Outcome {
    while let Some(buffer) = buffers.pop() {
        queues.post_send(buffer, MESSAGE, SendOperation::Send)?;
    }
    Ok(())
}

#[inline(never)]
fn poll_buffers(
    queues: &mut BufferedQueuePair,
    buffers: &mut Vec<RegisteredBuffer>,
    count: usize,
) -> Outcome {
    let polled = queues.poll_recv(|buffer, _| buffers.push(buffer))?;
    check(polled, count)
}

#[inline(never)]
fn poll_buffers_empty(queues: &mut BufferedQueuePair, count: usize) -> Outcome {
    let mut polled = 0;
    for _ in 0..count {
        polled += queues.poll_recv(|_, _| ())?;
    }
    check(polled, 0)
}

/// Runs the driver alone.
fn driver(count: usize) -> Outcome {
    let (driver, file, is_removed) =
        (Null::default(), UverbsFile::silent(), AtomicBool::new(false));
    let cx = CommandContext::new(&file, &is_removed);
    let most = u32::try_from(count)?;
    let created = |error| format!("{error:?}");
    let cq = || driver.create_cq(cx, ib_uverbs_create_cq { cqe: most, ..Default::default() });
    let (send_cq, recv_cq) = (cq().map_err(created)?, cq().map_err(created)?);
    let request = ib_uverbs_ex_create_qp {
        max_send_wr: most,
        max_recv_wr: most,
        max_recv_sge: 1,
        qp_type: QpType::IB_UVERBS_QPT_RC,
        ..Default::default()
    };
    let cqs = CqControls { send: &send_cq.control, recv: &recv_cq.control };
    let qp = driver.create_qp(cx, request, cqs).map_err(created)?;
    let CreatedQp { mut send, recv, .. } = qp;
    let mut recv = recv.ok_or("no receive queue")?;
    let CreatedCq { ring: mut recv_cq, .. } = recv_cq;
    driver_receive(&mut recv, count)?;
    let changing = Mutex::new(());
    let doorbell = Doorbell { file: &file, handle: 0, changing: &changing };
    driver_send(&mut send, doorbell, count)?;
    driver_poll(&mut recv_cq, count)?;
    driver_poll_empty(&mut recv_cq, count)
}

/// Memory that the driver does not access.
const NOWHERE: Sge = Sge { addr: verbs_abi::AlignedU64::new(0), length: 64, lkey: 0 };

#[inline(never)]
fn driver_receive(ring: &mut NullRecvRing, count: usize) -> Outcome {
    for _ in 0..count {
        // SAFETY: the driver accesses no memory.
        if !unsafe { ring.try_store(1, NOWHERE) } {
            return Err("the receive queue is full".into());
        }
    }
    Ok(())
}

#[inline(never)]
fn driver_send(ring: &mut NullSendRing, doorbell: Doorbell<'_>, count: usize) -> Outcome {
    let sges = [NOWHERE];
    let request = message(&sges);
    for _ in 0..count {
        // SAFETY: the driver accesses no memory.
        if !unsafe { ring.try_store(QpState::IB_QPS_RTS, &request) } {
            return Err("the send queue is full".into());
        }
        ring.ring(doorbell).map_err(|error| format!("{error:?}"))?;
    }
    Ok(())
}

#[inline(never)]
fn driver_poll(ring: &mut NullCqRing, count: usize) -> Outcome {
    let mut done = [Completion::default()];
    let mut polled = 0;
    for _ in 0..count {
        polled += ring.try_poll(&mut done).unwrap_or(0);
    }
    check(polled, count)
}

#[inline(never)]
fn driver_poll_empty(ring: &mut NullCqRing, count: usize) -> Outcome {
    let mut done = [Completion::default()];
    let mut polled = 0;
    for _ in 0..count {
        polled += ring.try_poll(&mut done).unwrap_or(0);
    }
    check(polled, 0)
}
