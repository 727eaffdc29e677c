//! [`ToAddresses`], the forms in which a caller passes an address.

use std::fmt;
use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr, SocketAddrV4, SocketAddrV6};

pub(super) use sealed::{Target, ToTarget};

use nix::errno::Errno;

use crate::addr::{AddrInfoHints, Address, IbAddress};
use crate::cm::{PortSpace, getaddrinfo};
use crate::error::{Error, Result};

/// A value that names one or several addresses of a peer or of this machine.
///
/// The trait is implemented for [`Address`] and [`IbAddress`], and for the types that implement
/// [`ToSocketAddrs`](std::net::ToSocketAddrs): socket addresses, slices of socket addresses, pairs of an IP address or
/// a name and a port, and text such as `"10.0.0.1:7471"` or `"storage.example:7471"`. Text may also be an InfiniBand
/// address in the format of [`IbAddress`].
///
/// A name is looked up with [`getaddrinfo`], which blocks. Async functions look names up on a thread that may block.
/// The functions that take a value of this trait document their use of several addresses.
///
/// # Examples
///
/// ```no_run
/// use std::net::Ipv4Addr;
///
/// use rdmacm::endpoint::{Connector, Listener};
///
/// let listener = Listener::bind((Ipv4Addr::UNSPECIFIED, 7471))?;
/// let connection = Connector::new().connect("localhost.example:7471")?;
/// # Ok::<(), rdmacm::Error>(())
/// ```
pub trait ToAddresses: ToTarget {}

impl<T: ToTarget + ?Sized> ToAddresses for T {}

mod sealed {
    use super::Address;

    /// Addresses, or text that has to be looked up.
    #[derive(Debug)]
    pub enum Target {
        Addresses(Vec<Address>),
        Name { host: String, port: u16 },
        Text(String),
    }

    pub trait ToTarget {
        fn to_target(&self) -> Target;
    }
}

impl Target {
    /// Returns `true` if no name has to be looked up.
    pub(super) fn is_resolved(&self) -> bool {
        matches!(self, Self::Addresses(_))
    }

    /// Returns the addresses, at least one.
    pub(super) fn resolve(self) -> Result<Vec<Address>> {
        let (host, port) = match self {
            Self::Addresses(addresses) if addresses.is_empty() => {
                return Err(Error::invalid(
                    "resolve",
                    "the address",
                    "the list of addresses is empty",
                ));
            }
            Self::Addresses(addresses) => return Ok(addresses),
            Self::Name { host, port } => (host, port),
            Self::Text(text) => match split(&text) {
                Some((host, port)) => (host.to_owned(), port),
                None => {
                    let subject = format!("the address {text:?}");
                    return Err(Error::invalid(
                        "use",
                        subject,
                        "an address has the form HOST:PORT",
                    ));
                }
            },
        };
        let hints = AddrInfoHints { port_space: Some(PortSpace::Tcp), ..AddrInfoHints::default() };
        let found = getaddrinfo(Some(&host), Some(&port.to_string()), Some(&hints))?;
        let addresses: Vec<_> = found.into_iter().filter_map(|info| info.dst_addr).collect();
        match addresses.is_empty() {
            true => Err(Error::os("resolve the name", format!("{host:?}"), Errno::ENODATA)),
            false => Ok(addresses),
        }
    }
}

impl fmt::Display for Target {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Addresses(addresses) => match addresses.first() {
                Some(first) => first.fmt(f),
                None => f.write_str("no address"),
            },
            Self::Name { host, port } => write!(f, "{host}:{port}"),
            Self::Text(text) => f.write_str(text),
        }
    }
}

/// Splits `HOST:PORT`.
fn split(text: &str) -> Option<(&str, u16)> {
    let (host, port) = text.rsplit_once(':')?;
    Some((host, port.parse().ok()?)).filter(|_| !host.is_empty() && !host.contains(':'))
}

/// Calls `attempt` with each address in turn until it succeeds.
///
/// Returns the last error if no attempt succeeds.
pub(super) fn first_success<T>(
    addresses: Vec<Address>,
    mut attempt: impl FnMut(Address) -> Result<T>,
) -> Result<T> {
    let mut last = None;
    for address in addresses {
        match attempt(address) {
            Ok(done) => return Ok(done),
            Err(error) => last = Some(error),
        }
    }
    Err(last.expect("a target has an address"))
}

impl ToTarget for Address {
    fn to_target(&self) -> Target {
        Target::Addresses(vec![*self])
    }
}

/// Implements [`ToTarget`] for types that are one address.
macro_rules! one_address {
    ($($name:ty),*) => {
        $(impl ToTarget for $name {
            fn to_target(&self) -> Target {
                Target::Addresses(vec![(*self).into()])
            }
        })*
    };
}

one_address!(SocketAddr, SocketAddrV4, SocketAddrV6, IbAddress, (Ipv4Addr, u16), (Ipv6Addr, u16));
one_address!((std::net::IpAddr, u16));

impl ToTarget for [SocketAddr] {
    fn to_target(&self) -> Target {
        Target::Addresses(self.iter().copied().map(Address::from).collect())
    }
}

impl ToTarget for str {
    fn to_target(&self) -> Target {
        match self.parse() {
            Ok(address) => Target::Addresses(vec![address]),
            Err(_) => Target::Text(self.to_owned()),
        }
    }
}

impl ToTarget for String {
    fn to_target(&self) -> Target {
        self.as_str().to_target()
    }
}

impl ToTarget for (&str, u16) {
    fn to_target(&self) -> Target {
        let (host, port) = *self;
        match host.parse::<std::net::IpAddr>() {
            Ok(ip) => Target::Addresses(vec![(ip, port).into()]),
            Err(_) => Target::Name { host: host.to_owned(), port },
        }
    }
}

impl ToTarget for (String, u16) {
    fn to_target(&self) -> Target {
        (self.0.as_str(), self.1).to_target()
    }
}

impl<T: ToTarget + ?Sized> ToTarget for &T {
    fn to_target(&self) -> Target {
        (**self).to_target()
    }
}

#[cfg(test)]
mod tests;
