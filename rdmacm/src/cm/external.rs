//! Queue pairs that the program looks after itself: their events, and what the vendors of two devices
//! agree on.

use ucma_abi::{ib_cm_rej_reason, rdma_ucm_notify};
use verbs_abi::ib_event_type;

use super::ece::Ece;
use super::id::CmId;
#[cfg(doc)]
use crate::error::ErrorKind;
#[cfg(doc)]
use crate::error::RejectReason;
use crate::error::{Error, Result};

impl CmId {
    /// Tells the connection manager of an asynchronous event of the queue pair.
    ///
    /// `RDMA_USER_CM_CMD_NOTIFY`. With [`IB_EVENT_COMM_EST`](ib_event_type::IB_EVENT_COMM_EST), on
    /// the side that accepted: data came before the peer's confirmation, which may never come.
    /// `Established` follows. With [`IB_EVENT_PATH_MIG`](ib_event_type::IB_EVENT_PATH_MIG): the queue
    /// pair went over to its alternate path. On iWARP every event is taken and nothing happens.
    ///
    /// # Errors
    ///
    /// EISCONN where the connection stands already, which does no harm; EINVAL for other events,
    /// and for an id that is not connecting.
    #[doc(alias = "rdma_notify")]
    pub fn notify(&self, event: ib_event_type) -> Result<()> {
        let request = rdma_ucm_notify { id: self.inner.handle, event: event.0 };
        let subject = || format!("{} of {event}", self.inner);
        self.inner.command("notify", subject, request)
    }

    /// Sets what [`connect`](Self::connect) or [`accept`](Self::accept) tells the peer of the
    /// program's own queue pair. An accepting id says the vendor that the peer named, as the
    /// protocol wants it, and these options.
    ///
    /// No command: it goes with CONNECT and ACCEPT (Linux 5.8; an older kernel leaves it out, and does
    /// not say so).
    ///
    /// # Errors
    ///
    /// [`ErrorKind::Invalid`] where the id has a queue pair of its own, and for a vendor of 0 or of
    /// more than 24 bits.
    #[doc(alias = "rdma_set_local_ece")]
    pub fn set_local_ece(&self, ece: Ece) -> Result<()> {
        const OPERATION: &str = "set the local ECE of";
        self.check_external(OPERATION)?;
        if ece.vendor_id == 0 || ece.vendor_id > Ece::MAX_VENDOR {
            let reason = format!("there is no vendor {:#x}", ece.vendor_id);
            return Err(Error::invalid(OPERATION, self.inner.to_string(), reason));
        }
        self.inner.state().local_ece = ece;
        Ok(())
    }

    /// Returns the ECE options of the peer's queue pair, after `ConnectRequest` or `ConnectResponse`. Zero where
    /// it said nothing, and before.
    ///
    /// No command: it came with the event (Linux 5.8).
    ///
    /// # Errors
    ///
    /// [`ErrorKind::Invalid`] where the id has a queue pair of its own.
    #[doc(alias = "rdma_get_remote_ece")]
    pub fn remote_ece(&self) -> Result<Ece> {
        self.check_external("get the remote ECE of")?;
        Ok(self.inner.state().remote_ece)
    }

    /// Rejects the request that brought this id because of its ECE, with bytes for the peer's
    /// program.
    ///
    /// `RDMA_USER_CM_CMD_REJECT`. As [`reject`](Self::reject), but the peer gets
    /// [`RejectReason::VENDOR_OPTION_NOT_SUPPORTED`] (Linux 5.8; from an older kernel the other
    /// reason).
    ///
    /// # Errors
    ///
    /// The errors of [`reject`](Self::reject).
    #[doc(alias = "rdma_reject_ece")]
    pub fn reject_ece(&self, private_data: &[u8]) -> Result<()> {
        let reason = ib_cm_rej_reason::IB_CM_REJ_VENDOR_OPTION_NOT_SUPPORTED;
        self.reject_because(reason, private_data)
    }

    /// Refuses what is for ids without a queue pair of their own.
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
