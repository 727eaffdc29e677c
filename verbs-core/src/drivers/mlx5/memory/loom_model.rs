//! The ring of a completion queue between a thread that polls and one that models the device.

use super::*;
use crate::sync::{check, thread};

/// The number of completions that pass through the ring, which has one entry: two rounds.
const COMPLETIONS: u32 = 2;

/// The opcode of a completion.
const REQUEST: u8 = 0;

#[test]
fn loom_completion_is_whole_after_owner_byte() {
    check(|| {
        let memory = QueueMemory::new([COMPLETION]).expect("memory");
        let (ring, record) = (CompletionRing::new(memory.mapping, 1, 6), memory.record);
        // The first access to a word creates its loom atomic: it is here, and not in two threads at once.
        let entry = ring.entry(0);
        let fields = [entry.u8(at::PATH), entry.u8(at::SYNDROME)];
        assert_eq!((entry.opcode(), fields, record.load(Word::First)), (None, [0; 2], 0));
        let device = thread::spawn({
            let (ring, record) = (ring.clone(), record.clone());
            move || {
                for number in 0..COMPLETIONS {
                    while record.load(Word::First) != number {
                        thread::yield_now();
                    }
                    let field = [u8::try_from(number).expect("the number fits") + 7];
                    [at::PATH, at::SYNDROME]
                        .into_iter()
                        .for_each(|offset| ring.write(number, offset, &field));
                    ring.store_owner(number, REQUEST);
                }
            }
        });
        for number in 0..COMPLETIONS {
            let entry = ring.entry(number);
            let opcode = loop {
                match entry.opcode() {
                    Some(opcode) => break opcode,
                    None => thread::yield_now(),
                }
            };
            let fields = [at::PATH, at::SYNDROME].map(|offset| u32::from(entry.u8(offset)));
            assert_eq!((opcode, fields), (REQUEST, [number + 7; 2]));
            record.store(Word::First, number + 1);
        }
        device.join().expect("the device should not panic");
    });
}
