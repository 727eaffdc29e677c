use std::collections::HashSet;
use std::mem;

use super::*;

/// Checks two wanted queues, after a completion was polled before its event was reported.
///
/// A caller that polls after each action comes to rest. A caller that issued all actions and polled then would not:
/// the events that are read make the queue that was just armed unknown.
#[test]
fn two_queues_come_to_rest_if_events_are_read_first() {
    let mut arming = Arming::new();
    arming.read_events_first(true);
    let action = arming.next_action([false, true], false).expect("sends should be unarmed");
    arming.on_action(action, true);
    arming.on_polled(Queue::Receive, 1);
    let mut actions = Vec::new();
    while let Some(action) = arming.next_action([true; 2], false) {
        arming.on_action(action, true);
        [Queue::Receive, Queue::Send].into_iter().for_each(|queue| arming.on_polled(queue, 0));
        actions.push(action);
        assert!(actions.len() < 5, "{actions:?}");
    }
    assert_eq!(actions.last(), Some(&ArmAction::Arm { receives: true, sends: true }));
    assert!(!arming.may_be_unarmed([true; 2]));
}

/// Checks an event that the device raises after its completion was polled and events were read.
///
/// The event is reported while the queue is not armed. If the queue were armed without reading the event, the device
/// would raise no further event.
#[test]
fn event_reported_while_unarmed_is_read_first() {
    let mut arming = Arming::new();
    arming.read_events_first(true);
    arming.on_polled(Queue::Receive, 1);
    assert_eq!(arming.next_action([true; 2], false), Some(ArmAction::DiscardEvents));
    arming.on_action(ArmAction::DiscardEvents, true);
    arming.on_event();
    [Queue::Receive, Queue::Send].into_iter().for_each(|queue| arming.on_polled(queue, 0));
    assert_eq!(arming.next_action([true; 2], false), Some(ArmAction::DiscardEvents));
    arming.on_action(ArmAction::DiscardEvents, true);
    let arm = ArmAction::Arm { receives: true, sends: true };
    assert_eq!(arming.next_action([true; 2], false), Some(arm));
}

/// The numbers with which a queue was armed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
struct Armed {
    /// The number of events that the program had read.
    read: u8,
    /// The number of completions that the program had polled.
    polled: u8,
}

/// A completion queue of a device that raises one event per event that was read.
#[derive(Debug, Clone, Default, PartialEq, Eq, Hash)]
struct DeviceQueue {
    /// The number of completions that the device will still store.
    unstored: u8,
    /// The number of completions that the device has stored.
    stored: u8,
    /// The number of completions that the program has polled.
    polled: u8,
    /// The number of events that the device has raised.
    raised: u8,
    /// The number of raised events that have reached the channel.
    delivered: u8,
    /// The number of events that the program has read.
    read: u8,
    armed: Option<Armed>,
    /// `true` if the device has not yet checked whether an event is due.
    has_pending_check: bool,
}

/// The two queues of an endpoint or a poll group, the channel of their events, and the callers.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
struct ModelState<const CALLERS: usize> {
    arming: Arming,
    queues: [DeviceQueue; 2],
    /// `true` if the descriptor has an event to report. It reports once, also if the event is not read.
    has_report: bool,
    callers: [CallerStep; CALLERS],
    /// The number of times that a caller may still find a result, and call again later.
    returns_left: u8,
    /// The number of commands that may still fail.
    failures_left: u8,
}

/// The next step of a caller.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
enum CallerStep {
    PollReceives,
    PollSends,
    Arm,
    /// Issue the command of an action, while the other caller acts.
    Issue(ArmAction),
    /// Record the result of the command.
    Record(ArmAction, bool),
    Sleep,
    /// The caller has returned, and does not call again.
    Gone,
}

/// The maximum number of steps until all callers sleep, while the device does nothing.
const STEPS_TO_SLEEP: usize = 100;

impl<const CALLERS: usize> ModelState<CALLERS> {
    /// Creates queues into which the device will store these numbers of completions.
    fn new(completions: [u8; 2]) -> Self {
        let mut arming = Arming::new();
        arming.read_events_first(true);
        let mut queues =
            completions.map(|unstored| DeviceQueue { unstored, ..DeviceQueue::default() });
        queues[0].armed = Some(Armed { read: 0, polled: 0 });
        let callers = [CallerStep::PollReceives; CALLERS];
        Self { arming, queues, has_report: false, callers, returns_left: 1, failures_left: 1 }
    }

    /// Returns the states that may follow. There is none if the device is idle and the callers sleep.
    fn successors(&self) -> Vec<Self> {
        let device = (0..self.queues.len()).flat_map(|index| self.device_steps(index));
        let callers = (0..self.callers.len()).flat_map(|number| self.caller_steps(number));
        device.chain(callers).collect()
    }

    fn device_steps(&self, index: usize) -> Vec<Self> {
        let mut steps = Vec::new();
        let queue = &self.queues[index];
        let mut add = |is_possible: bool, change: fn(&mut Self, usize)| {
            if is_possible {
                let mut state = self.clone();
                change(&mut state, index);
                steps.push(state);
            }
        };
        add(queue.unstored > 0, |state, index| {
            let queue = &mut state.queues[index];
            queue.unstored -= 1;
            queue.stored += 1;
            queue.has_pending_check = true;
        });
        add(queue.has_pending_check, |state, index| {
            let queue = &mut state.queues[index];
            let is_due = queue
                .armed
                .is_some_and(|armed| armed.read == queue.raised && queue.stored > armed.polled);
            queue.raised += u8::from(is_due);
            queue.has_pending_check = false;
        });
        add(queue.delivered < queue.raised, |state, index| {
            state.queues[index].delivered += 1;
            state.has_report = true;
        });
        steps
    }

    fn caller_steps(&self, number: usize) -> Vec<Self> {
        let mut state = self.clone();
        let mut others = Vec::new();
        let next = match self.callers[number] {
            CallerStep::PollReceives => {
                state.poll(0);
                CallerStep::PollSends
            }
            CallerStep::PollSends => {
                state.poll(1);
                CallerStep::Arm
            }
            CallerStep::Arm => {
                if self.returns_left > 0 {
                    // The caller of a poll group takes the report of the descriptor before it returns. A caller of a
                    // connection may take it before it arms a queue.
                    let mut returned = self.clone();
                    returned.returns_left -= 1;
                    returned.take_report(number);
                    others.push(returned);
                }
                if CALLERS > 1 {
                    let mut left = self.clone();
                    left.leave(number);
                    others.push(left);
                }
                let has_epoll_waiter = self.callers.contains(&CallerStep::Sleep);
                match state.arming.next_action([true; 2], has_epoll_waiter) {
                    Some(action) => CallerStep::Issue(action),
                    None => CallerStep::Sleep,
                }
            }
            CallerStep::Issue(action) => {
                if self.failures_left > 0 {
                    let mut failed = self.clone();
                    failed.failures_left -= 1;
                    failed.callers[number] = CallerStep::Record(action, false);
                    others.push(failed);
                }
                state.issue(action);
                CallerStep::Record(action, true)
            }
            CallerStep::Record(action, is_done) => {
                state.arming.on_action(action, is_done);
                if CALLERS > 1 && !is_done {
                    // The call returns the error.
                    let mut left = state.clone();
                    left.leave(number);
                    others.push(left);
                }
                CallerStep::PollReceives
            }
            CallerStep::Gone => return Vec::new(),
            CallerStep::Sleep if !self.has_report => return Vec::new(),
            CallerStep::Sleep => {
                state.take_report(number);
                CallerStep::PollReceives
            }
        };
        state.callers[number] = next;
        others.insert(0, state);
        others
    }

    /// Ends the calls of a caller, and wakes the other one as unlocking the endpoint does.
    fn leave(&mut self, number: usize) {
        self.callers[number] = CallerStep::Gone;
        let needs_caller = self.arming.may_be_unarmed([true; 2]) && !self.arming.has_unread_event();
        let mut asleep = self.callers.iter_mut().filter(|step| **step == CallerStep::Sleep);
        if let Some(step) = asleep.next().filter(|_| needs_caller) {
            *step = CallerStep::PollReceives;
        }
    }

    fn poll(&mut self, index: usize) {
        let queue = &mut self.queues[index];
        let count = queue.stored - queue.polled;
        queue.polled = queue.stored;
        self.arming.on_polled([Queue::Receive, Queue::Send][index], usize::from(count));
    }

    fn take_report(&mut self, number: usize) {
        if mem::take(&mut self.has_report) {
            self.arming.on_event();
        }
        self.callers[number] = CallerStep::PollReceives;
    }

    fn issue(&mut self, action: ArmAction) {
        match action {
            ArmAction::DiscardEvents => {
                self.queues.iter_mut().for_each(|queue| queue.read = queue.delivered);
                // A descriptor without events reports none.
                self.has_report = false;
            }
            ArmAction::Arm { receives, sends } => {
                for (queue, is_meant) in self.queues.iter_mut().zip([receives, sends]) {
                    if is_meant {
                        queue.armed = Some(Armed { read: queue.read, polled: queue.polled });
                        queue.has_pending_check = true;
                    }
                }
            }
        }
    }

    /// Returns `true` if the callers sleep after they ran one after the other, while the device does nothing.
    fn comes_to_rest(&self) -> bool {
        let mut state = self.clone();
        for _ in 0..STEPS_TO_SLEEP {
            match (0..state.callers.len())
                .find_map(|number| state.caller_steps(number).into_iter().next())
            {
                Some(next) => state = next,
                None => return true,
            }
        }
        false
    }
}

/// Checks every order of the steps of the callers and of a device that counts the events that were read.
///
/// A caller never sleeps forever while a completion is unpolled. In each state, callers that run one after the other
/// come to rest.
fn check_all_orders<const CALLERS: usize>(completions: [u8; 2]) {
    let mut seen = HashSet::new();
    let mut unvisited = vec![ModelState::<CALLERS>::new(completions)];
    while let Some(state) = unvisited.pop() {
        if !seen.insert(state.clone()) {
            continue;
        }
        assert!(state.comes_to_rest(), "the callers should sleep: {state:?}");
        let successors = state.successors();
        if successors.is_empty() && state.callers.contains(&CallerStep::Sleep) {
            let is_polled = |queue: &DeviceQueue| queue.polled == queue.stored;
            assert!(state.queues.iter().all(is_polled), "the callers sleep forever: {state:?}");
        }
        unvisited.extend(successors);
    }
    assert!(seen.len() > 1000, "there should be many orders: {}", seen.len());
}

/// A poll group has one caller.
#[test]
fn orders_of_counting_device_lose_no_completion() {
    check_all_orders::<1>([2, 2]);
}

/// Two callers of a connection act while the other one issues a command, or return for good.
///
/// Both wait for completions of both queues, and one queue gets completions. The models of waiters have other interests.
#[test]
fn orders_of_two_callers_lose_no_completion() {
    for completions in [[2, 0], [0, 1]] {
        check_all_orders::<2>(completions);
    }
}
