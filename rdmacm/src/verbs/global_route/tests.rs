use verbs_abi::{ib_uverbs_wc, ib_wc_flags};

use super::*;
use crate::verbs::null_device::context;

/// Returns a header as rxe stores it: unused bytes, then the IP header (RFC 791).
///
/// The datagram goes from 10.0.0.2 to 10.0.0.1, with time to live 64 and type of service 8.
fn ipv4() -> [u8; GRH_LENGTH] {
    ipv4_from(10)
}

/// Returns a header like [`ipv4`], from an address with this first byte.
fn ipv4_from(first: u8) -> [u8; GRH_LENGTH] {
    let mut bytes = [0; GRH_LENGTH];
    bytes[IPV4..].copy_from_slice(&[
        0x45, 8, 0, 160, 0x12, 0x34, 0x40, 0, 64, 17, 0, 0, first, 0, 0, 2, 10, 0, 0, 1,
    ]);
    let sum: u32 = bytes[IPV4..]
        .chunks(2)
        .map(|word| u32::from(u16::from_be_bytes(word.try_into().unwrap())))
        .sum();
    let checksum = !u16::try_from((sum & 0xffff) + (sum >> 16)).unwrap();
    bytes[IPV4 + 10..IPV4 + 12].copy_from_slice(&checksum.to_be_bytes());
    bytes
}

/// Returns an IPv6 header (RFC 8200) from fd00::2 to fd00::1.
///
/// The traffic class is 0xa5, the flow label 0x12345 and the hop limit 63.
fn ipv6(next: u8) -> [u8; GRH_LENGTH] {
    let mut bytes = [0; GRH_LENGTH];
    bytes[..8].copy_from_slice(&[0x6a, 0x51, 0x23, 0x45, 0, 140, next, 63]);
    (bytes[8], bytes[23], bytes[24], bytes[39]) = (0xfd, 2, 0xfd, 1);
    bytes
}

fn gid(text: &str) -> Gid {
    text.parse::<Ipv6Addr>().unwrap().into()
}

#[test]
fn ipv4_header_is_parsed_from_end() {
    let header = Header::parse(&ipv4()).unwrap();
    assert_eq!(header.source, gid("::ffff:10.0.0.2"));
    assert_eq!(header.destination, gid("::ffff:10.0.0.1"));
    assert_eq!((header.kind, header.hop_limit), (GidType::RoceV2, 64));
    assert_eq!(header.traffic_class, 8);
}

#[test]
fn checksum_distinguishes_ipv4_from_stale_bytes() {
    // With the second address, the sum has a carry.
    for first in [10, 200] {
        let mut bytes = ipv4_from(first);
        bytes[0] = 0x60;
        assert!(is_ipv4(&bytes), "{first}");
        bytes[IPV4 + 10] ^= 1;
        assert!(!is_ipv4(&bytes), "{first}");
    }
    // The checksum is right, but RoCE sends no options of IPv4.
    let mut bytes = ipv4();
    bytes[0] = 0x60;
    bytes[IPV4] = 0x46;
    bytes[IPV4 + 10] -= 1;
    assert!(!is_ipv4(&bytes));
}

#[test]
fn ipv6_header_names_transport() {
    let header = Header::parse(&ipv6(NEXT_UDP)).unwrap();
    assert_eq!((header.source, header.destination), (gid("fd00::2"), gid("fd00::1")));
    assert_eq!((header.kind, header.hop_limit), (GidType::RoceV2, 63));
    assert_eq!((header.traffic_class, header.flow_label), (0xa5, 0x12345));
    assert_eq!(Header::parse(&ipv6(NEXT_BTH)).unwrap().kind, GidType::RoceV1);
    assert!(Header::parse(&ipv6(6)).is_err());
}

#[test]
fn groups_are_no_addresses_to_reply_from() {
    assert!(is_group(gid("::ffff:239.1.2.3")) && is_group(gid("ff0e::1")));
    for address in ["::ffff:10.0.0.1", "fd00::1", "::efff:1", "fe80::ff02"] {
        assert!(!is_group(gid(address)), "{address}");
    }
    assert!(Header::parse(&[0; GRH_LENGTH]).is_err());
}

/// Returns the source of a datagram with this completion and header.
fn source(has_header: bool, header: &[u8; GRH_LENGTH]) -> Result<DatagramSource> {
    let wc_flags = if has_header { ib_wc_flags::IB_WC_GRH } else { ib_wc_flags::empty() };
    let completion = Completion(ib_uverbs_wc {
        wc_flags,
        src_qp: 17,
        slid: 18,
        sl: 3,
        dlid_path_bits: 5,
        ..ib_uverbs_wc::default()
    });
    DatagramSource::new(&completion, header)
}

#[test]
fn source_has_addresses_of_header() {
    let datagram = source(true, &ipv4()).unwrap();
    assert_eq!((datagram.qp_num(), datagram.lid()), (17, 18));
    assert_eq!((datagram.service_level, datagram.path_bits), (3, 5));
    assert_eq!(datagram.gid(), Some(gid("::ffff:10.0.0.2")));
    assert_eq!(datagram.destination(), Some(gid("::ffff:10.0.0.1")));
    assert!(!datagram.is_to_group());
    let to_group = datagram.sent_to(gid("::ffff:239.1.2.3"));
    assert!(to_group.is_to_group());
    assert_eq!(to_group.gid(), datagram.gid());
    assert_eq!(to_group.sent_to(gid("::ffff:10.0.0.1")), datagram);
    assert_eq!(source(true, &[0; GRH_LENGTH]).unwrap_err().errno(), libc::EINVAL);
    let local = source(false, &ipv4()).unwrap();
    assert_eq!((local.gid(), local.destination(), local.is_to_group()), (None, None, false));
}

#[test]
fn local_source_becomes_address() {
    let address = source(false, &ipv4()).unwrap().address(&context(), 2);
    let expected = ib_uverbs_ah_attr {
        dlid: 18,
        sl: 3,
        src_path_bits: 5,
        port_num: 2,
        ..ib_uverbs_ah_attr::default()
    };
    assert_eq!(address.unwrap(), expected);
}
