//! Queue pairs ([`QueuePair`]): creation, attributes, state changes and destruction.

use std::mem;
use std::sync::atomic::{AtomicU8, Ordering};
use std::sync::{Arc, Mutex};

use verbs_abi::{ib_uverbs_destroy_qp, ib_uverbs_ex_create_qp, ib_uverbs_query_qp_resp};

use super::address_handle::AddressHandle;
use super::attributes::{self, QueuePairAttributes, query};
use super::buffer::RegisteredBuffer;
use super::completion::CompletionQueue;
use super::context::Context;
use super::creation_order::CreationOrder;
use super::error_text::QUEUE_PAIR;
use super::event_source::EventSource;
use super::membership::{Group, detach};
use super::object::{self, Object, Shared};
use super::pd::ProtectionDomain;
use super::same::impl_ptr_eq;
use super::srq::SharedReceiveQueue;
use super::{AsyncEventType, QpCreateFlags, QpState, QpType, WcOpcode};
use crate::driver::CqControls;
use crate::drivers::any::{AnyDriver, AnyRecvRing, AnySendRing};
use crate::engine::{NewQp, Qp, QpOwner, QueueSide};
#[cfg(doc)]
use crate::error::ErrorKind;
use crate::error::{DestroyError, Error, Result};
use crate::lock::ignore_poison;
use crate::non_exhaustive::NonExhaustive;
use crate::registry::Token;
use crate::sync::HandoffMutex;

const MODIFY: &str = "modify";

/// Reason in errors about the receive queue of a queue pair that uses a shared receive queue.
const USES_SRQ: &str = "the queue pair has no receive queue of its own, but uses a shared one";

/// Reason in errors about the receive queue of an XRC initiator.
const ONLY_SENDS: &str = "an XRC initiator only sends";

/// The capacities of a queue pair.
///
/// Created from its default: see [Parameters](crate#parameters). The default is 16 requests of one
/// entry each in both queues, without inline data.
#[doc(alias = "ibv_qp_cap")]
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct QueuePairCaps {
    /// Maximum number of send requests that are posted and not yet completed.
    pub max_send_wr: u32,
    /// Maximum number of receive requests that are posted and not yet completed.
    pub max_recv_wr: u32,
    /// Maximum number of scatter/gather entries in a send request.
    pub max_send_sge: u32,
    /// Maximum number of scatter/gather entries in a receive request.
    pub max_recv_sge: u32,
    /// Maximum number of bytes of inline data in a send request.
    pub max_inline_data: u32,
    #[doc(hidden)]
    pub non_exhaustive: NonExhaustive,
}

impl Default for QueuePairCaps {
    /// Returns 16 requests of one entry each in both queues, without inline data.
    fn default() -> Self {
        Self {
            max_send_wr: 16,
            max_recv_wr: 16,
            max_send_sge: 1,
            max_recv_sge: 1,
            max_inline_data: 0,
            non_exhaustive: NonExhaustive::default(),
        }
    }
}

/// The parameters of a new queue pair.
///
/// Created by [`new`](Self::new), which takes the place of a default: see
/// [Parameters](crate#parameters).
#[doc(alias = "ibv_qp_init_attr")]
#[doc(alias = "ibv_qp_init_attr_ex")]
#[derive(Debug, Clone, Copy)]
pub struct QueuePairInit<'a> {
    /// Completion queue of the sends.
    pub send_cq: &'a CompletionQueue,
    /// Completion queue of the receives.
    pub recv_cq: &'a CompletionQueue,
    /// Shared receive queue that replaces the queue pair's own receive queue, if any.
    ///
    /// The receive capacities in `caps` are ignored if this is set.
    ///
    /// # Driver notes
    ///
    /// rxe looks up the memory of receives in the protection domain of the queue pair, siw in that
    /// of the shared receive queue. Use the same protection domain for both.
    pub srq: Option<&'a SharedReceiveQueue>,
    /// Minimum capacities.
    pub caps: QueuePairCaps,
    /// `true` if every send is signaled, including sends that do not request a completion.
    pub signal_all: bool,
    /// Additional features requested from the driver. rxe and siw offer none.
    pub create_flags: QpCreateFlags,
    #[doc(hidden)]
    pub non_exhaustive: NonExhaustive,
}

impl<'a> QueuePairInit<'a> {
    /// Returns parameters with [default capacities](QueuePairCaps::default) whose completions go to
    /// `cq`.
    ///
    /// The queue pair has its own receive queue. Sends complete only if they are signaled. Change
    /// individual fields with struct update syntax.
    pub fn new(cq: &'a CompletionQueue) -> Self {
        Self {
            send_cq: cq,
            recv_cq: cq,
            srq: None,
            caps: QueuePairCaps::default(),
            signal_all: false,
            create_flags: QpCreateFlags::empty(),
            non_exhaustive: NonExhaustive::default(),
        }
    }
}

/// A queue pair: a send queue and a receive queue that form one endpoint of the network.
///
/// [`CmId::create_qp`](crate::cm::CmId::create_qp) creates the queue pair of a connection, and moves
/// it through its states. [`new`](Self::new) creates one whose states the program changes with
/// [`modify`](Self::modify). [`post_send`](Self::post_send) and [`post_recv`](Self::post_recv) post
/// requests; the [`CompletionQueue`] reports their results. [`drain`](Self::drain) ends all of them.
///
/// # Examples
///
/// ```no_run
/// # use rdmacm::verbs::{CompletionQueue, Context, ProtectionDomain, QueuePair, QueuePairInit};
/// # fn run(context: &Context) -> rdmacm::Result<()> {
/// let pd = ProtectionDomain::new(context)?;
/// let cq = CompletionQueue::new(context, 32, None)?;
/// let qp = QueuePair::new(&pd, &QueuePairInit::new(&cq))?;
/// println!("queue pair {} with {:?}", qp.number(), qp.caps());
/// # Ok(())
/// # }
/// ```
///
/// # Clones
///
/// A clone refers to the same queue pair. The queue pair lives as long as a clone of it, or the id
/// that it belongs to. A [memory window](super::MemoryWindow) of type 2 keeps it alive too, if a
/// bind of the window was posted to it.
#[doc(alias = "ibv_qp")]
#[derive(Debug, Clone)]
pub struct QueuePair {
    pub(super) inner: Arc<Inner>,
}

#[derive(Debug)]
pub(super) struct Inner {
    pub(super) object: Object<ib_uverbs_destroy_qp>,
    /// Declared after `object`: dropped only when the kernel's queue pair has been destroyed.
    pub(super) life: Arc<()>,
    /// Taken after the kernel created the queue pair.
    pub(super) created: CreationOrder,
    event_source: EventSource,
    pd: ProtectionDomain,
    pub(super) send_cq: CompletionQueue,
    pub(super) recv_cq: CompletionQueue,
    srq: Option<SharedReceiveQueue>,
    pub(super) qp: Qp,
    caps: QueuePairCaps,
    /// The depths that were set last.
    depths: [AtomicU8; 2],
    pub(super) send: HandoffMutex<AnySendRing>,
    pub(super) receive: HandoffMutex<AnyRecvRing>,
    /// Multicast groups to which the queue pair is attached.
    ///
    /// The kernel refuses to destroy a queue pair that is still attached.
    pub(super) groups: Mutex<Vec<Group>>,
    /// Resources that the device may use as long as the kernel's queue pair exists.
    ///
    /// Declared after `object`.
    pub(super) kept: Mutex<Option<Box<RetainedResources>>>,
}

/// Resources of requests whose completion no caller awaits.
#[derive(Debug, Default)]
pub(super) struct RetainedResources {
    pub(super) buffers: Vec<RegisteredBuffer>,
    pub(super) addresses: Vec<AddressHandle>,
}

impl QueuePair {
    /// Creates a reliable connected queue pair in the state RESET.
    ///
    /// [`CmId::create_qp`](crate::cm::CmId::create_qp) creates a queue pair that belongs to an id.
    ///
    /// # Errors
    ///
    /// - EINVAL if a capacity exceeds that of the device. On mlx5 the kind of this error is
    ///   [`ErrorKind::InvalidInput`], and its text names the limit.
    /// - EINVAL if a flag is not valid for this command.
    /// - ENOMEM if memory is short.
    /// - EOPNOTSUPP if the driver does not offer a flag.
    /// - [`ErrorKind::Unsupported`] if the data path of the device's driver is not known.
    /// - [`ErrorKind::InvalidInput`] if a completion queue or the shared receive queue belongs to
    ///   another context.
    /// - [`ErrorKind::InvalidInput`] if the shared receive queue is in an XRC domain.
    /// - [`ErrorKind::NotOwner`] if the process forked or changed its credentials.
    ///
    /// Kernel command: `IB_USER_VERBS_CMD_CREATE_QP`, or `IB_USER_VERBS_EX_CMD_CREATE_QP` (Linux
    /// 4.4) if there are [flags](QueuePairInit::create_flags).
    #[doc(alias = "ibv_create_qp")]
    #[doc(alias = "ibv_create_qp_ex")]
    pub fn new(pd: &ProtectionDomain, init: &QueuePairInit<'_>) -> Result<Self> {
        Self::with_type(pd, QpType::IB_UVERBS_QPT_RC, init)
    }

    /// Creates a queue pair of type `qp_type` in the state RESET.
    ///
    /// See [`new`](Self::new) for details.
    ///
    /// # Errors
    ///
    /// In addition to the errors of [`new`](Self::new):
    /// - EOPNOTSUPP or EINVAL if the device does not offer the type.
    /// - [`ErrorKind::InvalidInput`] for an XRC target: create an [`XrcTarget`](super::XrcTarget)
    ///   instead.
    /// - [`ErrorKind::InvalidInput`] for an XRC initiator with a shared receive queue.
    pub fn with_type(
        pd: &ProtectionDomain,
        qp_type: QpType,
        init: &QueuePairInit<'_>,
    ) -> Result<Self> {
        const OPERATION: &str = "create";
        const SUBJECT: &str = QUEUE_PAIR;
        let context = pd.context();
        context.check_process(OPERATION, || SUBJECT.to_owned())?;
        for cq in [init.send_cq, init.recv_cq] {
            if cq.context() != context {
                let reason = "a completion queue is of another context";
                return Err(Error::invalid(OPERATION, SUBJECT, reason));
            }
        }
        if init.srq.is_some_and(|srq| srq.context() != context) {
            let reason = "the shared receive queue is of another context";
            return Err(Error::invalid(OPERATION, SUBJECT, reason));
        }
        match (qp_type, init.srq) {
            (QpType::IB_UVERBS_QPT_XRC_TGT, _) => {
                let reason = "an XRC target has no queues and is in an XRC domain; create it with `XrcTarget::new`";
                return Err(Error::invalid(OPERATION, SUBJECT, reason));
            }
            (QpType::IB_UVERBS_QPT_XRC_INI, Some(_)) => {
                let reason = "an XRC initiator only sends and cannot use a shared receive queue";
                return Err(Error::invalid(OPERATION, SUBJECT, reason));
            }
            (_, Some(srq)) if srq.number().is_some() => {
                let reason = "only XRC targets can use a shared receive queue in an XRC domain";
                return Err(Error::invalid(OPERATION, SUBJECT, reason));
            }
            _ => {}
        }
        let event_source = EventSource::new();
        let (max_recv_wr, max_recv_sge) = match init.srq {
            None => (init.caps.max_recv_wr, init.caps.max_recv_sge),
            Some(_) => (0, 0),
        };
        let request = ib_uverbs_ex_create_qp {
            user_handle: event_source.user_handle(),
            pd_handle: pd.handle(),
            send_cq_handle: init.send_cq.handle(),
            recv_cq_handle: init.recv_cq.handle(),
            srq_handle: init.srq.map_or(0, SharedReceiveQueue::handle),
            max_send_wr: init.caps.max_send_wr,
            max_recv_wr,
            max_send_sge: init.caps.max_send_sge,
            max_recv_sge,
            max_inline_data: init.caps.max_inline_data,
            sq_sig_all: u8::from(init.signal_all),
            qp_type,
            is_srq: u8::from(init.srq.is_some()),
            create_flags: init.create_flags,
            ..ib_uverbs_ex_create_qp::default()
        };
        let (send_cq, recv_cq) = (init.send_cq.engine(), init.recv_cq.engine());
        let cqs = CqControls { send: send_cq.control(), recv: recv_cq.control() };
        let created = Qp::create(context.engine(), pd.number(), request, cqs);
        let NewQp { qp, response, send, recv, memory } =
            created.map_err(|error| context.queue_not_created(QUEUE_PAIR, error))?;
        let receive = recv.unwrap_or(AnyRecvRing::Absent(match qp_type {
            QpType::IB_UVERBS_QPT_XRC_INI => ONLY_SENDS,
            _ => USES_SRQ,
        }));
        let inner = Inner {
            object: Object::with_memory(context, response.qp_handle, memory),
            life: Arc::default(),
            created: CreationOrder::now(),
            event_source,
            pd: pd.clone(),
            send_cq: init.send_cq.clone(),
            recv_cq: init.recv_cq.clone(),
            srq: init.srq.cloned(),
            qp,
            caps: QueuePairCaps {
                max_send_wr: response.max_send_wr,
                max_recv_wr: response.max_recv_wr,
                max_send_sge: response.max_send_sge,
                max_recv_sge: response.max_recv_sge,
                max_inline_data: response.max_inline_data,
                non_exhaustive: NonExhaustive::default(),
            },
            depths: [AtomicU8::new(0), AtomicU8::new(0)],
            send: HandoffMutex::new(send),
            receive: HandoffMutex::new(receive),
            groups: Mutex::default(),
            kept: Mutex::default(),
        };
        Ok(Self { inner: Arc::new(inner) })
    }

    /// Returns the token that identifies this queue pair in [asynchronous
    /// events](super::AsyncElement).
    pub fn token(&self) -> Token {
        self.inner.event_source.token()
    }

    /// Returns the queue pair number, which has 24 bits.
    pub fn number(&self) -> u32 {
        self.inner.qp.number()
    }

    /// Returns the type of the queue pair.
    #[inline]
    pub fn qp_type(&self) -> QpType {
        self.inner.qp.qp_type()
    }

    /// Returns the capacities that the kernel reported, which are at least the requested ones.
    pub fn caps(&self) -> QueuePairCaps {
        self.inner.caps
    }

    /// Returns the protection domain.
    pub fn pd(&self) -> &ProtectionDomain {
        &self.inner.pd
    }

    /// Returns the completion queue of the sends.
    pub fn send_cq(&self) -> &CompletionQueue {
        &self.inner.send_cq
    }

    /// Returns the completion queue of the receives.
    pub fn recv_cq(&self) -> &CompletionQueue {
        &self.inner.recv_cq
    }

    /// Returns the shared receive queue, or `None` if the queue pair has its own receive queue.
    pub fn srq(&self) -> Option<&SharedReceiveQueue> {
        self.inner.srq.as_ref()
    }

    /// Changes the attributes that the mask in `attributes` selects.
    ///
    /// Create `attributes` with [`QueuePairAttributes`], or take those that
    /// [`CmId::init_qp_attr`](crate::cm::CmId::init_qp_attr) returns. The call does not wait for
    /// threads that post or poll.
    ///
    /// If a send of an unreliable queue pair fails, devices that follow the specification move the
    /// queue pair to `IB_QPS_SQE`. In that state, requests in the send queue are flushed and
    /// receives continue, until the caller changes the state to `IB_QPS_RTS`.
    /// [`query`](Self::query) returns the state.
    ///
    /// # Errors
    ///
    /// - EINVAL if the state cannot follow the current one, or if attributes are missing or out of
    ///   range.
    /// - [`ErrorKind::Unsupported`] if the driver does not support an attribute.
    /// - [`ErrorKind::DeviceRemoved`] if the device was removed, except when changing the state to
    ///   ERR.
    /// - [`ErrorKind::NotOwner`] if the process forked or changed its credentials.
    ///
    /// # Driver notes
    ///
    /// On mlx5, a change to RESET removes the completions of the queue pair that were not polled, except those of a
    /// shared receive queue. While a thread holds the poller of a completion queue, they take up room until it polls.
    ///
    /// On siw, change nothing but the state while requests are in flight. The kernel passes some
    /// requests to a thread of its own. That thread skips a request, and does not try again, if it
    /// finds a change in progress.
    ///
    /// Kernel command: `IB_USER_VERBS_CMD_MODIFY_QP`, or `IB_USER_VERBS_EX_CMD_MODIFY_QP` (Linux
    /// 4.10) if there is a [rate limit](QueuePairAttributes::rate_limit), or options that
    /// [`set_ece`](Self::set_ece) has requested.
    #[doc(alias = "ibv_modify_qp")]
    pub fn modify(&self, attributes: &QueuePairAttributes) -> Result<()> {
        let fails = attributes.step() == Some(QpState::IB_QPS_ERR);
        // First: a lock that another thread held during the fork stays locked in the child.
        if fails {
            // Allowed on a removed device too: posted requests must complete.
            self.context().check_process(MODIFY, || self.subject())?;
        } else {
            self.context().check_usable(MODIFY, || self.subject())?;
        }
        let engine = self.context().engine();
        let change = attributes::change(self.inner.object.handle(), attributes);
        let modified = self.inner.qp.modify(engine, &*self.inner, &change);
        modified.map_err(|refused| {
            let what = match attributes.step() {
                Some(state) => format!("{} to {state}", self.subject()),
                None => self.subject(),
            };
            self.context().refused_or_unsupported(MODIFY, &what, "this change", refused)
        })?;
        for (kept, set) in self.inner.depths.iter().zip(attributes.depths()) {
            set.into_iter().for_each(|depth| kept.store(depth, Ordering::Relaxed));
        }
        if attributes.step() == Some(QpState::IB_QPS_RESET) {
            self.inner.sweep();
        }
        Ok(())
    }

    /// Returns the numbers of reads and atomics of this side and of the peer that may be outstanding.
    ///
    /// These are the numbers that were set. A query returns powers of two on rxe and mlx5, and mlx5
    /// has no encoding of zero.
    pub(crate) fn depths(&self) -> [u8; 2] {
        self.inner.depths.each_ref().map(|depth| depth.load(Ordering::Relaxed))
    }

    /// Queries the kernel for the state and the attributes of the queue pair.
    ///
    /// # Errors
    ///
    /// - [`ErrorKind::DeviceRemoved`] if the device was removed.
    /// - [`ErrorKind::NotOwner`] if the process forked or changed its credentials.
    ///
    /// Kernel command: `IB_USER_VERBS_CMD_QUERY_QP`.
    #[doc(alias = "ibv_query_qp")]
    pub fn query(&self) -> Result<ib_uverbs_query_qp_resp> {
        let request = query(self.inner.object.handle());
        self.context().command("query", &self.subject(), request)
    }

    /// Destroys the queue pair and waits until its asynchronous events are acknowledged.
    ///
    /// Posted requests produce no more completions, and the device no longer accesses their memory.
    ///
    /// If the queue pair is attached to a multicast group while its device is being removed, the call
    /// also waits until the kernel has destroyed the objects of the device, at most 10 seconds.
    ///
    /// # Errors
    ///
    /// Every error returns the queue pair.
    /// - EBUSY if clones of the queue pair exist. The id that it belongs to holds one
    ///   ([`CmId::destroy_qp`](crate::cm::CmId::destroy_qp)). So does each [memory
    ///   window](super::MemoryWindow) of type 2 if a bind of the window was posted to this queue
    ///   pair.
    /// - EBUSY if the queue pair is attached to a multicast group.
    /// - [`ErrorKind::WouldDeadlock`] if the calling thread still holds an event of the queue pair.
    /// - [`ErrorKind::NotOwner`] if the process forked or changed its credentials.
    ///
    /// Kernel command: `IB_USER_VERBS_CMD_DESTROY_QP`.
    #[doc(alias = "ibv_destroy_qp")]
    pub fn destroy(self) -> Result<(), DestroyError<Self>> {
        let context = self.context().clone();
        object::destroy(&context, Inner::subject, self.inner, |inner| Self { inner })
    }

    #[inline]
    pub(super) fn context(&self) -> &Context {
        self.inner.object.context()
    }

    pub(super) fn subject(&self) -> String {
        self.inner.subject()
    }

    /// Returns `true` if the queue pair and its connection always end together.
    ///
    /// In that case the kernel moves the queue pair to ERR when the connection ends. It also ends
    /// the connection when the queue pair moves to ERR.
    pub(crate) fn ends_with_connection(&self) -> bool {
        self.context().driver_capabilities().qp_follows_connection
    }

    /// Returns `true` if the queue pair is in ERR and can never leave that state.
    pub(crate) fn has_ended(&self) -> bool {
        self.inner.qp.has_ended(self.context().engine())
    }

    /// Returns `IB_EVENT_QP_ACCESS_ERR` if that event has reported that an access of the peer was
    /// refused.
    ///
    /// The connection has then ended: siw raises the event before it ends the connection
    /// (`siw_proc_write`).
    ///
    /// Reads the events that the device has raised, without waiting. If the program reads the
    /// events of the context, the function does not: see [`Context::async_events`].
    pub(crate) fn peer_failure(&self) -> Option<AsyncEventType> {
        self.context().read_events_ahead();
        self.inner.event_source.failure()
    }

    /// Returns the driver-level queue pair, without its rings and the state that this type adds.
    #[inline]
    pub(super) fn engine(&self) -> &Qp {
        &self.inner.qp
    }

    #[inline]
    pub(super) fn state(&self) -> QpState {
        self.inner.qp.state()
    }
}

impl QpOwner for Inner {
    fn cqs(&self) -> CqControls<'_, AnyDriver> {
        let (send, recv) = (self.send_cq.engine(), self.recv_cq.engine());
        CqControls { send: send.control(), recv: recv.control() }
    }

    fn complete_orphans(&self, side: QueueSide, wr_ids: &[u64]) {
        let (cq, opcode) = match side {
            QueueSide::Send => (&self.send_cq, WcOpcode::IB_UVERBS_WC_SEND),
            QueueSide::Receive => (&self.recv_cq, WcOpcode::IB_WC_RECV),
        };
        cq.complete_orphans(&self.pd, self.qp.number(), opcode, wr_ids);
    }

    fn can_complete_orphan(&self, side: QueueSide) -> bool {
        let cq = match side {
            QueueSide::Send => &self.send_cq,
            QueueSide::Receive => &self.recv_cq,
        };
        cq.engine().can_inject()
    }
}

impl Inner {
    /// Makes room in the completion queues, which may hold completions of an earlier generation.
    fn sweep(&self) {
        self.send_cq.sweep();
        if self.send_cq != self.recv_cq {
            self.recv_cq.sweep();
        }
    }

    fn subject(&self) -> String {
        format!("queue pair {}", self.qp.number())
    }
}

impl Shared for Inner {
    type Destroy = ib_uverbs_destroy_qp;

    fn object(&mut self) -> &mut Object<ib_uverbs_destroy_qp> {
        &mut self.object
    }

    /// Returns `true` if the kernel destroys the queue pair by itself.
    ///
    /// The kernel refuses to detach a queue pair whose device is being removed. It also refuses to destroy an attached
    /// one, until it destroys all objects of the device.
    fn is_ending(&self) -> bool {
        self.object.context().is_device_removed() && !ignore_poison(self.groups.lock()).is_empty()
    }

    fn event_source(&self) -> Option<&EventSource> {
        Some(&self.event_source)
    }
}

impl Drop for Inner {
    fn drop(&mut self) {
        let groups = ignore_poison(self.groups.get_mut());
        if self.object.is_owner() {
            for group in groups.drain(..) {
                // If this fails, the kernel keeps the queue pair until the context closes.
                let request = detach(self.object.handle(), group);
                let _ = self.object.context().file().command(request);
            }
            if !self.object.is_destroyed() {
                let _ = self.object.destroy();
            }
            if self.object.is_destroyed() {
                self.qp.on_destroyed(self.object.context().engine(), self.cqs());
                self.sweep();
            } else {
                // The device may use these resources as long as the kernel's queue pair exists.
                mem::forget(mem::take(ignore_poison(self.kept.get_mut())));
            }
        }
    }
}

impl_ptr_eq!(QueuePair, inner);
