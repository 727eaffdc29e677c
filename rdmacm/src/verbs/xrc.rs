//! XRC: one connection between two nodes that reaches every process of the remote node.
//!
//! A sender selects the receiving process by the number of a shared receive queue.
//!
//! | Side | Object | Created by |
//! |---|---|---|
//! | both | domain, which processes share by a file | [`XrcDomain`] |
//! | receiver | shared receive queue with a number | [`SharedReceiveQueue::with_xrc_domain`] |
//! | receiver | target queue pair, which has no queues | [`XrcTarget`] |
//! | sender | initiator queue pair, which only sends | [`QueuePair::with_type`](super::QueuePair::with_type) |
//!
//! The driver must support XRC. rxe and siw do not, and [`XrcDomain::new`] fails with EOPNOTSUPP
//! there.
//!
//! A request of an initiator names a shared receive queue of the peer by number
//! ([`SendOperation::AtSharedQueue`]). Rings in the memory of a program have a field for that
//! number (mlx5), and the kernel's own command has none. On devices whose driver keeps its queues
//! in the kernel, such requests fail with [`ErrorKind::Unsupported`]. Plain writes, reads and
//! atomic operations are performed there.

use std::sync::Arc;

use verbs_abi::{
    AlignedU64, ib_uverbs_create_qp, ib_uverbs_create_qp_resp, ib_uverbs_create_xsrq,
    ib_uverbs_destroy_qp, ib_uverbs_open_qp, ib_uverbs_query_qp_resp, ib_uverbs_srq_type,
};

use super::QpType;
#[cfg(doc)]
use super::SendOperation;
use super::attributes::{self, QueuePairAttributes, query};
use super::completion::CompletionQueue;
use super::context::Context;
use super::event_source::EventSource;
use super::object::{self, Object, Shared};
use super::pd::ProtectionDomain;
use super::same::impl_ptr_eq;
use super::srq::{SharedReceiveQueue, SharedReceiveQueueAttributes};
use super::xrc_domain::XrcDomain;
use crate::driver::CreateSrq;
#[cfg(doc)]
use crate::error::ErrorKind;
use crate::error::{DestroyError, Error, Result};
use crate::registry::Token;

impl SharedReceiveQueue {
    /// Creates a shared receive queue in an XRC domain.
    ///
    /// Senders name the queue by its [number](Self::number), and messages reach it through every
    /// [target](XrcTarget) of `domain`. Received data is stored in memory of `pd`, and requests
    /// complete on `cq`. The queue cannot be the [shared receive queue of a queue
    /// pair](super::QueuePairInit::srq).
    ///
    /// # Errors
    ///
    /// In addition to the errors of [`new`](Self::new):
    /// - [`ErrorKind::InvalidInput`] if `domain`, `pd` and `cq` belong to different contexts.
    ///
    /// Kernel command: `IB_USER_VERBS_CMD_CREATE_XSRQ`.
    #[doc(alias = "ibv_create_xrc_srq")]
    #[doc(alias = "ibv_create_srq_ex")]
    pub fn with_xrc_domain(
        domain: &XrcDomain,
        pd: &ProtectionDomain,
        cq: &CompletionQueue,
        attributes: SharedReceiveQueueAttributes,
    ) -> Result<Self> {
        if [domain.context(), cq.context()] != [pd.context(); 2] {
            let reason = "domain, protection domain and completion queue are of different contexts";
            return Err(Error::invalid("create", "a shared receive queue", reason));
        }
        Self::create(pd, attributes, Some((domain, cq)), |event_source| {
            CreateSrq::Xrc(ib_uverbs_create_xsrq {
                response: AlignedU64::default(),
                user_handle: event_source.user_handle(),
                srq_type: ib_uverbs_srq_type::IB_UVERBS_SRQT_XRC,
                pd_handle: pd.handle(),
                max_wr: attributes.max_wr,
                max_sge: attributes.max_sge,
                srq_limit: attributes.limit,
                max_num_tags: 0,
                xrcd_handle: domain.handle(),
                cq_handle: cq.handle(),
            })
        })
    }
}

/// An XRC target queue pair, to which an initiator of another node is connected.
///
/// It has no queues of its own. Its messages reach every shared receive queue of its domain. A
/// clone refers to the same handle.
///
/// `ibv_create_xrc_rcv_qp(3)` calls the queue pair an XRC receive queue pair. That manual page
/// describes calls that predate XRC in Linux. The kernel provides the same functions with handles:
///
/// | Old call | Here | Command |
/// |---|---|---|
/// | `ibv_open_xrc_domain` | [`XrcDomain::open`] | `OPEN_XRCD` |
/// | `ibv_create_xrc_rcv_qp` | [`XrcTarget::new`] | `CREATE_QP`, type `XRC_TGT` |
/// | `ibv_reg_xrc_rcv_qp` | [`XrcTarget::open`] | `OPEN_QP` |
/// | `ibv_modify_xrc_rcv_qp` | [`XrcTarget::modify`] | `MODIFY_QP` |
/// | `ibv_query_xrc_rcv_qp` | [`XrcTarget::query`] | `QUERY_QP` |
/// | `ibv_unreg_xrc_rcv_qp` | [`XrcTarget::unregister`], or dropping it | `DESTROY_QP` |
/// | `ibv_create_xrc_srq` | [`SharedReceiveQueue::with_xrc_domain`] | `CREATE_XSRQ` |
/// | `xrc_srq_num` of the queue | [`SharedReceiveQueue::number`] | |
/// | `ibv_post_send` with `xrc_remote_srq_num` | [`SendOperation::AtSharedQueue`] | |
/// | `ibv_close_xrc_domain` | [`XrcDomain::close`], or dropping it | `CLOSE_XRCD` |
///
/// The kernel keeps the queue pair until the last handle to it is released. Every process that
/// created or opened it holds a handle, which is released by a call or when the process ends. The
/// old calls use numbers and register a process once. Here each [`open`](Self::open) returns a
/// separate handle that counts by itself, even in the same process.
///
/// # With the connection manager
///
/// A listener that was created for targets with [`with_qp_type`](crate::cm::CmId::with_qp_type)
/// receives requests of initiators only. The id of a request creates a target with
/// [`create_xrc_target`](crate::cm::CmId::create_xrc_target), and moves it through the states of
/// the connection. See [`CmId`](crate::cm::CmId#xrc) for both sides.
///
/// An id can also accept with a target that the program manages itself:
/// 1. Create a target in a domain of the id's [`context`](crate::cm::CmId::context).
/// 2. Move it to INIT and RTR with the attributes that
///    [`init_qp_attr`](crate::cm::CmId::init_qp_attr) returns for each.
/// 3. Name it in [`ConnParam::qp_num`](crate::cm::ConnParam::qp_num), and accept the connection.
#[doc(alias = "ibv_create_xrc_rcv_qp")]
#[doc(alias = "xrc_rcv_qpn")]
#[derive(Debug, Clone)]
pub struct XrcTarget {
    inner: Arc<Inner>,
}

#[derive(Debug)]
struct Inner {
    object: Object<ib_uverbs_destroy_qp>,
    event_source: EventSource,
    domain: XrcDomain,
    number: u32,
}

impl XrcTarget {
    /// Creates a target in the domain, in the state RESET.
    ///
    /// # Errors
    ///
    /// - EOPNOTSUPP or EINVAL if the device has no XRC targets.
    /// - ENOMEM if memory is short.
    /// - [`ErrorKind::DeviceRemoved`] if the device was removed.
    /// - [`ErrorKind::NotOwner`] if the process forked or changed its credentials.
    ///
    /// Kernel command: `IB_USER_VERBS_CMD_CREATE_QP`.
    #[doc(alias = "ibv_create_xrc_rcv_qp")]
    pub fn new(domain: &XrcDomain) -> Result<Self> {
        Self::with(domain, "create", "an XRC target queue pair", |event_source| {
            ib_uverbs_create_qp {
                user_handle: event_source.user_handle(),
                // The kernel takes the domain from the field of the protection domain.
                pd_handle: domain.handle(),
                qp_type: QpType::IB_UVERBS_QPT_XRC_TGT,
                ..ib_uverbs_create_qp::default()
            }
        })
    }

    /// Opens a target that a process with access to the domain has created.
    ///
    /// The target exists at least as long as the returned handle. The kernel raises asynchronous
    /// events of a target only for the handle that created it, not for handles that opened it.
    ///
    /// # Errors
    ///
    /// - EINVAL if no target of the domain has that number.
    /// - ENOMEM if memory is short.
    /// - [`ErrorKind::DeviceRemoved`] if the device was removed.
    /// - [`ErrorKind::NotOwner`] if the process forked or changed its credentials.
    ///
    /// Kernel command: `IB_USER_VERBS_CMD_OPEN_QP`.
    #[doc(alias = "ibv_reg_xrc_rcv_qp")]
    #[doc(alias = "ibv_open_qp")]
    pub fn open(domain: &XrcDomain, number: u32) -> Result<Self> {
        let what = format!("XRC target queue pair {number}");
        Self::with(domain, "open", &what, |event_source| ib_uverbs_open_qp {
            user_handle: event_source.user_handle(),
            pd_handle: domain.handle(),
            qpn: number,
            qp_type: QpType::IB_UVERBS_QPT_XRC_TGT,
            ..ib_uverbs_open_qp::default()
        })
    }

    fn with<C>(
        domain: &XrcDomain,
        operation: &'static str,
        what: &str,
        request: impl FnOnce(&EventSource) -> C,
    ) -> Result<Self>
    where
        C: verbs_abi::Command<Response = ib_uverbs_create_qp_resp>,
    {
        let context = domain.context();
        // First: a lock that another thread held during the fork stays locked in the child.
        context.check_process(operation, || what.to_owned())?;
        let event_source = EventSource::new();
        let response = context.command(operation, what, request(&event_source))?;
        let inner = Inner {
            object: Object::new(context, response.qp_handle),
            event_source,
            domain: domain.clone(),
            number: response.qpn,
        };
        Ok(Self { inner: Arc::new(inner) })
    }

    /// Returns the queue pair number, which has 24 bits and is the same for all handles.
    pub fn number(&self) -> u32 {
        self.inner.number
    }

    /// Returns the token that identifies this handle in [asynchronous events](super::AsyncElement).
    pub fn token(&self) -> Token {
        self.inner.event_source.token()
    }

    /// Returns the domain.
    pub fn domain(&self) -> &XrcDomain {
        &self.inner.domain
    }

    /// Changes the attributes that the mask in `attributes` selects, for all handles of the target.
    ///
    /// The commands are those of [`QueuePair::modify`](super::QueuePair::modify). The kernel
    /// ignores attributes that only an initiator has (`IB_QP_MAX_QP_RD_ATOMIC`, `IB_QP_RETRY_CNT`,
    /// `IB_QP_RNR_RETRY`).
    ///
    /// # Errors
    ///
    /// The errors of [`QueuePair::modify`](super::QueuePair::modify).
    ///
    /// Kernel command: `IB_USER_VERBS_CMD_MODIFY_QP`, or `IB_USER_VERBS_EX_CMD_MODIFY_QP` if there
    /// is a [rate limit](QueuePairAttributes::rate_limit).
    #[doc(alias = "ibv_modify_xrc_rcv_qp")]
    pub fn modify(&self, attributes: &QueuePairAttributes) -> Result<()> {
        const OPERATION: &str = "modify";
        let context = self.context();
        context.check_usable(OPERATION, || self.subject())?;
        let change = attributes::change(self.inner.object.handle(), attributes);
        let modified = change.issue(context.engine());
        modified.map_err(|refused| {
            context.refused_or_unsupported(OPERATION, &self.subject(), "this change", refused)
        })
    }

    /// Queries the kernel for the state and the attributes of the target.
    ///
    /// # Errors
    ///
    /// - [`ErrorKind::DeviceRemoved`] if the device was removed.
    /// - [`ErrorKind::NotOwner`] if the process forked or changed its credentials.
    ///
    /// Kernel command: `IB_USER_VERBS_CMD_QUERY_QP`.
    #[doc(alias = "ibv_query_xrc_rcv_qp")]
    pub fn query(&self) -> Result<ib_uverbs_query_qp_resp> {
        self.context().command("query", &self.subject(), query(self.inner.object.handle()))
    }

    /// Releases the target and waits until the asynchronous events of this handle are acknowledged.
    ///
    /// Releasing the last handle destroys the target.
    ///
    /// # Errors
    ///
    /// Every error returns the handle.
    /// - EBUSY if clones of the handle exist.
    /// - [`ErrorKind::WouldDeadlock`] if the calling thread still holds an event of the handle.
    /// - [`ErrorKind::NotOwner`] if the process forked or changed its credentials.
    ///
    /// Kernel command: `IB_USER_VERBS_CMD_DESTROY_QP`.
    #[doc(alias = "ibv_unreg_xrc_rcv_qp")]
    pub fn unregister(self) -> Result<(), DestroyError<Self>> {
        let context = self.context().clone();
        object::destroy(&context, Inner::subject, self.inner, |inner| Self { inner })
    }

    fn context(&self) -> &Context {
        self.inner.domain.context()
    }

    fn subject(&self) -> String {
        self.inner.subject()
    }
}

impl Inner {
    fn subject(&self) -> String {
        format!("XRC target queue pair {}", self.number)
    }
}

impl Shared for Inner {
    type Destroy = ib_uverbs_destroy_qp;

    fn object(&mut self) -> &mut Object<ib_uverbs_destroy_qp> {
        &mut self.object
    }

    fn event_source(&self) -> Option<&EventSource> {
        Some(&self.event_source)
    }
}

impl_ptr_eq!(XrcTarget, inner);
