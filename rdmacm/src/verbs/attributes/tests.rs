use super::*;

#[test]
fn only_set_attributes_are_in_mask() {
    let attributes = QueuePairAttributes::to(QpState::IB_QPS_RTS).sq_psn(0).timeout(14);
    let mask = Mask::IB_QP_STATE | Mask::IB_QP_SQ_PSN | Mask::IB_QP_TIMEOUT;
    let expected = ib_uverbs_qp_attr {
        qp_attr_mask: mask.bits(),
        qp_state: 3,
        timeout: 14,
        ..ib_uverbs_qp_attr::default()
    };
    assert_eq!(*attributes, expected);
}

#[test]
fn only_kernel_attributes_are_left_out() {
    let all = ib_uverbs_qp_attr { qp_attr_mask: u32::MAX, ..ib_uverbs_qp_attr::default() };
    let request = modification(1, &QueuePairAttributes::from(all));
    assert_eq!(request.attr_mask.bits(), u32::MAX ^ 0x1e0_0000);
}

#[test]
fn alternate_path_has_port_of_its_address() {
    let address = ib_uverbs_ah_attr { port_num: 2, ..ib_uverbs_ah_attr::default() };
    let attributes = QueuePairAttributes::default().alternate(address, 3, 4);
    assert_eq!(attributes.qp_attr_mask, Mask::IB_QP_ALT_PATH.bits());
    let alternate = (attributes.alt_port_num, attributes.alt_pkey_index, attributes.alt_timeout);
    assert_eq!((attributes.alt_ah_attr, alternate), (address, (2, 3, 4)));
}

/// Each method with the flag that it sets, and with the attribute that it writes.
#[test]
fn each_method_sets_its_attribute_and_flag() {
    type Set = fn(QueuePairAttributes) -> QueuePairAttributes;
    type Write = fn(&mut ib_uverbs_qp_attr);
    let cases: [(Mask, Set, Write); 17] = [
        (
            Mask::IB_QP_CUR_STATE,
            |a| a.from_state(QpState::IB_QPS_RTR),
            |a| a.cur_qp_state = QpState::IB_QPS_RTR.0.into(),
        ),
        (
            Mask::IB_QP_EN_SQD_ASYNC_NOTIFY,
            |a| a.en_sqd_async_notify(true),
            |a| a.en_sqd_async_notify = 1,
        ),
        (
            Mask::IB_QP_ACCESS_FLAGS,
            |a| a.access(AccessFlags::IB_UVERBS_ACCESS_REMOTE_READ),
            |a| a.qp_access_flags = AccessFlags::IB_UVERBS_ACCESS_REMOTE_READ.bits(),
        ),
        (Mask::IB_QP_PKEY_INDEX, |a| a.pkey_index(3), |a| a.pkey_index = 3),
        (Mask::IB_QP_PORT, |a| a.port(2), |a| a.port_num = 2),
        (Mask::IB_QP_QKEY, |a| a.qkey(5), |a| a.qkey = 5),
        (Mask::IB_QP_AV, |a| a.address(address()), |a| a.ah_attr = address()),
        (
            Mask::IB_QP_PATH_MTU,
            |a| a.path_mtu(ib_mtu::IB_MTU_1024),
            |a| a.path_mtu = ib_mtu::IB_MTU_1024.0.into(),
        ),
        (Mask::IB_QP_TIMEOUT, |a| a.timeout(14), |a| a.timeout = 14),
        (Mask::IB_QP_RETRY_CNT, |a| a.retry_cnt(7), |a| a.retry_cnt = 7),
        (Mask::IB_QP_RNR_RETRY, |a| a.rnr_retry(6), |a| a.rnr_retry = 6),
        (Mask::IB_QP_RQ_PSN, |a| a.rq_psn(9), |a| a.rq_psn = 9),
        (Mask::IB_QP_MAX_QP_RD_ATOMIC, |a| a.max_rd_atomic(1), |a| a.max_rd_atomic = 1),
        (Mask::IB_QP_MAX_DEST_RD_ATOMIC, |a| a.max_dest_rd_atomic(4), |a| a.max_dest_rd_atomic = 4),
        (Mask::IB_QP_MIN_RNR_TIMER, |a| a.min_rnr_timer(12), |a| a.min_rnr_timer = 12),
        (Mask::IB_QP_DEST_QPN, |a| a.dest_qp_num(77), |a| a.dest_qp_num = 77),
        (
            Mask::IB_QP_PATH_MIG_STATE,
            |a| a.path_mig_state(ib_mig_state::IB_MIG_REARM),
            |a| a.path_mig_state = ib_mig_state::IB_MIG_REARM.0.into(),
        ),
    ];
    for (flag, set, write) in cases {
        let attributes = set(QueuePairAttributes::to(QpState::IB_QPS_RTR));
        let mut expected = *QueuePairAttributes::to(QpState::IB_QPS_RTR);
        expected.qp_attr_mask |= flag.bits();
        write(&mut expected);
        assert_eq!(*attributes, expected, "{flag:?}");
        assert_eq!(attributes.step(), Some(QpState::IB_QPS_RTR));
        assert_eq!(set(QueuePairAttributes::default()).step(), None, "{flag:?}");
    }
}

/// Returns an address, each of whose fields has a value of its own.
fn address() -> ib_uverbs_ah_attr {
    let mut address = ib_uverbs_ah_attr {
        dlid: 1,
        sl: 2,
        src_path_bits: 3,
        static_rate: 4,
        is_global: 1,
        port_num: 5,
        ..ib_uverbs_ah_attr::default()
    };
    address.grh.dgid = [6; 16];
    address.grh.flow_label = 7;
    address.grh.sgid_index = 8;
    address.grh.hop_limit = 9;
    address.grh.traffic_class = 10;
    address
}

#[test]
fn commands_carry_address_rate_limit_and_handle() {
    let other = ib_uverbs_ah_attr { dlid: 11, ..address() };
    let attributes = QueuePairAttributes::default().address(address()).alternate(other, 0, 0);
    let change = change(12, &attributes.rate_limit(13));
    assert_eq!((change.base.qp_handle, change.rate_limit), (12, Some(13)));
    let expected = ib_uverbs_qp_dest {
        dgid: [6; 16],
        flow_label: 7,
        dlid: 1,
        reserved: 0,
        sgid_index: 8,
        hop_limit: 9,
        traffic_class: 10,
        sl: 2,
        src_path_bits: 3,
        static_rate: 4,
        is_global: 1,
        port_num: 5,
    };
    assert_eq!(change.base.dest, expected);
    assert_eq!(change.base.alt_dest, ib_uverbs_qp_dest { dlid: 11, ..expected });
    let query = query(14);
    let known = Mask::IB_QP_STATE | Mask::IB_QP_RATE_LIMIT | Mask::IB_QP_DEST_QPN;
    assert_eq!((query.qp_handle, query.attr_mask & known), (14, known - Mask::IB_QP_RATE_LIMIT));
}
