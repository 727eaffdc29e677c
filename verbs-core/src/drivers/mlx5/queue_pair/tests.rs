use std::sync::mpsc;
use std::thread;
use std::time::Duration;

use super::super::memory::QueueMemory;
use super::super::table::UserIndex;
use super::*;

#[test]
fn generation_does_not_end_while_doorbell_rings() {
    let memory = QueueMemory::new([256]).expect("memory");
    let table = Table::new(7, 4, 4, None, Arc::new(UserIndex::NONE));
    let current = Current::new(table, memory.record.clone());
    let reset = mpsc::channel();
    thread::scope(|scope| {
        let ringing = current.send.ring(0).expect("the generation should not have ended");
        scope.spawn(|| {
            current.reset(&[]);
            reset.0.send(()).expect("the receiver is alive");
        });
        // The step waits for the doorbell, so it has not ended however long this thread takes.
        let early = reset.1.recv_timeout(Duration::from_millis(100));
        assert!(early.is_err(), "the generation should not end while its doorbell rings");
        memory.record.store(Word::Second, 5);
        drop(ringing);
    });
    reset.1.recv().expect("the step should end");
    assert_eq!(memory.record.load(Word::Second), 0);
    assert!(current.send.has_ended(0) && current.send.ring(0).is_none());
}
