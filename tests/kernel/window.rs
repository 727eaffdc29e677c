//! Memory windows: accesses that a window grants peers, and accesses that it does not grant any more.

use std::ops::Range;

use rdmacm::ErrorKind;
use rdmacm::cm::ConnParam;
use rdmacm::verbs::{
    AccessFlags, BindRequest, MemoryRegion, MemoryWindow, MemoryWindowType, QpType, QueuePair,
    QueuePairInit, SendFlags, SendOperation, WcOpcode, WcStatus,
};

use crate::fault::{failed, reported};
use crate::fixtures::{Connection, Side, assert_invalid, is_card, roce};
use crate::io::{Shape, post_bind};
use crate::kt::Kt;
use crate::node::Node;

const SIGNALED: SendFlags = SendFlags::SIGNALED;
pub(crate) const WRITE: AccessFlags = AccessFlags::IB_UVERBS_ACCESS_REMOTE_WRITE;
const READ: AccessFlags = AccessFlags::IB_UVERBS_ACCESS_REMOTE_READ;

/// Returns a connection over memory that peers reach through windows only.
pub(crate) fn connection() -> Connection {
    let access = AccessFlags::IB_UVERBS_ACCESS_LOCAL_WRITE | AccessFlags::IB_UVERBS_ACCESS_MW_BIND;
    let param = ConnParam { retry_count: 1, ..ConnParam::default() };
    let mut connection = Connection::to(roce(0), Shape { access, ..Shape::default() }, &param);
    connection.client.io.fill(0, &[0xaa; 4096]);
    connection.server.io.fill(0, &[0xee; 4096]);
    connection
}

pub(crate) fn window(side: &Side, mw_type: MemoryWindowType) -> MemoryWindow {
    MemoryWindow::new(side.io.qp().pd(), mw_type).expect("memory window")
}

/// Returns a request that binds `window` to a part of `region`.
pub(crate) fn binding<'a>(
    wr_id: u64,
    window: &'a MemoryWindow,
    region: &'a MemoryRegion,
    part: Range<usize>,
    access: AccessFlags,
) -> BindRequest<'a> {
    let (offset, length) = (part.start, part.len());
    BindRequest { wr_id, window, region, offset, length, access, flags: SIGNALED }
}

/// Binds `window` to a part of the memory, and waits for the completion.
pub(crate) fn bind(side: &Side, window: &MemoryWindow, part: Range<usize>, access: AccessFlags) {
    bind_to(side, window, side.io.memory(), part, access);
}

/// Binds a window to a part of another region.
pub(crate) fn bind_to(
    side: &Side,
    window: &MemoryWindow,
    region: &MemoryRegion,
    part: Range<usize>,
    access: AccessFlags,
) {
    let before = window.rkey();
    post_bind(side.io.qp(), &binding(90, window, region, part, access)).expect("post a bind");
    assert_eq!(side.io.done(90).opcode(), WcOpcode::IB_UVERBS_WC_BIND_MW);
    assert_ne!(window.rkey(), before, "the key should be new");
    assert_eq!(window.rkey() >> 8, before >> 8);
}

/// Returns a write of eight bytes to the memory of `side` at `offset` by `rkey`.
fn write_at(side: &Side, offset: u64, rkey: u32) -> SendOperation<'static> {
    SendOperation::Write { remote_addr: side.io.memory().addr() + offset, rkey }
}

/// Checks that the peer can write to an address through a window.
pub(crate) fn written_to(connection: &Connection, remote_addr: u64, rkey: u32) {
    let write = SendOperation::Write { remote_addr, rkey };
    connection.client.io.post(1, write, 0..8, SIGNALED).expect("post");
    connection.client.io.done(1);
}

/// Checks that the peer can write at an offset of the memory, and that the bytes arrive there.
fn written(connection: &Connection, offset: usize, rkey: u32) {
    let server = &connection.server;
    written_to(connection, server.io.memory().addr() + offset as u64, rkey);
    assert_eq!(server.io.bytes(offset..offset + 8), [0xaa; 8]);
}

/// Checks that the peer's write is refused, and that the memory is unchanged.
fn refused(connection: Connection, offset: usize, rkey: u32) {
    let Connection { client, server, .. } = &connection;
    let before = server.io.bytes(0..4096);
    client.io.post(2, write_at(server, offset as u64, rkey), 8..16, SIGNALED).expect("post");
    failed(client, 2, WcStatus::IB_WC_REM_ACCESS_ERR);
    assert!(server.io.bytes(0..4096) == before);
    connection.close();
}

#[test]
#[ignore = "needs the test bed: cargo xtask test"]
fn type_1_window_moves_with_each_bind() {
    let connection = connection();
    let window = window(&connection.server, MemoryWindowType::IB_MW_TYPE_1);
    bind(&connection.server, &window, 64..128, WRITE);
    let first = window.rkey();
    written(&connection, 64, first);
    written(&connection, 120, first);
    assert_eq!(connection.server.io.bytes(56..64), [0xee; 8]);
    assert_eq!(connection.server.io.bytes(128..136), [0xee; 8]);
    bind(&connection.server, &window, 1000..1064, WRITE | READ);
    written(&connection, 1000, window.rkey());
    let read = SendOperation::Read {
        remote_addr: connection.server.io.memory().addr() + 1000,
        rkey: window.rkey(),
    };
    connection.client.io.post(5, read, 200..208, SIGNALED).expect("post a read");
    connection.client.io.done(5);
    assert_eq!(connection.client.io.bytes(200..208), [0xaa; 8]);
    // The earlier key is invalid.
    refused(connection, 64, first);
}

#[test]
#[ignore = "needs the test bed: cargo xtask test"]
fn access_outside_window_is_refused() {
    for part in [64..72, 56..64] {
        let connection = connection();
        let window = window(&connection.server, MemoryWindowType::IB_MW_TYPE_1);
        bind(&connection.server, &window, part, WRITE);
        if is_card() {
            refused(connection, 80, window.rkey());
            continue;
        }
        // rxe checks the region of a window and not the part. If a kernel refuses an access outside of the part, this
        // test fails: change the documentation of windows and SECURITY.md then.
        written(&connection, 80, window.rkey());
        written(&connection, 4088, window.rkey());
        refused(connection, 4096, window.rkey());
    }
    let connection = connection();
    let window = window(&connection.server, MemoryWindowType::IB_MW_TYPE_1);
    bind(&connection.server, &window, 64..128, READ);
    refused(connection, 64, window.rkey());
}

#[test]
#[ignore = "needs the test bed: cargo xtask test"]
fn unbound_or_destroyed_window_grants_nothing() {
    let unbound = connection();
    let window_1 = window(&unbound.server, MemoryWindowType::IB_MW_TYPE_1);
    refused(unbound, 0, window_1.rkey());
    let emptied = connection();
    let window_2 = window(&emptied.server, MemoryWindowType::IB_MW_TYPE_1);
    bind(&emptied.server, &window_2, 0..64, WRITE);
    written(&emptied, 0, window_2.rkey());
    bind(&emptied.server, &window_2, 0..0, AccessFlags::empty());
    refused(emptied, 16, window_2.rkey());
    let destroyed = connection();
    let window_3 = window(&destroyed.server, MemoryWindowType::IB_MW_TYPE_1);
    bind(&destroyed.server, &window_3, 0..64, WRITE);
    let rkey = window_3.rkey();
    let clone = window_3.clone();
    let error = window_3.destroy().expect_err("a clone should keep it");
    assert_eq!(error.error().errno(), libc::EBUSY);
    drop(error);
    written(&destroyed, 0, rkey);
    clone.destroy().expect("destroy");
    refused(destroyed, 16, rkey);
}

/// Checks that the library knows no bound window with this key, because its use can crash the kernel.
///
/// mlx5 checks the key, and ends the queue pair.
fn assert_invalidated(side: &Side, rkey: u32) {
    if is_card() {
        return;
    }
    let again = side.io.post_bare(9, SendOperation::LocalInvalidate { rkey });
    assert_invalid(
        &again.expect_err("the window should not be bound"),
        &["no window of type 2 with this key", "already invalidated"],
    );
}

#[test]
#[ignore = "needs the test bed: cargo xtask test"]
fn type_2_window_is_invalidated_locally() {
    let connection = connection();
    let window = window(&connection.server, MemoryWindowType::IB_MW_TYPE_2);
    let server = &connection.server;
    bind(server, &window, 64..128, WRITE);
    let first = window.rkey();
    written(&connection, 64, first);
    assert_invalidated(server, first - 1);
    server.io.post_bare(3, SendOperation::LocalInvalidate { rkey: first }).expect("post");
    assert_eq!(server.io.done(3).opcode(), WcOpcode::IB_UVERBS_WC_LOCAL_INV);
    bind(server, &window, 512..640, WRITE);
    written(&connection, 512, window.rkey());
    assert_invalidated(server, first);
    assert_invalidated(server, server.io.memory().rkey());
    server.io.post_bare(5, SendOperation::LocalInvalidate { rkey: window.rkey() }).expect("post");
    server.io.done(5);
    assert_invalidated(server, window.rkey());
    let nothing = binding(4, &window, server.io.memory(), 0..0, WRITE);
    assert_invalid(
        &post_bind(server.io.qp(), &nothing).expect_err("an empty bind should be refused"),
        &["type 2"],
    );
    refused(connection, 64, first);
}

#[test]
#[ignore = "needs the test bed: cargo xtask test"]
fn type_2_window_is_invalidated_by_peer() {
    let connection = connection();
    let window = window(&connection.server, MemoryWindowType::IB_MW_TYPE_2);
    let Connection { client, server, .. } = &connection;
    bind(server, &window, 64..128, WRITE);
    let rkey = window.rkey();
    written(&connection, 64, rkey);
    server.io.receive(3, 2048..2100).expect("post a receive");
    let send = SendOperation::SendWithInvalidate { rkey };
    client.io.post(4, send, 0..8, SIGNALED).expect("post a send");
    let received = server.io.done(3);
    assert_eq!((received.invalidated_rkey(), received.imm_data()), (Some(rkey), None));
    assert_eq!(received.byte_len(), 8);
    let sent = client.io.done(4);
    assert_eq!((sent.opcode(), sent.invalidated_rkey()), (WcOpcode::IB_UVERBS_WC_SEND, None));
    assert_invalidated(server, rkey);
    refused(connection, 64, rkey);
}

#[test]
#[ignore = "needs the test bed: cargo xtask test"]
fn impossible_binds_fail_locally() {
    // The region does not permit binding.
    let closed = Connection::new(Shape::default());
    let window_1 = window(&closed.server, MemoryWindowType::IB_MW_TYPE_1);
    let request = binding(1, &window_1, closed.server.io.memory(), 0..64, WRITE);
    post_bind(closed.server.io.qp(), &request).expect("post a bind");
    failed(&closed.server, 1, reported(WcStatus::IB_WC_MW_BIND_ERR));
    closed.close();
    // The window of type 2 is already bound.
    let twice = connection();
    let window_2 = window(&twice.server, MemoryWindowType::IB_MW_TYPE_2);
    bind(&twice.server, &window_2, 0..64, WRITE);
    let request = binding(2, &window_2, twice.server.io.memory(), 0..64, WRITE);
    post_bind(twice.server.io.qp(), &request).expect("post a bind");
    failed(&twice.server, 2, reported(WcStatus::IB_WC_MW_BIND_ERR));
    twice.close();
    // The window belongs to another protection domain.
    let foreign = connection();
    let window_3 = window(&foreign.client, MemoryWindowType::IB_MW_TYPE_1);
    let request = binding(3, &window_3, foreign.server.io.memory(), 0..64, WRITE);
    let refused = post_bind(foreign.server.io.qp(), &request)
        .expect_err("an object of another context or domain should be refused");
    assert_invalid(&refused, &["window", "another protection domain"]);
    // The region belongs to another protection domain.
    let window_4 = window(&foreign.server, MemoryWindowType::IB_MW_TYPE_1);
    let request = binding(4, &window_4, foreign.client.io.memory(), 0..64, WRITE);
    let refused = post_bind(foreign.server.io.qp(), &request)
        .expect_err("an object of another context or domain should be refused");
    assert_invalid(&refused, &["region", "another protection domain"]);
    // The window of type 2 is older than the queue pair. The kernel would destroy the window first, which crashes rxe.
    if !is_card() {
        let pd = foreign.server.io.qp().pd();
        let older = window(&foreign.server, MemoryWindowType::IB_MW_TYPE_2);
        let init = QueuePairInit::new(foreign.server.io.cq());
        let qp = QueuePair::new(pd, &init).expect("queue pair");
        let request = binding(5, &older, foreign.server.io.memory(), 0..64, WRITE);
        assert_invalid(
            &post_bind(&qp, &request)
                .expect_err("a window that is older than the queue pair should be refused"),
            &["window", "created before the queue pair"],
        );
    }
    // The part is not within the region.
    for (offset, length) in [(4096, 1), (0, 4097), (usize::MAX, 2)] {
        let whole = binding(5, &window_4, foreign.server.io.memory(), 0..64, WRITE);
        let part = BindRequest { offset, length, ..whole };
        let refused = post_bind(foreign.server.io.qp(), &part)
            .expect_err("a part outside of the region should be refused");
        assert_invalid(&refused, &["within"]);
    }
    foreign.close();
}

/// Creates windows on `kt0`, which executes the commands, but binds no window.
#[test]
#[ignore = "needs the test bed: cargo xtask test"]
fn windows_are_created_and_destroyed_on_kt0() {
    let kt = Kt::load();
    let context = kt.context();
    let node = Node::new(&context, QpType::IB_UVERBS_QPT_RC, 16);
    let region = MemoryRegion::alloc(&node.pd, 64, AccessFlags::IB_UVERBS_ACCESS_MW_BIND);
    let region = region.expect("memory region");
    node.connect(node.qp.number());
    for mw_type in [MemoryWindowType::IB_MW_TYPE_1, MemoryWindowType::IB_MW_TYPE_2] {
        let window = MemoryWindow::new(&node.pd, mw_type).expect("memory window");
        assert_eq!(kt.count("mw"), 1);
        let request = binding(1, &window, &region, 0..8, WRITE);
        let error =
            post_bind(&node.qp, &request).expect_err("no command should carry the operation");
        assert!(matches!(error.kind(), ErrorKind::Unsupported(_)), "{error}");
        window.destroy().expect("destroy");
        assert_eq!(kt.count("mw"), 0);
    }
    let error =
        MemoryWindow::new(&node.pd, MemoryWindowType(3)).expect_err("the type should not exist");
    assert_eq!(error.errno(), libc::EINVAL, "{error}");
    region.destroy().expect("no window should use the region");
}
