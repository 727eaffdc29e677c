//! Two queue pairs that share a register.

use super::super::memory::QueueMemory;
use super::*;
use crate::sync::{check, thread};

/// Each doorbell uses the buffer after that of the previous doorbell, in any of the threads.
#[test]
fn loom_doorbells_of_two_threads_alternate() {
    check(|| {
        let page = Arc::new(Mapping::private(4096).expect("memory"));
        let slot = Slot::new(&page, 0, 2 * WORD, Use::Shared).expect("the slot should fit");
        let ring_once = |slot: Arc<Slot>, word: u64| {
            let [mut ring] = QueueMemory::new([64]).expect("memory").rings;
            ring.put(0, [word, 0]);
            Register::new(slot, false).ring(&ring, 0, 1, true);
        };
        let other = thread::spawn({
            let slot = Arc::clone(&slot);
            move || ring_once(slot, 1)
        });
        ring_once(Arc::clone(&slot), 2);
        other.join().expect("the thread should not panic");
        let mut words = [0, WORD].map(|offset| stored(&page, offset));
        words.sort_unstable();
        assert_eq!(words, [1, 2], "each buffer should have one doorbell");
        assert_eq!(slot.next_buffer.load(Ordering::Relaxed), 0);
    });
}
