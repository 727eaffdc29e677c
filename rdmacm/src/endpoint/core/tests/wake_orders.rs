//! Waiters of every kind on a core with queues in memory, in every order of inputs.
//!
//! The callers follow [`wait_loop`](crate::endpoint::wait_loop), and unlocking follows
//! [`waking`](crate::endpoint::waking). A command of the kernel is a part of the step that issues it: the models for loom
//! have the orders in which other callers act during commands.

use super::endpoint_in_memory::{Endpoint, NO_ACK, SUCCESS, TestBuffer};
use super::*;
use crate::endpoint::operation::{Interest, Operation};

/// An input of the test. The numbers are those of callers.
#[derive(Debug, Clone, Copy)]
enum Input {
    Message,
    Sent,
    FailedSend,
    Disconnected,
    BufferGivenBack,
    /// A caller without a waiter polls.
    OtherPolls,
    /// A caller without a waiter takes a message.
    OtherReceives,
    /// The caller begins to wait, or tries again: it takes its result or goes to sleep.
    Tries(usize),
    /// The caller stops waiting.
    Leaves(usize),
}

/// A caller that waits for an operation, or does not wait at the moment.
#[derive(Debug, Clone, Copy)]
struct Caller {
    operation: Operation,
    kind: WaiterKind,
    id: Option<WaiterId>,
    is_asleep: bool,
}

/// The descriptors that report a completion event: the descriptor of the endpoint, and the thread epoll instance.
const DESCRIPTOR: usize = 0;
const THREAD_EPOLL: usize = 1;

struct Scene {
    endpoint: Endpoint,
    waiters: WaiterList<()>,
    callers: Vec<Caller>,
    /// The waiter that sleeps on the descriptors.
    reader: Option<WaiterId>,
    has_event_loop: bool,
    /// Buffers that the program holds.
    held: Vec<TestBuffer>,
    /// The queues whose next completion raises an event.
    armed: [bool; 2],
    /// The descriptors that report an event.
    events: [bool; 2],
}

impl Scene {
    /// Creates an endpoint without a free buffer, for which all callers wait in their order.
    fn new(callers: &[(Operation, WaiterKind)]) -> Self {
        let mut endpoint = Endpoint::roce();
        endpoint.post(false).expect("a buffer should be free");
        let held = endpoint.core.acquire_buffer().expect("a buffer").expect("not the end");
        let caller = |(operation, kind)| Caller { operation, kind, id: None, is_asleep: false };
        let mut scene = Self {
            endpoint,
            waiters: WaiterList::default(),
            callers: callers.iter().copied().map(caller).collect(),
            reader: None,
            has_event_loop: false,
            held: vec![held],
            armed: [true, false],
            events: [false; 2],
        };
        (0..callers.len()).for_each(|number| scene.try_operation(number));
        scene
    }

    /// Applies `input`. Returns `false` if that is not possible.
    fn apply(&mut self, input: Input) -> bool {
        let Self { endpoint: Endpoint { core, queues }, .. } = self;
        match input {
            Input::Message => {
                return queues.receive(SUCCESS, 1, None) && self.raise(Queue::Receive);
            }
            Input::Sent => return queues.send(SUCCESS) && self.raise(Queue::Send),
            Input::FailedSend => {
                let has_failed = queues.send(NO_ACK);
                queues.flush();
                return has_failed && self.raise(Queue::Send) && self.raise(Queue::Receive);
            }
            Input::Disconnected if core.has_no_more_events() => return false,
            Input::Disconnected => self.endpoint.disconnect(),
            Input::BufferGivenBack => match self.held.pop() {
                Some(buffer) => core.return_buffer(buffer),
                None => return false,
            },
            Input::OtherPolls => {
                if !core.poll(queues, Interest::All).expect("test queues do not fail") {
                    return false;
                }
            }
            Input::OtherReceives => {
                core.poll(queues, Interest::Messages).expect("test queues do not fail");
                match core.next_message() {
                    Some(message) => drop(core.repost(queues, message.buffer)),
                    None => return false,
                }
            }
            Input::Tries(number) => {
                self.try_operation(number);
                return true;
            }
            Input::Leaves(number) => {
                let caller = self.callers[number];
                // An event loop does not report that it stops waiting.
                if caller.id.is_none() || caller.kind == WaiterKind::EventLoop {
                    return false;
                }
                self.wake_up(number);
                self.stop_waiting(number);
                return true;
            }
        }
        self.unlock();
        true
    }

    /// Raises the event of a completion in `queue`, if the queue is armed.
    fn raise(&mut self, queue: Queue) -> bool {
        let is_armed = mem::take(&mut self.armed[usize::from(queue == Queue::Send)]);
        self.events = self.events.map(|event| event || is_armed);
        true
    }

    /// Wakes the waiters, as unlocking the endpoint does.
    fn unlock(&mut self) {
        if self.waiters.is_empty() {
            return;
        }
        let Self { endpoint: Endpoint { core, .. }, waiters, callers, .. } = self;
        let available = core.take_available();
        let all = waiters.interest(None);
        let mut wake = |id, ()| {
            let mut callers = callers.iter_mut();
            let woken = callers.find(|caller| caller.id == Some(id)).expect("a caller that waits");
            woken.is_asleep = false;
        };
        waiters.wake_ready(&available, |_| false, &mut wake);
        let is_unarmed = |interest| core.may_be_unarmed(interest) && !core.has_unread_event();
        waiters.wake_successor(self.reader.is_some(), || all.is_some_and(is_unarmed), &mut wake);
    }

    /// Lets the caller look for its result, and wait for it if there is none.
    fn try_operation(&mut self, number: usize) {
        self.wake_up(number);
        let Caller { operation, kind, .. } = self.callers[number];
        let (own, mut interest) = (operation.interest(), operation.interest());
        let (mut has_read, mut has_armed, mut is_over) = (false, false, false);
        loop {
            if self.finds_result(number, interest) {
                return;
            }
            if is_over {
                return self.fall_asleep(number);
            }
            interest = self.waiters.interest(Some(own)).unwrap_or(own);
            let (has_unread, has_reader) =
                (self.endpoint.core.has_unread_event(), self.reader.is_some());
            if kind == WaiterKind::Thread && !has_reader && self.has_other_awake_thread(number) {
                return self.fall_asleep(number);
            }
            if has_unread && self.endpoint.core.may_be_unarmed(interest) && !has_read {
                has_read = true;
                self.read_event(kind);
            } else if self.endpoint.arm(interest, has_reader) {
                (has_read, has_armed) = (false, true);
                for queue in self.endpoint.queues.armed.drain(..) {
                    self.armed[usize::from(queue == Queue::Send)] = true;
                }
            } else if kind == WaiterKind::Thread {
                return self.fall_asleep(number);
            } else {
                let has_looked = kind == WaiterKind::EventLoop && has_armed && !has_unread;
                is_over = has_looked || !self.read_event(kind);
            }
        }
    }

    /// Returns `true` if the caller has found its result. It waits no longer then.
    fn finds_result(&mut self, number: usize, interest: Interest) -> bool {
        loop {
            let Endpoint { core, queues } = &mut self.endpoint;
            let found = match self.callers[number].operation {
                Operation::Receive => match core.next_message() {
                    Some(message) => {
                        core.repost(queues, message.buffer);
                        true
                    }
                    None => core.end().is_some(),
                },
                Operation::AcquireBuffer => match core.acquire_buffer() {
                    Some(acquired) => {
                        self.held.extend(acquired);
                        true
                    }
                    None => false,
                },
                // The call ends the connection when all is sent, and waits for the peer after that.
                _ if core.end().is_none() => {
                    if core.flushed() == Some(Ok(())) {
                        core.set_end(EndReason::Local);
                        self.stop_waiting(number);
                        continue;
                    }
                    false
                }
                _ => core.has_no_more_events(),
            };
            if found {
                self.stop_waiting(number);
                return true;
            }
            let Endpoint { core, queues } = &mut self.endpoint;
            if !core.poll(queues, interest).expect("test queues do not fail") {
                return false;
            }
        }
    }

    /// Reads the event that the descriptor of such a caller reports. Returns `false` if there is none.
    fn read_event(&mut self, kind: WaiterKind) -> bool {
        let descriptor = self.descriptor_of(kind);
        if self.reader.is_some() && descriptor == self.descriptor_of(WaiterKind::Thread) {
            return false;
        }
        let has_event = mem::take(&mut self.events[descriptor]);
        if has_event {
            self.endpoint.core.on_completion_event();
        }
        has_event
    }

    fn descriptor_of(&self, kind: WaiterKind) -> usize {
        if self.has_event_loop && kind == WaiterKind::Thread { THREAD_EPOLL } else { DESCRIPTOR }
    }

    fn has_other_awake_thread(&self, number: usize) -> bool {
        self.waiters.has_other_awake_thread(self.callers[number].id)
    }

    /// Records that the caller is awake, and reads the event if it has slept on the descriptors.
    fn wake_up(&mut self, number: usize) {
        let Some(id) = self.callers[number].id else { return };
        if self.callers[number].kind != WaiterKind::Thread {
            // Its waiter sleeps until the call is over.
            return;
        }
        self.waiters.set_awake(id);
        self.callers[number].is_asleep = false;
        if self.reader == Some(id) {
            self.reader = None;
            self.read_event(WaiterKind::Thread);
        }
    }

    /// Makes the caller a sleeping waiter, and unlocks the endpoint.
    fn fall_asleep(&mut self, number: usize) {
        let Caller { operation, kind, id, .. } = self.callers[number];
        let is_parked = self.reader.is_some() || self.has_other_awake_thread(number);
        let id = id.unwrap_or_else(|| {
            if self.waiters.is_empty() {
                self.endpoint.core.forget_changes();
            }
            self.waiters.add(operation.into(), kind)
        });
        self.waiters.set_asleep(id, ());
        self.callers[number].id = Some(id);
        self.callers[number].is_asleep = true;
        if kind == WaiterKind::Thread && !is_parked {
            self.reader = Some(id);
            if self.waiters.is_single() && !self.has_event_loop {
                // It has found no change for a waiter.
                return;
            }
        }
        self.put_loops_to_sleep(kind);
        self.unlock();
        let is_first_loop = kind == WaiterKind::EventLoop && !self.has_event_loop;
        if is_first_loop {
            self.has_event_loop = true;
            // The thread that sleeps on the descriptor wakes, and from then on sleeps on the thread epoll instance.
            let reader = self.callers.iter().position(|c| c.id.is_some() && c.id == self.reader);
            reader.into_iter().for_each(|reader| self.try_operation(reader));
        }
    }

    /// Puts event loops without a result to sleep, after a call of an event loop.
    fn put_loops_to_sleep(&mut self, kind: WaiterKind) {
        if kind != WaiterKind::EventLoop {
            return;
        }
        let Self { endpoint: Endpoint { core, .. }, waiters, callers, .. } = self;
        waiters.put_loops_to_sleep(|awaited| is_ready(core, awaited.operation), || ());
        for caller in callers.iter_mut() {
            let is_loop = caller.id.is_some() && caller.kind == WaiterKind::EventLoop;
            caller.is_asleep |= is_loop && !is_ready(core, caller.operation);
        }
    }

    /// Removes the waiter of the caller, and unlocks the endpoint.
    fn stop_waiting(&mut self, number: usize) {
        let caller = &mut self.callers[number];
        if let Some(id) = caller.id.take() {
            self.waiters.remove(id);
        }
        caller.is_asleep = false;
        let kind = caller.kind;
        self.put_loops_to_sleep(kind);
        self.unlock();
    }

    /// Lets callers that are awake try again. Returns `false` if they do not fall asleep.
    fn comes_to_rest(&mut self) -> bool {
        const ROUNDS: usize = 4;
        let is_awake = |caller: &Caller| caller.id.is_some() && !caller.is_asleep;
        for _ in 0..ROUNDS {
            for number in 0..self.callers.len() {
                if is_awake(&self.callers[number]) {
                    self.try_operation(number);
                }
            }
        }
        !self.callers.iter().any(is_awake)
    }

    /// Returns the rule that the state violates.
    fn violated(&self) -> Option<&'static str> {
        let Endpoint { core, queues } = &self.endpoint;
        let waiting = || self.callers.iter().filter(|caller| caller.id.is_some());
        let count =
            |is_counted: &dyn Fn(&Caller) -> bool| waiting().filter(|c| is_counted(c)).count();
        let is_loop = |caller: &Caller| caller.kind == WaiterKind::EventLoop;
        let is_thread = |caller: &Caller| caller.kind == WaiterKind::Thread;
        let buffers = if core.loses_sends() { 0 } else { core.sends.free_count() };
        for (operation, available) in
            [(Operation::Receive, core.inbox.len()), (Operation::AcquireBuffer, buffers)]
        {
            let all = count(&|caller| caller.operation == operation && !is_loop(caller));
            let awake = count(&|caller| {
                caller.operation == operation && !is_loop(caller) && !caller.is_asleep
            });
            if awake < available.min(all) {
                return Some("a caller wakes for each message and each buffer");
            }
            let sleeping_loop =
                count(&|c| c.operation == operation && is_loop(c) && c.is_asleep) > 0;
            if sleeping_loop && available > awake {
                return Some("an event loop wakes for what no awake caller will take");
            }
        }
        let closes = |caller: &Caller| caller.operation == Operation::Close && caller.is_asleep;
        if core.has_progress_of_close() && count(&closes) > 0 {
            return Some("all that close are awake if there is progress");
        }
        let waits_for_end = |caller: &Caller| caller.operation != Operation::Close;
        if core.end().is_some() && count(&|c| waits_for_end(c) && c.is_asleep) > 0 {
            return Some("all are awake after the end");
        }
        let sleeping_threads = count(&|caller| is_thread(caller) && caller.is_asleep);
        let awake =
            |is_counted: &dyn Fn(&Caller) -> bool| count(&|c| is_counted(c) && !c.is_asleep);
        if sleeping_threads > 0 && awake(&is_thread) == 0 && self.reader.is_none() {
            return Some("a sleeping thread sleeps on the descriptors, or another one is awake");
        }
        let has_task = count(&|caller| caller.kind == WaiterKind::Task) > 0;
        let reader_has_event =
            self.reader.is_some() && self.events[self.descriptor_of(WaiterKind::Thread)];
        let is_polled = |caller: &Caller| {
            let for_loop = is_loop(caller) && awake(&is_loop) > 0;
            let watches = has_task || is_loop(caller);
            let has_event = reader_has_event || self.events[DESCRIPTOR] && watches;
            has_event || for_loop || awake(&|other| !is_loop(other)) > 0
        };
        let has_completed = |caller: &Caller| match caller.operation.interest() {
            Interest::Messages => !queues.completed[0].is_empty(),
            Interest::Sends => !queues.completed[1].is_empty(),
            Interest::All => queues.completed.iter().any(|queue| !queue.is_empty()),
        };
        if count(&|c| c.is_asleep && has_completed(c) && !is_polled(c)) > 0 {
            return Some("a caller polls the completions for which others sleep");
        }
        None
    }
}

/// Returns `true` if a call of `operation` would have a result.
fn is_ready(core: &Core<TestBuffer, u32>, operation: Operation) -> bool {
    match operation {
        Operation::Close => core.has_progress_of_close(),
        _ if core.end().is_some() => true,
        Operation::Receive => core.has_message(),
        _ => core.has_free_buffer(),
    }
}

/// Applies every sequence of `length` inputs to an endpoint for which `callers` wait.
///
/// Sequences with an input that is not possible are left out. Returns the number of sequences.
fn apply_all(callers: &[(Operation, WaiterKind)], length: usize) -> usize {
    let mut inputs = vec![
        Input::Message,
        Input::Sent,
        Input::FailedSend,
        Input::Disconnected,
        Input::BufferGivenBack,
        Input::OtherPolls,
        Input::OtherReceives,
    ];
    inputs.extend(
        (0..callers.len()).flat_map(|number| [Input::Tries(number), Input::Leaves(number)]),
    );
    let (mut order, mut sequences) = (vec![0; length], 0);
    loop {
        let mut scene = Scene::new(callers);
        let sequence = || order.iter().map(|input| inputs[*input]).collect::<Vec<_>>();
        let check = |scene: &Scene, place: usize| {
            if let Some(rule) = scene.violated() {
                panic!("{rule}: {callers:?}, {:?}", &sequence()[..place]);
            }
        };
        let impossible = order.iter().enumerate().position(|(place, input)| {
            let is_possible = scene.apply(inputs[*input]);
            if is_possible {
                check(&scene, place + 1);
            }
            !is_possible
        });
        if impossible.is_none() {
            sequences += 1;
            assert!(scene.comes_to_rest(), "a caller tries forever: {callers:?}, {:?}", sequence());
            check(&scene, length);
            scene.endpoint.disconnect();
            scene.unlock();
            let is_asleep = scene.callers.iter().any(|caller| caller.is_asleep);
            assert!(!is_asleep, "the end wakes all: {callers:?}, {:?}", sequence());
        }
        let last = impossible.unwrap_or(length - 1);
        let Some(next) = (0..=last).rev().find(|place| order[*place] + 1 < inputs.len()) else {
            return sequences;
        };
        order[next] += 1;
        order[next + 1..].fill(0);
    }
}

#[test]
fn no_order_of_inputs_loses_wakeup() {
    const OPERATIONS: [Operation; 3] =
        [Operation::Receive, Operation::AcquireBuffer, Operation::Close];
    const KINDS: [WaiterKind; 3] = [WaiterKind::Thread, WaiterKind::Task, WaiterKind::EventLoop];
    let callers = || OPERATIONS.into_iter().flat_map(|op| KINDS.map(|kind| (op, kind)));
    let mut sequences = 0;
    for (first, second) in callers().flat_map(|first| callers().map(move |second| (first, second)))
    {
        // The calls of an event loop for one operation have one waiter.
        if first == second && first.1 == WaiterKind::EventLoop {
            continue;
        }
        sequences += apply_all(&[first, second], 4);
    }
    assert!(sequences > 100_000, "{sequences}");
}
