//! [`AddrInfoHints`] for a lookup of names, and its results ([`AddrInfo`]).

use bitflags::bitflags;
use verbs_abi::{ib_path_rec_data, ib_uverbs_qp_type as QpType};

use super::address::{Address, AddressFamily};
use super::port_space::PortSpace;
#[cfg(doc)]
use crate::cm::getaddrinfo;
use crate::non_exhaustive::NonExhaustive;

bitflags! {
    /// How [`getaddrinfo`] is to go about it. The numbers are the C library's.
    #[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash)]
    pub struct AddrInfoFlags: u32 {
        /// For the side that listens: the results are source addresses, and without a node wildcards. `RAI_PASSIVE`.
        #[doc(alias = "RAI_PASSIVE")]
        const PASSIVE = 0x1;
        /// The node is an address and no name: nobody is asked. `RAI_NUMERICHOST`.
        #[doc(alias = "RAI_NUMERICHOST")]
        const NUMERICHOST = 0x2;
        /// No time is spent on finding a route. `RAI_NOROUTE`. [`getaddrinfo`] never spends any.
        #[doc(alias = "RAI_NOROUTE")]
        const NOROUTE = 0x4;
        /// [`AddrInfoHints::family`] says how the node is to be read: with [`AddressFamily::Ib`] and
        /// [`NUMERICHOST`](Self::NUMERICHOST) as a GID. `RAI_FAMILY`.
        #[doc(alias = "RAI_FAMILY")]
        const FAMILY = 0x8;
        /// The subnet administrator is asked for the service, by its name or its id, at each active
        /// InfiniBand port until one knows it; a node cannot be looked up. `RAI_SA`. Linux 6.18.
        #[doc(alias = "RAI_SA")]
        const SA = 0x10;
        /// The host's `getaddrinfo` is asked, as without the flag. `RAI_DNS`. Not with
        /// [`SA`](Self::SA).
        #[doc(alias = "RAI_DNS")]
        const DNS = 0x20;
    }
}

/// The hints of [`getaddrinfo`]: `struct rdma_addrinfo`.
///
/// Made from its default: see [Parameters](crate#parameters).
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct AddrInfoHints {
    /// How to go about it.
    pub flags: AddrInfoFlags,
    /// Of which family the addresses are to be, where it matters. [`AddressFamily::Ib`] counts only with
    /// [`AddrInfoFlags::NUMERICHOST`] and [`AddrInfoFlags::FAMILY`].
    pub family: Option<AddressFamily>,
    /// Which type of queue pair is to be used, where it matters.
    pub qp_type: Option<QpType>,
    /// Which port space is to be used, where it matters.
    pub port_space: Option<PortSpace>,
    /// The local address, for results that have none of their own.
    pub src_addr: Option<Address>,
    /// The peer's address, where no name is given.
    pub dst_addr: Option<Address>,
    #[doc(hidden)]
    pub non_exhaustive: NonExhaustive,
}

/// Where and how to reach a peer, or to listen: a result of [`getaddrinfo`].
/// `struct rdma_addrinfo`.
#[doc(alias = "rdma_addrinfo")]
#[doc(alias = "rdma_freeaddrinfo")]
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct AddrInfo {
    /// [`PASSIVE`](AddrInfoFlags::PASSIVE) where the result is for the side that listens.
    pub flags: AddrInfoFlags,
    /// The family of the addresses; `None` where there are none.
    pub family: Option<AddressFamily>,
    /// The type of queue pair.
    pub qp_type: QpType,
    /// The port space.
    pub port_space: PortSpace,
    /// The local address: of a passive result, or from the hints.
    pub src_addr: Option<Address>,
    /// The peer's address. A passive result has none.
    pub dst_addr: Option<Address>,
    /// The full name of the local node, where hints were given and it was looked up by name.
    pub src_canonname: Option<String>,
    /// The full name of the peer's node, where hints were given and it was looked up by name.
    pub dst_canonname: Option<String>,
    /// Paths to the peer, in place of resolving a route. [`getaddrinfo`] leaves them empty: the C
    /// library has them from the ibacm service, which this one does not ask.
    pub route: Vec<ib_path_rec_data>,
    /// The bytes in front of the program's own private data. Empty for the same reason.
    pub connect: Vec<u8>,
}

impl AddrInfo {
    /// Creates a result without addresses. The default of `port_space` is the usual one of `qp_type`.
    pub(crate) fn new(qp_type: QpType, port_space: Option<PortSpace>) -> Self {
        let port_space = port_space.unwrap_or(match qp_type {
            QpType::IB_UVERBS_QPT_RC => PortSpace::Tcp,
            QpType::IB_UVERBS_QPT_UD => PortSpace::Udp,
            _ => PortSpace::Ib,
        });
        Self {
            flags: AddrInfoFlags::empty(),
            family: None,
            qp_type,
            port_space,
            src_addr: None,
            dst_addr: None,
            src_canonname: None,
            dst_canonname: None,
            route: Vec::new(),
            connect: Vec::new(),
        }
    }
}
