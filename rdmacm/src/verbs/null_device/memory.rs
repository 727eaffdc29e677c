//! Tests of memory regions and buffers: their bounds and their lifetimes.

use std::fs::File;
use std::os::unix::fs::FileExt;

use verbs_abi::{
    IB_USER_VERBS_CMD_DEALLOC_PD, IB_USER_VERBS_CMD_DEREG_MR, IB_USER_VERBS_CMD_DESTROY_AH,
    IB_USER_VERBS_CMD_DESTROY_CQ, IB_USER_VERBS_CMD_DESTROY_QP, IB_USER_VERBS_CMD_REG_MR,
};

use super::*;
use crate::driver::Capabilities;
use crate::drivers::forged::Forged;
use crate::drivers::null::Null;
use crate::error::DestroyError;
use crate::sys::uverbs::{Recorder, UverbsFile};

const LOCAL: AccessFlags = AccessFlags::IB_UVERBS_ACCESS_LOCAL_WRITE;

/// Creates a protection domain whose commands are recorded.
pub(super) fn recorded() -> (ProtectionDomain, Recorder) {
    recorded_on(Null::default())
}

/// Creates a protection domain of `driver` whose commands are recorded.
pub(super) fn recorded_on(driver: Null) -> (ProtectionDomain, Recorder) {
    let (file, recorder) = UverbsFile::recording();
    let context = Context::on_file(file, AnyDriver::External(External::new(driver)));
    (ProtectionDomain::new(&context).expect("protection domain"), recorder)
}

/// Returns the number of times that `command` was issued.
pub(super) fn count(recorder: &Recorder, command: u32) -> usize {
    recorder.commands().into_iter().filter(|recorded| *recorded == command).count()
}

/// Marks memory, because another mapping may reuse the address of an unmapped one.
const MARK: [u8; 16] = *b"marked by a test";

/// Returns `true` if memory that begins with the [`MARK`] is mapped at `address`.
fn is_mapped(address: u64) -> bool {
    let mut bytes = [0; MARK.len()];
    let memory = File::open("/proc/self/mem").expect("this process's memory");
    memory.read_exact_at(&mut bytes, address).is_ok() && bytes == MARK
}

/// Registers marked memory.
fn marked(pd: &ProtectionDomain, length: usize) -> MemoryRegion {
    let mut region = MemoryRegion::alloc(pd, length, LOCAL).expect("memory region");
    region.write(0, &MARK).expect("write");
    region
}

/// Registers buffers, the first of which is marked.
fn marked_buffers(pd: &ProtectionDomain) -> (Vec<RegisteredBuffer>, u64) {
    let mut buffers = RegisteredBuffer::alloc(pd, 2, 64).expect("buffers");
    buffers[0][..MARK.len()].copy_from_slice(&MARK);
    let address = buffers[0].as_ptr() as u64;
    (buffers, address)
}

#[test]
fn memory_is_mapped_until_deregistered() {
    let (pd, recorder) = recorded();
    let region = marked(&pd, 5000);
    let address = region.addr();
    assert_eq!(address, region.as_ptr().as_ptr() as u64);
    assert_eq!((region.len(), region.is_empty(), is_mapped(address)), (5000, false, true));
    assert_eq!(count(&recorder, IB_USER_VERBS_CMD_DEREG_MR), 0);
    drop(region);
    assert_eq!(count(&recorder, IB_USER_VERBS_CMD_DEREG_MR), 1);
    assert!(!is_mapped(address));
    // The region holds its domain.
    let region = MemoryRegion::alloc(&pd, 1, LOCAL).expect("memory region");
    drop(pd);
    assert_eq!(count(&recorder, IB_USER_VERBS_CMD_DEALLOC_PD), 0);
    region.destroy().expect("destroy");
    let ended = [IB_USER_VERBS_CMD_DEREG_MR, IB_USER_VERBS_CMD_DEALLOC_PD];
    assert!(recorder.commands().ends_with(&ended), "{:?}", recorder.commands());
}

#[test]
fn refused_deregistration_leaves_memory_mapped() {
    let (pd, recorder) = recorded();
    let [dropped, destroyed] = [(); 2].map(|()| marked(&pd, 4096));
    let addresses = [dropped.addr(), destroyed.addr()];
    recorder.refuse();
    drop(dropped);
    let error = destroyed.destroy().expect_err("the file refuses");
    assert_eq!(error.error().errno(), libc::EPERM, "{}", error.error());
    assert!(addresses.into_iter().all(is_mapped));
    drop(error);
    assert!(addresses.into_iter().all(is_mapped));
}

#[test]
fn region_has_its_bounds() {
    let (pd, _recorder) = recorded();
    let mut region = MemoryRegion::alloc(&pd, 8, LOCAL).expect("memory region");
    let sges = [region.sge(..), region.sge(2..), region.sge(3..=4), region.sge(8..)];
    let start = region.addr();
    let sges = sges.map(|sge| {
        let sge = sge.expect("within the region");
        (sge.addr.get() - start, sge.length, sge.lkey)
    });
    let lkey = region.lkey();
    assert_eq!(sges, [(0, 8, lkey), (2, 6, lkey), (3, 2, lkey), (8, 0, lkey)]);
    let refused = [(0, 9), (8, 9), (9, 9), (5, 4), (0, usize::MAX)];
    for (from, to) in refused {
        region.sge(from..to).expect_err("beyond the region");
    }
    region.write(2, &[1, 2, 3]).expect("write");
    region.write(8, &[]).expect("write nothing at the end");
    let mut read = [9; 8];
    region.read(0, &mut read).expect("read");
    assert_eq!(read, [0, 0, 1, 2, 3, 0, 0, 0]);
    for offset in [6, 9, usize::MAX] {
        region.write(offset, &[7; 3]).expect_err("beyond the region");
        region.read(offset, &mut read[..3]).expect_err("beyond the region");
    }
    MemoryRegion::alloc(&pd, 0, LOCAL).expect_err("no memory");
}

#[test]
fn shared_memory_is_registered_in_parts() {
    let (pd, recorder) = recorded();
    let mut memory = DmaMemory::new(100).expect("memory");
    memory.write(0, &MARK).expect("write");
    memory.write(90, b"hello").expect("write");
    assert!((memory.len(), memory.is_empty()) == (100, false));
    let whole = MemoryRegion::register_shared(&pd, &memory, LOCAL).expect("share");
    let part =
        MemoryRegion::register_shared_part(&pd, &memory, 90..95, LOCAL).expect("share a part");
    assert_eq!((whole.len(), part.len(), part.addr() - whole.addr()), (100, 5, 90));
    let mut read = [0; 5];
    part.read(0, &mut read).expect_err("the memory is not the region's own");
    memory.read(90, &mut read).expect("read");
    assert_eq!(read, *b"hello");
    for refused in [0..101, 100..100, 101..101, 90..usize::MAX] {
        MemoryRegion::register_shared_part(&pd, &memory, refused, LOCAL)
            .expect_err("no part of the memory");
    }
    assert_eq!(count(&recorder, IB_USER_VERBS_CMD_REG_MR), 2);
    // Each registration holds the memory.
    let address = whole.addr();
    drop((memory, whole));
    assert!(is_mapped(address));
    drop(part);
    assert!(!is_mapped(address));
}

#[test]
fn buffers_share_memory_without_overlap() {
    let (pd, recorder) = recorded();
    let mut buffers = RegisteredBuffer::alloc_groups(&pd, [(2, 64), (3, 8)], 2).expect("buffers");
    assert_eq!(count(&recorder, IB_USER_VERBS_CMD_REG_MR), 1);
    let lengths: Vec<usize> = buffers.iter().map(|buffer| buffer.len()).collect();
    assert_eq!(lengths, [64, 64, 8, 8, 8, 1, 1]);
    for (index, buffer) in buffers.iter_mut().enumerate() {
        assert_eq!(buffer.index(), index);
        assert!(buffer.iter().all(|byte| *byte == 0), "new memory is zeroed");
        buffer.fill(u8::try_from(index).expect("few buffers") + 1);
    }
    for (index, buffer) in buffers.iter().enumerate() {
        assert!(buffer.iter().all(|byte| usize::from(*byte) == index + 1), "buffer {index}");
        let (length, first) = (u32::try_from(buffer.len()).expect("short"), buffer.as_ptr() as u64);
        let sge = buffer.sge(buffer.len()).expect("all of it");
        assert_eq!((sge.addr.get(), sge.length), (first, length));
        assert!(buffer.sge(buffer.len() + 1).is_none());
    }
    buffers[0][..MARK.len()].copy_from_slice(&MARK);
    let address = buffers[0].as_ptr() as u64;
    buffers.truncate(1);
    assert!(is_mapped(address));
    drop(buffers);
    assert_eq!(count(&recorder, IB_USER_VERBS_CMD_DEREG_MR), 1);
    assert!(!is_mapped(address));
}

#[test]
fn impossible_buffers_are_refused() {
    let (pd, recorder) = recorded();
    let many = usize::try_from(u64::from(u32::MAX) + 1).expect("64 bits");
    for (count, length) in [(0, 8), (1, 0), (many, 1), (1, many), (many - 1, many - 1)] {
        let error = RegisteredBuffer::alloc(&pd, count, length).expect_err("impossible");
        assert!(matches!(error.kind(), ErrorKind::InvalidInput { .. }), "{error}");
    }
    let error = RegisteredBuffer::alloc(&pd, 0, 8).expect_err("no buffers");
    assert!(error.to_string().contains("register no buffers"), "{error}");
    let error = RegisteredBuffer::alloc_groups(&pd, [(1, 8), (1, 0)], 0)
        .expect_err("a group without bytes");
    assert!(error.to_string().contains("1 buffers of 8 bytes and 1 buffers of 0 bytes"), "{error}");
    assert_eq!(count(&recorder, IB_USER_VERBS_CMD_REG_MR), 0);
}

/// The kernel destroys the queue pair first: the device may use posted memory until then.
#[test]
fn posted_buffers_outlive_their_queue_pair() {
    let (pd, recorder) = recorded();
    let cq = CompletionQueue::new(pd.context(), 16, None).expect("completion queue");
    let qp = QueuePair::new(&pd, &QueuePairInit::new(&cq)).expect("queue pair");
    qp.modify(&QueuePairAttributes::to(QpState::IB_QPS_INIT)).expect("modify");
    let mut queues = BufferedQueuePair::new(qp).expect("queues");
    let (mut buffers, address) = marked_buffers(&pd);
    queues.post_recv(buffers.remove(0)).expect("post");
    drop((buffers, cq));
    assert!(is_mapped(address));
    drop(queues);
    assert!(!is_mapped(address));
    let commands = recorder.commands();
    let place = |command| commands.iter().position(|recorded| *recorded == command);
    let destroyed = place(IB_USER_VERBS_CMD_DESTROY_QP).expect("the queue pair is destroyed");
    let ends = [IB_USER_VERBS_CMD_DEREG_MR, IB_USER_VERBS_CMD_DESTROY_CQ];
    assert!(ends.into_iter().all(|end| place(end) > Some(destroyed)), "{commands:?}");
}

/// Registers two buffers of one region.
fn two_buffers(pd: &ProtectionDomain) -> (RegisteredBuffer, RegisteredBuffer) {
    let mut buffers = RegisteredBuffer::alloc(pd, 2, 64).expect("buffers");
    (buffers.remove(0), buffers.remove(0))
}

/// Asserts that the region of `other` is kept for a posted buffer, but only if `is_refused`.
///
/// A recorder that refuses the destruction of a queue also refuses that of the region. So the memory stays mapped in
/// any case, and only the number of buffers shows that the region is not given back.
#[track_caller]
fn assert_kept(other: &RegisteredBuffer, is_refused: bool) {
    assert_eq!(other.buffers_in_block(), 1 + usize::from(is_refused), "refused: {is_refused}");
}

#[test]
fn posted_buffers_outlive_refused_destruction() {
    for is_refused in [false, true] {
        let (pd, recorder) = recorded();
        let cq = CompletionQueue::new(pd.context(), 16, None).expect("completion queue");
        let qp = QueuePair::new(&pd, &QueuePairInit::new(&cq)).expect("queue pair");
        qp.modify(&QueuePairAttributes::to(QpState::IB_QPS_INIT)).expect("modify");
        let mut queues = BufferedQueuePair::new(qp).expect("queues");
        let (posted, other) = two_buffers(&pd);
        queues.post_recv(posted).expect("post");
        if is_refused {
            recorder.refuse();
        }
        drop((queues, cq, pd));
        assert_kept(&other, is_refused);
    }
}

#[test]
fn owned_sends_outlive_refused_destruction() {
    for (is_refused, is_dropped) in [(false, false), (false, true), (true, false), (true, true)] {
        let (pd, recorder) = recorded();
        let side = Side::on(pd.context());
        let mut sends = OwnedSends::new(side.qp(QpType::IB_UVERBS_QPT_RC));
        let (posted, other) = two_buffers(&side.pd);
        sends.post(1, Some(posted), 8, SendOperation::Send).expect("post");
        if is_refused {
            recorder.refuse();
        }
        if is_dropped {
            drop(sends);
        } else {
            let returned = sends.destroy().len();
            assert_eq!(returned, usize::from(!is_refused));
        }
        assert_kept(&other, is_refused);
    }
}

#[test]
fn owned_receives_outlive_refused_destruction() {
    for is_refused in [false, true] {
        let (file, recorder) = UverbsFile::recording();
        // The null driver has no shared receive queues.
        let driver = Forged::new(Capabilities::default());
        let context = Context::on_file(file, AnyDriver::External(External::new(driver)));
        let pd = ProtectionDomain::new(&context).expect("protection domain");
        let attributes = SharedReceiveQueueAttributes { max_wr: 4, ..Default::default() };
        let srq = SharedReceiveQueue::new(&pd, attributes).expect("shared receive queue");
        let mut receives = OwnedReceives::new(srq, 1);
        let (posted, other) = two_buffers(&pd);
        assert_eq!(receives.posted(), 0);
        receives.post(posted).expect("post");
        assert_eq!(receives.posted(), 1);
        if is_refused {
            recorder.refuse();
        }
        drop(receives);
        assert_kept(&other, is_refused);
    }
}

/// Creates queues for datagrams, with a buffer and the address of a peer.
fn datagrams(pd: &ProtectionDomain) -> (BufferedQueuePair, RegisteredBuffer, AddressHandle) {
    let cq = CompletionQueue::new(pd.context(), 16, None).expect("completion queue");
    let init = QueuePairInit::new(&cq);
    let qp = QueuePair::with_type(pd, QpType::IB_UVERBS_QPT_UD, &init).expect("queue pair");
    qp.modify(&QueuePairAttributes::to(QpState::IB_QPS_RTS)).expect("modify");
    let mut attributes = verbs_abi::ib_uverbs_ah_attr::default();
    attributes.grh.dgid = [7; 16];
    let address = AddressHandle::new(pd, &attributes).expect("address handle");
    let buffer = RegisteredBuffer::alloc(pd, 1, 64).expect("buffers").remove(0);
    (BufferedQueuePair::new(qp).expect("queues"), buffer, address)
}

/// The poll that finds the completion destroys the address handle, or leaves that to the caller.
#[test]
fn datagram_holds_its_address() {
    for is_deferred in [false, true] {
        let (pd, recorder) = recorded();
        let (mut queues, buffer, address) = datagrams(&pd);
        if is_deferred {
            queues.defer_commands();
        }
        let destroyed = || count(&recorder, IB_USER_VERBS_CMD_DESTROY_AH);
        queues.post_send_to(buffer, 8, &address, 1, 1, None).expect("post a datagram");
        drop(address);
        assert_eq!((queues.outstanding(), destroyed()), (1, 0), "the request uses the address");
        let mut polled = Vec::new();
        assert_eq!(
            queues.poll(|buffer, wc| polled.push((buffer, wc.byte_len()))).expect("poll"),
            1
        );
        assert_eq!((polled[0].1, queues.outstanding()), (8, 0));
        assert_eq!((destroyed(), queues.has_released()), (usize::from(!is_deferred), is_deferred));
        drop(queues.take_released());
        assert_eq!((destroyed(), queues.has_released()), (1, false));
    }
}

#[test]
fn refused_datagram_returns_buffer_and_address() {
    let (pd, recorder) = recorded();
    let (mut queues, buffer, address) = datagrams(&pd);
    let (other_pd, other_recorder) = recorded();
    let other = datagrams(&other_pd).2;
    let refused = queues.post_send_to(buffer, 8, &other, 1, 1, None).expect_err("another domain");
    assert!(refused.error.to_string().contains("another protection domain"), "{}", refused.error);
    assert_eq!(queues.outstanding(), 0);
    drop(other);
    assert_eq!(count(&other_recorder, IB_USER_VERBS_CMD_DESTROY_AH), 1, "no request holds it");
    // A refused request does not release the address of another one.
    let buffer = refused.buffer.expect("the buffer comes back");
    queues.post_send_to(buffer, 8, &address, 1, 1, None).expect("post a datagram");
    drop(address);
    let buffer = RegisteredBuffer::alloc(&pd, 1, 8).expect("buffers").remove(0);
    let write = SendOperation::Write { remote_addr: 0, rkey: 0 };
    queues.post_send(buffer, 8, write).expect_err("the driver has only sends");
    assert_eq!(count(&recorder, IB_USER_VERBS_CMD_DESTROY_AH), 0, "the datagram uses it");
    queues.poll(|_, _| ()).expect("poll");
    assert_eq!(count(&recorder, IB_USER_VERBS_CMD_DESTROY_AH), 1);
}

/// Returns the object that `destroy` has refused to destroy, with the error's number.
fn kept<T>(refused: Result<(), DestroyError<T>>) -> (T, i32) {
    let (object, error) = refused.expect_err("the object should be kept").into_parts();
    (object, error.errno())
}

#[test]
fn refused_destruction_returns_object() {
    let (pd, recorder) = recorded();
    let cq = CompletionQueue::new(pd.context(), 4, None).expect("completion queue");
    let attributes = verbs_abi::ib_uverbs_ah_attr::default();
    let address = AddressHandle::new(&pd, &attributes).expect("address handle");
    let clones = (cq.clone(), address.clone());
    let (cq, errno) = kept(cq.destroy());
    assert_eq!(errno, libc::EBUSY, "a clone exists");
    let (address, errno) = kept(address.destroy());
    assert_eq!(errno, libc::EBUSY, "a clone exists");
    drop(clones);
    assert_eq!(count(&recorder, IB_USER_VERBS_CMD_DESTROY_CQ), 0);
    address.destroy().expect("destroy");
    recorder.refuse();
    assert_eq!(kept(cq.destroy()).1, libc::EPERM);
}
