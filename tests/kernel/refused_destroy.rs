//! Memory whose queue pair or registration the kernel refuses to destroy. The device may still write to this memory.

use std::fs;
use std::ops::Range;

use rdmacm::endpoint::PollGroup;
use rdmacm::endpoint::poll_group::PollGroupConfig;
use rdmacm::verbs::{
    AccessFlags, BufferedQueuePair, CompletionQueue, MemoryRegion, ProtectionDomain, QpState,
    QueuePair, QueuePairAttributes, QueuePairInit, RegisteredBuffer,
};

use crate::child::in_child;
use crate::fixtures::device;
use crate::kt::{Kept, Kt};

/// The length exceeds the free memory of the allocator and all other mappings.
const LENGTH: usize = 3 << 20;

/// Returns `true` if all of `range` is mapped in this process.
fn is_mapped(range: &Range<usize>) -> bool {
    let maps = fs::read_to_string("/proc/self/maps").expect("list the mappings");
    let mut mapped = maps.lines().filter_map(|line| {
        let (start, end) = line.split_once(' ')?.0.split_once('-')?;
        let address = |text| usize::from_str_radix(text, 16).expect("an address");
        Some(address(start)..address(end))
    });
    mapped.any(|mapped| mapped.start <= range.start && range.end <= mapped.end)
}

/// Returns a queue pair of `kt0` to which receives can be posted.
fn initialized(pd: &ProtectionDomain, cq: &CompletionQueue) -> QueuePair {
    let qp = QueuePair::new(pd, &QueuePairInit::new(cq)).expect("queue pair");
    let init = QueuePairAttributes::to(QpState::IB_QPS_INIT);
    let init = init.pkey_index(0).port(1).access(AccessFlags::empty());
    qp.modify(&init).expect("modify");
    qp
}

/// Checks that buffers stay registered and mapped as long as the kernel has the queue pair.
///
/// The refusal makes the test detect memory that is freed before the queue pair is destroyed.
#[test]
#[ignore = "needs the test bed: cargo xtask test"]
fn posted_buffers_outlive_refused_queue_pair() {
    let kt = Kt::load();
    // Memory that is kept for the device keeps its context open until the process ends.
    in_child(|| {
        let context = kt.context();
        let pd = ProtectionDomain::new(&context).expect("protection domain");
        let cq = CompletionQueue::new(&context, 16, None).expect("completion queue");
        let mut queues = BufferedQueuePair::new(initialized(&pd, &cq)).expect("queues");
        let buffer = RegisteredBuffer::alloc(&pd, 1, LENGTH)
            .expect("a buffer")
            .pop()
            .expect("one buffer should be allocated");
        let start = buffer.as_ptr().addr();
        let memory = start..start + LENGTH;
        queues.post_recv(buffer).expect("post a receive");

        let keeping = kt.keep(Kept::QueuePairs);
        drop(queues);
        assert_eq!((kt.count("qp"), kt.count("mr")), (1, 1));
        assert!(
            is_mapped(&memory),
            "the memory should stay, because the device may write to the memory"
        );
        drop(keeping);
    });
    assert_eq!((kt.count("qp"), kt.count("mr"), kt.count("context")), (0, 0, 0));
}

/// Checks that the buffers are freed with their queue pair if the kernel destroys it.
#[test]
#[ignore = "needs the test bed: cargo xtask test"]
fn posted_buffers_are_freed_with_queue_pair() {
    let kt = Kt::load();
    let context = kt.context();
    let pd = ProtectionDomain::new(&context).expect("protection domain");
    let cq = CompletionQueue::new(&context, 16, None).expect("completion queue");
    let mut queues = BufferedQueuePair::new(initialized(&pd, &cq)).expect("queues");
    let buffer = RegisteredBuffer::alloc(&pd, 1, LENGTH)
        .expect("a buffer")
        .pop()
        .expect("one buffer should be allocated");
    let start = buffer.as_ptr().addr();
    queues.post_recv(buffer).expect("post a receive");
    drop(queues);
    assert_eq!((kt.count("qp"), kt.count("mr")), (0, 0));
    assert!(!is_mapped(&(start..start + LENGTH)), "the memory should be freed");
}

/// Checks that memory of the library stays mapped as long as the kernel has its registration.
#[test]
#[ignore = "needs the test bed: cargo xtask test"]
fn memory_outlives_refused_deregistration() {
    let kt = Kt::load();
    in_child(|| {
        let context = kt.context();
        let pd = ProtectionDomain::new(&context).expect("protection domain");
        let access = AccessFlags::IB_UVERBS_ACCESS_LOCAL_WRITE;
        let region = MemoryRegion::alloc(&pd, LENGTH, access).expect("memory region");
        let start = region.as_ptr().addr().get();
        let memory = start..start + LENGTH;

        let keeping = kt.keep(Kept::MemoryRegions);
        drop(region);
        assert_eq!(kt.count("mr"), 1);
        assert!(
            is_mapped(&memory),
            "the memory should stay, because the device may write to the memory"
        );
        drop(keeping);
    });
    assert_eq!((kt.count("mr"), kt.count("context")), (0, 0));
}

/// Checks that buffers of a poll group stay registered while the kernel has the shared queue.
///
/// If the kernel destroys the queue, the buffers are freed with it.
#[test]
#[ignore = "needs the test bed: cargo xtask test"]
fn poll_group_buffers_outlive_refused_srq() {
    let kt = Kt::load();
    for refuses in [false, true] {
        in_child(|| {
            let group = PollGroup::new(&device("kt0"), &PollGroupConfig::default());
            let group = group.expect("poll group");
            assert_eq!((kt.count("srq"), kt.count("mr")), (1, 1));
            let keeping = refuses.then(|| kt.keep(Kept::SharedReceiveQueues));
            drop(group);
            let left = u32::from(refuses);
            assert_eq!((kt.count("srq"), kt.count("mr")), (left, left));
            drop(keeping);
        });
        assert_eq!((kt.count("srq"), kt.count("mr"), kt.count("context")), (0, 0, 0));
    }
}
