//! Ids for datagrams: their properties, and how two ids find each other.

use std::net::SocketAddr;

use rdmacm::ErrorKind;
use rdmacm::cm::{CmId, ConnParam, DatagramParam, EventChannel, EventType, PortSpace, ServiceType};
use rdmacm::verbs::{
    AddressHandle, Completion, CompletionQueue, Destination, GRH_LENGTH, ProtectionDomain, QpState,
    QpType, QueuePairInit, SendFlags, SendOperation,
};
use rdmacm::verbs_abi::{ib_uverbs_ah_attr, ib_wc_flags};

use crate::child::{hide, in_child};
use crate::fixtures::{
    Connection, LONG, NO_LISTENER, REJECTED, Side, assert_invalid, channel, objects, request, roce,
    roce_v6, siw,
};
use crate::io::{Io, Shape};

#[test]
#[ignore = "needs the test bed: cargo xtask test"]
fn port_space_determines_queue_pair_type() {
    use QpType as T;
    let channel = channel();
    let types = [
        T::IB_UVERBS_QPT_RC,
        T::IB_UVERBS_QPT_UC,
        T::IB_UVERBS_QPT_UD,
        T::IB_UVERBS_QPT_RAW_PACKET,
        T::IB_UVERBS_QPT_XRC_INI,
        T::IB_UVERBS_QPT_XRC_TGT,
        T(0),
    ];
    for (space, usual, allowed) in [
        (PortSpace::Tcp, T::IB_UVERBS_QPT_RC, &types[..1]),
        (PortSpace::Udp, T::IB_UVERBS_QPT_UD, &types[2..3]),
        (PortSpace::IpoIb, T::IB_UVERBS_QPT_UD, &types[2..3]),
        (PortSpace::Ib, T::IB_UVERBS_QPT_RC, &types[..]),
    ] {
        let id = CmId::new(&channel, space).expect("create an id");
        assert_eq!((id.port_space(), id.qp_type()), (space, usual));
        for qp_type in types {
            let known = qp_type.0 != 0 && qp_type != T::IB_UVERBS_QPT_RAW_PACKET;
            match CmId::with_qp_type(&channel, space, qp_type) {
                Ok(id) => {
                    assert!(allowed.contains(&qp_type) && known, "{space:?} {qp_type}");
                    let datagram = qp_type == T::IB_UVERBS_QPT_UD;
                    let service =
                        if datagram { ServiceType::Datagram } else { ServiceType::Connected };
                    assert_eq!((id.qp_type(), id.service()), (qp_type, service));
                    // With IP addresses, IPoIB needs an InfiniBand link, which this machine lacks.
                    let is_refused = space == PortSpace::IpoIb;
                    let bound = id.bind(roce(0)).map_err(|error| error.errno());
                    assert_eq!(bound.err(), is_refused.then_some(libc::EINVAL), "{space:?}");
                }
                Err(error) => {
                    assert!(!allowed.contains(&qp_type) || !known, "{space:?} {qp_type}: {error}");
                    assert_invalid(&error, &["create an id", &space.to_string()]);
                }
            }
        }
    }
}

/// Returns an id for datagrams.
pub(crate) fn id(channel: &EventChannel) -> CmId {
    CmId::new(channel, PortSpace::Udp).expect("create an id")
}

/// Makes an id for datagrams listen at `address`, on a port that the kernel selects.
fn listen(listener: &CmId, address: SocketAddr) -> SocketAddr {
    listener.bind(address).expect("bind");
    listener.listen(0).expect("listen");
    listener.local_addr().expect("query").expect("a bound id should have an address")
}

/// Resolves address and route of `server` for `id`.
pub(crate) fn resolve(channel: &EventChannel, id: &CmId, server: SocketAddr) {
    id.resolve_addr(None, server, LONG).expect("resolve the address");
    channel.expect_event(EventType::AddrResolved).expect("the address should be resolved");
    id.resolve_route(LONG).expect("resolve the route");
    channel.expect_event(EventType::RouteResolved).expect("the route should be resolved");
}

/// A client with the resolved destination of its server, and the server.
struct Pair {
    channel: EventChannel,
    client: Side,
    server: Side,
    /// Destination of the client.
    peer: DatagramParam,
}

impl Pair {
    fn new(address: SocketAddr) -> Self {
        let channel = channel();
        let listener = id(&channel);
        let address = listen(&listener, address);
        let client = id(&channel);
        resolve(&channel, &client, address);
        let client = Side::new(client, Shape::default());
        client.id.connect(&ConnParam::default()).expect("ask");
        let server = Side::new(request(&channel), Shape::default());
        server.id.accept(&ConnParam::default()).expect("answer");
        let event = channel.expect_event(EventType::Established).expect("an answer");
        assert_eq!(event.token(), client.id.token());
        let peer = event.datagram().expect("the event should have a destination").clone();
        Self { channel, client, server, peer }
    }

    /// Returns the address handle for the destination of the client.
    fn handle(&self) -> AddressHandle {
        AddressHandle::new(self.client.io.qp().pd(), &self.peer.ah_attr).expect("address handle")
    }

    fn destination<'a>(&self, address: &'a AddressHandle) -> Destination<'a> {
        Destination { address, qp_num: self.peer.qp_num, qkey: self.peer.qkey }
    }
}

fn send_to(destination: Destination<'_>, imm_data: Option<u32>) -> SendOperation<'_> {
    SendOperation::SendTo { destination, imm_data }
}

#[test]
#[ignore = "needs the test bed: cargo xtask test"]
fn datagrams_go_both_ways() {
    for address in [roce(0), roce_v6(0)] {
        let mut pair = Pair::new(address);
        assert_eq!(pair.client.id.service(), ServiceType::Datagram);
        assert_eq!(pair.server.id.port_space(), PortSpace::Udp);
        for side in [&pair.client, &pair.server] {
            let kernel = side.io.qp().query().expect("query");
            assert_eq!((kernel.qp_state, kernel.sq_psn), (QpState::IB_QPS_RTS, 0));
            assert_eq!(kernel.qkey, 0x0123_4567, "the Q_Key of the port space UDP");
            assert_eq!(side.io.qp().qp_type(), QpType::IB_UVERBS_QPT_UD);
        }
        assert_eq!(pair.peer.qp_num, pair.server.io.qp().number());
        assert_eq!(pair.peer.qkey, 0x0123_4567);
        let handle = pair.handle();
        for (number, imm_data) in [(0_u8, None), (1, Some(0x0102_0304))] {
            let (text, wr_id) = ([number; 100], u64::from(number));
            pair.client.io.fill(0, &text);
            pair.server.io.receive(wr_id, 0..GRH_LENGTH + 100).expect("post a receive");
            let to = send_to(pair.destination(&handle), imm_data);
            pair.client.io.post(7, to, 0..100, SendFlags::SIGNALED).expect("post a send");
            pair.client.io.done(7);
            let done = pair.server.io.done(wr_id);
            assert_eq!(done.byte_len(), 140, "the length should include the header");
            assert_eq!(done.src_qp(), pair.client.io.qp().number());
            assert!(done.flags().contains(ib_wc_flags::IB_WC_GRH));
            assert_eq!(done.imm_data(), imm_data);
            assert_eq!(pair.server.io.bytes(GRH_LENGTH..GRH_LENGTH + 100), text);
            reply(&pair, &done, &text);
        }
        // These ids get no further events.
        pair.channel.set_nonblocking(true).expect("non-blocking");
        let error = pair.channel.get_event().expect_err("no event should arrive");
        assert!(matches!(error.kind(), ErrorKind::WouldBlock), "{error}");
    }
}

/// Sends the bytes that the server has received back to their sender.
fn reply(pair: &Pair, done: &Completion, text: &[u8]) {
    let header =
        pair.server.io.bytes(0..GRH_LENGTH).try_into().expect("the slice should have 40 bytes");
    let pd = pair.server.io.qp().pd();
    let handle = AddressHandle::for_reply(pd, done, &header, 1).expect("address handle");
    let back = Destination { address: &handle, qp_num: done.src_qp(), qkey: pair.peer.qkey };
    pair.client.io.receive(8, 1000..1200).expect("post a receive");
    let flags = SendFlags::SIGNALED;
    pair.server.io.post_inline(9, send_to(back, None), &text[..64], flags).expect("post a send");
    pair.server.io.done(9);
    assert_eq!(pair.client.io.done(8).byte_len(), 104);
    assert_eq!(pair.client.io.bytes(1000 + GRH_LENGTH..1104), text[..64]);
    handle.destroy().expect("no datagram should be in flight");
    // The receive looks like one from a group, or to an address that was removed.
    let mut group = header;
    group[if group[0] >> 4 == 6 { 24 } else { 36 }] = 0xff;
    AddressHandle::for_reply(pd, done, &group, 1)
        .expect_err("the destination should be no address of the port");
    let error = AddressHandle::for_reply(pd, done, &[0; GRH_LENGTH], 1)
        .expect_err("the header should be invalid");
    assert_invalid(&error, &["sender", "header"]);
    let error =
        AddressHandle::for_reply(pd, done, &header, 9).expect_err("the port should not exist");
    assert_eq!(error.errno(), libc::EINVAL);
}

/// Checks that the sender of a datagram is found without sysfs.
#[test]
#[ignore = "needs the test bed: cargo xtask test"]
fn datagrams_are_answered_without_sysfs() {
    in_child(|| {
        hide("/sys");
        let mut pair = Pair::new(roce(0));
        let handle = pair.handle();
        let text = [7; 100];
        pair.client.io.fill(0, &text);
        pair.server.io.receive(1, 0..GRH_LENGTH + 100).expect("post a receive");
        let to = send_to(pair.destination(&handle), None);
        pair.client.io.post(7, to, 0..100, SendFlags::SIGNALED).expect("post a send");
        pair.client.io.done(7);
        let done = pair.server.io.done(1);
        reply(&pair, &done, &text);
    });
}

/// As the specification requires, no datagram is sent, and no side gets an error.
#[test]
#[ignore = "needs the test bed: cargo xtask test"]
fn datagram_beyond_mtu_is_dropped_silently() {
    let pair = Pair::new(roce(0));
    let handle = pair.handle();
    let context = pair.client.io.qp().pd().context();
    let mtu = context
        .query_port(1)
        .expect("query the port")
        .active_mtu
        .bytes()
        .expect("the value should be known");
    let mtu = usize::try_from(mtu).expect("the value should fit");
    for wr_id in 1..=2 {
        pair.server.io.receive(wr_id, 0..GRH_LENGTH + mtu + 1).expect("post a receive");
    }
    for length in [mtu + 1, mtu] {
        let to = send_to(pair.destination(&handle), None);
        pair.client.io.post(7, to, 0..length, SendFlags::SIGNALED).expect("post a send");
        pair.client.io.done(7);
    }
    // The second datagram uses the first receive.
    let received =
        usize::try_from(pair.server.io.done(1).byte_len()).expect("the value should fit");
    assert_eq!(received, GRH_LENGTH + mtu);
}

#[test]
#[ignore = "needs the test bed: cargo xtask test"]
fn private_data_obeys_limits_of_service_resolution() {
    let full = |length: u8| (1..=length).collect::<Vec<_>>();
    let with = |private_data: &[u8]| ConnParam {
        private_data: private_data.to_vec(),
        ..ConnParam::default()
    };
    let padded = |data: &[u8], length| {
        let mut field = data.to_vec();
        field.resize(length, 0);
        field
    };
    let channel = channel();
    for space in [PortSpace::Udp, PortSpace::Ib] {
        let id = || CmId::with_qp_type(&channel, space, QpType::IB_UVERBS_QPT_UD).expect("an id");
        let listener = id();
        let address = listen(&listener, roce(0));
        for (asked, answered) in [(vec![], vec![]), (full(3), full(5)), (full(180), full(136))] {
            for accepts in [true, false] {
                let client = id();
                resolve(&channel, &client, address);
                let error = client
                    .connect(&with(&full(181)))
                    .expect_err("the private data should be too long");
                assert_invalid(&error, &["connect", "181 bytes", "180"]);
                // An id needs no queue pair to send a request.
                client.connect(&with(&asked)).expect("ask");
                let mut event = channel
                    .expect_event(EventType::ConnectRequest)
                    .expect("a request should arrive");
                assert_eq!(event.listener(), Some(listener.token()));
                assert_eq!(event.private_data(), padded(&asked, 180));
                let server = event.take_request().expect("an id");
                assert_eq!((server.port_space(), server.service()), (space, ServiceType::Datagram));
                let answer = if accepts {
                    server.accept(&with(&full(137)))
                } else {
                    server.reject(&full(137))
                };
                assert_invalid(
                    &answer.expect_err("the private data should be too long"),
                    &["137 bytes", "136"],
                );
                if accepts {
                    let error = server
                        .accept(&with(&answered))
                        .expect_err("the id should have no queue pair");
                    assert_invalid(&error, &["accept", "queue pair"]);
                    let param = ConnParam { qp_num: 0x123, ..with(&answered) };
                    server.accept(&param).expect("answer");
                    let event = channel
                        .expect_event(EventType::Established)
                        .expect("an answer should arrive");
                    assert_eq!(event.private_data(), padded(&answered, 136));
                    assert_eq!(
                        event.datagram().expect("the event should have a destination").qp_num,
                        0x123
                    );
                } else {
                    server.reject(&answered).expect("reject");
                    let event = channel.get_event().expect("an event");
                    assert_eq!((event.event_type(), event.status()), (EventType::Unreachable, 2));
                    assert_eq!(event.private_data(), padded(&answered, 136));
                    let error = event.error_for(EventType::Established).expect("a failure");
                    assert!(matches!(error.kind(), ErrorKind::Unreachable(REJECTED)), "{error:?}");
                    assert!(
                        error.to_string().contains("rejected by the peer application"),
                        "{error}"
                    );
                }
            }
        }
    }
}

#[test]
#[ignore = "needs the test bed: cargo xtask test"]
fn resolution_without_listener_is_rejected() {
    let channel = channel();
    let client = id(&channel);
    resolve(&channel, &client, roce(7199));
    client.connect(&ConnParam::default()).expect("ask");
    let error = channel.expect_event(EventType::Established).expect_err("no program should listen");
    assert!(matches!(error.kind(), ErrorKind::Unreachable(NO_LISTENER)), "{error:?}");
    assert!(error.to_string().contains("no program listens"), "{error}");
}

#[test]
#[ignore = "needs the test bed: cargo xtask test"]
fn dropped_request_is_rejected() {
    let channel = channel();
    let listener = id(&channel);
    let address = listen(&listener, roce(0));
    let client = id(&channel);
    resolve(&channel, &client, address);
    client.connect(&ConnParam::default()).expect("ask");
    drop(channel.expect_event(EventType::ConnectRequest).expect("a request should arrive"));
    let error =
        channel.expect_event(EventType::Established).expect_err("the request should be rejected");
    assert!(matches!(error.kind(), ErrorKind::Unreachable(REJECTED)), "{error:?}");
}

#[test]
#[ignore = "needs the test bed: cargo xtask test"]
fn datagram_ids_refuse_connection_calls() {
    let pair = Pair::new(roce(0));
    for side in [&pair.client, &pair.server] {
        let error = side.id.disconnect().expect_err("a datagram id should not disconnect");
        assert_invalid(&error, &["disconnect", "datagrams"]);
        let error =
            side.id.establish().expect_err("a datagram id should have no connection to confirm");
        assert_invalid(&error, &["establish", "datagrams"]);
        assert_eq!(side.io.qp().query().expect("query").qp_state, QpState::IB_QPS_RTS);
    }
    let error = pair
        .client
        .id
        .connect(&ConnParam::default())
        .expect_err("a second request should be refused");
    assert_eq!(error.errno(), libc::EINVAL);
    let error = pair
        .server
        .id
        .accept(&ConnParam::default())
        .expect_err("a second answer should be refused");
    assert_eq!(error.errno(), libc::EINVAL);
}

#[test]
#[ignore = "needs the test bed: cargo xtask test"]
fn siw_refuses_datagrams() {
    let channel = channel();
    let client = id(&channel);
    resolve(&channel, &client, siw(7199));
    let error = client.connect(&ConnParam::default()).expect_err("iWARP should have no datagrams");
    assert!(matches!(error.kind(), ErrorKind::Unsupported(_)), "{error:?}");
    let context = client.context().expect("context");
    let pd = ProtectionDomain::new(&context).expect("domain");
    let error = AddressHandle::new(&pd, &ib_uverbs_ah_attr::default())
        .expect_err("siw should have no address handles");
    assert!(matches!(error.kind(), ErrorKind::Unsupported(_)), "{error:?}");
    let cq = CompletionQueue::new(&context, 4, None).expect("completion queue");
    let error = client
        .create_qp(&pd, &QueuePairInit::new(&cq))
        .expect_err("siw should have no datagram queue pairs");
    assert_eq!(error.errno(), libc::EOPNOTSUPP, "{error}");
    assert!(error.to_string().contains("iWARP has no datagrams"), "{error}");
}

#[test]
#[ignore = "needs the test bed: cargo xtask test"]
fn unsupported_sends_are_refused() {
    let pair = Pair::new(roce(0));
    let (io, handle) = (&pair.client.io, pair.handle());
    let destination = pair.destination(&handle);
    let post = |io: &Io, operation| io.post(1, operation, 0..8, SendFlags::SIGNALED);
    for operation in [SendOperation::Send, io.written_at(0), io.read_at(0)] {
        let error = post(io, operation).expect_err("send should need a destination");
        assert_invalid(&error, &["post a send", "type UD support only `SendTo`"]);
    }
    let connection = Connection::new(Shape::default());
    let error = post(&connection.client.io, send_to(destination, None))
        .expect_err("a connected queue pair should refuse datagrams");
    assert_invalid(&error, &["post a send", "only queue pairs of type UD"]);
    connection.close();
    let other = ProtectionDomain::new(io.qp().pd().context()).expect("protection domain");
    let foreign = AddressHandle::new(&other, &pair.peer.ah_attr).expect("address handle");
    let error = post(io, send_to(pair.destination(&foreign), None))
        .expect_err("a handle of another domain should be refused");
    assert_invalid(&error, &["post a send", "protection domain"]);
    // The refused requests have not changed the queue pair.
    pair.server.io.receive(2, 0..100).expect("post a receive");
    post(io, send_to(destination, None)).expect("post a send");
    io.done(1);
    pair.server.io.done(2);
}

#[test]
#[ignore = "needs the test bed: cargo xtask test"]
fn datagram_with_wrong_key_or_length_is_lost() {
    let pair = Pair::new(roce(0));
    let handle = pair.handle();
    let right = pair.destination(&handle);
    let wrong = [
        Destination { qkey: 1, ..right },
        Destination { qp_num: pair.client.io.qp().number(), ..right },
        Destination { qp_num: 0xff_fff0, ..right },
    ];
    pair.server.io.receive(1, 0..2000).expect("post a receive");
    for (number, to) in wrong.into_iter().enumerate() {
        let imm_data = u32::try_from(number).ok();
        let send = send_to(to, imm_data);
        pair.client.io.post(2, send, 0..8, SendFlags::SIGNALED).expect("post a send");
        pair.client.io.done(2);
    }
    // The message exceeds the MTU of the port by one byte. As the specification requires, the send succeeds and sends
    // nothing.
    let long = send_to(right, Some(50));
    pair.client.io.post(2, long, 0..1025, SendFlags::SIGNALED).expect("post a send");
    pair.client.io.done(2);
    pair.client.io.post(3, send_to(right, Some(99)), 0..8, SendFlags::SIGNALED).expect("post");
    pair.client.io.done(3);
    assert_eq!(pair.server.io.done(1).imm_data(), Some(99));
}

#[test]
#[ignore = "needs the test bed: cargo xtask test"]
fn address_handle_keeps_protection_domain() {
    let pair = Pair::new(roce(0));
    let context = pair.client.id.context().expect("context");
    let pd = ProtectionDomain::new(&context).expect("protection domain");
    // RoCE has global routes only.
    let local = ib_uverbs_ah_attr { is_global: 0, ..pair.peer.ah_attr };
    let error = AddressHandle::new(&pd, &local)
        .expect_err("an address without a global route should be refused");
    assert_eq!((error.errno(), error.operation()), (libc::EINVAL, "create"));
    let no_port = ib_uverbs_ah_attr { port_num: 7, ..pair.peer.ah_attr };
    assert_eq!(
        AddressHandle::new(&pd, &no_port).expect_err("port 0 should be refused").errno(),
        libc::EINVAL
    );
    // The protection domain can be destroyed after all address handles, including the failed ones.
    let handle = AddressHandle::new(&pd, &pair.peer.ah_attr).expect("address handle");
    let clone = handle.clone();
    let (handle, error) = handle.destroy().expect_err("a clone should keep it").into_parts();
    assert_eq!(error.errno(), libc::EBUSY);
    let (pd, error) =
        pd.destroy().expect_err("the protection domain should be in use").into_parts();
    assert_eq!(error.errno(), libc::EBUSY);
    drop(clone);
    handle.destroy().expect("destroy");
    drop(AddressHandle::new(&pd, &pair.peer.ah_attr).expect("address handle"));
    pd.destroy().expect("the domain should be unused");
}

#[test]
#[ignore = "needs the test bed: cargo xtask test"]
fn datagram_ids_leave_no_objects() {
    // The shared context stays, so that the kernel does not clean up by closing it.
    let keeper = Pair::new(roce(0));
    let before = objects();
    for _ in 0..20 {
        let pair = Pair::new(roce_v6(0));
        let handle = pair.handle();
        pair.server.io.receive(1, 0..100).expect("post a receive");
        let send = send_to(pair.destination(&handle), None);
        pair.client.io.post(2, send, 0..8, SendFlags::SIGNALED).expect("post a send");
        pair.server.io.done(1);
        let Pair { channel, client, server, .. } = pair;
        drop((client, handle, channel));
        server.id.destroy().expect("destroy");
    }
    assert_eq!(objects(), before);
    drop(keeper);
}
