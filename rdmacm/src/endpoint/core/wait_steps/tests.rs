use super::super::tests::endpoint_in_memory::{Endpoint, SUCCESS, TestQueues};
use super::*;
use crate::endpoint::core::operation::Operation;

/// Returns the next step of a call that waits for messages, with the queue for receives armed.
fn next(steps: &mut WaitSteps, endpoint: &mut Endpoint, polls_again: bool) -> WaitStep {
    let Endpoint { core, queues } = endpoint;
    let waiters = WaiterList::<()>::default();
    let others = Others { waiters: &waiters, has_reader: false, own: None };
    steps.next(core, Some(queues), Interest::Messages, &others, || polls_again)
}

/// Checks reads that each find a CM event, which may have the result of the call.
#[test]
fn task_reads_four_times_and_leaves() {
    let (mut endpoint, mut steps) = (Endpoint::roce(), WaitSteps::new(WaiterKind::Task));
    for read in 1..=4 {
        assert!(!steps.is_over() && !steps.has_read_often(), "{read}");
        assert_eq!(next(&mut steps, &mut endpoint, false), WaitStep::ReadEvents);
        steps.on_read(true, false);
    }
    assert!(steps.is_over() && steps.has_read_often());
}

#[test]
fn task_leaves_after_read_without_event() {
    let (mut endpoint, mut steps) = (Endpoint::roce(), WaitSteps::new(WaiterKind::Task));
    assert_eq!(next(&mut steps, &mut endpoint, false), WaitStep::ReadEvents);
    steps.on_read(false, false);
    assert!(steps.is_over() && !steps.has_read_often());
}

/// Checks that a call leaves only if it finds nothing twice.
///
/// A completion event without a completion may hide another event.
#[test]
fn task_leaves_after_event_without_completion() {
    for has_completed in [false, true] {
        let (mut endpoint, mut steps) = (Endpoint::roce(), WaitSteps::new(WaiterKind::Task));
        assert_eq!(next(&mut steps, &mut endpoint, false), WaitStep::ReadEvents);
        steps.on_read(false, true);
        assert!(!steps.is_over());
        if has_completed {
            steps.on_completed();
        }
        let step = next(&mut steps, &mut endpoint, false);
        let expected = if has_completed { WaitStep::ReadEvents } else { WaitStep::Leave };
        assert_eq!((step, steps.is_over()), (expected, !has_completed));
    }
}

#[test]
fn only_thread_polls_again_and_sleeps() {
    let mut endpoint = Endpoint::roce();
    let mut steps = WaitSteps::new(WaiterKind::Thread);
    assert_eq!(next(&mut steps, &mut endpoint, true), WaitStep::PollAgain);
    assert_eq!(next(&mut steps, &mut endpoint, false), WaitStep::Sleep);
    for kind in [WaiterKind::Task, WaiterKind::EventLoop] {
        let mut steps = WaitSteps::new(kind);
        assert_eq!(next(&mut steps, &mut endpoint, true), WaitStep::ReadEvents, "{kind:?}");
    }
}

/// Another thread that is awake arms the queues, unless a thread sleeps on the descriptors already.
#[test]
fn only_thread_leaves_arming_to_awake_thread() {
    let arm = WaitStep::Arm(ArmAction::Arm { receives: false, sends: true });
    for (kind, has_awake, has_reader, expected) in [
        (WaiterKind::Thread, true, false, WaitStep::Sleep),
        (WaiterKind::Thread, true, true, arm),
        (WaiterKind::Thread, false, false, arm),
        (WaiterKind::Task, true, false, arm),
        (WaiterKind::EventLoop, true, false, arm),
    ] {
        let (Endpoint { mut core, queues }, mut steps) = (Endpoint::roce(), WaitSteps::new(kind));
        let mut waiters = WaiterList::<()>::default();
        if has_awake {
            waiters.add(Operation::Receive.into(), WaiterKind::Thread);
        }
        let others = Others { waiters: &waiters, has_reader, own: None };
        let step = steps.next(&mut core, Some(&queues), Interest::All, &others, || false);
        assert_eq!(step, expected, "{kind:?}, {has_awake}, {has_reader}");
    }
}

/// An event whose completion was polled is read once before the queue is armed.
#[test]
fn unread_event_is_read_before_arming() {
    let mut endpoint = Endpoint::roce();
    endpoint.queues.receive(SUCCESS, 1, None);
    endpoint.poll();
    let mut steps = WaitSteps::new(WaiterKind::Thread);
    let arm = WaitStep::Arm(ArmAction::Arm { receives: true, sends: false });
    let taken = [(); 3].map(|()| next(&mut steps, &mut endpoint, false));
    assert_eq!(taken, [WaitStep::ReadEvents, arm, WaitStep::Sleep]);
}

/// The descriptor reports the events that are left to an event loop, but not to a task.
#[test]
fn only_loop_leaves_after_arming() {
    for (kind, last) in
        [(WaiterKind::EventLoop, WaitStep::Leave), (WaiterKind::Task, WaitStep::ReadEvents)]
    {
        let (Endpoint { mut core, queues }, mut steps) = (Endpoint::roce(), WaitSteps::new(kind));
        let waiters = WaiterList::<()>::default();
        let others = Others { waiters: &waiters, has_reader: false, own: None };
        let mut next = || steps.next(&mut core, Some(&queues), Interest::All, &others, || false);
        let arm = WaitStep::Arm(ArmAction::Arm { receives: false, sends: true });
        assert_eq!([next(), next()], [arm, last], "{kind:?}");
        assert_eq!(steps.is_over(), last == WaitStep::Leave);
    }
}

/// Checks a call after this side has aborted the endpoint: nothing can be armed.
#[test]
fn call_without_objects_arms_nothing() {
    let mut endpoint = Endpoint::roce();
    endpoint.core.on_completion_event();
    let waiters = WaiterList::<()>::default();
    let others = Others { waiters: &waiters, has_reader: false, own: None };
    let mut steps = WaitSteps::new(WaiterKind::Thread);
    let objects = None::<&TestQueues>;
    let step = steps.next(&mut endpoint.core, objects, Interest::All, &others, || false);
    assert_eq!(step, WaitStep::Sleep);
}
