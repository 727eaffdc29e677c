//! Transfers over a connection: sends, writes and reads of every shape.

use std::net::{Ipv6Addr, SocketAddr, SocketAddrV6};
use std::ops::Range;

use nix::net::if_::if_nametoindex;
use rdmacm::cm::ConnParam;
use rdmacm::verbs::{QueuePairCaps, SendFlags, SendOperation, WcOpcode};

use crate::fixtures::{Connection, Side, assert_invalid, device, roce_end, roce_name, roce_v6};
use crate::io::Shape;

const SIGNALED: SendFlags = SendFlags::SIGNALED;

/// The number of unused bytes before and after the moved bytes.
const GUARD: usize = 64;

/// Returns bytes that differ from their neighbors, and from the bytes of another `seed`.
pub(crate) fn pattern(seed: usize, length: usize) -> Vec<u8> {
    let byte = |place: usize| u8::try_from((seed * 89 + place * 7 + place / 251) % 251);
    (0..length).map(|place| byte(place).expect("the remainder should be below 251")).collect()
}

fn large() -> Shape {
    Shape { memory: (1 << 20) + 3 * GUARD, ..Shape::default() }
}

/// Returns the range of `length` bytes in the memory, which begins at an odd address.
fn place(length: usize) -> Range<usize> {
    GUARD + 1..GUARD + 1 + length
}

/// Fills the memory of one side with the pattern, and that of the other side with guard bytes.
fn prepare(from: &mut Side, to: &mut Side, length: usize) -> Vec<u8> {
    let bytes = pattern(length, length);
    from.io.fill(place(length).start, &bytes);
    to.io.fill(0, &vec![0xee; length + 3 * GUARD]);
    bytes
}

/// Asserts that the bytes have arrived, and that the bytes around them are unchanged.
#[track_caller]
fn check(to: &Side, bytes: &[u8]) {
    let Range { start, end } = place(bytes.len());
    let all = to.io.bytes(0..end + GUARD);
    assert!(all[..start].iter().all(|byte| *byte == 0xee), "{} bytes: before", bytes.len());
    assert!(all[start..end] == *bytes, "{} bytes differ", bytes.len());
    assert!(all[end..].iter().all(|byte| *byte == 0xee), "{} bytes: behind", bytes.len());
}

fn send(from: &mut Side, to: &mut Side, length: usize) {
    let bytes = prepare(from, to, length);
    // The receive has more room than the message needs.
    let room = place(length).start..place(length).end + GUARD / 2;
    to.io.receive(7, room).expect("post a receive");
    from.io.post(8, SendOperation::Send, place(length), SIGNALED).expect("post a send");
    let received = to.io.done(7);
    assert_eq!(received.byte_len() as usize, length);
    assert_eq!(received.opcode(), WcOpcode::IB_WC_RECV);
    assert_eq!(received.qp_num(), to.io.qp().number());
    let sent = from.io.done(8);
    assert_eq!(sent.opcode(), WcOpcode::IB_UVERBS_WC_SEND);
    assert_eq!(sent.qp_num(), from.io.qp().number());
    check(to, &bytes);
}

fn write(from: &mut Side, to: &mut Side, length: usize) {
    let bytes = prepare(from, to, length);
    let there = to.io.written_at(place(length).start as u64);
    from.io.post(9, there, place(length), SIGNALED).expect("post a write");
    assert_eq!(from.io.done(9).opcode(), WcOpcode::IB_UVERBS_WC_RDMA_WRITE);
    check(to, &bytes);
    assert!(to.io.polled().is_none(), "the peer should get no completion");
}

fn read(from: &mut Side, to: &mut Side, length: usize) {
    let bytes = prepare(from, to, length);
    let there = from.io.read_at(place(length).start as u64);
    to.io.post(10, there, place(length), SIGNALED).expect("post a read");
    let completion = to.io.done(10);
    assert_eq!(completion.opcode(), WcOpcode::IB_UVERBS_WC_RDMA_READ);
    check(to, &bytes);
}

#[test]
#[ignore = "needs the test bed: cargo xtask test"]
fn transfers_work_over_ipv6() {
    let mut connection = Connection::to(roce_v6(0), large(), &ConnParam::default());
    let peer = connection.client.id.peer_addr().expect("query").expect("the id should have a peer");
    assert!(peer.is_ipv6(), "{peer}");
    let Connection { client, server, .. } = &mut connection;
    for movement in [send, write, read] {
        movement(client, server, 5000);
    }
    connection.close();
}

#[test]
#[ignore = "needs the test bed: cargo xtask test"]
fn transfers_work_over_link_local_address() {
    let port = device(roce_name()).port(1).expect("rxe0 should have a port");
    let mut addresses = port.gids().expect("GIDs").map(|entry| Ipv6Addr::from(entry.gid));
    let address = addresses
        .find(Ipv6Addr::is_unicast_link_local)
        .expect("the port should have a link-local address");
    let scope = if_nametoindex(roce_end()).expect("the device should exist");
    let address = SocketAddrV6::new(address, 0, 0, scope);
    let mut connection = Connection::to(address.into(), large(), &ConnParam::default());
    let Connection { client, server, .. } = &mut connection;
    let SocketAddr::V6(peer) =
        client.id.peer_addr().expect("query").expect("the id should have a peer")
    else {
        panic!("the peer address should be IPv6");
    };
    assert_eq!((peer.ip(), peer.scope_id()), (address.ip(), scope));
    send(client, server, 5000);
    connection.close();
}

#[test]
#[ignore = "needs the test bed: cargo xtask test"]
fn inline_data_arrives_up_to_limit() {
    let caps = QueuePairCaps { max_inline_data: 200, ..QueuePairCaps::default() };
    let mut connection = Connection::new(Shape { caps, ..Shape::default() });
    let Connection { client, server, .. } = &mut connection;
    let limit = client.io.qp().caps().max_inline_data as usize;
    assert!(limit >= 200, "{limit}");
    for length in [0, 1, limit - 1, limit] {
        let mut bytes = pattern(length, length);
        server.io.fill(0, &vec![0xee; limit + 8]);
        server.io.receive(1, 0..limit + 8).expect("post a receive");
        client.io.post_inline(2, SendOperation::Send, &bytes, SIGNALED).expect("post a send");
        // The places are free at once.
        let sent = bytes.clone();
        bytes.fill(0);
        assert_eq!(server.io.done(1).byte_len() as usize, length);
        client.io.done(2);
        assert_eq!(server.io.bytes(0..length), sent);
        assert_eq!(server.io.bytes(length..limit + 8), vec![0xee; limit + 8 - length]);

        let there = server.io.written_at(1);
        client.io.post_inline(3, there, &sent, SIGNALED).expect("post a write");
        client.io.done(3);
        assert_eq!(server.io.bytes(1..1 + length), sent);
    }
    let too_long = vec![0; limit + 1];
    let refused = client.io.post_inline(4, SendOperation::Send, &too_long, SIGNALED);
    let (given, most) = ((limit + 1).to_string(), limit.to_string());
    assert_invalid(
        &refused.expect_err("the message should be too long"),
        &["queue pair", &given, &most],
    );
    let read = client.io.post_inline(5, server.io.read_at(0), &[], SIGNALED);
    assert_invalid(&read.expect_err("an inline read should be refused"), &["read"]);
    // The queue holds none of the refused requests.
    assert!(client.io.polled().is_none());
    let there = server.io.written_at(0);
    client.io.post_inline(6, there, b"still there", SIGNALED).expect("post a write");
    client.io.done(6);
    assert_eq!(server.io.bytes(0..11), b"still there");
    connection.close();
}

#[test]
#[ignore = "needs the test bed: cargo xtask test"]
fn sges_are_gathered_and_scattered_in_order() {
    let caps = QueuePairCaps { max_send_sge: 5, max_recv_sge: 6, ..QueuePairCaps::default() };
    let mut connection = Connection::new(Shape { caps, memory: 8192, ..Shape::default() });
    let Connection { client, server, .. } = &mut connection;
    // The entries are not sorted, and differ on both sides. One is empty, and one crosses a page.
    let from = [5000..5001, 100..1400, 4000..4200, 7..7, 3000..3017];
    let to = [6000..6700, 10..11, 4090..4190, 20..517, 7000..7100, 900..1200];
    let source = pattern(1, 8192);
    let gathered: Vec<u8> = from.iter().flat_map(|part| source[part.clone()].to_vec()).collect();
    let scattered = |side: &Side| -> Vec<u8> {
        to.iter().flat_map(|part| side.io.bytes(part.clone())).take(gathered.len()).collect()
    };
    client.io.fill(0, &source);
    server.io.receive_into(1, &to).expect("post a receive");
    client.io.post_parts(2, SendOperation::Send, &from, SIGNALED).expect("post a send");
    assert_eq!(server.io.done(1).byte_len() as usize, gathered.len());
    client.io.done(2);
    assert!(scattered(server) == gathered);

    server.io.fill(0, &[0; 8192]);
    client.io.post_parts(3, server.io.written_at(2000), &from, SIGNALED).expect("post a write");
    client.io.done(3);
    assert!(server.io.bytes(2000..2000 + gathered.len()) == gathered);

    server.io.fill(0, &[0; 8192]);
    let parts = &to[..5];
    let length: usize = parts.iter().map(ExactSizeIterator::len).sum();
    server.io.post_parts(4, client.io.read_at(300), parts, SIGNALED).expect("post a read");
    server.io.done(4);
    let read: Vec<u8> = parts.iter().flat_map(|part| server.io.bytes(part.clone())).collect();
    assert!(read == source[300..300 + length]);

    let (send, receive) = (client.io.qp().caps(), server.io.qp().caps());
    let sges = vec![0..1; send.max_send_sge as usize + 1];
    let refused = client.io.post_parts(5, SendOperation::Send, &sges, SIGNALED);
    let most = send.max_send_sge.to_string();
    assert_invalid(
        &refused.expect_err("the request should have too many entries"),
        &[&sges.len().to_string(), &most],
    );
    let sges = vec![0..1; receive.max_recv_sge as usize + 1];
    let refused =
        server.io.receive_into(6, &sges).expect_err("the receive should have too many entries");
    assert_invalid(&refused, &[&sges.len().to_string(), &receive.max_recv_sge.to_string()]);
    assert_eq!(refused.errno(), libc::EINVAL);
    connection.close();
}

#[test]
#[ignore = "needs the test bed: cargo xtask test"]
fn fenced_send_carries_bytes_of_earlier_read() {
    let mut connection = Connection::new(Shape::default());
    let Connection { client, server, .. } = &mut connection;
    for round in 0..200 {
        server.io.fill(0, &[round; 1000]);
        server.io.receive(1, 2000..3000).expect("post a receive");
        client.io.post(2, server.io.read_at(0), 0..1000, SendFlags::empty()).expect("post a read");
        let fenced = SIGNALED | SendFlags::FENCE;
        client.io.post(3, SendOperation::Send, 0..1000, fenced).expect("post a send");
        client.io.done(3);
        server.io.done(1);
        assert!(server.io.bytes(2000..3000) == [round; 1000], "round {round}");
    }
    connection.close();
}
