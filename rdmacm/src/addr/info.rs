//! [`AddrInfoHints`] for a lookup of names, and its results ([`AddrInfo`]).

use bitflags::bitflags;
use verbs_abi::{ib_path_rec_data, ib_uverbs_qp_type as QpType};

use super::address::{Address, AddressFamily};
use super::port_space::PortSpace;
#[cfg(doc)]
use crate::cm::getaddrinfo;
use crate::non_exhaustive::NonExhaustive;

bitflags! {
    /// Flags of a lookup by [`getaddrinfo`], with the numbers of the C library.
    #[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash)]
    pub struct AddrInfoFlags: u32 {
        /// `RAI_PASSIVE`: the lookup is for the passive side.
        ///
        /// The results are source addresses, and wildcards without a node.
        #[doc(alias = "RAI_PASSIVE")]
        const PASSIVE = 0x1;
        /// `RAI_NUMERICHOST`: the node is an address, so no name is looked up.
        #[doc(alias = "RAI_NUMERICHOST")]
        const NUMERICHOST = 0x2;
        /// `RAI_NOROUTE`: the lookup does not search for a route.
        ///
        /// [`getaddrinfo`] never searches for a route.
        #[doc(alias = "RAI_NOROUTE")]
        const NOROUTE = 0x4;
        /// `RAI_FAMILY`: [`AddrInfoHints::family`] determines how the node is parsed.
        ///
        /// With [`AddressFamily::Ib`] and [`NUMERICHOST`](Self::NUMERICHOST) the node is a GID.
        #[doc(alias = "RAI_FAMILY")]
        const FAMILY = 0x8;
        /// `RAI_SA`: the subnet administrator looks up the service, by its name or its id (Linux 6.18).
        ///
        /// The call asks at each active InfiniBand port until one has the service. A node cannot be looked up.
        #[doc(alias = "RAI_SA")]
        const SA = 0x10;
        /// `RAI_DNS`: the host's `getaddrinfo` looks up the name, as without the flag.
        ///
        /// It excludes [`SA`](Self::SA).
        #[doc(alias = "RAI_DNS")]
        const DNS = 0x20;
    }
}

/// The hints of [`getaddrinfo`]: `struct rdma_addrinfo`.
///
/// Create the hints from their default: see [Parameters](crate#parameters).
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct AddrInfoHints {
    /// Flags of the lookup.
    pub flags: AddrInfoFlags,
    /// The address family of the results, if it matters.
    ///
    /// [`AddressFamily::Ib`] counts only with [`AddrInfoFlags::NUMERICHOST`] and [`AddrInfoFlags::FAMILY`].
    pub family: Option<AddressFamily>,
    /// The queue pair type of the results, if it matters.
    pub qp_type: Option<QpType>,
    /// The port space of the results, if it matters.
    pub port_space: Option<PortSpace>,
    /// The local address, for results without one.
    pub src_addr: Option<Address>,
    /// The peer's address, if no name is given.
    pub dst_addr: Option<Address>,
    #[doc(hidden)]
    pub non_exhaustive: NonExhaustive,
}

/// The address of a peer or of a listener, and its parameters: `struct rdma_addrinfo`.
///
/// [`getaddrinfo`] returns it.
#[doc(alias = "rdma_addrinfo")]
#[doc(alias = "rdma_freeaddrinfo")]
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct AddrInfo {
    /// [`PASSIVE`](AddrInfoFlags::PASSIVE) if the result is for the passive side.
    pub flags: AddrInfoFlags,
    /// The family of the addresses, or `None` if there are no addresses.
    pub family: Option<AddressFamily>,
    /// The type of queue pair.
    pub qp_type: QpType,
    /// The port space.
    pub port_space: PortSpace,
    /// The local address: of a passive result, or from the hints.
    pub src_addr: Option<Address>,
    /// The peer's address. A passive result has none.
    pub dst_addr: Option<Address>,
    /// The full name of the local node, if hints were given and it was looked up by name.
    pub src_canonname: Option<String>,
    /// The full name of the peer's node, if hints were given and it was looked up by name.
    pub dst_canonname: Option<String>,
    /// Paths to the peer, which replace resolving a route.
    ///
    /// [`getaddrinfo`] leaves them empty. The C library gets them from the ibacm service, which this library does not
    /// use.
    pub route: Vec<ib_path_rec_data>,
    /// Bytes that precede the program's private data.
    ///
    /// [`getaddrinfo`] leaves them empty, because this library does not use ibacm.
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
