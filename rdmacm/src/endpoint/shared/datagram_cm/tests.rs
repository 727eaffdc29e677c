use std::fs::File;
use std::net::Ipv4Addr;

use nix::errno::Errno;

use super::*;
use crate::addr::port_space::PortSpace;
use crate::cm::EventChannel;
use crate::cm::forged::{channel_on, deliver};
use crate::endpoint::shared::datagram_peer::SocketId;
use crate::error::ErrorKind;
use crate::verbs::{Context, ProtectionDomain};

/// A socket's resolution of a peer, without a kernel.
struct Scene {
    cm: DatagramCm,
    channel: EventChannel,
    id: Arc<CmId>,
}

impl Scene {
    fn new() -> Self {
        let commands = File::options().write(true).open("/dev/null").expect("open should succeed");
        let channel = channel_on(commands.into());
        let new_id = || CmId::new(&channel, PortSpace::Udp).expect("the id should be created");
        let pd = ProtectionDomain::new(&Context::null()).expect("the domain should be created");
        let address = Address::from((Ipv4Addr::LOCALHOST, 7));
        let context = PeerContext::new(&pd, &SocketId::default());
        let mut cm = DatagramCm::new(new_id(), address, context);
        let id = Arc::new(new_id());
        cm.add(&id, address);
        Self { cm, channel, id }
    }

    /// Handles an event of the resolution, which no command follows.
    fn handle(&mut self, event_type: EventType) {
        let event = deliver(&self.channel, &self.id, event_type.into(), 0);
        let mut event = event.expect("the event should be reported");
        let command = self.cm.handle_event(1, &mut event);
        assert!(command.is_none(), "{command:?}");
    }

    /// Returns the error with which the resolution has ended, or `None` if it continues.
    fn error(&mut self) -> Option<Error> {
        let is_resolved = self.cm.is_resolved(self.id.token().get());
        let resolution = self.cm.resolved(self.id.token());
        assert_eq!(resolution.is_some(), is_resolved);
        Some(resolution?.into_outcome().expect_err("the resolution should fail"))
    }
}

#[test]
fn address_change_ends_no_resolution() {
    let mut scene = Scene::new();
    scene.handle(EventType::AddrChange);
    assert!(scene.error().is_none());
    scene.handle(EventType::Unreachable);
    let error = scene.error().expect("the resolution should have ended");
    assert!(matches!(error.kind(), ErrorKind::Unreachable(_)), "{error}");
}

#[test]
fn failed_command_ends_its_resolution_only() {
    let mut scene = Scene::new();
    let failure = Error::os("resolve the route of", "an id", Errno::ENODEV);
    let other = CmId::new(&scene.channel, PortSpace::Udp).expect("the id should be created");
    scene.cm.on_failed(other.token(), &failure);
    assert!(scene.error().is_none());
    scene.cm.on_failed(scene.id.token(), &failure);
    let error = scene.error().expect("the resolution should have ended");
    assert_eq!(error.errno(), libc::ENODEV, "{error}");
}
