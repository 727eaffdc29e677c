//! Destinations of datagrams.

use std::sync::atomic::{AtomicU64, Ordering};

use zerocopy::{FromBytes, Immutable, IntoBytes};

/// The number of a protection domain, unique within the process.
///
/// The kernel's handles do not distinguish protection domains of different contexts.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PdNumber(u64);

impl PdNumber {
    /// Returns a number that was not returned before.
    pub fn next() -> Self {
        static NEXT: AtomicU64 = AtomicU64::new(0);
        Self(NEXT.fetch_add(1, Ordering::Relaxed))
    }
}

/// The address of a datagram's receiver in the driver's format, for a [`Destination`].
///
/// An `AddressHandle` of `rdmacm` dereferences to its address vector.
#[derive(Debug, PartialEq, Eq)]
pub struct AddressVector {
    pd: PdNumber,
    words: [u64; Self::WORDS],
}

impl AddressVector {
    /// Number of words of the longest address of a driver: 48 bytes of mlx5.
    const WORDS: usize = 6;

    /// Creates an address vector of protection domain `pd` from the driver's address.
    ///
    /// The address is a number, or is in the device's format.
    pub fn new<T: IntoBytes + Immutable>(pd: PdNumber, address: &T) -> Self {
        const { assert!(size_of::<T>() <= size_of::<[u64; Self::WORDS]>(), "WORDS is too small") };
        let mut words = [0; Self::WORDS];
        words.as_mut_bytes()[..size_of::<T>()].copy_from_slice(address.as_bytes());
        Self { pd, words }
    }

    /// Returns the protection domain of the address handle.
    #[inline]
    pub fn pd(&self) -> PdNumber {
        self.pd
    }

    /// Returns the address that the driver created.
    ///
    /// `T` must be the type with which it was created. For another type, the bytes are those of the other type, or
    /// zero.
    #[inline]
    pub fn get<T: FromBytes>(&self) -> T {
        const { assert!(size_of::<T>() <= size_of::<[u64; Self::WORDS]>(), "WORDS is too small") };
        let (address, _) =
            T::read_from_prefix(self.words.as_bytes()).expect("the words hold every address type");
        address
    }
}

/// The destination of a datagram, for [`SendOperation::SendTo`](super::SendOperation::SendTo).
///
/// The `cm::DatagramParam` of `rdmacm` has all three fields of a peer or a multicast group.
#[doc(alias = "ibv_wr_set_ud_addr")]
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Destination<'a> {
    /// The address: an address handle of the protection domain of the
    /// queue pair that sends.
    #[doc(alias = "ah")]
    pub address: &'a AddressVector,
    /// The number of the peer's queue pair, 24 bits; 0xffffff for a multicast group.
    #[doc(alias = "remote_qpn")]
    pub qp_num: u32,
    /// The Q_Key of the peer's queue pair.
    ///
    /// If the highest bit is set, a device of InfiniBand sends the Q_Key of the sending queue pair instead; rxe does
    /// not.
    #[doc(alias = "remote_qkey")]
    pub qkey: u32,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn address_is_made_by_driver() {
        let structure: [u8; 48] = std::array::from_fn(|at| u8::try_from(at).expect("48 fits"));
        let pd = PdNumber::next();
        assert_eq!(AddressVector::new(pd, &7_u32).get::<u32>(), 7);
        assert_eq!(AddressVector::new(pd, &structure).get::<[u8; 48]>(), structure);
        assert_eq!(AddressVector::new(pd, &7_u32).get::<[u32; 12]>()[1..], [0; 11]);
    }

    #[test]
    fn pd_numbers_differ() {
        assert_ne!(PdNumber::next(), PdNumber::next());
    }
}
