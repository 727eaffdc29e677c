//! Private data and parameters that two sides exchange when they connect, and errors of failed attempts.

use std::thread;
use std::time::Duration;

use rdmacm::cm::{CmId, ConnParam, EventData, EventType, PortSpace, RejectReason};
use rdmacm::verbs::{QpState, SendFlags};
use rdmacm::{Error, ErrorKind};

use crate::fixtures::{
    Connection, LONG, Side, ask, assert_invalid, channel, ids, is_card, listen, request, resolve,
    roce, roce_name, siw,
};
use crate::io::Shape;
use crate::modify::bring;
use crate::siw::flushed;

fn with_data(private_data: &[u8]) -> ConnParam {
    ConnParam { private_data: private_data.to_vec(), ..ConnParam::default() }
}

/// Returns `data` as it arrives: zeros fill the message's field.
fn padded(data: &[u8], length: usize) -> Vec<u8> {
    let mut field = data.to_vec();
    field.resize(length, 0);
    field
}

/// Returns the state of the queue pair as the kernel reports it.
fn state(side: &Side) -> QpState {
    side.io.qp().query().expect("query").qp_state
}

/// Returns the responder resources and the initiator depth of the queue pair.
fn depths(side: &Side) -> (u8, u8) {
    let attributes = side.io.qp().query().expect("query");
    (attributes.max_dest_rd_atomic, attributes.max_rd_atomic)
}

fn rejected(error: &Error) -> (RejectReason, &[u8]) {
    match error.kind() {
        ErrorKind::Rejected(rejection) => (rejection.reason, &rejection.private_data),
        _ => panic!("{error:?}"),
    }
}

#[test]
#[ignore = "needs the test bed: cargo xtask test"]
fn private_data_travels_both_ways() {
    let full = |length: u8| (1..=length).collect::<Vec<_>>();
    for (asked, answered) in
        [(vec![], vec![]), (b"client".to_vec(), b"server".to_vec()), (full(56), full(196))]
    {
        let (ours, theirs) = (channel(), channel());
        let (_listener, address) = listen(&theirs, roce(0));
        let client = ask(&ours, address, &with_data(&asked));
        let mut event = theirs.expect_event(EventType::ConnectRequest).expect("a request");
        assert_eq!(event.private_data(), padded(&asked, 56));
        let server = Side::new(event.take_request().expect("an id"), Shape::default());
        server.id.accept(&with_data(&answered)).expect("accept");
        let event = ours
            .expect_event(EventType::Established)
            .expect("the connection should be established");
        assert_eq!(event.private_data(), padded(&answered, 196));
        assert_eq!(event.token(), client.id.token());
        let event = theirs
            .expect_event(EventType::Established)
            .expect("the connection should be established");
        assert_eq!(event.token(), server.id.token());
        assert_eq!(state(&client), QpState::IB_QPS_RTS);
        assert_eq!(state(&server), QpState::IB_QPS_RTS);
    }
}

#[test]
#[ignore = "needs the test bed: cargo xtask test"]
fn rejection_carries_reason_and_private_data() {
    let (ours, theirs) = (channel(), channel());
    let (_listener, address) = listen(&theirs, roce(0));
    let full: Vec<u8> = (1..=148).collect();
    for data in [&b""[..], b"no room", &full] {
        let client = ask(&ours, address, &ConnParam::default());
        request(&theirs).reject(data).expect("reject");
        let error =
            ours.expect_event(EventType::Established).expect_err("the request should be rejected");
        assert_eq!(error.errno(), libc::ECONNREFUSED);
        assert!(
            error.to_string().contains("rejected by the peer application (reason 28)"),
            "{error}"
        );
        let (reason, answer) = rejected(&error);
        assert_eq!((reason, reason.0), (RejectReason::CONSUMER_DEFINED, 28));
        assert_eq!(answer, padded(data, 148));
        assert_eq!(state(&client), QpState::IB_QPS_ERR);
    }
    // The rejection is read as an event.
    let _client = ask(&ours, address, &ConnParam::default());
    request(&theirs).reject(b"again").expect("reject");
    let event = ours.get_event().expect("an event");
    assert_eq!((event.event_type(), event.status()), (EventType::Rejected, 28));
    let rejection = event.rejection().expect("the event should be a rejection");
    assert_eq!(rejection.private_data, padded(b"again", 148));
    assert_eq!(event.private_data(), rejection.private_data);
}

#[test]
#[ignore = "needs the test bed: cargo xtask test"]
fn connect_without_listener_is_rejected() {
    let (ours, theirs) = (channel(), channel());
    // A port that was in use shortly before is free now.
    let (listener, address) = listen(&theirs, roce(0));
    listener.destroy().expect("destroy");
    let client = ask(&ours, address, &ConnParam::default());
    let error = ours.expect_event(EventType::Established).expect_err("no program should listen");
    let (reason, _) = rejected(&error);
    assert_eq!((reason, reason.0), (RejectReason::INVALID_SERVICE_ID, 8));
    let text = format!("id {} to {address}: rejected by the peer: no program", client.id.token());
    assert!(error.to_string().contains(&text), "{error}");
    assert_eq!(state(&client), QpState::IB_QPS_ERR);
}

#[test]
#[ignore = "needs the test bed: cargo xtask test"]
fn dropped_request_is_rejected() {
    let (ours, theirs) = (channel(), channel());
    let (listener, address) = listen(&theirs, roce(0));
    let before = ids();
    let client = ask(&ours, address, &ConnParam::default());
    let event = theirs.expect_event(EventType::ConnectRequest).expect("a request");
    let token = event.request().expect("the event should have the id").token();
    assert_eq!((event.token(), event.listener()), (token, Some(listener.token())));
    assert_eq!(ids(), before + 2);
    drop(event);
    assert_eq!(ids(), before + 1);
    let error =
        ours.expect_event(EventType::Established).expect_err("the request should be rejected");
    assert_eq!(rejected(&error).0, RejectReason::CONSUMER_DEFINED);
    client.id.destroy().expect("destroy");
    assert_eq!(ids(), before);
    // The dropped event does not delay the destruction of its listener.
    listener.destroy().expect("destroy");
}

#[test]
#[ignore = "needs the test bed: cargo xtask test"]
fn expect_event_drops_unexpected_request() {
    let (ours, theirs) = (channel(), channel());
    let (listener, address) = listen(&theirs, roce(0));
    let _client = ask(&ours, address, &ConnParam::default());
    let error =
        theirs.expect_event(EventType::Established).expect_err("a request should arrive instead");
    let came = format!("RDMA_CM_EVENT_CONNECT_REQUEST of id {}, which listens", listener.token());
    assert_invalid(&error, &["RDMA_CM_EVENT_ESTABLISHED", &came]);
    let error =
        ours.expect_event(EventType::Established).expect_err("the request should be rejected");
    assert_eq!(rejected(&error).0, RejectReason::CONSUMER_DEFINED);
}

#[test]
#[ignore = "needs the test bed: cargo xtask test"]
fn parameters_arrive_from_local_point_of_view() {
    let (ours, theirs) = (channel(), channel());
    let (_listener, address) = listen(&theirs, roce(0));
    let asked = ConnParam {
        responder_resources: 3,
        initiator_depth: 5,
        flow_control: 1,
        retry_count: 4,
        rnr_retry_count: 6,
        ..ConnParam::default()
    };
    let client = ask(&ours, address, &asked);
    let mut event = theirs.expect_event(EventType::ConnectRequest).expect("a request");
    let param = event.connection().expect("the event should have connection parameters").clone();
    assert_eq!((param.responder_resources, param.initiator_depth), (5, 3));
    assert_eq!((param.retry_count, param.rnr_retry_count, param.flow_control), (4, 6, 1));
    assert_eq!(param.qp_num, client.io.qp().number());
    assert!(!param.srq);
    let server = Side::new(event.take_request().expect("an id"), Shape::default());
    let answer = ConnParam { responder_resources: 4, initiator_depth: 2, ..ConnParam::default() };
    server.id.accept(&answer).expect("accept");
    let event =
        ours.expect_event(EventType::Established).expect("the connection should be established");
    let param = event.connection().expect("the event should have connection parameters");
    assert_eq!((param.responder_resources, param.initiator_depth), (2, 4));
    assert_eq!(param.qp_num, server.io.qp().number());
    assert_eq!(depths(&server), (4, 2));
    assert_eq!(depths(&client), (2, 4));
    assert_eq!(client.io.qp().query().expect("query").dest_qp_num, server.io.qp().number());
}

#[test]
#[ignore = "needs the test bed: cargo xtask test"]
fn maximum_depth_is_limit_of_both_devices() {
    let connection = Connection::new(Shape::default());
    let device = connection.client.io.cq().context().query_device().expect("query");
    let most = u8::try_from(device.max_qp_rd_atom).expect("the depth should fit in a byte");
    assert_eq!(depths(&connection.client), (most, most));
    assert_eq!(depths(&connection.server), (most, most));
    connection.close();
    // A side that accepts with the maximum gets the depths of the request.
    let asked = ConnParam { responder_resources: 2, initiator_depth: 1, ..ConnParam::default() };
    let (ours, theirs) = (channel(), channel());
    let (_listener, address) = listen(&theirs, roce(0));
    let _client = ask(&ours, address, &asked);
    let server = Side::new(request(&theirs), Shape::default());
    server.id.accept(&ConnParam::default()).expect("accept");
    assert_eq!(depths(&server), (1, 2));
}

#[test]
#[ignore = "needs the test bed: cargo xtask test"]
fn answer_depth_is_bounded_by_offer_of_request() {
    let (ours, theirs) = (channel(), channel());
    let (_listener, address) = listen(&theirs, roce(0));
    // These are the depths from the other side: the server may initiate 4 operations, and has resources for 1.
    let asked = ConnParam { responder_resources: 4, initiator_depth: 1, ..ConnParam::default() };
    let client = ask(&ours, address, &asked);
    let server = Side::new(request(&theirs), Shape::default());
    let mut answer =
        ConnParam { responder_resources: 8, initiator_depth: 5, ..ConnParam::default() };
    let error = server.id.accept(&answer).expect_err("the answer should be too deep");
    assert_invalid(&error, &["accept", "initiator_depth 5", "4 that the request offers"]);
    assert_eq!(error.errno(), libc::EINVAL);
    assert_eq!(state(&server), QpState::IB_QPS_INIT);
    // The library sent no command, so the request can still be accepted.
    answer.initiator_depth = 4;
    server.id.accept(&answer).expect("accept");
    ours.expect_event(EventType::Established).expect("the connection should be established");
    theirs.expect_event(EventType::Established).expect("the connection should be established");
    assert_eq!(depths(&server), (8, 4));
    assert_eq!(depths(&client), (4, 8));
    for (reader, from) in [(&client, &server), (&server, &client)] {
        reader.io.post(1, from.io.read_at(0), 0..8, SendFlags::SIGNALED).expect("post a read");
        reader.io.done(1);
    }
}

#[test]
#[ignore = "needs the test bed: cargo xtask test"]
fn values_beyond_limits_are_refused_locally() {
    let (ours, theirs) = (channel(), channel());
    let (_listener, address) = listen(&theirs, roce(0));
    let client = Side::new(resolve(&ours, address), Shape::default());
    let error =
        client.id.connect(&with_data(&[1; 57])).expect_err("the private data should be too long");
    assert_invalid(&error, &["connect", "id", "57 bytes", "maximum of 56"]);
    assert_eq!(error.errno(), libc::EINVAL);
    let most = if is_card() { "16" } else { "128" };
    let deep = ConnParam { responder_resources: 200, ..ConnParam::default() };
    let error = client.id.connect(&deep).expect_err("the request should be too deep");
    assert_invalid(&error, &["responder_resources 200", most]);
    let deep = ConnParam { initiator_depth: 129, ..ConnParam::default() };
    assert_invalid(
        &client.id.connect(&deep).expect_err("the request should be too deep"),
        &["129", most],
    );
    // The library sent no command, so the id can still connect.
    client.id.connect(&with_data(&[1; 56])).expect("connect");
    let server = Side::new(request(&theirs), Shape::default());
    let error =
        server.id.accept(&with_data(&[1; 197])).expect_err("the private data should be too long");
    assert_invalid(&error, &["accept", "197 bytes", "maximum of 196"]);
    assert_invalid(
        &server.id.accept(&deep).expect_err("the answer should be too deep"),
        &["129", most],
    );
    server.id.accept(&with_data(&[1; 196])).expect("accept");
    ours.expect_event(EventType::Established).expect("the connection should be established");

    let _client = ask(&ours, address, &ConnParam::default());
    theirs.expect_event(EventType::Established).expect("the connection should be established");
    let unwanted = request(&theirs);
    let error = unwanted.reject(&[1; 149]).expect_err("the private data should be too long");
    assert_invalid(&error, &["reject", "149 bytes", "maximum of 148"]);
    unwanted.reject(&[1; 148]).expect("reject");
    ours.expect_event(EventType::Rejected).expect_err("a rejection should be an error");
}

#[test]
#[ignore = "needs the test bed: cargo xtask test"]
fn private_data_limits_hold_in_infiniband_port_space() {
    let (ours, theirs) = (channel(), channel());
    let of_infiniband = |channel| CmId::new(channel, PortSpace::Ib).expect("create an id");
    let listener = of_infiniband(&theirs);
    listener.bind(roce(0)).expect("bind");
    listener.listen(0).expect("listen");
    let address = listener.local_addr().expect("query").expect("the id should be bound");
    let id = of_infiniband(&ours);
    id.resolve_addr(None, address, LONG).expect("resolve the address");
    ours.expect_event(EventType::AddrResolved).expect("the address should be resolved");
    id.resolve_route(LONG).expect("resolve the route");
    ours.expect_event(EventType::RouteResolved).expect("the route should be resolved");
    let client = Side::new(id, Shape::default());
    let error =
        client.id.connect(&with_data(&[1; 57])).expect_err("the private data should be too long");
    assert_invalid(&error, &["connect", "57 bytes", "maximum of 56"]);
    client.id.connect(&with_data(&[1; 56])).expect("connect");
    let mut event = theirs.expect_event(EventType::ConnectRequest).expect("a request");
    assert_eq!(event.private_data(), [1; 56]);
    let server = Side::new(event.take_request().expect("an id"), Shape::default());
    let error = server.id.reject(&[2; 149]).expect_err("the private data should be too long");
    assert_invalid(&error, &["reject", "149 bytes", "maximum of 148"]);
    let error =
        server.id.accept(&with_data(&[2; 197])).expect_err("the private data should be too long");
    assert_invalid(&error, &["accept", "197 bytes", "maximum of 196"]);
    server.id.accept(&with_data(&[2; 196])).expect("accept");
    let event =
        ours.expect_event(EventType::Established).expect("the connection should be established");
    assert_eq!(event.private_data(), [2; 196]);
}

#[test]
#[ignore = "needs the test bed: cargo xtask test"]
fn both_sides_report_both_addresses() {
    let connection = Connection::new(Shape::default());
    let Connection { client, server, .. } = &connection;
    let local = |side: &Side| {
        side.id.local_addr().expect("query").expect("the id should have a local address")
    };
    let peer = |side: &Side| {
        side.id.peer_addr().expect("query").expect("the id should have a peer address")
    };
    assert_eq!(local(client), peer(server));
    assert_eq!(peer(client), local(server));
    assert_eq!(local(client).ip(), roce(0).ip());
    assert_ne!(local(client), local(server));
    assert_eq!(client.id.context().expect("context").device().name(), roce_name());
    // All ids of a device share one context.
    assert_eq!(client.id.context().expect("open"), server.id.context().expect("open"));
    connection.close();
}

#[test]
#[ignore = "needs the test bed: cargo xtask test"]
fn failed_transition_to_rts_is_connect_error() {
    let (ours, theirs) = (channel(), channel());
    let (_listener, address) = listen(&theirs, roce(0));
    let client = ask(&ours, address, &ConnParam::default());
    // A queue pair cannot move from ERR to RTS.
    bring(client.io.qp(), QpState::IB_QPS_ERR);
    let server = Side::new(request(&theirs), Shape::default());
    server.id.accept(&ConnParam::default()).expect("accept");
    let event = ours.get_event().expect("an event");
    assert_eq!((event.event_type(), event.token()), (EventType::ConnectError, client.id.token()));
    assert_eq!(event.status(), -libc::EINVAL);
    // Afterwards, the end of the peer raises no event.
    server.id.destroy().expect("destroy");
    let silence = ours.get_event_timeout(Duration::from_millis(200)).expect("wait");
    assert!(silence.is_none(), "{silence:?}");
    drop(event);
    client.id.destroy().expect("every event should be acknowledged");
}

#[test]
#[ignore = "needs the test bed: cargo xtask test"]
fn early_destroy_of_client_id_rejects_peer() {
    let (ours, theirs) = (channel(), channel());
    let (_listener, address) = listen(&theirs, roce(0));
    // The client is destroyed before it has read the answer.
    let client = ask(&ours, address, &ConnParam::default());
    let server = Side::new(request(&theirs), Shape::default());
    server.id.accept(&ConnParam::default()).expect("accept");
    client.id.destroy().expect("destroy");
    let event = theirs.get_event().expect("an event");
    assert_eq!((event.event_type(), event.token()), (EventType::Rejected, server.id.token()));
    assert_eq!(state(&server), QpState::IB_QPS_ERR);
}

#[test]
#[ignore = "needs the test bed: cargo xtask test"]
fn either_side_can_disconnect() {
    for client_first in [true, false] {
        let connection = Connection::new(Shape::default());
        let Connection { client, server, client_channel, server_channel } = &connection;
        let (first, hears_first, second, hears_second) = match client_first {
            true => (client, client_channel, server, server_channel),
            false => (server, server_channel, client, client_channel),
        };
        first.id.disconnect().expect("disconnect");
        assert_eq!(state(first), QpState::IB_QPS_ERR);
        let event = hears_second
            .expect_event(EventType::Disconnected)
            .expect("other side should get the event");
        assert_eq!(event.token(), second.id.token());
        assert_eq!(state(second), QpState::IB_QPS_RTS);
        second.id.disconnect().expect("answer");
        assert_eq!(state(second), QpState::IB_QPS_ERR);
        let event = hears_first
            .expect_event(EventType::Disconnected)
            .expect("first side should get the event");
        assert_eq!(event.token(), first.id.token());
    }
}

#[test]
#[ignore = "needs the test bed: cargo xtask test"]
fn abandoned_attempt_still_ends_in_event_also_on_siw() {
    for address in [roce(0), siw(0)] {
        let (ours, theirs) = (channel(), channel());
        let (_listener, address) = listen(&theirs, address);
        let client = ask(&ours, address, &ConnParam::default());
        client.io.receive(1, 0..8).expect("post a receive");
        let server = Side::new(request(&theirs), Shape::default());
        thread::scope(|scope| {
            // On iWARP the call waits for the answer of the peer.
            let given_up = scope.spawn(|| client.id.disconnect());
            assert_eq!(flushed(client.io.next()), 1);
            // The server may detect in time that the client has left.
            let _ = server.id.accept(&ConnParam::default());
            given_up.join().expect("thread should not panic").expect("the call should succeed");
        });
        let event = ours.get_event().expect("an event");
        assert_eq!(event.event_type(), EventType::ConnectError, "{event:?}");
    }
}

#[test]
#[ignore = "needs the test bed: cargo xtask test"]
fn timewait_exit_is_reported() {
    let connection = Connection::new(Shape::default());
    let Connection { client, server, client_channel, server_channel } = &connection;
    client.id.disconnect().expect("disconnect");
    server_channel.expect_event(EventType::Disconnected).expect("server should get the event");
    server.id.disconnect().expect("answer");
    client_channel.expect_event(EventType::Disconnected).expect("client should get the event");
    let event = client_channel.expect_event(EventType::TimewaitExit).expect("timewait should end");
    assert_eq!(event.token(), client.id.token());
    assert_eq!(event.data(), &EventData::None);
}

#[test]
#[ignore = "needs the test bed: cargo xtask test"]
fn id_destroy_disconnects() {
    let connection = Connection::new(Shape::default());
    connection.client.id.destroy().expect("destroy");
    connection
        .server_channel
        .expect_event(EventType::Disconnected)
        .expect("peer should get the event");
}
