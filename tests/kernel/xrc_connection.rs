//! XRC connections by the connection manager, on the emulated card.

use std::net::SocketAddr;
use std::thread;

use rdmacm::ErrorKind;
use rdmacm::addr::{AddrInfo, AddrInfoFlags, AddrInfoHints};
use rdmacm::cm::{
    CmId, ConnParam, EndpointQpInit, EventChannel, EventType, PortSpace, getaddrinfo,
};
use rdmacm::verbs::{
    Completion, CompletionQueue, Context, ProtectionDomain, QpState, QpType, QueuePairCaps,
    QueuePairInit, SendFlags, SendOperation, SharedReceiveQueue, SharedReceiveQueueAttributes,
    WcStatus, XrcDomain,
};

use crate::fixtures::{
    LONG, Side, assert_invalid, channel, device, listen, objects, request, resolve, roce, roce_name,
};
use crate::io::{self, Shape, post_nothing};
use crate::shared::{Shared, receive_nothing};

const INITIATOR: QpType = QpType::IB_UVERBS_QPT_XRC_INI;
const TARGET: QpType = QpType::IB_UVERBS_QPT_XRC_TGT;

/// Returns an id for initiators that is ready to connect to `server`.
fn initiator(channel: &EventChannel, server: SocketAddr) -> CmId {
    let id = CmId::with_qp_type(channel, PortSpace::Ib, INITIATOR).expect("create an id");
    id.resolve_addr(None, server, LONG).expect("resolve the address");
    channel.expect_event(EventType::AddrResolved).expect("the address should be resolved");
    id.resolve_route(LONG).expect("resolve the route");
    channel.expect_event(EventType::RouteResolved).expect("the route should be resolved");
    id
}

/// Returns a listener for initiators, and its address.
fn listener(channel: &EventChannel) -> (CmId, SocketAddr) {
    let listener = CmId::with_qp_type(channel, PortSpace::Ib, TARGET).expect("create an id");
    listener.bind(roce(0)).expect("bind");
    listener.listen(0).expect("listen");
    let address = listener.local_addr().expect("query").expect("a bound id should have an address");
    (listener, address)
}

/// Returns an id for targets that is bound to the device.
fn bound(channel: &EventChannel) -> CmId {
    let id = CmId::with_qp_type(channel, PortSpace::Ib, TARGET).expect("create an id");
    id.bind(roce(0)).expect("bind");
    id
}

fn with_number(number: u32) -> ConnParam {
    ConnParam { private_data: number.to_be_bytes().to_vec(), ..ConnParam::default() }
}

/// Returns the number at the start of private data.
fn number_in(private_data: &[u8]) -> u32 {
    u32::from_be_bytes(*private_data.first_chunk().expect("a number"))
}

#[test]
#[ignore = "needs the test bed: cargo xtask test"]
fn message_reaches_queue_named_by_peer() {
    let before = objects();
    let (ours, theirs) = (channel(), channel());
    let (listener, address) = listener(&theirs);
    let mut client = Side::new(initiator(&ours, address), Shape::default());
    assert_eq!(client.io.qp().qp_type(), INITIATOR);
    client.id.connect(&ConnParam::default()).expect("connect");
    let server = request(&theirs);
    let target = server.create_xrc_target(None).expect("target");
    assert_eq!(server.xrc_target(), Some(target.clone()));
    assert!(server.qp().is_none());
    assert_eq!(target.query().expect("query").qp_state, QpState::IB_QPS_INIT);
    let shared = Shared::of_target_id(&server, 8);
    assert_eq!(server.srq().as_ref(), Some(shared.queue()));
    assert_eq!(shared.queue().domain(), Some(target.domain()));
    let own = shared.queue().number().expect("the queue should be in an XRC domain");
    // The kernel sends no depth of a target.
    server.accept(&ConnParam { initiator_depth: 1, ..with_number(own) }).expect("accept");
    let answer = ours.expect_event(EventType::Established).expect("the client should be connected");
    let srq_number = number_in(answer.private_data());
    assert_eq!(srq_number, own);
    let param = answer.connection().expect("a connection");
    assert_eq!(param.qp_num, target.number());
    drop(answer);
    theirs.expect_event(EventType::Established).expect("the server should be connected");
    let state = target.query().expect("query");
    assert_eq!((state.qp_state, state.dest_qp_num), (QpState::IB_QPS_RTS, client.io.qp().number()));
    client.io.fill(0, b"contents");
    let memory = shared.memory();
    let (remote_addr, rkey) = (memory.addr() + 512, memory.rkey());
    for (wr_id, operation) in
        [(1, SendOperation::Send), (2, SendOperation::Write { remote_addr, rkey })]
    {
        shared.receive(wr_id, 64..128).expect("post a receive");
        let operation = SendOperation::AtSharedQueue { srq_number, operation: &operation };
        client.io.post(wr_id, operation, 0..8, SendFlags::SIGNALED).expect("post");
        client.io.done(wr_id);
    }
    let received = shared.done();
    assert_eq!((received.wr_id(), received.byte_len()), (1, 8));
    assert_eq!(received.qp_num(), target.number());
    assert_eq!([shared.bytes(64..72), shared.bytes(512..520)], [b"contents"; 2]);
    client.id.disconnect().expect("disconnect");
    theirs.expect_event(EventType::Disconnected).expect("server should get the event");
    server.disconnect().expect("disconnect");
    ours.expect_event(EventType::Disconnected).expect("client should get the event");
    assert_eq!(target.query().expect("query").qp_state, QpState::IB_QPS_ERR);
    server.destroy().expect("destroy");
    target.unregister().expect("the id should have released the target");
    client.id.destroy().expect("destroy");
    listener.destroy().expect("destroy");
    drop((client.io, shared));
    assert_eq!(objects(), before);
}

/// Resolves `address` for queue pairs of `qp_type`.
fn found(address: SocketAddr, qp_type: QpType, flags: AddrInfoFlags) -> AddrInfo {
    let hints = AddrInfoHints { flags, qp_type: Some(qp_type), ..AddrInfoHints::default() };
    let (node, service) = (address.ip().to_string(), address.port().to_string());
    let found = getaddrinfo(Some(&node), Some(&service), Some(&hints)).expect("a number");
    found.into_iter().next().expect("an address should be found")
}

/// Waits for the receive `wr_id` of `srq`, and returns the number of its target.
fn received(srq: &SharedReceiveQueue, wr_id: u64) -> u32 {
    let mut done = [Completion::default()];
    assert_eq!(
        srq.cq().expect("the queue should be in an XRC domain").wait(&mut done).expect("wait"),
        1
    );
    assert_eq!((done[0].status(), done[0].wr_id()), (WcStatus::IB_WC_SUCCESS, wr_id));
    done[0].qp_num()
}

/// Disconnects both sides at once: each waits for an event that the other side causes.
fn disconnect(client: &CmId, server: &CmId) {
    thread::scope(|scope| {
        let client = scope.spawn(|| client.disconnect().expect("disconnect"));
        server.disconnect().expect("disconnect");
        client.join().expect("client should not panic");
    });
}

#[test]
#[ignore = "needs the test bed: cargo xtask test"]
fn endpoints_connect_and_send() {
    let before = objects();
    let context = bound(&channel()).context().expect("a bound id should have a device");
    let own = XrcDomain::new(&context).expect("domain");
    for xrc_domain in [None, Some(own)] {
        let passive = found(roce(0), TARGET, AddrInfoFlags::PASSIVE);
        let init = EndpointQpInit { xrc_domain: xrc_domain.clone(), ..EndpointQpInit::default() };
        let listener = CmId::create_ep(&passive, Some(&init)).expect("create an endpoint");
        assert_eq!(listener.qp_type(), TARGET);
        listener.set_timeout(Some(LONG));
        listener.listen(0).expect("listen");
        let address = listener.local_addr().expect("query").expect("the id should be bound");
        thread::scope(|scope| {
            let server = scope.spawn(|| {
                let server = listener.get_request().expect("a request");
                let attributes = SharedReceiveQueueAttributes::default();
                let srq = server.create_srq(None, attributes).expect("shared receive queue");
                receive_nothing(&srq, 3).expect("post a receive");
                server
                    .accept(&with_number(srq.number().expect("the queue should be in a domain")))
                    .expect("accept");
                server
            });
            let caps = QueuePairCaps { max_send_wr: 3, ..QueuePairCaps::default() };
            let init = EndpointQpInit { caps, ..EndpointQpInit::default() };
            let active = found(address, INITIATOR, AddrInfoFlags::empty());
            let client = CmId::create_ep(&active, Some(&init)).expect("create an endpoint");
            client.set_timeout(Some(LONG));
            client.connect(&ConnParam::default()).expect("connect");
            let server = server.join().expect("server should not panic");
            let made = objects();
            let count = |kind| {
                made.count(kind).expect("the device should count these objects")
                    - before.count(kind).expect("the device should count these objects")
            };
            // The initiator has no completion queue for receives.
            assert_eq!((count("qp"), count("cq"), count("pd")), (2, 2, 1));
            let target = server.xrc_target().expect("the endpoint should have a target");
            let default = server.default_xrc_domain().expect("domain");
            assert_eq!(target.domain(), xrc_domain.as_ref().unwrap_or(&default));
            let srq = server.srq().expect("the server should have a shared receive queue");
            assert_eq!(srq.domain(), Some(target.domain()));
            let qp = client.qp().expect("the id should have a queue pair");
            assert_eq!(qp.send_cq(), qp.recv_cq());
            let event = client.last_event().expect("the id should keep its last event");
            let srq_number = number_in(event.private_data());
            let operation =
                SendOperation::AtSharedQueue { srq_number, operation: &SendOperation::Send };
            post_nothing(&qp, 4, operation).expect("post");
            let mut done = [Completion::default()];
            assert_eq!(qp.send_cq().wait(&mut done).expect("wait"), 1);
            assert!(done[0].is_success(), "{done:?}");
            assert_eq!(received(&srq, 3), target.number());
            disconnect(&client, &server);
            client.destroy().expect("destroy");
            server.destroy().expect("destroy");
        });
        listener.destroy().expect("destroy");
    }
    drop(context);
    assert_eq!(objects(), before);
}

#[test]
#[ignore = "needs the test bed: cargo xtask test"]
fn objects_of_id_are_in_one_domain() {
    let before = objects();
    let theirs = channel();
    let [first, second, third] = [(); 3].map(|()| bound(&theirs));
    let context = first.context().expect("a bound id should have a device");
    let own = XrcDomain::new(&context).expect("domain");
    let attributes = SharedReceiveQueueAttributes::default();
    let target = first.create_xrc_target(Some(&own)).expect("target");
    first.create_xrc_srq(None, None, None, attributes).expect("shared receive queue");
    second.create_xrc_srq(Some(&own), None, None, attributes).expect("shared receive queue");
    for srq in [first.srq(), second.srq()] {
        assert_eq!(srq.expect("both should have a shared receive queue").domain(), Some(&own));
    }
    assert_eq!(target.domain(), &own);
    assert_eq!(second.create_xrc_target(None).expect("target").domain(), &own);
    let default = third.default_xrc_domain().expect("domain");
    assert_ne!(default, own);
    assert_eq!(first.default_xrc_domain().expect("domain"), default);
    assert_eq!(third.create_xrc_target(None).expect("target").domain(), &default);
    // The id can have another target after it has released the first one.
    first.destroy_qp();
    assert!(first.xrc_target().is_none());
    target.unregister().expect("the id should have released the target");
    assert_eq!(first.create_xrc_target(None).expect("target").domain(), &own);
    let pd = ProtectionDomain::new(&context).expect("protection domain");
    let cq = CompletionQueue::new(&context, 4, None).expect("completion queue");
    let srq = third.create_xrc_srq(None, Some(&pd), Some(&cq), attributes).expect("queue");
    assert_eq!((srq.pd(), srq.cq()), (&pd, Some(&cq)));
    drop((first, second, third, srq));
    own.close().expect("ids should have released it");
    default.close().expect("ids should have released it");
    drop((context, pd, cq));
    assert_eq!(objects(), before);
}

#[test]
#[ignore = "needs the test bed: cargo xtask test"]
fn wrong_use_of_target_id_is_refused() {
    let theirs = channel();
    let attributes = SharedReceiveQueueAttributes::default();
    let unbound = CmId::with_qp_type(&theirs, PortSpace::Ib, TARGET).expect("create an id");
    for error in [
        unbound.create_xrc_target(None).map(drop),
        unbound.create_xrc_srq(None, None, None, attributes).map(drop),
        unbound.default_xrc_domain().map(drop),
    ] {
        assert_invalid(
            &error.expect_err("the id should have no device"),
            &["not bound to a device"],
        );
    }
    let id = bound(&theirs);
    let shared_context = id.context().expect("a bound id should have a device");
    let before = objects();
    let context = Context::open(&device(roce_name())).expect("open the device");
    let domain = XrcDomain::new(&context).expect("domain");
    let pd = ProtectionDomain::new(&context).expect("protection domain");
    let cq = CompletionQueue::new(&context, 4, None).expect("completion queue");
    for error in [
        id.create_xrc_target(Some(&domain)).map(drop),
        id.create_xrc_srq(Some(&domain), None, None, attributes).map(drop),
        id.create_xrc_srq(None, Some(&pd), None, attributes).map(drop),
        id.create_xrc_srq(None, None, Some(&cq), attributes).map(drop),
    ] {
        assert_invalid(
            &error.expect_err("a domain of another context should be refused"),
            &["of another context"],
        );
    }
    drop((context, domain, pd, cq));
    let pd = id.default_pd().expect("protection domain");
    let cq = CompletionQueue::new(pd.context(), 4, None).expect("completion queue");
    for error in [
        id.create_qp(&pd, &QueuePairInit::new(&cq)).map(drop),
        id.create_ep_qp(&EndpointQpInit::default()).map(drop),
    ] {
        assert_invalid(
            &error.expect_err("a plain queue pair should be refused"),
            &["CmId::create_xrc_target"],
        );
    }
    id.create_xrc_target(None).expect("target");
    let error = id.create_xrc_target(None).expect_err("a second target should be refused");
    assert_invalid(&error, &["already has a queue pair"]);
    id.create_xrc_srq(None, None, None, attributes).expect("shared receive queue");
    for error in [id.create_xrc_srq(None, None, None, attributes), id.create_srq(None, attributes)]
    {
        assert_invalid(
            &error.expect_err("a second queue should be refused"),
            &["already has a shared receive queue"],
        );
    }
    assert_invalid(
        &id.establish().expect_err("an id with a target should not confirm"),
        &["a queue pair of its own"],
    );
    let error =
        id.connect(&ConnParam::default()).expect_err("an id with a target should not connect");
    assert_invalid(&error, &["only accepts connections"]);
    id.destroy_qp();
    id.destroy_srq();
    drop((pd, cq));
    assert_eq!(objects(), before);
    drop(shared_context);
}

#[test]
#[ignore = "needs the test bed: cargo xtask test"]
fn target_is_only_for_target_ids() {
    let (ours, theirs) = (channel(), channel());
    let (_plain_listener, plain_address) = listen(&theirs, roce(0));
    let plain = resolve(&ours, plain_address);
    let (listener, address) = listener(&theirs);
    let other = CmId::with_qp_type(&theirs, PortSpace::Ib, QpType::IB_UVERBS_QPT_RC);
    let other = other.expect("create an id");
    other.bind(roce(0)).expect("bind");
    other.listen(0).expect("listen");
    let other_address =
        other.local_addr().expect("query").expect("a bound id should have an address");
    let stranger = initiator(&ours, other_address);
    let _initiator = stranger.create_ep_qp(&EndpointQpInit::default()).expect("initiator");
    stranger.connect(&ConnParam::default()).expect("connect");
    let error =
        ours.expect_event(EventType::Established).expect_err("another type should be rejected");
    assert!(matches!(error.kind(), ErrorKind::Rejected(_)), "{error}");
    let client = initiator(&ours, address);
    let attributes = SharedReceiveQueueAttributes::default();
    let domain = client.default_xrc_domain().expect("domain");
    for (id, qp_type) in [(&plain, "RC"), (&client, "XRC_INI")] {
        for error in [
            id.create_xrc_target(Some(&domain)).map(drop),
            id.create_xrc_srq(Some(&domain), None, None, attributes).map(drop),
        ] {
            let error = error.expect_err("an id of another type should have no target");
            assert_invalid(&error, &[qp_type, "not XRC targets"]);
        }
        let xrc_domain = Some(domain.clone());
        let init = EndpointQpInit { xrc_domain, ..EndpointQpInit::default() };
        let error = id.create_ep_qp(&init).expect_err("the XRC domain should be refused");
        assert_invalid(&error, &["only an XRC target is in an XRC domain"]);
        assert!(id.xrc_target().is_none() && id.qp().is_none());
    }
    // An initiator has no receives, and its id no shared receive queue.
    client.create_srq(None, attributes).expect("shared receive queue");
    let init = EndpointQpInit::default();
    assert_invalid(
        &client.create_ep_qp(&init).expect_err("a shared receive queue should be refused"),
        &["only sends"],
    );
    client.destroy_srq();
    let qp = client.create_ep_qp(&init).expect("initiator");
    assert_invalid(
        &io::receive_nothing(&qp, 1).expect_err("a receive of an initiator should be refused"),
        &["only sends"],
    );
    client.connect(&ConnParam::default()).expect("connect");
    let server = request(&theirs);
    let error = server.accept(&ConnParam::default()).expect_err("the id should have no queue pair");
    assert_invalid(&error, &["the id has no queue pair"]);
    server.reject(b"").expect("reject");
    let error =
        ours.expect_event(EventType::Established).expect_err("the request should be rejected");
    assert!(matches!(error.kind(), ErrorKind::Rejected(_)), "{error}");
    drop(listener);
}
