//! Makes the calls of the C program `rdma_client` with this library.
//!
//! Makes an endpoint for a name, connects, sends 16 bytes inline, receives 16, disconnects and cleans up. The peer is
//! the C program `rdma_server`.
#![expect(unsafe_code, reason = "posts requests over memory that outlives them")]

use std::env;
use std::error::Error;
use std::io::{self, Write};
use std::ptr::NonNull;

use rdmacm::addr::AddrInfoHints;
use rdmacm::cm::{CmId, ConnParam, EndpointQpInit, PortSpace, getaddrinfo};
use rdmacm::verbs::{
    AccessFlags, Completion, MemoryRegion, Payload, QueuePair, QueuePairCaps, ReceiveRequest,
    SendFlags, SendOperation, SendRequest,
};
// Links the unwinder as the tools do: see the build script of this package.
use rdmacm_tests as _;

/// The length of both messages.
const MESSAGE: usize = 16;

fn main() -> Result<(), Box<dyn Error>> {
    let usage = "usage: bench-rdma-client server port";
    let mut arguments = env::args().skip(1);
    let (server, port) = (arguments.next().ok_or(usage)?, arguments.next().ok_or(usage)?);
    writeln!(io::stdout(), "bench-rdma-client: start")?;
    let run = run(&server, &port);
    writeln!(io::stdout(), "bench-rdma-client: end {}", i32::from(run.is_err()))?;
    run
}

fn run(server: &str, port: &str) -> Result<(), Box<dyn Error>> {
    // As in the C program, the program provides the memory of the received message.
    let mut message = [0_u8; MESSAGE];
    let message = NonNull::from(&mut message).cast();
    let hints = AddrInfoHints { port_space: Some(PortSpace::Tcp), ..AddrInfoHints::default() };
    let found = getaddrinfo(Some(server), Some(port), Some(&hints))?;
    let caps = QueuePairCaps {
        max_send_wr: 1,
        max_recv_wr: 1,
        max_inline_data: 16,
        ..QueuePairCaps::default()
    };
    let endpoint = EndpointQpInit { caps, signal_all: true, ..EndpointQpInit::default() };
    let info = found.first().ok_or("the server has no address")?;
    let id = CmId::create_ep(info, Some(&endpoint))?;
    let qp = id.qp().ok_or("the endpoint has no queue pair")?;
    let access = AccessFlags::IB_UVERBS_ACCESS_LOCAL_WRITE;
    // SAFETY: the message is valid for reads and writes of its length and outlives the region,
    // which is declared after it; only this pointer refers to it.
    let region = unsafe { MemoryRegion::register(qp.pd(), message, MESSAGE, access) }?;
    let scatter = [region.sge(..)?];
    // SAFETY: the message stays allocated and registered until the queue pair is destroyed
    // below, and no other code reads or writes it.
    unsafe { qp.post_recv(&ReceiveRequest { wr_id: 0, scatter: &scatter }) }?;
    let talked = talk(&id, &qp);
    drop(qp);
    id.destroy_qp();
    talked
}

fn talk(id: &CmId, qp: &QueuePair) -> Result<(), Box<dyn Error>> {
    id.connect(&ConnParam::default())?;
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
    // The C program does not check whether the peer has confirmed the end.
    let _ = id.disconnect();
    Ok(())
}
