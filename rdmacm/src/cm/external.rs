//! Queue pairs that the program manages itself: their events, and enhanced connection
//! establishment.

use ucma_abi::{ib_cm_rej_reason, rdma_ucm_notify};
use verbs_abi::ib_event_type;

use super::ece::MAX_VENDOR;
use super::id::CmId;
#[cfg(doc)]
use crate::error::ErrorKind;
#[cfg(doc)]
use crate::error::RejectReason;
use crate::error::{Error, Result};
use crate::verbs::Ece;

impl CmId {
    /// Notifies the connection manager of an asynchronous event of the queue pair.
    ///
    /// [`IB_EVENT_COMM_EST`](ib_event_type::IB_EVENT_COMM_EST), on the side that accepted, means
    /// that data arrived before the peer's confirmation, which may never arrive. `Established`
    /// follows. [`IB_EVENT_PATH_MIG`](ib_event_type::IB_EVENT_PATH_MIG) means that the queue pair
    /// changed to its alternate path. On iWARP the kernel accepts every event and does nothing.
    ///
    /// # Errors
    ///
    /// - EISCONN if the connection is established already, which is harmless.
    /// - EINVAL for other events, and if the id is not connecting.
    ///
    /// Kernel command: `RDMA_USER_CM_CMD_NOTIFY`.
    #[doc(alias = "rdma_notify")]
    pub fn notify(&self, event: ib_event_type) -> Result<()> {
        let request = rdma_ucm_notify { id: self.inner.handle, event: event.0 };
        let subject = || format!("{} of {event}", self.inner);
        self.inner.command("notify", subject, request)
    }

    /// Sets the ECE options that [`connect`](Self::connect) or [`accept`](Self::accept) sends.
    ///
    /// They describe the program's own queue pair. An accepting id sends these options with the
    /// vendor that the peer named, as the protocol requires. CONNECT and ACCEPT carry them from
    /// Linux 5.8 on; an older kernel leaves them out without an error.
    ///
    /// # Errors
    ///
    /// - [`ErrorKind::InvalidInput`] if the id has a queue pair of its own.
    /// - [`ErrorKind::InvalidInput`] if the vendor is 0 or has more than 24 bits.
    ///
    /// Kernel command: none.
    #[doc(alias = "rdma_set_local_ece")]
    pub fn set_local_ece(&self, ece: Ece) -> Result<()> {
        const OPERATION: &str = "set the local ECE of";
        self.check_external(OPERATION)?;
        if ece.vendor_id == 0 || ece.vendor_id > MAX_VENDOR {
            let reason =
                format!("vendor_id {:#x} is not within 0x1 to {MAX_VENDOR:#x}", ece.vendor_id);
            return Err(Error::invalid(OPERATION, self.inner.to_string(), reason));
        }
        self.inner.state().local_ece = ece;
        Ok(())
    }

    /// Returns the ECE options of the peer's queue pair, after `ConnectRequest` or
    /// `ConnectResponse`.
    ///
    /// They are zero before, and if the peer sent none. The event carries them from Linux 5.8 on.
    ///
    /// # Errors
    ///
    /// - [`ErrorKind::InvalidInput`] if the id has a queue pair of its own.
    ///
    /// Kernel command: none.
    #[doc(alias = "rdma_get_remote_ece")]
    pub fn remote_ece(&self) -> Result<Ece> {
        self.check_external("get the remote ECE of")?;
        Ok(self.inner.state().remote_ece)
    }

    /// Rejects the connection request that created this id because of its ECE options.
    ///
    /// Otherwise the call behaves like [`reject`](Self::reject), but the peer gets
    /// [`RejectReason::VENDOR_OPTION_NOT_SUPPORTED`]. A kernel before Linux 5.8 sends the reason of
    /// `reject`.
    ///
    /// # Errors
    ///
    /// The errors of [`reject`](Self::reject).
    ///
    /// Kernel command: `RDMA_USER_CM_CMD_REJECT`.
    #[doc(alias = "rdma_reject_ece")]
    pub fn reject_ece(&self, private_data: &[u8]) -> Result<()> {
        let reason = ib_cm_rej_reason::IB_CM_REJ_VENDOR_OPTION_NOT_SUPPORTED;
        self.reject_because(reason, private_data)
    }

    /// Checks that the id has no queue pair of its own.
    fn check_external(&self, operation: &'static str) -> Result<()> {
        self.inner.check_process(operation)?;
        match self.inner.state().qp {
            None => Ok(()),
            Some(_) => {
                let reason = "the id has a queue pair of its own";
                Err(Error::invalid(operation, self.inner.to_string(), reason))
            }
        }
    }
}
