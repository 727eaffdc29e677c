//! A device that goes where the kernel tells rdma_cm of it after ib_uverbs, which waits for every context: run in a guest
//! that has loaded rdma_cm first, as `modprobe rdma_ucm` does.

use std::time::Duration;

use rdmacm::cm::{ConnParam, EventType};
use rdmacm_tests::wait_until;

use crate::bed::{Connection, LONG, channel, id};
use crate::io::Shape;
use crate::removal::Own;

fn hear_when_the_last_context_is_closed(own: &Own) {
    let channel = channel();
    let bound = id(&channel);
    bound.bind(own.address).expect("bind");
    let connection = Connection::to(own.address, Shape::default(), &ConnParam::default());
    let deletion = own.delete();
    wait_until("the device is no longer listed", || !own.exists());
    assert!(channel.get_event_timeout(Duration::ZERO).expect("look").is_none(), "nobody is told");
    bound.local_addr().expect("the id has a device still");
    let context = connection.client.id.context().expect("it has a device");
    assert!(!context.is_gone(), "nobody has said so");
    drop(context);
    assert!(deletion.waits(), "the driver cannot take a context from its user");
    let Connection { client, server, .. } = connection;
    client.id.destroy().expect("destroy");
    server.id.destroy().expect("destroy");
    drop((client.io, server.io));
    let event = channel.get_event_timeout(LONG).expect("read").expect("an event");
    assert_eq!((event.event_type(), event.status()), (EventType::DeviceRemoval, 0));
    assert_eq!(event.token(), bound.token());
    drop(event);
    bound.destroy().expect("destroy");
    deletion.finish();
    own.comes_back();
}

#[test]
#[ignore = "needs the test bed: cargo xtask test"]
fn ids_hear_of_it_when_the_last_context_is_closed() {
    hear_when_the_last_context_is_closed(&Own::rxe());
}

#[test]
#[ignore = "needs the test bed: cargo xtask test"]
fn ids_of_siw_hear_of_it_when_the_last_context_is_closed() {
    hear_when_the_last_context_is_closed(&Own::siw());
}
