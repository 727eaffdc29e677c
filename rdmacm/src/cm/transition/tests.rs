use super::*;

fn states(steps: &[Step]) -> Vec<QpState> {
    steps.iter().map(|step| step.state).collect()
}

#[test]
fn datagram_queue_pair_reaches_rts_at_once() {
    let steps = created(ServiceType::Datagram);
    assert_eq!(states(steps), [QpState::IB_QPS_INIT, QpState::IB_QPS_RTR, QpState::IB_QPS_RTS]);
    assert_eq!(steps[2].attributes, Attributes::PacketsFromZero);
}

#[test]
fn connection_passes_init_rtr_rts() {
    assert_eq!(states(created(ServiceType::Connected)), [QpState::IB_QPS_INIT]);
    assert_eq!(states(&connected(None)), [QpState::IB_QPS_RTR, QpState::IB_QPS_RTS]);
}

#[test]
fn depths_and_access_are_set_in_their_transitions() {
    let from_cm = |responder_resources, initiator_depth, queries_init| Attributes::FromCm {
        responder_resources,
        initiator_depth,
        queries_init,
    };
    let depths = Depths { responder_resources: 3, initiator_depth: 5 };
    let steps = connected(Some(depths));
    assert_eq!(steps[0].attributes, from_cm(Some(3), None, true));
    assert_eq!(steps[1].attributes, from_cm(None, Some(5), false));
}

#[test]
fn init_sets_access_but_no_path() {
    let mask = ib_qp_attr_mask::IB_QP_ACCESS_FLAGS | ib_qp_attr_mask::IB_QP_PORT;
    let mut init = *QueuePairAttributes::to(QpState::IB_QPS_INIT);
    init.qp_attr_mask |= mask.bits();
    (init.qp_access_flags, init.port_num) = (6, 1);
    let mut attributes = *QueuePairAttributes::to(QpState::IB_QPS_RTR);
    attributes.qp_access_flags = 1;
    copy_init_attributes(&mut attributes, &init);
    let expected = ib_qp_attr_mask::IB_QP_STATE | ib_qp_attr_mask::IB_QP_ACCESS_FLAGS;
    assert_eq!(attributes.qp_attr_mask, expected.bits());
    assert_eq!((attributes.qp_access_flags, attributes.port_num), (6, 0));
    assert_eq!(attributes.qp_state, u32::from(QpState::IB_QPS_RTR.0));
}
