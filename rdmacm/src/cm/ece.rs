//! [`Ece`]: the queue pair options that two vendors' devices negotiate.

use ucma_abi::rdma_ucm_ece;

/// The options of enhanced connection establishment (ECE): `struct ibv_ece`.
///
/// They describe the abilities of a vendor's devices beyond the standard.
#[doc(alias = "ibv_ece")]
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash)]
pub struct Ece {
    /// The vendor in 24 bits, or 0 if there is no ECE.
    pub vendor_id: u32,
    /// The options, in an encoding of the vendor.
    pub options: u32,
}

impl Ece {
    /// The highest vendor number that fits into the messages.
    pub(super) const MAX_VENDOR: u32 = 0xff_ffff;
}

impl From<rdma_ucm_ece> for Ece {
    fn from(ece: rdma_ucm_ece) -> Self {
        Self { vendor_id: ece.vendor_id, options: ece.attr_mod }
    }
}

impl From<Ece> for rdma_ucm_ece {
    fn from(ece: Ece) -> Self {
        Self { vendor_id: ece.vendor_id, attr_mod: ece.options }
    }
}
