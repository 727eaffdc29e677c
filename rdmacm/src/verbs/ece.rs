//! [`Ece`]: the queue pair options that two devices of a vendor negotiate, and the calls for them.

use super::queue_pair::QueuePair;
use crate::error::{Error, ErrorKind, Result};

/// The options of enhanced connection establishment (ECE): `struct ibv_ece`.
///
/// The options describe the abilities of a vendor's devices beyond the standard. Two queue pairs
/// negotiate the options when they connect: each uses the options that both devices have.
#[doc(alias = "ibv_ece")]
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash)]
pub struct Ece {
    /// The vendor in 24 bits, or 0 if there is no ECE.
    pub vendor_id: u32,
    /// The options, in an encoding of the vendor.
    pub options: u32,
}

impl QueuePair {
    /// Returns the options of enhanced connection establishment (ECE), or `None` if the device has
    /// none.
    ///
    /// A new queue pair has the options that the device offers. [`set_ece`](Self::set_ece) removes
    /// these options. After the next successful [`modify`](Self::modify), the queue pair has the
    /// options that the device uses.
    ///
    /// # Driver notes
    ///
    /// Only mlx5 has options, from Linux 5.8 on.
    ///
    /// Kernel command: none.
    #[doc(alias = "ibv_query_ece")]
    pub fn ece(&self) -> Option<Ece> {
        let vendor_id = self.context().driver_capabilities().ece_vendor?;
        Some(Ece { vendor_id, options: self.engine().ece_options() })
    }

    /// Requests that the queue pair uses the ECE options of the peer's queue pair.
    ///
    /// The next [`modify`](Self::modify) passes the options to the device, which uses the options
    /// that it supports: see [`ece`](Self::ece). Options of 0 are not passed on. An id does all of
    /// this for its own queue pair: see [`CmId::create_qp`](crate::cm::CmId::create_qp).
    ///
    /// # Errors
    ///
    /// - [`ErrorKind::Unsupported`] if the device has no ECE options.
    /// - [`ErrorKind::InvalidInput`] if the vendor of the options is not the vendor that
    ///   [`ece`](Self::ece) returns.
    /// - [`ErrorKind::NotOwner`] if the process forked or changed its credentials.
    ///
    /// Kernel command: none.
    #[doc(alias = "ibv_set_ece")]
    pub fn set_ece(&self, ece: Ece) -> Result<()> {
        const OPERATION: &str = "set the ECE options of";
        // First: a lock that another thread held during the fork stays locked in the child.
        self.context().check_usable(OPERATION, || self.subject())?;
        let Some(own) = self.ece() else {
            let missing = ErrorKind::Unsupported("ECE options by the device or the kernel".into());
            return Err(Error::new(OPERATION, self.context().subject(&self.subject()), missing));
        };
        if ece.vendor_id != own.vendor_id {
            let (other, own) = (ece.vendor_id, own.vendor_id);
            let reason = format!("the vendor_id of the options is {other:#x} instead of {own:#x}");
            return Err(Error::invalid(OPERATION, self.subject(), reason));
        }
        self.engine().request_ece(ece.options);
        Ok(())
    }
}
