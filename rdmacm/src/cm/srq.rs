//! Shared receive queues that go with an id.

use super::id::CmId;
#[cfg(doc)]
use crate::error::ErrorKind;
use crate::error::{Error, Result};
use crate::verbs::{ProtectionDomain, SharedReceiveQueue, SharedReceiveQueueAttributes};

impl CmId {
    /// Makes the id's shared receive queue, which its queue pair then receives from; without `pd` in
    /// [the default protection domain](Self::default_pd).
    ///
    /// `IB_USER_VERBS_CMD_CREATE_SRQ`. The id holds the queue as long as it lives, or until
    /// [`destroy_srq`](Self::destroy_srq); the kernel's object goes when the last holder lets go.
    /// Where several ids are to share one queue, see
    /// [`QueuePairInit::srq`](crate::verbs::QueuePairInit::srq). One in an XRC domain is no id's own:
    /// [`SharedReceiveQueue::in_domain`].
    ///
    /// # Errors
    ///
    /// [`ErrorKind::Invalid`] where the id has no device yet, has a shared receive queue already, or
    /// `pd` was not made in the id's [`context`](Self::context); those of
    /// [`SharedReceiveQueue::new`].
    #[doc(alias = "rdma_create_srq")]
    #[doc(alias = "rdma_create_srq_ex")]
    pub fn create_srq(
        &self,
        pd: Option<&ProtectionDomain>,
        attributes: SharedReceiveQueueAttributes,
    ) -> Result<SharedReceiveQueue> {
        const OPERATION: &str = "create the shared receive queue of";
        let invalid =
            |reason: &'static str| Err(Error::invalid(OPERATION, self.inner.to_string(), reason));
        let context = self.context()?;
        if pd.is_some_and(|pd| *pd.context() != context) {
            return invalid("the protection domain is of another context than CmId::context");
        }
        let pd = pd.cloned().map_or_else(|| self.default_pd(), Ok)?;
        // Held throughout: of two threads only one makes the id's queue.
        let mut state = self.inner.state();
        if state.srq.is_some() {
            return invalid("it has one already");
        }
        let srq = SharedReceiveQueue::new(&pd, attributes)?;
        state.srq = Some(srq.clone());
        Ok(srq)
    }

    /// The shared receive queue that [`create_srq`](Self::create_srq) made.
    pub fn srq(&self) -> Option<SharedReceiveQueue> {
        if self.inner.process.is_current() { self.inner.state().srq.clone() } else { None }
    }

    /// Lets go of the id's shared receive queue, which is destroyed unless the program or a queue
    /// pair holds it too. Nobody waits for its events: see [`SharedReceiveQueue::destroy`].
    #[doc(alias = "rdma_destroy_srq")]
    pub fn destroy_srq(&self) {
        if self.inner.process.is_current() {
            let srq = self.inner.state().srq.take();
            drop(srq);
        }
    }
}
