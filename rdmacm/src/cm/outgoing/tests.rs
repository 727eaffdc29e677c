use super::*;

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
