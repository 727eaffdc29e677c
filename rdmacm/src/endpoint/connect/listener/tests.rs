use std::fs::File;

use super::*;
use crate::cm::forged::{channel_on, deliver};

/// The numbers of `RDMA_CM_EVENT_ADDR_CHANGE` and `RDMA_CM_EVENT_DEVICE_REMOVAL`.
const ADDR_CHANGE: u32 = 14;
const DEVICE_REMOVAL: u32 = 11;

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
    let is_request = |id, event_type| {
        let event = deliver(&listener.channel, id, event_type, 0).expect("an event");
        listener.request(event).expect("the event should be valid").is_some()
    };
    for (id, event_type) in [(&other, DEVICE_REMOVAL), (&listener.id, ADDR_CHANGE)] {
        assert!(!is_request(id, event_type));
        listener.check().expect("the listener should continue");
    }
    assert!(!is_request(&listener.id, DEVICE_REMOVAL));
    let error = listener.check().expect_err("the listener should have ended");
    assert_eq!(*error.kind(), ErrorKind::DeviceRemoved(libc::ENODEV));
    assert_eq!(error.subject(), format!("a request to id {}", listener.id.token()));
}
