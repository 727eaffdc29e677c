//! An endpoint with waiters of every kind, in the orders with at most two preemptions.
//!
//! The core, with queues in memory, and the list of waiters are the real ones, so the callers execute the real
//! [`WaitSteps`]. The lock, the descriptor and the ways to sleep are models: they follow `thread_wait.rs`, `waker.rs` and
//! `waking.rs` of the endpoint. The tests of `null_connection/tests/waiting_threads.rs` run those files themselves,
//! with two threads in chosen orders.

use loom::sync::{Arc, Condvar, Mutex, MutexGuard};
use loom::thread;

use super::super::tests::endpoint_in_memory::{Endpoint as EndpointInMemory, SUCCESS, TestBuffer};
use super::super::{EndReason, Others, WaitStep, WaitSteps};
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
struct Endpoint {
    state: Mutex<State>,
    event: Condvar,
}

struct State {
    endpoint: EndpointInMemory,
    /// A buffer that the program holds.
    held: Option<TestBuffer>,
    /// `true` if the descriptor reports an event.
    has_event: bool,
    waiters: WaiterList<Arc<Parker>>,
    reader: Option<WaiterId>,
    /// `true` if the reader must wake, although no event has been raised.
    wakes_reader: bool,
    /// Tasks and event loops that watch the descriptor.
    watchers: Vec<Arc<Parker>>,
}

impl State {
    /// Takes the result of `operation`, and polls for it. Returns `None` if there is none.
    ///
    /// Records in `steps` that a request had completed.
    fn result(
        &mut self,
        operation: Operation,
        interest: Interest,
        steps: &mut WaitSteps,
    ) -> Option<bool> {
        let EndpointInMemory { core, queues } = &mut self.endpoint;
        loop {
            let found = match operation {
                Operation::Receive => core.next_message().map(|message| message.buffer),
                _ => core.acquire_buffer().and_then(Result::ok),
            };
            if found.is_some() || core.end().is_some() {
                return Some(found.is_some());
            }
            if !core.poll(queues, interest).expect("test queues do not fail") {
                return None;
            }
            steps.on_completed();
        }
    }

    /// Wakes the waiters before the endpoint is unlocked.
    ///
    /// Returns the threads that must be unparked afterwards.
    fn wake_waiters(&mut self, event: &Condvar) -> Vec<Arc<Parker>> {
        let Self { endpoint: EndpointInMemory { core, queues }, waiters, reader, .. } = self;
        let mut woken = Vec::new();
        let available = core.take_available();
        let needs_caller = |interest| core.needs_caller(queues, interest);
        let wake = |id, parker| woken.push((id, parker));
        waiters.wake(&available, reader.is_some(), |_| false, needs_caller, wake);
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
    /// Creates an endpoint without armed queues. The program holds both of its buffers for sending.
    fn new() -> Self {
        let mut endpoint = EndpointInMemory::roce();
        endpoint.queues.is_armed = [false; 2];
        endpoint.core.on_completion_event();
        let EndpointInMemory { core, queues } = &mut endpoint;
        assert!(!core.poll(queues, Interest::All).expect("test queues do not fail"));
        let mut acquire = || endpoint.core.acquire_buffer().and_then(Result::ok);
        let (held, _) = (acquire(), acquire());
        let state = State {
            endpoint,
            held,
            has_event: false,
            waiters: WaiterList::default(),
            reader: None,
            wakes_reader: false,
            watchers: Vec::new(),
        };
        Self { state: Mutex::new(state), event: Condvar::new() }
    }

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
        state.endpoint.core.set_end(EndReason::Local);
        self.unlock(state);
    }

    /// Delivers a message to the device, which raises an event if the queue is armed.
    fn arrive(&self) {
        let mut state = self.lock();
        assert!(state.endpoint.queues.receive(SUCCESS, 1, None), "a receive should be posted");
        if std::mem::take(&mut state.endpoint.queues.has_event) {
            state.has_event = true;
            self.event.notify_one();
            state.watchers.iter().for_each(|parker| parker.unpark());
        }
    }

    /// Returns a buffer for sending, as another caller. No event reports that.
    fn give(&self) {
        let mut state = self.lock();
        let held = state.held.take().expect("the program should hold a buffer");
        state.endpoint.core.return_buffer(held);
        self.unlock(state);
    }

    /// Wakes the reader though nothing has arrived, as a signal does.
    fn interrupt(&self) {
        let mut state = self.lock();
        state.wakes_reader = state.reader.is_some();
        self.event.notify_one();
    }

    /// Waits for the result of `operation`, or for the end.
    ///
    /// Stops after `max_sleeps` sleeps. Returns `true` if there was a result.
    ///
    /// An event loop that stops waiting leaves a sleeping waiter: it may try again at any time, or never.
    fn wait_for(&self, kind: WaiterKind, operation: Operation, max_sleeps: Option<usize>) -> bool {
        let own = operation.interest();
        let parker = Arc::<Parker>::default();
        let mut slept = 0;
        let mut waiter = None;
        let (mut steps, mut interest) = (WaitSteps::new(kind), own);
        let mut state = self.lock();
        if kind != WaiterKind::Thread {
            state.watchers.push(Arc::clone(&parker));
        }
        loop {
            let has_left = max_sleeps == Some(slept);
            let found = match has_left {
                true => Some(false),
                false => state.result(operation, interest, &mut steps),
            };
            if let Some(found) = found {
                if let Some(id) = waiter {
                    state.waiters.remove(id);
                }
                self.unlock(state);
                return found;
            }
            let is_thread = kind == WaiterKind::Thread;
            if !steps.is_over() {
                let State { endpoint, waiters, reader, .. } = &mut *state;
                let EndpointInMemory { core, queues } = endpoint;
                interest = waiters.interest_with(own);
                let own_thread = waiter.filter(|_| is_thread);
                let others = Others { waiters, has_reader: reader.is_some(), own: own_thread };
                match steps.next(core, Some(queues), interest, &others, || false) {
                    WaitStep::Arm(action) => {
                        // The command is issued while the endpoint is unlocked.
                        drop(state);
                        self.lock().endpoint.queues.execute_arm(action);
                        state = self.lock();
                        state.endpoint.core.on_arm_action(action, true);
                        continue;
                    }
                    WaitStep::ReadEvents => {
                        // The thread that sleeps on the descriptor reads its event.
                        let reads = state.reader.is_none();
                        let has_event = reads && std::mem::take(&mut state.has_event);
                        if has_event {
                            state.endpoint.core.on_completion_event();
                        }
                        steps.on_read(false, has_event);
                        continue;
                    }
                    WaitStep::Leave => continue,
                    WaitStep::Sleep => {}
                    step => unreachable!("a connection should not take the step {step:?}"),
                }
            }
            let is_parked = state.waiters.parks(waiter, state.reader.is_some());
            let id = *waiter.get_or_insert_with(|| state.waiters.add(operation.into(), kind));
            state.waiters.set_asleep(id, Arc::clone(&parker));
            slept += 1;
            if is_thread && !is_parked {
                state.reader = Some(id);
                self.unlock(state);
                state = self.lock();
                while !state.has_event && !state.wakes_reader {
                    state = self.event.wait(state).expect("no thread panics");
                }
                (state.reader, state.wakes_reader) = (None, false);
                if std::mem::take(&mut state.has_event) {
                    state.endpoint.core.on_completion_event();
                }
            } else {
                self.unlock(state);
                if kind == WaiterKind::EventLoop && max_sleeps == Some(slept) {
                    return false;
                }
                parker.park();
                state = self.lock();
                if !is_thread {
                    // Each try of a task or an event loop is a call of its own.
                    (steps, interest) = (WaitSteps::new(kind), own);
                }
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
        let endpoint = Arc::new(Endpoint::new());
        let waiters = [(kinds[0], None), (kinds[1], None), (leaver, Some(1))];
        let threads = waiters.map(|(kind, max_sleeps)| {
            let endpoint = Arc::clone(&endpoint);
            thread::spawn(move || {
                let has_buffer = endpoint.wait_for(kind, Operation::AcquireBuffer, max_sleeps);
                if has_buffer {
                    endpoint.end();
                }
                has_buffer
            })
        });
        endpoint.give();
        let acquired = threads.map(|thread| thread.join().expect("no thread panics"));
        let count = acquired.iter().filter(|has_buffer| **has_buffer).count();
        assert_eq!(count, 1, "one waiter should have the buffer");
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
        let endpoint = Arc::new(Endpoint::new());
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
        let endpoint = Arc::new(Endpoint::new());
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
        let endpoint = Arc::new(Endpoint::new());
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
