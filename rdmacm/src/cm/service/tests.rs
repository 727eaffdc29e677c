use verbs_abi::{Be16, Be64};
use zerocopy::FromZeros;

use super::*;

#[test]
fn service_text_is_number_or_name() {
    let id = |text| wanted_service(text).map(|service| (service.service_id.get(), service.flags));
    let by_id = rdma_ucm_ib_service_flags::RDMA_USER_CM_IB_SERVICE_FLAG_ID;
    let by_name = rdma_ucm_ib_service_flags::RDMA_USER_CM_IB_SERVICE_FLAG_NAME;
    assert_eq!(id("0x10000000013f1c06"), Some((0x1000_0000_013f_1c06, by_id)));
    assert_eq!(id("4919"), Some((4919, by_id)));
    assert_eq!(id("010"), Some((8, by_id)));
    assert_eq!(id("0"), Some((0, by_id)));
    for name in ["storage", "0xg", "+5", "-5", "09", "99999999999999999999"] {
        assert_eq!(id(name), Some((0, by_name)), "{name}");
    }
    let storage = wanted_service("storage").expect("the name should be accepted");
    assert_eq!(&storage.service_name[..8], b"storage\0");
    assert!(wanted_service(&"x".repeat(63)).is_some());
    for name in [String::new(), "x".repeat(64), "a\0b".into()] {
        assert!(wanted_service(&name).is_none(), "{name:?}");
    }
}

#[test]
fn service_record_becomes_address() {
    let mut record = ib_user_service_rec::new_zeroed();
    record.id = Be64::new(0x1000_0000_013f_1c06);
    record.gid = [0xfe; 16];
    record.pkey = Be16::new(0x8001);
    let info = service_info(&record);
    let Some(addr::Address::Ib(peer)) = info.dst_addr else { panic!("{info:?}") };
    assert_eq!((peer.service_id, peer.service_id_mask), (0x1000_0000_013f_1c06, u64::MAX));
    assert_eq!((peer.gid, peer.pkey), (Gid([0xfe; 16]), 0x8001));
    assert_eq!((info.port_space, info.flags), (PortSpace::Ib, AddrInfoFlags::SA));
}
