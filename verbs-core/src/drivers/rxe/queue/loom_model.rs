//! The ring between this library and a thread that models the kernel (`rxe_queue.h`, `rxe_cq.c`).

use std::sync::Arc;

use super::*;
use crate::sync::thread::{self, JoinHandle};
use crate::sync::{Condvar, Mutex, check};

type Element = u64;

/// Number of elements that pass through the ring.
///
/// The ring holds one element, in two slots: the third element uses the slot of the first.
const ELEMENTS: u32 = 3;

/// Returns both ends of a ring that holds one element.
fn ends() -> (Queue<Element>, Kernel) {
    let mapping = Mapping::private(DATA + 2 * size_of::<Element>()).expect("memory");
    let blank: Queue<Element> =
        Queue { mapping, mask: 0, stride: 0, behind: 0, taken: 0, elements: PhantomData };
    blank.word(MASK).store(1, Ordering::Relaxed);
    blank.word(LOG2_ELEMENT).store(3, Ordering::Relaxed);
    let queue: Queue<Element> = Queue::over(blank.mapping, 0).expect("a good ring");
    // The first access to a word creates its loom atomic: it is here, and not in two threads at once.
    let indices = [PRODUCER, CONSUMER].map(|index| NonNull::from(queue.word(index)));
    let slots = [0, 1].map(|index| queue.slot(index));
    (queue, Kernel { indices, slots })
}

/// The kernel's end.
struct Kernel {
    /// The indices of producer and consumer.
    indices: [NonNull<AtomicU32>; 2],
    slots: [NonNull<u8>; 2],
}

// SAFETY: the models keep the ring until the thread of the kernel has ended.
unsafe impl Send for Kernel {}

impl Kernel {
    fn index(&self, which: usize) -> &AtomicU32 {
        // SAFETY: the model of a word lives as long as the execution.
        unsafe { self.indices[which].as_ref() }
    }

    /// Takes the element at `index`, if there is one. The kernel does not read its own index from the ring.
    fn consume(&self, index: u32) -> Option<Element> {
        if self.index(0).load(Ordering::Acquire) == index & 1 {
            return None;
        }
        let slot = self.slots[index as usize & 1];
        reads(slot);
        // SAFETY: a slot has an element.
        let element = unsafe { slot.cast().read() };
        self.index(1).store((index + 1) & 1, Ordering::Release);
        Some(element)
    }

    /// Puts `element` at `index`. Returns `false` if there is no room.
    fn produce(&self, index: u32, element: Element) -> bool {
        if self.index(1).load(Ordering::Acquire) == (index + 1) & 1 {
            return false;
        }
        let slot = self.slots[index as usize & 1];
        writes(slot);
        // SAFETY: a slot has room for an element.
        unsafe { slot.cast().write(element) };
        self.index(0).store((index + 1) & 1, Ordering::Release);
        true
    }
}

fn joined<T>(thread: JoinHandle<T>) -> T {
    thread.join().expect("the kernel does not panic")
}

#[test]
fn loom_posted_element_is_whole_for_kernel() {
    check(|| {
        let (mut queue, kernel) = ends();
        let kernel = thread::spawn(move || {
            for index in 0..ELEMENTS {
                let element = loop {
                    match kernel.consume(index) {
                        Some(element) => break element,
                        None => thread::yield_now(),
                    }
                };
                assert_eq!(element, Element::from(index) + 7);
            }
        });
        for index in 0..ELEMENTS {
            let mut slot = loop {
                match queue.free_slot() {
                    Ok(slot) => break slot,
                    Err(_) => thread::yield_now(),
                }
            };
            slot.put(0, &(Element::from(index) + 7));
            slot.publish();
        }
        joined(kernel);
    });
}

#[test]
fn loom_taken_element_is_whole_and_slot_is_free() {
    check(|| {
        let (mut queue, kernel) = ends();
        let kernel = thread::spawn(move || {
            for index in 0..ELEMENTS {
                while !kernel.produce(index, Element::from(index) + 7) {
                    thread::yield_now();
                }
            }
        });
        for index in 0..ELEMENTS {
            let mut taken = [0];
            while queue.take(&mut taken, |element| element) == Ok(0) {
                thread::yield_now();
            }
            assert_eq!(taken, [Element::from(index) + 7]);
        }
        joined(kernel);
    });
}

#[test]
fn loom_armed_and_empty_queue_wakes() {
    check(|| {
        let (mut queue, kernel) = ends();
        // The value under the kernel's lock of the queue: whether the queue is armed.
        let armed = Arc::new(Mutex::new(false));
        let woken = Arc::new((Mutex::new(false), Condvar::new()));
        let kernel = thread::spawn({
            let (armed, woken) = (Arc::clone(&armed), Arc::clone(&woken));
            move || {
                let mut armed = armed.lock().expect("no thread should have panicked");
                assert!(kernel.produce(0, 7));
                if *armed {
                    *armed = false;
                    *woken.0.lock().expect("no thread should have panicked") = true;
                    woken.1.notify_one();
                }
            }
        });
        // REQ_NOTIFY_CQ.
        *armed.lock().expect("no thread should have panicked") = true;
        let mut taken = [0];
        if queue.take(&mut taken, |element| element) == Ok(0) {
            let mut event = woken.0.lock().expect("no thread should have panicked");
            while !*event {
                event = woken.1.wait(event).expect("no thread should have panicked");
            }
            assert_eq!(queue.take(&mut taken, |element| element), Ok(1));
        }
        assert_eq!(taken, [7]);
        joined(kernel);
    });
}
