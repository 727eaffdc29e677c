//! [`EndpointQpInit`]: the attributes of the queue pair that an endpoint is created with.

#[cfg(doc)]
use super::id::CmId;
use crate::non_exhaustive::NonExhaustive;
#[cfg(doc)]
use crate::verbs::QueuePairInit;
use crate::verbs::{
    CompletionQueue, ProtectionDomain, QpCreateFlags, QueuePairCaps, SharedReceiveQueue,
};

/// The attributes of an endpoint's queue pair. Objects that are left out are created with it.
///
/// Created from its default: see [Parameters](crate#parameters).
#[doc(alias = "ibv_qp_init_attr")]
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct EndpointQpInit {
    /// The protection domain; without one [the default](CmId::default_pd).
    pub pd: Option<ProtectionDomain>,
    /// Where its sends complete; without one a queue of its own, with a channel of its own, for as
    /// many completions as the queue pair holds sends.
    pub send_cq: Option<CompletionQueue>,
    /// The completion queue of receives. With a shared receive queue, it holds as many as that held when it was made.
    pub recv_cq: Option<CompletionQueue>,
    /// Where its receives come from; without one the id's, and where that has none a receive queue
    /// of its own.
    pub srq: Option<SharedReceiveQueue>,
    /// The smallest capacities of the queue pair.
    pub caps: QueuePairCaps,
    /// Every send makes a completion, whether it asks for one or not.
    pub signal_all: bool,
    /// As [`QueuePairInit::create_flags`].
    pub create_flags: QpCreateFlags,
    #[doc(hidden)]
    pub non_exhaustive: NonExhaustive,
}
