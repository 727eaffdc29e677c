//! Regions that change: what they allow, and whose they are.
#![expect(unsafe_code, reason = "changes regions, over which no request is outstanding")]

use rdmacm::cm::ConnParam;
use rdmacm::verbs::{
    AccessFlags, MemoryRegion, ProtectionDomain, Reregistration, SendFlags, SendOperation, WcStatus,
};
use rdmacm::{Error, ErrorKind};

use crate::bed::{Connection, assert_invalid, promised, rxe, siw};
use crate::fault::failed;
use crate::io::Shape;

const LOCAL: AccessFlags = AccessFlags::IB_UVERBS_ACCESS_LOCAL_WRITE;
const WRITE: AccessFlags = AccessFlags::IB_UVERBS_ACCESS_REMOTE_WRITE;

/// Changes a region that owns its memory.
fn change(region: &mut MemoryRegion, change: Reregistration<'_>) -> Result<(), Error> {
    // SAFETY: the region owns its memory, and every request that named it has completed.
    unsafe { region.reregister(&change) }
}

/// Whether rxe can change regions.
fn known() -> bool {
    promised("RDMACM_TEST_KERNEL") != "6.1"
}

#[track_caller]
fn unsupported(result: Result<(), Error>) {
    let error = result.expect_err("the driver cannot");
    assert!(matches!(error.kind(), ErrorKind::Unsupported(_)), "{error}");
}

#[test]
#[ignore = "needs the test bed: cargo xtask test"]
fn a_region_that_allows_more_and_less() {
    let connection = Connection::to(
        rxe(0),
        Shape::default(),
        &ConnParam { retry_count: 1, ..ConnParam::default() },
    );
    let Connection { client, server, .. } = &connection;
    let mut region = MemoryRegion::alloc(server.io.qp().pd(), 64, LOCAL).expect("memory region");
    let access = Some(LOCAL | WRITE);
    let opened = change(&mut region, Reregistration { access, ..Reregistration::default() });
    if !known() {
        return unsupported(opened);
    }
    opened.expect("re-register");
    let write = |region: &MemoryRegion| SendOperation::Write {
        remote_addr: region.addr(),
        rkey: region.rkey(),
    };
    client.io.post(1, write(&region), 0..64, SendFlags::SIGNALED).expect("post");
    client.io.done(1);
    // Rights that go with others only.
    let access = Some(WRITE);
    let error = change(&mut region, Reregistration { access, ..Reregistration::default() })
        .expect_err("writing by peers needs writing here");
    assert_eq!(error.errno(), libc::EINVAL);
    let mut pinned_to_read =
        MemoryRegion::alloc(region.pd(), 64, AccessFlags::empty()).expect("memory region");
    let access = Some(LOCAL);
    let error = change(&mut pinned_to_read, Reregistration { access, ..Reregistration::default() })
        .expect_err("the pages may be for reading only");
    assert_eq!(error.errno(), libc::EACCES, "{error}");
    let error = change(&mut region, Reregistration::default()).expect_err("nothing to change");
    assert_eq!(error.errno(), libc::EINVAL);
    let access = Some(LOCAL);
    change(&mut region, Reregistration { access, ..Reregistration::default() }).expect("close");
    client.io.post(2, write(&region), 0..64, SendFlags::SIGNALED).expect("post");
    failed(client, 2, WcStatus::IB_WC_REM_ACCESS_ERR);
    connection.close();
}

#[test]
#[ignore = "needs the test bed: cargo xtask test"]
fn a_region_that_moves_to_another_protection_domain() {
    let connection = Connection::new(Shape::default());
    let Connection { client, server, .. } = &connection;
    let context = server.io.cq().context();
    let other = ProtectionDomain::new(context).expect("protection domain");
    let mut region = MemoryRegion::alloc(&other, 64, LOCAL | WRITE).expect("memory region");
    let pd = Some(server.io.qp().pd());
    let moved = change(&mut region, Reregistration { pd, ..Reregistration::default() });
    if !known() {
        return unsupported(moved);
    }
    moved.expect("re-register");
    assert_eq!(region.pd(), server.io.qp().pd());
    // The region is not in it any more.
    other.destroy().expect("destroy");
    let write = SendOperation::Write { remote_addr: region.addr(), rkey: region.rkey() };
    client.io.post(1, write, 0..64, SendFlags::SIGNALED).expect("post");
    client.io.done(1);
    let foreign = rdmacm::verbs::Context::open(context.device()).expect("open");
    let foreign = ProtectionDomain::new(&foreign).expect("protection domain");
    let pd = Some(&foreign);
    let error = change(&mut region, Reregistration { pd, ..Reregistration::default() })
        .expect_err("foreign");
    assert_invalid(&error, &["another context"]);
    connection.close();
}

#[test]
#[ignore = "needs the test bed: cargo xtask test"]
fn memory_that_is_fetched_on_demand_is_the_devices_to_refuse() {
    let connection = Connection::new(Shape::default());
    let pd = connection.server.io.qp().pd();
    let access = LOCAL | AccessFlags::IB_UVERBS_ACCESS_ON_DEMAND;
    let made = MemoryRegion::alloc(pd, 4096, access);
    let refused = |errno| {
        let error = made.as_ref().expect_err("rxe has none");
        assert_eq!(error.errno(), errno, "{error}");
    };
    match promised("RDMACM_TEST_KERNEL").as_str() {
        "6.1" => refused(libc::EINVAL),
        "6.12" => refused(libc::EOPNOTSUPP),
        // A newer one may have it.
        _ => {}
    }
    drop(made);
    connection.close();
}

#[test]
#[ignore = "needs the test bed: cargo xtask test"]
fn regions_of_siw_do_not_change() {
    let connection = Connection::to(siw(0), Shape::default(), &ConnParam::default());
    let pd = connection.server.io.qp().pd();
    let mut region = MemoryRegion::alloc(pd, 64, LOCAL).expect("memory region");
    let access = Some(LOCAL | WRITE);
    unsupported(change(&mut region, Reregistration { access, ..Reregistration::default() }));
    connection.close();
}
