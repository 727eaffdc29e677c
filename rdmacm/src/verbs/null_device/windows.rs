//! Tests of memory windows on a device that accepts every request.

use std::ptr::NonNull;

use verbs_abi::{
    IB_USER_VERBS_CMD_DEALLOC_MW, IB_USER_VERBS_CMD_DEREG_MR, IB_USER_VERBS_CMD_DESTROY_QP,
    ib_mw_type,
};

use super::memory::count;
use super::*;
use crate::driver::Capabilities;
use crate::drivers::forged::Forged;
use crate::error::Result;
use crate::sys::uverbs::{Recorder, UverbsFile};
use crate::work::WindowBinding;

const RC: QpType = QpType::IB_UVERBS_QPT_RC;
const TYPE_1: ib_mw_type = ib_mw_type::IB_MW_TYPE_1;
const TYPE_2: ib_mw_type = ib_mw_type::IB_MW_TYPE_2;
const LENGTH: usize = 64;

/// A device, and objects of one protection domain.
struct Windows {
    device: Forged,
    recorder: Recorder,
    side: Side,
}

impl Windows {
    /// Creates a device like rxe, which needs the library to track windows, if `tracks`.
    fn new(tracks: bool) -> Self {
        let capabilities = Capabilities { mw_type2_can_crash_kernel: tracks, ..Default::default() };
        let device = Forged::new(capabilities);
        let (file, recorder) = UverbsFile::recording();
        let driver = AnyDriver::External(External::new(device.clone()));
        let context = Context::on_file(file, driver);
        Self { device, recorder, side: Side::on(&context) }
    }

    fn qp(&self, qp_type: QpType) -> QueuePair {
        self.side.qp(qp_type)
    }

    fn region(&self) -> MemoryRegion {
        let access = AccessFlags::IB_UVERBS_ACCESS_MW_BIND;
        MemoryRegion::alloc(&self.side.pd, LENGTH, access).expect("memory region")
    }

    fn window(&self, mw_type: ib_mw_type) -> MemoryWindow {
        MemoryWindow::new(&self.side.pd, mw_type).expect("memory window")
    }

    fn count(&self, command: u32) -> usize {
        count(&self.recorder, command)
    }
}

fn request<'a>(window: &'a MemoryWindow, region: &'a MemoryRegion) -> BindRequest<'a> {
    let (access, flags) = (AccessFlags::IB_UVERBS_ACCESS_REMOTE_READ, SendFlags::empty());
    BindRequest { wr_id: 1, window, region, offset: 0, length: LENGTH, access, flags }
}

fn bind(qp: &QueuePair, window: &MemoryWindow, region: &MemoryRegion) {
    // SAFETY: the device accesses no memory, the region holds its memory and its registration while the window is
    // bound, and no `BufferedQueuePair` has the queue pair.
    unsafe { qp.bind_window(&request(window, region)) }.expect("bind");
}

fn invalidate(qp: &QueuePair, rkey: u32) -> Result<()> {
    let operation = SendOperation::LocalInvalidate { rkey };
    let request = SendRequest { payload: Payload::Gather(&[]), ..send(2, operation) };
    // SAFETY: the request names no memory.
    unsafe { qp.post_send(&request) }
}

#[test]
fn impossible_bind_is_refused() {
    let (own, other) = (Windows::new(false), Windows::new(false));
    let (qp, datagrams) = (own.qp(RC), own.qp(QpType::IB_UVERBS_QPT_UD));
    let (window, strange_window) = (own.window(TYPE_2), other.window(TYPE_2));
    let (region, strange_region) = (own.region(), other.region());
    let bind = request(&window, &region);
    bind.check(&qp).expect("the whole region");
    for (request, qp, reason) in [
        (bind, &datagrams, "queue pairs of type UD"),
        (BindRequest { window: &strange_window, ..bind }, &qp, "the memory window belongs to"),
        (BindRequest { region: &strange_region, ..bind }, &qp, "the memory region belongs to"),
        (BindRequest { flags: SendFlags::from_bits_retain(8), ..bind }, &qp, "unknown send flags"),
        (BindRequest { length: 0, ..bind }, &qp, "at least one byte"),
        (BindRequest { offset: 1, ..bind }, &qp, "not within"),
        (BindRequest { offset: usize::MAX, ..bind }, &qp, "not within"),
    ] {
        let error = request.check(qp).expect_err(reason);
        assert!(error.contains(reason), "{error}");
    }
    let first = own.window(TYPE_1);
    BindRequest { window: &first, length: 0, ..bind }.check(&qp).expect("no access");
}

/// On rxe, the queue pair of a window of type 2 must be older than the window.
#[test]
fn old_window_is_refused_if_kernel_may_crash() {
    for tracks in [false, true] {
        let own = Windows::new(tracks);
        for mw_type in [TYPE_1, TYPE_2] {
            let (old, region, qp) = (own.window(mw_type), own.region(), own.qp(RC));
            let is_refused = request(&old, &region).check(&qp).is_err();
            assert_eq!(is_refused, tracks && mw_type == TYPE_2, "{tracks}, {mw_type:?}");
            let new = own.window(mw_type);
            assert_eq!(new.mw_type(), mw_type);
            request(&new, &region).check(&qp).expect("the window is newer");
        }
    }
}

#[test]
fn each_bind_changes_low_byte_of_key() {
    let own = Windows::new(false);
    let (qp, window, region) = (own.qp(RC), own.window(TYPE_1), own.region());
    for bound in (1..256).chain([0, 1]) {
        bind(&qp, &window, &region);
        assert_eq!(window.rkey(), bound);
    }
    own.device.device().refuses = 1;
    // SAFETY: the device accesses no memory, the region holds its memory and its registration while the window is
    // bound, and no `BufferedQueuePair` has the queue pair.
    unsafe { qp.bind_window(&request(&window, &region)) }.expect_err("the device refuses");
    assert_eq!(window.rkey(), 1, "the bind was not posted");
}

#[test]
fn binding_names_part_of_region() {
    let own = Windows::new(false);
    let (window, region) = (own.window(TYPE_1), own.region());
    let binding = BindRequest { offset: 8, length: 16, ..request(&window, &region) };
    let WindowBinding { rkey, new_rkey, addr, length, .. } = binding.begin().binding();
    assert_eq!((rkey, new_rkey, addr, length), (0, 1, region.addr() + 8, 16));
}

/// The kernel deregisters a region only after the windows that are bound to it.
#[test]
fn window_holds_what_it_is_bound_to() {
    let own = Windows::new(false);
    let (qp, window, region) = (own.qp(RC), own.window(TYPE_2), own.region());
    bind(&qp, &window, &region);
    bind(&qp, &window, &region);
    drop((qp, region));
    let [destroyed, deregistered] = [IB_USER_VERBS_CMD_DESTROY_QP, IB_USER_VERBS_CMD_DEREG_MR];
    assert_eq!((own.count(destroyed), own.count(IB_USER_VERBS_CMD_DEALLOC_MW)), (0, 0));
    drop(window);
    let commands = own.recorder.commands();
    let place = |command| commands.iter().position(|recorded| *recorded == command);
    let freed = place(IB_USER_VERBS_CMD_DEALLOC_MW).expect("the window is destroyed");
    assert!(place(destroyed) > Some(freed), "{commands:?}");
    assert_eq!((own.count(destroyed), own.count(IB_USER_VERBS_CMD_DEALLOC_MW)), (1, 1));
    assert!(own.count(deregistered) >= 1);
}

/// A window of type 1 can be bound by any queue pair, so it holds none.
#[test]
fn window_of_type_1_holds_no_queue_pair() {
    let own = Windows::new(true);
    let (qp, window, region) = (own.qp(RC), own.window(TYPE_1), own.region());
    bind(&qp, &window, &region);
    drop(qp);
    assert_eq!(own.count(IB_USER_VERBS_CMD_DESTROY_QP), 1);
}

#[test]
fn clone_keeps_window() {
    let own = Windows::new(false);
    let window = own.window(TYPE_1);
    let clone = window.clone();
    let (window, error) = window.destroy().expect_err("a clone exists").into_parts();
    assert_eq!(error.errno(), libc::EBUSY, "{error}");
    drop(clone);
    window.destroy().expect("destroy");
    assert_eq!(own.count(IB_USER_VERBS_CMD_DEALLOC_MW), 1);
}

/// On rxe, only the key of a bound window of type 2 can be invalidated, and only once.
#[test]
fn bound_key_is_invalidated_once() {
    let own = Windows::new(true);
    let (qp, region) = (own.qp(RC), own.region());
    let (window, first) = (own.window(TYPE_2), own.window(TYPE_1));
    invalidate(&qp, 1).expect_err("no window is bound");
    bind(&qp, &first, &region);
    invalidate(&qp, first.rkey()).expect_err("windows of type 1 are not invalidated");
    bind(&qp, &window, &region);
    own.device.device().refuses = 1;
    invalidate(&qp, window.rkey()).expect_err("the device refuses");
    own.device.device().refuses = 0;
    invalidate(&qp, window.rkey()).expect("the window is still bound");
    invalidate(&qp, window.rkey()).expect_err("the key was invalidated");
    bind(&qp, &window, &region);
    let rkey = window.rkey();
    drop(window);
    invalidate(&qp, rkey).expect_err("the window was destroyed");
}

#[test]
fn other_keys_are_not_tracked() {
    for (tracks, qp_type) in [(false, RC), (true, QpType::IB_UVERBS_QPT_UC)] {
        let own = Windows::new(tracks);
        invalidate(&own.qp(qp_type), 7).expect("the library tracks no key");
    }
}

/// The program may hold references to memory of its own.
#[test]
fn window_over_memory_of_program_is_refused() {
    let own = Windows::new(false);
    let (qp, window) = (own.qp(RC), own.window(TYPE_1));
    let mut bytes = [0_u64; LENGTH / 8];
    let (start, access) = (NonNull::from(&mut bytes).cast(), AccessFlags::IB_UVERBS_ACCESS_MW_BIND);
    // SAFETY: the region is dropped before `bytes`, no window is bound to it, and no other code uses `bytes`.
    let program = unsafe { MemoryRegion::register(&own.side.pd, start, LENGTH, access) };
    let program = program.expect("memory region");
    let region = own.region();
    let mut buffers = RegisteredBuffer::alloc(&own.side.pd, 3, 8).expect("buffers");
    let mut queues = BufferedQueuePair::new(qp).expect("queues");
    let refused = queues
        .bind_window(buffers.remove(0), &request(&window, &program))
        .expect_err("the memory is of the program");
    assert!(refused.error.to_string().contains("must be over a `DmaMemory`"), "{}", refused.error);
    assert!(refused.buffer.is_some() && own.device.device().requests.is_empty());
    // The completion returns the buffer, so each bind is signaled.
    for (flags, buffer) in [SendFlags::empty(), SendFlags::SIGNALED].into_iter().zip(buffers) {
        let request = BindRequest { flags, ..request(&window, &region) };
        queues.bind_window(buffer, &request).expect("bind");
    }
    let posted: Vec<_> =
        own.device.device().requests.iter().map(|posted| posted.is_signaled).collect();
    assert_eq!(posted, [true, true]);
}
