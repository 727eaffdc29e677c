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
