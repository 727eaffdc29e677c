//! Queue pairs that the program manages itself.

use std::thread;
use std::time::Duration;

use rdmacm::ErrorKind;
use rdmacm::cm::{CmId, ConnParam, Ece, EventChannel, EventType, RejectReason};
use rdmacm::verbs::{QpState, QueuePair, SendFlags, SendOperation};
use rdmacm::verbs_abi::ib_event_type;

use crate::fixtures::{
    Connection, assert_invalid, channel, id, is_card, listen, request, resolve, roce,
};
use crate::io::{Io, Shape};

/// Creates a queue pair on the device of `id` that the id does not own.
fn external(id: &CmId) -> Io {
    Io::with(id, Shape::default(), QueuePair::new)
}

/// Moves the queue pair to each state with the attributes of `id`.
fn go(id: &CmId, io: &Io, states: &[QpState]) {
    for state in states {
        let attributes = id.init_qp_attr(*state).expect("attributes");
        io.qp().modify(&attributes).expect("modify");
    }
}

const CONNECTED: [QpState; 3] = [QpState::IB_QPS_INIT, QpState::IB_QPS_RTR, QpState::IB_QPS_RTS];

/// Returns parameters with one read or atomic in each direction.
fn shallow() -> ConnParam {
    ConnParam { responder_resources: 1, initiator_depth: 1, ..ConnParam::default() }
}

/// Returns parameters for a queue pair that the id does not own.
fn named(io: &Io) -> ConnParam {
    ConnParam { qp_num: io.qp().number(), ..shallow() }
}

/// A connection between queue pairs that the ids do not own.
struct Established {
    client: CmId,
    from: Io,
    server: CmId,
    to: Io,
    ours: EventChannel,
    theirs: EventChannel,
}

impl Established {
    fn new() -> Self {
        let (ours, theirs) = (channel(), channel());
        let (_listener, address) = listen(&theirs, roce(0));
        let client = resolve(&ours, address);
        let from = external(&client);
        go(&client, &from, &[QpState::IB_QPS_INIT]);
        client.connect(&named(&from)).expect("connect");
        let server = request(&theirs);
        let to = external(&server);
        go(&server, &to, &CONNECTED);
        server.accept(&named(&to)).expect("accept");
        // The program must confirm the connection.
        let event = ours.expect_event(EventType::ConnectResponse).expect("an answer");
        assert_eq!(
            event.connection().expect("the event should have connection parameters").qp_num,
            to.qp().number()
        );
        drop(event);
        go(&client, &from, &CONNECTED);
        client.establish().expect("establish");
        theirs.expect_event(EventType::Established).expect("the server should be connected");
        Self { client, from, server, to, ours, theirs }
    }
}

#[test]
#[ignore = "needs the test bed: cargo xtask test"]
fn both_sides_connect_own_queue_pairs() {
    let Established { client, from, server, to, ours, theirs } = Established::new();
    to.receive(1, 0..64).expect("post a receive");
    from.post(2, SendOperation::Send, 0..64, SendFlags::SIGNALED).expect("post a send");
    to.done(1);
    from.done(2);
    // The end of the connection does not change the queue pairs.
    client.disconnect().expect("disconnect");
    theirs.expect_event(EventType::Disconnected).expect("server should get the event");
    server.disconnect().expect("disconnect");
    ours.expect_event(EventType::Disconnected).expect("client should get the event");
    assert_eq!(from.qp().query().expect("query").qp_state, QpState::IB_QPS_RTS);
    client.destroy().expect("destroy");
    server.destroy().expect("destroy");
}

#[test]
#[ignore = "needs the test bed: cargo xtask test"]
fn establish_is_refused_with_library_queue_pair() {
    let connection = Connection::new(Shape::default());
    let error = connection.client.id.establish().expect_err("the id should have a queue pair");
    assert_invalid(&error, &["establish", "queue pair of its own"]);
    connection.close();
}

/// A client that has sent a request with an external queue pair, and the id of the request.
struct Asked {
    client: CmId,
    from: Io,
    server: CmId,
    ours: EventChannel,
    theirs: EventChannel,
}

impl Asked {
    /// Creates a request with `param`, which no side has answered.
    ///
    /// Returns the contents of its event, too.
    fn new(param: &ConnParam, ece: Option<Ece>) -> (Self, ConnParam) {
        let (ours, theirs) = (channel(), channel());
        let (listener, address) = listen(&theirs, roce(0));
        let client = resolve(&ours, address);
        let from = external(&client);
        if let Some(ece) = ece {
            client.set_local_ece(ece).expect("set");
        }
        client
            .connect(&ConnParam { qp_num: from.qp().number(), ..param.clone() })
            .expect("connect");
        let mut event = theirs.expect_event(EventType::ConnectRequest).expect("a request");
        let asked =
            event.connection().expect("the event should have connection parameters").clone();
        let server = event.take_request().expect("an id");
        drop(event);
        listener.destroy().expect("destroy");
        (Self { client, from, server, ours, theirs }, asked)
    }
}

#[test]
#[ignore = "needs the test bed: cargo xtask test"]
fn second_establish_is_refused() {
    let connection = Established::new();
    let client = &connection.client;
    assert_eq!(
        client.establish().expect_err("a second confirmation should be refused").errno(),
        libc::EINVAL
    );
    // The connection can be ended, so the call waits for the peer.
    client.migrate_to_sync().expect("make it synchronous");
    client.set_timeout(Some(Duration::ZERO));
    let error = client.disconnect().expect_err("the peer should not have answered");
    assert!(matches!(error.kind(), ErrorKind::TimedOut), "{error}");
}

#[test]
#[ignore = "needs the test bed: cargo xtask test"]
fn synchronous_client_confirms_answer_itself() {
    let (ours, theirs) = (channel(), channel());
    let (_listener, address) = listen(&theirs, roce(0));
    let client = resolve(&ours, address);
    let from = external(&client);
    client.migrate_to_sync().expect("make it synchronous");
    let server = thread::scope(|scope| {
        // The call waits for the answer.
        let connected = scope.spawn(|| client.connect(&named(&from)));
        let server = request(&theirs);
        let to = external(&server);
        go(&server, &to, &CONNECTED);
        server.accept(&named(&to)).expect("accept");
        connected.join().expect("client should not panic").expect("connect");
        server
    });
    let answer = client.last_event().expect("the id should keep its last event");
    assert_eq!(answer.event_type(), EventType::ConnectResponse);
    go(&client, &from, &CONNECTED);
    client.establish().expect("establish");
    let event =
        theirs.expect_event(EventType::Established).expect("the server should be connected");
    assert_eq!(event.token(), server.token());
}

#[test]
#[ignore = "needs the test bed: cargo xtask test"]
fn early_data_establishes_connection() {
    let (Asked { client, from, server, ours, theirs }, _) = Asked::new(&shallow(), None);
    let to = external(&server);
    go(&server, &to, &CONNECTED);
    let early = server.notify(ib_event_type::IB_EVENT_COMM_EST);
    let error = early.expect_err("no answer should have arrived");
    assert_eq!(error.errno(), libc::EINVAL, "{error}");
    server.accept(&named(&to)).expect("accept");
    ours.expect_event(EventType::ConnectResponse).expect("an answer");
    go(&client, &from, &CONNECTED);
    // The client does not confirm the connection, but sends.
    to.receive(1, 0..64).expect("post a receive");
    from.post(2, SendOperation::Send, 0..64, SendFlags::SIGNALED).expect("post a send");
    to.done(1);
    server.notify(ib_event_type::IB_EVENT_COMM_EST).expect("notify");
    let event =
        theirs.expect_event(EventType::Established).expect("the server should be connected");
    assert_eq!(event.token(), server.token());
    drop(event);
    let error = server
        .notify(ib_event_type::IB_EVENT_COMM_EST)
        .expect_err("the connection should be established already");
    assert_eq!(error.errno(), libc::EISCONN, "{error}");
    let text = error.to_string();
    assert!(text.contains("notify id") && text.contains("IB_EVENT_COMM_EST"), "{text}");
    let error =
        server.notify(ib_event_type::IB_EVENT_CQ_ERR).expect_err("the event should be refused");
    assert_eq!(error.errno(), libc::EINVAL, "{error}");
    let error = id(&ours)
        .notify(ib_event_type::IB_EVENT_COMM_EST)
        .expect_err("the id should not be connecting");
    assert_eq!(error.errno(), libc::EINVAL, "{error}");
    client.establish().expect("a late confirmation should succeed");
}

#[test]
#[ignore = "needs the test bed: cargo xtask test"]
fn ece_is_negotiated() {
    let ece = Ece { vendor_id: 0x15_b3c1, options: 0x8000_0001 };
    let (asked, _) = Asked::new(&shallow(), Some(ece));
    assert_eq!(asked.server.remote_ece().expect("query the peer's ECE options"), ece);
    assert_eq!(asked.client.remote_ece().expect("query the peer's ECE options"), Ece::default());
    // An answer has the vendor of the request.
    asked.server.set_local_ece(Ece { vendor_id: 1, options: 0x8000_0000 }).expect("set");
    let to = external(&asked.server);
    go(&asked.server, &to, &CONNECTED);
    asked.server.accept(&named(&to)).expect("accept");
    asked.ours.expect_event(EventType::ConnectResponse).expect("an answer");
    let answer = Ece { vendor_id: ece.vendor_id, options: 0x8000_0000 };
    assert_eq!(asked.client.remote_ece().expect("query the peer's ECE options"), answer);
}

/// The requested options of the emulated card's vendor. The card lacks one of them. [`AGREED`] has the others.
const WISHED: Ece = Ece { vendor_id: 0x15b3, options: 0x1000_0005 };
const AGREED: Ece = Ece { options: 0x1000_0001, ..WISHED };

/// Asserts that the RoCE device has ECE options exactly if it is the emulated card.
fn check_offer(qp: &QueuePair) -> Ece {
    let offer = qp.ece();
    assert_eq!(offer.is_some(), is_card(), "{offer:?}");
    offer.unwrap_or_default()
}

#[test]
#[ignore = "needs the test bed: cargo xtask test"]
fn library_queue_pair_offers_ece_and_takes_answer() {
    // If the answer names no options of the vendor, the queue pair has no options either.
    for (wished, agreed) in [(Some(WISHED), AGREED.options), (None, 0)] {
        let (ours, theirs) = (channel(), channel());
        let (_listener, address) = listen(&theirs, roce(0));
        let client = resolve(&ours, address);
        let from = Io::new(&client, Shape::default());
        let offer = check_offer(from.qp());
        client.connect(&shallow()).expect("connect");
        let server = request(&theirs);
        assert_eq!(server.remote_ece().expect("query the peer's ECE options"), offer);
        let to = external(&server);
        go(&server, &to, &CONNECTED);
        if let Some(wished) = wished {
            server.set_local_ece(wished).expect("set");
        }
        server.accept(&named(&to)).expect("accept");
        ours.expect_event(EventType::Established).expect("the connection should be established");
        let agreed = Ece { options: agreed, ..WISHED };
        assert_eq!(from.qp().ece(), is_card().then_some(agreed));
        to.receive(1, 0..64).expect("post a receive");
        from.post(2, SendOperation::Send, 0..64, SendFlags::SIGNALED).expect("post a send");
        to.done(1);
    }
}

#[test]
#[ignore = "needs the test bed: cargo xtask test"]
fn library_queue_pair_answers_ece() {
    let other = Ece { vendor_id: 7, ..WISHED };
    // A device without options answers with the vendor of the request.
    for (question, options) in [(WISHED, AGREED.options), (other, 0)] {
        let (asked, _) = Asked::new(&shallow(), Some(question));
        let to = Io::new(&asked.server, Shape::default());
        check_offer(to.qp());
        asked.server.accept(&shallow()).expect("accept");
        asked.ours.expect_event(EventType::ConnectResponse).expect("an answer");
        let options = if is_card() { options } else { 0 };
        let answer = Ece { options, ..question };
        assert_eq!(asked.client.remote_ece().expect("query the peer's ECE options"), answer);
        assert_eq!(to.qp().ece(), is_card().then_some(Ece { options, ..WISHED }));
    }
}

#[test]
#[ignore = "needs the test bed: cargo xtask test"]
fn ece_of_other_vendor_is_refused() {
    let client = resolve(&channel(), listen(&channel(), roce(0)).1);
    let io = external(&client);
    let offer = check_offer(io.qp());
    let error = io
        .qp()
        .set_ece(Ece { vendor_id: 7, options: 1 })
        .expect_err("options of another vendor should be refused");
    if is_card() {
        assert_invalid(&error, &["set the ECE options of", "0x7 instead of 0x15b3"]);
    } else {
        assert!(matches!(error.kind(), ErrorKind::Unsupported(_)), "{error}");
    }
    assert_eq!(io.qp().ece().unwrap_or_default(), offer, "nothing should have changed");
}

#[test]
#[ignore = "needs the test bed: cargo xtask test"]
fn ece_can_be_reject_reason() {
    let (asked, _) = Asked::new(&shallow(), None);
    assert_eq!(asked.server.remote_ece().expect("query the peer's ECE options"), Ece::default());
    let error =
        asked.server.reject_ece(&[1; 149]).expect_err("the private data should be too long");
    assert_invalid(&error, &["149 bytes", "maximum of 148"]);
    asked.server.reject_ece(b"not these").expect("reject");
    let error = asked
        .ours
        .expect_event(EventType::ConnectResponse)
        .expect_err("the request should be rejected");
    let ErrorKind::Rejected(rejection) = error.kind() else { panic!("{error:?}") };
    assert_eq!(rejection.reason, RejectReason::VENDOR_OPTION_NOT_SUPPORTED);
    assert_eq!(rejection.reason.0, 35);
    assert!(rejection.private_data.starts_with(b"not these"));
}

#[test]
#[ignore = "needs the test bed: cargo xtask test"]
fn ece_is_refused_with_library_queue_pair() {
    let connection = Connection::new(Shape::default());
    let ece = Ece { vendor_id: 1, options: 0 };
    let error =
        connection.client.id.set_local_ece(ece).expect_err("the id should have a queue pair");
    assert_invalid(&error, &["set the local ECE of id", "queue pair of its own"]);
    let error = connection.client.id.remote_ece().expect_err("the id should have a queue pair");
    assert_invalid(&error, &["queue pair of its own"]);
    connection.close();
    let id = id(&channel());
    for vendor_id in [0, 0x100_0000, u32::MAX] {
        let error = id
            .set_local_ece(Ece { vendor_id, options: 1 })
            .expect_err("options without a vendor should be refused");
        assert_invalid(&error, &["vendor"]);
    }
}

#[test]
#[ignore = "needs the test bed: cargo xtask test"]
fn external_queue_pair_parameters_arrive() {
    let param = ConnParam { srq: true, retry_count: 200, rnr_retry_count: 200, ..shallow() };
    let (asked, seen) = Asked::new(&param, None);
    assert_eq!((seen.qp_num, seen.srq), (asked.from.qp().number(), true));
    // These fields have three bits.
    assert_eq!((seen.retry_count, seen.rnr_retry_count), (7, 7));
    for (qp_num, part) in [(0, "no queue pair"), (0x100_0000, "0x1000000")] {
        let param = ConnParam { qp_num, ..shallow() };
        assert_invalid(
            &asked.server.accept(&param).expect_err("the queue pair number should be refused"),
            &["accept", part],
        );
    }
}
