//! `rdma_xserver` and `rdma_xclient` with XRC, on the emulated card.

use rdmacm_tests::roce::roce_ip;

use crate::connections::printed;
use crate::rping::{Program, listening, port};

every_pair! {
    messages_reach_named_queue
}

fn messages_reach_named_queue(server: Program, client: Program) {
    let port = port();
    let server = listening(server.run("rdma_xserver", &["-c", "x", "-p", &port]));
    let client = client.run("rdma_xclient", &["-s", roce_ip(), "-c", "XRC", "-p", &port]);
    printed(client, &["rdma_xclient: start", "rdma_xclient: end 0"]);
    printed(server, &["rdma_xserver: start", "rdma_xserver: end 0"]);
}
