//! Many more simultaneous requests than the backlog of a listener holds, some of them from correct clients.

use std::collections::HashMap;
use std::env;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::thread;
use std::time::Duration;

use rdmacm::cm::{CmId, ConnParam, EventChannel, EventType};
use rdmacm_tests::wait_until;

use crate::fixtures::{Ending, LONG, channel, id, ids, resolve, roce};

/// Number of connections that an honest client makes.
const HONEST_CONNECTIONS: usize = 3;
const ROOM: u32 = 8;
/// Time limit of a client.
///
/// A request that finds no room is repeated after some seconds, up to fifteen times.
const CLIENT_TIMEOUT: Duration = Duration::from_secs(600);

/// Returns the number of requests.
///
/// They fill the listener's queue, or the number is from the environment.
fn requests() -> usize {
    let count = env::var("RDMACM_TEST_FLOOD").unwrap_or_else(|_| "40".to_owned());
    count.parse().expect("a number of requests")
}

/// Returns parameters with a queue pair number that no other client has.
fn param(private_data: &[u8]) -> ConnParam {
    static LAST: AtomicU32 = AtomicU32::new(0x100);
    let qp_num = LAST.fetch_add(1, Ordering::Relaxed);
    ConnParam { qp_num, private_data: private_data.to_vec(), ..ConnParam::default() }
}

/// Accepts honest clients and rejects the others, until the end.
fn serve(channel: &EventChannel, is_over: &AtomicBool) {
    let mut accepted = Vec::new();
    while !is_over.load(Ordering::SeqCst) {
        let event = channel.get_event_timeout(Duration::from_millis(20)).expect("look");
        let Some(mut event) = event else { continue };
        match event.take_request() {
            Some(request) if event.private_data().starts_with(b"serious") => {
                request.accept(&param(b"")).expect("accept");
                accepted.push(request);
            }
            Some(request) => request.reject(b"").expect("reject"),
            None if event.event_type() == EventType::Established => {}
            // This connection has ended.
            None => accepted.retain(|one: &CmId| one.token() != event.token()),
        }
    }
}

/// Sends `count` requests before it waits for any answer.
fn flood(server: SocketAddr, count: usize) {
    let channel = channel();
    let clients: HashMap<_, _> = (0..count)
        .map(|_| {
            let client = id(&channel);
            client.resolve_addr(None, server, LONG).expect("resolve the address");
            (client.token(), client)
        })
        .collect();
    let mut answers = 0;
    while answers < count {
        let event = channel
            .get_event_timeout(CLIENT_TIMEOUT)
            .expect("read")
            .expect("each request should be answered");
        let client = &clients[&event.token()];
        match event.event_type() {
            EventType::AddrResolved => client.resolve_route(LONG).expect("resolve the route"),
            EventType::RouteResolved => client.connect(&param(b"flood")).expect("ask"),
            EventType::Rejected | EventType::Unreachable => answers += 1,
            _ => panic!("{event:?}"),
        }
    }
}

fn connect_honestly(server: SocketAddr) {
    let channel = channel();
    let next = |wanted| {
        channel.expect_event_timeout(wanted, CLIENT_TIMEOUT).expect("the event should arrive")
    };
    for _ in 0..HONEST_CONNECTIONS {
        let client = resolve(&channel, server);
        client.connect(&param(b"serious")).expect("ask");
        next(EventType::ConnectResponse);
        client.establish().expect("establish");
        client.disconnect().expect("disconnect");
        next(EventType::Disconnected);
    }
}

#[test]
#[ignore = "needs the test bed: cargo xtask test"]
fn request_flood_leaves_honest_client_served() {
    let before = ids();
    let theirs = channel();
    let listener = id(&theirs);
    listener.bind(roce(0)).expect("bind");
    listener.listen(ROOM).expect("listen");
    let server = listener.local_addr().expect("query").expect("the id should have an address");
    let is_over = AtomicBool::new(false);
    thread::scope(|scope| {
        scope.spawn(|| serve(&theirs, &is_over));
        let _ending = Ending(&is_over);
        let floods = [(); 2].map(|()| scope.spawn(|| flood(server, requests() / 2)));
        connect_honestly(server);
        floods.into_iter().for_each(|flood| flood.join().expect("each request should be answered"));
    });
    drop((listener, theirs));
    wait_until("the kernel has nothing left of it", || ids() == before);
}
