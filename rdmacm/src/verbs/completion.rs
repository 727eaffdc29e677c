//! Completion queues, and polling them.

use std::mem;
use std::sync::Arc;
use std::time::{Duration, Instant};

use verbs_abi::{AlignedU64, ib_uverbs_create_cq, ib_uverbs_destroy_cq};

use super::completion_channel::CompletionChannel;
use super::context::Context;
use super::object::{self, Object, Shared};
use super::pd::ProtectionDomain;
use super::reporter::Reporter;
use super::same::equal_if_same;
use super::wakeup_qp::WakeupQp;
use super::{Completion, WcOpcode};
use crate::acks::Acks;
#[cfg(doc)]
use crate::cm::CmId;
use crate::concurrent::{HandoffGuard, HandoffMutex, HeldByThisThread};
use crate::driver::PollError;
use crate::drivers::any::AnyCqRing;
use crate::engine::{Cq, NewCq, WakeupRequest};
use crate::error::{DestroyError, Error, ErrorKind, Result};
use crate::registry::Token;

const POLL: &str = "poll";
/// The reason of an error for a queue that a [`BufferQueues`](super::BufferQueues) polls.
const POLLED_BY_BUFFERS: &str = "its completions are polled by the `BufferQueues` of a queue pair";
const POLLED_HERE: &str = "it has the queue's poller; drop that first";

/// Where the completions of queue pairs arrive.
///
/// A clone is the same queue. It lives while a clone of it or a queue pair on it does.
#[doc(alias = "ibv_cq")]
#[derive(Debug, Clone)]
pub struct CompletionQueue {
    inner: Arc<Inner>,
}

#[derive(Debug)]
struct Inner {
    ring: HandoffMutex<AnyCqRing>,
    // Declared before the object: the kernel does not destroy a queue to which the queue pairs of wakeups belong.
    cq: Cq,
    object: Object<ib_uverbs_destroy_cq>,
    reporter: Reporter,
    /// The completion events that were handed to the program.
    events: Arc<Acks>,
    channel: Option<CompletionChannel>,
    /// Held by the one thread that sleeps in `wait`: the event of an armed queue wakes one thread, and
    /// would leave a second one asleep on a queue that no thread arms again.
    sleeper: HandoffMutex<()>,
}

impl CompletionQueue {
    /// Makes a completion queue for at least `capacity` completions, whose events go to `channel`.
    ///
    /// `IB_USER_VERBS_CMD_CREATE_CQ`. It must have room for all requests that may complete before
    /// it is polled: a completion for which there is none is lost, and the queue broken.
    ///
    /// # Errors
    ///
    /// EINVAL for a capacity of zero or above the device's; ENOMEM; [`ErrorKind::Unsupported`]
    /// where the data path of the device's driver is not known; [`ErrorKind::Invalid`] where
    /// `channel` is of another device.
    #[doc(alias = "ibv_create_cq")]
    pub fn new(
        context: &Context,
        capacity: u32,
        channel: Option<&CompletionChannel>,
    ) -> Result<Self> {
        Self::on_vector(context, capacity, channel, 0)
    }

    /// The same with the completion vector `vector`: which of the device's interrupts tells of
    /// completions. The devices in software have vectors and make no difference between them.
    ///
    /// # Errors
    ///
    /// The errors of [`new`](Self::new); [`ErrorKind::Invalid`] for a vector that is none of the
    /// device's [`Context::completion_vectors`].
    #[doc(alias = "comp_vector")]
    pub fn on_vector(
        context: &Context,
        capacity: u32,
        channel: Option<&CompletionChannel>,
        vector: u32,
    ) -> Result<Self> {
        context.check_process("create", || "a completion queue".to_owned())?;
        let vectors = context.completion_vectors();
        if vector >= vectors {
            let reason = format!("completion vector {vector} where the device has {vectors}");
            return Err(Error::invalid("create", "a completion queue", reason));
        }
        if channel.is_some_and(|channel| channel.context() != context) {
            let reason = "the completion channel is of another context";
            return Err(Error::invalid("create", "a completion queue", reason));
        }
        let events = Arc::default();
        let reporter = Reporter::of_completion_queue(&events);
        let request = ib_uverbs_create_cq {
            response: AlignedU64::default(),
            user_handle: reporter.user_handle(),
            cqe: capacity,
            comp_vector: vector,
            comp_channel: channel.map_or(-1, CompletionChannel::raw),
            reserved: 0,
        };
        let created = Cq::create(context.engine(), request);
        let NewCq { cq, ring, memory } =
            created.map_err(|error| context.not_created("a completion queue", error))?;
        let inner = Inner {
            ring: HandoffMutex::new(ring),
            object: Object::with_memory(context, cq.handle(), memory),
            cq,
            reporter,
            events,
            channel: channel.cloned(),
            sleeper: HandoffMutex::default(),
        };
        if let Some(channel) = channel {
            channel.add_queue();
        }
        Ok(Self { inner: Arc::new(inner) })
    }

    /// What names this queue in events of its [channel](super::CompletionEvent::token) and in
    /// [asynchronous ones](super::AsyncElement).
    pub fn token(&self) -> Token {
        self.inner.reporter.token()
    }

    /// The context that it was made in.
    pub fn context(&self) -> &Context {
        self.inner.object.context()
    }

    /// The channel that its events come by, if it was made with one. Those that
    /// [`CmId::create_ep`] makes have one each.
    pub fn channel(&self) -> Option<&CompletionChannel> {
        self.inner.channel.as_ref()
    }

    /// How many completions it has room for.
    pub fn capacity(&self) -> u32 {
        self.inner.cq.capacity()
    }

    /// Makes room for at least `capacity` completions. What is on the queue stays there; threads that
    /// poll wait meanwhile. `IB_USER_VERBS_CMD_RESIZE_CQ`.
    ///
    /// # Errors
    ///
    /// EINVAL for a capacity of zero, above the device's, or below the number of completions that are
    /// on the queue; ENOMEM; [`ErrorKind::Unsupported`] where the driver cannot (siw);
    /// [`ErrorKind::WouldDeadlock`] where this thread has the [`poller`](Self::poller);
    /// [`ErrorKind::DeviceGone`], [`ErrorKind::WrongProcess`]. Where the kernel has resized the queue
    /// and its new ring cannot be mapped, the error says so, and every later poll is
    /// [`ErrorKind::Invalid`].
    #[doc(alias = "ibv_resize_cq")]
    pub fn resize(&self, capacity: u32) -> Result<()> {
        const RESIZE: &str = "resize";
        self.context().check_usable(RESIZE, || self.inner.name())?;
        let Ok(mut ring) = self.inner.ring.lock() else {
            let kind = ErrorKind::WouldDeadlock(POLLED_HERE);
            return Err(Error::new(RESIZE, self.inner.subject(), kind));
        };
        let resized = self.inner.cq.resize(self.context().engine(), &mut ring, capacity);
        resized.map_err(|error| {
            let (context, name) = (self.context(), self.inner.name());
            context.refused_or_unsupported(RESIZE, &name, "resizing", error.into_refused())
        })
    }

    pub(crate) fn handle(&self) -> u32 {
        self.inner.object.handle()
    }

    /// The queue without its ring and its owners.
    #[inline]
    pub(super) fn engine(&self) -> &Cq {
        &self.inner.cq
    }

    /// Takes the ring away, for an owner that [returns](Self::return_ring) it. Meanwhile every other poll fails.
    ///
    /// # Errors
    ///
    /// - [`ErrorKind::Invalid`] if the ring was taken before, or lost when the queue was resized.
    /// - [`ErrorKind::WouldDeadlock`] if this thread holds the [`poller`](Self::poller).
    pub(super) fn take_ring(&self) -> Result<AnyCqRing> {
        let mut ring = self.inner.ring.lock().map_err(|HeldByThisThread| self.polled_here())?;
        match &*ring {
            AnyCqRing::Absent(why) => Err(self.poll_error(PollError::Absent(why))),
            _ => Ok(mem::replace(&mut ring, AnyCqRing::Absent(POLLED_BY_BUFFERS))),
        }
    }

    /// Puts back the ring that was [taken](Self::take_ring). No thread holds the lock of a ring that was taken for long, and
    /// none while it waits.
    pub(super) fn return_ring(&self, ring: AnyCqRing) {
        if let Ok(mut absent) = self.inner.ring.lock() {
            *absent = ring;
        }
    }

    /// Reports that a poll in a forked child is refused.
    #[cold]
    #[inline(never)]
    pub(super) fn check_process(&self) -> Result<()> {
        self.context().check_process(POLL, || self.inner.name())
    }

    #[cold]
    pub(super) fn poll_error(&self, error: PollError) -> Error {
        self.inner.poll_error(error)
    }

    /// The queue's end that is polled, for this thread.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::WouldDeadlock`] where this thread has it already; [`ErrorKind::WrongProcess`]
    /// after a fork.
    pub fn poller(&self) -> Result<Poller<'_>> {
        self.context().check_process(POLL, || self.inner.name())?;
        let ring = self.inner.ring.lock().map_err(|HeldByThisThread| self.polled_here())?;
        match *ring {
            // A guard would keep the owner of the ring from putting it back.
            AnyCqRing::Absent(why) => Err(self.poll_error(PollError::Absent(why))),
            _ => Ok(Poller { inner: &self.inner, ring }),
        }
    }

    #[cold]
    fn polled_here(&self) -> Error {
        Error::new(POLL, self.inner.subject(), ErrorKind::WouldDeadlock(POLLED_HERE))
    }

    /// Takes completions off the queue: [`Poller::poll`] on a [`poller`](Self::poller) of its own.
    ///
    /// # Errors
    ///
    /// The errors of [`poller`](Self::poller) and [`Poller::poll`].
    #[doc(alias = "ibv_poll_cq")]
    pub fn poll(&self, into: &mut [Completion]) -> Result<usize> {
        self.poll_inlined(into)
    }

    /// The same for who polls all the time.
    #[inline(always)]
    pub(super) fn poll_inlined(&self, into: &mut [Completion]) -> Result<usize> {
        if self.context().file().surely_belongs_here() {
            if let Some(ring) = self.inner.ring.try_lock() {
                let mut poller = Poller { inner: &self.inner, ring };
                let polled = poller.poll_here(into);
                return polled;
            }
        }
        self.poll_with_care(into)
    }

    /// The same whoever has the poller, and where something is wrong.
    #[inline(never)]
    fn poll_with_care(&self, into: &mut [Completion]) -> Result<usize> {
        self.poller()?.poll_with_care(into)
    }

    /// The same, or `None` where another thread keeps the poller until `deadline`.
    fn poll_by(&self, into: &mut [Completion], deadline: Option<Instant>) -> Result<Option<usize>> {
        if deadline.is_none() {
            return self.poll(into).map(Some);
        }
        let ring = self.inner.ring.lock_until(deadline);
        let ring = ring.map_err(|HeldByThisThread| self.polled_here())?;
        ring.map(|ring| Poller { inner: &self.inner, ring }.take(into)).transpose()
    }

    /// Completes requests of queue pair `number`, which belongs to `pd`, with flush errors in place of the driver, and wakes
    /// a thread that sleeps on the channel. `opcode` tells whether they are receives; the operation of a send is not known.
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
            let mut wakeup = WakeupQp::new(pd, &self.inner.cq).ok()?;
            wakeup.raise_event();
            Some(Box::new(wakeup) as Box<dyn WakeupRequest>)
        });
    }

    /// Returns `true` if this thread has the poller.
    pub(super) fn is_polled_here(&self) -> bool {
        self.inner.ring.is_held_by_this_thread()
    }

    /// The poller, if no thread has it.
    pub(super) fn free_poller(&self) -> Option<Poller<'_>> {
        self.inner.ring.try_lock().map(|ring| Poller { inner: &self.inner, ring })
    }

    /// Asks for one event on the channel when the next completion comes; with `solicited_only` when
    /// the next one comes that its sender marked as solicited.
    ///
    /// Failures raise that event too by the standard, but not with every driver: on rxe no failed or
    /// flushed send does, nor a receive that fails with a message that was not marked, nor on Linux
    /// 6.12 a flushed one. Who waits for the end of a connection arms for every completion.
    ///
    /// `IB_USER_VERBS_CMD_REQ_NOTIFY_CQ`; on siw no system call, and any completion raises the event:
    /// its kernel does not look whether a received message was marked. Completions that are on the
    /// queue already raise no event: poll again after arming, before sleeping.
    ///
    /// Of the requests that the library completes itself (on siw, once the queue pair is in ERR) it
    /// makes the kernel tell, by a queue pair of its own that lasts until the queue is polled. Where the
    /// kernel makes none (no memory, or no more queue pairs), those raise no event.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::DeviceGone`], [`ErrorKind::WrongProcess`].
    #[doc(alias = "ibv_req_notify_cq")]
    pub fn request_notify(&self, solicited_only: bool) -> Result<()> {
        self.context().check_usable("arm", || self.inner.name())?;
        let context = self.context();
        let events_read = self.inner.events.handed_out();
        let armed = self.inner.cq.arm(context.engine(), solicited_only, events_read);
        armed.map_err(|refused| context.refused("arm", "a completion queue", refused))
    }

    /// Takes completions off the queue into `into`, and sleeps while there are none.
    ///
    /// Polls, arms, polls again, and reads an event off the channel (acknowledging it), until there
    /// is something. For a channel that serves no other queue, whose events would be lost here. Of
    /// several threads one sleeps on the channel and the others wait for their turn, where no signal
    /// reaches them. On siw one that sleeps is not woken for requests that the library completes where
    /// [no event](Self::request_notify) can be raised for them; the next call finds them.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::Invalid`] where the queue has no channel, the channel serves other queues too,
    /// or `into` has no place; [`ErrorKind::WouldBlock`] on a non-blocking channel; EINTR, with nothing lost;
    /// those of [`poll`](Self::poll), [`request_notify`](Self::request_notify) and
    /// [`CompletionChannel::get_event`].
    #[doc(alias = "rdma_get_send_comp")]
    #[doc(alias = "rdma_get_recv_comp")]
    pub fn wait(&self, into: &mut [Completion]) -> Result<usize> {
        self.sleep(into, None)
    }

    /// The same, or 0 if no completion came within `timeout`.
    ///
    /// Holds its deadline whoever else waits, reads the channel or keeps the
    /// [`poller`](Self::poller): see [`CompletionChannel::get_event_timeout`].
    ///
    /// # Errors
    ///
    /// As [`wait`](Self::wait), but never [`ErrorKind::WouldBlock`].
    pub fn wait_timeout(&self, into: &mut [Completion], timeout: Duration) -> Result<usize> {
        self.sleep(into, Some(timeout))
    }

    fn sleep(&self, into: &mut [Completion], timeout: Option<Duration>) -> Result<usize> {
        const OPERATION: &str = "wait for";
        let deadline = timeout.and_then(|timeout| Instant::now().checked_add(timeout));
        let invalid =
            |reason: &'static str| Error::invalid(OPERATION, self.inner.subject(), reason);
        self.context().check_process(OPERATION, || self.inner.name())?;
        let Some(channel) = &self.inner.channel else {
            return Err(invalid("it has no completion channel"));
        };
        if into.is_empty() {
            return Err(invalid("there is no place for a completion"));
        }
        let mut poll = || self.poll_by(into, deadline);
        let sleeper = self.inner.sleeper.lock_until(deadline);
        let sleeper = sleeper.map_err(|HeldByThisThread| {
            let kind = ErrorKind::WouldDeadlock("this thread waits on it already");
            Error::new(OPERATION, self.inner.subject(), kind)
        })?;
        let Some(_sleeper) = sleeper else { return Ok(poll()?.unwrap_or(0)) };
        loop {
            if channel.queues() > 1 {
                return Err(invalid(
                    "other queues have their events on its completion channel too",
                ));
            }
            match poll()? {
                Some(0) => self.request_notify(false)?,
                polled => return Ok(polled.unwrap_or(0)),
            }
            match poll()? {
                Some(0) => (),
                polled => return Ok(polled.unwrap_or(0)),
            }
            let event = match timeout {
                None => Some(channel.drop_event()?),
                Some(_) => channel.drop_event_by(deadline)?,
            };
            if event.is_none() {
                return Ok(poll()?.unwrap_or(0));
            }
        }
    }

    /// Destroys the queue and waits until its events, of either kind, are acknowledged.
    ///
    /// `IB_USER_VERBS_CMD_DESTROY_CQ`.
    ///
    /// # Errors
    ///
    /// EBUSY while clones of it or queue pairs on it live; [`ErrorKind::WouldDeadlock`] where an
    /// event that this thread received is still out. The queue comes back with the error.
    #[doc(alias = "ibv_destroy_cq")]
    pub fn destroy(self) -> Result<(), DestroyError<Self>> {
        let context = self.context().clone();
        object::destroy(&context, Inner::name, self.inner, |inner| Self { inner })
    }
}

/// The end of a completion queue that is polled, for one thread until it is dropped: for many polls
/// with one lock.
///
/// Of [`CompletionQueue::poller`]. Threads that poll or wait on the same queue meanwhile wait for it,
/// and have their turn whenever this one polls. It cannot leave the thread that took it. In what order
/// a thread takes it and queues to post to is to be the same in [all threads](super::SendQueue).
///
/// A poll takes one lock more, which nobody else has for long, while the library has something of its own to do with the
/// completions: it drains a queue pair, flushes requests that the driver does not, or (on rxe) looks for messages that take
/// back the key of a memory window of type 2 that is bound.
#[derive(Debug)]
pub struct Poller<'a> {
    inner: &'a Inner,
    ring: HandoffGuard<'a, AnyCqRing>,
}

impl Poller<'_> {
    /// Takes completions off the queue into `into`, as many as there are and as fit; returns how
    /// many.
    ///
    /// No system call; on drivers that keep their queues in the kernel `IB_USER_VERBS_CMD_POLL_CQ`.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::WrongProcess`]; [`ErrorKind::Malformed`] where the ring that the kernel shares
    /// is out of order; [`ErrorKind::DeviceGone`] where there is a command.
    pub fn poll(&mut self, into: &mut [Completion]) -> Result<usize> {
        if self.inner.object.context().file().surely_belongs_here() && !self.ring.is_waited_for() {
            return self.poll_here(into);
        }
        self.poll_with_care(into)
    }

    /// [`poll`](Self::poll) in this process, while no other thread waits for the ring.
    #[inline(always)]
    fn poll_here(&mut self, into: &mut [Completion]) -> Result<usize> {
        match self.inner.cq.try_poll(&mut self.ring, into) {
            Some(count) => Ok(count),
            None => self.take(into),
        }
    }

    /// [`poll`](Self::poll) that lets a waiting thread in first, and reports that the process has forked.
    #[inline(never)]
    fn poll_with_care(&mut self, into: &mut [Completion]) -> Result<usize> {
        self.inner.object.context().check_process(POLL, || self.inner.name())?;
        self.ring.yield_to_waiter();
        self.take(into)
    }

    /// Polls in this process. Another thread that waits for the ring is not let in.
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
        format!("completion queue {}", self.reporter.token())
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

    fn reporter(&self) -> Option<&Reporter> {
        Some(&self.reporter)
    }
}

impl Drop for Inner {
    fn drop(&mut self) {
        if let Some(channel) = &self.channel {
            channel.remove_queue();
        }
    }
}

equal_if_same!(CompletionQueue, inner);
