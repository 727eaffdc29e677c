use super::super::memory::QueueMemory;
use super::*;

fn table(blocks: u32, receives: u32) -> Table {
    Table::new(7, blocks, receives, None, Arc::new(UserIndex::NONE))
}

#[test]
fn send_completes_once_with_those_before_it() {
    let table = table(4, 0);
    table.post_send(0, 0, 10);
    table.post_send(1, 1, 11);
    table.post_send(3, 2, 12);
    assert_eq!(table.complete_send(2), None, "no request begins at this block");
    assert_eq!(table.complete_send(1), Some(11));
    assert_eq!(table.sends_done(), 2);
    assert_eq!(table.complete_send(0), None, "the request has completed with a later one");
    assert_eq!(table.complete_send(1), None, "the request has completed");
    // The counter of the device has 16 bits and wraps at the end of the ring.
    assert_eq!(table.complete_send(7), Some(12));
    table.post_send(0, 3, 13);
    assert_eq!(table.complete_send(4), Some(13));
}

#[test]
fn key_change_is_found_by_completion_index() {
    let table = table(4, 0);
    let changes = || [1, 2, 6, 0xfffe].map(|index| table.key_change(index));
    assert_eq!(changes(), [KeyChange::Bind; 4]);
    table.set_key_change(2, KeyChange::Invalidation);
    let invalidation = KeyChange::Invalidation;
    assert_eq!(changes(), [KeyChange::Bind, invalidation, invalidation, invalidation]);
    table.set_key_change(2, KeyChange::Bind);
    assert_eq!(changes(), [KeyChange::Bind; 4]);
}

#[test]
fn number_of_requests_wraps() {
    let table = table(2, 2);
    table.sends_done.store(u32::MAX, Ordering::Relaxed);
    table.post_send(0, u32::MAX, 1);
    assert_eq!(table.complete_send(0), Some(1));
    table.receives_done.store(u32::MAX, Ordering::Relaxed);
    table.receives_posted.store(u32::MAX, Ordering::Relaxed);
    table.post_receive(u32::MAX, 2);
    assert_eq!(table.complete_receive(), Some(2));
    assert_eq!(table.receives_done(), 0);
}

#[test]
fn receives_complete_in_order() {
    let table = table(0, 2);
    assert_eq!(table.complete_receive(), None);
    assert_eq!(table.complete_send(0), None, "there is no send queue");
    for number in 0..5 {
        table.post_receive(number, u64::from(number) + 100);
        assert_eq!(table.complete_receive(), Some(u64::from(number) + 100));
    }
    assert_eq!((table.complete_receive(), table.receives_done()), (None, 5));
    assert_eq!(table.emptied().receives_done(), 0);
}

#[test]
fn shared_entries_return_to_list() {
    let memory = QueueMemory::new([4 * 32]).expect("memory");
    let shared = SharedTable::new(Links::of(&memory.rings[0], 5), 4, 4);
    let mut head = 0;
    let mut post = |wr_id| {
        let next = shared.next_head(head)?;
        shared.post(head, wr_id);
        Some(std::mem::replace(&mut head, next))
    };
    assert_eq!([post(1), post(2), post(3), post(4)], [Some(0), Some(1), Some(2), None]);
    assert_eq!(shared.complete(1), Some(2));
    assert_eq!(shared.complete(1), None, "the receive has completed");
    assert_eq!(shared.complete(9), None, "there is no such entry");
    assert_eq!(post(5), Some(3), "the entry that was the last");
    assert_eq!(post(6), None);
    assert_eq!([shared.complete(0), shared.complete(3)], [Some(1), Some(5)]);
    assert_eq!([post(7), post(8), post(9)], [Some(1), Some(0), None]);
}

#[test]
fn lowest_free_user_index_is_taken() {
    let indices = UserIndices::new();
    let taken: Vec<_> = (0..3).map(|_| indices.take().expect("an index")).collect();
    assert_eq!(taken.iter().map(|taken| taken.index).collect::<Vec<_>>(), [0, 1, 2]);
    drop(taken);
    assert_eq!(indices.take().map(|taken| taken.index), Some(0));
    ignore_poison(indices.free.lock()).from = NO_INDEX;
    let rest: Vec<_> = std::iter::from_fn(|| indices.take()).collect();
    assert_eq!(rest.len(), 3);
}
