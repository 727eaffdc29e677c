//! An endpoint with waiters of every kind, in the orders with at most two interruptions of threads that could continue.
//!
//! The list of waiters is the real one. The endpoint is a model of three files of the parent module, and must follow
//! their changes: `SharedState::wake_waiters` of `waking.rs`, `Shared::wait_loop` of `wait_loop.rs`, and its reader of
//! `thread_wait.rs`. The tests of `null_connection/tests/waiting_threads.rs` run the files themselves, with two threads in
//! chosen orders.

use loom::sync::{Arc, Condvar, Mutex, MutexGuard};
use loom::thread;

use super::*;
use crate::sync::check_bounded as check;

/// The means to sleep of a waiter. (Loom's own parking also wakes threads that wait for a lock.)
#[derive(Default)]
struct Parker {
    is_woken: Mutex<bool>,
    changed: Condvar,
}

impl Parker {
    fn unpark(&self) {
        *self.is_woken.lock().expect("no thread panics") = true;
        self.changed.notify_one();
    }

    fn park(&self) {
        let mut is_woken = self.is_woken.lock().expect("no thread panics");
        while !std::mem::take(&mut *is_woken) {
            is_woken = self.changed.wait(is_woken).expect("no thread panics");
        }
    }
}

/// An endpoint whose descriptor is a condition variable: a thread that sleeps there is the reader.
#[derive(Default)]
struct Endpoint {
    state: Mutex<State>,
    event: Condvar,
}

#[derive(Default)]
struct State {
    /// `true` if the device raises an event with the next completion.
    is_armed: bool,
    /// `true` if the descriptor reports an event.
    has_event: bool,
    /// Completions that the device has.
    completed: usize,
    /// `true` if the endpoint assumes that the queue is armed.
    counts_as_armed: bool,
    inbox: usize,
    has_ended: bool,
    waiters: WaiterList<Arc<Parker>>,
    reader: Option<WaiterId>,
    /// `true` if the reader must wake, although no event has been raised.
    wakes_reader: bool,
    /// Tasks and event loops that watch the descriptor.
    watchers: Vec<Arc<Parker>>,
}

impl State {
    fn poll(&mut self) {
        if std::mem::take(&mut self.has_event) {
            self.counts_as_armed = false;
        }
        let completed = std::mem::take(&mut self.completed);
        if completed > 0 {
            self.counts_as_armed = false;
        }
        self.inbox += completed;
    }

    /// Wakes the waiters before the endpoint is unlocked.
    ///
    /// Returns the threads that must be unparked afterwards.
    fn wake_waiters(&mut self, event: &Condvar) -> Vec<Arc<Parker>> {
        let mut woken = Vec::new();
        let (messages, has_ended) = (self.inbox, self.has_ended);
        let available = Available { messages, has_ended, ..Available::default() };
        self.waiters.wake_ready(&available, |_| false, |id, parker| woken.push((id, parker)));
        let (has_reader, is_unarmed) = (self.reader.is_some(), !self.counts_as_armed);
        let wake = |id, parker| woken.push((id, parker));
        self.waiters.wake_successor(has_reader, || is_unarmed, wake);
        let mut parkers = Vec::new();
        for (id, parker) in woken {
            if self.reader == Some(id) {
                self.wakes_reader = true;
                event.notify_one();
            } else {
                parkers.push(parker);
            }
        }
        parkers
    }
}

impl Endpoint {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().expect("no thread panics")
    }

    /// Unlocks the endpoint.
    fn unlock(&self, mut state: MutexGuard<'_, State>) {
        let woken = state.wake_waiters(&self.event);
        drop(state);
        woken.iter().for_each(|parker| parker.unpark());
    }

    fn end(&self) {
        let mut state = self.lock();
        state.has_ended = true;
        self.unlock(state);
    }

    /// Delivers a message to the device.
    fn arrive(&self) {
        let mut state = self.lock();
        state.completed += 1;
        if std::mem::take(&mut state.is_armed) {
            state.has_event = true;
            self.event.notify_one();
            state.watchers.iter().for_each(|parker| parker.unpark());
        }
    }

    /// Returns the resource for which the waiters wait, as another caller. No event reports that.
    fn give(&self) {
        let mut state = self.lock();
        state.inbox += 1;
        self.unlock(state);
    }

    /// Wakes the reader though nothing has arrived, as a signal does.
    fn interrupt(&self) {
        let mut state = self.lock();
        state.wakes_reader = state.reader.is_some();
        self.event.notify_one();
    }

    /// Waits for a message if `operation` receives one, and otherwise for the end.
    ///
    /// Stops after `max_sleeps` sleeps. Returns `true` if there was a message.
    ///
    /// An event loop that stops waiting leaves a sleeping waiter: it may try again at any time, or never.
    fn wait_for(&self, kind: WaiterKind, operation: Operation, max_sleeps: Option<usize>) -> bool {
        let receives = operation == Operation::Receive;
        let parker = Arc::<Parker>::default();
        let mut slept = 0;
        let mut waiter = None;
        let mut state = self.lock();
        if kind != WaiterKind::Thread {
            state.watchers.push(Arc::clone(&parker));
        }
        loop {
            state.poll();
            let is_over = max_sleeps == Some(slept);
            let has_message = receives && state.inbox > 0 && !is_over;
            if has_message || is_over || state.has_ended {
                state.inbox -= usize::from(has_message);
                if let Some(id) = waiter {
                    state.waiters.remove(id);
                }
                self.unlock(state);
                return has_message;
            }
            let is_thread = kind == WaiterKind::Thread;
            let has_other = is_thread && state.waiters.has_other_awake_thread(waiter);
            if !state.counts_as_armed && !has_other {
                state.counts_as_armed = true;
                // The command is issued while the endpoint is unlocked.
                drop(state);
                self.lock().is_armed = true;
                state = self.lock();
                continue;
            }
            let id = *waiter.get_or_insert_with(|| state.waiters.add(operation.into(), kind));
            state.waiters.set_asleep(id, Arc::clone(&parker));
            slept += 1;
            if is_thread && !has_other && state.reader.is_none() {
                state.reader = Some(id);
                self.unlock(state);
                state = self.lock();
                while !state.has_event && !state.wakes_reader {
                    state = self.event.wait(state).expect("no thread panics");
                }
                (state.reader, state.wakes_reader) = (None, false);
            } else {
                self.unlock(state);
                if kind == WaiterKind::EventLoop && max_sleeps == Some(slept) {
                    return false;
                }
                parker.park();
                state = self.lock();
            }
            state.waiters.set_awake(id);
        }
    }
}

/// Checks two waiters for one resource, and a third one that leaves after its first sleep.
///
/// Another caller returns the resource. The leaver was woken for it, or leaves before. The waiter that takes the
/// resource ends the endpoint. If the only wakeup were lost with the leaver, the others would sleep forever.
fn one_of_three_leaves(kinds: [WaiterKind; 2], leaver: WaiterKind) {
    check(move || {
        let endpoint = Arc::new(Endpoint::default());
        let waiters = [(kinds[0], None), (kinds[1], None), (leaver, Some(1))];
        let threads = waiters.map(|(kind, max_sleeps)| {
            let endpoint = Arc::clone(&endpoint);
            thread::spawn(move || {
                let has_message = endpoint.wait_for(kind, Operation::Receive, max_sleeps);
                if has_message {
                    endpoint.end();
                }
                has_message
            })
        });
        endpoint.give();
        let received = threads.map(|thread| thread.join().expect("no thread panics"));
        let count = received.iter().filter(|has_message| **has_message).count();
        assert_eq!(count, 1, "one waiter has it");
    });
}

#[test]
fn loom_thread_that_leaves_passes_wakeup_on() {
    one_of_three_leaves([WaiterKind::Thread, WaiterKind::Task], WaiterKind::Thread);
}

#[test]
fn loom_task_that_leaves_passes_wakeup_on() {
    one_of_three_leaves([WaiterKind::Task, WaiterKind::EventLoop], WaiterKind::Task);
}

#[test]
fn loom_loop_that_leaves_passes_wakeup_on() {
    one_of_three_leaves([WaiterKind::Thread, WaiterKind::Task], WaiterKind::EventLoop);
}

/// Checks two threads, one that sleeps on the descriptor, and one that is parked.
///
/// The first one is interrupted and leaves. The other one then sleeps on the descriptor, and gets the message.
#[test]
fn loom_reader_hands_descriptor_over() {
    check(|| {
        let endpoint = Arc::new(Endpoint::default());
        let [receiver, leaver] = [(Operation::Receive, None), (Operation::AcquireBuffer, Some(1))]
            .map(|(operation, max_sleeps)| {
                let endpoint = Arc::clone(&endpoint);
                thread::spawn(move || endpoint.wait_for(WaiterKind::Thread, operation, max_sleeps))
            });
        endpoint.interrupt();
        endpoint.arrive();
        assert!(receiver.join().expect("no thread panics"), "receiver should get the message");
        endpoint.end();
        assert!(!leaver.join().expect("no thread panics"));
    });
}

/// Checks that a thread which polls a message for another operation wakes the other thread.
#[test]
fn loom_reader_wakes_other_operation() {
    check(|| {
        let endpoint = Arc::new(Endpoint::default());
        let [other, receiver] = [Operation::AcquireBuffer, Operation::Receive].map(|operation| {
            let endpoint = Arc::clone(&endpoint);
            thread::spawn(move || endpoint.wait_for(WaiterKind::Thread, operation, None))
        });
        endpoint.arrive();
        assert!(receiver.join().expect("no thread panics"), "receiver should get the message");
        endpoint.end();
        assert!(!other.join().expect("no thread panics"));
    });
}

/// Checks a task that relies on a queue which an event loop is about to arm.
///
/// The event loop waits for another operation. A message before the command raises no event, and the event loop polls
/// it.
#[test]
fn loom_sleeper_relies_on_other_arming() {
    check(|| {
        let endpoint = Arc::new(Endpoint::default());
        let [other, receiver] = [
            (WaiterKind::EventLoop, Operation::AcquireBuffer),
            (WaiterKind::Task, Operation::Receive),
        ]
        .map(|(kind, operation)| {
            let endpoint = Arc::clone(&endpoint);
            thread::spawn(move || endpoint.wait_for(kind, operation, None))
        });
        endpoint.arrive();
        assert!(receiver.join().expect("no thread panics"), "receiver should get the message");
        endpoint.end();
        assert!(!other.join().expect("no thread panics"));
    });
}
