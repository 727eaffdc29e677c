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

/// Checks the flag that each method sets, and the attribute that it writes.
#[test]
fn each_method_sets_its_attribute_and_flag() {
    type Set = fn(QueuePairAttributes) -> QueuePairAttributes;
    type Write = fn(&mut ib_uverbs_qp_attr);
    let cases: [(Mask, Set, Write); 18] = [
        (
            Mask::IB_QP_CUR_STATE,
            |with| with.from_state(QpState::IB_QPS_RTR),
            |raw| raw.cur_qp_state = QpState::IB_QPS_RTR.0.into(),
        ),
        (
            Mask::IB_QP_EN_SQD_ASYNC_NOTIFY,
            |with| with.en_sqd_async_notify(true),
            |raw| raw.en_sqd_async_notify = 1,
        ),
        (
            Mask::IB_QP_ACCESS_FLAGS,
            |with| with.access(AccessFlags::IB_UVERBS_ACCESS_REMOTE_READ),
            |raw| raw.qp_access_flags = AccessFlags::IB_UVERBS_ACCESS_REMOTE_READ.bits(),
        ),
        (Mask::IB_QP_PKEY_INDEX, |with| with.pkey_index(3), |raw| raw.pkey_index = 3),
        (Mask::IB_QP_PORT, |with| with.port(2), |raw| raw.port_num = 2),
        (Mask::IB_QP_QKEY, |with| with.qkey(5), |raw| raw.qkey = 5),
        (Mask::IB_QP_AV, |with| with.address(address()), |raw| raw.ah_attr = address()),
        (
            Mask::IB_QP_PATH_MTU,
            |with| with.path_mtu(ib_mtu::IB_MTU_1024),
            |raw| raw.path_mtu = ib_mtu::IB_MTU_1024.0.into(),
        ),
        (Mask::IB_QP_TIMEOUT, |with| with.timeout(14), |raw| raw.timeout = 14),
        (Mask::IB_QP_RETRY_CNT, |with| with.retry_cnt(7), |raw| raw.retry_cnt = 7),
        (Mask::IB_QP_RNR_RETRY, |with| with.rnr_retry(6), |raw| raw.rnr_retry = 6),
        (Mask::IB_QP_RQ_PSN, |with| with.rq_psn(9), |raw| raw.rq_psn = 9),
        (Mask::IB_QP_SQ_PSN, |with| with.sq_psn(8), |raw| raw.sq_psn = 8),
        (Mask::IB_QP_MAX_QP_RD_ATOMIC, |with| with.max_rd_atomic(1), |raw| raw.max_rd_atomic = 1),
        (
            Mask::IB_QP_MAX_DEST_RD_ATOMIC,
            |with| with.max_dest_rd_atomic(4),
            |raw| raw.max_dest_rd_atomic = 4,
        ),
        (Mask::IB_QP_MIN_RNR_TIMER, |with| with.min_rnr_timer(12), |raw| raw.min_rnr_timer = 12),
        (Mask::IB_QP_DEST_QPN, |with| with.dest_qp_num(77), |raw| raw.dest_qp_num = 77),
        (
            Mask::IB_QP_PATH_MIG_STATE,
            |with| with.path_mig_state(ib_mig_state::IB_MIG_REARM),
            |raw| raw.path_mig_state = ib_mig_state::IB_MIG_REARM.0.into(),
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
    let other = ib_uverbs_ah_attr { dlid: 11, port_num: 6, ..address() };
    let attributes = QueuePairAttributes::default().address(address()).alternate(other, 21, 22);
    let attributes = attributes.sq_psn(23).rq_psn(24).qkey(25).dest_qp_num(26);
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
    assert_eq!(change.base.alt_dest, ib_uverbs_qp_dest { dlid: 11, port_num: 6, ..expected });
    let base = change.base;
    assert_eq!((base.alt_port_num, base.alt_pkey_index, base.alt_timeout), (6, 21, 22));
    assert_eq!((base.sq_psn, base.rq_psn, base.qkey, base.dest_qp_num), (23, 24, 25, 26));
    let query = query(14);
    let known = Mask::IB_QP_STATE | Mask::IB_QP_RATE_LIMIT | Mask::IB_QP_DEST_QPN;
    assert_eq!((query.qp_handle, query.attr_mask & known), (14, known - Mask::IB_QP_RATE_LIMIT));
}
