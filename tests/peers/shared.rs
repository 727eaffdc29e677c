//! `rdma_xserver` and `rdma_xclient` with reliable connected queue pairs, and their failure without XRC.
//!
//! Either program of rdma-core also runs against one that receives from a shared receive queue.
//!
//! # Safety
//!
//! A receive names memory of a region that lives until the shared receive queue is destroyed, and that is reached by
//! copying only.
#![expect(unsafe_code, reason = "posts a receive over memory that outlives its queue")]

use rdmacm::addr::{AddrInfo, AddrInfoFlags, AddrInfoHints};
use rdmacm::cm::{CmId, ConnParam, EndpointQpInit, PortSpace, getaddrinfo};
use rdmacm::verbs::{
    AccessFlags, Completion, MemoryRegion, Payload, QueuePairCaps, ReceiveRequest, SendFlags,
    SendOperation, SendRequest, SharedReceiveQueueAttributes,
};
use rdmacm_tests::promised_device;
use rdmacm_tests::roce::{roce_ip, roce_name};

use crate::SIW;
use crate::connections::printed;
use crate::rping::{Program, listening, port};

every_pair! {
    messages_pass_one_way
}

const SERVED: [&str; 2] = ["rdma_xserver: start", "rdma_xserver: end 0"];
const SENT: [&str; 2] = ["rdma_xclient: start", "rdma_xclient: end 0"];

fn messages_pass_one_way(server: Program, client: Program) {
    exchange(server, client, roce_ip());
}

#[test]
#[ignore = "needs the test bed: cargo xtask test"]
fn siw_messages_pass_one_way() {
    for (server, client) in
        [(Program::Ours, Program::Ours), (Program::Ours, Program::C), (Program::C, Program::Ours)]
    {
        exchange(server, client, SIW);
    }
}

fn exchange(server: Program, client: Program, address: &str) {
    let port = port();
    let server = listening(server.run("rdma_xserver", &["-c", "r", "-p", &port]));
    let client = client.run("rdma_xclient", &["-s", address, "-c", "Reliable", "-p", &port]);
    printed(client, &SENT);
    printed(server, &SERVED);
}

/// Checks that the client fails on rxe, which has no XRC queue pairs.
#[test]
#[ignore = "needs the test bed: cargo xtask test"]
fn xrc_client_fails_on_rxe() {
    for (program, reason) in [(Program::Ours, "EOPNOTSUPP"), (Program::C, "rdma_create_ep")] {
        let client = program.run("rdma_xclient", &["-s", roce_ip(), "-c", "x"]).finish();
        assert!(!client.status.success(), "{program:?}");
        assert_eq!(client.stdout, ["rdma_xclient: start", "rdma_xclient: end -1"]);
        assert!(client.stderr.contains(reason), "{program:?}: {}", client.stderr);
    }
}

/// Resolves the path to a server at `port`, or to its listener.
fn found(node: Option<&str>, port: &str, flags: AddrInfoFlags) -> AddrInfo {
    let hints =
        AddrInfoHints { flags, port_space: Some(PortSpace::Tcp), ..AddrInfoHints::default() };
    let found = getaddrinfo(node, Some(port), Some(&hints)).expect("numbers");
    found.into_iter().next().expect("an address should be found")
}

/// Returns the attributes of a queue pair that sends 16 bytes and receives from the id's queue.
fn queue_pair() -> EndpointQpInit {
    let caps = QueuePairCaps { max_inline_data: 16, ..QueuePairCaps::default() };
    EndpointQpInit { caps, signal_all: true, ..EndpointQpInit::default() }
}

#[test]
#[ignore = "needs the test bed: cargo xtask test"]
fn c_client_sends_to_shared_receive_queue() {
    let device = promised_device(roce_name());
    let port = port();
    let listener = CmId::create_ep(&found(None, &port, AddrInfoFlags::PASSIVE), None);
    let listener = listener.expect("an endpoint");
    listener.listen(0).expect("listen");
    let client = Program::C.run("rdma_xclient", &["-s", roce_ip(), "-c", "r", "-p", &port]);
    let server = listener.get_request().expect("a request");
    assert_eq!(server.context().expect("a device").device().name(), device.name());
    let attributes = SharedReceiveQueueAttributes::default();
    let srq = server.create_srq(None, attributes).expect("shared receive queue");
    let qp = server.create_ep_qp(&queue_pair()).expect("queue pair");
    let access = AccessFlags::IB_UVERBS_ACCESS_LOCAL_WRITE;
    let memory = MemoryRegion::alloc(srq.pd(), 64, access).expect("memory region");
    let scatter = [memory.sge(..).expect("the whole range should be valid")];
    // SAFETY: the region is dropped after the queue is destroyed, below.
    unsafe { srq.post_recv(&ReceiveRequest { wr_id: 7, scatter: &scatter }) }.expect("post");
    server.accept(&ConnParam::default()).expect("accept");
    let mut done = [Completion::default()];
    assert_eq!(qp.recv_cq().wait(&mut done).expect("a completion"), 1);
    assert!(done[0].is_success(), "{done:?}");
    assert_eq!((done[0].wr_id(), done[0].byte_len(), done[0].qp_num()), (7, 16, qp.number()));
    server.disconnect().expect("disconnect");
    printed(client, &SENT);
    server.destroy().expect("destroy");
    qp.destroy().expect("destroy");
    srq.destroy().expect("destroy");
    drop(memory);
}

#[test]
#[ignore = "needs the test bed: cargo xtask test"]
fn c_server_accepts_client_with_srq() {
    let port = port();
    let server = listening(Program::C.run("rdma_xserver", &["-c", "r", "-p", &port]));
    let active = found(Some(roce_ip()), &port, AddrInfoFlags::empty());
    let client = CmId::create_ep(&active, None).expect("an endpoint");
    let attributes = SharedReceiveQueueAttributes::default();
    client.create_srq(None, attributes).expect("shared receive queue");
    let qp = client.create_ep_qp(&queue_pair()).expect("queue pair");
    client.connect(&ConnParam::default()).expect("connect");
    let (operation, payload) = (SendOperation::Send, Payload::Inline(&[0; 16]));
    let request = SendRequest { wr_id: 5, operation, payload, flags: SendFlags::empty() };
    // SAFETY: the request names no memory.
    unsafe { qp.post_send(&request) }.expect("post a send");
    let mut done = [Completion::default()];
    assert_eq!(qp.send_cq().wait(&mut done).expect("a completion"), 1);
    assert!(done[0].is_success(), "{done:?}");
    client.disconnect().expect("disconnect");
    printed(server, &SERVED);
}
