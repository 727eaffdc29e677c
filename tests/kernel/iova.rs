//! Regions under other addresses than those of their memory.
#![expect(unsafe_code, reason = "registers memory of its own, and posts requests over it")]

use std::ptr::NonNull;

use rdmacm::ErrorKind;
use rdmacm::cm::ConnParam;
use rdmacm::verbs::{
    AccessFlags, MemoryRegion, MemoryWindowType, ReceiveRequest, SendFlags, SendOperation, WcStatus,
};

use crate::fault::failed;
use crate::fixtures::{Connection, Side, assert_invalid, roce, siw};
use crate::io::Shape;
use crate::window::{bind_to, window, written_to};

const SIGNALED: SendFlags = SendFlags::SIGNALED;
const LENGTH: usize = 8192;

fn access() -> AccessFlags {
    Shape::default().access
        | AccessFlags::IB_UVERBS_ACCESS_REMOTE_ATOMIC
        | AccessFlags::IB_UVERBS_ACCESS_MW_BIND
}

fn connection() -> Connection {
    let param = ConnParam {
        responder_resources: 1,
        initiator_depth: 1,
        retry_count: 1,
        ..ConnParam::default()
    };
    let mut connection = Connection::to(roce(0), Shape::default(), &param);
    connection.client.io.fill(0, &[0xaa; 4096]);
    connection
}

fn region(side: &Side, iova: u64) -> MemoryRegion {
    MemoryRegion::alloc_with_iova(side.io.qp().pd(), LENGTH, iova, access()).expect("memory region")
}

fn bytes(region: &MemoryRegion, at: usize) -> [u8; 8] {
    let mut bytes = [0; 8];
    region.read(at, &mut bytes).expect("the range should be within the region");
    bytes
}

/// Uses regions that begin at address 0, in the middle of the address space, or near its end.
#[test]
#[ignore = "needs the test bed: cargo xtask test"]
fn peers_and_requests_use_iova() {
    for iova in [0, 0x1234_5000, u64::MAX << 14] {
        let connection = connection();
        let Connection { client, server, .. } = &connection;
        let mut region = region(server, iova);
        let rkey = region.rkey();
        assert_eq!((region.addr(), region.len()), (iova, LENGTH));
        let last = LENGTH as u64 - 8;
        for at in [0, 4090, last] {
            written_to(&connection, iova + at, rkey);
            assert_eq!(
                bytes(&region, usize::try_from(at).expect("the number should fit")),
                [0xaa; 8]
            );
        }
        region.write(1000, b"to read!").expect("the range should be within the region");
        let read = SendOperation::Read { remote_addr: iova + 1000, rkey };
        client.io.post(2, read, 64..72, SIGNALED).expect("post a read");
        client.io.done(2);
        assert_eq!(client.io.bytes(64..72), b"to read!");
        region.write(2000, &7_u64.to_ne_bytes()).expect("the range should be within the region");
        let add = SendOperation::FetchAdd { remote_addr: iova + 2000, rkey, add: 3 };
        client.io.post(3, add, 72..80, SIGNALED).expect("post an atomic");
        client.io.done(3);
        assert_eq!(bytes(&region, 2000), 10_u64.to_ne_bytes());
        // A receive and a window use these addresses, too.
        let scatter = [region.sge(3000..3008).expect("the range should be within the region")];
        // SAFETY: the region outlives the queue pair, and its memory is reached by copying only.
        unsafe { server.io.qp().post_recv(&ReceiveRequest { wr_id: 4, scatter: &scatter }) }
            .expect("post a receive");
        client.io.post(5, SendOperation::Send, 0..8, SIGNALED).expect("post a send");
        server.io.done(4);
        client.io.done(5);
        assert_eq!(bytes(&region, 3000), [0xaa; 8]);
        let window = window(server, MemoryWindowType::IB_MW_TYPE_1);
        bind_to(server, &window, &region, 5000..6000, AccessFlags::IB_UVERBS_ACCESS_REMOTE_WRITE);
        written_to(&connection, iova + 5000, window.rkey());
        assert_eq!(bytes(&region, 5000), [0xaa; 8]);
        connection.close();
    }
}

#[test]
#[ignore = "needs the test bed: cargo xtask test"]
fn addresses_outside_iova_are_refused() {
    const IOVA: u64 = 0x7000_0000;
    for outside in [Some(IOVA - 1), Some(IOVA + LENGTH as u64 - 7), None] {
        let connection = connection();
        let region = region(&connection.server, IOVA);
        let own = region.as_ptr().as_ptr().expose_provenance() as u64;
        let (remote_addr, rkey) = (outside.unwrap_or(own), region.rkey());
        let write = SendOperation::Write { remote_addr, rkey };
        connection.client.io.post(1, write, 0..8, SIGNALED).expect("post a write");
        failed(&connection.client, 1, WcStatus::IB_WC_REM_ACCESS_ERR);
        assert_eq!([bytes(&region, 0), bytes(&region, LENGTH - 8)], [[0; 8]; 2]);
        connection.close();
    }
}

#[test]
#[ignore = "needs the test bed: cargo xtask test"]
fn iova_keeps_page_offset_of_memory() {
    let connection = connection();
    let pd = connection.server.io.qp().pd();
    let mut memory = [0_u8; 64];
    let start = NonNull::from(&mut memory[..]).cast::<u8>();
    let place = start.as_ptr().expose_provenance() as u64 % 4096;
    // SAFETY: the memory lives until the region is dropped, and is not borrowed before.
    let register =
        |iova| unsafe { MemoryRegion::register_with_iova(pd, start, 64, iova, access()) };
    let error = register(0x5000_0000 + (place + 1) % 4096)
        .expect_err("an iova elsewhere in the page should be refused");
    assert_eq!(error.errno(), libc::EINVAL, "{error}");
    let region = register(0x5000_0000 + place).expect("memory region");
    written_to(&connection, 0x5000_0000 + place + 8, region.rkey());
    drop(region);
    assert_eq!(memory[..], [[0; 8].as_slice(), &[0xaa; 8], &[0; 48]].concat());
    connection.close();
}

#[test]
#[ignore = "needs the test bed: cargo xtask test"]
fn wrapping_iova_is_refused() {
    let connection = connection();
    let pd = connection.server.io.qp().pd();
    for (iova, length) in
        [(u64::MAX - 4095, 4096), (u64::MAX - 4095, 5000), (u64::MAX - 8191, 8192)]
    {
        let error = MemoryRegion::alloc_with_iova(pd, length, iova, access())
            .expect_err("addresses that wrap around should be refused");
        assert_invalid(&error, &["register", &format!("{length} bytes"), "wrap around"]);
    }
    connection.close();
}

/// Checks that the library refuses the region: siw would use its own addresses for it.
#[test]
#[ignore = "needs the test bed: cargo xtask test"]
fn iova_is_refused_on_siw0() {
    let connection = Connection::to(siw(0), Shape::default(), &ConnParam::default());
    let pd = connection.server.io.qp().pd();
    let access = Shape::default().access;
    let error = MemoryRegion::alloc_with_iova(pd, 4096, 0, access)
        .expect_err("the library should refuse another iova on siw");
    assert!(matches!(error.kind(), ErrorKind::Unsupported(_)), "{error}");
    assert!(error.to_string().contains("4096 bytes of memory"), "{error}");
    let mut memory = [0_u8; 64];
    let start = NonNull::from(&mut memory[..]).cast::<u8>();
    let own = start.as_ptr().expose_provenance() as u64;
    // SAFETY: the memory lives until the region is dropped, and is not borrowed before.
    let region = unsafe { MemoryRegion::register_with_iova(pd, start, 64, own, access) };
    assert_eq!(region.expect("its own address").addr(), own);
    connection.close();
}
