//! Shared receive queues.

use std::fs;
use std::net::SocketAddr;
use std::ops::Range;
use std::thread;

use nix::sys::resource::{Resource, setrlimit};
use rdmacm::cm::{ConnParam, EndpointQpInit, EventType};
use rdmacm::device::DriverId;
use rdmacm::verbs::{
    CompletionQueue, Context, ProtectionDomain, QueuePair, QueuePairCaps, QueuePairInit, SendFlags,
    SendOperation, SharedReceiveQueue, SharedReceiveQueueAttributes, WcOpcode, WcStatus,
};
use rdmacm::{Error, ErrorKind};

use crate::child::in_child;
use crate::fixtures::{
    Side, assert_invalid, channel, device, id, is_card, listen, request, resolve, roce, roce_name,
    siw,
};
use crate::io::Shape;
use crate::process::forked;
use crate::shared::{Pair, Servers, Shared, receive_nothing, receive_too_much};

const SIGNALED: SendFlags = SendFlags::SIGNALED;

fn send(from: &Side, number: u64) {
    let sent = from.io.post_inline(number, SendOperation::Send, &number.to_ne_bytes(), SIGNALED);
    sent.expect("post a send");
}

/// Returns the memory range of receive `wr_id`.
fn place(wr_id: u64) -> Range<usize> {
    let start = usize::try_from(wr_id % 100).expect("the number should fit") * 8;
    start..start + 8
}

/// Checks that a queue pair takes the oldest posted request of a shared queue.
///
/// The completion names the receiving queue pair.
fn two_queue_pairs_share_queue(address: SocketAddr) {
    let servers = Servers::new(address, 2, 16, &ConnParam::default());
    let Servers { pairs, shared, .. } = &servers;
    for (number, pair) in (0..200).zip([0, 1, 1, 0, 1].into_iter().cycle()) {
        shared.receive(number, place(number)).expect("post a receive");
        let Pair { client, server } = &pairs[pair];
        send(client, 1000 + number);
        let done = shared.done();
        assert_eq!((done.wr_id(), done.qp_num()), (number, server.io.qp().number()));
        assert_eq!((done.opcode(), done.byte_len()), (WcOpcode::IB_WC_RECV, 8));
        assert_eq!(shared.bytes(place(number)), (1000 + number).to_ne_bytes());
        client.io.done(1000 + number);
    }
    // In the other direction each queue pair has its own receive queue.
    for Pair { client, server } in pairs {
        assert_eq!(server.io.qp().srq(), Some(shared.queue()));
        assert_eq!(client.io.qp().srq(), None);
        client.io.receive(1, 0..8).expect("post a receive");
        send(server, 2);
        client.io.done(1);
        server.io.done(2);
    }
    servers.close();
}

#[test]
#[ignore = "needs the test bed: cargo xtask test"]
fn two_queue_pairs_share_queue_on_rxe() {
    two_queue_pairs_share_queue(roce(0));
}

#[test]
#[ignore = "needs the test bed: cargo xtask test"]
fn two_queue_pairs_share_queue_on_siw() {
    two_queue_pairs_share_queue(siw(0));
}

/// Posts receives until the queue is full. Returns the number of posted receives.
fn fill(shared: &Shared) -> u64 {
    for number in 0..100 {
        if let Err(error) = shared.receive(number, place(number)) {
            let text = format!("{number} requests");
            assert_invalid(&error, &["shared receive queue", "the queue is full", &text]);
            assert_eq!(error.errno(), libc::ENOMEM);
            return number;
        }
    }
    panic!("the queue should become full");
}

/// Returns the attributes that the kernel should report.
///
/// mlx5 also counts entries for requests that wait for memory. Their number equals that of the other entries.
fn reported(srq: &SharedReceiveQueue) -> SharedReceiveQueueAttributes {
    let made = srq.attributes();
    match srq.pd().context().device().driver() {
        Some(DriverId::RDMA_DRIVER_MLX5) => {
            SharedReceiveQueueAttributes { max_wr: 2 * made.max_wr + 1, ..made }
        }
        _ => made,
    }
}

/// Fills the queue to the capacity that the driver chose, and receives past the end of the ring.
fn full_queue_loses_nothing(address: SocketAddr) {
    let servers = Servers::new(address, 1, 10, &ConnParam::default());
    let Servers { pairs, shared, .. } = &servers;
    let attributes = shared.queue().attributes();
    assert!(attributes.max_wr >= 10 && attributes.max_sge >= 2, "{attributes:?}");
    assert_eq!(shared.queue().query().expect("query"), reported(shared.queue()));
    for _ in 0..3 {
        let count = fill(shared);
        assert_eq!(count, u64::from(attributes.max_wr));
        for number in 0..count {
            send(&pairs[0].client, number * 3);
            assert_eq!(shared.done().wr_id(), number);
            pairs[0].client.io.done(number * 3);
            assert_eq!(shared.bytes(place(number)), (number * 3).to_ne_bytes());
        }
    }
    let sges = attributes.max_sge as usize + 1;
    let error = receive_too_much(shared.queue(), sges)
        .expect_err("the receive should have too many entries");
    assert_invalid(&error, &["shared receive queue", &format!("{sges} scatter/gather entries")]);
    servers.close();
}

#[test]
#[ignore = "needs the test bed: cargo xtask test"]
fn full_queue_loses_nothing_on_rxe() {
    full_queue_loses_nothing(roce(0));
}

#[test]
#[ignore = "needs the test bed: cargo xtask test"]
fn full_queue_loses_nothing_on_siw() {
    full_queue_loses_nothing(siw(0));
}

#[test]
#[ignore = "needs the test bed: cargo xtask test"]
fn message_waits_for_receive() {
    let servers = Servers::new(roce(0), 2, 4, &ConnParam::default());
    let Servers { pairs, shared, .. } = &servers;
    // Both clients repeat their sends until each has got a receive.
    for (number, Pair { client, .. }) in (0..).zip(pairs) {
        send(client, number);
    }
    assert!(pairs.iter().all(|pair| pair.client.io.polled().is_none()));
    for wr_id in 10..12 {
        shared.receive(wr_id, place(wr_id)).expect("post a receive");
        assert_eq!(shared.done().wr_id(), wr_id);
    }
    for (number, Pair { client, .. }) in (0..).zip(pairs) {
        client.io.done(number);
    }
    servers.close();
}

#[test]
#[ignore = "needs the test bed: cargo xtask test"]
fn message_without_receive_fails_after_retries() {
    let param = ConnParam { rnr_retry_count: 0, ..ConnParam::default() };
    let servers = Servers::new(roce(0), 2, 4, &param);
    let [failing, other] = &servers.pairs[..] else { panic!("two") };
    send(&failing.client, 1);
    let failed = failing.client.io.next();
    assert_eq!((failed.wr_id(), failed.status()), (1, WcStatus::IB_WC_RNR_RETRY_EXC_ERR));
    // The shared queue and the other queue pairs stay usable.
    servers.shared.receive(2, place(2)).expect("post a receive");
    send(&other.client, 3);
    assert_eq!(servers.shared.done().qp_num(), other.server.io.qp().number());
    other.client.io.done(3);
    servers.close();
}

#[test]
#[ignore = "needs the test bed: cargo xtask test"]
fn message_without_receive_ends_siw_connection() {
    let (ours, theirs) = (channel(), channel());
    let (_listener, address) = listen(&theirs, siw(0));
    let client = Side::new(resolve(&ours, address), Shape::default());
    client.id.connect(&ConnParam::default()).expect("connect");
    let id = request(&theirs);
    let shared = Shared::new(&id, 4);
    let server = shared.side(id);
    server.id.accept(&ConnParam::default()).expect("accept");
    ours.expect_event(EventType::Established).expect("the connection should be established");
    theirs.expect_event(EventType::Established).expect("the connection should be established");
    send(&client, 1);
    theirs.expect_event(EventType::Disconnected).expect("the connection should end");
    ours.expect_event(EventType::Disconnected).expect("the connection should end");
    // Posted receives stay in the queue for other queue pairs.
    assert_eq!(fill(&shared), u64::from(shared.queue().attributes().max_wr));
}

/// Asserts that destroying an object failed because the object is in use.
#[track_caller]
fn busy(error: &Error) {
    assert!(matches!(error.kind(), ErrorKind::Os(libc::EBUSY)), "{error:?}");
}

fn destroy_in_wrong_order_is_refused(name: &str, address: SocketAddr) {
    let resources = || device(name).resources().expect("count the objects");
    let before = resources();
    let channel = channel();
    let id = id(&channel);
    id.bind(address).expect("bind");
    let context = id.context().expect("a device");
    let pd = ProtectionDomain::new(&context).expect("protection domain");
    let cq = CompletionQueue::new(&context, 8, None).expect("completion queue");
    let srq = SharedReceiveQueue::new(&pd, SharedReceiveQueueAttributes::default())
        .expect("shared receive queue");
    let caps = QueuePairCaps::default();
    let init = QueuePairInit { srq: Some(&srq), caps, ..QueuePairInit::new(&cq) };
    let qp = QueuePair::new(&pd, &init).expect("queue pair");
    let (srq, error) = srq.destroy().expect_err("a queue pair should use the queue").into_parts();
    busy(&error);
    assert!(error.to_string().contains("shared receive queue"), "{error}");
    let (pd, error) = pd.destroy().expect_err("objects should use the domain").into_parts();
    busy(&error);
    // The failed call has returned a usable queue.
    receive_nothing(&srq, 1).expect("post a receive");
    assert_eq!(srq.query().expect("query"), reported(&srq));
    qp.destroy().expect("destroy");
    let (clone, error) =
        srq.clone().destroy().expect_err("another handle should exist").into_parts();
    busy(&error);
    drop(clone);
    srq.destroy().expect("queue should have no other owner");
    pd.destroy().expect("the domain should be unused");
    drop((cq, context, id));
    assert_eq!(resources(), before);
}

#[test]
#[ignore = "needs the test bed: cargo xtask test"]
fn destroy_in_wrong_order_is_refused_on_rxe() {
    destroy_in_wrong_order_is_refused(roce_name(), roce(0));
}

#[test]
#[ignore = "needs the test bed: cargo xtask test"]
fn destroy_in_wrong_order_is_refused_on_siw() {
    destroy_in_wrong_order_is_refused("siw0", siw(0));
}

/// Checks that invalid attributes are refused with the errno of the kernel.
fn invalid_queue_sizes_are_refused(address: SocketAddr) {
    let channel = channel();
    let id = id(&channel);
    id.bind(address).expect("bind");
    let context = id.context().expect("a device");
    let most = context.query_device().expect("query");
    let pd = ProtectionDomain::new(&context).expect("protection domain");
    let default = SharedReceiveQueueAttributes::default();
    let refused = |attributes| {
        SharedReceiveQueue::new(&pd, attributes).expect_err("the attributes should be refused")
    };
    // On mlx5, a queue without requests is valid.
    let none = SharedReceiveQueueAttributes { max_wr: 0, ..default };
    let is_mlx5 = address == roce(0) && is_card();
    for attributes in [
        none,
        SharedReceiveQueueAttributes { max_wr: most.max_srq_wr + 1, ..default },
        SharedReceiveQueueAttributes { max_sge: most.max_srq_sge + 1, ..default },
    ] {
        if is_mlx5 && attributes == none {
            continue;
        }
        let error = refused(attributes);
        assert_eq!(error.errno(), libc::EINVAL, "{attributes:?}: {error:?}");
    }
    assert_invalid(&refused(SharedReceiveQueueAttributes { limit: 17, ..default }), &["17", "16"]);
    // A later change is refused, too, and leaves the limit as it was.
    let attributes = SharedReceiveQueueAttributes { limit: 3, ..default };
    let srq = SharedReceiveQueue::new(&pd, attributes).expect("shared receive queue");
    let holds = srq.attributes().max_wr;
    let most = reported(&srq).max_wr;
    let error = srq.set_limit(most + 1).expect_err("a limit above the size should be refused");
    assert!(matches!(error.kind(), ErrorKind::Os(libc::EINVAL)), "{error:?}");
    assert!(error.to_string().contains("set the limit of shared receive queue"), "{error}");
    assert_eq!(srq.query().expect("query").limit, 3);
    srq.set_limit(holds).expect("a limit of all requests should be accepted");
    assert_eq!(srq.query().expect("query").limit, holds);
    srq.set_limit(0).expect("remove the limit");
    assert_eq!(
        srq.query().expect("query"),
        SharedReceiveQueueAttributes { limit: 0, ..reported(&srq) }
    );
}

#[test]
#[ignore = "needs the test bed: cargo xtask test"]
fn invalid_queue_sizes_are_refused_on_rxe() {
    invalid_queue_sizes_are_refused(roce(0));
}

#[test]
#[ignore = "needs the test bed: cargo xtask test"]
fn invalid_queue_sizes_are_refused_on_siw() {
    invalid_queue_sizes_are_refused(siw(0));
}

/// Checks that posted receives survive a resize.
///
/// This holds even if some of them are behind the end of the ring.
#[test]
#[ignore = "needs the test bed: cargo xtask test"]
fn posted_receives_survive_resize() {
    let servers = Servers::new(roce(0), 1, 7, &ConnParam::default());
    let Servers { pairs, shared, .. } = &servers;
    let take = |number: u64| {
        send(&pairs[0].client, 7 * number);
        assert_eq!(shared.done().wr_id(), number);
        pairs[0].client.io.done(7 * number);
        assert_eq!(shared.bytes(place(number)), (7 * number).to_ne_bytes());
    };
    let resize =
        |size: u64| shared.queue().resize(u32::try_from(size).expect("the number should fit"));
    let mut posted = 0..0;
    for (size, more) in [(7, 5), (30, 20), (15, 0), (15, 3), (60, 40)] {
        if posted.end - posted.start > size {
            let error = resize(size).expect_err("the queue should hold more requests");
            assert!(matches!(error.kind(), ErrorKind::Os(libc::EINVAL)), "{error:?}");
            posted.by_ref().take(4).for_each(take);
        }
        resize(size).expect("resize");
        assert!(u64::from(shared.queue().query().expect("query").max_wr) >= size);
        for number in posted.end..posted.end + more {
            shared.receive(number, place(number)).expect("the queue should have room");
        }
        posted.end += more;
        // Some requests stay in the queue for the next size.
        posted.by_ref().take(4).for_each(take);
    }
    posted.for_each(take);
    servers.close();
}

fn impossible_resize_is_refused(address: SocketAddr) {
    let channel = channel();
    let id = id(&channel);
    id.bind(address).expect("bind");
    let attributes = SharedReceiveQueueAttributes { limit: 5, ..Default::default() };
    let srq = id.create_srq(None, attributes).expect("shared receive queue");
    let error = srq.resize(4).expect_err("the resize should be refused");
    match error.kind() {
        ErrorKind::Os(libc::EINVAL) => assert_eq!(address, roce(0), "{error}"),
        ErrorKind::Unsupported(_) => assert_eq!(address, siw(0), "{error}"),
        _ => panic!("{error:?}"),
    }
    receive_nothing(&srq, 1).expect("the queue should be unchanged");
    assert_eq!(srq.query().expect("query"), srq.attributes());
}

fn srq_queue_pair_has_no_receive_queue(address: SocketAddr) {
    let channel = channel();
    let id = id(&channel);
    id.bind(address).expect("bind");
    let context = id.context().expect("a device");
    let pd = ProtectionDomain::new(&context).expect("protection domain");
    let cq = CompletionQueue::new(&context, 8, None).expect("completion queue");
    let attributes = SharedReceiveQueueAttributes::default();
    let srq = SharedReceiveQueue::new(&pd, attributes).expect("shared receive queue");
    let caps = QueuePairCaps { max_recv_wr: 7, max_recv_sge: 1 << 20, ..QueuePairCaps::default() };
    let init = QueuePairInit { srq: Some(&srq), caps, ..QueuePairInit::new(&cq) };
    let qp = QueuePair::new(&pd, &init).expect("the receive capacities should be ignored");
    assert_eq!((qp.caps().max_recv_wr, qp.caps().max_recv_sge), (0, 0));
    let error = crate::io::receive_nothing(&qp, 1)
        .expect_err("the queue pair should have no receive queue");
    assert_invalid(&error, &["post a receive to queue pair", "no receive queue of its own"]);
    assert_eq!(error.errno(), libc::EINVAL);
    // A shared receive queue of another context is refused.
    let other = Context::open(context.device()).expect("open");
    let foreign = ProtectionDomain::new(&other).expect("protection domain");
    let foreign = SharedReceiveQueue::new(&foreign, attributes).expect("shared receive queue");
    let init = QueuePairInit { srq: Some(&foreign), ..init };
    let error = QueuePair::new(&pd, &init)
        .expect_err("an object of another context or domain should be refused");
    assert_invalid(&error, &["shared receive queue", "another context"]);
    let error = id
        .create_srq(Some(foreign.pd()), attributes)
        .expect_err("an object of another context or domain should be refused");
    assert_invalid(&error, &["shared receive queue of id", "another context"]);
    assert!(id.srq().is_none());
}

/// Checks that the queue of an id belongs to its queue pair.
///
/// The connection request informs the peer about the queue, except on iWARP.
fn id_creates_and_owns_queue(address: SocketAddr) {
    let (ours, theirs) = (channel(), channel());
    let (_listener, address) = listen(&theirs, address);
    let attributes = SharedReceiveQueueAttributes::default();
    let error = id(&ours).create_srq(None, attributes).expect_err("the id should have no device");
    assert_invalid(&error, &["not bound to a device"]);
    let sent = address.ip() == roce(0).ip();
    for with in [true, false] {
        let client = resolve(&ours, address);
        let made = with.then(|| client.create_srq(None, attributes).expect("shared receive queue"));
        assert_eq!(client.srq(), made);
        if with {
            let error =
                client.create_srq(None, attributes).expect_err("a second one should be refused");
            assert_invalid(
                &error,
                &["shared receive queue of id", "already has a shared receive queue"],
            );
            assert_eq!(made.as_ref().map(|srq| srq.pd().clone()), client.default_pd().ok());
        }
        let own = client.create_ep_qp(&EndpointQpInit::default()).expect("queue pair");
        assert_eq!(own.srq(), made.as_ref());
        assert!(own.recv_cq().capacity() >= 16);
        // The program's value is ignored if the id has a queue pair.
        let lie = ConnParam { srq: !with, ..ConnParam::default() };
        client.connect(&lie).expect("connect");
        let mut event = theirs.expect_event(EventType::ConnectRequest).expect("a request");
        assert_eq!(event.connection().expect("parameters").srq, with && sent);
        let server = event.take_request().expect("an id");
        let pd = server.default_pd().expect("a device");
        let given = SharedReceiveQueue::new(&pd, attributes).expect("shared receive queue");
        let qp = EndpointQpInit { srq: with.then(|| given.clone()), ..Default::default() };
        let peer = server.create_ep_qp(&qp).expect("queue pair");
        assert_eq!(peer.srq(), with.then_some(&given));
        server.accept(&lie).expect("accept");
        let event = ours
            .expect_event(EventType::Established)
            .expect("the connection should be established");
        assert_eq!(event.connection().expect("parameters").srq, with && sent);
        theirs.expect_event(EventType::Established).expect("the connection should be established");
        if let Some(srq) = made {
            client.destroy_srq();
            assert!(client.srq().is_none());
            let (srq, error) = srq
                .destroy()
                .expect_err("a queue pair should use the shared receive queue")
                .into_parts();
            busy(&error);
            client.destroy_qp();
            drop(own);
            srq.destroy().expect("queue should have no other owner");
        }
    }
    // A queue pair of the program receives from the queue of its id too.
    let client = resolve(&ours, address);
    let srq = client.create_srq(None, attributes).expect("shared receive queue");
    let pd = client.default_pd().expect("a device");
    let cq = CompletionQueue::new(pd.context(), 8, None).expect("completion queue");
    let qp = client.create_qp(&pd, &QueuePairInit::new(&cq)).expect("queue pair");
    assert_eq!(qp.srq(), Some(&srq));
}

#[test]
#[ignore = "needs the test bed: cargo xtask test"]
fn id_creates_and_owns_queue_on_rxe() {
    id_creates_and_owns_queue(roce(0));
}

#[test]
#[ignore = "needs the test bed: cargo xtask test"]
fn id_creates_and_owns_queue_on_siw() {
    id_creates_and_owns_queue(siw(0));
}

#[test]
#[ignore = "needs the test bed: cargo xtask test"]
fn impossible_resize_is_refused_on_rxe() {
    impossible_resize_is_refused(roce(0));
}

#[test]
#[ignore = "needs the test bed: cargo xtask test"]
fn impossible_resize_is_refused_on_siw() {
    impossible_resize_is_refused(siw(0));
}

#[test]
#[ignore = "needs the test bed: cargo xtask test"]
fn srq_queue_pair_has_no_receive_queue_on_rxe() {
    srq_queue_pair_has_no_receive_queue(roce(0));
}

#[test]
#[ignore = "needs the test bed: cargo xtask test"]
fn srq_queue_pair_has_no_receive_queue_on_siw() {
    srq_queue_pair_has_no_receive_queue(siw(0));
}

fn list_is_posted_until_queue_is_full(address: SocketAddr) {
    let servers = Servers::new(address, 1, 4, &ConnParam::default());
    let Servers { pairs, shared, .. } = &servers;
    let room = shared.queue().attributes().max_wr;
    let list: Vec<_> = (0..u64::from(room) + 3).map(|wr_id| (wr_id, place(wr_id))).collect();
    let (count, refused) = shared.receive_list(&list);
    assert_eq!(count, room as usize);
    assert_invalid(&refused.expect_err("the queue should be full"), &["the queue is full"]);
    for (wr_id, _) in &list[..count] {
        send(&pairs[0].client, *wr_id);
        assert_eq!(shared.done().wr_id(), *wr_id);
        pairs[0].client.io.done(*wr_id);
    }
    // A thread that holds the guard cannot lock the queue again.
    let mut held = shared.queue().lock_receive_queue().expect("queue should be unlocked");
    held.ring_doorbell().expect("a doorbell without requests should succeed");
    for refused in [shared.receive(1, 0..8), shared.queue().resize(9)] {
        let error = refused.expect_err("this thread should hold the guard");
        assert!(matches!(error.kind(), ErrorKind::WouldDeadlock(_)), "{error}");
    }
    drop(held);
    assert_eq!(shared.receive_list(&list[..2]).0, 2);
    servers.close();
}

#[test]
#[ignore = "needs the test bed: cargo xtask test"]
fn list_is_posted_until_queue_is_full_on_rxe() {
    list_is_posted_until_queue_is_full(roce(0));
}

#[test]
#[ignore = "needs the test bed: cargo xtask test"]
fn list_is_posted_until_queue_is_full_on_siw() {
    list_is_posted_until_queue_is_full(siw(0));
}

/// Posts to one queue in two threads, and checks that each request is received once.
#[test]
#[ignore = "needs the test bed: cargo xtask test"]
fn receives_of_two_threads_are_taken_once() {
    const EACH: u64 = 200;
    let servers = Servers::new(roce(0), 2, 400, &ConnParam::default());
    let Servers { pairs, shared, .. } = &servers;
    thread::scope(|scope| {
        for first in [0, EACH] {
            scope.spawn(move || {
                (first..first + EACH).for_each(|wr_id| {
                    shared.receive(wr_id, place(wr_id)).expect("the queue should have room")
                });
            });
        }
    });
    let take = |number: u64| {
        let client = &pairs[usize::from(number % 2 == 1)].client;
        send(client, number);
        client.io.done(number);
        shared.done().wr_id()
    };
    let taken: Vec<_> = (0..2 * EACH).map(take).collect();
    for first in [0, EACH] {
        let of = taken.iter().copied().filter(|wr_id| wr_id / EACH == first / EACH);
        assert!(of.eq(first..first + EACH), "{taken:?}");
    }
    servers.close();
}

/// Checks that creation fails, or each later call reports the error, if a ring cannot be mapped.
#[test]
#[ignore = "needs the test bed: cargo xtask test"]
fn failed_ring_mapping_leaves_no_queue() {
    in_child(|| {
        let channel = channel();
        let id = id(&channel);
        id.bind(roce(0)).expect("bind");
        let attributes = SharedReceiveQueueAttributes::default();
        let srq = id.create_srq(None, attributes).expect("shared receive queue");
        receive_nothing(&srq, 1).expect("post a receive");
        let pages = fs::read_to_string("/proc/self/statm").expect("read the size of the process");
        let pages: u64 = pages.split(' ').next().and_then(|n| n.parse().ok()).expect("a number");
        let full = pages * 4096 + (1 << 20);
        setrlimit(Resource::RLIMIT_AS, full, full).expect("set a limit");
        // These rings have 8 MiB.
        let large = SharedReceiveQueueAttributes { max_wr: 65_535, ..attributes };
        let error = SharedReceiveQueue::new(srq.pd(), large)
            .expect_err("the address space should have no room");
        assert!(error.to_string().contains("map the ring of a shared receive queue"), "{error}");
        assert_eq!(error.errno(), libc::ENOMEM);
        receive_nothing(&srq, 2).expect("the other queue should be usable");
        let error = srq.resize(65_535).expect_err("the address space should have no room");
        assert_eq!(error.errno(), libc::ENOMEM, "{error}");
        let error = receive_nothing(&srq, 3).expect_err("the ring should not be mapped");
        assert_invalid(&error, &["could not be mapped"]);
        id.destroy_srq();
        srq.destroy().expect("the queue should be unused");
    });
}

/// Calls in a forked child reach neither the kernel nor the ring, which the child shares.
#[test]
#[ignore = "needs the test bed: cargo xtask test"]
fn forked_child_calls_are_refused() {
    let servers = Servers::new(roce(0), 1, 4, &ConnParam::default());
    let Servers { pairs, shared, .. } = &servers;
    let srq = shared.queue();
    shared.receive(1, place(1)).expect("post a receive");
    let mut doomed = Some(srq.clone());
    let attributes = SharedReceiveQueueAttributes::default();
    let made = SharedReceiveQueue::new(srq.pd(), attributes).expect("shared receive queue");
    let mut made = Some(made);
    in_child(|| {
        forked(shared.receive(2, place(2)));
        forked(srq.set_limit(1));
        forked(srq.resize(8));
        forked(srq.query());
        forked(SharedReceiveQueue::new(srq.pd(), attributes));
        forked(pairs[0].server.id.create_srq(None, attributes));
        forked(made.take().expect("the object should exist").destroy().map_err(Error::from));
        drop(doomed.take());
    });
    made.expect("the objects should still exist").destroy().expect("destroy");
    assert_eq!(srq.query().expect("query"), reported(srq));
    shared.receive(3, place(3)).expect("post a receive");
    for wr_id in [1, 3] {
        send(&pairs[0].client, wr_id);
        assert_eq!(shared.done().wr_id(), wr_id);
        pairs[0].client.io.done(wr_id);
    }
    servers.close();
}
