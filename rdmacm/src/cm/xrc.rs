//! XRC targets of ids, and the shared receive queues that they reach.

use super::id::CmId;
use super::own_qp::OwnQp;
use super::record::{Inner, State};
#[cfg(doc)]
use crate::error::ErrorKind;
use crate::error::{Error, Result};
use crate::verbs::{
    CompletionChannel, CompletionQueue, Context, ProtectionDomain, SharedReceiveQueue,
    SharedReceiveQueueAttributes, XrcDomain, XrcTarget,
};

/// # XRC
///
/// An XRC connection leads from an initiator, which only sends, to a target. Messages reach each shared receive queue
/// of the target's domain by its number, which the program sends to its peer itself, for example as private data.
///
/// | Side | Id | Objects |
/// |---|---|---|
/// | active | [`with_qp_type`](Self::with_qp_type) of [`PortSpace::Ib`](super::PortSpace::Ib) and XRC_INI | an initiator: [`create_qp`](Self::create_qp) |
/// | passive | [`with_qp_type`](Self::with_qp_type) of [`PortSpace::Ib`](super::PortSpace::Ib) and XRC_TGT; the id listens, and each request has an id of that type | a target: [`create_xrc_target`](Self::create_xrc_target); queues: [`create_xrc_srq`](Self::create_xrc_srq) |
///
/// [`create_ep`](Self::create_ep) creates either side in one call. The kernel rejects the request of an initiator if
/// the listener is for queue pairs of another type, and requests of other queue pairs if the listener is for targets.
///
/// The device must support XRC; rxe and siw do not.
impl CmId {
    /// Creates the XRC target of an id that a request of an initiator created.
    ///
    /// Without `domain`, the target is in the domain of the id's [shared receive queue](Self::create_xrc_srq), or else
    /// in [the default domain](Self::default_xrc_domain). The target is brought to INIT; [`accept`](Self::accept) moves
    /// it to the later states and sends its number to the peer. The id holds the target until
    /// [`destroy_qp`](Self::destroy_qp) or its own end.
    ///
    /// # Errors
    ///
    /// In addition to the errors of [`XrcTarget::new`] and [`XrcDomain::new`]:
    ///
    /// - [`ErrorKind::InvalidInput`] if the id's [queue pairs](Self::qp_type) are not XRC targets.
    /// - [`ErrorKind::InvalidInput`] if the id has no device yet or already has a target.
    /// - [`ErrorKind::InvalidInput`] if `domain` was not opened in the id's [`context`](Self::context).
    ///
    /// Kernel commands: `IB_USER_VERBS_CMD_OPEN_XRCD` if the default domain is missing, `IB_USER_VERBS_CMD_CREATE_QP`,
    /// `RDMA_USER_CM_CMD_INIT_QP_ATTR`, `IB_USER_VERBS_CMD_MODIFY_QP`.
    #[doc(alias = "rdma_create_qp")]
    #[doc(alias = "rdma_create_qp_ex")]
    pub fn create_xrc_target(&self, domain: Option<&XrcDomain>) -> Result<XrcTarget> {
        const OPERATION: &str = "create the XRC target of";
        let context = self.inner.context_for_targets(OPERATION)?;
        self.inner.create_own_qp(OPERATION, |state| {
            let domain = self.inner.xrc_domain(OPERATION, &context, domain, state)?;
            let target = XrcTarget::new(&domain)?;
            Ok((OwnQp::Target(target.clone()), target))
        })
    }

    /// Returns the target that [`create_xrc_target`](Self::create_xrc_target) created.
    pub fn xrc_target(&self) -> Option<XrcTarget> {
        if !self.inner.process.is_current() {
            return None;
        }
        self.inner.state().qp.as_ref().and_then(OwnQp::xrc_target).cloned()
    }

    /// Creates the shared receive queue of an id whose queue pair is an XRC target.
    ///
    /// The peer names the queue by its [number](SharedReceiveQueue::number). Objects that are left out are created or
    /// shared:
    ///
    /// - The domain is that of the id's target, or else [the default](Self::default_xrc_domain). A target reaches no
    ///   queue of another domain.
    /// - The protection domain is [the default](Self::default_pd).
    /// - The completion queue ([`SharedReceiveQueue::cq`]) is a new one with a channel of its own. It holds as many
    ///   completions as the queue holds receives.
    ///
    /// The id holds the queue until the id is destroyed or [`destroy_srq`](Self::destroy_srq) is called. An id has one
    /// queue; [`SharedReceiveQueue::with_xrc_domain`] creates more of them in the same domain.
    ///
    /// # Errors
    ///
    /// In addition to the errors of [`SharedReceiveQueue::with_xrc_domain`] and of creating the other objects:
    ///
    /// - [`ErrorKind::InvalidInput`] if the id's [queue pairs](Self::qp_type) are not XRC targets.
    /// - [`ErrorKind::InvalidInput`] if the id has no device yet, or has a shared receive queue already.
    /// - [`ErrorKind::InvalidInput`] if one of the objects was not created in the id's [`context`](Self::context).
    ///
    /// Kernel command: `IB_USER_VERBS_CMD_CREATE_XSRQ`, after the commands that create the objects that are left out.
    #[doc(alias = "rdma_create_srq")]
    #[doc(alias = "rdma_create_srq_ex")]
    pub fn create_xrc_srq(
        &self,
        domain: Option<&XrcDomain>,
        pd: Option<&ProtectionDomain>,
        cq: Option<&CompletionQueue>,
        attributes: SharedReceiveQueueAttributes,
    ) -> Result<SharedReceiveQueue> {
        const OPERATION: &str = "create the shared receive queue of";
        let context = self.inner.context_for_targets(OPERATION)?;
        let pd = pd.cloned().map_or_else(|| self.default_pd(), Ok)?;
        let invalid =
            |reason: &'static str| Err(Error::invalid(OPERATION, self.inner.to_string(), reason));
        if *pd.context() != context {
            return invalid("the protection domain is of another context than CmId::context");
        }
        if cq.is_some_and(|cq| *cq.context() != context) {
            return invalid("the completion queue is of another context than CmId::context");
        }
        self.inner.create_own_srq(OPERATION, |state| {
            let domain = self.inner.xrc_domain(OPERATION, &context, domain, state)?;
            let cq = cq.cloned().map_or_else(
                || {
                    let channel = CompletionChannel::new(&context)?;
                    CompletionQueue::new(&context, attributes.max_wr.max(1), Some(&channel))
                },
                Ok,
            )?;
            SharedReceiveQueue::with_xrc_domain(&domain, &pd, &cq, attributes)
        })
    }

    /// Returns the XRC domain that the process's ids of a device share.
    ///
    /// The first call creates it. It is closed when its last handle is dropped. The peer of each target in a domain can
    /// send to every queue of the domain. Give peers that must not reach each other's queues separate domains. Other
    /// processes cannot join this domain: for a domain that processes share, see [`XrcDomain::open`].
    ///
    /// # Errors
    ///
    /// In addition to the errors of [`XrcDomain::new`]:
    ///
    /// - [`ErrorKind::InvalidInput`] if the id has no device yet.
    ///
    /// Kernel command: `IB_USER_VERBS_CMD_OPEN_XRCD`.
    #[doc(alias = "rdma_create_qp_ex")]
    pub fn default_xrc_domain(&self) -> Result<XrcDomain> {
        XrcDomain::shared(&self.context()?)
    }
}

impl Inner {
    /// Returns the context of an id whose queue pairs are XRC targets.
    fn context_for_targets(&self, operation: &'static str) -> Result<Context> {
        self.check_process(operation)?;
        if self.is_for_targets() {
            return self.context();
        }
        let reason = format!("queue pairs of the id are of type {}, not XRC targets", self.qp_type);
        Err(Error::invalid(operation, self.to_string(), reason))
    }

    /// Returns the XRC domain of a new object: `given`, or that of the id's other object, or the default.
    fn xrc_domain(
        &self,
        operation: &'static str,
        context: &Context,
        given: Option<&XrcDomain>,
        state: &State,
    ) -> Result<XrcDomain> {
        let target = state.qp.as_ref().and_then(OwnQp::xrc_target);
        let srq = state.srq.as_ref();
        let domain = given
            .or_else(|| target.map(XrcTarget::domain))
            .or_else(|| srq.and_then(SharedReceiveQueue::domain));
        match domain {
            None => XrcDomain::shared(context),
            Some(domain) if domain.context() == context => Ok(domain.clone()),
            Some(_) => {
                let reason = "the XRC domain is of another context than CmId::context";
                Err(Error::invalid(operation, self.to_string(), reason))
            }
        }
    }
}
