//! Removal of a device that the kernel reports to rdma_cm only after ib_uverbs.
//!
//! ib_uverbs waits for every context. These tests run in a guest that has loaded rdma_cm first, as `modprobe rdma_ucm`
//! does.

use std::thread;
use std::time::Duration;

use rdmacm::ErrorKind;
use rdmacm::cm::{ConnParam, EventType};
use rdmacm::endpoint::{ConnectionConfig, Listener};
use rdmacm_tests::wait_until;

use crate::endpoint_connect::pair;
use crate::endpoint_messages::{filled, receives};
use crate::endpoint_nonblocking::now;
use crate::fixtures::{Connection, LONG, channel, id};
use crate::io::Shape;
use crate::removal::Own;

fn removal_event_follows_last_context(own: &Own) {
    let channel = channel();
    let bound = id(&channel);
    bound.bind(own.address).expect("bind");
    let connection = Connection::to(own.address, Shape::default(), &ConnParam::default());
    let deletion = own.delete();
    wait_until("the device is no longer listed", || !own.exists());
    assert!(
        channel.get_event_timeout(Duration::ZERO).expect("look").is_none(),
        "no event should come"
    );
    bound.local_addr().expect("the id should still have a device");
    let context = connection.client.id.context().expect("the id should have a device");
    assert!(!context.is_device_removed(), "removal should be unknown");
    drop(context);
    assert!(deletion.waits(), "the deletion should wait for the context");
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

/// Checks that a connection of the safe tier continues without an event.
///
/// New objects are refused.
///
/// The device is removed when the last of its objects is dropped.
fn connection_survives_late_removal(own: &Own) {
    let [client, server] = pair(own.address, &ConnectionConfig::default());
    let listener = Listener::bind(own.address).expect("listen");
    let deletion = own.delete();
    wait_until("the device is no longer listed", || !own.exists());
    for number in 0..20 {
        client.post_send(filled(&client, &[number; 100])).expect("post");
        receives(&server, &[number; 100]);
        server.post_send(filled(&server, &[number; 100])).expect("post");
        receives(&client, &[number; 100]);
    }
    assert!(now(client.try_recv()).is_none(), "no event should come");
    assert!(now(listener.try_accept()).is_none(), "listener should get no request");
    assert!(deletion.waits(), "the deletion should wait for the context");
    server.post_send(filled(&server, b"kept")).expect("post");
    let kept = client.recv_timeout(LONG).expect("receive").expect("a message");
    thread::scope(|scope| {
        let closing = scope.spawn(|| client.close(LONG).expect("close"));
        assert!(
            server.recv_timeout(LONG).expect("receive").is_none(),
            "the connection should have ended"
        );
        server.close(LONG).expect("close");
        closing.join().expect("close should not panic");
    });
    drop((client, server));
    assert!(deletion.waits(), "the deletion should wait for the memory");
    assert_eq!(*kept, *b"kept");
    drop(kept);
    // A listener has no context of the device, and gets the event when the last context is closed.
    let error = listener.accept_timeout(LONG).expect_err("device should be removed");
    assert!(matches!(error.kind(), ErrorKind::DeviceRemoved(_)), "{error}");
    drop(listener);
    deletion.finish();
    own.comes_back();
}

#[test]
#[ignore = "needs the test bed: cargo xtask test"]
fn endpoint_connection_continues() {
    connection_survives_late_removal(&Own::roce());
}

#[test]
#[ignore = "needs the test bed: cargo xtask test"]
fn endpoint_connection_continues_over_siw() {
    connection_survives_late_removal(&Own::siw());
}

#[test]
#[ignore = "needs the test bed: cargo xtask test"]
fn ids_get_removal_event_after_last_context() {
    removal_event_follows_last_context(&Own::roce());
}

#[test]
#[ignore = "needs the test bed: cargo xtask test"]
fn siw_ids_get_removal_event_after_last_context() {
    removal_event_follows_last_context(&Own::siw());
}
