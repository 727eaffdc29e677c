//! Ids for datagrams: what they are, and how two of them find each other.

use rdmacm::cm::{CmId, PortSpace, Service};
use rdmacm::verbs::QpType;

use crate::bed::{assert_invalid, channel, rxe};

#[test]
#[ignore = "needs the test bed: cargo xtask test"]
fn a_port_space_has_its_types_of_queue_pairs() {
    use QpType as T;
    let channel = channel();
    let types = [
        T::IB_UVERBS_QPT_RC,
        T::IB_UVERBS_QPT_UC,
        T::IB_UVERBS_QPT_UD,
        T::IB_UVERBS_QPT_RAW_PACKET,
        T::IB_UVERBS_QPT_XRC_INI,
        T::IB_UVERBS_QPT_XRC_TGT,
        T(0),
    ];
    for (space, usual, allowed) in [
        (PortSpace::Tcp, T::IB_UVERBS_QPT_RC, &types[..1]),
        (PortSpace::Udp, T::IB_UVERBS_QPT_UD, &types[2..3]),
        (PortSpace::IpoIb, T::IB_UVERBS_QPT_UD, &types[2..3]),
        (PortSpace::Ib, T::IB_UVERBS_QPT_RC, &types[..]),
    ] {
        let id = CmId::new(&channel, space).expect("create an id");
        assert_eq!((id.port_space(), id.qp_type()), (space, usual));
        for qp_type in types {
            let known = qp_type.0 != 0 && qp_type != T::IB_UVERBS_QPT_RAW_PACKET;
            match CmId::with_qp_type(&channel, space, qp_type) {
                Ok(id) => {
                    assert!(allowed.contains(&qp_type) && known, "{space:?} {qp_type}");
                    let datagram = qp_type == T::IB_UVERBS_QPT_UD;
                    let service = if datagram { Service::Datagram } else { Service::Connected };
                    assert_eq!((id.qp_type(), id.service()), (qp_type, service));
                    // Over IP addresses IPoIB needs an InfiniBand link, and there is none here.
                    let is_refused = space == PortSpace::IpoIb;
                    let bound = id.bind(rxe(0)).map_err(|error| error.errno());
                    assert_eq!(bound.err(), is_refused.then_some(libc::EINVAL), "{space:?}");
                }
                Err(error) => {
                    assert!(!allowed.contains(&qp_type) || !known, "{space:?} {qp_type}: {error}");
                    assert_invalid(&error, &["create an id", &format!("{space:?}")]);
                }
            }
        }
    }
}
