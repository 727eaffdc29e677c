//! The ring between this library and a thread that does what the kernel does at the other end
//! (`rxe_queue.h`, `rxe_cq.c`).

use std::sync::Arc;

use super::*;
use crate::concurrent::thread::{self, JoinHandle};
use crate::concurrent::{Condvar, Mutex, check};

type Element = u64;

/// How many elements go through a ring, which holds one, in two slots: the third is where the first was.
const ELEMENTS: u32 = 3;

/// A ring that holds one element, as both ends have it.
fn ends() -> (Queue<Element>, Kernel) {
    let mapping = Mapping::private(DATA + 2 * size_of::<Element>()).expect("memory");
    let blank: Queue<Element> =
        Queue { mapping, mask: 0, stride: 0, behind: 0, taken: 0, elements: PhantomData };
    blank.word(MASK).store(1, Ordering::Relaxed);
    blank.word(LOG2_ELEMENT).store(3, Ordering::Relaxed);
    let queue: Queue<Element> = Queue::over(blank.mapping, 0).expect("a good ring");
    // The first access of both is here, and not at both ends at once.
    let indices = [PRODUCER, CONSUMER].map(|index| NonNull::from(queue.word(index)));
    let slots = [0, 1].map(|index| queue.slot(index));
    (queue, Kernel { indices, slots })
}

/// The kernel's end.
struct Kernel {
    /// Of producer and consumer.
    indices: [NonNull<AtomicU32>; 2],
    slots: [NonNull<u8>; 2],
}

// SAFETY: the models keep the ring until the thread of the kernel has ended.
unsafe impl Send for Kernel {}

impl Kernel {
    fn index(&self, which: usize) -> &AtomicU32 {
        // SAFETY: what stands for a word lives as long as the execution.
        unsafe { self.indices[which].as_ref() }
    }

    /// Takes the element at `index`, if there is one: its own index the kernel keeps to itself.
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

    /// Puts `element` at `index`, if there is room.
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
fn loom_what_is_posted_is_whole_where_the_kernel_takes_it() {
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
            slot.pass_on();
        }
        joined(kernel);
    });
}

#[test]
fn loom_what_is_taken_is_whole_and_free_again() {
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
fn loom_who_arms_and_then_finds_nothing_is_woken() {
    check(|| {
        let (mut queue, kernel) = ends();
        // What the kernel's lock of the queue guards: whether it is armed.
        let armed = Arc::new(Mutex::new(false));
        let woken = Arc::new((Mutex::new(false), Condvar::new()));
        let kernel = thread::spawn({
            let (armed, woken) = (Arc::clone(&armed), Arc::clone(&woken));
            move || {
                let mut armed = armed.lock().expect("whole");
                assert!(kernel.produce(0, 7));
                if *armed {
                    *armed = false;
                    *woken.0.lock().expect("whole") = true;
                    woken.1.notify_one();
                }
            }
        });
        // REQ_NOTIFY_CQ.
        *armed.lock().expect("whole") = true;
        let mut taken = [0];
        if queue.take(&mut taken, |element| element) == Ok(0) {
            let mut event = woken.0.lock().expect("whole");
            while !*event {
                event = woken.1.wait(event).expect("whole");
            }
            assert_eq!(queue.take(&mut taken, |element| element), Ok(1));
        }
        assert_eq!(taken, [7]);
        joined(kernel);
    });
}
