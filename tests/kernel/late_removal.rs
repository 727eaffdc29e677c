//! A device that goes where the kernel tells rdma_cm of it after ib_uverbs, which waits for every context: run in a guest
//! that has loaded rdma_cm first, as `modprobe rdma_ucm` does.

use std::thread;
use std::time::Duration;

use rdmacm::ErrorKind;
use rdmacm::cm::{ConnParam, EventType};
use rdmacm::endpoint::{Listener, Settings};
use rdmacm_tests::wait_until;

use crate::bed::{Connection, LONG, channel, id};
use crate::endpoint_connect::pair;
use crate::endpoint_loop::now;
use crate::endpoint_messages::{filled, receives};
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

/// The safe tier: a connection goes on, and hears of nothing; what is new is refused. The device goes when the last
/// of it has.
fn a_connection_goes_on(own: &Own) {
    let [client, server] = pair(own.address, &Settings::default());
    let listener = Listener::bind(own.address).expect("listen");
    let deletion = own.delete();
    wait_until("the device is no longer listed", || !own.exists());
    for number in 0..20 {
        client.post(filled(&client, &[number; 100])).expect("post");
        receives(&server, &[number; 100]);
        server.post(filled(&server, &[number; 100])).expect("post");
        receives(&client, &[number; 100]);
    }
    assert!(now(client.try_recv()).is_none(), "nobody is told");
    assert!(now(listener.try_incoming()).is_none(), "nor who listens");
    assert!(deletion.waits(), "the driver cannot take a context from its user");
    server.post(filled(&server, b"kept")).expect("post");
    let kept = client.recv_timeout(LONG).expect("receive").expect("a message");
    thread::scope(|scope| {
        let closing = scope.spawn(|| client.close(LONG).expect("close"));
        assert!(server.recv_timeout(LONG).expect("receive").is_none(), "the end");
        server.close(LONG).expect("close");
        closing.join().expect("it closes");
    });
    drop((client, server));
    assert!(deletion.waits(), "there is memory of it");
    assert_eq!(*kept, *b"kept");
    drop(kept);
    // Who listens has no context of it, and hears when the last one is closed.
    let error = listener.incoming_timeout(LONG).expect_err("the device is gone");
    assert!(matches!(error.kind(), ErrorKind::DeviceGone(_)), "{error}");
    drop(listener);
    deletion.finish();
    own.comes_back();
}

#[test]
#[ignore = "needs the test bed: cargo xtask test"]
fn a_connection_of_the_safe_tier_goes_on() {
    a_connection_goes_on(&Own::rxe());
}

#[test]
#[ignore = "needs the test bed: cargo xtask test"]
fn a_connection_of_the_safe_tier_goes_on_over_siw() {
    a_connection_goes_on(&Own::siw());
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
