use std::fs::File;
use std::mem::offset_of;
use std::os::unix::fs::FileExt as _;
use std::sync::atomic::AtomicBool;

use verbs_abi::{
    IB_USER_VERBS_CMD_CREATE_QP, IB_USER_VERBS_CMD_DESTROY_QP, IB_USER_VERBS_CMD_QUERY_PORT,
    ib_uverbs_cmd_hdr, ib_uverbs_create_qp, ib_uverbs_create_srq,
};

use super::registers::{RegisterFacts, Registers};
use super::*;
use crate::sys::mapping::Mapping;

/// Returns the driver of a device whose registers are memory of this process.
fn driver() -> Mlx5 {
    let limits = Limits {
        send_entry: 1024,
        receive_entry: 512,
        send_blocks: 1 << 15,
        receives: 1 << 15,
        shared_receives: 1 << 15,
    };
    let facts = RegisterFacts {
        total: 2,
        dedicated: 1,
        shared: 1,
        size: 512,
        per_kernel_page: 1,
        copies_nothing: false,
    };
    let registers = Registers::map_static(facts, |_, length| Mapping::private(length));
    let facts = Facts {
        limits,
        registers: Arc::new(registers.expect("registers")),
        copies_inline_only: false,
        user_indices: None,
        completion_shift: 6,
        resolves_addresses: true,
        has_ece: false,
    };
    Mlx5 { facts, link_layers: Mutex::default(), shared_tables: Mutex::default() }
}

fn shared_table() -> Arc<SharedTable> {
    let memory = QueueMemory::new([4 * 32]).expect("memory");
    Arc::new(SharedTable::new(Links::of(&memory.rings[0], 5), 4, 4))
}

#[test]
fn shared_queue_is_found_by_its_handle() {
    let driver = driver();
    let [first, second, third] = [shared_table(), shared_table(), shared_table()];
    for (handle, table) in [(1, &first), (2, &second)] {
        driver.remember_shared(handle, table);
    }
    for (handle, table) in [(1, &first), (2, &second)] {
        let found = driver.shared_table(handle).expect("the queue should be known");
        assert!(Arc::ptr_eq(&found, table), "handle {handle}");
    }
    // The kernel destroyed the first queue, whose completions are not polled yet, and uses its handle again.
    driver.remember_shared(1, &third);
    let found = driver.shared_table(1).expect("the queue should be known");
    assert!(Arc::ptr_eq(&found, &third));
    let unknown = driver.shared_table(3).map(drop);
    assert_eq!(unknown, Err(CreateError::Command(CommandError::Os(Errno::EINVAL))));
}

#[test]
fn destroyed_shared_queues_are_forgotten() {
    let driver = driver();
    let kept = shared_table();
    driver.remember_shared(0, &kept);
    for handle in 1..10 {
        driver.remember_shared(handle, &shared_table());
    }
    // The last queue is in the list until another one is created.
    assert_eq!(ignore_poison(driver.shared_tables.lock()).len(), 2);
    assert!(driver.shared_table(9).is_err(), "the queue does not exist any more");
}

#[test]
fn link_layer_of_each_port_is_queried_once() {
    let driver = driver();
    let ((file, recorder), is_removed) = (UverbsFile::recording(), AtomicBool::new(false));
    let cx = CommandContext::new(&file, &is_removed);
    for port in [1, 1, 2, 1, 2] {
        // The file answers nothing, like a kernel that does not know link layers.
        let layer = driver.link_layer(cx, port);
        assert_eq!(layer, Ok(rdma_link_layer::IB_LINK_LAYER_INFINIBAND));
    }
    assert_eq!(recorder.commands(), [IB_USER_VERBS_CMD_QUERY_PORT; 2]);
    // The answers are those of the port.
    ignore_poison(driver.link_layers.lock())[1].1 = rdma_link_layer::IB_LINK_LAYER_ETHERNET;
    assert_eq!(driver.link_layer(cx, 1), Ok(rdma_link_layer::IB_LINK_LAYER_INFINIBAND));
    assert_eq!(driver.link_layer(cx, 2), Ok(rdma_link_layer::IB_LINK_LAYER_ETHERNET));
}

/// The kernel answers with the capacities that were requested. Those of the rings are larger.
#[test]
fn queues_have_capacities_of_their_rings() {
    let driver = driver();
    let (file, is_removed) = (UverbsFile::silent(), AtomicBool::new(false));
    let cx = CommandContext::new(&file, &is_removed);
    let cq = driver.create_cq(cx, ib_uverbs_create_cq { cqe: 10, ..Default::default() });
    let cq = cq.expect("a completion queue").control;
    let create = |qp_type, is_srq, srq_handle| {
        let request = ib_uverbs_ex_create_qp {
            qp_type,
            max_send_wr: 10,
            max_recv_wr: 10,
            max_send_sge: 1,
            max_recv_sge: 3,
            max_inline_data: 20,
            is_srq,
            srq_handle,
            ..Default::default()
        };
        driver.create_qp(cx, request, CqControls { send: &cq, recv: &cq })
    };
    let qp = create(QpType::IB_UVERBS_QPT_RC, 0, 0).expect("a queue pair");
    // An entry of the send queue has 256 bytes: 192 for other segments and 4 for the length of inline data.
    let held = qp.response;
    assert_eq!((held.max_send_wr, held.max_send_sge, held.max_inline_data), (16, 1, 60));
    assert_eq!((held.max_recv_wr, held.max_recv_sge), (16, 4));
    assert!(qp.recv.is_some());
    let (max_wr, max_sge) = (10, 2);
    let request = ib_uverbs_create_srq { max_wr, max_sge, ..Default::default() };
    let srq = driver.create_srq(cx, CreateSrq::Plain(request), None).expect("a shared queue");
    // One entry of the list stays unused, and an entry of 64 bytes begins with the link.
    assert_eq!((srq.response.max_wr, srq.response.max_sge), (15, 3));
    // These queue pairs have no receive queue of their own.
    for (qp_type, is_srq) in [(QpType::IB_UVERBS_QPT_RC, 1), (QpType::IB_UVERBS_QPT_XRC_INI, 0)] {
        let qp = create(qp_type, is_srq, srq.response.srq_handle).expect("a queue pair");
        assert!(qp.recv.is_none());
        assert_eq!((qp.response.max_recv_wr, qp.response.max_recv_sge), (0, 0));
    }
}

#[test]
fn destroyed_queue_pair_ends_on_both_queues() {
    let driver = driver();
    let (file, is_removed) = (UverbsFile::silent(), AtomicBool::new(false));
    let cx = CommandContext::new(&file, &is_removed);
    let cq = || driver.create_cq(cx, ib_uverbs_create_cq { cqe: 10, ..Default::default() });
    let [send, recv] = [cq(), cq()].map(|cq| cq.expect("a completion queue").control);
    let request =
        ib_uverbs_ex_create_qp { qp_type: QpType::IB_UVERBS_QPT_RC, ..Default::default() };
    let cqs = || CqControls { send: &send, recv: &recv };
    let qp = driver.create_qp(cx, request, cqs()).expect("a queue pair").data;
    let (_, table) = qp.get();
    // This function, the queue pair and both completion queues have the table.
    assert_eq!(Arc::strong_count(&table), 4);
    driver.on_destroyed(&qp, cqs());
    assert_eq!(Arc::strong_count(&table), 2);
}

/// Bytes of CREATE_QP before the driver's part, and with it.
const CREATE_QP_CORE: usize = size_of::<ib_uverbs_cmd_hdr>() + size_of::<ib_uverbs_create_qp>();
const CREATE_QP: usize = CREATE_QP_CORE + size_of::<mlx5_ib_create_qp>();

/// Fails to create a queue pair: the kernel's answer names a register of a device that has none.
///
/// If `is_refused`, the kernel does not destroy the queue pair. Returns the issued commands, and the address of the
/// memory in which the queue pair was created.
fn create_without_register(is_refused: bool) -> (Vec<u32>, u64) {
    let mut driver = driver();
    driver.facts.registers = Registers::absent();
    let cq_request = ib_uverbs_create_cq { cqe: 1, ..Default::default() };
    let ((file, recorder), is_removed) = (UverbsFile::recording(), AtomicBool::new(false));
    let silent = UverbsFile::silent();
    let cq = driver.create_cq(CommandContext::new(&silent, &is_removed), cq_request);
    let cq = cq.expect("a completion queue").control;
    if is_refused {
        recorder.refuse_after(CREATE_QP);
    }
    let request =
        ib_uverbs_ex_create_qp { qp_type: QpType::IB_UVERBS_QPT_RC, ..Default::default() };
    let cx = CommandContext::new(&file, &is_removed);
    let created = driver.create_qp(cx, request, CqControls { send: &cq, recv: &cq });
    assert_eq!(created.map(drop), Err(CreateError::Map(Errno::EPROTO)));
    let place = CREATE_QP_CORE + offset_of!(mlx5_ib_create_qp, buf_addr);
    let address = recorder.bytes()[place..].first_chunk().copied().expect("an address");
    (recorder.commands(), u64::from_ne_bytes(address))
}

/// Returns `true` if memory is mapped at `address`.
fn is_mapped(address: u64) -> bool {
    let memory = File::open("/proc/self/mem").expect("this process's memory");
    memory.read_exact_at(&mut [0], address).is_ok()
}

/// Another thread may map memory at the address of unmapped memory, so both cases are repeated.
#[test]
fn memory_is_kept_if_queue_pair_is_not_destroyed() {
    let kept = (0..100).all(|_| {
        let (commands, address) = create_without_register(true);
        assert_eq!(commands, [IB_USER_VERBS_CMD_CREATE_QP]);
        is_mapped(address)
    });
    assert!(kept, "the device may still access the memory");
    let is_unmapped = (0..1000).any(|_| {
        let (commands, address) = create_without_register(false);
        assert_eq!(commands, [IB_USER_VERBS_CMD_CREATE_QP, IB_USER_VERBS_CMD_DESTROY_QP]);
        !is_mapped(address)
    });
    assert!(is_unmapped, "the queue pair was destroyed");
}
