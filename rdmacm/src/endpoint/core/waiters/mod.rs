//! The threads, event loops and tasks that wait for a change of an endpoint.
//!
//! A thread that changes the endpoint wakes waiters before it unlocks the endpoint. [`WaiterList::wake_ready`] compares
//! the available resources with the operations of the waiters. A message or a free buffer wakes one waiter; the end of
//! the endpoint wakes all. A waiter that stops waiting for any reason removes itself while the endpoint is locked, and
//! the comparison wakes another waiter for the same resource. So no order of wakeups and departures loses a wakeup.
//!
//! An event loop is a waiter for each operation that returned `WouldBlock`. It is asleep as long as the operation would
//! fail again. While it is awake, its descriptor is readable. It may never try again, so it does not count as a
//! receiver: a message for which an event loop is woken wakes a thread or a task too.
//!
//! The kernel's events wake only a thread that sleeps on the descriptors, or tasks and event loops that watch them. The
//! waiters therefore need [a successor](WaiterList::wake_successor) when a thread stops sleeping there.

#[cfg(all(test, loom))]
mod loom_model;
#[cfg(test)]
mod tests;

use crate::endpoint::core::operation::{Awaited, Interest, Operation};

/// The waiters of an endpoint, which are woken by wakers of type `W`.
#[derive(Debug)]
pub(in crate::endpoint) struct WaiterList<W> {
    /// In the order in which they began to wait, which is that of their ids.
    waiters: Vec<Waiter<W>>,
    next: u64,
    /// The number of waiters of each kind that are asleep, and of those that are awake.
    asleep: [u32; 3],
    awake: [u32; 3],
    /// Number of waiters that sleep for a message, for a buffer, and for other results.
    asleep_for: [u32; 3],
    /// The number of threads and tasks that are awake for each of these.
    awake_for: [u32; 3],
    /// The number of waiters with an interest in messages alone, in sends alone, and in both.
    interests: [u32; 3],
}

/// The name of a waiter in its list.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::endpoint) struct WaiterId(u64);

/// The kinds of waiters, which are woken in different ways.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::endpoint) enum WaiterKind {
    /// A thread, which sleeps on the descriptors or is parked.
    Thread,
    /// A task, whose runtime watches the descriptor.
    Task,
    /// An event loop, which watches the descriptor.
    EventLoop,
}

#[derive(Debug)]
struct Waiter<W> {
    id: WaiterId,
    awaited: Awaited,
    kind: WaiterKind,
    /// `None` while the waiter is awake.
    ///
    /// It will then check the endpoint, and sleep again or remove itself.
    waker: Option<W>,
}

/// The resources that waiters would find in an endpoint, and the changes since they were last woken.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(in crate::endpoint) struct Available {
    pub(in crate::endpoint) messages: usize,
    pub(in crate::endpoint) buffers: usize,
    pub(in crate::endpoint) is_flushed: bool,
    /// `true` if closing makes progress.
    pub(in crate::endpoint) closes: bool,
    /// `true` if a request has completed for which a caller waits.
    pub(in crate::endpoint) has_completed: bool,
    /// `true` if a peer has answered, or a multicast group was joined, or neither will happen.
    pub(in crate::endpoint) has_answer: bool,
    /// `true` if the endpoint has ended.
    pub(in crate::endpoint) has_ended: bool,
}

impl Available {
    /// Returns `true` if a waiter for `awaited` finds its result.
    ///
    /// For an operation with a target, `is_done` decides if the operation has its result.
    fn allows(&self, awaited: Awaited, is_done: impl Fn(Awaited) -> bool) -> bool {
        let may_be_done = match awaited.operation {
            _ if self.has_ended => return true,
            Operation::Receive => return self.messages > 0,
            Operation::AcquireBuffer => return self.buffers > 0,
            Operation::Flush => return self.is_flushed,
            Operation::Close => return self.closes,
            Operation::Send
            | Operation::Write
            | Operation::Read
            | Operation::Atomic
            | Operation::Export => self.has_completed,
            Operation::Resolve | Operation::Join => self.has_answer,
        };
        may_be_done && (awaited.target.is_none() || is_done(awaited))
    }

    /// Records that a waiter for `operation` will take its resource.
    fn take(&mut self, operation: Operation) {
        match operation {
            Operation::Receive => self.messages = self.messages.saturating_sub(1),
            Operation::AcquireBuffer => self.buffers = self.buffers.saturating_sub(1),
            _ => {}
        }
    }
}

impl<W> Default for WaiterList<W> {
    fn default() -> Self {
        Self {
            // Most endpoints never have more waiters at a time, and allocate no memory later.
            waiters: Vec::with_capacity(2),
            next: 0,
            asleep: [0; 3],
            awake: [0; 3],
            asleep_for: [0; 3],
            awake_for: [0; 3],
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

/// Returns the interest of two callers together.
fn combined(one: Interest, other: Interest) -> Interest {
    if one == other { one } else { Interest::All }
}

/// The places of the operations in the counts: messages and buffers go to one waiter each.
const FOR_MESSAGE: usize = 0;
const FOR_BUFFER: usize = 1;
const FOR_OTHERS: usize = 2;

/// Returns the place of `operation` in the counts.
fn purpose(operation: Operation) -> usize {
    match operation {
        Operation::Receive => FOR_MESSAGE,
        Operation::AcquireBuffer => FOR_BUFFER,
        _ => FOR_OTHERS,
    }
}

/// The places of the kinds in the counts.
const THREADS: usize = WaiterKind::Thread.place();
const TASKS: usize = WaiterKind::Task.place();
const LOOPS: usize = WaiterKind::EventLoop.place();

impl WaiterKind {
    const fn place(self) -> usize {
        match self {
            Self::Thread => 0,
            Self::Task => 1,
            Self::EventLoop => 2,
        }
    }
}

impl<W> WaiterList<W> {
    #[inline(always)]
    pub(in crate::endpoint) fn is_empty(&self) -> bool {
        self.waiters.is_empty()
    }

    /// Returns `true` if there is a single waiter.
    pub(in crate::endpoint) fn is_single(&self) -> bool {
        self.waiters.len() == 1
    }

    /// Returns the number of threads that sleep.
    #[cfg(all(test, not(loom)))]
    pub(in crate::endpoint) fn sleeping_threads(&self) -> u32 {
        self.asleep[THREADS]
    }

    /// Returns `true` if an operation of an event loop has returned `WouldBlock`.
    #[inline(always)]
    pub(in crate::endpoint) fn has_loop(&self) -> bool {
        self.asleep[LOOPS] + self.awake[LOOPS] > 0
    }

    /// Returns `true` if an event loop should try again.
    #[inline(always)]
    pub(in crate::endpoint) fn has_awake_loop(&self) -> bool {
        self.awake[LOOPS] > 0
    }

    /// Returns `true` if a thread other than the caller is awake.
    ///
    /// The caller is awake, and its waiter is `own` if it has one.
    ///
    /// The other thread will sleep on the descriptors, unless it leaves and so wakes [a
    /// successor](Self::wake_successor): the caller need neither arm nor watch.
    pub(super) fn has_other_awake_thread(&self, own: Option<WaiterId>) -> bool {
        self.awake[THREADS] > u32::from(own.is_some())
    }

    /// Adds a waiter, which is awake.
    pub(in crate::endpoint) fn add(&mut self, awaited: Awaited, kind: WaiterKind) -> WaiterId {
        let id = WaiterId(self.next);
        self.next += 1;
        self.waiters.push(Waiter { id, awaited, kind, waker: None });
        self.interests[place(awaited.operation.interest())] += 1;
        self.count_awake(awaited, kind, 1);
        id
    }

    /// Removes a waiter.
    ///
    /// If it was woken for a resource, another waiter is woken before the endpoint is unlocked.
    pub(in crate::endpoint) fn remove(&mut self, id: WaiterId) {
        self.set_awake(id);
        let Some(index) = self.index(id) else { return };
        let Waiter { awaited, kind, .. } = self.waiters.remove(index);
        self.interests[place(awaited.operation.interest())] -= 1;
        self.count_awake(awaited, kind, -1);
    }

    fn count_awake(&mut self, awaited: Awaited, kind: WaiterKind, change: i32) {
        let awake = &mut self.awake[kind.place()];
        *awake = awake.wrapping_add_signed(change);
        if kind != WaiterKind::EventLoop {
            let awake = &mut self.awake_for[purpose(awaited.operation)];
            *awake = awake.wrapping_add_signed(change);
        }
    }

    fn count_asleep(&mut self, awaited: Awaited, kind: WaiterKind, change: i32) {
        for asleep in
            [&mut self.asleep[kind.place()], &mut self.asleep_for[purpose(awaited.operation)]]
        {
            *asleep = asleep.wrapping_add_signed(change);
        }
    }

    /// Records that waiter `id` sleeps until `waker` wakes it.
    ///
    /// Call this while the endpoint is locked, after the waiter has found no result.
    pub(in crate::endpoint) fn set_asleep(&mut self, id: WaiterId, waker: W) {
        if let Some(index) = self.index(id) {
            self.set_asleep_at(index, waker);
        }
    }

    fn set_asleep_at(&mut self, index: usize, waker: W) {
        let waiter = &mut self.waiters[index];
        if waiter.waker.replace(waker).is_none() {
            let Waiter { awaited, kind, .. } = *waiter;
            self.count_asleep(awaited, kind, 1);
            self.count_awake(awaited, kind, -1);
        }
    }

    /// Records that waiter `id` is awake.
    pub(in crate::endpoint) fn set_awake(&mut self, id: WaiterId) {
        if let Some(index) = self.index(id) {
            self.take_waker(index);
        }
    }

    /// Returns the waiter of the event loop that has tried `awaited`.
    pub(in crate::endpoint) fn find_loop(&self, awaited: Awaited) -> Option<WaiterId> {
        if !self.has_loop() {
            return None;
        }
        let mut loops = self.waiters.iter().filter(|waiter| waiter.kind == WaiterKind::EventLoop);
        loops.find(|waiter| waiter.awaited == awaited).map(|waiter| waiter.id)
    }

    /// Puts event loops without a result to sleep, so that a new change wakes them.
    pub(in crate::endpoint) fn put_loops_to_sleep(
        &mut self,
        is_ready: impl Fn(Awaited) -> bool,
        waker: impl Fn() -> W,
    ) {
        if !self.has_awake_loop() {
            return;
        }
        for index in 0..self.waiters.len() {
            let Waiter { awaited, kind, waker: sleeps, .. } = &self.waiters[index];
            let is_awake_loop = *kind == WaiterKind::EventLoop && sleeps.is_none();
            if is_awake_loop && !is_ready(*awaited) {
                self.set_asleep_at(index, waker());
            }
        }
    }

    fn index(&self, id: WaiterId) -> Option<usize> {
        self.waiters.binary_search_by_key(&id.0, |waiter| waiter.id.0).ok()
    }

    fn take_waker(&mut self, index: usize) -> Option<(WaiterId, W)> {
        let waiter = &mut self.waiters[index];
        let waker = waiter.waker.take()?;
        let Waiter { id, awaited, kind, .. } = *waiter;
        self.count_asleep(awaited, kind, -1);
        self.count_awake(awaited, kind, 1);
        Some((id, waker))
    }

    /// Returns `true` if a thread must park instead of sleeping on the descriptors.
    ///
    /// Another thread sleeps there, or is awake and will.
    ///
    /// `own` is the waiter of the caller, if it has one. `has_reader` means that a thread sleeps on the descriptors.
    pub(in crate::endpoint) fn parks(&self, own: Option<WaiterId>, has_reader: bool) -> bool {
        has_reader || self.has_other_awake_thread(own)
    }

    /// Returns the interest of all waiters together with that of the caller.
    ///
    /// A caller arms the queues for all waiters before it sleeps.
    pub(in crate::endpoint) fn interest_with(&self, own: Interest) -> Interest {
        self.interest().map_or(own, |interest| combined(interest, own))
    }

    /// Returns the interest of all waiters.
    fn interest(&self) -> Option<Interest> {
        let all = [Interest::Messages, Interest::Sends, Interest::All].into_iter();
        all.filter(|interest| self.interests[place(*interest)] > 0).reduce(combined)
    }

    /// Wakes the waiters that find their result.
    ///
    /// It wakes one more waiter if otherwise no event would reach the sleeping waiters.
    ///
    /// `is_done` decides if an operation with a target has its result. `needs_caller` decides if the endpoint needs a
    /// caller with that interest. `has_reader` means that a thread sleeps on the descriptors.
    pub(in crate::endpoint) fn wake(
        &mut self,
        available: &Available,
        has_reader: bool,
        is_done: impl Fn(Awaited) -> bool,
        needs_caller: impl FnOnce(Interest) -> bool,
        mut wake: impl FnMut(WaiterId, W),
    ) {
        let all = self.interest();
        self.wake_ready(available, is_done, &mut wake);
        self.wake_successor(has_reader, || all.is_some_and(needs_caller), wake);
    }

    /// Wakes the waiters that find their result.
    ///
    /// For messages and buffers it wakes as many threads and tasks as there are resources, counting those that are
    /// awake already. `is_done` decides if an operation with a target has its result.
    fn wake_ready(
        &mut self,
        available: &Available,
        is_done: impl Fn(Awaited) -> bool,
        mut wake: impl FnMut(WaiterId, W),
    ) {
        let awake_for =
            |purpose: usize| usize::try_from(self.awake_for[purpose]).unwrap_or(usize::MAX);
        let mut left = Available {
            messages: available.messages.saturating_sub(awake_for(FOR_MESSAGE)),
            buffers: available.buffers.saturating_sub(awake_for(FOR_BUFFER)),
            ..*available
        };
        for index in 0..self.waiters.len() {
            if !self.may_wake(&left) {
                return;
            }
            let Waiter { awaited, kind, .. } = self.waiters[index];
            if left.allows(awaited, &is_done) {
                if let Some((id, waker)) = self.take_waker(index) {
                    if kind != WaiterKind::EventLoop {
                        left.take(awaited.operation);
                    }
                    wake(id, waker);
                }
            }
        }
    }

    /// Returns `true` if a waiter that `available` concerns is asleep.
    ///
    /// With many waiters this saves checking each of them whenever the endpoint is unlocked.
    fn may_wake(&self, available: &Available) -> bool {
        let Available { is_flushed, closes, has_completed, has_answer, .. } = *available;
        let for_others = is_flushed || closes || has_completed || has_answer;
        let [message, buffer, others] = self.asleep_for.map(|count| count > 0);
        available.has_ended && self.asleep != [0; 3]
            || available.messages > 0 && message
            || available.buffers > 0 && buffer
            || for_others && others
    }

    /// Wakes one waiter if the kernel's events reach none.
    ///
    /// It wakes a thread if threads sleep, none of them is awake, and none sleeps on the descriptors (`has_reader`
    /// means that one does). It wakes any waiter if all sleep and `needs_one` is set, which means that the endpoint
    /// needs a caller.
    fn wake_successor(
        &mut self,
        has_reader: bool,
        needs_one: impl FnOnce() -> bool,
        wake: impl FnOnce(WaiterId, W),
    ) {
        let needs_thread = !has_reader && self.asleep[THREADS] > 0 && self.awake[THREADS] == 0;
        let is_any_awake = self.awake[THREADS] + self.awake[TASKS] > 0;
        let mut kinds = self.waiters.iter().map(|waiter| waiter.kind);
        let index = if needs_thread {
            kinds.position(|kind| kind == WaiterKind::Thread)
        } else if is_any_awake || self.is_empty() || !needs_one() {
            None
        } else if self.asleep[THREADS] + self.asleep[TASKS] > 0 {
            kinds.position(|kind| kind != WaiterKind::EventLoop)
        } else {
            // The descriptor of an event loop is readable already if one of the waiters of the loop is awake.
            (!self.has_awake_loop()).then_some(0)
        };
        if let Some((id, waker)) = index.and_then(|index| self.take_waker(index)) {
            wake(id, waker);
        }
    }
}
