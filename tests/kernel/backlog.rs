//! More requests than the backlog of a listener holds.

use std::fs;
use std::net::SocketAddr;
use std::time::Duration;

use nix::poll::PollTimeout;
use rdmacm::cm::{CmId, ConnParam, EventChannel, EventType, PortSpace};
use rdmacm::ucma_abi::ib_cm_sidr_status;
use rdmacm_tests::wait_until;

use crate::channel::readable;
use crate::endpoint_connect::objects_at;
use crate::fixtures::{LONG, Side, ask, channel, id, ids, resolve, roce, roce_name, siw};
use crate::io::Shape;

/// Returns the number of requests that reached the kernel, including repeated ones.
fn requests() -> u64 {
    let path = &format!("/sys/class/infiniband/{}/ports/1/cm_rx_msgs/req", roce_name());
    let count = fs::read_to_string(path).expect("read the kernel's counter");
    count.trim().parse().expect("a number")
}

/// Makes `listener` listen with a backlog of `room` requests, and returns its address.
fn listen(listener: &CmId, address: SocketAddr, room: u32) -> SocketAddr {
    listener.bind(address).expect("bind");
    listener.listen(room).expect("listen");
    listener.local_addr().expect("query").expect("the id should have an address")
}

/// Sends the requests of the clients, each after the outcome of the one before is known.
///
/// The requests of `room` reach `theirs`, and `is_counted` confirms each. The clients `beyond` get `answer`. Returns
/// the statuses of these answers.
fn requests_fit_only_into_backlog(
    room: &[&CmId],
    beyond: [&CmId; 2],
    [ours, theirs]: [&EventChannel; 2],
    is_counted: impl Fn(u64) -> bool,
    answer: EventType,
) -> [i32; 2] {
    let ask = |client: &CmId| client.connect(&ConnParam::default()).expect("ask");
    let answered = |client: &CmId| {
        let event = ours.get_event_timeout(LONG).expect("read").expect("an answer");
        assert_eq!((event.event_type(), event.token()), (answer, client.token()));
        event.status()
    };
    for (asked, client) in (1..).zip(room) {
        ask(client);
        wait_until("the request is counted", || is_counted(asked));
    }
    // The backlog has room again after a request is read.
    let refused = beyond.map(|client| {
        ask(client);
        answered(client)
    });
    for client in room {
        drop(theirs.expect_event(EventType::ConnectRequest).expect("a request"));
        answered(client);
    }
    assert!(theirs.get_event_timeout(Duration::ZERO).expect("read").is_none());
    refused
}

#[test]
#[ignore = "needs the test bed: cargo xtask test"]
fn requests_beyond_backlog_are_rejected_on_siw() {
    let (ours, theirs) = (channel(), channel());
    let listener = id(&theirs);
    // With a backlog of one, siw may miss the next client: see `CmId::listen`.
    let address = listen(&listener, siw(0), 2);
    let clients = [(); 4].map(|()| Side::new(resolve(&ours, address), Shape::default()));
    let ids = || objects_at(address).count("cm_id").expect("the device should count ids");
    let before = ids();
    let [first, second, beyond @ ..] = clients.each_ref().map(|side| &side.id);
    let (both, rejected) = ([&ours, &theirs], EventType::Rejected);
    let is_counted = |asked| ids() == before + asked;
    let status =
        requests_fit_only_into_backlog(&[first, second], beyond, both, is_counted, rejected);
    assert_eq!(status, [-libc::ECONNRESET; 2]);
}

#[test]
#[ignore = "needs the test bed: cargo xtask test"]
fn datagram_requests_beyond_backlog_are_rejected() {
    let (ours, theirs) = (channel(), channel());
    let datagrams = |channel| CmId::new(channel, PortSpace::Udp).expect("create an id");
    let listener = datagrams(&theirs);
    let address = listen(&listener, roce(0), 1);
    let clients = [(); 3].map(|()| {
        let client = datagrams(&ours);
        client.resolve_addr(None, address, LONG).expect("resolve the address");
        ours.expect_event(EventType::AddrResolved).expect("the address should be resolved");
        client.resolve_route(LONG).expect("resolve the route");
        ours.expect_event(EventType::RouteResolved).expect("the route should be resolved");
        client
    });
    let [first, beyond @ ..] = clients.each_ref();
    let (both, unreachable) = ([&ours, &theirs], EventType::Unreachable);
    let is_counted = |_| readable(&theirs, PollTimeout::ZERO);
    let status = requests_fit_only_into_backlog(&[first], beyond, both, is_counted, unreachable);
    let rejected = i32::try_from(ib_cm_sidr_status::IB_SIDR_REJECT.0).expect("a small number");
    assert_eq!(status, [rejected; 2]);
}

#[test]
#[ignore = "needs the test bed: cargo xtask test"]
fn requests_beyond_backlog_are_repeated() {
    const CLIENTS: usize = 4;
    let (ours, theirs) = (channel(), channel());
    let before = ids();
    let listener = id(&theirs);
    let address = listen(&listener, roce(0), 1);
    let sent = requests();
    let clients = [(); CLIENTS].map(|()| ask(&ours, address, &ConnParam::default()));
    // A client in the backlog repeats its request, and the server asks it to wait longer.
    wait_until("requests beyond the backlog are sent a third time", || {
        requests() > sent + 2 * CLIENTS as u64
    });
    let mut events = Vec::new();
    for _ in 0..CLIENTS {
        let event =
            theirs.get_event_timeout(LONG).expect("read").expect("each request should arrive");
        assert_eq!(event.event_type(), EventType::ConnectRequest);
        events.push(event);
    }
    drop(events);
    for _ in 0..CLIENTS {
        let event = ours.get_event().expect("an answer");
        assert_eq!(event.event_type(), EventType::Rejected);
    }
    drop(clients);
    // A request that was repeated while its answer was in flight may have arrived as another one.
    drop(listener);
    assert_eq!(ids(), before);
}
