use super::*;
use crate::addr::port_space::PortSpace;
use crate::cm::id::tests::{fake_channel, fake_id};
use crate::driver::{Capabilities, External};
use crate::drivers::any::AnyDriver;
use crate::drivers::forged::Forged;
use crate::verbs::{
    CompletionQueue, Context, ProtectionDomain, QueuePair, QueuePairInit, SharedReceiveQueue,
    SharedReceiveQueueAttributes,
};

#[test]
fn private_data_fits_its_message() {
    let limits = |service, transport, peer_is_ib| {
        [Message::Request, Message::Reply, Message::Reject]
            .map(|message| private_data_limit(message, service, transport, peer_is_ib))
    };
    let (connected, datagram) = (ServiceType::Connected, ServiceType::Datagram);
    assert_eq!(limits(connected, Transport::InfiniBand, false), [56, 196, 148]);
    assert_eq!(limits(connected, Transport::InfiniBand, true), [92, 196, 148]);
    assert_eq!(limits(datagram, Transport::InfiniBand, false), [180, 136, 136]);
    assert_eq!(limits(datagram, Transport::InfiniBand, true), [216, 136, 136]);
    assert_eq!(limits(connected, Transport::Iwarp, false), [251; 3]);
}

const LIMITS: Depths = Depths { responder_resources: 16, initiator_depth: 8 };

/// Returns parameters with these depths, for a queue pair with this number.
fn param(responder_resources: u8, initiator_depth: u8, qp_num: u32) -> ConnParam {
    ConnParam { responder_resources, initiator_depth, qp_num, ..ConnParam::default() }
}

fn check(port_space: PortSpace, message: Message, param: &ConnParam) -> Result<()> {
    let (channel, _kernel) = fake_channel();
    let id = fake_id(&channel, port_space);
    id.check("check", param, message, Transport::InfiniBand, LIMITS, None)
}

#[test]
fn parameters_beyond_limits_are_refused() {
    let check = |param| check(PortSpace::Tcp, Message::Request, &param);
    for accepted in [param(16, 8, 1), param(0, 0, MAX_QP_NUM), param(0xff, 0xff, 1)] {
        check(accepted).expect("the parameters should be accepted");
    }
    for (refused, reason) in [
        (param(17, 8, 1), "responder_resources 17 exceeds the device's maximum of 16"),
        (param(16, 9, 1), "initiator_depth 9 exceeds the device's maximum of 8"),
        (param(16, 8, MAX_QP_NUM + 1), "0x1000000 exceeds the maximum of 0xffffff"),
        (param(16, 8, 0), "has no queue pair"),
    ] {
        let error = check(refused).expect_err("the parameters should be refused");
        assert!(error.errno() == libc::EINVAL && error.to_string().contains(reason), "{error}");
    }
}

/// Checks that depths have no limits for datagrams, and that only an answer needs a queue pair.
#[test]
fn only_datagram_answer_needs_queue_pair() {
    let check = |message, number| check(PortSpace::Udp, message, &param(17, 9, number));
    check(Message::Request, 0).expect("the request should be accepted");
    check(Message::Reply, 1).expect("the answer should be accepted");
    let error = check(Message::Reply, 0).expect_err("the answer should be refused");
    assert!(error.to_string().contains("has no queue pair"), "{error}");
}

#[test]
fn initiator_depth_is_within_offer() {
    let (channel, _kernel) = fake_channel();
    let id = fake_id(&channel, PortSpace::Tcp);
    let check = |depth, offers, transport| {
        id.check_offer("accept", &param(0, depth, 1), offers, transport).is_ok()
    };
    let roce = Transport::InfiniBand;
    assert!(check(8, Some(LIMITS), roce) && check(0xff, Some(LIMITS), roce));
    assert!(!check(9, Some(LIMITS), roce));
    assert!(check(9, None, roce) && check(9, Some(LIMITS), Transport::Iwarp));
}

#[test]
fn unset_depths_become_maximum() {
    assert_eq!(effective_depths(&param(0xff, 0xff, 1), LIMITS), LIMITS);
    let named = Depths { responder_resources: 1, initiator_depth: 2 };
    assert_eq!(effective_depths(&param(1, 2, 1), LIMITS), named);
}

#[test]
fn command_has_effective_depths() {
    let depths = Depths { responder_resources: 1, initiator_depth: 2 };
    let param = ConnParam { srq: true, ..param(0xff, 0xff, 3) };
    let sent = encode(&param, depths, None);
    let sent_depths = (sent.responder_resources, sent.initiator_depth);
    assert_eq!((sent.qp_num, sent_depths, sent.srq, sent.valid), (3, (1, 2), 1, 1));
}

#[test]
fn command_names_own_queue_pair() {
    let device = Forged::new(Capabilities::default());
    device.device().next_number = 17;
    let context = Context::on_null(AnyDriver::External(External::new(device)));
    let pd = ProtectionDomain::new(&context).expect("the protection domain should be created");
    let cq =
        CompletionQueue::new(&context, 1, None).expect("the completion queue should be created");
    let attributes = SharedReceiveQueueAttributes { max_wr: 4, ..Default::default() };
    let srq = SharedReceiveQueue::new(&pd, attributes).expect("the queue should be created");
    for (srq, has_srq) in [(Some(&srq), 1), (None, 0)] {
        let init = QueuePairInit { srq, ..QueuePairInit::new(&cq) };
        let qp = QueuePair::new(&pd, &init).expect("the queue pair should be created");
        // The flag of the parameters counts only without a queue pair.
        let param = ConnParam { srq: srq.is_none(), ..param(0, 0, 3) };
        let sent = encode(&param, LIMITS, Some(&OwnQp::Queues(qp)));
        assert_eq!((sent.qp_num, sent.srq), (17, has_srq));
    }
}

#[test]
fn connect_header_precedes_private_data() {
    let (channel, _kernel) = fake_channel();
    let id = fake_id(&channel, PortSpace::Tcp);
    id.state().connect_header = Box::from(*b"header");
    let param = ConnParam { private_data: b"data".to_vec(), ..param(1, 2, 3) };
    let sent = id.with_header(&param);
    assert_eq!(sent, ConnParam { private_data: b"headerdata".to_vec(), ..param });
}
