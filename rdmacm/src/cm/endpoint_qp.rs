//! [`EndpointQpInit`]: the attributes of the queue pair that an endpoint is created with.

#[cfg(doc)]
use super::id::CmId;
use crate::non_exhaustive::NonExhaustive;
#[cfg(doc)]
use crate::verbs::QueuePairInit;
use crate::verbs::{
    CompletionQueue, ProtectionDomain, QpCreateFlags, QueuePairCaps, SharedReceiveQueue, XrcDomain,
};

/// The attributes of an endpoint's queue pair.
///
/// Objects that are left out are created with the queue pair. The only attribute of an XRC target is its domain:
/// [`xrc_domain`](Self::xrc_domain), or else that of [`srq`](Self::srq). The other attributes are ignored. Start from
/// the default: see [Parameters](crate#parameters).
#[doc(alias = "ibv_qp_init_attr")]
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct EndpointQpInit {
    /// The protection domain; if `None`, [the default](CmId::default_pd).
    pub pd: Option<ProtectionDomain>,
    /// The completion queue of sends.
    ///
    /// If `None`, the queue pair gets a separate completion queue, with a separate channel. Its capacity is the number
    /// of sends that the queue pair holds.
    pub send_cq: Option<CompletionQueue>,
    /// The completion queue of receives.
    ///
    /// If `None`, the queue pair gets a completion queue of its own for its receives. With a shared
    /// receive queue, its capacity is that of the shared receive queue at its creation. An XRC
    /// initiator receives nothing, and gets no completion queue of its own.
    pub recv_cq: Option<CompletionQueue>,
    /// The shared receive queue; if `None`, that of the id.
    ///
    /// If the id has none, the queue pair has its own receive queue.
    pub srq: Option<SharedReceiveQueue>,
    /// The domain of an XRC target: see [`CmId::create_xrc_target`].
    pub xrc_domain: Option<XrcDomain>,
    /// The minimum capacities of the queue pair.
    pub caps: QueuePairCaps,
    /// `true` if every send generates a completion, even if it does not request one.
    pub signal_all: bool,
    /// The creation flags: see [`QueuePairInit::create_flags`].
    pub create_flags: QpCreateFlags,
    #[doc(hidden)]
    pub non_exhaustive: NonExhaustive,
}
