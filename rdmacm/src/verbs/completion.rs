//! Completion queues ([`CompletionQueue`]) and exclusive access to them ([`Poller`]).
//!
//! - **Polling.** The fast path takes the ring with `try_lock` and reads it. The `*_slow`
//!   functions are the slow path: they check for a fork, let waiting threads in and report errors.
//! - **Injected completions.** The library completes orphaned requests itself, see
//!   [`complete_orphans`](CompletionQueue::complete_orphans). A [`WakeupQp`] raises the event for
//!   them.

mod wait;

use std::mem;
use std::sync::{Arc, Mutex};

use nix::errno::Errno;
use verbs_abi::{AlignedU64, ib_uverbs_create_cq, ib_uverbs_destroy_cq};

use super::completion_channel::CompletionChannel;
use super::context::Context;
use super::error_text::size_reason;
use super::event_source::EventSource;
use super::object::{self, Object, Shared};
use super::pd::ProtectionDomain;
use super::same::impl_ptr_eq;
use super::wakeup_qp::WakeupQp;
use super::{Completion, WcOpcode};
use crate::acks::Acks;
#[cfg(doc)]
use crate::cm::CmId;
use crate::driver::{CqOps as _, CreateError, PollError};
use crate::drivers::any::AnyCqRing;
use crate::engine::{Cq, NewCq, WakeupRequest};
use crate::error::{DestroyError, Error, ErrorKind, Result};
use crate::lock::ignore_poison;
use crate::registry::Token;
use crate::sync::{HandoffGuard, HandoffMutex, HeldByThisThread};
use crate::sys::mapping::Mapping;

const POLL: &str = "poll";
/// Reason in errors about a queue that a [`BufferedQueuePair`](super::BufferedQueuePair) polls.
const POLLED_BY_BUFFERS: &str =
    "its completions are polled by the `BufferedQueuePair` of a queue pair";
const POLLED_HERE: &str = "this thread holds the poller of the queue; drop the poller first";

/// A completion queue, which reports the work requests that queue pairs have completed.
///
/// Each [`Completion`] has the `wr_id` of its request, and the status. One completion queue may
/// serve the send and receive queues of several queue pairs.
///
/// - [`wait`](Self::wait) and [`wait_timeout`](Self::wait_timeout) sleep until a completion
///   arrives. They need a [`CompletionChannel`] that serves this queue only.
/// - [`poll`](Self::poll) does not wait. A thread that polls in a loop holds the [`Poller`], so
///   that each call takes no lock.
/// - An event loop calls [`request_notify`](Self::request_notify), polls again, and waits for the
///   descriptor of the channel.
///
/// # Examples
///
/// ```no_run
/// # use rdmacm::verbs::{Completion, CompletionChannel, CompletionQueue, Context};
/// # use std::time::Duration;
/// # fn run(context: &Context) -> rdmacm::Result<()> {
/// let channel = CompletionChannel::new(context)?;
/// let cq = CompletionQueue::new(context, 16, Some(&channel))?;
/// // Create a queue pair with `QueuePairInit::new(&cq)`, and post requests. Then:
/// let mut done = [Completion::default(); 16];
/// let count = cq.wait_timeout(&mut done, Duration::from_secs(5))?;
/// for completion in &done[..count] {
///     println!("request {}: {:?}", completion.wr_id(), completion.status());
/// }
/// # Ok(())
/// # }
/// ```
///
/// # Clones
///
/// A clone refers to the same queue. The queue lives as long as a clone of it or a queue pair that
/// uses it.
#[doc(alias = "ibv_cq")]
#[derive(Debug, Clone)]
pub struct CompletionQueue {
    inner: Arc<Inner>,
}

#[derive(Debug)]
struct Inner {
    ring: HandoffMutex<AnyCqRing>,
    // Declared before `object`: the kernel does not destroy a completion queue that wakeup queue
    // pairs use.
    cq: Cq,
    object: Object<ib_uverbs_destroy_cq>,
    /// Memory of this process that the device uses from a resize of the queue until it is
    /// destroyed.
    resized: Mutex<Option<Arc<Mapping>>>,
    event_source: EventSource,
    /// Counts the completion events that were passed to the program.
    events: Arc<Acks>,
    channel: Option<CompletionChannel>,
    /// Held by the one thread that sleeps in `wait`.
    ///
    /// The event of an armed queue wakes one thread. A second one would sleep on a queue that no
    /// thread arms again.
    sleeper: HandoffMutex<()>,
}

impl CompletionQueue {
    /// Creates a completion queue for at least `capacity` completions, whose events go to
    /// `channel`.
    ///
    /// The queue must have room for all requests that may complete before it is polled. If it
    /// overflows, the completion is lost and the queue is broken.
    ///
    /// # Errors
    ///
    /// - EINVAL if `capacity` is zero or exceeds that of the device. On mlx5 the
    ///   kind of this error is [`ErrorKind::InvalidInput`] for 0 and for more than 4,194,303.
    /// - ENOMEM if memory is short.
    /// - [`ErrorKind::Unsupported`] if the data path of the device's driver is not known.
    /// - [`ErrorKind::InvalidInput`] if `channel` belongs to another context, even of the same device.
    /// - [`ErrorKind::NotOwner`] if the process forked or changed its credentials.
    ///
    /// # Driver notes
    ///
    /// - On mlx5, completions of a queue pair that was destroyed or moved to RESET take room until
    ///   the queue is polled. The poll returns only those of requests that a shared receive queue
    ///   had.
    ///
    /// Kernel command: `IB_USER_VERBS_CMD_CREATE_CQ`.
    #[doc(alias = "ibv_create_cq")]
    pub fn new(
        context: &Context,
        capacity: u32,
        channel: Option<&CompletionChannel>,
    ) -> Result<Self> {
        Self::with_comp_vector(context, capacity, channel, 0)
    }

    /// Creates a completion queue whose completions raise the interrupt of completion vector
    /// `vector`.
    ///
    /// See [`new`](Self::new) for details.
    ///
    /// # Errors
    ///
    /// In addition to the errors of [`new`](Self::new):
    /// - [`ErrorKind::InvalidInput`] if `vector` is not less than [`Context::completion_vectors`].
    ///
    /// # Driver notes
    ///
    /// rxe and siw report completion vectors, but treat all of them alike.
    #[doc(alias = "comp_vector")]
    pub fn with_comp_vector(
        context: &Context,
        capacity: u32,
        channel: Option<&CompletionChannel>,
        vector: u32,
    ) -> Result<Self> {
        context.check_process("create", || "a completion queue".to_owned())?;
        let vectors = context.completion_vectors();
        if vector >= vectors {
            let reason =
                format!("completion vector {vector} does not exist: the device has {vectors}");
            return Err(Error::invalid("create", "a completion queue", reason));
        }
        if channel.is_some_and(|channel| channel.context() != context) {
            let reason = "the completion channel is of another context";
            return Err(Error::invalid("create", "a completion queue", reason));
        }
        let events = Arc::default();
        let event_source = EventSource::of_completion_queue(&events);
        let request = ib_uverbs_create_cq {
            response: AlignedU64::default(),
            user_handle: event_source.user_handle(),
            cqe: capacity,
            comp_vector: vector,
            comp_channel: channel.map_or(-1, CompletionChannel::raw),
            reserved: 0,
        };
        let created = Cq::create(context.engine(), request);
        let NewCq { cq, ring, memory } =
            created.map_err(|error| context.queue_not_created("a completion queue", error))?;
        let inner = Inner {
            ring: HandoffMutex::new(ring),
            object: Object::with_memory(context, cq.handle(), memory),
            resized: Mutex::default(),
            cq,
            event_source,
            events,
            channel: channel.cloned(),
            sleeper: HandoffMutex::default(),
        };
        if let Some(channel) = channel {
            channel.add_queue();
        }
        Ok(Self { inner: Arc::new(inner) })
    }

    /// Returns the token that identifies this queue in events.
    ///
    /// The token is part of [completion events](super::CompletionEvent::token) and of [asynchronous
    /// events](super::AsyncElement).
    pub fn token(&self) -> Token {
        self.inner.event_source.token()
    }

    /// Returns the context in which the queue was created.
    pub fn context(&self) -> &Context {
        self.inner.object.context()
    }

    /// Returns the channel that receives the queue's events, if it was created with one.
    ///
    /// Each completion queue that [`CmId::create_ep`] creates has a channel of its own.
    pub fn channel(&self) -> Option<&CompletionChannel> {
        self.inner.channel.as_ref()
    }

    /// Returns the number of completions that the queue has room for.
    pub fn capacity(&self) -> u32 {
        self.inner.cq.capacity()
    }

    /// Resizes the queue to hold at least `capacity` completions.
    ///
    /// Completions in the queue are kept. Threads that poll the queue wait until the call returns.
    ///
    /// # Errors
    ///
    /// - EINVAL if `capacity` is zero, exceeds that of the device, or is below the number of
    ///   completions in the queue. On mlx5 the kind of this error is [`ErrorKind::InvalidInput`].
    /// - ENOMEM if memory is short.
    /// - [`ErrorKind::Unsupported`] if the driver cannot resize completion queues (siw).
    /// - [`ErrorKind::WouldDeadlock`] if the calling thread holds the [poller](Self::lock_poller).
    /// - [`ErrorKind::DeviceRemoved`] if the device was removed.
    /// - [`ErrorKind::NotOwner`] if the process forked or changed its credentials.
    /// - [`ErrorKind::MalformedResponse`] if the device has not written the entry that ends the earlier ring (mlx5).
    /// - The errno of `mmap` if the kernel has resized the queue but its new ring cannot be mapped,
    ///   or EOVERFLOW if completions that arrived meanwhile exceed the new ring (mlx5). Every later
    ///   poll then fails with [`ErrorKind::InvalidInput`].
    ///
    /// Kernel command: `IB_USER_VERBS_CMD_RESIZE_CQ`.
    #[doc(alias = "ibv_resize_cq")]
    pub fn resize(&self, capacity: u32) -> Result<()> {
        const RESIZE: &str = "resize";
        self.context().check_usable(RESIZE, || self.inner.name())?;
        let Ok(mut ring) = self.inner.ring.lock() else {
            let kind = ErrorKind::WouldDeadlock(POLLED_HERE);
            return Err(Error::new(RESIZE, self.inner.subject(), kind));
        };
        let mut memory = None;
        let resized =
            self.inner.cq.resize(self.context().engine(), &mut ring, capacity, &mut memory);
        if memory.is_some() {
            // The device no longer uses the memory of an earlier size.
            *ignore_poison(self.inner.resized.lock()) = memory;
        }
        resized.map_err(|error| {
            let (context, name) = (self.context(), self.inner.name());
            if let CreateError::Map(Errno::EPROTO) = error {
                // No system call returns this errno, which reports a wrong state of the ring here.
                let reason = "the device has not written the entry that ends the earlier ring";
                return Error::malformed(RESIZE, name, reason);
            }
            if let CreateError::Size(error) = error {
                return Error::invalid(RESIZE, name, size_reason(error));
            }
            let refused = error.into_refused();
            let error = context.refused_or_unsupported(RESIZE, &name, "resizing", refused);
            context.with_queue_hint(error)
        })
    }

    pub(crate) fn handle(&self) -> u32 {
        self.inner.object.handle()
    }

    /// Returns the driver-level queue, without its ring and the state that this type adds.
    #[inline]
    pub(super) fn engine(&self) -> &Cq {
        &self.inner.cq
    }

    /// Takes the ring for an owner that [returns](Self::return_ring) it later.
    ///
    /// Until then, all other polls fail.
    ///
    /// # Errors
    ///
    /// - [`ErrorKind::InvalidInput`] if the ring is already taken, or was lost when the queue was
    ///   resized.
    /// - [`ErrorKind::WouldDeadlock`] if the calling thread holds the [poller](Self::lock_poller).
    pub(super) fn take_ring(&self) -> Result<AnyCqRing> {
        let mut ring = self.inner.ring.lock().map_err(|HeldByThisThread| self.polled_here())?;
        match &*ring {
            AnyCqRing::Absent(reason) => Err(self.poll_error(PollError::Absent(reason))),
            _ => Ok(mem::replace(&mut ring, AnyCqRing::Absent(POLLED_BY_BUFFERS))),
        }
    }

    /// Returns the ring that was [taken](Self::take_ring).
    ///
    /// While the ring is absent, no thread holds its lock for long, and none holds it while
    /// waiting.
    pub(super) fn return_ring(&self, ring: AnyCqRing) {
        if let Ok(mut absent) = self.inner.ring.lock() {
            *absent = ring;
        }
    }

    /// Returns an error if the process has forked.
    #[cold]
    #[inline(never)]
    pub(super) fn check_process(&self) -> Result<()> {
        self.context().check_process(POLL, || self.inner.name())
    }

    #[cold]
    pub(super) fn poll_error(&self, error: PollError) -> Error {
        self.inner.poll_error(error)
    }

    /// Locks the queue for polling by the calling thread.
    ///
    /// # Errors
    ///
    /// - [`ErrorKind::WouldDeadlock`] if the calling thread already holds the poller.
    /// - [`ErrorKind::InvalidInput`] if a [`BufferedQueuePair`](super::BufferedQueuePair) polls the
    ///   queue, or if the ring was lost in [`resize`](Self::resize).
    /// - [`ErrorKind::NotOwner`] if the process forked or changed its credentials.
    pub fn lock_poller(&self) -> Result<Poller<'_>> {
        self.context().check_process(POLL, || self.inner.name())?;
        let ring = self.inner.ring.lock().map_err(|HeldByThisThread| self.polled_here())?;
        match *ring {
            // A guard would keep the owner of the ring from returning it.
            AnyCqRing::Absent(reason) => Err(self.poll_error(PollError::Absent(reason))),
            _ => Ok(Poller { inner: &self.inner, ring }),
        }
    }

    #[cold]
    fn polled_here(&self) -> Error {
        Error::new(POLL, self.inner.subject(), ErrorKind::WouldDeadlock(POLLED_HERE))
    }

    /// Takes completions from the queue and returns their number.
    ///
    /// Locks the [poller](Self::lock_poller) for one call of [`Poller::poll`].
    ///
    /// # Errors
    ///
    /// The errors of [`lock_poller`](Self::lock_poller) and [`Poller::poll`].
    #[doc(alias = "ibv_poll_cq")]
    pub fn poll(&self, into: &mut [Completion]) -> Result<usize> {
        self.poll_inlined(into)
    }

    /// Polls like [`poll`](Self::poll), inlined for callers that poll in a loop.
    #[inline(always)]
    pub(super) fn poll_inlined(&self, into: &mut [Completion]) -> Result<usize> {
        if self.context().file().is_owner_fast() {
            if let Some(ring) = self.inner.ring.try_lock() {
                let mut poller = Poller { inner: &self.inner, ring };
                let polled = poller.poll_here(into);
                return polled;
            }
        }
        self.poll_slow(into)
    }

    /// Polls on the slow path of [`poll`](Self::poll): waits for the poller and reports errors.
    #[inline(never)]
    fn poll_slow(&self, into: &mut [Completion]) -> Result<usize> {
        self.lock_poller()?.poll_slow(into)
    }

    /// Completes requests of queue pair `number` in `pd` with flush errors, in place of the driver.
    ///
    /// Wakes a thread that sleeps on the channel. `opcode` distinguishes receives from sends. The
    /// operation of a send is not known.
    pub(super) fn complete_orphans(
        &self,
        pd: &ProtectionDomain,
        number: u32,
        opcode: WcOpcode,
        wr_ids: &[u64],
    ) {
        self.inner.cq.inject_flushed(number, opcode, wr_ids, || {
            self.inner.channel.as_ref()?;
            // If the queue pair cannot be created, the thread wakes when another request completes.
            let wakeup = WakeupQp::new(pd, &self.inner.cq).ok()?;
            Some(Arc::new(wakeup) as Arc<dyn WakeupRequest>)
        });
    }

    /// Returns `true` if the calling thread holds the poller.
    pub(super) fn is_polled_here(&self) -> bool {
        self.inner.ring.is_held_by_this_thread()
    }

    /// Removes completions of queue pairs that were reset or destroyed, unless a thread holds the poller.
    pub(super) fn sweep(&self) {
        if let Some(mut ring) = self.inner.ring.try_lock() {
            ring.sweep();
        }
    }

    /// Returns the poller if no thread holds it.
    pub(super) fn free_poller(&self) -> Option<Poller<'_>> {
        self.inner.ring.try_lock().map(|ring| Poller { inner: &self.inner, ring })
    }

    /// Arms the queue: the next completion raises one event on the channel.
    ///
    /// If `solicited_only` is set, only the completion of a message that its sender marked as
    /// solicited raises the event. Completions that are already in the queue raise no event, so
    /// poll again after arming and before sleeping.
    ///
    /// According to the standard, failed requests raise that event too, but not every driver does
    /// so. To wait for the end of a connection, arm for every completion.
    ///
    /// # Errors
    ///
    /// - [`ErrorKind::DeviceRemoved`] if the device was removed.
    /// - [`ErrorKind::NotOwner`] if the process forked or changed its credentials.
    ///
    /// # Driver notes
    ///
    /// - On rxe with `solicited_only`, a failed or flushed send raises no event. Neither does a
    ///   receive that fails with a message that is not solicited, nor, on Linux 6.12, a flushed
    ///   receive.
    /// - On mlx5, arming makes no system call.
    /// - On siw, arming makes no system call, and any completion raises the event. The kernel does
    ///   not check whether a received message is solicited.
    /// - On siw, the library itself completes requests once the queue pair is in ERR. It makes the
    ///   kernel raise the event for them with a private queue pair, which exists until the queue is
    ///   polled. If the kernel cannot create it (no memory or no more queue pairs), these requests
    ///   raise no event.
    ///
    /// Kernel command: `IB_USER_VERBS_CMD_REQ_NOTIFY_CQ`, except on siw and mlx5.
    #[doc(alias = "ibv_req_notify_cq")]
    pub fn request_notify(&self, solicited_only: bool) -> Result<()> {
        self.context().check_usable("arm", || self.inner.name())?;
        let context = self.context();
        let events_read = self.inner.events.events_read();
        let armed = self.inner.cq.arm(context.engine(), solicited_only, events_read);
        armed.map_err(|refused| context.refused("arm", "a completion queue", refused))
    }

    /// Destroys the queue and waits until its events of both kinds are acknowledged.
    ///
    /// # Errors
    ///
    /// Every error returns the queue.
    /// - EBUSY if clones of the queue or queue pairs that use it exist.
    /// - [`ErrorKind::WouldDeadlock`] if the calling thread still holds an event of the queue.
    /// - [`ErrorKind::NotOwner`] if the process forked or changed its credentials.
    ///
    /// Kernel command: `IB_USER_VERBS_CMD_DESTROY_CQ`.
    #[doc(alias = "ibv_destroy_cq")]
    pub fn destroy(self) -> Result<(), DestroyError<Self>> {
        let context = self.context().clone();
        object::destroy(&context, Inner::name, self.inner, |inner| Self { inner })
    }
}

/// Exclusive access to a completion queue, for many polls under one lock.
///
/// Created by [`CompletionQueue::lock_poller`], and released when dropped. Other threads that poll
/// or wait on the queue block on the lock. They get access whenever this thread polls. The guard
/// cannot move to another thread. All threads must take pollers and send or receive queues in [one
/// order](super::SendQueueGuard).
///
/// In some cases a poll takes a second lock, which no other thread holds for long:
/// - The library is draining a queue pair.
/// - The library flushes requests that the driver does not flush.
/// - On rxe, a memory window of type 2 is bound, and the library looks for messages that invalidate
///   its key.
#[derive(Debug)]
pub struct Poller<'a> {
    inner: &'a Inner,
    ring: HandoffGuard<'a, AnyCqRing>,
}

impl Poller<'_> {
    /// Takes completions from the queue into `into` and returns their number.
    ///
    /// Takes as many as there are, limited by the length of `into`. Makes no system call, with two
    /// exceptions: on drivers that keep their queues in the kernel, and on siw if the poll destroys
    /// the private queue pair of [`request_notify`](CompletionQueue::request_notify).
    ///
    /// # Errors
    ///
    /// - [`ErrorKind::MalformedResponse`] if the ring that the kernel shares is inconsistent. On mlx5 each
    ///   malformed completion is reported once, and later polls return the completions after it. The request of
    ///   that completion never completes: destroy the queue pair, or move it to RESET.
    /// - [`ErrorKind::DeviceRemoved`] if polling issues a command and the device was removed.
    /// - [`ErrorKind::NotOwner`] if the process forked or changed its credentials.
    ///
    /// Kernel command: `IB_USER_VERBS_CMD_POLL_CQ`, on drivers that keep their queues in the
    /// kernel.
    pub fn poll(&mut self, into: &mut [Completion]) -> Result<usize> {
        if self.inner.object.context().file().is_owner_fast() && !self.ring.is_waited_for() {
            return self.poll_here(into);
        }
        self.poll_slow(into)
    }

    /// Polls on the fast path of [`poll`](Self::poll).
    ///
    /// The caller has checked that the process has not forked, and that no other thread waits for the ring.
    #[inline(always)]
    fn poll_here(&mut self, into: &mut [Completion]) -> Result<usize> {
        match self.inner.cq.try_poll(&mut self.ring, into) {
            Some(count) => Ok(count),
            None if into.len() == 1 => self.take_ready(into),
            None => self.take(into),
        }
    }

    /// Polls one completion on the fast path of [`poll`](Self::poll), after the driver has not found the queue empty.
    #[inline(never)]
    fn take_ready(&mut self, into: &mut [Completion]) -> Result<usize> {
        match self.inner.cq.try_take(&mut self.ring, into) {
            Some(count) => Ok(count),
            None => self.take(into),
        }
    }

    /// Polls on the slow path of [`poll`](Self::poll).
    ///
    /// It checks for a fork and lets a waiting thread in first.
    #[inline(never)]
    fn poll_slow(&mut self, into: &mut [Completion]) -> Result<usize> {
        self.inner.object.context().check_process(POLL, || self.inner.name())?;
        self.ring.yield_to_waiter();
        self.take(into)
    }

    /// Polls in this process, without letting in another thread that waits for the ring.
    #[inline(never)]
    pub(super) fn take(&mut self, into: &mut [Completion]) -> Result<usize> {
        let Inner { cq, object, .. } = self.inner;
        let polled = cq.poll_slow(object.context().engine(), &mut self.ring, into);
        polled.map_err(|error| self.inner.poll_error(error))
    }
}

impl Inner {
    #[cold]
    fn poll_error(&self, error: PollError) -> Error {
        self.object.context().not_polled(POLL, &self.name(), error)
    }

    fn name(&self) -> String {
        format!("completion queue {}", self.event_source.token())
    }

    fn subject(&self) -> String {
        self.object.context().subject(&self.name())
    }
}

impl Shared for Inner {
    type Destroy = ib_uverbs_destroy_cq;

    fn object(&mut self) -> &mut Object<ib_uverbs_destroy_cq> {
        self.cq.destroy_wakeups();
        &mut self.object
    }

    fn event_source(&self) -> Option<&EventSource> {
        Some(&self.event_source)
    }
}

impl Drop for Inner {
    fn drop(&mut self) {
        if self.object.is_owner() && !self.object.is_destroyed() && self.object().destroy().is_err()
        {
            // The device may still use the memory.
            mem::forget(ignore_poison(self.resized.get_mut()).take());
        }
        if let Some(channel) = &self.channel {
            channel.remove_queue();
        }
    }
}

impl_ptr_eq!(CompletionQueue, inner);

#[cfg(test)]
mod tests;
