//! [`OwnQp`]: the queue pair that an id owns and takes through the states of its connection.

use crate::error::Result;
use crate::verbs::{Ece, QueuePair, QueuePairAttributes, XrcTarget};

/// The queue pair that an id owns.
#[derive(Debug, Clone)]
pub(super) enum OwnQp {
    /// A queue pair with queues, of any type but XRC target.
    Queues(QueuePair),
    /// An XRC target, which has no queues.
    Target(XrcTarget),
}

impl OwnQp {
    pub(super) fn queue_pair(&self) -> Option<&QueuePair> {
        match self {
            Self::Queues(qp) => Some(qp),
            Self::Target(_) => None,
        }
    }

    pub(super) fn xrc_target(&self) -> Option<&XrcTarget> {
        match self {
            Self::Queues(_) => None,
            Self::Target(target) => Some(target),
        }
    }

    pub(super) fn number(&self) -> u32 {
        match self {
            Self::Queues(qp) => qp.number(),
            Self::Target(target) => target.number(),
        }
    }

    /// Returns `true` if messages arrive in a shared receive queue.
    ///
    /// For a target, the kernel reports a shared receive queue to the peer in any case.
    pub(super) fn has_srq(&self) -> bool {
        match self {
            Self::Queues(qp) => qp.srq().is_some(),
            Self::Target(_) => true,
        }
    }

    pub(super) fn modify(&self, attributes: &QueuePairAttributes) -> Result<()> {
        match self {
            Self::Queues(qp) => qp.modify(attributes),
            Self::Target(target) => target.modify(attributes),
        }
    }

    /// Returns `true` if the queue pair and its connection always end together.
    ///
    /// This holds on iWARP only, which has no XRC.
    pub(super) fn ends_with_connection(&self) -> bool {
        self.queue_pair().is_some_and(QueuePair::ends_with_connection)
    }

    /// Returns `true` if the queue pair is in ERR and can never leave that state.
    pub(super) fn has_ended(&self) -> bool {
        self.queue_pair().is_some_and(QueuePair::has_ended)
    }

    /// Returns the ECE options, or `None` if there are none.
    ///
    /// The plain command that creates a target carries no options.
    pub(super) fn ece(&self) -> Option<Ece> {
        self.queue_pair().and_then(QueuePair::ece)
    }

    /// Requests that the queue pair uses `ece`.
    ///
    /// It uses no options if they are of another vendor, or if the device has none.
    pub(super) fn request_ece(&self, ece: Ece) -> Result<()> {
        let Some((qp, own)) = self.queue_pair().and_then(|qp| Some((qp, qp.ece()?))) else {
            return Ok(());
        };
        let options = if ece.vendor_id == own.vendor_id { ece.options } else { 0 };
        qp.set_ece(Ece { options, ..own })
    }
}
