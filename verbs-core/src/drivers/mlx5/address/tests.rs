use super::*;
use nix::errno::Errno;
use verbs_abi::ioctl::IB_UVERBS_GID_TYPE_ROCE_V1;
use zerocopy::IntoBytes as _;

fn attributes() -> ib_uverbs_ah_attr {
    let mut attributes = ib_uverbs_ah_attr::default();
    attributes.grh.dgid = std::array::from_fn(|at| u8::try_from(at).expect("16 fits"));
    attributes.grh.flow_label = 0x12345;
    attributes.grh.sgid_index = 3;
    attributes.grh.hop_limit = 64;
    attributes.grh.traffic_class = 8;
    attributes.dlid = 0x1234;
    attributes.sl = 5;
    attributes.src_path_bits = 9;
    attributes.static_rate = 2;
    attributes.is_global = 1;
    attributes
}

#[test]
fn ethernet_address_has_mac_and_source_port() {
    let network = Network::Ethernet { mac: [1, 2, 3, 4, 5, 6], has_source_port: true };
    let vector = vector(&attributes(), network);
    let bytes = vector.as_bytes();
    assert_eq!(bytes[..12], [0; 12]);
    assert_eq!(bytes[12..16], [0x7a, 0, 0xe3, 0x41]);
    assert_eq!(bytes[16..32], [0, 0, 0, 0, 1, 2, 3, 4, 5, 6, 8, 64, 0, 0x31, 0x23, 0x45]);
    assert_eq!(bytes[32..], attributes().grh.dgid);
}

#[test]
fn addresses_without_flow_label_have_several_ports() {
    let ports: Vec<_> = (0..100).map(|_| source_port(0)).collect();
    assert!(ports.iter().all(|port| (0xc000..=0xffff).contains(port)));
    assert!(ports.iter().any(|port| *port != ports[0]), "packets should take different paths");
}

#[test]
fn first_version_of_roce_has_no_source_port() {
    let network = Network::Ethernet { mac: [0; 6], has_source_port: false };
    assert_eq!(vector(&attributes(), network).as_bytes()[12..16], [0x7a, 0, 0, 0]);
}

/// As in libmlx5, only an address of RoCE v2 has a source port.
///
/// If the query fails, libmlx5 creates no address.
#[test]
fn source_port_depends_on_type_of_gid() {
    let of_type = |gid_type| Ok(ib_uverbs_gid_entry { gid_type, ..Default::default() });
    for (source, port) in [
        (of_type(IB_UVERBS_GID_TYPE_ROCE_V1), [0, 0]),
        (of_type(IB_UVERBS_GID_TYPE_ROCE_V2), [0xe3, 0x41]),
        (Err(CommandError::Os(Errno::EPROTONOSUPPORT)), [0xe3, 0x41]),
    ] {
        let network = Network::ethernet([1, 2, 3, 4, 5, 6], source);
        let vector = vector(&attributes(), network);
        assert_eq!(vector.as_bytes()[14..16], port, "{source:?}");
        assert_eq!(vector.as_bytes()[20..26], [1, 2, 3, 4, 5, 6]);
    }
}

#[test]
fn static_rates_have_codes_of_device() {
    // 2.5, 10, 40, 56, 100 and 200 Gb/s, and a rate of a later kernel.
    assert_eq!([2, 3, 7, 12, 16, 17, 200].map(rate), [7, 8, 12, 13, 15, 0, 0]);
}

#[test]
fn infiniband_address_has_lid_and_route() {
    let vector_of = |attributes: &ib_uverbs_ah_attr| vector(attributes, Network::InfiniBand);
    let vector = vector_of(&attributes());
    assert_eq!(vector.as_bytes()[12..16], [0x75, 9, 0x12, 0x34]);
    assert_eq!(vector.as_bytes()[26..32], [8, 64, 0x40, 0x31, 0x23, 0x45]);
    let local = ib_uverbs_ah_attr { is_global: 0, ..attributes() };
    assert_eq!(vector_of(&local).as_bytes()[16..], [0; 32]);
}
