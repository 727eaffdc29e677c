//! Requests that the device of this side or of the peer cannot execute.
#![expect(unsafe_code, reason = "posts requests that name memory which is not theirs")]

use std::ptr::NonNull;
use std::thread;

use rdmacm::cm::{ConnParam, EventType};
use rdmacm::verbs::{
    AccessFlags, MemoryRegion, Payload, QpState, ReceiveRequest, SendFlags, SendOperation,
    SendRequest, Sge, WcStatus,
};

use crate::fixtures::{Connection, Side, assert_invalid, is_card, promised, roce, roce_name};
use crate::io::Shape;

const SIGNALED: SendFlags = SendFlags::SIGNALED;

/// Returns a connection that does not retry if its peer is not ready.
fn connection() -> Connection {
    let param = ConnParam { retry_count: 1, rnr_retry_count: 1, ..ConnParam::default() };
    Connection::to(roce(0), Shape::default(), &param)
}

/// Checks that the next completion is the failure of `wr_id`, and that the queue pair moves to ERR.
#[track_caller]
pub(crate) fn failed(side: &Side, wr_id: u64, status: WcStatus) {
    let completion = side.io.next();
    assert_eq!((completion.wr_id(), completion.status()), (wr_id, status));
    assert!(!completion.is_success());
    assert_eq!(completion.qp_num(), side.io.qp().number());
    // The completion may arrive before the change of the state.
    while side.io.qp().query().expect("query").qp_state != QpState::IB_QPS_ERR {
        thread::yield_now();
    }
}

/// Returns the status of a request that failed on this side because of `cause`.
///
/// rxe of kernels after 6.1 reports only that the request was flushed.
pub(crate) fn reported(cause: WcStatus) -> WcStatus {
    match is_card() || promised("RDMACM_TEST_KERNEL") == "6.1" {
        true => cause,
        false => WcStatus::IB_WC_WR_FLUSH_ERR,
    }
}

#[test]
#[ignore = "needs the test bed: cargo xtask test"]
fn wrong_key_is_remote_access_error() {
    for read in [false, true] {
        let connection = connection();
        let Connection { client, server, .. } = &connection;
        let (remote_addr, rkey) = (server.io.memory().addr(), server.io.memory().rkey() ^ 0x55);
        let operation = match read {
            false => SendOperation::Write { remote_addr, rkey },
            true => SendOperation::Read { remote_addr, rkey },
        };
        client.io.post(1, operation, 0..64, SIGNALED).expect("post");
        failed(client, 1, WcStatus::IB_WC_REM_ACCESS_ERR);
        // Later requests are flushed.
        client.io.post(2, server.io.written_at(0), 0..64, SIGNALED).expect("post");
        failed(client, 2, WcStatus::IB_WC_WR_FLUSH_ERR);
        connection.close();
    }
}

#[test]
#[ignore = "needs the test bed: cargo xtask test"]
fn access_beyond_region_is_remote_access_error() {
    let mut connection = connection();
    let Connection { client, server, .. } = &mut connection;
    let end = server.io.memory().len();
    server.io.fill(0, &vec![0xee; end]);
    client.io.post(1, server.io.written_at(end as u64 - 63), 0..64, SIGNALED).expect("post");
    failed(client, 1, WcStatus::IB_WC_REM_ACCESS_ERR);
    assert_eq!(server.io.bytes(end - 64..end), [0xee; 64]);
    connection.close();
}

#[test]
#[ignore = "needs the test bed: cargo xtask test"]
fn write_without_access_is_refused() {
    let connection = connection();
    let Connection { client, server, .. } = &connection;
    let mut closed =
        MemoryRegion::alloc(server.io.qp().pd(), 64, AccessFlags::IB_UVERBS_ACCESS_REMOTE_READ)
            .expect("memory region");
    closed.write(0, &[0xee; 64]).expect("write");
    let (remote_addr, rkey) = (closed.addr(), closed.rkey());
    let read = SendOperation::Read { remote_addr, rkey };
    client.io.post(1, read, 0..64, SIGNALED).expect("post");
    client.io.done(1);
    assert_eq!(client.io.bytes(0..64), [0xee; 64]);
    let write = SendOperation::Write { remote_addr, rkey };
    client.io.post(2, write, 64..128, SIGNALED).expect("post");
    failed(client, 2, WcStatus::IB_WC_REM_ACCESS_ERR);
    let mut bytes = [0; 64];
    closed.read(0, &mut bytes).expect("read");
    assert_eq!(bytes, [0xee; 64]);
    connection.close();
}

#[test]
#[ignore = "needs the test bed: cargo xtask test"]
fn destroyed_region_is_remote_access_error() {
    let connection = connection();
    let Connection { client, server, .. } = &connection;
    let access =
        AccessFlags::IB_UVERBS_ACCESS_LOCAL_WRITE | AccessFlags::IB_UVERBS_ACCESS_REMOTE_WRITE;
    let region = MemoryRegion::alloc(server.io.qp().pd(), 64, access).expect("memory region");
    let gone = SendOperation::Write { remote_addr: region.addr(), rkey: region.rkey() };
    client.io.post(1, gone, 0..64, SIGNALED).expect("post");
    client.io.done(1);
    drop(region);
    client.io.post(2, gone, 0..64, SIGNALED).expect("post");
    failed(client, 2, WcStatus::IB_WC_REM_ACCESS_ERR);
    connection.close();
}

#[test]
#[ignore = "needs the test bed: cargo xtask test"]
fn sge_beyond_region_is_refused_locally() {
    let connection = connection();
    let region = connection.client.io.memory();
    let length = region.len();
    assert_eq!(
        region.sge(..).expect("the range should be within the region").length as usize,
        length
    );
    assert_eq!(region.sge(length..).expect("an empty range at the end should be valid").length, 0);
    for part in [0..length + 1, length + 1..length + 1, usize::MAX - 1..usize::MAX] {
        let error = region.sge(part).expect_err("a range beyond the end should be refused");
        assert_invalid(&error, &["memory region", &format!("has {length} bytes")]);
    }
    #[expect(clippy::reversed_empty_ranges, reason = "that is what is tested")]
    region.sge(5..3).expect_err("a reversed range should be refused");
    region.sge(..=usize::MAX).expect_err("a range beyond the end should be refused");
    region.sge(..=length).expect_err("a range beyond the end should be refused");
    assert_invalid(
        &region
            .read(length - 3, &mut [0; 4])
            .expect_err("a range beyond the end should be refused"),
        &["4 bytes"],
    );
    connection.close();
}

#[test]
#[ignore = "needs the test bed: cargo xtask test"]
fn manual_sge_beyond_region_fails_in_device() {
    // The range of a send is beyond the end of the region.
    let sending = connection();
    let Connection { client, server, .. } = &sending;
    let whole = client.io.memory().sge(..).expect("the range should be within the region");
    let beyond = [Sge { length: whole.length + 1, ..whole }];
    server.io.receive(1, 0..4096).expect("post a receive");
    let request = SendRequest {
        wr_id: 2,
        operation: SendOperation::Send,
        payload: Payload::Gather(&beyond),
        flags: SIGNALED,
    };
    // SAFETY: the device reads only the part of the range that is in the region. The region outlives the queue pair.
    unsafe { client.io.qp().post_send(&request) }.expect("post a send");
    failed(client, 2, reported(WcStatus::IB_WC_LOC_PROT_ERR));
    sending.close();
    // The range of a receive is beyond the end of the region.
    let receiving = connection();
    let Connection { client, server, .. } = &receiving;
    let whole = server.io.memory().sge(..).expect("the range should be within the region");
    let beyond = [Sge { addr: (whole.addr.get() + 4090).into(), ..whole }];
    // SAFETY: the device writes only to the part of the range that is in the region. The region outlives the queue pair.
    unsafe { server.io.qp().post_recv(&ReceiveRequest { wr_id: 3, scatter: &beyond }) }
        .expect("post a receive");
    client.io.post(4, SendOperation::Send, 0..64, SIGNALED).expect("post a send");
    let status = match is_card() {
        true => WcStatus::IB_WC_LOC_PROT_ERR,
        false => WcStatus::IB_WC_LOC_QP_OP_ERR,
    };
    failed(server, 3, status);
    failed(client, 4, WcStatus::IB_WC_REM_OP_ERR);
    receiving.close();
}

#[test]
#[ignore = "needs the test bed: cargo xtask test"]
fn oversized_message_fails_on_both_sides() {
    let mut connection = connection();
    let Connection { client, server, .. } = &mut connection;
    server.io.fill(0, &[0xee; 128]);
    server.io.receive(1, 0..63).expect("post a receive");
    client.io.post(2, SendOperation::Send, 0..64, SIGNALED).expect("post a send");
    let [receiver, sender] = match is_card() {
        true => [WcStatus::IB_WC_LOC_LEN_ERR, WcStatus::IB_WC_REM_INV_REQ_ERR],
        false => [WcStatus::IB_WC_LOC_QP_OP_ERR, WcStatus::IB_WC_REM_OP_ERR],
    };
    failed(server, 1, receiver);
    failed(client, 2, sender);
    assert_eq!(server.io.bytes(63..128), [0xee; 65]);
    connection.close();
}

#[test]
#[ignore = "needs the test bed: cargo xtask test"]
fn send_to_unready_peer_exhausts_retries() {
    let connection = connection();
    let Connection { client, .. } = &connection;
    client.io.post(1, SendOperation::Send, 0..64, SIGNALED).expect("post a send");
    failed(client, 1, WcStatus::IB_WC_RNR_RETRY_EXC_ERR);
    connection.close();
}

#[test]
#[ignore = "needs the test bed: cargo xtask test"]
fn disconnect_flushes_posted_requests() {
    let connection = connection();
    let Connection { client, server, client_channel, server_channel } = &connection;
    for side in [client, server] {
        (0..5).for_each(|wr_id| side.io.receive(wr_id, 0..8).expect("post a receive"));
    }
    client.id.disconnect().expect("disconnect");
    server_channel.expect_event(EventType::Disconnected).expect("server should get the event");
    server.id.disconnect().expect("answer");
    client_channel.expect_event(EventType::Disconnected).expect("client should get the event");
    for side in [client, server] {
        (0..5).for_each(|wr_id| failed(side, wr_id, WcStatus::IB_WC_WR_FLUSH_ERR));
        // A later request is flushed, too, so all earlier ones have been flushed.
        side.io.post(6, SendOperation::Send, 0..8, SIGNALED).expect("post a send");
        failed(side, 6, WcStatus::IB_WC_WR_FLUSH_ERR);
        side.io.receive(7, 0..8).expect("post a receive");
        failed(side, 7, WcStatus::IB_WC_WR_FLUSH_ERR);
    }
}

#[test]
#[ignore = "needs the test bed: cargo xtask test"]
fn registered_program_memory_is_not_copied() {
    let mut connection = connection();
    let Connection { client, server, .. } = &mut connection;
    let mut memory = vec![0xee_u8; 300];
    let start = NonNull::from(&mut memory[100..200]).cast();
    let access =
        AccessFlags::IB_UVERBS_ACCESS_LOCAL_WRITE | AccessFlags::IB_UVERBS_ACCESS_REMOTE_WRITE;
    // SAFETY: the bytes stay allocated until the region is dropped, and are not borrowed before.
    let mut region = unsafe { MemoryRegion::register(server.io.qp().pd(), start, 100, access) }
        .expect("memory region");
    assert_eq!((region.len(), region.as_ptr()), (100, start));
    assert_invalid(
        &region
            .read(0, &mut [0])
            .expect_err("memory that the region does not own should not be copied"),
        &["memory region"],
    );
    assert_invalid(
        &region
            .write(0, &[0])
            .expect_err("memory that the region does not own should not be copied"),
        &["memory region"],
    );
    client.io.fill(0, &[7; 100]);
    let there = SendOperation::Write { remote_addr: region.addr(), rkey: region.rkey() };
    client.io.post(1, there, 0..100, SIGNALED).expect("post a write");
    client.io.done(1);
    drop(region);
    assert_eq!(memory, [[0xee; 100], [7; 100], [0xee; 100]].concat());
    connection.close();
}

#[test]
#[ignore = "needs the test bed: cargo xtask test"]
fn impossible_regions_are_refused() {
    let connection = connection();
    let pd = connection.client.io.qp().pd();
    let error = MemoryRegion::alloc(pd, 0, AccessFlags::empty())
        .expect_err("an empty region should be refused");
    assert_eq!(error.errno(), libc::EINVAL, "{error}");
    let alone = AccessFlags::IB_UVERBS_ACCESS_REMOTE_WRITE;
    let error = MemoryRegion::alloc(pd, 64, alone)
        .expect_err("access for the peer alone should be refused");
    assert_eq!(error.errno(), libc::EINVAL, "{error}");
    let what = format!("64 bytes of memory on {}", roce_name());
    assert!(error.to_string().contains(&what), "{error}");
    let error = MemoryRegion::alloc(pd, 1 << 50, AccessFlags::empty())
        .expect_err("the region should be too large");
    assert_eq!(error.errno(), libc::ENOMEM, "{error}");
    connection.close();
}
