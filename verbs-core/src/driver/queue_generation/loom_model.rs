use std::sync::Arc;

use super::*;
use crate::sync::{check, thread};

#[test]
fn loom_ended_generation_does_not_ring() {
    check(|| {
        let queue = Arc::new(QueueGeneration::default());
        // The number of posted entries, as the device reads it.
        let record = Arc::new(AtomicU32::new(0));
        let poster = thread::spawn({
            let (queue, record) = (Arc::clone(&queue), Arc::clone(&record));
            move || {
                let ringing = queue.ring(0);
                if ringing.is_some() {
                    record.store(5, Ordering::Relaxed);
                }
            }
        });
        queue.end(0);
        record.store(0, Ordering::Relaxed);
        poster.join().expect("the poster should not panic");
        assert_eq!(record.load(Ordering::Relaxed), 0);
        assert!(queue.ring(QueueGeneration::STEP).is_some());
    });
}
