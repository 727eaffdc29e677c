//! What the C program `rdma_client` does, step by step, with this library: resolves, connects,
//! sends 16 bytes inline, receives 16, disconnects, cleans up. The peer is the C program
//! `rdma_server`.
#![expect(unsafe_code, reason = "posts requests over memory that outlives them")]

use std::env;
use std::error::Error;
use std::io::{self, Write};
use std::net::{SocketAddr, ToSocketAddrs};
use std::ptr::NonNull;
use std::time::Duration;

use rdmacm::cm::{CmId, ConnParam, EventChannel, EventType, PortSpace};
use rdmacm::verbs::{
    AccessFlags, Completion, CompletionChannel, CompletionQueue, MemoryRegion, Payload,
    ProtectionDomain, QueuePair, QueuePairCaps, QueuePairInit, ReceiveRequest, SendFlags,
    SendOperation, SendRequest,
};

/// What `rdma_create_ep` allows for each resolution.
const TIMEOUT: Duration = Duration::from_secs(2);

/// The length of both messages.
const MESSAGE: usize = 16;

fn main() -> Result<(), Box<dyn Error>> {
    let server = arguments()?;
    writeln!(io::stdout(), "bench-rdma-client: start")?;
    let run = run(server);
    writeln!(io::stdout(), "bench-rdma-client: end {}", i32::from(run.is_err()))?;
    run
}

fn arguments() -> Result<SocketAddr, Box<dyn Error>> {
    let usage = "usage: bench-rdma-client server port";
    let mut arguments = env::args().skip(1);
    let (server, port) = (arguments.next().ok_or(usage)?, arguments.next().ok_or(usage)?);
    let mut addresses = (server.as_str(), port.parse()?).to_socket_addrs()?;
    Ok(addresses.next().ok_or("the server has no address")?)
}

fn run(server: SocketAddr) -> Result<(), Box<dyn Error>> {
    // As in the C program, the message received lies in memory of the program's own.
    let mut message = [0_u8; MESSAGE];
    let message = NonNull::from(&mut message).cast();
    let channel = EventChannel::new()?;
    let id = CmId::new(&channel, PortSpace::Tcp)?;
    id.resolve_addr(None, server, TIMEOUT)?;
    channel.expect_event(EventType::AddrResolved)?;
    id.resolve_route(TIMEOUT)?;
    channel.expect_event(EventType::RouteResolved)?;

    let context = id.context()?;
    let pd = ProtectionDomain::new(&context)?;
    let queue = || CompletionQueue::new(&context, 1, Some(&CompletionChannel::new(&context)?));
    let [send_cq, recv_cq] = [queue()?, queue()?];
    let caps = QueuePairCaps {
        max_send_wr: 1,
        max_recv_wr: 1,
        max_send_sge: 1,
        max_recv_sge: 1,
        max_inline_data: 16,
    };
    let init = QueuePairInit { send_cq: &send_cq, recv_cq: &recv_cq, caps, signal_all: true };
    let qp = id.create_qp(&pd, &init)?;
    let access = AccessFlags::IB_UVERBS_ACCESS_LOCAL_WRITE;
    // SAFETY: the message is valid for reads and writes of its length and outlives the region,
    // which is declared after it; nothing refers to it but this pointer.
    let region = unsafe { MemoryRegion::register(&pd, message, MESSAGE, access) }?;
    let scatter = [region.sge(..)?];
    // SAFETY: the message stays allocated and registered until the queue pair is destroyed
    // below, and nothing reads or writes it.
    unsafe { qp.post_recv(&ReceiveRequest { wr_id: 0, scatter: &scatter }) }?;
    let talked = talk(&channel, &id, &qp);
    drop(qp);
    id.destroy_qp();
    talked
}

fn talk(channel: &EventChannel, id: &CmId, qp: &QueuePair) -> Result<(), Box<dyn Error>> {
    id.connect(&ConnParam::default())?;
    channel.expect_event(EventType::Established)?;
    let request = SendRequest {
        wr_id: 0,
        operation: SendOperation::Send,
        payload: Payload::Inline(&[0; MESSAGE]),
        flags: SendFlags::empty(),
    };
    // SAFETY: an inline payload is copied; the device gets no memory of ours.
    unsafe { qp.post_send(&request) }?;
    for cq in [qp.send_cq(), qp.recv_cq()] {
        let mut done = [Completion::default()];
        cq.wait(&mut done)?;
        if !done[0].is_success() {
            return Err(format!("a request failed: {}", done[0].status()).into());
        }
    }
    id.disconnect()?;
    // The C program, too, is content with an end that the peer did not confirm in time.
    let event = channel.get_event()?;
    match event.event_type() {
        EventType::Disconnected => Ok(()),
        other => Err(format!("{other} with status {}", event.status()).into()),
    }
}
