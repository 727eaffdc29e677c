//! Each attribute of a queue pair as the kernel passes it to `kt0`, which stores the values.

use rdmacm::ErrorKind;
use rdmacm::cm::ConnParam;
use rdmacm::verbs::{
    AccessFlags, Mtu, QpState, QpType, QueuePair, QueuePairAttributes as Attributes, XrcDomain,
    XrcTarget,
};
use rdmacm::verbs_abi::{ib_mig_state, ib_uverbs_ah_attr, ib_uverbs_qp_dest};

use crate::fixtures::{Connection, roce, siw};
use crate::io::Shape;
use crate::kt::Kt;
use crate::node::{Node, attributes};

fn modify(qp: &QueuePair, attributes: Attributes) {
    qp.modify(&attributes).expect("modify");
}

fn path(dlid: u16) -> ib_uverbs_ah_attr {
    ib_uverbs_ah_attr {
        dlid,
        sl: 3,
        src_path_bits: 1,
        static_rate: 2,
        port_num: 1,
        ..ib_uverbs_ah_attr::default()
    }
}

fn leads_to(destination: &ib_uverbs_qp_dest, path: &ib_uverbs_ah_attr) -> bool {
    let ib_uverbs_qp_dest { dlid, sl, src_path_bits, static_rate, is_global, port_num, .. } =
        *destination;
    (dlid, sl, src_path_bits, static_rate, is_global, port_num)
        == (path.dlid, path.sl, path.src_path_bits, path.static_rate, 0, path.port_num)
}

#[test]
#[ignore = "needs the test bed: cargo xtask test"]
fn query_returns_modified_attributes() {
    let kt = Kt::load();
    let Node { qp, .. } = Node::new(&kt.context(), QpType::IB_UVERBS_QPT_RC, 16);
    let access =
        AccessFlags::IB_UVERBS_ACCESS_REMOTE_READ | AccessFlags::IB_UVERBS_ACCESS_REMOTE_ATOMIC;
    modify(&qp, Attributes::to(QpState::IB_QPS_INIT).pkey_index(0).port(1).access(access));
    let receive = Attributes::to(QpState::IB_QPS_RTR)
        .address(path(7))
        .path_mtu(Mtu::IB_MTU_2048)
        .dest_qp_num(0x12_3456)
        .rq_psn(0x65_4321)
        .max_dest_rd_atomic(5)
        .min_rnr_timer(9)
        .alternate(path(8), 0, 11);
    modify(&qp, receive);
    let queried = qp.query().expect("query");
    assert_eq!(
        (queried.qp_state, queried.cur_qp_state),
        (QpState::IB_QPS_RTR, QpState::IB_QPS_RTR)
    );
    assert_eq!((queried.qp_access_flags, queried.port_num, queried.pkey_index), (access, 1, 0));
    assert!(leads_to(&queried.dest, &path(7)), "{:?}", queried.dest);
    assert!(leads_to(&queried.alt_dest, &path(8)), "{:?}", queried.alt_dest);
    assert_eq!((queried.alt_port_num, queried.alt_pkey_index, queried.alt_timeout), (1, 0, 11));
    assert_eq!(queried.path_mtu, Mtu::IB_MTU_2048);
    assert_eq!((queried.dest_qp_num, queried.rq_psn), (0x12_3456, 0x65_4321));
    assert_eq!((queried.max_dest_rd_atomic, queried.min_rnr_timer), (5, 9));
    let send = Attributes::to(QpState::IB_QPS_RTS)
        .from_state(QpState::IB_QPS_RTR)
        .timeout(14)
        .retry_cnt(5)
        .rnr_retry(6)
        .sq_psn(0xab_cdef)
        .max_rd_atomic(4)
        .path_mig_state(ib_mig_state::IB_MIG_REARM);
    modify(&qp, send);
    let queried = qp.query().expect("query");
    assert_eq!(
        (queried.qp_state, queried.path_mig_state),
        (QpState::IB_QPS_RTS, ib_mig_state::IB_MIG_REARM)
    );
    assert_eq!((queried.timeout, queried.retry_cnt, queried.rnr_retry), (14, 5, 6));
    assert_eq!((queried.sq_psn, queried.max_rd_atomic), (0xab_cdef, 4));
    // These calls do not change the state.
    modify(&qp, Attributes::default().access(AccessFlags::empty()).min_rnr_timer(3));
    modify(&qp, Attributes::to(QpState::IB_QPS_SQD).en_sqd_async_notify(true));
    modify(&qp, Attributes::to(QpState::IB_QPS_RTS).from_state(QpState::IB_QPS_SQD));
    let queried = qp.query().expect("query");
    assert_eq!((queried.qp_access_flags, queried.min_rnr_timer), (AccessFlags::empty(), 3));
    // These values do not fit the state or the device.
    for attributes in [
        Attributes::to(QpState::IB_QPS_SQD).from_state(QpState::IB_QPS_SQD),
        Attributes::to(QpState::IB_QPS_INIT),
        Attributes::to(QpState(9)),
    ] {
        let error = qp.modify(&attributes).expect_err("the queue pair should be in RTS");
        assert_eq!(error.errno(), libc::EINVAL, "{error}");
    }
    assert_eq!(qp.query().expect("query").qp_state, QpState::IB_QPS_RTS);
}

/// The maximum rate that `kt0` paces, in kbit/s.
const MOST: u32 = 1_000_000;

#[test]
#[ignore = "needs the test bed: cargo xtask test"]
fn rate_limit_reaches_pacing_driver() {
    let kt = Kt::load();
    let context = kt.context();
    let node = Node::new(&context, QpType::IB_UVERBS_QPT_RC, 16);
    node.connect(node.qp.number());
    modify(&node.qp, Attributes::default().rate_limit(MOST));
    modify(&node.qp, Attributes::default().rate_limit(0).min_rnr_timer(3));
    assert_eq!(node.qp.query().expect("query").min_rnr_timer, 3);
    let fast = Attributes::default().rate_limit(MOST + 1).min_rnr_timer(4);
    let error = node.qp.modify(&fast).expect_err("the rate should exceed that of the device");
    assert_eq!(error.errno(), libc::EINVAL, "{error}");
    assert_eq!(node.qp.query().expect("query").min_rnr_timer, 3);
    // The rate is set together with a change of state. For a change to ERR the library sends two commands.
    modify(&node.qp, Attributes::to(QpState::IB_QPS_ERR).rate_limit(MOST));
    assert_eq!(node.qp.query().expect("query").qp_state, QpState::IB_QPS_ERR);
    let domain = XrcDomain::new(&context).expect("a domain");
    let target = XrcTarget::new(&domain).expect("a target");
    let step = attributes(QpType::IB_UVERBS_QPT_XRC_TGT, QpState::IB_QPS_INIT, 0);
    let error = target
        .modify(&step.rate_limit(MOST + 1))
        .expect_err("the rate should exceed that of the device");
    assert_eq!(error.errno(), libc::EINVAL, "{error}");
    target.modify(&step.rate_limit(MOST)).expect("modify");
}

#[test]
#[ignore = "needs the test bed: cargo xtask test"]
fn rate_limit_is_refused_by_rxe_and_siw() {
    for address in [roce(0), siw(0)] {
        let connection = Connection::to(address, Shape::default(), &ConnParam::default());
        let qp = connection.client.io.qp();
        // A flag that no kernel knows is refused, and so is a flag without its value.
        let unknown = [25, 26].map(|bit| {
            let mut attributes = *Attributes::default();
            attributes.qp_attr_mask = 1 << bit;
            attributes.into()
        });
        for attributes in unknown.into_iter().chain([Attributes::default().rate_limit(1000)]) {
            let error = qp.modify(&attributes).expect_err("the driver should refuse the attribute");
            assert!(matches!(error.kind(), ErrorKind::Unsupported(_)), "{error}");
            assert_eq!(error.errno(), libc::EOPNOTSUPP, "{error}");
        }
        connection.close();
    }
}

#[test]
#[ignore = "needs the test bed: cargo xtask test"]
fn datagram_qp_has_qkey_and_no_peer() {
    let kt = Kt::load();
    let Node { qp, .. } = Node::new(&kt.context(), QpType::IB_UVERBS_QPT_UD, 16);
    modify(&qp, Attributes::to(QpState::IB_QPS_INIT).pkey_index(0).port(1).qkey(0x1111_2222));
    assert_eq!(qp.query().expect("query").qkey, 0x1111_2222);
    let error = qp
        .modify(&Attributes::to(QpState::IB_QPS_RTR).dest_qp_num(1))
        .expect_err("a datagram queue pair should refuse a peer");
    assert_eq!(error.errno(), libc::EINVAL, "{error}");
    modify(&qp, Attributes::to(QpState::IB_QPS_RTR).qkey(0x3333_4444));
    modify(&qp, Attributes::to(QpState::IB_QPS_RTS).sq_psn(17));
    let queried = qp.query().expect("query");
    assert_eq!((queried.qkey, queried.sq_psn), (0x3333_4444, 17));
}
