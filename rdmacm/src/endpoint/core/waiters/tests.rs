//! Waiters of every kind, in one thread.

use super::*;

const RECEIVE: Operation = Operation::Receive;

/// Returns a list of sleeping threads, one for each of `operations`, whose wakers are numbers.
fn sleeping(operations: &[Operation]) -> (WaiterList<usize>, Vec<WaiterId>) {
    let mut list = WaiterList::default();
    let add = |operation: &Operation| list.add((*operation).into(), WaiterKind::Thread);
    let ids: Vec<_> = operations.iter().map(add).collect();
    ids.iter().enumerate().for_each(|(number, id)| list.set_asleep(*id, number));
    (list, ids)
}

fn woken(list: &mut WaiterList<usize>, available: Available) -> Vec<usize> {
    let mut woken = Vec::new();
    list.wake_ready(&available, |_| false, |_, number| woken.push(number));
    woken
}

fn messages(messages: usize) -> Available {
    Available { messages, ..Available::default() }
}

#[test]
fn each_message_wakes_one_waiter() {
    let (mut list, _) = sleeping(&[RECEIVE, Operation::AcquireBuffer, RECEIVE, RECEIVE]);
    assert_eq!(woken(&mut list, messages(1)), [0]);
    assert!(woken(&mut list, messages(1)).is_empty(), "the first waiter will take the message");
    assert_eq!(woken(&mut list, messages(3)), [2, 3]);
    assert_eq!(woken(&mut list, Available { buffers: 9, ..messages(0) }), [1]);
}

#[test]
fn each_buffer_wakes_one_waiter() {
    let (mut list, _) = sleeping(&[Operation::AcquireBuffer; 3]);
    let buffers = |buffers| Available { buffers, ..Available::default() };
    assert_eq!(woken(&mut list, buffers(1)), [0]);
    assert!(woken(&mut list, buffers(1)).is_empty(), "the first waiter will take the buffer");
    assert_eq!(woken(&mut list, buffers(2)), [1]);
}

#[test]
fn single_waiter_is_no_empty_list() {
    let (mut list, ids) = sleeping(&[RECEIVE, RECEIVE]);
    let sizes = |list: &WaiterList<usize>| (list.is_empty(), list.is_single());
    assert_eq!(sizes(&list), (false, false));
    list.remove(ids[0]);
    assert_eq!(sizes(&list), (false, true));
    list.remove(ids[1]);
    assert_eq!(sizes(&list), (true, false));
}

#[test]
fn departure_of_woken_waiter_wakes_next() {
    let (mut list, ids) = sleeping(&[RECEIVE; 3]);
    assert_eq!(woken(&mut list, messages(1)), [0]);
    list.remove(ids[0]);
    assert_eq!(woken(&mut list, messages(1)), [1]);
    // The woken waiter finds that another caller has taken the message, and sleeps again.
    list.set_asleep(ids[1], 1);
    assert!(woken(&mut list, messages(0)).is_empty());
    assert_eq!(woken(&mut list, messages(1)), [1]);
}

#[test]
fn end_wakes_all() {
    let operations = [RECEIVE, Operation::Close, Operation::Read, Operation::Join];
    let (mut list, _) = sleeping(&operations);
    let end = Available { has_ended: true, ..Available::default() };
    assert_eq!(woken(&mut list, end), [0, 1, 2, 3]);
}

#[test]
fn change_for_one_operation_wakes_no_other() {
    let available = Available::default;
    for (operation, available) in [
        (Operation::Flush, Available { is_flushed: true, ..available() }),
        (Operation::Close, Available { closes: true, ..available() }),
        (Operation::Send, Available { has_completed: true, ..available() }),
        (Operation::Resolve, Available { has_answer: true, ..available() }),
    ] {
        let (mut list, _) = sleeping(&[RECEIVE, operation, Operation::AcquireBuffer, operation]);
        assert_eq!(woken(&mut list, available), [1, 3], "{operation:?}");
    }
}

#[test]
fn threads_without_reader_get_successor() {
    let successor = |list: &mut WaiterList<usize>, has_reader, is_unarmed| {
        let mut woken = None;
        list.wake_successor(has_reader, || is_unarmed, |_, number| woken = Some(number));
        woken
    };
    let (mut list, ids) = sleeping(&[RECEIVE, Operation::AcquireBuffer]);
    assert_eq!(successor(&mut list, true, false), None);
    assert_eq!(successor(&mut list, false, false), Some(0));
    assert_eq!(successor(&mut list, false, false), None, "one thread is awake");
    list.remove(ids[0]);
    assert_eq!(successor(&mut list, false, false), Some(1));
    // Tasks are woken by their runtime, unless no event will arrive.
    let mut list = WaiterList::default();
    let task = list.add(RECEIVE.into(), WaiterKind::Task);
    list.set_asleep(task, 7);
    assert_eq!(successor(&mut list, false, false), None);
    assert_eq!(successor(&mut list, false, true), Some(7));
    assert_eq!(successor(&mut list, false, true), None, "the task is awake already");
}

#[test]
fn interest_covers_all_waiters() {
    let (mut list, ids) = sleeping(&[RECEIVE, RECEIVE, Operation::AcquireBuffer]);
    assert_eq!(list.interest(), Some(Interest::All));
    list.remove(ids[2]);
    assert_eq!(list.interest(), Some(Interest::Messages));
    assert_eq!(list.interest_with(Interest::Sends), Interest::All);
    assert_eq!(WaiterList::<()>::default().interest(), None);
}

/// Checks that a thread is woken for a message too, because the event loop may never try again.
#[test]
fn message_for_loop_wakes_thread_too() {
    let mut list = WaiterList::default();
    let kinds = [WaiterKind::EventLoop, WaiterKind::Thread, WaiterKind::Task];
    for (number, kind) in kinds.into_iter().enumerate() {
        let id = list.add(RECEIVE.into(), kind);
        list.set_asleep(id, number);
    }
    assert_eq!(woken(&mut list, messages(1)), [0, 1]);
    assert!(list.has_awake_loop());
    assert_eq!(woken(&mut list, messages(2)), [2], "the loop takes none");
}

/// Threads that are awake stay awake, because they look for their results.
#[test]
fn only_loops_are_put_to_sleep() {
    let mut list = WaiterList::default();
    let thread = list.add(RECEIVE.into(), WaiterKind::Thread);
    list.add(RECEIVE.into(), WaiterKind::EventLoop);
    list.put_loops_to_sleep(|_| false, || 1);
    assert_eq!(woken(&mut list, messages(2)), [1], "the thread is awake");
    list.remove(thread);
}

#[test]
fn loop_without_message_is_not_awake() {
    let mut list = WaiterList::default();
    let id = list.add(RECEIVE.into(), WaiterKind::EventLoop);
    assert_eq!(list.find_loop(RECEIVE.into()), Some(id));
    assert_eq!(list.find_loop(Operation::AcquireBuffer.into()), None);
    for is_ready in [true, false] {
        assert!(list.has_awake_loop());
        list.put_loops_to_sleep(|_| is_ready, || 0);
    }
    assert!(list.has_loop() && !list.has_awake_loop());
    assert_eq!(woken(&mut list, messages(1)), [0]);
    list.remove(id);
    assert!(!list.has_loop() && !list.has_awake_loop());
}

#[test]
fn completion_wakes_only_its_own_waiter() {
    let mut list = WaiterList::default();
    let slots = [Some(4), Some(5), None];
    for (number, target) in slots.into_iter().enumerate() {
        let id = list.add(Awaited { operation: Operation::Send, target }, WaiterKind::Thread);
        list.set_asleep(id, number);
    }
    let mut woken = Vec::new();
    let available = Available { has_completed: true, ..Available::default() };
    let is_done = |awaited: Awaited| awaited.target == Some(5);
    list.wake_ready(&available, is_done, |_, number| woken.push(number));
    assert_eq!(woken, [1, 2], "a waiter without a slot checks for its result itself");
}

/// Checks the waiter that is woken to arm a queue while all sleep.
///
/// It is a thread or a task, and an event loop only if there is neither. While an event loop is awake, its descriptor
/// is readable.
#[test]
fn loop_is_last_successor() {
    let mut list = WaiterList::default();
    let id = list.add(RECEIVE.into(), WaiterKind::EventLoop);
    let task = list.add(RECEIVE.into(), WaiterKind::Task);
    let successor = |list: &mut WaiterList<usize>| {
        let mut woken = None;
        list.wake_successor(false, || true, |_, number| woken = Some(number));
        woken
    };
    list.set_asleep(id, 0);
    list.set_asleep(task, 1);
    assert_eq!(successor(&mut list), Some(1));
    assert_eq!(successor(&mut list), None, "the task is awake");
    list.remove(task);
    assert_eq!(successor(&mut list), Some(0));
    assert_eq!(successor(&mut list), None, "the loop is awake");
    // The event loop may never try again, so a task that waits later is woken too.
    let task = list.add(RECEIVE.into(), WaiterKind::Task);
    list.set_asleep(task, 1);
    assert_eq!(successor(&mut list), Some(1));
}

/// Checks that a thread that waits again leaves the descriptors to the successor that it woke.
///
/// If the successor has left, the thread uses the descriptors itself.
#[test]
fn awake_thread_is_known_to_others() {
    let (mut list, ids) = sleeping(&[RECEIVE; 2]);
    assert!(!list.has_other_awake_thread(None), "both threads should be asleep");
    list.set_awake(ids[0]);
    assert!(!list.has_other_awake_thread(Some(ids[0])), "the caller is no other thread");
    assert!(list.has_other_awake_thread(None));
    list.set_awake(ids[1]);
    assert!(list.has_other_awake_thread(Some(ids[0])));
    list.remove(ids[1]);
    assert!(!list.has_other_awake_thread(Some(ids[0])));
    list.add(RECEIVE.into(), WaiterKind::Task);
    assert!(!list.has_other_awake_thread(Some(ids[0])), "a task does not sleep on the descriptors");
}

/// Checks that only awake receivers count against messages.
///
/// A thread that waits for a buffer does not count, nor does an event loop.
#[test]
fn only_awake_takers_count_against_messages() {
    let (mut list, ids) = sleeping(&[RECEIVE, Operation::AcquireBuffer, RECEIVE]);
    let event_loop = list.add(RECEIVE.into(), WaiterKind::EventLoop);
    list.set_awake(ids[1]);
    list.set_awake(ids[0]);
    assert!(woken(&mut list, messages(1)).is_empty(), "the first waiter will take the message");
    list.set_asleep(ids[0], 0);
    list.set_asleep(event_loop, 3);
    assert_eq!(woken(&mut list, messages(1)), [0]);
    list.remove(ids[0]);
    assert_eq!(woken(&mut list, messages(1)), [2]);
    assert_eq!(
        woken(&mut list, messages(2)),
        [3],
        "the event loop should be woken if no other waiter sleeps"
    );
}
