use std::fs::File;
use std::net::Ipv4Addr;

use super::*;
use crate::addr::port_space::PortSpace;
use crate::cm::forged::{channel_on, deliver};
use crate::endpoint::shared::datagram_peer::SocketId;
use crate::verbs::{Context, ProtectionDomain};

#[test]
fn address_change_ends_no_resolution() {
    let commands = File::options().write(true).open("/dev/null").expect("open should succeed");
    let channel = channel_on(commands.into());
    let new_id = || CmId::new(&channel, PortSpace::Udp).expect("the id should be created");
    let pd = ProtectionDomain::new(&Context::null()).expect("the domain should be created");
    let address = Address::from((Ipv4Addr::LOCALHOST, 7));
    let context = PeerContext::new(&pd, &SocketId::default());
    let mut cm = DatagramCm::new(new_id(), address, context);
    let id = Arc::new(new_id());
    cm.add(&id, address);
    let mut handle = |event_type: EventType| {
        let event = deliver(&channel, &id, event_type.into(), 0);
        let command = cm.handle_event(1, &mut event.expect("the event should be reported"));
        assert!(command.is_none(), "{command:?}");
        cm.resolved(id.token())
    };
    assert!(handle(EventType::AddrChange).is_none());
    let resolution = handle(EventType::Unreachable).expect("the resolution should have ended");
    resolution.into_outcome().expect_err("the peer should be unreachable");
}
