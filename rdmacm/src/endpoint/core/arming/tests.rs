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
#[derive(Debug, Clone, Copy)]
struct Armed {
    /// The number of events that the program had read.
    read: u8,
    /// The number of completions that the program had polled.
    polled: u8,
}

/// A completion queue of a device that raises one event per event that was read.
#[derive(Debug, Clone, Default)]
struct DeviceQueue {
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

/// The two queues of a poll group, the channel of their events, and the group.
#[derive(Debug, Clone)]
struct ModelState {
    arming: Arming,
    queues: [DeviceQueue; 2],
    /// `true` if the descriptor has an event to report. It reports once, also if the event is not read.
    has_report: bool,
    step: CallerStep,
    /// The number of times that the program may still find a result, and call again later.
    returns_left: u8,
    /// The number of commands that may still fail.
    failures_left: u8,
}

/// The next step of the program.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum CallerStep {
    PollReceives,
    PollSends,
    Arm,
    Sleep,
}

/// The number of completions that the device stores in each queue.
const COMPLETIONS: u8 = 2;

/// The maximum number of steps of a program before it sleeps, while the device does nothing.
const STEPS_TO_SLEEP: usize = 24;

impl ModelState {
    fn new() -> Self {
        let mut arming = Arming::new();
        arming.read_events_first(true);
        let armed = Some(Armed { read: 0, polled: 0 });
        let queues = [DeviceQueue { armed, ..DeviceQueue::default() }, DeviceQueue::default()];
        let step = CallerStep::PollReceives;
        Self { arming, queues, has_report: false, step, returns_left: 1, failures_left: 1 }
    }

    /// Returns the states that may follow. There is none if the device is idle and the program sleeps.
    fn successors(&self) -> Vec<Self> {
        let device = (0..self.queues.len()).flat_map(|index| self.device_steps(index));
        device.chain(self.caller_steps()).collect()
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
        add(queue.stored < COMPLETIONS, |state, index| {
            state.queues[index].stored += 1;
            state.queues[index].has_pending_check = true;
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

    fn caller_steps(&self) -> Vec<Self> {
        let mut state = self.clone();
        match self.step {
            CallerStep::PollReceives => {
                state.poll(0);
                state.step = CallerStep::PollSends;
            }
            CallerStep::PollSends => {
                state.poll(1);
                state.step = CallerStep::Arm;
                if self.returns_left > 0 {
                    // The program takes the report of the descriptor before it returns.
                    let mut returned = state.clone();
                    returned.returns_left -= 1;
                    returned.take_report();
                    returned.step = CallerStep::PollReceives;
                    return vec![state, returned];
                }
            }
            CallerStep::Arm => {
                state.step = CallerStep::PollReceives;
                let Some(action) = state.arming.next_action([true; 2], false) else {
                    state.step = CallerStep::Sleep;
                    return vec![state];
                };
                let mut failed = state.clone();
                state.issue(action);
                if self.failures_left > 0 {
                    failed.failures_left -= 1;
                    failed.arming.on_action(action, false);
                    return vec![state, failed];
                }
            }
            CallerStep::Sleep if !self.has_report => return Vec::new(),
            CallerStep::Sleep => {
                state.take_report();
                state.step = CallerStep::PollReceives;
            }
        }
        vec![state]
    }

    fn poll(&mut self, index: usize) {
        let queue = &mut self.queues[index];
        let count = queue.stored - queue.polled;
        queue.polled = queue.stored;
        self.arming.on_polled([Queue::Receive, Queue::Send][index], usize::from(count));
    }

    fn take_report(&mut self) {
        if mem::take(&mut self.has_report) {
            self.arming.on_event();
        }
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
        self.arming.on_action(action, true);
    }

    /// Returns `true` if the program sleeps after some steps while the device does nothing.
    fn comes_to_rest(&self) -> bool {
        let mut state = self.clone();
        for _ in 0..STEPS_TO_SLEEP {
            match state.caller_steps().into_iter().next() {
                Some(next) => state = next,
                None => return true,
            }
        }
        false
    }
}

/// Checks every order of the steps of a poll group and of a device that raises one event per event that was read.
///
/// The group never sleeps forever while a completion is unpolled, and never issues commands forever.
#[test]
fn orders_of_counting_device_lose_no_completion() {
    let mut seen = HashSet::new();
    let mut unvisited = vec![ModelState::new()];
    while let Some(state) = unvisited.pop() {
        if !seen.insert(format!("{state:?}")) {
            continue;
        }
        assert!(state.comes_to_rest(), "the group should sleep: {state:?}");
        let successors = state.successors();
        if successors.is_empty() {
            let is_polled = |queue: &DeviceQueue| queue.polled == COMPLETIONS;
            assert!(state.queues.iter().all(is_polled), "the group sleeps forever: {state:?}");
        }
        unvisited.extend(successors);
    }
    assert!(seen.len() > 1000, "there should be many orders: {}", seen.len());
}
