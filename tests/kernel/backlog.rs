//! More requests than a listener has room for.

use std::fs;
use std::net::SocketAddr;
use std::time::Duration;

use nix::poll::PollTimeout;
use rdmacm::cm::{CmId, ConnParam, EventChannel, EventType, PortSpace};
use rdmacm::ucma_abi::ib_cm_sidr_status;
use rdmacm_tests::wait_until;

use crate::bed::{LONG, Side, ask, channel, id, ids, resolve, rxe, siw};
use crate::channel::readable;
use crate::endpoint_connect::objects_at;
use crate::io::Shape;

/// How many requests have come to the kernel's connection manager. Those that are sent again are among them.
fn requests() -> u64 {
    let path = "/sys/class/infiniband/rxe0/ports/1/cm_rx_msgs/req";
    let count = fs::read_to_string(path).expect("the kernel counts");
    count.trim().parse().expect("a number")
}

/// Gives `listener` room for so many requests; where it listens.
fn listen(listener: &CmId, address: SocketAddr, room: u32) -> SocketAddr {
    listener.bind(address).expect("bind");
    listener.listen(room).expect("listen");
    listener.local_addr().expect("query").expect("bound")
}

/// Has each client ask by `ours`, the next when it is known what became of the one before: those for which there is `room` are
/// heard by `theirs`, when `is_heard` says so of as many, those `beyond` have `answer`, with these statuses.
fn only_so_many_are_heard(
    room: &[&CmId],
    beyond: [&CmId; 2],
    [ours, theirs]: [&EventChannel; 2],
    is_heard: impl Fn(u64) -> bool,
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
        wait_until("it is heard", || is_heard(asked));
    }
    // There is room again when a request is read.
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
fn requests_beyond_it_are_rejected_on_siw() {
    let (ours, theirs) = (channel(), channel());
    let listener = id(&theirs);
    // With room for one siw may miss the next that asks: see `CmId::listen`.
    let address = listen(&listener, siw(0), 2);
    let clients = [(); 4].map(|()| Side::new(resolve(&ours, address), Shape::default()));
    let ids = || objects_at(address).count("cm_id").expect("ids are counted");
    let before = ids();
    let [first, second, beyond @ ..] = clients.each_ref().map(|side| &side.id);
    let (both, rejected) = ([&ours, &theirs], EventType::Rejected);
    let is_heard = |asked| ids() == before + asked;
    let status = only_so_many_are_heard(&[first, second], beyond, both, is_heard, rejected);
    assert_eq!(status, [-libc::ECONNRESET; 2]);
}

#[test]
#[ignore = "needs the test bed: cargo xtask test"]
fn questions_beyond_it_where_to_send_are_rejected() {
    let (ours, theirs) = (channel(), channel());
    let datagrams = |channel| CmId::new(channel, PortSpace::Udp).expect("create an id");
    let listener = datagrams(&theirs);
    let address = listen(&listener, rxe(0), 1);
    let clients = [(); 3].map(|()| {
        let client = datagrams(&ours);
        client.resolve_addr(None, address, LONG).expect("resolve the address");
        ours.expect_event(EventType::AddrResolved).expect("address resolved");
        client.resolve_route(LONG).expect("resolve the route");
        ours.expect_event(EventType::RouteResolved).expect("route resolved");
        client
    });
    let [first, beyond @ ..] = clients.each_ref();
    let (both, unreachable) = ([&ours, &theirs], EventType::Unreachable);
    let is_heard = |_| readable(&theirs, PollTimeout::ZERO);
    let status = only_so_many_are_heard(&[first], beyond, both, is_heard, unreachable);
    let rejected = i32::try_from(ib_cm_sidr_status::IB_SIDR_REJECT.0).expect("a small number");
    assert_eq!(status, [rejected; 2]);
}

#[test]
#[ignore = "needs the test bed: cargo xtask test"]
fn requests_beyond_it_come_again_and_none_is_lost() {
    const CLIENTS: usize = 4;
    let (ours, theirs) = (channel(), channel());
    let before = ids();
    let listener = id(&theirs);
    let address = listen(&listener, rxe(0), 1);
    let heard = requests();
    let clients = [(); CLIENTS].map(|()| ask(&ours, address, &ConnParam::default()));
    // One that is heard asks once more, and is told that it takes long.
    wait_until("those without room ask for the third time", || {
        requests() > heard + 2 * CLIENTS as u64
    });
    let mut events = Vec::new();
    for _ in 0..CLIENTS {
        let event =
            theirs.get_event_timeout(LONG).expect("read").expect("each asks until it is heard");
        assert_eq!(event.event_type(), EventType::ConnectRequest);
        events.push(event);
    }
    drop(events);
    for _ in 0..CLIENTS {
        let event = ours.get_event().expect("an answer");
        assert_eq!(event.event_type(), EventType::Rejected);
    }
    drop(clients);
    // A request that was sent again while its answer was under way may have come as one more.
    drop(listener);
    assert_eq!(ids(), before);
}
