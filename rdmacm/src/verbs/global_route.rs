//! Global route headers of received datagrams, and the reply address that follows from them.

use std::net::{Ipv4Addr, Ipv6Addr};

use nix::errno::Errno;
use verbs_abi::{ib_uverbs_ah_attr, ib_uverbs_global_route};

use super::Completion;
use super::context::Context;
use crate::device::{Gid, GidType};
#[cfg(doc)]
use crate::error::ErrorKind;
use crate::error::{Error, Result};

/// Number of bytes before a datagram in its receive buffer, reserved for the global route header.
///
/// The device stores the header there, or leaves the bytes unused. A receive on a datagram queue
/// pair needs this much memory in addition to the message, and [`byte_len`](Completion::byte_len)
/// includes it.
#[doc(alias = "ibv_grh")]
pub const GRH_LENGTH: usize = 40;

/// Offset of an IPv4 header, which is at the end.
const IPV4: usize = 20;
/// Next headers of IPv6: UDP, and the base transport header of RoCE v1 and InfiniBand.
const NEXT_UDP: u8 = 17;
const NEXT_BTH: u8 = 0x1b;

/// The fields of a header.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
struct Header {
    source: Gid,
    destination: Gid,
    kind: GidType,
    flow_label: u32,
    hop_limit: u8,
    traffic_class: u8,
}

impl Header {
    /// Parses the header in `bytes`, or returns the reason why it is invalid.
    fn parse(bytes: &[u8; GRH_LENGTH]) -> Result<Self, &'static str> {
        let flow_class = u32::from_be_bytes(part(bytes, 0));
        let flow_label = flow_class & 0xf_ffff;
        if is_ipv4(bytes) {
            let gid = |at| Gid::from(Ipv4Addr::from(part::<4>(bytes, at)).to_ipv6_mapped());
            return Ok(Self {
                source: gid(IPV4 + 12),
                destination: gid(IPV4 + 16),
                kind: GidType::RoceV2,
                flow_label,
                hop_limit: bytes[IPV4 + 8],
                traffic_class: bytes[IPV4 + 1],
            });
        }
        let kind = match (bytes[0] >> 4, bytes[6]) {
            (6, NEXT_UDP) => GidType::RoceV2,
            (6, NEXT_BTH) => GidType::RoceV1,
            _ => {
                return Err(
                    "the header is neither a global route header (RoCE v1) nor an IP header with UDP (RoCE v2)",
                );
            }
        };
        let (source, destination) = (Gid(part(bytes, 8)), Gid(part(bytes, 24)));
        let [_, _, _, class] = (flow_class >> 20).to_be_bytes();
        Ok(Self {
            source,
            destination,
            kind,
            flow_label,
            hop_limit: bytes[7],
            traffic_class: class,
        })
    }
}

/// Returns `true` if the last 20 bytes are an IPv4 header.
///
/// If the first bytes may be an IPv6 header, the checksum decides, because the last 20 bytes would
/// then be the tail of an address.
fn is_ipv4(bytes: &[u8; GRH_LENGTH]) -> bool {
    if bytes[0] >> 4 != 6 {
        return bytes[IPV4] >> 4 == 4;
    }
    let words = bytes[IPV4..].chunks_exact(2);
    let sum: u32 = words.map(|word| u32::from(u16::from_be_bytes([word[0], word[1]]))).sum();
    let folded = (sum & 0xffff) + (sum >> 16);
    // Version 4, and five words long: RoCE sends no options.
    bytes[IPV4] == 0x45 && folded == 0xffff
}

/// The source and destination of a datagram, from its completion and its global route header.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct DatagramSource {
    header: Option<Header>,
    qp_num: u32,
    lid: u16,
    service_level: u8,
    path_bits: u8,
}

const OPERATION: &str = "find the sender of";

impl DatagramSource {
    /// Reads the source and destination of a received datagram.
    ///
    /// `completion` is the completion of the datagram, and `header` the beginning of its memory.
    ///
    /// # Errors
    ///
    /// - [`ErrorKind::InvalidInput`] if the protocol of the header is not known.
    pub fn new(completion: &Completion, header: &[u8; GRH_LENGTH]) -> Result<Self> {
        let header = match completion.has_grh() {
            false => None,
            true => Some(
                Header::parse(header)
                    .map_err(|reason| Error::invalid(OPERATION, "a datagram", reason))?,
            ),
        };
        Ok(Self {
            header,
            qp_num: completion.src_qp(),
            lid: completion.slid(),
            service_level: completion.sl(),
            path_bits: completion.dlid_path_bits(),
        })
    }

    /// Returns the number of the queue pair that sent the datagram.
    pub fn qp_num(&self) -> u32 {
        self.qp_num
    }

    /// Returns the LID of the port that sent the datagram; 0 on RoCE.
    pub fn lid(&self) -> u16 {
        self.lid
    }

    /// Returns the GID of the port that sent the datagram.
    ///
    /// It may be absent on InfiniBand.
    pub fn gid(&self) -> Option<Gid> {
        self.header.map(|header| header.source)
    }

    /// Returns the GID to which the datagram was sent: a GID of the receiving port or a multicast
    /// group.
    pub fn destination(&self) -> Option<Gid> {
        self.header.map(|header| header.destination)
    }

    /// Returns `true` if the datagram was sent to a multicast group.
    pub fn is_to_group(&self) -> bool {
        self.destination().is_some_and(is_group)
    }

    /// Returns a copy in which the datagram was sent to the port's address `gid`.
    ///
    /// Used to reply to a datagram that was sent to a multicast group, because a group cannot be a
    /// source address.
    #[must_use]
    pub fn sent_to(self, gid: Gid) -> Self {
        let header = self.header.map(|header| Header { destination: gid, ..header });
        Self { header, ..self }
    }

    /// Returns the address of the sender, as reached from `port` of the device of `context`.
    pub(super) fn address(&self, context: &Context, port: u8) -> Result<ib_uverbs_ah_attr> {
        let subject = || format!("a datagram on port {port} of {}", context.device().name());
        let mut address = ib_uverbs_ah_attr {
            dlid: self.lid,
            sl: self.service_level,
            src_path_bits: self.path_bits,
            port_num: port,
            ..ib_uverbs_ah_attr::default()
        };
        let Some(header) = self.header else { return Ok(address) };
        if is_group(header.destination) {
            let reason =
                "the datagram was sent to a multicast group, not to an address of the port";
            return Err(Error::invalid(OPERATION, subject(), reason));
        }
        let entries = context.gids(port)?;
        let meant = entries
            .iter()
            .find(|entry| entry.gid == header.destination && entry.gid_type == Some(header.kind))
            .and_then(|entry| u8::try_from(entry.index).ok());
        let Some(sgid_index) = meant else {
            return Err(Error::os(OPERATION, subject(), Errno::ENOENT));
        };
        address.is_global = 1;
        address.grh = ib_uverbs_global_route {
            dgid: header.source.0,
            flow_label: header.flow_label,
            sgid_index,
            hop_limit: header.hop_limit,
            traffic_class: header.traffic_class,
            reserved: 0,
        };
        Ok(address)
    }
}

/// Returns `true` if the GID is that of a multicast group.
fn is_group(gid: Gid) -> bool {
    let address = Ipv6Addr::from(gid);
    let v4 = address.to_ipv4_mapped();
    v4.map_or_else(|| address.is_multicast(), |v4| v4.is_multicast())
}

fn part<const N: usize>(bytes: &[u8; GRH_LENGTH], at: usize) -> [u8; N] {
    bytes[at..at + N].try_into().expect("the slice has the length")
}

#[cfg(test)]
mod tests;
