use super::super::port_space::PortSpace;
use super::*;

#[test]
fn ipv4_is_encoded_as_sockaddr_in() {
    let address = Address::from(([10, 0, 0, 1], 7174));
    let encoded = encode(&address);
    assert_eq!(encoded.length, 16);
    // family AF_INET in host order, port 7174 in network order, address
    assert_eq!(encoded.slot[..8], [2, 0, 0x1c, 0x06, 10, 0, 0, 1]);
    assert!(encoded.slot[8..].iter().all(|byte| *byte == 0));
    assert_eq!(decode(&encoded.slot), Some(address));
    assert_eq!(address.to_string(), "10.0.0.1:7174");
    assert_eq!(address.ip(), Some(([10, 0, 0, 1], 7174).into()));
}

#[test]
fn ipv6_keeps_its_scope() {
    let ip = "fe80::1".parse().expect("an address");
    let address = SocketAddrV6::new(ip, 20079, 3, 7).into();
    let encoded = encode(&address);
    assert_eq!(encoded.length, 28);
    assert_eq!(encoded.slot[24..28], 7_u32.to_ne_bytes());
    assert_eq!(decode(&encoded.slot), Some(address));
    assert_eq!((address.family(), address.port()), (AddressFamily::Inet6, 20079));
}

#[test]
fn ib_is_encoded_as_sockaddr_ib() {
    let gid = Gid::from("fe80::5".parse::<Ipv6Addr>().expect("a GID"));
    let mut ib = IbAddress::new(gid, PortSpace::Tcp, 7174);
    ib.flowinfo = 0x000a_bcde;
    ib.scope_id = 9;
    let address = Address::from(ib);
    let encoded = encode(&address);
    assert_eq!(encoded.length, 48);
    let mut golden = Vec::new();
    golden.extend(27_u16.to_ne_bytes());
    golden.extend([0xff, 0xff, 0, 0x0a, 0xbc, 0xde]); // P_Key, flow label
    golden.extend([0xfe, 0x80, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 5]);
    golden.extend([0, 0, 0, 0, 0x01, 0x06, 0x1c, 0x06]); // service id: port space and port
    golden.extend([0xff; 8]); // all of it counts
    golden.extend(9_u64.to_ne_bytes());
    assert_eq!(encoded.slot[..48], golden);
    assert!(encoded.slot[48..].iter().all(|byte| *byte == 0));
    assert_eq!(decode(&encoded.slot), Some(address));
    assert_eq!((address.family(), address.port(), address.ip()), (AddressFamily::Ib, 7174, None));
    assert_eq!(address.to_string(), "[fe80::5]:0x1061c06");
}

#[test]
fn malformed_bytes_decode_to_none() {
    for length in 0..60 {
        for family in [0, 2, 10, 27, 28, 0xffff_u16] {
            let mut bytes = vec![0xa5; length];
            bytes.iter_mut().zip(family.to_ne_bytes()).for_each(|(at, byte)| *at = byte);
            let expected = (family == 2 && length >= 8)
                || (family == 10 && length >= 28)
                || (family == 27 && length >= 48);
            assert_eq!(decode(&bytes).is_some(), expected, "{family} {length}");
        }
    }
}
