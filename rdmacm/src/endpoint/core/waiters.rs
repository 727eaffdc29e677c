//! The threads and tasks that wait for a change of an endpoint.
//!
//! Whoever changes the endpoint wakes the waiters before it unlocks the endpoint: [`WaiterList::wake_ready`] compares what
//! there is to be had with what the waiters wait for. A message or a free buffer wakes one waiter, the end of the endpoint
//! wakes all. A waiter that stops waiting, for whatever reason, removes itself while the endpoint is locked, and the same
//! comparison passes on what it was woken for. So no order of wakeups and departures loses one.
//!
//! The kernel's events wake only a thread that sleeps on the descriptors, or tasks whose runtime watches them. The waiters
//! therefore need [a successor](WaiterList::wake_successor) when a thread stops sleeping there.

use super::super::operation::{Interest, Operation};

/// The waiters of an endpoint, which are woken by wakers of type `W`.
#[derive(Debug)]
pub(in crate::endpoint) struct WaiterList<W> {
    /// In the order in which they began to wait.
    waiters: Vec<Waiter<W>>,
    next: u64,
    /// The number of waiters that are asleep.
    asleep: u32,
    /// The number of threads among the waiters that are asleep, and among those that are awake.
    sleeping_threads: u32,
    awake_threads: u32,
    /// The number of waiters with an interest in messages alone, in sends alone, and in both.
    interests: [u32; 3],
}

/// The name of a waiter in its list.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::endpoint) struct WaiterId(u64);

#[derive(Debug)]
struct Waiter<W> {
    id: WaiterId,
    operation: Operation,
    is_thread: bool,
    /// `None` while the waiter is awake: it will look at the endpoint and then sleep again, or remove itself.
    waker: Option<W>,
}

/// What waiters would find in an endpoint, and what has changed since they were last woken.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(in crate::endpoint) struct Available {
    pub(in crate::endpoint) messages: usize,
    pub(in crate::endpoint) buffers: usize,
    pub(in crate::endpoint) is_flushed: bool,
    /// Closing makes progress.
    pub(in crate::endpoint) closes: bool,
    /// A request has completed for which a caller waits.
    pub(in crate::endpoint) has_completed: bool,
    /// A peer has answered, or a multicast group was joined, or neither will happen.
    pub(in crate::endpoint) has_answer: bool,
    /// The endpoint has ended.
    pub(in crate::endpoint) has_ended: bool,
}

impl Available {
    /// Returns `true` if a waiter for `operation` finds what it waits for.
    fn allows(&self, operation: Operation) -> bool {
        self.has_ended
            || match operation {
                Operation::Receive => self.messages > 0,
                Operation::Take => self.buffers > 0,
                Operation::Flush => self.is_flushed,
                Operation::Close => self.closes,
                Operation::Send
                | Operation::Write
                | Operation::Read
                | Operation::Change
                | Operation::Export => self.has_completed,
                Operation::Resolve | Operation::Join => self.has_answer,
            }
    }

    /// Records that a waiter for `operation` will take what it waits for.
    fn take(&mut self, operation: Operation) {
        match operation {
            Operation::Receive => self.messages = self.messages.saturating_sub(1),
            Operation::Take => self.buffers = self.buffers.saturating_sub(1),
            _ => {}
        }
    }
}

impl<W> Default for WaiterList<W> {
    fn default() -> Self {
        Self {
            // Most endpoints never have two at a time, and the first one is not to allocate.
            waiters: Vec::with_capacity(1),
            next: 0,
            asleep: 0,
            sleeping_threads: 0,
            awake_threads: 0,
            interests: [0; 3],
        }
    }
}

/// Returns the place of `interest` in the counts.
fn place(interest: Interest) -> usize {
    match interest {
        Interest::Messages => 0,
        Interest::Sends => 1,
        Interest::All => 2,
    }
}

impl<W> WaiterList<W> {
    #[inline(always)]
    pub(in crate::endpoint) fn is_empty(&self) -> bool {
        self.waiters.is_empty()
    }

    /// Adds a waiter, which is awake.
    pub(in crate::endpoint) fn add(&mut self, operation: Operation, is_thread: bool) -> WaiterId {
        let id = WaiterId(self.next);
        self.next += 1;
        self.waiters.push(Waiter { id, operation, is_thread, waker: None });
        self.interests[place(operation.interest())] += 1;
        self.awake_threads += u32::from(is_thread);
        id
    }

    /// Removes a waiter. What it may have been woken for wakes another one before the endpoint is unlocked.
    pub(in crate::endpoint) fn remove(&mut self, id: WaiterId) {
        self.is_awake(id);
        let Some(index) = self.index(id) else { return };
        let Waiter { operation, is_thread, .. } = self.waiters.remove(index);
        self.interests[place(operation.interest())] -= 1;
        self.awake_threads -= u32::from(is_thread);
    }

    /// Records that waiter `id` sleeps until `waker` wakes it. To be called while the endpoint is locked, after the waiter
    /// has found nothing.
    pub(in crate::endpoint) fn sleeps(&mut self, id: WaiterId, waker: W) {
        let Some(index) = self.index(id) else { return };
        let waiter = &mut self.waiters[index];
        if waiter.waker.replace(waker).is_none() {
            self.asleep += 1;
            self.sleeping_threads += u32::from(waiter.is_thread);
            self.awake_threads -= u32::from(waiter.is_thread);
        }
    }

    /// Records that waiter `id` is awake.
    pub(in crate::endpoint) fn is_awake(&mut self, id: WaiterId) {
        if let Some(index) = self.index(id) {
            self.take_waker(index);
        }
    }

    fn index(&self, id: WaiterId) -> Option<usize> {
        self.waiters.iter().position(|waiter| waiter.id == id)
    }

    fn take_waker(&mut self, index: usize) -> Option<(WaiterId, W)> {
        let waiter = &mut self.waiters[index];
        let waker = waiter.waker.take()?;
        self.asleep -= 1;
        self.sleeping_threads -= u32::from(waiter.is_thread);
        self.awake_threads += u32::from(waiter.is_thread);
        Some((waiter.id, waker))
    }

    /// Returns the interest of all waiters together with `own`.
    pub(in crate::endpoint) fn interest(&self, own: Option<Interest>) -> Option<Interest> {
        let all = [Interest::Messages, Interest::Sends, Interest::All].into_iter();
        let of_waiters = all.filter(|interest| self.interests[place(*interest)] > 0);
        of_waiters.chain(own).reduce(|one, other| if one == other { one } else { Interest::All })
    }

    /// Wakes the waiters that find what they wait for: of messages and buffers as many as there are, counting those that are
    /// awake already.
    pub(in crate::endpoint) fn wake_ready(
        &mut self,
        available: &Available,
        mut wake: impl FnMut(WaiterId, W),
    ) {
        if self.asleep == 0 || *available == Available::default() {
            return;
        }
        let awake = |operation| {
            let awake = self.waiters.iter().filter(|waiter| waiter.waker.is_none());
            awake.filter(|waiter| waiter.operation == operation).count()
        };
        let taken = [Operation::Receive, Operation::Take].map(awake);
        let mut left = Available {
            messages: available.messages.saturating_sub(taken[0]),
            buffers: available.buffers.saturating_sub(taken[1]),
            ..*available
        };
        for index in 0..self.waiters.len() {
            let operation = self.waiters[index].operation;
            if left.allows(operation) {
                if let Some((id, waker)) = self.take_waker(index) {
                    left.take(operation);
                    wake(id, waker);
                }
            }
        }
    }

    /// Wakes one waiter if the kernel's events reach none: a thread if threads sleep and none of them sleeps on the
    /// descriptors or is awake (`has_reader`: one does), and any waiter if all sleep and `is_unarmed`.
    pub(in crate::endpoint) fn wake_successor(
        &mut self,
        has_reader: bool,
        is_unarmed: impl FnOnce() -> bool,
        wake: impl FnOnce(WaiterId, W),
    ) {
        let needs_thread = !has_reader && self.sleeping_threads > 0 && self.awake_threads == 0;
        let all_sleep = usize::try_from(self.asleep) == Ok(self.waiters.len());
        let index = match needs_thread {
            true => self.waiters.iter().position(|waiter| waiter.is_thread),
            false => (all_sleep && is_unarmed()).then_some(0),
        };
        if let Some((id, waker)) = index.and_then(|index| self.take_waker(index)) {
            wake(id, waker);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const RECEIVE: Operation = Operation::Receive;

    /// A list of sleeping threads, one for each of `operations`, which are woken by their numbers.
    fn sleeping(operations: &[Operation]) -> (WaiterList<usize>, Vec<WaiterId>) {
        let mut list = WaiterList::default();
        let ids: Vec<_> = operations.iter().map(|operation| list.add(*operation, true)).collect();
        ids.iter().enumerate().for_each(|(number, id)| list.sleeps(*id, number));
        (list, ids)
    }

    fn woken(list: &mut WaiterList<usize>, available: Available) -> Vec<usize> {
        let mut woken = Vec::new();
        list.wake_ready(&available, |_, number| woken.push(number));
        woken
    }

    fn messages(messages: usize) -> Available {
        Available { messages, ..Available::default() }
    }

    #[test]
    fn each_message_wakes_one_waiter() {
        let (mut list, _) = sleeping(&[RECEIVE, Operation::Take, RECEIVE, RECEIVE]);
        assert_eq!(woken(&mut list, messages(1)), [0]);
        assert!(woken(&mut list, messages(1)).is_empty(), "the first one will take it");
        assert_eq!(woken(&mut list, messages(3)), [2, 3]);
        assert_eq!(woken(&mut list, Available { buffers: 9, ..messages(0) }), [1]);
    }

    #[test]
    fn departure_of_woken_waiter_wakes_next() {
        let (mut list, ids) = sleeping(&[RECEIVE; 3]);
        assert_eq!(woken(&mut list, messages(1)), [0]);
        list.remove(ids[0]);
        assert_eq!(woken(&mut list, messages(1)), [1]);
        // It finds that another caller has taken the message, and sleeps again.
        list.sleeps(ids[1], 1);
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
            let (mut list, _) = sleeping(&[RECEIVE, operation, Operation::Take, operation]);
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
        let (mut list, ids) = sleeping(&[RECEIVE, Operation::Take]);
        assert_eq!(successor(&mut list, true, false), None);
        assert_eq!(successor(&mut list, false, false), Some(0));
        assert_eq!(successor(&mut list, false, false), None, "one is awake");
        list.remove(ids[0]);
        assert_eq!(successor(&mut list, false, false), Some(1));
        // Tasks are woken by their runtime, unless no event will come.
        let mut list = WaiterList::default();
        let task = list.add(RECEIVE, false);
        list.sleeps(task, 7);
        assert_eq!(successor(&mut list, false, false), None);
        assert_eq!(successor(&mut list, false, true), Some(7));
        assert_eq!(successor(&mut list, false, true), None, "it is awake");
    }

    #[test]
    fn interest_covers_all_waiters() {
        let (mut list, ids) = sleeping(&[RECEIVE, RECEIVE, Operation::Take]);
        assert_eq!(list.interest(None), Some(Interest::All));
        list.remove(ids[2]);
        assert_eq!(list.interest(None), Some(Interest::Messages));
        assert_eq!(list.interest(Some(Interest::Sends)), Some(Interest::All));
        assert_eq!(WaiterList::<()>::default().interest(None), None);
    }
}

#[cfg(all(test, loom))]
mod loom_model {
    use std::collections::VecDeque;

    use loom::sync::{Arc, Condvar, Mutex};
    use loom::thread;

    use super::*;

    /// The means to sleep of a thread. (Loom's own parking also wakes threads that wait for a lock.)
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

    fn unpark_all(parkers: &[Arc<Parker>]) {
        parkers.iter().for_each(|parker| parker.unpark());
    }

    /// An endpoint whose only kernel object is a condition variable: a thread that sleeps there is the reader.
    #[derive(Default)]
    struct Endpoint {
        state: Mutex<State>,
        event: Condvar,
    }

    #[derive(Default)]
    struct State {
        /// Messages that the device has, which the reader polls.
        arrived: usize,
        inbox: usize,
        has_ended: bool,
        waiters: WaiterList<Arc<Parker>>,
        reader: Option<WaiterId>,
        /// The reader is to wake, though nothing has arrived.
        wakes_reader: bool,
    }

    impl State {
        /// What is done before the endpoint is unlocked.
        fn settle(&mut self, event: &Condvar) -> Vec<Arc<Parker>> {
            let mut woken = VecDeque::new();
            let available = Available {
                messages: self.inbox,
                has_ended: self.has_ended,
                ..Available::default()
            };
            self.waiters.wake_ready(&available, |id, thread| woken.push_back((id, thread)));
            let has_reader = self.reader.is_some();
            self.waiters.wake_successor(
                has_reader,
                || false,
                |id, thread| woken.push_back((id, thread)),
            );
            let mut threads = Vec::new();
            for (id, thread) in woken {
                if self.reader == Some(id) {
                    self.wakes_reader = true;
                    event.notify_one();
                } else {
                    threads.push(thread);
                }
            }
            threads
        }
    }

    impl Endpoint {
        fn change<T>(&self, change: impl FnOnce(&mut State) -> T) -> T {
            let mut state = self.state.lock().expect("no thread panics");
            let changed = change(&mut state);
            let woken = state.settle(&self.event);
            drop(state);
            unpark_all(&woken);
            changed
        }

        /// A message arrives at the device.
        fn arrive(&self) {
            let mut state = self.state.lock().expect("no thread panics");
            state.arrived += 1;
            self.event.notify_one();
        }

        /// Wakes the reader though nothing has arrived, as a signal does.
        fn interrupt(&self) {
            let mut state = self.state.lock().expect("no thread panics");
            state.wakes_reader = state.reader.is_some();
            self.event.notify_one();
        }

        /// Waits for a message, or leaves after having slept `patience` times. Returns whether there was a message.
        fn receive(&self, patience: Option<usize>) -> bool {
            self.wait_for(Operation::Receive, patience)
        }

        /// Waits for a message if `operation` is to receive one, and otherwise for the end.
        fn wait_for(&self, operation: Operation, patience: Option<usize>) -> bool {
            let id = self.change(|state| state.waiters.add(operation, true));
            let receives = operation == Operation::Receive;
            let parker = Arc::<Parker>::default();
            let mut slept = 0;
            loop {
                let mut state = self.state.lock().expect("no thread panics");
                state.waiters.is_awake(id);
                state.inbox += std::mem::take(&mut state.arrived);
                let is_over = patience == Some(slept) || state.has_ended;
                if receives && state.inbox > 0 || is_over {
                    let has_message = receives && state.inbox > 0 && patience != Some(slept);
                    state.inbox -= usize::from(has_message);
                    state.waiters.remove(id);
                    let woken = state.settle(&self.event);
                    drop(state);
                    unpark_all(&woken);
                    return has_message;
                }
                state.waiters.sleeps(id, Arc::clone(&parker));
                slept += 1;
                if state.reader.is_none() {
                    state.reader = Some(id);
                    unpark_all(&state.settle(&self.event));
                    while state.arrived == 0 && !state.wakes_reader {
                        state = self.event.wait(state).expect("no thread panics");
                    }
                    (state.reader, state.wakes_reader) = (None, false);
                } else {
                    let woken = state.settle(&self.event);
                    drop(state);
                    unpark_all(&woken);
                    parker.park();
                }
            }
        }
    }

    /// Two threads wait for one message, and a third one leaves as soon as it has slept once, woken by the message or before
    /// it. Whichever thread receives the message ends the endpoint: if the leaver took the only wakeup along, or left the
    /// descriptors without a reader, the others would sleep without end.
    #[test]
    fn loom_leaver_passes_wakeup_on() {
        let mut model = loom::model::Builder::new();
        model.preemption_bound = Some(2);
        model.check(|| {
            let endpoint = Arc::new(Endpoint::default());
            let threads = [None, None, Some(1)].map(|patience| {
                let endpoint = Arc::clone(&endpoint);
                thread::spawn(move || {
                    let has_message = endpoint.receive(patience);
                    if has_message {
                        endpoint.change(|state| state.has_ended = true);
                    }
                    has_message
                })
            });
            endpoint.interrupt();
            endpoint.arrive();
            let received = threads.map(|thread| thread.join().expect("no thread panics"));
            let count = received.iter().filter(|has_message| **has_message).count();
            assert_eq!(count, 1, "one thread has the message");
        });
    }

    /// The thread that sleeps on the descriptors waits for something else than the message that it polls: it wakes the other
    /// one.
    #[test]
    fn loom_reader_wakes_other_operation() {
        let mut model = loom::model::Builder::new();
        model.preemption_bound = Some(2);
        model.check(|| {
            let endpoint = Arc::new(Endpoint::default());
            let other = {
                let endpoint = Arc::clone(&endpoint);
                thread::spawn(move || endpoint.wait_for(Operation::Take, None))
            };
            let receiver = {
                let endpoint = Arc::clone(&endpoint);
                thread::spawn(move || endpoint.receive(None))
            };
            endpoint.arrive();
            assert!(receiver.join().expect("no thread panics"), "it has the message");
            endpoint.change(|state| state.has_ended = true);
            assert!(!other.join().expect("no thread panics"));
        });
    }
}
