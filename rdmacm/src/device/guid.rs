//! The two kinds of identifiers in InfiniBand: GUID and GID.

use std::fmt;
use std::net::Ipv6Addr;
use std::str::FromStr;

/// An EUI-64 identifier of a device or port.
///
/// Held in host order, as netlink gives it. ucma and uverbs responses hold it big-endian: use
/// [`Guid::from_be_bytes`]. Printed as `5054:00ff:fe12:3456`, as sysfs shows it.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Guid(u64);

impl Guid {
    /// Creates a GUID from a number in host order.
    pub const fn new(value: u64) -> Self {
        Self(value)
    }

    /// Creates a GUID from the eight bytes of the wire format.
    pub const fn from_be_bytes(bytes: [u8; 8]) -> Self {
        Self(u64::from_be_bytes(bytes))
    }

    /// Returns the GUID as a number in host order.
    pub const fn get(self) -> u64 {
        self.0
    }
}

impl fmt::Display for Guid {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let [a, b, c, d] = [48, 32, 16, 0].map(|shift| (self.0 >> shift) & 0xffff);
        write!(f, "{a:04x}:{b:04x}:{c:04x}:{d:04x}")
    }
}

/// The error of a text that is not an identifier of this kind.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("not four groups of hexadecimal digits, as in 5054:00ff:fe12:3456")]
pub struct ParseGuidError;

impl FromStr for Guid {
    type Err = ParseGuidError;

    fn from_str(text: &str) -> Result<Self, ParseGuidError> {
        let mut groups = text.split(':').map(|group| {
            let digits = (1..=4).contains(&group.len());
            let value = u16::from_str_radix(group, 16).ok();
            value.filter(|_| digits && !group.starts_with('+')).ok_or(ParseGuidError)
        });
        let mut value = 0;
        for _ in 0..4 {
            value = (value << 16) | u64::from(groups.next().ok_or(ParseGuidError)??);
        }
        if groups.next().is_some() { Err(ParseGuidError) } else { Ok(Self(value)) }
    }
}

/// An address in a GID table: 16 bytes in network order, the form of an IPv6 address.
///
/// On RoCE it is one of the port's IP addresses, an IPv4 address as `::ffff:a.b.c.d`. Printed as
/// eight full groups, as sysfs shows it; [`Ipv6Addr::from`] gives the short form.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Gid(pub [u8; 16]);

impl Gid {
    /// Returns `true` if the GID is zero, which marks an empty slot of a GID table.
    pub const fn is_zero(self) -> bool {
        u128::from_ne_bytes(self.0) == 0
    }
}

impl From<Ipv6Addr> for Gid {
    fn from(address: Ipv6Addr) -> Self {
        Self(address.octets())
    }
}

impl From<Gid> for Ipv6Addr {
    fn from(gid: Gid) -> Self {
        Self::from(gid.0)
    }
}

/// Serializes as text, which [`FromStr`] parses.
#[cfg(feature = "serde")]
macro_rules! serde_as_text {
    ($($name:ty),*) => {
        $(
            impl serde::Serialize for $name {
                fn serialize<S: serde::Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
                    to.collect_str(self)
                }
            }

            impl<'de> serde::Deserialize<'de> for $name {
                fn deserialize<D: serde::Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
                    let text = <std::borrow::Cow<'_, str>>::deserialize(from)?;
                    text.parse().map_err(serde::de::Error::custom)
                }
            }
        )*
    };
}

#[cfg(feature = "serde")]
serde_as_text!(Gid, Guid);

/// The error of text that is not a GID.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("not a GID in the form of an IPv6 address, as in fe80::5054:ff:fe12:3456")]
pub struct ParseGidError;

impl FromStr for Gid {
    type Err = ParseGidError;

    fn from_str(text: &str) -> Result<Self, ParseGidError> {
        text.parse::<Ipv6Addr>().map(Self::from).map_err(|_| ParseGidError)
    }
}

impl fmt::Display for Gid {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let [a, b, c, d, e, g, h, i] = Ipv6Addr::from(self.0).segments();
        write!(f, "{a:04x}:{b:04x}:{c:04x}:{d:04x}:{e:04x}:{g:04x}:{h:04x}:{i:04x}")
    }
}

#[cfg(test)]
mod tests;
