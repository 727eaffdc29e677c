//! XRC: one connection between two nodes that reaches every process there, by the number of a shared receive queue.
//!
//! | Side | What it is | Made by |
//! |---|---|---|
//! | both | domain, which processes share by a file | [`XrcDomain`] |
//! | receiver | shared receive queue with a number | [`SharedReceiveQueue::in_domain`] |
//! | receiver | target queue pair, which has no queues | [`XrcTarget`] |
//! | sender | initiator queue pair, which only sends | [`QueuePair::with_type`](super::QueuePair::with_type) |
//!
//! A device needs a driver with XRC: neither rxe nor siw has it, and [`XrcDomain::new`] is
//! EOPNOTSUPP there. What an initiator sends to one of the peer's shared receive queues names that by number,
//! for which only rings in a program's memory have a place: the kernel's own command has none.
//! So [`ErrorKind::Unsupported`](crate::ErrorKind::Unsupported) is what sends (and writes with
//! immediate data) on an initiator are on devices whose driver keeps its queues in the kernel; other writes,
//! reads and atomics are carried out.

use std::sync::Arc;

use verbs_abi::{
    AlignedU64, ib_uverbs_create_qp, ib_uverbs_create_qp_resp, ib_uverbs_create_xsrq,
    ib_uverbs_destroy_qp, ib_uverbs_open_qp, ib_uverbs_query_qp_resp, ib_uverbs_srq_type,
};

use super::QpType;
use super::attributes::{self, QueuePairAttributes, query};
use super::completion::CompletionQueue;
use super::context::Context;
use super::object::{self, Object, Shared};
use super::pd::ProtectionDomain;
use super::reporter::Reporter;
use super::same::equal_if_same;
use super::srq::{SharedReceiveQueue, SharedReceiveQueueAttributes, Xrc};
use super::xrc_domain::XrcDomain;
use crate::driver::CreateSrq;
#[cfg(doc)]
use crate::error::ErrorKind;
use crate::error::{DestroyError, Error, Result};
use crate::registry::Token;

impl SharedReceiveQueue {
    /// Makes a shared receive queue that senders name by its [number](Self::number), and that messages reach
    /// through every [target](XrcTarget) of `domain`. What they leave is in memory of `pd`, and their
    /// completions are on `cq`.
    ///
    /// `IB_USER_VERBS_CMD_CREATE_XSRQ`. It is no [queue pair's](super::QueuePairInit::srq).
    ///
    /// # Errors
    ///
    /// [`ErrorKind::Invalid`] where the three are not of one context; those of [`new`](Self::new).
    #[doc(alias = "ibv_create_xrc_srq")]
    #[doc(alias = "ibv_create_srq_ex")]
    pub fn in_domain(
        domain: &XrcDomain,
        pd: &ProtectionDomain,
        cq: &CompletionQueue,
        attributes: SharedReceiveQueueAttributes,
    ) -> Result<Self> {
        if [domain.context(), cq.context()] != [pd.context(); 2] {
            let reason = "domain, protection domain and completion queue are of different contexts";
            return Err(Error::invalid("create", "a shared receive queue", reason));
        }
        let xrc = |number| Xrc { domain: domain.clone(), cq: cq.clone(), number };
        Self::create(pd, attributes, Some(&xrc), |reporter| {
            CreateSrq::Xrc(ib_uverbs_create_xsrq {
                response: AlignedU64::default(),
                user_handle: reporter.user_handle(),
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

/// An XRC target queue pair: what an initiator of another node is connected to. It has no queues, and
/// leads to every shared receive queue of its domain.
///
/// It is what `ibv_create_xrc_rcv_qp(3)` calls an XRC receive queue pair. That manual page is of calls
/// which came before Linux had XRC; the kernel does the same by handles:
///
/// | Old call | Here | Command |
/// |---|---|---|
/// | `ibv_open_xrc_domain` | [`XrcDomain::open`] | `OPEN_XRCD` |
/// | `ibv_create_xrc_rcv_qp` | [`XrcTarget::new`] | `CREATE_QP`, type `XRC_TGT` |
/// | `ibv_reg_xrc_rcv_qp` | [`XrcTarget::open`] | `OPEN_QP` |
/// | `ibv_modify_xrc_rcv_qp` | [`XrcTarget::modify`] | `MODIFY_QP` |
/// | `ibv_query_xrc_rcv_qp` | [`XrcTarget::query`] | `QUERY_QP` |
/// | `ibv_unreg_xrc_rcv_qp` | [`XrcTarget::unregister`], or dropping it | `DESTROY_QP` |
/// | `ibv_create_xrc_srq` | [`SharedReceiveQueue::in_domain`] | `CREATE_XSRQ` |
/// | `xrc_srq_num` of the queue | [`SharedReceiveQueue::number`] | |
/// | `ibv_post_send` with `xrc_remote_srq_num` | none: the command has no place for it | `POST_SEND` |
/// | `ibv_close_xrc_domain` | [`XrcDomain::close`], or dropping it | `CLOSE_XRCD` |
///
/// The queue pair lives in the kernel until the last who has created or opened it lets go, in
/// whichever process that is and whether by a call or by its end; who created it is one of them.
/// The old calls go by number and register a process once. Here each [`open`](Self::open) is a
/// handle of its own, even in the same process, which counts for itself.
///
/// # With the connection manager
///
/// A listener of [`with_qp_type`](crate::cm::CmId::with_qp_type) for targets hears initiators only. Its requests have no
/// queue pair of their own: make a target in a domain of the id's [`context`](crate::cm::CmId::context), bring it to INIT
/// and RTR with what [`init_qp_attr`](crate::cm::CmId::init_qp_attr) says for each, name it in
/// [`ConnParam::qp_num`](crate::cm::ConnParam::qp_num) with [`srq`](crate::cm::ConnParam::srq) set, and accept. The side that
/// connects has an initiator of its own by [`create_qp`](crate::cm::CmId::create_qp).
///
/// A clone is the same handle.
#[doc(alias = "ibv_create_xrc_rcv_qp")]
#[doc(alias = "xrc_rcv_qpn")]
#[derive(Debug, Clone)]
pub struct XrcTarget {
    inner: Arc<Inner>,
}

#[derive(Debug)]
struct Inner {
    object: Object<ib_uverbs_destroy_qp>,
    reporter: Reporter,
    domain: XrcDomain,
    number: u32,
}

impl XrcTarget {
    /// Makes a target in the domain, in the state RESET. `IB_USER_VERBS_CMD_CREATE_QP`.
    ///
    /// # Errors
    ///
    /// EOPNOTSUPP or EINVAL where the device has none, ENOMEM; [`ErrorKind::DeviceGone`],
    /// [`ErrorKind::WrongProcess`].
    #[doc(alias = "ibv_create_xrc_rcv_qp")]
    pub fn new(domain: &XrcDomain) -> Result<Self> {
        Self::with(domain, "create", "an XRC target queue pair", |reporter| ib_uverbs_create_qp {
            user_handle: reporter.user_handle(),
            // The kernel takes the domain from the place of the protection domain.
            pd_handle: domain.handle(),
            qp_type: QpType::IB_UVERBS_QPT_XRC_TGT,
            ..ib_uverbs_create_qp::default()
        })
    }

    /// Takes part in the target that somebody who shares the domain has made: it lasts at least
    /// until this handle goes. `IB_USER_VERBS_CMD_OPEN_QP`.
    ///
    /// The kernel reports asynchronous events of a target to who created it, and to nobody who opened
    /// it.
    ///
    /// # Errors
    ///
    /// EINVAL where no target of the domain has that number; ENOMEM, [`ErrorKind::DeviceGone`],
    /// [`ErrorKind::WrongProcess`].
    #[doc(alias = "ibv_reg_xrc_rcv_qp")]
    #[doc(alias = "ibv_open_qp")]
    pub fn open(domain: &XrcDomain, number: u32) -> Result<Self> {
        let what = format!("XRC target queue pair {number}");
        Self::with(domain, "open", &what, |reporter| ib_uverbs_open_qp {
            user_handle: reporter.user_handle(),
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
        request: impl FnOnce(&Reporter) -> C,
    ) -> Result<Self>
    where
        C: verbs_abi::Command<Response = ib_uverbs_create_qp_resp>,
    {
        let context = domain.context();
        // First: a lock that another thread held while the process forked stays locked in the child.
        context.check_process(operation, || what.to_owned())?;
        let reporter = Reporter::new();
        let response = context.command(operation, what, request(&reporter))?;
        let inner = Inner {
            object: Object::new(context, response.qp_handle),
            reporter,
            domain: domain.clone(),
            number: response.qpn,
        };
        Ok(Self { inner: Arc::new(inner) })
    }

    /// Its number, 24 bits, which is the same for all who have it.
    pub fn number(&self) -> u32 {
        self.inner.number
    }

    /// What names this handle in [asynchronous events](super::AsyncElement).
    pub fn token(&self) -> Token {
        self.inner.reporter.token()
    }

    /// The domain.
    pub fn domain(&self) -> &XrcDomain {
        &self.inner.domain
    }

    /// Changes the attributes that the mask in `attributes` names, for all who have the target.
    ///
    /// The commands of [`QueuePair::modify`](super::QueuePair::modify), where the kernel leaves out what
    /// only an initiator has (`IB_QP_MAX_QP_RD_ATOMIC`, `IB_QP_RETRY_CNT`, `IB_QP_RNR_RETRY`).
    ///
    /// # Errors
    ///
    /// The errors of [`QueuePair::modify`](super::QueuePair::modify).
    #[doc(alias = "ibv_modify_xrc_rcv_qp")]
    pub fn modify(&self, attributes: &QueuePairAttributes) -> Result<()> {
        const OPERATION: &str = "modify";
        let context = self.context();
        context.check_usable(OPERATION, || self.subject())?;
        let modified = attributes::modify(context.file(), self.inner.object.handle(), attributes);
        modified.map_err(|refused| {
            context.refused_or_unsupported(OPERATION, &self.subject(), "this change", refused)
        })
    }

    /// The target's state and attributes, as the kernel has them. `IB_USER_VERBS_CMD_QUERY_QP`.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::DeviceGone`], [`ErrorKind::WrongProcess`].
    #[doc(alias = "ibv_query_xrc_rcv_qp")]
    pub fn query(&self) -> Result<ib_uverbs_query_qp_resp> {
        self.context().command("query", &self.subject(), query(self.inner.object.handle()))
    }

    /// Lets go of the target and waits until the asynchronous events of this handle are acknowledged.
    /// `IB_USER_VERBS_CMD_DESTROY_QP`.
    ///
    /// The last who lets go destroys it.
    ///
    /// # Errors
    ///
    /// EBUSY while clones of the handle live; [`ErrorKind::WouldDeadlock`] where an event that this
    /// thread received is still out; [`ErrorKind::WrongProcess`]. The handle comes back with the error.
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

    fn reporter(&self) -> Option<&Reporter> {
        Some(&self.reporter)
    }
}

equal_if_same!(XrcTarget, inner);
