//! [`Ece`]: the queue pair options that two devices of a vendor negotiate.

/// The options of enhanced connection establishment (ECE): `struct ibv_ece`.
///
/// They describe the abilities of a vendor's devices beyond the standard. Two queue pairs negotiate
/// them when they connect: each uses those that both devices have.
#[doc(alias = "ibv_ece")]
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash)]
pub struct Ece {
    /// The vendor in 24 bits, or 0 if there is no ECE.
    pub vendor_id: u32,
    /// The options, in an encoding of the vendor.
    pub options: u32,
}
