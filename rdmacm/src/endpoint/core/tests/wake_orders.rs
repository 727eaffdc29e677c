//! Waiters of every kind on a core with queues in memory, in every order of inputs.
//!
//! The callers execute the [`WaitSteps`] of the core, and unlocking calls [`WaiterList::wake`]. Sleeping follows
//! [`thread_wait`](crate::endpoint::wait::thread_wait) and [`event_loop`](crate::endpoint::wait::event_loop). A command of the kernel
//! is a part of the step that issues it: the models for loom have the orders in which other callers act during
//! commands.

use super::endpoint_in_memory::{Endpoint, NO_ACK, SUCCESS, TestBuffer};
use super::*;
use crate::endpoint::core::operation::{Awaited, Interest, Operation};
use crate::verbs::GRH_LENGTH;

/// An input of the test. The numbers are those of callers.
#[derive(Debug, Clone, Copy)]
enum Input {
    Message,
    Sent,
    FailedSend,
    Disconnected,
    DeviceRemoved,
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
    /// The slot of the request that the caller waits for, until it has completed.
    slot: Option<usize>,
    id: Option<WaiterId>,
    is_asleep: bool,
    /// The call of a thread that sleeps, and the interest with which it polled last.
    call: Option<(WaitSteps, Interest)>,
}

impl Caller {
    fn awaited(&self) -> Awaited {
        match self.slot {
            Some(slot) => Awaited::request(self.operation, slot),
            None => self.operation.into(),
        }
    }

    fn is_over(&self) -> bool {
        self.operation == Operation::Send && self.slot.is_none()
    }
}

/// The outcome for a caller that looks for its result.
enum Look {
    Found,
    /// There is no result, but a request had completed.
    Changed,
    Nothing,
}

/// The descriptors that report a completion event: that of the endpoint, and the thread epoll instance.
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
    /// The descriptors that report an event.
    events: [bool; 2],
}

impl Scene {
    /// Makes all callers wait in their order for an endpoint without a free buffer.
    ///
    /// One buffer is posted. If two callers wait for a send, two buffers are posted.
    fn new(mut endpoint: Endpoint, callers: &[(Operation, WaiterKind)]) -> Self {
        let caller = |(operation, kind): &(Operation, WaiterKind)| {
            let post = || endpoint.post(true).expect("a buffer should be free");
            let slot = (*operation == Operation::Send).then(post);
            let (operation, kind) = (*operation, *kind);
            Caller { operation, kind, slot, id: None, is_asleep: false, call: None }
        };
        let callers: Vec<_> = callers.iter().map(caller).collect();
        if callers.iter().all(|caller| caller.slot.is_none()) {
            endpoint.post(false).expect("a buffer should be free");
        }
        let held = endpoint
            .core
            .acquire_buffer()
            .map(|acquired| acquired.expect("the endpoint should not have ended"));
        let mut scene = Self {
            endpoint,
            waiters: WaiterList::default(),
            callers,
            reader: None,
            has_event_loop: false,
            held: held.into_iter().collect(),
            events: [false; 2],
        };
        (0..scene.callers.len()).for_each(|number| scene.try_operation(number));
        scene
    }

    /// Applies `input`. Returns `false` if that is not possible.
    fn apply(&mut self, input: Input) -> bool {
        let Self { endpoint: Endpoint { core, queues }, .. } = self;
        match input {
            Input::Message => {
                let has_room = queues.receive(SUCCESS, GRH_LENGTH + 1, Some(1));
                self.report_events();
                return has_room;
            }
            Input::Sent => {
                let has_sent = queues.send(SUCCESS);
                self.report_events();
                return has_sent;
            }
            Input::FailedSend => {
                let has_failed = queues.send(NO_ACK);
                // The queue pair of datagrams is moved to ERR by a command.
                if !core.is_datagrams() {
                    queues.flush();
                }
                self.report_events();
                return has_failed;
            }
            Input::Disconnected if core.is_datagrams() => return false,
            Input::Disconnected | Input::DeviceRemoved if core.has_no_more_events() => {
                return false;
            }
            Input::Disconnected => self.endpoint.disconnect(),
            Input::DeviceRemoved => {
                core.poll(queues, Interest::All).expect("test queues do not fail");
                core.on_device_removed();
            }
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
                return !self.callers[number].is_over();
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

    /// Makes the descriptors report an event that a completion has raised.
    fn report_events(&mut self) {
        let has_event = mem::take(&mut self.endpoint.queues.has_event);
        self.events = self.events.map(|event| event || has_event);
    }

    /// Wakes the waiters, as unlocking the endpoint does.
    fn unlock(&mut self) {
        self.report_events();
        if self.waiters.is_empty() {
            return;
        }
        let Self { endpoint: Endpoint { core, queues }, waiters, callers, reader, .. } = self;
        let available = core.take_available();
        let wake = |id, ()| {
            let mut callers = callers.iter_mut();
            let woken = callers
                .find(|caller| caller.id == Some(id))
                .expect("the woken caller should be waiting");
            woken.is_asleep = false;
        };
        let is_done = |awaited: Awaited| {
            awaited.target.is_some_and(|slot| {
                core.has_outcome(slot.try_into().expect("the target should be a slot"))
            })
        };
        let needs_caller = |interest| core.needs_caller(queues, interest);
        waiters.wake(&available, reader.is_some(), is_done, needs_caller, wake);
    }

    /// Lets the caller look for its result, and wait for it if there is none.
    fn try_operation(&mut self, number: usize) {
        self.wake_up(number);
        let Caller { operation, kind, call, id, .. } = self.callers[number];
        let own = operation.interest();
        let (mut steps, interest) = call.unwrap_or_else(|| (WaitSteps::new(kind), own));
        match self.look(number, interest) {
            Look::Found => return,
            Look::Changed => steps.on_completed(),
            Look::Nothing => {}
        }
        loop {
            let Self { endpoint: Endpoint { core, queues }, waiters, reader, .. } = self;
            let interest = waiters.interest_with(own);
            let others = Others { waiters, has_reader: reader.is_some(), own: id };
            match steps.next(core, Some(queues), interest, &others, || false) {
                WaitStep::Recover(action) => self.endpoint.execute_recovery(action),
                WaitStep::PollAgain => unreachable!("a thread of this test does not poll again"),
                WaitStep::Arm(action) => {
                    queues.execute_arm(action);
                    core.on_arm_action(action, true);
                    if action == ArmAction::DiscardEvents {
                        self.events = [false; 2];
                    }
                }
                WaitStep::ReadEvents => {
                    let has_completion = self.read_event(kind);
                    steps.on_read(false, has_completion);
                }
                WaitStep::Sleep => {
                    self.callers[number].call = Some((steps, interest));
                    return self.fall_asleep(number);
                }
                WaitStep::Leave => {}
            }
            self.report_events();
            match self.look(number, interest) {
                Look::Found => return,
                Look::Changed => steps.on_completed(),
                Look::Nothing => {}
            }
            if steps.is_over() {
                return self.fall_asleep(number);
            }
        }
    }

    /// Lets the caller look for its result. It waits no longer if it has found it.
    fn look(&mut self, number: usize, interest: Interest) -> Look {
        let mut found = Look::Nothing;
        loop {
            let Endpoint { core, queues } = &mut self.endpoint;
            let has_result = match (self.callers[number].operation, self.callers[number].slot) {
                (Operation::Receive, _) => match core.next_message() {
                    Some(message) => {
                        core.repost(queues, message.buffer);
                        true
                    }
                    None => core.end().is_some(),
                },
                (Operation::AcquireBuffer, _) => match core.acquire_buffer() {
                    Some(acquired) => {
                        self.held.extend(acquired);
                        true
                    }
                    None => false,
                },
                (Operation::Flush, _) => core.flushed().is_some(),
                (Operation::Send, Some(slot)) => match core.completed_send(slot) {
                    Some(completed) => {
                        self.held.extend(completed);
                        self.held.extend(core.detach_send(slot));
                        true
                    }
                    None => false,
                },
                (Operation::Send, None) => true,
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
            if has_result {
                self.stop_waiting(number);
                self.callers[number].slot = None;
                return Look::Found;
            }
            let Endpoint { core, queues } = &mut self.endpoint;
            if !core.poll(queues, interest).expect("test queues do not fail") {
                return found;
            }
            found = Look::Changed;
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
        let Caller { kind, id, .. } = self.callers[number];
        let awaited = self.callers[number].awaited();
        let is_parked = self.waiters.parks(id, self.reader.is_some());
        let id = id.unwrap_or_else(|| {
            if self.waiters.is_empty() {
                self.endpoint.core.forget_changes();
            }
            self.waiters.add(awaited, kind)
        });
        self.waiters.set_asleep(id, ());
        self.callers[number].id = Some(id);
        self.callers[number].is_asleep = true;
        if kind == WaiterKind::Thread && !is_parked {
            self.reader = Some(id);
            if self.waiters.is_single() && !self.has_event_loop {
                // The only waiter has checked the state, so there is no change for another one.
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
        waiters.put_loops_to_sleep(|awaited| is_ready(core, awaited), || ());
        for caller in callers.iter_mut() {
            let is_loop = caller.id.is_some() && caller.kind == WaiterKind::EventLoop;
            caller.is_asleep |= is_loop && !is_ready(core, caller.awaited());
        }
    }

    /// Removes the waiter of the caller, and unlocks the endpoint.
    fn stop_waiting(&mut self, number: usize) {
        let caller = &mut self.callers[number];
        if let Some(id) = caller.id.take() {
            self.waiters.remove(id);
        }
        (caller.is_asleep, caller.call) = (false, None);
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
                return Some("an event loop wakes for a resource that no awake caller will take");
            }
        }
        let is_shared = |caller: &Caller| {
            !matches!(caller.operation, Operation::Receive | Operation::AcquireBuffer)
        };
        if count(&|c| is_shared(c) && c.is_asleep && is_ready(core, c.awaited())) > 0 {
            return Some("a caller wakes for a result that no other caller takes");
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
        let has_completed = |caller: &Caller| {
            let polled = core.queues(caller.operation.interest());
            (0..2).any(|queue| polled[queue] && !queues.completed[queue].is_empty())
        };
        if count(&|c| c.is_asleep && has_completed(c) && !is_polled(c)) > 0 {
            return Some("a caller polls the completions for which others sleep");
        }
        if core.pending_recovery(queues).is_some() && count(&|c| !is_polled(c)) > 0 {
            return Some("a caller recovers the queue pair");
        }
        None
    }
}

/// Returns `true` if a call of `awaited` would have a result.
fn is_ready(core: &Core<TestBuffer, u32>, awaited: Awaited) -> bool {
    core.is_ready(awaited.operation).unwrap_or_else(|| {
        awaited.target.is_some_and(|slot| {
            core.has_outcome(slot.try_into().expect("the target should be a slot"))
        })
    })
}

/// Applies every sequence of `length` inputs to an endpoint for which `callers` wait.
///
/// Sequences with an input that is not possible are left out. Returns the number of sequences.
fn apply_all(
    endpoint: fn() -> Endpoint,
    callers: &[(Operation, WaiterKind)],
    length: usize,
) -> usize {
    let mut inputs = vec![
        Input::Message,
        Input::Sent,
        Input::FailedSend,
        Input::Disconnected,
        Input::DeviceRemoved,
        Input::BufferGivenBack,
        Input::OtherPolls,
        Input::OtherReceives,
    ];
    inputs.extend(
        (0..callers.len()).flat_map(|number| [Input::Tries(number), Input::Leaves(number)]),
    );
    let (mut order, mut sequences) = (vec![0; length], 0);
    loop {
        let mut scene = Scene::new(endpoint(), callers);
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
            scene.endpoint.core.on_device_removed();
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

/// Applies all sequences of `length` inputs for each pair of callers.
///
/// Asserts that there are more than `min`.
fn apply_to_all_pairs(endpoint: fn() -> Endpoint, length: usize, min: usize) {
    const OPERATIONS: [Operation; 5] = [
        Operation::Receive,
        Operation::AcquireBuffer,
        Operation::Send,
        Operation::Flush,
        Operation::Close,
    ];
    const KINDS: [WaiterKind; 3] = [WaiterKind::Thread, WaiterKind::Task, WaiterKind::EventLoop];
    let callers = || OPERATIONS.into_iter().flat_map(|op| KINDS.map(|kind| (op, kind)));
    let mut sequences = 0;
    for (first, second) in callers().flat_map(|first| callers().map(move |second| (first, second)))
    {
        // The calls of an event loop for one operation have one waiter.
        if first == second && first.1 == WaiterKind::EventLoop {
            continue;
        }
        sequences += apply_all(endpoint, &[first, second], length);
    }
    assert!(sequences > min, "{sequences}");
}

#[test]
fn no_order_of_inputs_loses_wakeup_of_roce() {
    apply_to_all_pairs(Endpoint::roce, 4, 300_000);
}

#[test]
fn no_order_of_inputs_loses_wakeup_of_iwarp() {
    let endpoint = || {
        let mut endpoint = Endpoint::iwarp();
        endpoint.core.read_events_first(true);
        endpoint
    };
    apply_to_all_pairs(endpoint, 4, 300_000);
}

#[test]
fn no_order_of_inputs_loses_wakeup_of_datagrams() {
    apply_to_all_pairs(Endpoint::datagrams, 4, 300_000);
}
