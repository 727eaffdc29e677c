//! Protection domains.

use std::sync::Arc;

use nix::errno::Errno;
use verbs_abi::{AlignedU64, ib_uverbs_alloc_pd, ib_uverbs_dealloc_pd};

use super::context::Context;
use crate::error::{DestroyError, Result};
use crate::sys::command::Refused;

/// What ties memory regions to the queue pairs that may use them.
#[doc(alias = "ibv_pd")]
#[derive(Debug, Clone)]
pub struct ProtectionDomain {
    inner: Arc<Inner>,
}

#[derive(Debug)]
struct Inner {
    context: Context,
    handle: u32,
    destroyed: bool,
}

impl ProtectionDomain {
    /// Makes a protection domain. `IB_USER_VERBS_CMD_ALLOC_PD`.
    ///
    /// # Errors
    ///
    /// ENOMEM where the device has no more;
    /// [`ErrorKind::WrongProcess`](crate::ErrorKind::WrongProcess).
    #[doc(alias = "ibv_alloc_pd")]
    pub fn new(context: &Context) -> Result<Self> {
        let request = ib_uverbs_alloc_pd { response: AlignedU64::default() };
        let response = context.command("allocate", "a protection domain", request)?;
        let handle = response.pd_handle;
        let inner = Inner { context: context.clone(), handle, destroyed: false };
        Ok(Self { inner: Arc::new(inner) })
    }

    /// The context that it was made in.
    pub fn context(&self) -> &Context {
        &self.inner.context
    }

    pub(crate) fn handle(&self) -> u32 {
        self.inner.handle
    }

    /// Destroys the protection domain. `IB_USER_VERBS_CMD_DEALLOC_PD`.
    ///
    /// # Errors
    ///
    /// EBUSY while clones of it or objects made in it live;
    /// [`ErrorKind::WrongProcess`](crate::ErrorKind::WrongProcess). The protection domain comes
    /// back with the error.
    #[doc(alias = "ibv_dealloc_pd")]
    pub fn destroy(self) -> Result<(), DestroyError<Self>> {
        const OPERATION: &str = "destroy";
        const WHAT: &str = "a protection domain";
        let mut inner = match Arc::try_unwrap(self.inner) {
            Ok(inner) => inner,
            Err(inner) => {
                let error = inner.context.refused(OPERATION, WHAT, Refused::Os(Errno::EBUSY));
                return Err(DestroyError::new(Self { inner }, error));
            }
        };
        match inner.destroy() {
            Ok(()) => {
                inner.destroyed = true;
                Ok(())
            }
            Err(refused) => {
                let error = inner.context.refused(OPERATION, WHAT, refused);
                Err(DestroyError::new(Self { inner: Arc::new(inner) }, error))
            }
        }
    }
}

impl Inner {
    fn destroy(&self) -> Result<(), Refused> {
        let request = ib_uverbs_dealloc_pd { pd_handle: self.handle };
        self.context.file().command(request)
    }
}

impl Drop for Inner {
    fn drop(&mut self) {
        if !self.destroyed && self.context.file().belongs_here() {
            // All that it could be busy with is gone: children hold it. A device that went takes it
            // along.
            let _ = self.destroy();
        }
    }
}
