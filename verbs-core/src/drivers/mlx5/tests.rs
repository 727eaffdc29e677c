use std::sync::atomic::AtomicBool;

use verbs_abi::IB_USER_VERBS_CMD_QUERY_PORT;

use super::registers::Registers;
use super::*;

/// Returns the driver of a device without registers.
fn driver() -> Mlx5 {
    let limits = Limits {
        send_entry: 1024,
        receive_entry: 512,
        send_blocks: 1 << 15,
        receives: 1 << 15,
        shared_receives: 1 << 15,
    };
    let facts = Facts {
        limits,
        registers: Registers::absent(),
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
        // The file answers nothing, as a kernel that knows no link layers.
        let layer = driver.link_layer(cx, port);
        assert_eq!(layer, Ok(rdma_link_layer::IB_LINK_LAYER_INFINIBAND));
    }
    assert_eq!(recorder.commands(), [IB_USER_VERBS_CMD_QUERY_PORT; 2]);
    // The answers are those of the port.
    ignore_poison(driver.link_layers.lock())[1].1 = rdma_link_layer::IB_LINK_LAYER_ETHERNET;
    assert_eq!(driver.link_layer(cx, 1), Ok(rdma_link_layer::IB_LINK_LAYER_INFINIBAND));
    assert_eq!(driver.link_layer(cx, 2), Ok(rdma_link_layer::IB_LINK_LAYER_ETHERNET));
}
