//! Completion queues.

use std::mem;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};

use verbs_abi::{AlignedU64, ib_uverbs_create_cq, ib_uverbs_resize_cq, ib_uverbs_wc};

use super::device_context::DeviceContext;
use super::drain_marker::DrainMarker;
use super::injected::{InjectedCompletions, WakeupRequest};
use crate::driver::{
    Arm, CqControlOps as _, CqOps as _, CreateError, CreatedCq, Driver as _, PollError,
};
use crate::drivers::any::{AnyCqControl, AnyCqRing};
use crate::lock::ignore_poison;
use crate::sync::AtomicU32;
use crate::sys::command::CommandError;
use crate::sys::mapping::Mapping;
use crate::work::{Completion, WcOpcode, WcStatus};

/// A completion queue without its ring.
///
/// The caller owns the ring that is polled, and passes it to each call that needs it.
#[derive(Debug)]
pub struct Cq {
    handle: u32,
    capacity: AtomicU32,
    control: AnyCqControl,
    /// The state of injected completions. Absent until a completion is injected, because few queues ever have any.
    injected: Mutex<Option<Box<InjectedCompletions>>>,
    /// `true` if there may be injected completions.
    has_injected: AtomicBool,
    /// `true` if polls issue no commands.
    defers_commands: AtomicBool,
}

/// A new completion queue.
#[derive(Debug)]
pub struct NewCq {
    /// The queue.
    pub cq: Cq,
    /// The ring that is polled.
    pub ring: AnyCqRing,
    /// The memory that the device uses until the queue is destroyed.
    pub memory: Option<Arc<Mapping>>,
}

impl Cq {
    /// Creates a completion queue. `IB_USER_VERBS_CMD_CREATE_CQ`.
    pub fn create(
        device: &DeviceContext,
        request: ib_uverbs_create_cq,
    ) -> Result<NewCq, CreateError> {
        let created = device.driver().create_cq(device.commands(), request)?;
        let CreatedCq { response, ring, control, memory } = created;
        let cq = Self {
            handle: response.cq_handle,
            capacity: AtomicU32::new(response.cqe),
            control,
            injected: Mutex::default(),
            has_injected: AtomicBool::new(false),
            defers_commands: AtomicBool::new(false),
        };
        Ok(NewCq { cq, ring, memory })
    }

    /// Returns the name of the queue in commands.
    #[inline]
    pub fn handle(&self) -> u32 {
        self.handle
    }

    /// Returns the number of completions that the queue has room for.
    pub fn capacity(&self) -> u32 {
        self.capacity.load(Ordering::Relaxed)
    }

    /// Returns the part of the queue that threads share.
    pub fn control(&self) -> &AnyCqControl {
        &self.control
    }

    /// Takes completions off the queue into `into`. Returns how many.
    #[inline(always)]
    pub fn poll(
        &self,
        device: &DeviceContext,
        ring: &mut AnyCqRing,
        into: &mut [Completion],
    ) -> Result<usize, PollError> {
        match self.try_poll(ring, into) {
            Some(count) => Ok(count),
            None => self.poll_outlined(device, ring, into),
        }
    }

    /// Takes completions off the queue into `into` on the fast path, and returns their number.
    ///
    /// The fast path needs no command and no injected completions.
    ///
    /// Otherwise returns `None`, and [`poll_slow`](Self::poll_slow) polls.
    #[inline(always)]
    pub fn try_poll(&self, ring: &mut AnyCqRing, into: &mut [Completion]) -> Option<usize> {
        // A completion that is injected from now on is for the next poll.
        match self.has_injected.load(Ordering::Acquire) {
            false => ring.try_poll(into),
            true => None,
        }
    }

    /// Takes completions in few instructions after [`try_poll`](Self::try_poll) has returned `None`.
    ///
    /// If it returns `None` too, it has done nothing.
    #[inline(always)]
    pub fn try_take(&self, ring: &mut AnyCqRing, into: &mut [Completion]) -> Option<usize> {
        match self.has_injected.load(Ordering::Acquire) {
            false => ring.try_take(into),
            true => None,
        }
    }

    #[inline(never)]
    fn poll_outlined(
        &self,
        device: &DeviceContext,
        ring: &mut AnyCqRing,
        into: &mut [Completion],
    ) -> Result<usize, PollError> {
        self.poll_slow(device, ring, into)
    }

    /// Polls like [`poll`](Self::poll), on the slow path of the driver.
    ///
    /// It is inlined: the caller keeps it out of its fast path, and builds the text of its error in the same function.
    #[inline(always)]
    pub fn poll_slow(
        &self,
        device: &DeviceContext,
        ring: &mut AnyCqRing,
        into: &mut [Completion],
    ) -> Result<usize, PollError> {
        let count = ring.poll(device.file(), into)?;
        match self.has_injected.load(Ordering::Acquire) {
            false => Ok(count),
            true => self.merge_injected(device, ring, into, count),
        }
    }

    /// Adds injected completions after the first `count` of `into`, which were polled from the ring.
    #[cold]
    fn merge_injected(
        &self,
        device: &DeviceContext,
        ring: &mut AnyCqRing,
        into: &mut [Completion],
        count: usize,
    ) -> Result<usize, PollError> {
        let mut locked = self.injected();
        let Some(injected) = &mut *locked else { return Ok(count) };
        let merged = injected.merge(into, count, |rest| ring.poll(device.file(), rest));
        let polled_wakeups = match self.defers_commands.load(Ordering::Relaxed) {
            true => Vec::new(),
            false => mem::take(&mut injected.polled_wakeups),
        };
        self.has_injected.store(!injected.is_empty(), Ordering::Relaxed);
        drop(locked);
        // This destroys their queue pairs, so it happens while no other thread waits for the lock.
        drop(polled_wakeups);
        merged
    }

    /// Makes polls issue no commands.
    ///
    /// The queue pairs of polled wakeup requests then exist until the queue is armed or destroyed.
    pub fn defer_commands(&self) {
        self.defers_commands.store(true, Ordering::Relaxed);
    }

    /// Makes the next completion raise an event.
    ///
    /// With `solicited_only` it is the next one that its sender marked as solicited.
    ///
    /// `events_read` is the number of events of the queue that were read from its channel.
    pub fn arm(
        &self,
        device: &DeviceContext,
        solicited_only: bool,
        events_read: &AtomicU32,
    ) -> Result<(), CommandError> {
        if self.has_injected.load(Ordering::Acquire) {
            self.destroy_polled_wakeups();
        }
        let arm = Arm { cq_handle: self.handle, solicited_only, events_read };
        self.control.arm(device.commands(), &arm)
    }

    #[cold]
    fn destroy_polled_wakeups(&self) {
        let polled =
            self.injected().as_mut().map(|injected| mem::take(&mut injected.polled_wakeups));
        drop(polled);
    }

    /// Changes the capacity. `IB_USER_VERBS_CMD_RESIZE_CQ`.
    ///
    /// The caller keeps the memory that the call stores in `memory`, even if the call fails, until the queue is
    /// destroyed or a later call stores other memory.
    ///
    /// After [`CreateError::Map`] every poll fails.
    pub fn resize(
        &self,
        device: &DeviceContext,
        ring: &mut AnyCqRing,
        capacity: u32,
        memory: &mut Option<Arc<Mapping>>,
    ) -> Result<(), CreateError> {
        let (response, cq_handle) = (AlignedU64::default(), self.handle);
        let request = ib_uverbs_resize_cq { response, cq_handle, cqe: capacity };
        let resized = ring.resize(device.commands(), request, memory)?;
        self.capacity.store(resized, Ordering::Relaxed);
        Ok(())
    }

    /// Injects flush errors for requests of queue pair `qp_num` that the driver never completes.
    ///
    /// `opcode` determines whether they are receives; the operation of a send is not known. If a thread may wait for an
    /// event, `wakeup` creates a request that raises one. Without it, the thread wakes when another request completes.
    ///
    /// `wakeup` and the request issue commands, during which other threads may poll.
    pub fn inject_flushed(
        &self,
        qp_num: u32,
        opcode: WcOpcode,
        wr_ids: &[u64],
        wakeup: impl FnOnce() -> Option<Arc<dyn WakeupRequest>>,
    ) {
        if wr_ids.is_empty() {
            return;
        }
        let flushed = |wr_id: &u64| {
            let (wr_id, status) = ((*wr_id).into(), WcStatus::IB_WC_WR_FLUSH_ERR);
            Completion(ib_uverbs_wc { wr_id, status, opcode, qp_num, ..ib_uverbs_wc::default() })
        };
        self.inject(|injected| injected.flushed.extend(wr_ids.iter().map(flushed)));
        if !self.control.is_armed() {
            return;
        }
        if let Some(wakeup) = wakeup() {
            self.inject(|injected| injected.wakeups.push(Arc::clone(&wakeup)));
            wakeup.raise_event();
        }
    }

    /// Returns `true` if fewer injected flush errors are on the queue than it has room for.
    pub fn can_inject(&self) -> bool {
        let injected = self.injected();
        let count = injected.as_ref().map_or(0, |injected| injected.flushed.len());
        u32::try_from(count).is_ok_and(|count| count < self.capacity())
    }

    /// Destroys the queue pairs of all wakeup requests.
    ///
    /// The kernel keeps the completion queue while these queue pairs exist.
    ///
    /// Their completions stay on the queue, and are hidden if the queue continues to exist.
    pub fn destroy_wakeups(&self) {
        if let Some(injected) = &mut *self.injected() {
            let InjectedCompletions { wakeups, polled_wakeups, .. } = &**injected;
            wakeups.iter().chain(polled_wakeups).for_each(|wakeup| wakeup.destroy_qp());
        }
    }

    /// Hides the completion of `marker`, which is about to be posted.
    pub fn expect_marker(&self, marker: DrainMarker) {
        self.inject(|injected| injected.markers.push(marker));
    }

    /// Forgets a marker that was not posted.
    pub fn forget_marker(&self, marker: &DrainMarker) {
        if let Some(injected) = &mut *self.injected() {
            injected.markers.retain(|known| known != marker);
        }
    }

    /// Records the key `rkey` of a memory window, which a message that completes here may invalidate.
    pub fn bind_key(&self, rkey: u32) {
        self.inject(|injected| {
            // An earlier window may have had the key, and the message that invalidated it is not polled.
            injected.unbind(rkey);
            injected.bound_keys.push(rkey);
        });
    }

    /// Records that a key was invalidated. Returns `true` if it was that of a bound window.
    pub fn unbind_key(&self, rkey: u32) -> bool {
        let mut injected = self.injected();
        injected.as_mut().is_some_and(|injected| injected.unbind(rkey))
    }

    /// Forgets the key of a destroyed window: the one that differs from `rkey` at most in the low 8 bits.
    pub fn forget_window(&self, rkey: u32) {
        if let Some(injected) = &mut *self.injected() {
            injected.bound_keys.retain(|bound| bound >> 8 != rkey >> 8);
        }
    }

    fn injected(&self) -> MutexGuard<'_, Option<Box<InjectedCompletions>>> {
        ignore_poison(self.injected.lock())
    }

    /// Calls `change` with the injected completions.
    ///
    /// The flag is set first, so that a thread that `change` wakes sees it.
    fn inject(&self, change: impl FnOnce(&mut InjectedCompletions)) {
        let mut injected = self.injected();
        self.has_injected.store(true, Ordering::Release);
        change(injected.get_or_insert_default());
    }
}

#[cfg(test)]
mod tests;
