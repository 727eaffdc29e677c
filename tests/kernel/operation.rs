//! Every operation of a send queue: its effect, its completions, and the devices that lack it.

use rdmacm::ErrorKind;
use rdmacm::cm::ConnParam;
use rdmacm::verbs::{
    AccessFlags, FlushPlacement, MemoryRegion, MemoryWindow, MemoryWindowType, QueuePairCaps,
    SendFlags, SendOperation, WcOpcode, WcStatus,
};

use crate::fault::failed;
use crate::fixtures::{Connection, Side, assert_invalid, is_card, promised, roce, siw};
use crate::io::Shape;
use crate::transfer::pattern;

const SIGNALED: SendFlags = SendFlags::SIGNALED;

/// Returns a shape whose memory grants peers every access that the kernel knows.
fn shape() -> Shape {
    let mut access = Shape::default().access | AccessFlags::IB_UVERBS_ACCESS_REMOTE_ATOMIC;
    if knows_flush() {
        access |= AccessFlags::IB_UVERBS_ACCESS_FLUSH_GLOBAL;
    }
    let shape = Shape::default();
    let caps = QueuePairCaps { max_send_sge: 2, ..shape.caps };
    Shape { caps, access, ..shape }
}

/// Returns `true` if the device has flush and atomic write.
fn knows_flush() -> bool {
    !is_card() && promised("RDMACM_TEST_KERNEL") != "6.1"
}

/// Returns the part of an error that names the kernel or the driver which lacks flush and atomic write.
fn lacks_flush() -> &'static str {
    if is_card() { "mlx5" } else { "6.2" }
}

fn connection() -> Connection {
    let param = ConnParam {
        responder_resources: 4,
        initiator_depth: 4,
        retry_count: 1,
        ..ConnParam::default()
    };
    Connection::to(roce(0), shape(), &param)
}

#[track_caller]
fn unsupported(result: rdmacm::Result<()>, what: &str) {
    let error = result.expect_err("the device should lack the operation");
    assert!(matches!(error.kind(), ErrorKind::Unsupported(_)), "{error}");
    assert!(error.to_string().contains(what), "{error}");
    assert_eq!(error.errno(), libc::EOPNOTSUPP);
}

fn number(side: &Side, at: usize) -> u64 {
    u64::from_ne_bytes(side.io.bytes(at..at + 8).try_into().expect("the slice should have 8 bytes"))
}

#[test]
#[ignore = "needs the test bed: cargo xtask test"]
fn immediate_data_arrives_with_send() {
    let mut connection = connection();
    let Connection { client, server, .. } = &mut connection;
    for length in [0, 1, 5, 1024, 1025, 4000] {
        let bytes = pattern(length, length);
        client.io.fill(0, &bytes);
        server.io.fill(0, &[0xee; 4096]);
        server.io.receive(1, 8..4090).expect("post a receive");
        let imm_data = 0x0102_03f0 + u32::try_from(length).expect("the number should fit");
        let send = SendOperation::SendWithImm { imm_data };
        client.io.post(2, send, 0..length, SIGNALED).expect("post a send");
        let received = server.io.done(1);
        assert_eq!((received.opcode(), received.is_receive()), (WcOpcode::IB_WC_RECV, true));
        assert_eq!(received.byte_len() as usize, length);
        assert_eq!((received.imm_data(), received.invalidated_rkey()), (Some(imm_data), None));
        let sent = client.io.done(2);
        assert_eq!((sent.opcode(), sent.is_receive()), (WcOpcode::IB_UVERBS_WC_SEND, false));
        assert_eq!(sent.imm_data(), None, "only the receiver should get immediate data");
        let all = server.io.bytes(0..4096);
        assert!(all[..8] == [0xee; 8] && all[8 + length..].iter().all(|byte| *byte == 0xee));
        assert!(all[8..8 + length] == bytes);
    }
    // A send without immediate data reports none.
    server.io.receive(3, 0..8).expect("post a receive");
    client.io.post(4, SendOperation::Send, 0..8, SIGNALED).expect("post a send");
    assert_eq!(server.io.done(3).imm_data(), None);
    client.io.done(4);
    connection.close();
}

#[test]
#[ignore = "needs the test bed: cargo xtask test"]
fn immediate_data_arrives_with_write() {
    let mut connection = connection();
    let Connection { client, server, .. } = &mut connection;
    for length in [0, 1, 1024, 1025, 3000] {
        let bytes = pattern(length, length);
        client.io.fill(0, &bytes);
        server.io.fill(0, &[0xee; 4096]);
        // No bytes are stored into the memory of the receive.
        server.io.receive(1, 0..64).expect("post a receive");
        let SendOperation::Write { remote_addr, rkey } = server.io.written_at(101) else {
            panic!("the operation should be a write");
        };
        let write = SendOperation::WriteWithImm { remote_addr, rkey, imm_data: u32::MAX };
        client.io.post(2, write, 0..length, SIGNALED).expect("post a write");
        let received = server.io.done(1);
        assert_eq!(received.opcode(), WcOpcode::IB_WC_RECV_RDMA_WITH_IMM);
        assert_eq!(received.imm_data(), Some(u32::MAX));
        assert_eq!(received.byte_len() as usize, length);
        assert_eq!(client.io.done(2).opcode(), WcOpcode::IB_UVERBS_WC_RDMA_WRITE);
        let all = server.io.bytes(0..4096);
        assert!(all[..101] == [0xee; 101]);
        assert!(all[101..101 + length] == bytes);
        assert!(all[101 + length..].iter().all(|byte| *byte == 0xee));
    }
    connection.close();
}

#[test]
#[ignore = "needs the test bed: cargo xtask test"]
fn atomics_change_memory_and_return_old_value() {
    let mut connection = connection();
    let Connection { client, server, .. } = &mut connection;
    let (remote_addr, rkey) = (server.io.memory().addr() + 16, server.io.memory().rkey());
    server.io.fill(0, &[0xee; 64]);
    server.io.fill(16, &7_u64.to_ne_bytes());
    client.io.fill(0, &[0xdd; 64]);
    let swap = |compare, swap| SendOperation::CompareSwap { remote_addr, rkey, compare, swap };
    let add = |add| SendOperation::FetchAdd { remote_addr, rkey, add };
    let big = 0x0102_0304_0506_0708;
    let swapped = WcOpcode::IB_UVERBS_WC_COMP_SWAP;
    let added = WcOpcode::IB_UVERBS_WC_FETCH_ADD;
    for (operation, opcode, before, after) in [
        (swap(8, 9), swapped, 7, 7),
        (swap(7, big), swapped, 7, big),
        (add(1), added, big, big + 1),
        (add(u64::MAX), added, big + 1, big),
        (swap(big, u64::MAX), swapped, big, u64::MAX),
        (add(2), added, u64::MAX, 1),
    ] {
        // The result goes to unaligned memory, in two scatter/gather entries.
        client.io.post_parts(1, operation, &[9..12, 33..38], SIGNALED).expect("post an atomic");
        let done = client.io.done(1);
        assert_eq!((done.opcode(), done.byte_len()), (opcode, 8));
        let bytes = client.io.bytes(0..64);
        let fetched = [&bytes[9..12], &bytes[33..38]].concat();
        assert_eq!(
            u64::from_ne_bytes(fetched.try_into().expect("the slice should have 8 bytes")),
            before
        );
        assert_eq!(number(server, 16), after);
    }
    let around = |bytes: Vec<u8>, part: std::ops::Range<usize>, guard: u8| {
        let outside = bytes.iter().enumerate().filter(|(place, _)| !part.contains(place));
        outside.for_each(|(place, byte)| assert_eq!(*byte, guard, "at {place}"));
    };
    around(server.io.bytes(0..64), 16..24, 0xee);
    around(client.io.bytes(12..33), 0..0, 0xdd);
    connection.close();
}

#[test]
#[ignore = "needs the test bed: cargo xtask test"]
fn invalid_atomics_are_refused_locally() {
    let connection = connection();
    let Connection { client, server, .. } = &connection;
    let (addr, rkey) = (server.io.memory().addr(), server.io.memory().rkey());
    for remote_addr in [addr + 1, addr + 4, addr + 7] {
        let bytes = [0; 8];
        let swap = SendOperation::CompareSwap { remote_addr, rkey, compare: 0, swap: 0 };
        let refused = client
            .io
            .post(1, swap, 0..8, SIGNALED)
            .expect_err("an unaligned address should be refused");
        assert_invalid(&refused, &["multiple of 8"]);
        let add = SendOperation::FetchAdd { remote_addr, rkey, add: 0 };
        let refused = client
            .io
            .post(1, add, 0..8, SIGNALED)
            .expect_err("an unaligned address should be refused");
        assert_invalid(&refused, &["multiple of 8"]);
        let write = SendOperation::AtomicWrite { remote_addr, rkey, bytes };
        assert_invalid(
            &client.io.post_bare(1, write).expect_err("an unaligned address should be refused"),
            &["multiple of 8"],
        );
    }
    let add = SendOperation::FetchAdd { remote_addr: addr, rkey, add: 0 };
    for part in [0..0, 0..7, 0..9, 0..16] {
        let refused = client
            .io
            .post(1, add, part, SIGNALED)
            .expect_err("a result of other than 8 bytes should be refused");
        assert_invalid(&refused, &["eight bytes"]);
    }
    let refused = client
        .io
        .post_inline(1, add, &[0; 8], SIGNALED)
        .expect_err("inline data should be refused");
    assert_invalid(&refused, &["registered memory"]);
    let key = SendOperation::LocalInvalidate { rkey };
    assert_invalid(
        &client.io.post(1, key, 0..8, SIGNALED).expect_err("a payload should be refused"),
        &["no payload"],
    );
    // The queue holds none of the refused requests.
    assert!(client.io.polled().is_none());
    client.io.post(2, add, 0..8, SIGNALED).expect("post an atomic");
    client.io.done(2);
    connection.close();
}

#[test]
#[ignore = "needs the test bed: cargo xtask test"]
fn unknown_flags_are_refused_locally_also_on_siw() {
    for address in [roce(0), siw(0)] {
        let connection = Connection::to(address, Shape::default(), &ConnParam::default());
        let client = &connection.client;
        // The kernel uses the next bit for inline data, and would take the entries for such data.
        for bit in (0..32).map(|bit| 1 << bit).filter(|bit| !SendFlags::all().bits() & bit != 0) {
            let flags = SendFlags::from_bits_retain(bit) | SIGNALED;
            let refused = client.io.post(1, SendOperation::Send, 0..4096, flags);
            assert_invalid(&refused.expect_err("an unknown flag should be refused"), &["flags"]);
        }
        assert!(client.io.polled().is_none());
        connection.server.io.receive(2, 0..8).expect("post a receive");
        client.io.post(3, SendOperation::Send, 0..8, SIGNALED).expect("post a send");
        client.io.done(3);
        connection.server.io.done(2);
        connection.close();
    }
}

#[test]
#[ignore = "needs the test bed: cargo xtask test"]
fn atomics_need_remote_atomic_access() {
    let connection = connection();
    let Connection { client, server, .. } = &connection;
    let access = AccessFlags::IB_UVERBS_ACCESS_LOCAL_WRITE
        | AccessFlags::IB_UVERBS_ACCESS_REMOTE_WRITE
        | AccessFlags::IB_UVERBS_ACCESS_REMOTE_READ;
    let closed = MemoryRegion::alloc(server.io.qp().pd(), 64, access).expect("memory region");
    let (remote_addr, rkey) = (closed.addr(), closed.rkey());
    let add = SendOperation::FetchAdd { remote_addr, rkey, add: 1 };
    client.io.post(1, add, 0..8, SIGNALED).expect("post an atomic");
    failed(client, 1, WcStatus::IB_WC_REM_ACCESS_ERR);
    let mut bytes = [1; 64];
    closed.read(0, &mut bytes).expect("read");
    assert_eq!(bytes, [0; 64]);
    connection.close();
}

#[test]
#[ignore = "needs the test bed: cargo xtask test"]
fn atomic_write_works_unless_kernel_is_too_old() {
    let mut connection = connection();
    let Connection { client, server, .. } = &mut connection;
    server.io.fill(0, &[0xee; 64]);
    let (remote_addr, rkey) = (server.io.memory().addr() + 8, server.io.memory().rkey());
    let bytes = *b"at once!";
    let write = SendOperation::AtomicWrite { remote_addr, rkey, bytes };
    if knows_flush() {
        client.io.post_bare(1, write).expect("post an atomic write");
        assert_eq!(client.io.done(1).opcode(), WcOpcode::IB_UVERBS_WC_ATOMIC_WRITE);
        let all = server.io.bytes(0..64);
        assert!(all[..8] == [0xee; 8] && all[8..16] == bytes && all[16..] == [0xee; 48]);
        let refused = client
            .io
            .post(2, write, 0..8, SIGNALED)
            .expect_err("a payload of an atomic write should be refused");
        assert_invalid(&refused, &["no payload"]);
    } else {
        unsupported(client.io.post_bare(1, write), lacks_flush());
        client
            .io
            .post(2, server.io.written_at(0), 0..8, SIGNALED)
            .expect("a later post should succeed");
        client.io.done(2);
    }
    connection.close();
}

#[test]
#[ignore = "needs the test bed: cargo xtask test"]
fn flush_works_unless_kernel_is_too_old() {
    let connection = connection();
    let Connection { client, server, .. } = &connection;
    let (remote_addr, rkey) = (server.io.memory().addr(), server.io.memory().rkey());
    let placement = FlushPlacement::GLOBAL;
    let flush = |length| SendOperation::Flush { remote_addr, rkey, length, placement };
    if knows_flush() {
        for length in [Some(0), Some(1), Some(4096), None] {
            client.io.post_bare(1, flush(length)).expect("post a flush");
            assert_eq!(client.io.done(1).opcode(), WcOpcode::IB_UVERBS_WC_FLUSH);
        }
        // The range is beyond the end of the region.
        client.io.post_bare(2, flush(Some(4097))).expect("post a flush");
        failed(client, 2, WcStatus::IB_WC_REM_ACCESS_ERR);
    } else {
        unsupported(client.io.post_bare(1, flush(None)), lacks_flush());
    }
    connection.close();
}

/// Checks that a flush without placement is refused: rxe would execute it without effect.
#[test]
#[ignore = "needs the test bed: cargo xtask test"]
fn flush_without_placement_is_refused() {
    let connection = connection();
    let Connection { client, server, .. } = &connection;
    let (remote_addr, rkey) = (server.io.memory().addr(), server.io.memory().rkey());
    for bits in [0, 4, 5] {
        let placement = FlushPlacement::from_bits_retain(bits);
        let flush = SendOperation::Flush { remote_addr, rkey, length: Some(8), placement };
        let error = client
            .io
            .post_bare(1, flush)
            .expect_err("a flush without a placement should be refused");
        assert_invalid(&error, &["post a send", "placement"]);
    }
    connection.close();
}

#[test]
#[ignore = "needs the test bed: cargo xtask test"]
fn persistence_flush_of_plain_memory_is_refused() {
    let connection = connection();
    let Connection { client, server, .. } = &connection;
    let (remote_addr, rkey) = (server.io.memory().addr(), server.io.memory().rkey());
    let placement = FlushPlacement::PERSISTENT;
    let flush = SendOperation::Flush { remote_addr, rkey, length: Some(8), placement };
    if knows_flush() {
        client.io.post_bare(1, flush).expect("post a flush");
        failed(client, 1, WcStatus::IB_WC_REM_ACCESS_ERR);
    } else {
        unsupported(client.io.post_bare(1, flush), lacks_flush());
    }
    connection.close();
}

#[test]
#[ignore = "needs the test bed: cargo xtask test"]
fn operations_missing_on_siw0_are_refused_early() {
    let connection = Connection::to(siw(0), Shape::default(), &ConnParam::default());
    let Connection { client, server, .. } = &connection;
    let (remote_addr, rkey) = (server.io.memory().addr(), server.io.memory().rkey());
    let (imm_data, placement) = (1, FlushPlacement::GLOBAL);
    for (operation, what) in [
        (SendOperation::SendWithImm { imm_data }, "immediate data"),
        (SendOperation::WriteWithImm { remote_addr, rkey, imm_data }, "immediate data"),
        (SendOperation::CompareSwap { remote_addr, rkey, compare: 0, swap: 0 }, "atomics"),
        (SendOperation::FetchAdd { remote_addr, rkey, add: 0 }, "atomics"),
    ] {
        unsupported(client.io.post(1, operation, 0..8, SIGNALED), what);
    }
    for (operation, what) in [
        (SendOperation::AtomicWrite { remote_addr, rkey, bytes: [0; 8] }, "atomics"),
        (SendOperation::Flush { remote_addr, rkey, length: None, placement }, "flush"),
        (SendOperation::LocalInvalidate { rkey }, "invalidation"),
    ] {
        unsupported(client.io.post_bare(1, operation), what);
    }
    let error = MemoryWindow::new(client.io.qp().pd(), MemoryWindowType::IB_MW_TYPE_1)
        .expect_err("siw should have no windows");
    assert_eq!(error.errno(), libc::EOPNOTSUPP, "{error}");
    assert!(client.io.polled().is_none());
    server.io.receive(2, 0..8).expect("post a receive");
    client.io.post(3, SendOperation::Send, 0..8, SIGNALED).expect("post a send");
    server.io.done(2);
    client.io.done(3);
    connection.close();
}

#[test]
#[ignore = "needs the test bed: cargo xtask test"]
fn send_with_invalidate_revokes_region_on_siw0() {
    let caps = QueuePairCaps { max_inline_data: 16, ..QueuePairCaps::default() };
    let shape = Shape { caps, ..Shape::default() };
    let connection = Connection::to(siw(0), shape, &ConnParam::default());
    let Connection { client, server, .. } = &connection;
    let access =
        AccessFlags::IB_UVERBS_ACCESS_LOCAL_WRITE | AccessFlags::IB_UVERBS_ACCESS_REMOTE_WRITE;
    let region = MemoryRegion::alloc(server.io.qp().pd(), 64, access).expect("memory region");
    let (remote_addr, rkey) = (region.addr(), region.rkey());
    client.io.post(1, SendOperation::Write { remote_addr, rkey }, 0..8, SIGNALED).expect("post");
    client.io.done(1);
    let send = SendOperation::SendWithInvalidate { rkey };
    unsupported(client.io.post_inline(2, send, b"inline", SIGNALED), "inline");
    server.io.receive(2, 0..64).expect("post a receive");
    client.io.post(3, send, 0..8, SIGNALED).expect("post a send");
    assert_eq!(server.io.done(2).byte_len(), 8);
    client.io.done(3);
    // The use of the invalidated key ends the connection.
    server.io.receive(4, 0..64).expect("post a receive");
    client.io.post(5, SendOperation::Write { remote_addr, rkey }, 0..8, SIGNALED).expect("post");
    client.io.done(5);
    assert_eq!(server.io.next().status(), WcStatus::IB_WC_WR_FLUSH_ERR);
}

/// Messages of two gigabytes are refused, because rxe and siw add the lengths in a signed word.
#[test]
#[ignore = "needs the test bed: cargo xtask test"]
fn two_gigabyte_messages_are_refused_on_rxe_and_siw() {
    const MOST: u32 = u32::MAX >> 1;
    let caps = QueuePairCaps { max_send_sge: 2, max_recv_sge: 2, ..QueuePairCaps::default() };
    for address in [roce(0), siw(0)] {
        let shape = Shape { caps, ..Shape::default() };
        let connection = Connection::to(address, shape, &ConnParam::default());
        let Connection { client, server, .. } = &connection;
        for lengths in [&[MOST + 1][..], &[u32::MAX], &[MOST, 1], &[u32::MAX; 2]] {
            let error =
                client.io.post_too_much(1, lengths).expect_err("the message should be too long");
            assert_invalid(&error, &["post a send", "a message of"]);
            let error =
                server.io.receive_too_much(2, lengths).expect_err("the receive should be too long");
            assert_invalid(&error, &["post a receive", "a message of"]);
        }
        server.io.receive(3, 0..8).expect("post a receive");
        client
            .io
            .post(4, SendOperation::Send, 0..8, SIGNALED)
            .expect("a later post should succeed");
        server.io.done(3);
        client.io.done(4);
        connection.close();
    }
}
