//! Changes of registered regions: access rights, protection domain and memory.
#![expect(unsafe_code, reason = "changes regions, over which no request is outstanding")]

use std::ptr::{self, NonNull};

use rdmacm::cm::ConnParam;
use rdmacm::verbs::{
    AccessFlags, Context, MemoryRegion, ProtectionDomain, ReregisterOptions, SendFlags,
    SendOperation, WcStatus,
};
use rdmacm::{Error, ErrorKind};

use crate::fault::failed;
use crate::fixtures::{Connection, assert_invalid, device, is_card, promised, roce, siw};
use crate::io::Shape;
use crate::kt::Kt;

const LOCAL: AccessFlags = AccessFlags::IB_UVERBS_ACCESS_LOCAL_WRITE;
const WRITE: AccessFlags = AccessFlags::IB_UVERBS_ACCESS_REMOTE_WRITE;

/// Changes a region that owns its memory.
fn change(region: &mut MemoryRegion, change: ReregisterOptions<'_>) -> Result<(), Error> {
    // SAFETY: the region owns its memory, and every request that named it has completed.
    unsafe { region.reregister(&change) }
}

/// Returns `true` if the driver can change regions.
fn known() -> bool {
    is_card() || promised("RDMACM_TEST_KERNEL") != "6.1"
}

#[track_caller]
fn unsupported(result: Result<(), Error>) {
    let error = result.expect_err("the driver should not change regions");
    assert!(matches!(error.kind(), ErrorKind::Unsupported(_)), "{error}");
}

#[test]
#[ignore = "needs the test bed: cargo xtask test"]
fn access_of_region_can_be_changed() {
    let connection = Connection::to(
        roce(0),
        Shape::default(),
        &ConnParam { retry_count: 1, ..ConnParam::default() },
    );
    let Connection { client, server, .. } = &connection;
    let mut region = MemoryRegion::alloc(server.io.qp().pd(), 64, LOCAL).expect("memory region");
    let access = Some(LOCAL | WRITE);
    let opened = change(&mut region, ReregisterOptions { access, ..ReregisterOptions::default() });
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
    // These access flags need others.
    let access = Some(WRITE);
    let error = change(&mut region, ReregisterOptions { access, ..ReregisterOptions::default() })
        .expect_err("remote write should need local write");
    assert_eq!(error.errno(), libc::EINVAL);
    let mut pinned_to_read =
        MemoryRegion::alloc(region.pd(), 64, AccessFlags::empty()).expect("memory region");
    let access = Some(LOCAL);
    let error =
        change(&mut pinned_to_read, ReregisterOptions { access, ..ReregisterOptions::default() })
            .expect_err("pages pinned for reading should not become writable");
    assert_eq!(error.errno(), libc::EACCES, "{error}");
    let error = change(&mut region, ReregisterOptions::default())
        .expect_err("a change of nothing should be refused");
    assert_eq!(error.errno(), libc::EINVAL);
    let access = Some(LOCAL);
    change(&mut region, ReregisterOptions { access, ..ReregisterOptions::default() })
        .expect("close");
    client.io.post(2, write(&region), 0..64, SendFlags::SIGNALED).expect("post");
    failed(client, 2, WcStatus::IB_WC_REM_ACCESS_ERR);
    connection.close();
}

#[test]
#[ignore = "needs the test bed: cargo xtask test"]
fn region_moves_to_other_protection_domain() {
    let connection = Connection::new(Shape::default());
    let Connection { client, server, .. } = &connection;
    let context = server.io.cq().context();
    let other = ProtectionDomain::new(context).expect("protection domain");
    let mut region = MemoryRegion::alloc(&other, 64, LOCAL | WRITE).expect("memory region");
    let pd = Some(server.io.qp().pd());
    let moved = change(&mut region, ReregisterOptions { pd, ..ReregisterOptions::default() });
    if !known() {
        return unsupported(moved);
    }
    moved.expect("re-register");
    assert_eq!(region.pd(), server.io.qp().pd());
    // The region does not belong to this domain any more.
    other.destroy().expect("destroy");
    let write = SendOperation::Write { remote_addr: region.addr(), rkey: region.rkey() };
    client.io.post(1, write, 0..64, SendFlags::SIGNALED).expect("post");
    client.io.done(1);
    let foreign = Context::open(context.device()).expect("open");
    let foreign = ProtectionDomain::new(&foreign).expect("protection domain");
    let pd = Some(&foreign);
    let error = change(&mut region, ReregisterOptions { pd, ..ReregisterOptions::default() })
        .expect_err("an object of another context or domain should be refused");
    assert_invalid(&error, &["another context"]);
    connection.close();
}

#[test]
#[ignore = "needs the test bed: cargo xtask test"]
fn siw_refuses_reregistration() {
    let connection = Connection::to(siw(0), Shape::default(), &ConnParam::default());
    let pd = connection.server.io.qp().pd();
    let mut region = MemoryRegion::alloc(pd, 64, LOCAL).expect("memory region");
    let access = Some(LOCAL | WRITE);
    unsupported(change(&mut region, ReregisterOptions { access, ..ReregisterOptions::default() }));
    connection.close();
}

/// Checks that a region can move to other memory, which neither rxe nor siw supports.
#[test]
#[ignore = "needs the test bed: cargo xtask test"]
fn memory_of_region_can_be_changed_on_kt0() {
    let kt = Kt::load();
    let context = kt.context();
    let [pd, other] = [(); 2].map(|()| ProtectionDomain::new(&context).expect("domain"));
    let mut region =
        MemoryRegion::alloc_with_iova(&pd, 4096, 1 << 20, LOCAL).expect("memory region");
    let mut memory = vec![0_u8; 10_000];
    let start = NonNull::from(&mut memory[7..]).cast::<u8>();
    let (pd_now, access) = (Some(&other), Some(LOCAL | WRITE));
    let memory_now = Some((start, 9000));
    let all = ReregisterOptions { pd: pd_now, access, memory: memory_now, ..Default::default() };
    change(&mut region, all).expect("re-register");
    assert_eq!((region.as_ptr(), region.len(), region.pd()), (start, 9000, &other));
    assert_eq!(region.addr(), start.as_ptr().expose_provenance() as u64);
    assert_eq!(region.sge(..).expect("the range should be within the region").length, 9000);
    assert_invalid(
        &region.read(0, &mut [0]).expect_err("memory of the program should not be copied"),
        &["the region does not own its memory"],
    );
    pd.destroy().expect("the domain should be unused");
    assert_eq!(kt.count("mr"), 1);
    // If the memory does not exist or is invalid, the region does not change.
    let [none, last] = [0x1000, usize::MAX].map(|address| {
        NonNull::new(ptr::without_provenance_mut(address)).expect("the address should not be null")
    });
    for (memory, errno) in
        [((none, 4096), libc::EFAULT), ((last, 4096), libc::EINVAL), ((start, 0), libc::EINVAL)]
    {
        let memory = Some(memory);
        let error =
            change(&mut region, ReregisterOptions { memory, ..ReregisterOptions::default() })
                .expect_err("the memory should be invalid");
        assert_eq!(error.errno(), errno, "{error}");
        assert_eq!((region.as_ptr(), region.len()), (start, 9000));
    }
    // Attributes that the call does not name do not change.
    let access = Some(LOCAL);
    change(&mut region, ReregisterOptions { access, ..ReregisterOptions::default() })
        .expect("close");
    assert_eq!((region.as_ptr(), region.len(), region.pd()), (start, 9000, &other));
    region.destroy().expect("deregister");
    assert_eq!(kt.count("mr"), 0);
    other.destroy().expect("the domain should be unused");
}

/// Checks that the library passes on unknown flags, and the driver or the kernel refuses them.
#[test]
#[ignore = "needs the test bed: cargo xtask test"]
fn all_access_flags_reach_driver_also_on_siw0() {
    use AccessFlags as A;
    const NO: i32 = libc::EOPNOTSUPP;
    const INVALID: i32 = libc::EINVAL;
    // These are an optional bit, which drivers may ignore, and an unknown bit.
    let (optional, unknown) = (A::from_bits_retain(1 << 21), A::from_bits_retain(1 << 10));
    let kt = Kt::load();
    for (name, others) in [
        ("rxe0", [NO, NO, NO, 0, INVALID]),
        ("siw0", [0, NO, 0, NO, NO]),
        ("kt0", [0, NO, 0, NO, NO]),
    ] {
        let context = Context::open(&device(name)).expect("open");
        let pd = ProtectionDomain::new(&context).expect("protection domain");
        let errno = |access| {
            MemoryRegion::alloc(&pd, 4096, access).map_or_else(|error| error.errno(), |_| 0)
        };
        for access in [
            A::empty(),
            LOCAL,
            A::IB_UVERBS_ACCESS_REMOTE_READ,
            A::IB_UVERBS_ACCESS_MW_BIND,
            LOCAL | WRITE,
            LOCAL | A::IB_UVERBS_ACCESS_REMOTE_ATOMIC,
            A::IB_UVERBS_ACCESS_RELAXED_ORDERING,
            optional,
        ] {
            assert_eq!(errno(access), 0, "{access:?} on {name}");
        }
        for access in [WRITE, A::IB_UVERBS_ACCESS_REMOTE_ATOMIC, unknown] {
            assert_eq!(errno(access), INVALID, "{access:?} on {name}");
        }
        let others = match promised("RDMACM_TEST_KERNEL").as_str() {
            "6.1" => [0, INVALID, 0, INVALID, INVALID],
            "6.12" => others,
            // Newer kernels may support more flags.
            _ => continue,
        };
        let flags = [
            A::IB_UVERBS_ACCESS_ZERO_BASED,
            A::IB_UVERBS_ACCESS_ON_DEMAND,
            A::IB_UVERBS_ACCESS_HUGETLB,
            A::IB_UVERBS_ACCESS_FLUSH_GLOBAL,
            A::IB_UVERBS_ACCESS_FLUSH_PERSISTENT,
        ];
        assert_eq!(flags.map(errno), others, "on {name}");
    }
    assert_eq!(kt.count("mr"), 0);
}
