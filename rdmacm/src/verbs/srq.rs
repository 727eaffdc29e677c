//! Shared receive queues ([`SharedReceiveQueue`]).

use std::sync::Arc;

use verbs_abi::{AlignedU64, ib_uverbs_create_srq, ib_uverbs_destroy_srq, ib_uverbs_query_srq};

use super::completion::CompletionQueue;
use super::context::Context;
use super::event_source::EventSource;
use super::object::{self, Object, Shared};
use super::pd::ProtectionDomain;
use super::same::impl_ptr_eq;
use super::xrc_domain::XrcDomain;
use crate::driver::CreateSrq;
use crate::drivers::any::AnyRecvRing;
use crate::engine::{NewSrq, Srq};
use crate::error::{DestroyError, Error, ErrorKind, Result};
use crate::non_exhaustive::NonExhaustive;
use crate::registry::Token;
use crate::sync::{HandoffGuard, HandoffMutex, HeldByThisThread};

/// The capacities and the limit of a shared receive queue.
///
/// Created from its default: see [Parameters](crate#parameters). The default is 16 requests of one
/// entry each, without a limit.
#[doc(alias = "ibv_srq_attr")]
#[doc(alias = "ibv_srq_init_attr")]
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SharedReceiveQueueAttributes {
    /// Maximum number of requests that are posted and not yet consumed by a message.
    pub max_wr: u32,
    /// Maximum number of scatter/gather entries in a request.
    pub max_sge: u32,
    /// Threshold of requests below which `IB_EVENT_SRQ_LIMIT_REACHED` is raised, once; 0 for never.
    #[doc(alias = "srq_limit")]
    pub limit: u32,
    #[doc(hidden)]
    pub non_exhaustive: NonExhaustive,
}

impl Default for SharedReceiveQueueAttributes {
    /// Returns 16 requests of one entry each, without a limit.
    fn default() -> Self {
        Self { max_wr: 16, max_sge: 1, limit: 0, non_exhaustive: NonExhaustive::default() }
    }
}

/// A queue of receive requests that several queue pairs consume, in the order in which messages
/// arrive.
///
/// A clone refers to the same queue. The queue lives as long as a clone of it, a queue pair that
/// receives from it, or the id that it belongs to. A request completes on the completion queue of
/// the queue pair that received the message, and the completion [names](super::Completion::qp_num)
/// that queue pair.
///
/// Posted requests stay in the queue when a queue pair moves to ERR. Only the request of a message
/// that was arriving completes. If a message finds no request, the effect is the same as for a
/// queue pair without receives. The sender retries ("receiver not ready"), or on iWARP the
/// connection ends.
///
/// # Driver notes
///
/// With rxe on Linux 6.12, even the request of the arriving message does not complete if packets of
/// the message were still missing. The request is lost, and its memory is free when that queue pair
/// is destroyed.
#[doc(alias = "ibv_srq")]
#[derive(Debug, Clone)]
pub struct SharedReceiveQueue {
    inner: Arc<Inner>,
}

#[derive(Debug)]
struct Inner {
    object: Object<ib_uverbs_destroy_srq>,
    srq: Srq,
    event_source: EventSource,
    pd: ProtectionDomain,
    initial_attributes: SharedReceiveQueueAttributes,
    receive: HandoffMutex<AnyRecvRing>,
    /// Additional state of a queue in an XRC domain.
    ///
    /// Declared after `object`, which needs it.
    xrc: Option<Xrc>,
}

/// The additional state of a shared receive queue in an XRC domain.
#[derive(Debug)]
struct Xrc {
    domain: XrcDomain,
    cq: CompletionQueue,
    number: u32,
}

impl SharedReceiveQueue {
    /// Creates a shared receive queue.
    ///
    /// [`CmId::create_srq`](crate::cm::CmId::create_srq) creates a queue that belongs to an id.
    ///
    /// # Errors
    ///
    /// - EINVAL if an attribute exceeds that of the device (`max_srq_wr` and `max_srq_sge` of
    ///   [`Context::query_device`]), or if `max_wr` is 0. On mlx5 the kind of this error
    ///   is [`ErrorKind::InvalidInput`], and its text names an exceeded limit.
    /// - ENOMEM if memory is short.
    /// - [`ErrorKind::InvalidInput`] if the limit exceeds the size.
    /// - [`ErrorKind::Unsupported`] if the data path of the device's driver is not known.
    /// - [`ErrorKind::NotOwner`] if the process forked or changed its credentials.
    ///
    /// Kernel command: `IB_USER_VERBS_CMD_CREATE_SRQ`.
    #[doc(alias = "ibv_create_srq")]
    pub fn new(pd: &ProtectionDomain, attributes: SharedReceiveQueueAttributes) -> Result<Self> {
        Self::create(pd, attributes, None, |event_source| {
            CreateSrq::Plain(ib_uverbs_create_srq {
                response: AlignedU64::default(),
                user_handle: event_source.user_handle(),
                pd_handle: pd.handle(),
                max_wr: attributes.max_wr,
                max_sge: attributes.max_sge,
                srq_limit: attributes.limit,
            })
        })
    }

    /// Creates a shared receive queue with the command that `request` returns.
    ///
    /// A queue in an XRC domain has the domain and the completion queue of `xrc`.
    pub(super) fn create(
        pd: &ProtectionDomain,
        attributes: SharedReceiveQueueAttributes,
        xrc: Option<(&XrcDomain, &CompletionQueue)>,
        request: impl FnOnce(&EventSource) -> CreateSrq,
    ) -> Result<Self> {
        const OPERATION: &str = "create";
        const SUBJECT: &str = "a shared receive queue";
        let context = pd.context();
        context.check_process(OPERATION, || SUBJECT.to_owned())?;
        let SharedReceiveQueueAttributes { max_wr, limit, .. } = attributes;
        // rxe would accept such a limit.
        if limit > max_wr {
            let reason = format!("limit {limit} exceeds max_wr {max_wr}");
            return Err(Error::invalid(OPERATION, SUBJECT, reason));
        }
        let event_source = EventSource::new();
        let cq = xrc.map(|(_, cq)| cq.engine());
        let created = Srq::create(context.engine(), request(&event_source), cq);
        let NewSrq { srq, response, ring, memory } =
            created.map_err(|error| context.queue_not_created(SUBJECT, error))?;
        let inner = Inner {
            object: Object::with_memory(context, srq.handle(), memory),
            srq,
            event_source,
            pd: pd.clone(),
            initial_attributes: SharedReceiveQueueAttributes {
                max_wr: response.max_wr,
                max_sge: response.max_sge,
                limit,
                non_exhaustive: NonExhaustive::default(),
            },
            receive: HandoffMutex::new(ring),
            xrc: xrc.map(|(domain, cq)| Xrc {
                domain: domain.clone(),
                cq: cq.clone(),
                number: response.srqn,
            }),
        };
        Ok(Self { inner: Arc::new(inner) })
    }

    /// Returns the token that identifies this queue in [asynchronous events](super::AsyncElement).
    pub fn token(&self) -> Token {
        self.inner.event_source.token()
    }

    /// Returns the number by which senders name the queue, or `None` if it is not in an XRC domain.
    #[doc(alias = "ibv_get_srq_num")]
    pub fn number(&self) -> Option<u32> {
        self.inner.xrc.as_ref().map(|xrc| xrc.number)
    }

    /// Returns the XRC domain of the queue, or `None` if it is not in one.
    pub fn domain(&self) -> Option<&XrcDomain> {
        self.inner.xrc.as_ref().map(|xrc| &xrc.domain)
    }

    /// Returns the completion queue of a queue in an XRC domain, or `None` for other queues.
    ///
    /// Requests of other queues complete on the completion queues of the queue pairs.
    pub fn cq(&self) -> Option<&CompletionQueue> {
        self.inner.xrc.as_ref().map(|xrc| &xrc.cq)
    }

    /// Returns the protection domain.
    pub fn pd(&self) -> &ProtectionDomain {
        &self.inner.pd
    }

    /// Returns the attributes at creation, as the driver reported them.
    ///
    /// They are at least the requested ones. [`query`](Self::query) returns the current ones.
    pub fn attributes(&self) -> SharedReceiveQueueAttributes {
        self.inner.initial_attributes
    }

    /// Sets the limit below which `IB_EVENT_SRQ_LIMIT_REACHED` is raised, once; 0 disables it.
    ///
    /// The event is raised when fewer than `limit` requests are left after a message has consumed
    /// one. The kernel checks only at that time. If `limit` already exceeds the number of posted
    /// requests, the next message raises the event.
    ///
    /// # Errors
    ///
    /// - EINVAL if `limit` exceeds the size of the queue.
    /// - [`ErrorKind::DeviceRemoved`] if the device was removed.
    /// - [`ErrorKind::NotOwner`] if the process forked or changed its credentials.
    ///
    /// Kernel command: `IB_USER_VERBS_CMD_MODIFY_SRQ`.
    #[doc(alias = "ibv_modify_srq")]
    #[doc(alias = "IBV_SRQ_LIMIT")]
    pub fn set_limit(&self, limit: u32) -> Result<()> {
        const OPERATION: &str = "set the limit of";
        let context = self.context();
        context.check_usable(OPERATION, || self.subject())?;
        let limited = self.inner.srq.set_limit(context.engine(), limit);
        limited.map_err(|refused| context.refused(OPERATION, &self.subject(), refused))
    }

    /// Resizes the queue to hold at least `max_wr` requests.
    ///
    /// Posted requests are kept. Other threads that post to the queue wait until the call returns.
    ///
    /// # Errors
    ///
    /// - EINVAL if `max_wr` exceeds that of the device, or is below the limit or the number of
    ///   posted requests.
    /// - ENOMEM if memory is short.
    /// - [`ErrorKind::Unsupported`] if the driver cannot resize the queue (siw), or would lose
    ///   posted requests (hfi1, qib).
    /// - [`ErrorKind::WouldDeadlock`] if the calling thread holds the [receive
    ///   queue](Self::lock_receive_queue).
    /// - [`ErrorKind::DeviceRemoved`] if the device was removed.
    /// - [`ErrorKind::NotOwner`] if the process forked or changed its credentials.
    /// - The errno of `mmap` if the kernel has resized the queue but its new ring cannot be mapped.
    ///   Every later post then fails with [`ErrorKind::InvalidInput`].
    ///
    /// # Driver notes
    ///
    /// `rvt_modify_srq` of hfi1 and qib keeps only requests in a ring that programs have mapped,
    /// and this crate posts by commands.
    ///
    /// Kernel command: `IB_USER_VERBS_CMD_MODIFY_SRQ`.
    #[doc(alias = "ibv_modify_srq")]
    #[doc(alias = "IBV_SRQ_MAX_WR")]
    pub fn resize(&self, max_wr: u32) -> Result<()> {
        const OPERATION: &str = "resize";
        let context = self.context();
        context.check_usable(OPERATION, || self.subject())?;
        if !context.driver_capabilities().srq_resize_keeps_requests {
            let driver = context.driver_name();
            let what = format!("resizing by {driver}, which would lose the posted receives");
            return Err(Error::new(OPERATION, self.subject(), ErrorKind::Unsupported(what.into())));
        }
        let mut ring = self.lock(OPERATION)?;
        let resized = self.inner.srq.resize(context.engine(), &mut ring, max_wr);
        drop(ring);
        resized.map_err(|refused| {
            let refused = refused.into_refused();
            context.refused_or_unsupported(OPERATION, &self.subject(), "resizing", refused)
        })
    }

    /// Queries the kernel for the attributes of the queue.
    ///
    /// The limit is 0 after its event was raised.
    ///
    /// # Errors
    ///
    /// - [`ErrorKind::DeviceRemoved`] if the device was removed.
    /// - [`ErrorKind::NotOwner`] if the process forked or changed its credentials.
    ///
    /// # Driver notes
    ///
    /// - siw returns the limit that was set last, even after the event.
    /// - mlx5 returns a `max_wr` that is twice that of [`attributes`](Self::attributes) and one
    ///   more: it counts entries for requests that wait for paged-out memory too.
    ///
    /// Kernel command: `IB_USER_VERBS_CMD_QUERY_SRQ`.
    #[doc(alias = "ibv_query_srq")]
    pub fn query(&self) -> Result<SharedReceiveQueueAttributes> {
        let request = ib_uverbs_query_srq {
            response: AlignedU64::default(),
            srq_handle: self.handle(),
            reserved: 0,
        };
        let answer = self.context().command("query", &self.subject(), request)?;
        Ok(SharedReceiveQueueAttributes {
            max_wr: answer.max_wr,
            max_sge: answer.max_sge,
            limit: answer.srq_limit,
            non_exhaustive: NonExhaustive::default(),
        })
    }

    /// Destroys the queue with its posted requests, and waits until its events are acknowledged.
    ///
    /// # Errors
    ///
    /// Every error returns the queue.
    /// - EBUSY if clones of the queue or queue pairs that receive from it exist. The id that it
    ///   belongs to holds one ([`CmId::destroy_srq`](crate::cm::CmId::destroy_srq)).
    /// - [`ErrorKind::WouldDeadlock`] if the calling thread still holds an event of the queue.
    /// - [`ErrorKind::NotOwner`] if the process forked or changed its credentials.
    ///
    /// Kernel command: `IB_USER_VERBS_CMD_DESTROY_SRQ`.
    #[doc(alias = "ibv_destroy_srq")]
    pub fn destroy(self) -> Result<(), DestroyError<Self>> {
        let context = self.context().clone();
        object::destroy(&context, Inner::subject, self.inner, |inner| Self { inner })
    }

    pub(super) fn is_owner(&self) -> bool {
        self.inner.object.is_owner()
    }

    /// Locks the ring for `operation`, which fails if the calling thread already holds the ring.
    pub(super) fn lock(&self, operation: &'static str) -> Result<HandoffGuard<'_, AnyRecvRing>> {
        self.inner.receive.lock().map_err(|HeldByThisThread| {
            let kind = ErrorKind::WouldDeadlock(
                "this thread holds the guard of the queue; drop the guard first",
            );
            Error::new(operation, self.subject(), kind)
        })
    }

    /// Locks the ring if no thread holds it.
    #[inline]
    pub(super) fn try_lock(&self) -> Option<HandoffGuard<'_, AnyRecvRing>> {
        self.inner.receive.try_lock()
    }

    /// Returns the driver-level queue, without its ring and the state that this type adds.
    #[inline]
    pub(super) fn engine(&self) -> &Srq {
        &self.inner.srq
    }

    #[inline]
    pub(super) fn context(&self) -> &Context {
        self.inner.object.context()
    }

    pub(super) fn handle(&self) -> u32 {
        self.inner.object.handle()
    }

    pub(super) fn subject(&self) -> String {
        self.inner.subject()
    }
}

impl Inner {
    fn subject(&self) -> String {
        format!("shared receive queue {}", self.event_source.token())
    }
}

impl Drop for Inner {
    fn drop(&mut self) {
        if self.object.is_owner() {
            if !self.object.is_destroyed() {
                let _ = self.object.destroy();
            }
            if self.object.is_destroyed() {
                self.srq.on_destroyed();
            }
        }
    }
}

impl Shared for Inner {
    type Destroy = ib_uverbs_destroy_srq;

    fn object(&mut self) -> &mut Object<ib_uverbs_destroy_srq> {
        &mut self.object
    }

    fn event_source(&self) -> Option<&EventSource> {
        Some(&self.event_source)
    }
}

impl_ptr_eq!(SharedReceiveQueue, inner);
