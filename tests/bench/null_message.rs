//! Messages on the null driver, over the safe tier and over the low level: `cargo xtask bench null`.
//!
//! A profiler counts the instructions of both functions. They are not part of `bench-null`, because a second caller of a
//! function of the library changes the code of the first one.
//!
//! # Safety
//!
//! The null driver accesses no memory, and the memory of the requests outlives their queue pair.
#![expect(unsafe_code, reason = "posts requests to a driver that accesses no memory")]

use std::env;
use std::error::Error;

use rdmacm::endpoint::Connection;
use rdmacm::verbs::{
    AccessFlags, Completion, CompletionQueue, Context, MemoryRegion, Payload, ProtectionDomain,
    QpState, QueuePair, QueuePairAttributes, QueuePairCaps, QueuePairInit, ReceiveRequest,
    SendFlags, SendOperation, SendRequest,
};

type Outcome = Result<(), Box<dyn Error>>;

/// The length of a message.
const MESSAGE: usize = 16;

/// The number of sends, and of receives, that are in flight at most.
const DEPTH: u32 = 16;

fn main() -> Outcome {
    let count = env::args().nth(1).ok_or("usage: bench-null-message COUNT")?.parse()?;
    let (connection, _kernel) = Connection::null(DEPTH, DEPTH, MESSAGE)?;
    safe_message(&connection, count)?;
    let context = Context::null();
    let pd = ProtectionDomain::new(&context)?;
    let memory = || MemoryRegion::alloc(&pd, MESSAGE, AccessFlags::IB_UVERBS_ACCESS_LOCAL_WRITE);
    let (mut sent_from, mut received_into) = (memory()?, memory()?);
    let cq = || CompletionQueue::new(&context, DEPTH, None);
    let (send_cq, recv_cq) = (cq()?, cq()?);
    let caps = QueuePairCaps { max_send_wr: DEPTH, max_recv_wr: DEPTH, ..QueuePairCaps::default() };
    let init = QueuePairInit { caps, send_cq: &send_cq, ..QueuePairInit::new(&recv_cq) };
    let qp = QueuePair::new(&pd, &init)?;
    qp.modify(&QueuePairAttributes::to(QpState::IB_QPS_RTS))?;
    low_message(&qp, [&mut sent_from, &mut received_into], count)
}

/// Posts messages and receives them.
///
/// The connection posts a receive when a message is dropped. When it has no free buffer, it polls the completions of all
/// sends in flight.
#[inline(never)]
fn safe_message(connection: &Connection, count: usize) -> Outcome {
    let bytes = [1; MESSAGE];
    for _ in 0..count {
        connection.post_bytes(&bytes)?;
        let message = connection.recv()?.ok_or("the connection has ended")?;
        if message.len() != MESSAGE {
            return Err("another length".into());
        }
    }
    Ok(())
}

/// Posts messages and receives them, as [`safe_message`] does, on queues that stay locked.
///
/// A receive is posted for each message, and the completions of all sends in flight are polled at once.
#[inline(never)]
fn low_message(
    qp: &QueuePair,
    [sent_from, received_into]: [&mut MemoryRegion; 2],
    count: usize,
) -> Outcome {
    let bytes = [1; MESSAGE];
    let (gather, scatter) = ([sent_from.sge(..)?], [received_into.sge(..)?]);
    let (operation, payload) = (SendOperation::Send, Payload::Gather(&gather));
    let message = SendRequest { wr_id: 1, operation, payload, flags: SendFlags::SIGNALED };
    let receive = ReceiveRequest { wr_id: 1, scatter: &scatter };
    let mut sends = qp.lock_send_queue()?;
    let mut receives = qp.lock_receive_queue()?;
    let mut send_poller = qp.send_cq().lock_poller()?;
    let mut recv_poller = qp.recv_cq().lock_poller()?;
    let mut done = [Completion::default(); DEPTH as usize];
    let mut room = done.len();
    for _ in 0..count {
        if room == 0 {
            room = successful(send_poller.poll(&mut done)?, &done)?;
        }
        // SAFETY: the driver accesses no memory.
        unsafe { receives.post(&receive) }?;
        sent_from.write(0, &bytes)?;
        // SAFETY: the driver accesses no memory.
        unsafe { sends.post(&message) }?;
        room -= 1;
        let received = successful(recv_poller.poll(&mut done[..1])?, &done)?;
        if received != 1 || done[0].byte_len() as usize != MESSAGE {
            return Err("another length".into());
        }
    }
    Ok(())
}

/// Returns the number of completions, which must be successful.
fn successful(count: usize, done: &[Completion]) -> Result<usize, Box<dyn Error>> {
    match done[..count].iter().find(|done| !done.is_success()) {
        None => Ok(count),
        Some(done) => Err(format!("a request failed: {}", done.status()).into()),
    }
}
