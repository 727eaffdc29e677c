//! Shared receive queues.

use std::sync::Arc;

use verbs_abi::{AlignedU64, ib_uverbs_create_srq, ib_uverbs_destroy_srq, ib_uverbs_query_srq};

use super::completion::CompletionQueue;
use super::context::Context;
use super::object::{self, Object, Shared};
use super::pd::ProtectionDomain;
use super::reporter::Reporter;
use super::same::equal_if_same;
use super::xrc_domain::XrcDomain;
use crate::concurrent::{HandoffGuard, HandoffMutex, HeldByThisThread};
use crate::driver::CreateSrq;
use crate::drivers::any::AnyRecvRing;
use crate::engine::{NewSrq, Srq};
use crate::error::{DestroyError, Error, ErrorKind, Result};
use crate::non_exhaustive::NonExhaustive;
use crate::registry::Token;

/// What a shared receive queue holds.
///
/// Made from its default: see [Parameters](crate#parameters).
#[doc(alias = "ibv_srq_attr")]
#[doc(alias = "ibv_srq_init_attr")]
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SharedReceiveQueueAttributes {
    /// Requests that are posted and that no message has come for.
    pub max_wr: u32,
    /// Pieces of memory in a request.
    pub max_sge: u32,
    /// When fewer requests than this are left, `IB_EVENT_SRQ_LIMIT_REACHED` comes, once; 0 for
    /// never.
    #[doc(alias = "srq_limit")]
    pub limit: u32,
    #[doc(hidden)]
    pub non_exhaustive: NonExhaustive,
}

impl Default for SharedReceiveQueueAttributes {
    /// Sixteen requests of one piece each, and no limit.
    fn default() -> Self {
        Self { max_wr: 16, max_sge: 1, limit: 0, non_exhaustive: NonExhaustive::default() }
    }
}

/// A queue of receive requests that several queue pairs take theirs from, in the order in which
/// messages come.
///
/// A clone is the same queue. It lives while a clone of it, a queue pair that receives from it or the
/// id that it belongs to does. The completion of a request is on the receiving queue pair's
/// completion queue, and [says](super::Completion::qp_num) which one that is.
///
/// What is posted stays when a queue pair goes to ERR: only the request of a message that was
/// coming in completes. With rxe on Linux 6.12 not even that, where packets of the message had yet
/// to come: the request is lost, and its memory free when that queue pair is destroyed. A message
/// for which no request is left is as one to a queue pair without receives: the sender tries again
/// ("receiver not ready"), on iWARP the connection ends.
#[doc(alias = "ibv_srq")]
#[derive(Debug, Clone)]
pub struct SharedReceiveQueue {
    inner: Arc<Inner>,
}

#[derive(Debug)]
struct Inner {
    object: Object<ib_uverbs_destroy_srq>,
    srq: Srq,
    reporter: Reporter,
    pd: ProtectionDomain,
    made: SharedReceiveQueueAttributes,
    receive: HandoffMutex<AnyRecvRing>,
    /// Of one that is in an XRC domain. Behind the object, which needs them.
    xrc: Option<Xrc>,
}

/// What a queue in an XRC domain has besides.
#[derive(Debug)]
pub(super) struct Xrc {
    pub(super) domain: XrcDomain,
    pub(super) cq: CompletionQueue,
    pub(super) number: u32,
}

impl SharedReceiveQueue {
    /// Makes a shared receive queue. `IB_USER_VERBS_CMD_CREATE_SRQ`.
    ///
    /// [`CmId::create_srq`](crate::cm::CmId::create_srq) makes one that goes with an id.
    ///
    /// # Errors
    ///
    /// EINVAL for attributes above the device's (`max_srq_wr` and `max_srq_sge` of
    /// [`Context::query_device`]) and for none at all; [`ErrorKind::Invalid`] for a limit above the
    /// size; ENOMEM; [`ErrorKind::Unsupported`] where the data path of the device's driver is not
    /// known.
    #[doc(alias = "ibv_create_srq")]
    pub fn new(pd: &ProtectionDomain, attributes: SharedReceiveQueueAttributes) -> Result<Self> {
        Self::create(pd, attributes, None, |reporter| {
            CreateSrq::Plain(ib_uverbs_create_srq {
                response: AlignedU64::default(),
                user_handle: reporter.user_handle(),
                pd_handle: pd.handle(),
                max_wr: attributes.max_wr,
                max_sge: attributes.max_sge,
                srq_limit: attributes.limit,
            })
        })
    }

    /// Makes a shared receive queue by the command that `request` returns; `xrc` makes of its number
    /// what one in an XRC domain has besides.
    pub(super) fn create(
        pd: &ProtectionDomain,
        attributes: SharedReceiveQueueAttributes,
        xrc: Option<&dyn Fn(u32) -> Xrc>,
        request: impl FnOnce(&Reporter) -> CreateSrq,
    ) -> Result<Self> {
        const OPERATION: &str = "create";
        const WHAT: &str = "a shared receive queue";
        let context = pd.context();
        context.check_process(OPERATION, || WHAT.to_owned())?;
        let SharedReceiveQueueAttributes { max_wr, limit, .. } = attributes;
        // rxe would take it.
        if limit > max_wr {
            let reason = format!("a limit of {limit} where it holds {max_wr}");
            return Err(Error::invalid(OPERATION, WHAT, reason));
        }
        let reporter = Reporter::new();
        let created = Srq::create(context.engine(), request(&reporter));
        let NewSrq { srq, response, ring, memory } =
            created.map_err(|error| context.not_created(WHAT, error))?;
        let inner = Inner {
            object: Object::with_memory(context, srq.handle(), memory),
            srq,
            reporter,
            pd: pd.clone(),
            made: SharedReceiveQueueAttributes {
                max_wr: response.max_wr,
                max_sge: response.max_sge,
                limit,
                non_exhaustive: NonExhaustive::default(),
            },
            receive: HandoffMutex::new(ring),
            xrc: xrc.map(|xrc| xrc(response.srqn)),
        };
        Ok(Self { inner: Arc::new(inner) })
    }

    /// What names this queue in [asynchronous events](super::AsyncElement).
    pub fn token(&self) -> Token {
        self.inner.reporter.token()
    }

    /// The number by which senders name it, if it is in an XRC domain.
    #[doc(alias = "ibv_get_srq_num")]
    pub fn number(&self) -> Option<u32> {
        self.inner.xrc.as_ref().map(|xrc| xrc.number)
    }

    /// The XRC domain that it is in, if it is in one.
    pub fn domain(&self) -> Option<&XrcDomain> {
        self.inner.xrc.as_ref().map(|xrc| &xrc.domain)
    }

    /// Where its completions are, if it is in an XRC domain: those of others are on the queue pairs' own.
    pub fn cq(&self) -> Option<&CompletionQueue> {
        self.inner.xrc.as_ref().map(|xrc| &xrc.cq)
    }

    /// The protection domain.
    pub fn pd(&self) -> &ProtectionDomain {
        &self.inner.pd
    }

    /// What it was made to hold: what was asked for, or more, as the driver says. See
    /// [`query`](Self::query) for what it holds now.
    pub fn attributes(&self) -> SharedReceiveQueueAttributes {
        self.inner.made
    }

    /// Arms the queue: `IB_EVENT_SRQ_LIMIT_REACHED` comes, once, when fewer than `limit` requests
    /// are left after a message has taken one; 0 for never. `IB_USER_VERBS_CMD_MODIFY_SRQ`.
    ///
    /// The kernel looks only when a message takes a request: a limit that is above what is posted
    /// already makes the event come with the next message.
    ///
    /// # Errors
    ///
    /// EINVAL for a limit above the size; [`ErrorKind::DeviceGone`], [`ErrorKind::WrongProcess`].
    #[doc(alias = "ibv_modify_srq")]
    #[doc(alias = "IBV_SRQ_LIMIT")]
    pub fn set_limit(&self, limit: u32) -> Result<()> {
        const OPERATION: &str = "set the limit of";
        let context = self.context();
        context.check_usable(OPERATION, || self.subject())?;
        let limited = self.inner.srq.set_limit(context.engine(), limit);
        limited.map_err(|refused| context.refused(OPERATION, &self.subject(), refused))
    }

    /// Makes the queue hold at least `max_wr` requests; those that are posted stay. Posts by other
    /// threads wait meanwhile. `IB_USER_VERBS_CMD_MODIFY_SRQ`.
    ///
    /// # Errors
    ///
    /// EINVAL for a size above the device's, below the limit or below the number of requests that
    /// are posted; ENOMEM; [`ErrorKind::Unsupported`] where the driver cannot (siw), or would lose what is posted
    /// (hfi1, qib: `rvt_modify_srq` carries over what stands in a ring that programs have mapped, and this crate posts
    /// by commands);
    /// [`ErrorKind::WouldDeadlock`] where this thread has the
    /// [`receive_queue`](Self::receive_queue); [`ErrorKind::DeviceGone`],
    /// [`ErrorKind::WrongProcess`]. Where the kernel has resized the queue and its new ring cannot be
    /// mapped, the error says so, and every later post is [`ErrorKind::Invalid`].
    #[doc(alias = "ibv_modify_srq")]
    #[doc(alias = "IBV_SRQ_MAX_WR")]
    pub fn resize(&self, max_wr: u32) -> Result<()> {
        const OPERATION: &str = "resize";
        let context = self.context();
        context.check_usable(OPERATION, || self.subject())?;
        if !context.driver_capabilities().srq_resize_keeps_requests {
            let driver = context.driver_name();
            let what = format!("resizing by {driver}, which would lose what is posted");
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

    /// What the queue holds, as the kernel has it: the limit is 0 once the event has come (siw says
    /// what was set last). `IB_USER_VERBS_CMD_QUERY_SRQ`.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::DeviceGone`], [`ErrorKind::WrongProcess`].
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

    /// Destroys the queue, with what is posted to it, and waits until its asynchronous events are
    /// acknowledged. `IB_USER_VERBS_CMD_DESTROY_SRQ`.
    ///
    /// # Errors
    ///
    /// EBUSY while clones of it or queue pairs that receive from it live: the id that it belongs to
    /// holds one ([`CmId::destroy_srq`](crate::cm::CmId::destroy_srq));
    /// [`ErrorKind::WouldDeadlock`] where an event that this thread received is still out;
    /// [`ErrorKind::WrongProcess`]. The queue comes back with the error.
    #[doc(alias = "ibv_destroy_srq")]
    pub fn destroy(self) -> Result<(), DestroyError<Self>> {
        let context = self.context().clone();
        object::destroy(&context, Inner::subject, self.inner, |inner| Self { inner })
    }

    pub(super) fn belongs_here(&self) -> bool {
        self.inner.object.belongs_here()
    }

    /// Locks the ring for `operation`, which fails if this thread holds the ring already.
    pub(super) fn lock(&self, operation: &'static str) -> Result<HandoffGuard<'_, AnyRecvRing>> {
        self.inner.receive.lock().map_err(|HeldByThisThread| {
            let kind = ErrorKind::WouldDeadlock("it has the queue; drop that first");
            Error::new(operation, self.subject(), kind)
        })
    }

    /// Locks the ring if no thread holds it.
    #[inline]
    pub(super) fn try_lock(&self) -> Option<HandoffGuard<'_, AnyRecvRing>> {
        self.inner.receive.try_lock()
    }

    /// The queue without its ring and its owners.
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
        format!("shared receive queue {}", self.reporter.token())
    }
}

impl Shared for Inner {
    type Destroy = ib_uverbs_destroy_srq;

    fn object(&mut self) -> &mut Object<ib_uverbs_destroy_srq> {
        &mut self.object
    }

    fn reporter(&self) -> Option<&Reporter> {
        Some(&self.reporter)
    }
}

equal_if_same!(SharedReceiveQueue, inner);
