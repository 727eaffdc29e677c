//! Shared receive queues of ids.

use super::id::CmId;
use super::record::{Inner, State};
#[cfg(doc)]
use crate::error::ErrorKind;
use crate::error::{Error, Result};
use crate::verbs::{ProtectionDomain, SharedReceiveQueue, SharedReceiveQueueAttributes};

impl CmId {
    /// Creates the shared receive queue of the id, from which its queue pair then receives.
    ///
    /// Without `pd`, the queue is in [the default protection domain](Self::default_pd). The id holds the queue until
    /// the id is destroyed or [`destroy_srq`](Self::destroy_srq) is called. The kernel's object is destroyed when the
    /// last holder drops it. To share one queue between ids, see
    /// [`QueuePairInit::srq`](crate::verbs::QueuePairInit::srq).
    ///
    /// If the id's queue pair is an XRC target, the call behaves like [`create_xrc_srq`](Self::create_xrc_srq) with
    /// `pd`. Messages reach each queue of a target's domain, and no other queue.
    ///
    /// # Errors
    ///
    /// In addition to the errors of [`SharedReceiveQueue::new`]:
    ///
    /// - [`ErrorKind::InvalidInput`] if the id has no device yet, or has a shared receive queue already.
    /// - [`ErrorKind::InvalidInput`] if `pd` was not created in the id's [`context`](Self::context).
    ///
    /// Kernel command: `IB_USER_VERBS_CMD_CREATE_SRQ`, or `IB_USER_VERBS_CMD_CREATE_XSRQ` for an XRC target.
    #[doc(alias = "rdma_create_srq")]
    #[doc(alias = "rdma_create_srq_ex")]
    pub fn create_srq(
        &self,
        pd: Option<&ProtectionDomain>,
        attributes: SharedReceiveQueueAttributes,
    ) -> Result<SharedReceiveQueue> {
        const OPERATION: &str = "create the shared receive queue of";
        if self.inner.is_for_targets() {
            return self.create_xrc_srq(None, pd, None, attributes);
        }
        let context = self.context()?;
        if pd.is_some_and(|pd| *pd.context() != context) {
            let reason = "the protection domain is of another context than CmId::context";
            return Err(Error::invalid(OPERATION, self.inner.to_string(), reason));
        }
        let pd = pd.cloned().map_or_else(|| self.default_pd(), Ok)?;
        self.inner.create_own_srq(OPERATION, |_| SharedReceiveQueue::new(&pd, attributes))
    }

    /// Returns the shared receive queue of the id, if it has one.
    ///
    /// [`create_srq`](Self::create_srq) or [`create_xrc_srq`](Self::create_xrc_srq) has created it.
    pub fn srq(&self) -> Option<SharedReceiveQueue> {
        if self.inner.process.is_current() { self.inner.state().srq.clone() } else { None }
    }

    /// Releases the shared receive queue of the id.
    ///
    /// The queue is destroyed unless the program or a queue pair holds it too. The call does not wait for the events of
    /// the queue: see [`SharedReceiveQueue::destroy`].
    #[doc(alias = "rdma_destroy_srq")]
    pub fn destroy_srq(&self) {
        if self.inner.process.is_current() {
            let srq = self.inner.state().srq.take();
            drop(srq);
        }
    }
}

impl Inner {
    /// Makes the shared receive queue that `create` returns the id's own.
    pub(super) fn create_own_srq(
        &self,
        operation: &'static str,
        create: impl FnOnce(&State) -> Result<SharedReceiveQueue>,
    ) -> Result<SharedReceiveQueue> {
        // Held throughout: if two threads call this, only one creates the queue of the id.
        let mut state = self.state();
        if state.srq.is_some() {
            return Err(Error::invalid(
                operation,
                self.to_string(),
                "the id already has a shared receive queue",
            ));
        }
        let srq = create(&state)?;
        state.srq = Some(srq.clone());
        Ok(srq)
    }
}
