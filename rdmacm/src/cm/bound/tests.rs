use super::*;
use crate::addr::port_space::PortSpace;
use crate::cm::id::tests::{commands, fake_channel, fake_id};

#[test]
fn unreported_device_index_is_none() {
    let (channel, kernel) = fake_channel();
    let inner = fake_id(&channel, PortSpace::Tcp);
    // This fake kernel stores nothing at all.
    assert_eq!(inner.query_addr().expect("the query should be answered").ibdev_index, NO_INDEX);
    drop((channel, inner));
    assert_eq!(commands(kernel), [19], "QUERY");
}

/// Checks a device that this library cannot open, whose limits are unknown.
#[test]
fn closed_device_needs_depths_for_connections() {
    let device = BoundDevice::Closed(Device::named("null0"));
    let limits = |service, responder_resources, initiator_depth| {
        let param = ConnParam { responder_resources, initiator_depth, ..ConnParam::default() };
        device.depth_limits("connect", service, &param)
    };
    assert_eq!(limits(ServiceType::Connected, 1, 2).unwrap(), Depths::MOST);
    assert_eq!(limits(ServiceType::Datagram, 0xff, 0xff).unwrap(), Depths::MOST);
    for (responder_resources, initiator_depth) in [(0xff, 2), (1, 0xff)] {
        let error =
            limits(ServiceType::Connected, responder_resources, initiator_depth).unwrap_err();
        assert!(matches!(error.kind(), ErrorKind::Unsupported(_)), "{error}");
    }
}
