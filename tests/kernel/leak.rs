//! Drops of all objects in each order, which must leave no object behind.
#![expect(unsafe_code, reason = "posts requests over memory that is dropped in any order")]

use std::any::Any;
use std::fs;
use std::sync::mpsc::{Sender, channel as queue};
use std::thread;

use rdmacm::cm::{CmId, ConnParam, EventChannel, EventType};
use rdmacm::device::ResourceCounts;
use rdmacm::verbs::{
    AccessFlags, Completion, CompletionChannel, CompletionQueue, MemoryRegion, Payload,
    ProtectionDomain, QueuePair, QueuePairCaps, QueuePairInit, ReceiveRequest, SendFlags,
    SendOperation, SendRequest,
};

use crate::fixtures::{LONG, channel, id, listen, objects, roce};
use crate::rng::Rng;

/// The size of a region. If each connection left one behind, the sum would be visible.
const REGION: usize = 64 * 1024;

/// An object that can be dropped.
type Thing = Box<dyn Any + Send>;

/// The resources of the process in user space and in the kernel.
#[derive(Debug, PartialEq)]
struct Held {
    objects: ResourceCounts,
    descriptors: Vec<String>,
    /// The mappings of device files.
    rings: Vec<String>,
}

/// Returns the current resources, and the bytes of address space without a file.
fn held() -> (Held, usize) {
    let objects = objects();
    // The list has the descriptor of the directory, which has no link any more.
    let entries = fs::read_dir("/proc/self/fd").expect("list the descriptors");
    let links = entries.filter_map(|entry| fs::read_link(entry.expect("an entry").path()).ok());
    let mut descriptors: Vec<_> = links.map(|link| link.display().to_string()).collect();
    descriptors.sort();
    let maps = fs::read_to_string("/proc/self/maps").expect("list the mappings");
    let rings = maps.lines().filter(|line| line.contains("infiniband")).map(str::to_owned);
    let anonymous = maps.lines().filter(|line| line.split_whitespace().count() == 5).map(|line| {
        let range = line.split(' ').next().and_then(|range| range.split_once('-'));
        let (start, end) = range.expect("a range");
        let number = |text| usize::from_str_radix(text, 16).expect("an address");
        number(end) - number(start)
    });
    (Held { objects, descriptors, rings: rings.collect() }, anonymous.sum())
}

/// The objects of one side.
struct Half {
    id: CmId,
    pd: ProtectionDomain,
    events: CompletionChannel,
    send_cq: CompletionQueue,
    recv_cq: CompletionQueue,
    qp: QueuePair,
    memory: MemoryRegion,
}

impl Half {
    fn new(id: CmId) -> Self {
        let context = id.context().expect("context");
        let pd = ProtectionDomain::new(&context).expect("protection domain");
        let events = CompletionChannel::new(&context).expect("completion channel");
        let queue = || CompletionQueue::new(&context, 8, Some(&events)).expect("completion queue");
        let (send_cq, recv_cq) = (queue(), queue());
        let caps = QueuePairCaps { max_send_wr: 4, max_recv_wr: 4, ..QueuePairCaps::default() };
        let init = QueuePairInit {
            recv_cq: &recv_cq,
            caps,
            signal_all: true,
            ..QueuePairInit::new(&send_cq)
        };
        let qp = id.create_qp(&pd, &init).expect("queue pair");
        let memory = MemoryRegion::alloc(&pd, REGION, AccessFlags::IB_UVERBS_ACCESS_LOCAL_WRITE)
            .expect("memory region");
        Self { id, pd, events, send_cq, recv_cq, qp, memory }
    }

    fn receive(&self) {
        let scatter = [self.memory.sge(..).expect("the range should be within the region")];
        // SAFETY: the region lives until the queue pair is destroyed or the request has completed: `exchange` waits for
        // that, and in `abandoned` connections no message comes and no thread reads the region.
        unsafe { self.qp.post_recv(&ReceiveRequest { wr_id: 1, scatter: &scatter }) }
            .expect("post a receive");
    }

    fn send(&self) {
        let gather = [self.memory.sge(..64).expect("the range should be within the memory")];
        let payload = Payload::Gather(&gather);
        let flags = SendFlags::empty();
        let request = SendRequest { wr_id: 2, operation: SendOperation::Send, payload, flags };
        // SAFETY: the request has completed when `exchange` returns, and the region lives longer.
        unsafe { self.qp.post_send(&request) }.expect("post a send");
    }

    fn scatter_things(self, things: &mut Vec<Thing>) {
        let Self { id, pd, events, send_cq, recv_cq, qp, memory } = self;
        things.push(Box::new(id));
        things.push(Box::new(pd));
        things.push(Box::new(events));
        things.push(Box::new(send_cq));
        things.push(Box::new(recv_cq));
        things.push(Box::new(qp.clone()));
        things.push(Box::new(qp));
        things.push(Box::new(memory));
    }
}

/// Sends a message, and waits until both sides have a completion.
fn exchange(from: &mut Half, to: &Half, number: usize, things: &mut Vec<Thing>) {
    let text = number.to_ne_bytes();
    from.memory.write(0, &text).expect("write");
    to.receive();
    to.recv_cq.request_notify(false).expect("arm");
    from.send();
    // The event is dropped with the other objects.
    things.push(Box::new(to.events.get_event().expect("an event")));
    let mut done = [Completion::default()];
    while to.recv_cq.poll(&mut done).expect("poll") == 0 {
        thread::yield_now();
    }
    assert!(done[0].is_success(), "{done:?}");
    while from.send_cq.poll(&mut done).expect("poll") == 0 {
        thread::yield_now();
    }
    assert!(done[0].is_success(), "{done:?}");
    let mut arrived = [0; size_of::<usize>()];
    to.memory.read(0, &mut arrived).expect("read");
    assert_eq!(arrived, text);
}

/// The number of stages of a connection. Each stage has the objects of the earlier ones.
const STAGES: usize = 8;

/// Connects up to `stage`. Returns all objects created on the way, and the channels.
fn connect(number: usize, stage: usize) -> (Vec<Thing>, [EventChannel; 2]) {
    let mut things: Vec<Thing> = Vec::new();
    let channels = [channel(), channel()];
    let (listener, address) = listen(&channels[1], roce(0));
    steps(number, stage, [&channels[0], &channels[1]], address, &mut things);
    things.push(Box::new(listener));
    (things, channels)
}

fn steps(
    number: usize,
    stage: usize,
    channels: [&EventChannel; 2],
    server: std::net::SocketAddr,
    things: &mut Vec<Thing>,
) {
    let [ours, theirs] = channels;
    let expect = |channel: &EventChannel, wanted| channel.expect_event(wanted).expect("an event");
    let client = id(ours);
    client.resolve_addr(None, server, LONG).expect("resolve the address");
    if stage == 0 {
        return things.push(Box::new(client));
    }
    things.push(Box::new(expect(ours, EventType::AddrResolved)));
    client.resolve_route(LONG).expect("resolve the route");
    if stage == 1 {
        return things.push(Box::new(client));
    }
    things.push(Box::new(expect(ours, EventType::RouteResolved)));
    let mut client = Half::new(client);
    if stage == 2 {
        client.receive();
        return client.scatter_things(things);
    }
    client.id.connect(&ConnParam::default()).expect("connect");
    if stage == 3 {
        return client.scatter_things(things);
    }
    let mut request = expect(theirs, EventType::ConnectRequest);
    if stage == 4 {
        things.push(Box::new(request));
        return client.scatter_things(things);
    }
    let mut peer = Half::new(request.take_request().expect("an id"));
    things.push(Box::new(request));
    if stage > 5 {
        peer.id.accept(&ConnParam::default()).expect("accept");
    }
    if stage > 6 {
        things.push(Box::new(expect(ours, EventType::Established)));
        things.push(Box::new(expect(theirs, EventType::Established)));
        exchange(&mut client, &peer, number, things);
        exchange(&mut peer, &client, number, things);
    }
    client.scatter_things(things);
    peer.scatter_things(things);
}

/// Makes `count` connections and drops all of each in a random order, a part of it in other
/// threads. Returns the channels of the first `kept` connections.
fn make_and_drop(
    count: usize,
    kept: usize,
    rng: &mut Rng,
    stage: impl Fn(usize) -> usize,
) -> Vec<[EventChannel; 2]> {
    let mut keep = Vec::new();
    thread::scope(|scope| {
        let workers: Vec<Sender<Thing>> = (0..6)
            .map(|_| {
                let (sender, things) = queue::<Thing>();
                scope.spawn(move || things.into_iter().for_each(drop));
                sender
            })
            .collect();
        for number in 0..count {
            let (mut things, channels) = connect(number, stage(number));
            if number < kept {
                keep.push(channels);
            } else {
                let [ours, theirs] = channels;
                things.push(Box::new(ours));
                things.push(Box::new(theirs));
            }
            rng.shuffle(&mut things);
            for thing in things {
                match rng.roll(7) {
                    worker @ 0..6 => workers[worker].send(thing).expect("worker should not panic"),
                    _ => drop(thing),
                }
            }
        }
    });
    keep
}

/// Returns the length of the library's table of ids: the place of the first new id.
fn table_length(channel: &EventChannel) -> u64 {
    let mut ids = Vec::new();
    loop {
        let id = id(channel);
        let (generation, place) = (id.token().get() >> 32, id.token().get() & 0xffff_ffff);
        if generation == 1 {
            return place;
        }
        ids.push(id);
    }
}

/// Checks that `count` rounds leave the resources as they were.
///
/// The kernel reclaims objects of a channel or context when it closes. So that no leak escapes, one context stays open
/// all the time, and some channels until the first count.
fn leaves_nothing(count: usize, seed: u64, stage: impl Fn(usize) -> usize) {
    let mut rng = Rng(seed);
    let (closed, _) = held();
    let channel = channel();
    let keeper = id(&channel);
    keeper.bind(roce(0)).expect("bind");
    let context = keeper.context().expect("context");
    // The first rounds create threads, buffers and tables.
    make_and_drop(2 * STAGES, 0, &mut rng, &stage);
    let (before, anonymous) = held();
    let places = table_length(&channel);
    let kept = make_and_drop(count, 100, &mut rng, &stage);
    assert_eq!(objects(), before.objects);
    drop(kept);
    let (after, now) = held();
    assert_eq!(after, before);
    let grown = now.saturating_sub(anonymous);
    assert!(grown < count * REGION / 2, "{grown} bytes more are mapped");
    // The library's own table does not grow either, except for ids that the threads had not dropped yet.
    let now = table_length(&channel);
    assert!(now < places + count as u64 / 2, "the table of ids grew from {places} to {now} places");
    drop((keeper, context, channel));
    let (after, _) = held();
    assert_eq!(after, closed);
}

#[test]
#[ignore = "needs the test bed: cargo xtask test"]
fn thousand_connections_leave_nothing() {
    leaves_nothing(1000, 0x9e37_79b9_7f4a_7c15, |_| STAGES - 1);
}

#[test]
#[ignore = "needs the test bed: cargo xtask test"]
fn abandoned_connections_leave_nothing() {
    leaves_nothing(40 * STAGES, 0x2545_f491_4f6c_dd1d, |number| number % STAGES);
}
