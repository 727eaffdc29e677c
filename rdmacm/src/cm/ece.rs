//! [`Ece`]: the options of queue pairs that the devices of two vendors agree on.

use ucma_abi::rdma_ucm_ece;

/// Enhanced connection establishment (ECE): a vendor, and what its devices can do beyond the
/// standard. `struct ibv_ece`.
#[doc(alias = "ibv_ece")]
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash)]
pub struct Ece {
    /// The vendor, 24 bits; 0 where there is no ECE.
    pub vendor_id: u32,
    /// The options, in the vendor's terms.
    pub options: u32,
}

impl Ece {
    /// The highest vendor that the messages have room for.
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
