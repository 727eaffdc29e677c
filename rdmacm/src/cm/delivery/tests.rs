use std::fs::File;
use std::os::fd::AsRawFd;
use std::sync::atomic::Ordering;
use std::sync::mpsc;
use std::thread;

use ucma_abi::{rdma_cm_event_type, rdma_ucm_event_resp};
use zerocopy::FromZeros;

use super::*;
use crate::cm::PortSpace;
use crate::cm::channel::ChannelInner;
use crate::cm::id::tests::{commands, fake_channel, fake_id_called};
use crate::sys::ucma::UcmaFile;

#[test]
fn only_established_is_delivered_by_kernel_handle() {
    use rdma_cm_event_type as T;

    // No other test uses this handle.
    const HANDLE: u32 = 0x5eed_0001;
    let (channel, _kernel) = fake_channel();
    let id = fake_id_called(HANDLE, &channel, PortSpace::Tcp);
    let deliver = |event, handle| {
        let mut response = rdma_ucm_event_resp::new_zeroed();
        (response.event, response.id) = (event, handle);
        channel.deliver(&RawEvent::new(response))
    };
    let stray = [T::RDMA_CM_EVENT_REJECTED, T::RDMA_CM_EVENT_DISCONNECTED];
    for event in stray {
        assert!(deliver(event, HANDLE).is_none(), "{event:?}");
    }
    assert!(
        deliver(T::RDMA_CM_EVENT_ESTABLISHED, HANDLE + 1).is_none(),
        "an event of no id should be dropped"
    );
    let event =
        deliver(T::RDMA_CM_EVENT_ESTABLISHED, HANDLE).expect("an event should be delivered");
    assert_eq!((event.event_type(), event.token()), (EventType::Established, id.token));
    drop(event);
    // A thread that destroys the id waits for as many events as the kernel has reported.
    let (tx, rx) = mpsc::channel();
    thread::spawn(move || {
        id.acks.wait(3);
        tx.send(())
    });
    rx.recv_timeout(Duration::from_secs(60)).expect("every event is counted");
}

#[test]
fn event_has_token_of_id_or_listener() {
    use rdma_cm_event_type as T;

    let (channel, kernel) = fake_channel();
    let id = fake_id_called(0x5eed_0003, &channel, PortSpace::Tcp);
    let deliver = |event, handle| {
        let mut response = rdma_ucm_event_resp::new_zeroed();
        (response.event, response.id) = (event, handle);
        response.uid = id.token.get().into();
        channel.deliver(&RawEvent::new(response)).expect("an event should be delivered")
    };
    let id = CmId::from_inner(Arc::clone(&id));
    assert_eq!(deliver(T::RDMA_CM_EVENT_ROUTE_RESOLVED, 0).user_data(), 0);
    id.set_user_data(u64::MAX);
    assert_eq!(deliver(T::RDMA_CM_EVENT_ROUTE_RESOLVED, 0).user_data(), u64::MAX);
    let mut event = deliver(T::RDMA_CM_EVENT_CONNECT_REQUEST, 5);
    assert_eq!(event.user_data(), u64::MAX);
    let request = event.take_request().expect("the event should have a request");
    id.set_user_data(1);
    assert_eq!([request.user_data(), id.user_data()], [u64::MAX, 1]);
    drop(kernel);
}

#[test]
fn request_of_destroyed_listener_is_destroyed() {
    let [(channel, commanded), (origin, _other)] = [(); 2].map(|()| fake_channel());
    channel.inner.add_former_channels([&origin.inner].into_iter());
    let mut request = rdma_ucm_event_resp::new_zeroed();
    request.event = rdma_cm_event_type::RDMA_CM_EVENT_CONNECT_REQUEST;
    request.uid = IDS.reserve().get().into();
    request.id = 5;
    assert!(channel.deliver(&RawEvent::new(request)).is_none());
    // A closed channel has no ids.
    drop(origin);
    assert!(channel.deliver(&RawEvent::new(request)).is_none());
    drop(channel);
    assert_eq!(commands(commanded), [18, 1, 1], "MIGRATE_ID and DESTROY_ID, DESTROY_ID");
}

#[test]
fn deadline_holds_despite_events_of_unknown_ids() {
    // There is always something to read, and it never belongs to an id.
    let endless = File::options().read(true).write(true).open("/dev/zero").expect("open");
    let channel = EventChannel { inner: ChannelInner::new(UcmaFile::new(endless.into())) };
    let timeout = Duration::from_millis(1);
    let (tx, rx) = mpsc::channel();
    thread::spawn(move || {
        let begin = Instant::now();
        let got = channel.get_event_timeout(timeout).expect("the call should succeed");
        tx.send((got.is_none(), begin.elapsed()))
    });
    let (is_over, elapsed) = rx.recv_timeout(Duration::from_secs(10)).expect("the call should end");
    assert!(is_over && elapsed >= timeout, "{elapsed:?}");
}

#[test]
fn channel_has_one_descriptor() {
    let (channel, _kernel) = fake_channel();
    assert_eq!(channel.as_raw_fd(), channel.as_fd().as_raw_fd());
}

/// Checks an event without the number of an id, after the kernel has used a handle again.
#[test]
fn event_with_handle_is_of_living_id() {
    // No other test uses this handle.
    const HANDLE: u32 = 0x5eed_0004;
    let (channel, _kernel) = fake_channel();
    let ids = [(); 2].map(|()| fake_id_called(HANDLE, &channel, PortSpace::Tcp));
    for [destroyed, living] in [[0, 1], [1, 0]] {
        ids[destroyed].destroyed.store(true, Ordering::Release);
        ids[living].destroyed.store(false, Ordering::Release);
        let mut response = rdma_ucm_event_resp::new_zeroed();
        response.id = HANDLE;
        response.event = rdma_cm_event_type::RDMA_CM_EVENT_ESTABLISHED;
        let event = channel.deliver(&RawEvent::new(response)).expect("an event");
        assert_eq!(event.token(), ids[living].token);
    }
}
