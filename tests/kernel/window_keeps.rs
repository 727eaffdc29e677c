//! Objects that a memory window keeps: the regions and the queue pairs that it may be bound to.

use std::fs;

use rdmacm::verbs::{
    AccessFlags, CompletionQueue, MemoryRegion, MemoryWindowType, QpState, QpType, QueuePair,
    QueuePairInit, WcStatus,
};

use crate::fixtures::{Side, objects};
use crate::io::post_bind;
use crate::node::attributes;
use crate::window::{WRITE, bind, bind_to, binding, connection, window, written_to};

/// Returns a region that a window may be bound to.
fn region(side: &Side) -> MemoryRegion {
    let access = AccessFlags::IB_UVERBS_ACCESS_LOCAL_WRITE | AccessFlags::IB_UVERBS_ACCESS_MW_BIND;
    MemoryRegion::alloc(side.io.qp().pd(), PAGES, access).expect("memory region")
}

const PAGES: usize = 16 << 12;

/// Returns the number of regions that are pinned beyond `before`.
fn pinned(before: usize) -> usize {
    let status = fs::read_to_string("/proc/self/status").expect("read the pinned memory");
    let line = status
        .lines()
        .find_map(|line| line.strip_prefix("VmPin:"))
        .expect("value should be reported");
    let kilobytes = line.split_whitespace().next().expect("a number");
    kilobytes.parse::<usize>().expect("a number") * 1024 / PAGES - before
}

#[test]
#[ignore = "needs the test bed: cargo xtask test"]
fn region_lives_as_long_as_windows() {
    let connection = connection();
    let side = &connection.server;
    let before = pinned(0);
    for mw_type in [MemoryWindowType::IB_MW_TYPE_1, MemoryWindowType::IB_MW_TYPE_2] {
        let window = window(side, mw_type);
        let memory = region(side);
        bind_to(side, &window, &memory, 64..128, WRITE);
        let address = memory.addr() + 64;
        drop(memory);
        assert_eq!(pinned(before), 1);
        written_to(&connection, address, window.rkey());
        drop(window);
        assert_eq!(pinned(before), 0);
    }
    // Destroying the region first is refused.
    let window = window(side, MemoryWindowType::IB_MW_TYPE_1);
    let memory = region(side);
    bind_to(side, &window, &memory, 64..128, WRITE);
    let refused = memory.destroy().expect_err("a window should be bound to the region");
    assert_eq!(refused.error().errno(), libc::EINVAL);
    let mut memory = refused.into_parts().0;
    memory.write(0, b"it is there").expect("the range should be within the memory");
    written_to(&connection, memory.addr() + 64, window.rkey());
    window.destroy().expect("destroy");
    memory.destroy().expect("destroy");
    assert_eq!(pinned(before), 0);
    connection.close();
}

#[test]
#[ignore = "needs the test bed: cargo xtask test"]
fn moved_window_releases_regions() {
    let connection = connection();
    let side = &connection.server;
    let before = pinned(0);
    let window = window(side, MemoryWindowType::IB_MW_TYPE_1);
    let [first, second, third] = [region(side), region(side), region(side)];
    bind_to(side, &window, &first, 0..64, WRITE);
    bind_to(side, &window, &second, 0..64, WRITE);
    // No window is bound to the first region now.
    drop(first);
    assert_eq!(pinned(before), 2);
    drop(second);
    assert_eq!(pinned(before), 2);
    bind_to(side, &window, &third, 0..64, WRITE);
    bind_to(side, &window, &third, 64..128, WRITE);
    assert_eq!(pinned(before), 1);
    drop(window);
    assert_eq!(pinned(before), 1);
    drop(third);
    assert_eq!(pinned(before), 0);
    connection.close();
}

#[test]
#[ignore = "needs the test bed: cargo xtask test"]
fn region_is_released_with_last_bound_window() {
    let connection = connection();
    let side = &connection.server;
    let before = pinned(0);
    let [moved, bound, idle] = [(); 3].map(|()| window(side, MemoryWindowType::IB_MW_TYPE_1));
    let memory = region(side);
    for window in [&moved, &bound, &idle] {
        bind_to(side, window, &memory, 0..64, WRITE);
    }
    bind(side, &moved, 0..64, WRITE);
    drop(memory);
    drop(idle);
    assert_eq!(pinned(before), 1);
    drop(bound);
    assert_eq!(pinned(before), 0);
    bind(side, &moved, 64..128, WRITE);
    moved.destroy().expect("destroy");
    connection.close();
}

#[test]
#[ignore = "needs the test bed: cargo xtask test"]
fn window_keeps_binding_queue_pair() {
    let connection = connection();
    let window = window(&connection.server, MemoryWindowType::IB_MW_TYPE_2);
    bind(&connection.server, &window, 64..128, WRITE);
    let count = || objects().count("qp").expect("the device should count queue pairs");
    let before = count();
    let qp = connection.server.io.qp().clone();
    connection.close();
    // The client's queue pair is destroyed.
    assert_eq!(count(), before - 1);
    let qp = qp.destroy().expect_err("the window should keep the queue pair").into_parts().0;
    window.destroy().expect("destroy");
    qp.destroy().expect("destroy");
    assert_eq!(count(), before - 2);
}

#[test]
#[ignore = "needs the test bed: cargo xtask test"]
fn failed_bind_keeps_earlier_binding_queue_pair() {
    let connection = connection();
    let side = &connection.server;
    let cq = CompletionQueue::new(side.io.cq().context(), 4, None).expect("completion queue");
    let pd = side.io.qp().pd();
    let other = QueuePair::new(pd, &QueuePairInit::new(&cq)).expect("queue pair");
    for state in [QpState::IB_QPS_INIT, QpState::IB_QPS_ERR] {
        other.modify(&attributes(QpType::IB_UVERBS_QPT_RC, state, 0)).expect("modify");
    }
    let window = window(side, MemoryWindowType::IB_MW_TYPE_2);
    bind(side, &window, 64..128, WRITE);
    let flushed = binding(7, &window, side.io.memory(), 0..64, WRITE);
    post_bind(&other, &flushed).expect("post a bind");
    let mut done = [Default::default()];
    while cq.poll(&mut done).expect("poll") == 0 {}
    assert_eq!((done[0].wr_id(), done[0].status()), (7, WcStatus::IB_WC_WR_FLUSH_ERR));
    let qp = side.io.qp().clone();
    connection.close();
    let (qp, error) = qp.destroy().expect_err("the window should keep the queue pair").into_parts();
    assert_eq!(error.errno(), libc::EBUSY);
    window.destroy().expect("destroy");
    qp.destroy().expect("destroy");
    other.destroy().expect("destroy");
}
