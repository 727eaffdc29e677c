//! The rings between this library and a thread that models the kernel.
//!
//! The kernel's code is in `siw_qp.c`, `siw_qp_tx.c` and `siw_cq.c`.
//!
//! The kernel orders its accesses too weakly for a processor that reorders them. It reads a flag and stores VALID by
//! READ_ONCE and WRITE_ONCE, with no barrier between that and the element. The model orders these accesses, as the
//! protocol intends. Faults that no program can work around are not part of the model.

use std::sync::Arc;

use verbs_abi::AlignedU64;

use super::*;
use crate::sync::thread::{self, JoinHandle};
use crate::sync::{Condvar, Mutex, check};

/// Returns a ring of `elements`, with the bytes that follow a completion queue.
fn ring<E>(elements: u32) -> Ring<E> {
    let length = elements as usize * size_of::<E>() + size_of::<siw_cq_ctrl>();
    Ring::over(Mapping::private(length).expect("memory"), elements).expect("a good ring")
}

fn joined<T>(thread: JoinHandle<T>) -> T {
    thread.join().expect("the other thread does not panic")
}

fn id(element: NonNull<u8>) -> u64 {
    reads(element);
    // SAFETY: every element begins with its identifier.
    unsafe { element.cast().read() }
}

/// Stores a send once there is room.
fn put(ring: &mut Ring<siw_sqe>, id: u64) {
    let mut element = loop {
        match ring.free() {
            Ok(element) => break element,
            Err(_) => thread::yield_now(),
        }
    };
    element.put(0, &AlignedU64::new(id));
    element.publish(siw_wqe_flags::empty());
}

/// The sender: a thread of the kernel, or the thread that rings the doorbell.
struct Sender {
    place: Arc<Place>,
    state: Mutex<State>,
}

/// The state that the kernel's lock of the send queue guards.
#[derive(Default)]
struct State {
    /// `true` if an element was taken and is being processed.
    busy: bool,
    /// Number of elements that were taken.
    taken: u32,
}

impl Sender {
    fn of(ring: &Ring<siw_sqe>) -> Arc<Self> {
        // The first access to a word creates its loom atomic: it is here, and not in two threads at once.
        for slot in 0..=ring.place.mask {
            ring.place.work_flags(slot);
        }
        Arc::new(Self { place: Arc::clone(&ring.place), state: Mutex::default() })
    }

    /// Takes the next element, if there is one.
    fn activate(&self, state: &mut State) {
        let flags = self.place.work_flags(state.taken);
        state.busy = flags.load(Ordering::Acquire) & VALID != 0;
        if state.busy {
            assert_eq!(id(self.place.element(state.taken)), u64::from(state.taken));
            // The kernel clears the flags with `smp_store_mb`.
            flags.store(0, Ordering::Release);
            fence(Ordering::SeqCst);
            state.taken += 1;
        }
    }

    /// Sends until there is nothing more.
    fn work(&self) {
        while self.state.lock().expect("no thread should have panicked").busy {
            // The kernel sends here, without the lock.
            self.activate(&mut self.state.lock().expect("no thread should have panicked"));
        }
    }

    /// Models POST_SEND without a request.
    fn ring(&self) {
        let mut state = self.state.lock().expect("no thread should have panicked");
        if !state.busy {
            self.activate(&mut state);
            drop(state);
            self.work();
        }
    }
}

/// Checks the sending of the first element while others are stored, in lists of these lengths.
///
/// The kernel gets a doorbell for each list that needs one.
fn check_doorbells_send_all(slots: u32, lists: &[u32]) {
    let mut ring = ring(slots);
    let sender = Sender::of(&ring);
    put(&mut ring, 0);
    sender.activate(&mut sender.state.lock().expect("no thread should have panicked"));
    let kernel = thread::spawn({
        let sender = Arc::clone(&sender);
        move || sender.work()
    });
    let mut stored = 1;
    for list in lists.iter().copied() {
        for id in stored..stored + list {
            put(&mut ring, id.into());
        }
        stored += list;
        if ring.needs_doorbell(list) {
            sender.ring();
        }
    }
    joined(kernel);
    assert_eq!(
        sender.state.lock().expect("no thread should have panicked").taken,
        stored,
        "the kernel should send all requests"
    );
}

#[test]
fn loom_doorbell_is_rung_for_sleeping_kernel() {
    check(|| check_doorbells_send_all(2, &[1, 1]));
}

#[test]
fn loom_doorbell_is_rung_for_list() {
    check(|| check_doorbells_send_all(4, &[2, 1]));
}

#[test]
fn loom_doorbell_is_rung_for_list_that_fills_ring() {
    check(|| check_doorbells_send_all(2, &[2]));
}

#[test]
fn loom_doorbell_is_rung_with_room_for_one() {
    check(|| check_doorbells_send_all(1, &[1, 1]));
}

/// The channel of the events of a completion queue.
type Wake = Arc<(Mutex<bool>, Condvar)>;

fn wake(wake: &Wake) {
    *wake.0.lock().expect("no thread should have panicked") = true;
    wake.1.notify_one();
}

fn sleep(wake: &Wake) {
    let mut woken = wake.0.lock().expect("no thread should have panicked");
    while !*woken {
        woken = wake.1.wait(woken).expect("no thread should have panicked");
    }
    *woken = false;
}

/// The kernel's end of a completion queue.
struct Completer {
    place: Arc<Place>,
    arming: Arming,
    wake: Wake,
}

impl Completer {
    fn of(ring: &Ring<siw_cqe>) -> Self {
        let arming = ring.arming().expect("there is room");
        // The first access to a word creates its loom atomic: it is here, and not in two threads at once.
        arming.flags();
        for slot in 0..=ring.place.mask {
            ring.slot(slot);
        }
        Self { place: Arc::clone(&ring.place), arming, wake: Wake::default() }
    }

    /// Stores completion number `count`. Returns `false` if there is no room.
    fn complete(&self, ring: &Ring<siw_cqe>, count: u32) -> bool {
        let CompletionSlot { start: element, flags } = ring.slot(count);
        if flags.load(Ordering::Acquire) != 0 {
            return false;
        }
        writes(element);
        // SAFETY: every element begins with its identifier.
        unsafe { element.cast::<u64>().write(count.into()) };
        flags.store(1, Ordering::Release);
        // The kernel stores the flags of the completed request with `smp_store_mb`, which includes this fence.
        fence(Ordering::SeqCst);
        if self.arming.flags().load(Ordering::Relaxed) != 0 {
            self.arming.flags().store(0, Ordering::Relaxed);
            wake(&self.wake);
        }
        true
    }
}

/// Takes `completions` off a ring that holds one, and sleeps while there is none.
fn arming_thread_is_woken(completions: u32) {
    let mut ring = ring::<siw_cqe>(1);
    let completer = Completer::of(&ring);
    let (arming, woken) = (ring.arming().expect("there is room"), Arc::clone(&completer.wake));
    let kernel = thread::spawn(move || {
        let place = Arc::clone(&completer.place);
        let ring = Ring { place, elements: PhantomData };
        for count in 0..completions {
            while !completer.complete(&ring, count) {
                thread::yield_now();
            }
        }
    });
    for count in 0..completions {
        let completion = take_one(&mut ring).or_else(|| {
            arming.arm_next();
            take_one(&mut ring)
        });
        let completion = completion.unwrap_or_else(|| {
            loop {
                sleep(&woken);
                // An event may be of a completion that was taken before.
                if let Some(completion) = take_one(&mut ring) {
                    break completion;
                }
                arming.arm_next();
                if let Some(completion) = take_one(&mut ring) {
                    break completion;
                }
            }
        });
        assert_eq!(completion.id.get(), u64::from(count));
    }
    joined(kernel);
}

#[test]
fn loom_armed_and_empty_queue_wakes() {
    check(|| arming_thread_is_woken(1));
}

#[test]
fn loom_taken_element_is_whole_and_slot_is_free() {
    check(|| arming_thread_is_woken(2));
}

#[test]
fn loom_injected_completion_is_seen_or_wakes() {
    check(|| {
        let ring = ring::<siw_cqe>(1);
        let completer = Completer::of(&ring);
        let (arming, woken) = (ring.arming().expect("there is room"), Arc::clone(&completer.wake));
        let stored = Arc::new(AtomicU32::new(0));
        let library = thread::spawn({
            let stored = Arc::clone(&stored);
            move || {
                stored.store(1, Ordering::Relaxed);
                if completer.arming.is_set() {
                    wake(&completer.wake);
                }
            }
        });
        arming.arm_next();
        if stored.load(Ordering::Relaxed) == 0 {
            sleep(&woken);
            assert_eq!(stored.load(Ordering::Relaxed), 1);
        }
        joined(library);
    });
}

#[test]
fn loom_orphans_are_taken_whole_in_order() {
    check(|| {
        let mut ring = ring(2);
        Sender::of(&ring);
        let orphans = ring.orphans();
        put(&mut ring, 0);
        let flusher = thread::spawn(move || {
            let first = orphans.take_all();
            (orphans, first)
        });
        put(&mut ring, 1);
        put(&mut ring, 2);
        let (orphans, mut taken) = joined(flusher);
        taken.extend(orphans.take_all());
        assert_eq!(taken, [0, 1, 2]);
    });
}

#[test]
fn loom_orphan_is_taken_once() {
    check(|| {
        let mut ring = ring(2);
        Sender::of(&ring);
        let orphans = ring.orphans();
        put(&mut ring, 0);
        put(&mut ring, 1);
        let flusher = thread::spawn(move || orphans.take_all());
        let back = ring.take_back();
        let taken = joined(flusher);
        let expected: &[u64] = if back { &[0] } else { &[0, 1] };
        assert_eq!(taken, expected);
    });
}
