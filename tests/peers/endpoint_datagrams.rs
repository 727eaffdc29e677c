//! The safe tier's datagrams against rdma-core's `udaddy` and `mckey`.

use std::net::SocketAddr;
use std::time::Duration;

use rdmacm::cm::Membership;
use rdmacm::endpoint::{DatagramConfig, DatagramPeer, DatagramSocket, Message, tokio as tasks};
use tokio::runtime::Builder;
use tokio::time;

use crate::datagram::{assert_printed, start};
use crate::rping::{Program, listening};
use rdmacm_tests::roce::{roce_ip, roce_ip_v6};

const LONG: Duration = Duration::from_secs(60);

/// Returns a socket on a port of `address`.
fn socket(address: &str, port: u16) -> DatagramSocket {
    let address = SocketAddr::new(address.parse().expect("an address"), port);
    DatagramSocket::bind(address, &DatagramConfig::default()).expect("bind")
}

/// Sends `length` bytes, and with them, as C does, the number of the queue pair to answer.
fn send(socket: &DatagramSocket, length: usize, peer: &DatagramPeer) {
    let mut buffer = socket.acquire_buffer_timeout(LONG).expect("a buffer");
    buffer.set_len(length).expect("the length should fit into a buffer");
    buffer.set_imm_data(Some(socket.qp_num()));
    socket.post_send_to(buffer, peer).expect("post");
}

fn receive(socket: &DatagramSocket, length: usize) -> (Message, DatagramPeer) {
    let (message, sender) = socket.recv_from_timeout(LONG).expect("receive");
    assert_eq!((message.len(), message.imm_data()), (length, Some(sender.qp_num())));
    (message, sender)
}

/// Exchanges datagrams with C's `udaddy` as the server, which has a queue pair for each client.
///
/// The server answers when all clients have sent their datagrams.
#[test]
#[ignore = "needs the test bed: cargo xtask test"]
fn c_udaddy_serves_socket() {
    for (address, length) in [(roce_ip(), 1024), (roce_ip_v6(), 100)] {
        let line = format!("udaddy -b {address} -c 2 -C 5 -S {length}");
        let server = listening(start(Program::C, &line));
        let socket = socket(address, 0);
        let at = SocketAddr::new(address.parse().expect("an address"), 7174);
        let peers = [(); 2].map(|()| {
            socket
                .start_resolve_peer(at)
                .and_then(|resolution| resolution.wait_timeout(LONG))
                .expect("resolve")
        });
        assert_ne!(peers[0], peers[1]);
        for _ in 0..5 {
            peers.iter().for_each(|peer| send(&socket, length, peer));
        }
        let mut answers = [0, 0];
        for _ in 0..10 {
            let (_, sender) = receive(&socket, length);
            let which = peers.iter().position(|peer| *peer == sender).expect("one of the two");
            answers[which] += 1;
        }
        assert_eq!(answers, [5, 5]);
        let lines = [
            "udaddy: starting server",
            "receiving data transfers",
            "sending replies",
            "data transfers complete",
            "test complete",
            "return status 0",
        ];
        assert_printed(&server.finish(), &lines, address);
    }
}

#[test]
#[ignore = "needs the test bed: cargo xtask test"]
fn c_udaddy_serves_tasks() {
    let server = listening(start(Program::C, &format!("udaddy -b {} -c 1 -C 5 -S 100", roce_ip())));
    let runtime = Builder::new_current_thread().enable_all().build().expect("a runtime");
    let exchange = async {
        let local = SocketAddr::new(roce_ip().parse().expect("an address"), 0);
        let config = DatagramConfig::default();
        let socket = tasks::DatagramSocket::bind(local, &config).await.expect("bind");
        let peer = socket.resolve_peer(SocketAddr::new(local.ip(), 7174)).await.expect("resolve");
        for _ in 0..5 {
            let mut buffer = socket.acquire_buffer().await.expect("a buffer");
            buffer.set_len(100).expect("the length should fit into a buffer");
            buffer.set_imm_data(Some(socket.qp_num()));
            drop(socket.send_to(buffer, &peer).await.expect("send"));
        }
        for _ in 0..5 {
            let (message, sender) = socket.recv_from().await.expect("receive");
            assert_eq!((message.len(), message.imm_data()), (100, Some(peer.qp_num())));
            assert_eq!(sender, peer);
        }
    };
    let in_time = async { time::timeout(LONG, exchange).await };
    runtime.block_on(in_time).expect("no message should be lost");
    let ended = server.finish();
    assert!(ended.status.success(), "{}", ended.stderr);
}

#[test]
#[ignore = "needs the test bed: cargo xtask test"]
fn socket_serves_c_udaddy() {
    for (address, length) in [(roce_ip(), 1024), (roce_ip_v6(), 100)] {
        let socket = socket(address, 7174);
        let line = format!("udaddy -s {address} -c 2 -C 5 -S {length}");
        let client = start(Program::C, &line);
        for _ in 0..10 {
            let (_, sender) = receive(&socket, length);
            send(&socket, length, &sender);
        }
        let lines = [
            "udaddy: starting client",
            "udaddy: connecting",
            "initiating data transfers",
            "receiving data transfers",
            "data transfers complete",
            "test complete",
            "return status 0",
        ];
        assert_printed(&client.finish(), &lines, address);
    }
}

/// Runs both programs at the same time, because each waits for three seconds after joining.
///
/// Switches do not report when they are ready.
#[test]
#[ignore = "needs the test bed: cargo xtask test"]
fn c_mckeys_send_and_receive() {
    let socket = socket(roce_ip(), 0);
    let group = |number| SocketAddr::from(([239, 1, 4, number], 0));
    let from_c = socket
        .start_join_multicast(group(1), Membership::Full)
        .and_then(|join| join.wait_timeout(LONG))
        .expect("join");
    let to_c = socket
        .start_join_multicast(group(2), Membership::SendOnly)
        .and_then(|join| join.wait_timeout(LONG))
        .expect("join");
    let options = format!("-b {} -C 5 -S 500", roce_ip());
    let sender = start(Program::C, &format!("mckey -s -o -m 239.1.4.1 {options}"));
    let mut receiver = start(Program::C, &format!("mckey -m 239.1.4.2 {options}"));
    while !receiver.next_line().expect("the receiver should join").starts_with("mckey: joined") {}
    for _ in 0..5 {
        send(&socket, 500, to_c.peer());
    }
    let senders = [(); 5].map(|()| receive(&socket, 500).1);
    assert!(senders.iter().all(|sender| *sender == senders[0]));
    let ended = sender.finish();
    assert!(ended.status.success(), "{}", ended.stderr);
    let ended = receiver.finish();
    assert!(ended.status.success(), "{}", ended.stderr);
    assert!(ended.stdout.contains(&"data transfers complete".to_owned()), "{:?}", ended.stdout);
    drop(from_c);
}
