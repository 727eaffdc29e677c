//! The table of identifiers between a thread that posts and one that polls. A counter models the device: it hands
//! over from the post to the completion, as the doorbell and the owner byte of a completion do.

use super::super::memory::QueueMemory;
use super::*;
use crate::sync::{check, thread};

/// The number of requests that pass through the table, which has room for two.
const REQUESTS: u32 = 3;

/// The index of the block at which request `number` begins.
fn block(number: u32) -> u32 {
    number & 1
}

#[test]
fn loom_send_has_identifier_of_its_post() {
    check(|| {
        let table = Arc::new(Table::new(7, 2, 0, None, Arc::new(UserIndex::NONE)));
        let posted = Arc::new(AtomicU32::new(0));
        let poster = thread::spawn({
            let (table, posted) = (Arc::clone(&table), Arc::clone(&posted));
            move || {
                for number in 0..REQUESTS {
                    while number.wrapping_sub(table.sends_done()) >= 2 {
                        thread::yield_now();
                    }
                    table.post_send(block(number), number, u64::from(number) + 10);
                    posted.store(number + 1, Ordering::Release);
                }
            }
        });
        for number in 0..REQUESTS {
            while posted.load(Ordering::Acquire) <= number {
                thread::yield_now();
            }
            let index = u16::try_from(block(number)).expect("the number fits");
            assert_eq!(table.complete_send(index), Some(u64::from(number) + 10));
        }
        poster.join().expect("the poster should not panic");
    });
}

#[test]
fn loom_receive_has_identifier_of_its_post() {
    check(|| {
        let table = Arc::new(Table::new(7, 0, 2, None, Arc::new(UserIndex::NONE)));
        let poster = thread::spawn({
            let table = Arc::clone(&table);
            move || {
                for number in 0..REQUESTS {
                    while number.wrapping_sub(table.receives_done()) >= 2 {
                        thread::yield_now();
                    }
                    table.post_receive(number, u64::from(number) + 10);
                }
            }
        });
        for number in 0..REQUESTS {
            let wr_id = loop {
                match table.complete_receive() {
                    Some(wr_id) => break wr_id,
                    None => thread::yield_now(),
                }
            };
            assert_eq!(wr_id, u64::from(number) + 10);
        }
        poster.join().expect("the poster should not panic");
    });
}

/// Two threads poll completion queues of one shared receive queue.
///
/// A third thread posts into the entries that the two threads return.
#[test]
fn loom_shared_entries_are_returned_by_two_threads() {
    check(|| {
        let memory = QueueMemory::new([4 * 32]).expect("memory");
        let links = Links::of(&memory.rings[0], 5);
        let shared = Arc::new(SharedTable::new(links, 4, 4));
        // The first access to a word creates its loom atomic: it is here, and not in two threads at once.
        assert_eq!(shared.links.next(3), 0);
        (0..2).for_each(|index| shared.post(index, u64::from(index) + 10));
        let pollers = [0_u16, 1].map(|index| {
            let shared = Arc::clone(&shared);
            thread::spawn(move || assert_eq!(shared.complete(index), Some(u64::from(index) + 10)))
        });
        // The head is the entry behind the two.
        let mut head = 2;
        for wr_id in 20..22 {
            head = loop {
                match shared.next_head(head) {
                    Some(next) => {
                        shared.post(head, wr_id);
                        break next;
                    }
                    None => thread::yield_now(),
                }
            };
        }
        for poller in pollers {
            poller.join().expect("a poller should not panic");
        }
        assert!(head < 2, "an entry that a poller has returned is the head");
    });
}
