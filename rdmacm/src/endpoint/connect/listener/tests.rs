use std::fs::File;

use super::*;
use crate::cm::forged::{channel_on, deliver};

/// Returns a listener whose commands all succeed.
fn listener() -> Listener {
    let commands = File::options().write(true).open("/dev/null").expect("open should succeed");
    let channel = channel_on(commands.into());
    let id = CmId::new(&channel, PortSpace::Tcp).expect("the id should be created");
    let (process, reader) = (Process::current(), HandoffMutex::default());
    let (is_removed, trace) = (AtomicBool::default(), Trace::default());
    Listener { id, channel, address: None, process, reader, is_removed, trace }
}

#[test]
fn only_own_removal_ends_listener() {
    let listener = listener();
    let other = CmId::new(&listener.channel, PortSpace::Tcp).expect("the id should be created");
    let is_request = |id, event_type: EventType| {
        let event = deliver(&listener.channel, id, event_type.into(), 0).expect("an event");
        listener.request(event).expect("the event should be valid").is_some()
    };
    for (id, event_type) in
        [(&other, EventType::DeviceRemoval), (&listener.id, EventType::AddrChange)]
    {
        assert!(!is_request(id, event_type));
        listener.check().expect("the listener should continue");
    }
    assert!(!is_request(&listener.id, EventType::DeviceRemoval));
    let error = listener.check().expect_err("the listener should have ended");
    assert_eq!(*error.kind(), ErrorKind::DeviceRemoved(libc::ENODEV));
    assert_eq!(error.subject(), format!("a request to id {}", listener.id.token()));
}
