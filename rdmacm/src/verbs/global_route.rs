//! The global route header in front of a received datagram, and the way back that follows from it.

use std::net::Ipv4Addr;

use nix::errno::Errno;
use verbs_abi::{ib_uverbs_ah_attr, ib_uverbs_global_route, ib_wc_flags};

use super::work_completion::Completion;
use crate::device::{Device, Gid, GidType};
use crate::error::{Error, Result};

/// Bytes in front of a datagram in the memory that receives it, where the device stores the global
/// route header, or leaves room for it.
///
/// A receive on a queue pair for datagrams needs this much more memory than the message, and
/// [`byte_len`](Completion::byte_len) counts it.
#[doc(alias = "ibv_grh")]
pub const GRH_LENGTH: usize = 40;

/// Where an IPv4 header stands: at the end.
const IPV4: usize = 20;
/// Next headers of IPv6: UDP, and the base transport header of RoCE v1 and InfiniBand.
const NEXT_UDP: u8 = 17;
const NEXT_BTH: u8 = 0x1b;

/// What a header says.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Header {
    source: Gid,
    destination: Gid,
    kind: GidType,
    flow_label: u32,
    hop_limit: u8,
    traffic_class: u8,
}

impl Header {
    /// The header in `bytes`, or what is wrong with it.
    fn parse(bytes: &[u8; GRH_LENGTH]) -> Result<Self, &'static str> {
        let flow_class = u32::from_be_bytes(part(bytes, 0));
        let flow_label = flow_class & 0xf_ffff;
        if is_ipv4(bytes) {
            let gid = |at| Gid::from(Ipv4Addr::from(part::<4>(bytes, at)).to_ipv6_mapped());
            let destination = part(bytes, IPV4 + 16);
            if Ipv4Addr::from(destination).is_multicast() {
                return Err(GROUP);
            }
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
            _ => return Err("its header is neither of InfiniBand nor of IP with UDP"),
        };
        let (source, destination) = (Gid(part(bytes, 8)), Gid(part(bytes, 24)));
        if destination.0[0] == 0xff {
            return Err(GROUP);
        }
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

const GROUP: &str = "it came to a multicast group, not to an address of the port";

/// Whether the last 20 bytes are an IPv4 header. Where the first ones could be IPv6 the checksum
/// decides: there they are the tail of an address.
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

/// The address of who sent the datagram that `completion` is about, as `port` of `device` reaches
/// it.
pub(super) fn sender(
    device: &Device,
    completion: &Completion,
    header: &[u8; GRH_LENGTH],
    port: u8,
) -> Result<ib_uverbs_ah_attr> {
    const OPERATION: &str = "find the sender of";
    let subject = || format!("a datagram on port {port} of {}", device.name());
    let wc = &completion.0;
    let mut address = ib_uverbs_ah_attr {
        dlid: wc.slid,
        sl: wc.sl,
        src_path_bits: wc.dlid_path_bits,
        port_num: port,
        ..ib_uverbs_ah_attr::default()
    };
    if !completion.flags().contains(ib_wc_flags::IB_WC_GRH) {
        return Ok(address);
    }
    let header = Header::parse(header).map_err(|why| Error::invalid(OPERATION, subject(), why))?;
    let mut entries = device.port(port.into())?.gids()?;
    let meant = entries
        .find(|entry| entry.gid == header.destination && entry.kind == Some(header.kind))
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

fn part<const N: usize>(bytes: &[u8; GRH_LENGTH], at: usize) -> [u8; N] {
    bytes[at..at + N].try_into().expect("the slice has the length")
}

#[cfg(test)]
mod tests {
    use super::*;

    /// As rxe stores it: nothing, then the IP header (RFC 791) of a datagram from 10.0.0.2 to
    /// 10.0.0.1, time to live 64, type of service 8.
    fn ipv4() -> [u8; GRH_LENGTH] {
        let mut bytes = [0; GRH_LENGTH];
        bytes[IPV4..].copy_from_slice(&[
            0x45, 8, 0, 160, 0x12, 0x34, 0x40, 0, 64, 17, 0, 0, 10, 0, 0, 2, 10, 0, 0, 1,
        ]);
        let sum: u32 = bytes[IPV4..]
            .chunks(2)
            .map(|word| u32::from(u16::from_be_bytes(word.try_into().unwrap())))
            .sum();
        let checksum = !u16::try_from((sum & 0xffff) + (sum >> 16)).unwrap();
        bytes[IPV4 + 10..IPV4 + 12].copy_from_slice(&checksum.to_be_bytes());
        bytes
    }

    /// An IPv6 header (RFC 8200) from fd00::2 to fd00::1: traffic class 0xa5, flow label 0x12345,
    /// hop limit 63.
    fn ipv6(next: u8) -> [u8; GRH_LENGTH] {
        let mut bytes = [0; GRH_LENGTH];
        bytes[..8].copy_from_slice(&[0x6a, 0x51, 0x23, 0x45, 0, 140, next, 63]);
        (bytes[8], bytes[23], bytes[24], bytes[39]) = (0xfd, 2, 0xfd, 1);
        bytes
    }

    fn gid(text: &str) -> Gid {
        text.parse::<std::net::Ipv6Addr>().unwrap().into()
    }

    #[test]
    fn ipv4_stands_at_the_end() {
        let header = Header::parse(&ipv4()).unwrap();
        assert_eq!(header.source, gid("::ffff:10.0.0.2"));
        assert_eq!(header.destination, gid("::ffff:10.0.0.1"));
        assert_eq!((header.kind, header.hop_limit), (GidType::RoceV2, 64));
        assert_eq!(header.traffic_class, 8);
    }

    #[test]
    fn the_checksum_tells_ipv4_from_what_was_there_before() {
        let mut bytes = ipv4();
        bytes[0] = 0x60;
        assert!(is_ipv4(&bytes));
        bytes[IPV4 + 10] ^= 1;
        assert!(!is_ipv4(&bytes));
    }

    #[test]
    fn ipv6_says_which_transport_it_carries() {
        let header = Header::parse(&ipv6(NEXT_UDP)).unwrap();
        assert_eq!((header.source, header.destination), (gid("fd00::2"), gid("fd00::1")));
        assert_eq!((header.kind, header.hop_limit), (GidType::RoceV2, 63));
        assert_eq!((header.traffic_class, header.flow_label), (0xa5, 0x12345));
        assert_eq!(Header::parse(&ipv6(NEXT_BTH)).unwrap().kind, GidType::RoceV1);
        assert!(Header::parse(&ipv6(6)).is_err());
    }

    #[test]
    fn groups_are_no_addresses_to_reply_from() {
        let mut bytes = ipv4();
        bytes[IPV4 + 16] = 239;
        assert_eq!(Header::parse(&bytes), Err(GROUP));
        let mut bytes = ipv6(NEXT_UDP);
        bytes[24] = 0xff;
        assert_eq!(Header::parse(&bytes), Err(GROUP));
        assert!(Header::parse(&[0; GRH_LENGTH]).is_err());
    }
}
