//! Queue pairs that the program looks after itself.

use rdmacm::cm::{CmId, ConnParam, EventType};
use rdmacm::verbs::{QpState, QueuePair, SendFlags, SendOperation};

use crate::bed::{Connection, assert_invalid, channel, listen, request, resolve, rxe};
use crate::io::{Io, Shape};

/// A queue pair on the device of `id`, which does not know of it.
fn external(id: &CmId) -> Io {
    Io::with(id, Shape::default(), QueuePair::new)
}

/// Brings the queue pair to each state with what `id` knows.
fn go(id: &CmId, io: &Io, states: &[QpState]) {
    for state in states {
        let attributes = id.init_qp_attr(*state).expect("attributes");
        io.qp().modify(&attributes).expect("modify");
    }
}

const CONNECTED: [QpState; 3] = [QpState::IB_QPS_INIT, QpState::IB_QPS_RTR, QpState::IB_QPS_RTS];

fn named(io: &Io) -> ConnParam {
    let depths = ConnParam { responder_resources: 1, initiator_depth: 1, ..ConnParam::default() };
    ConnParam { qp_num: io.qp().number(), ..depths }
}

#[test]
#[ignore = "needs the test bed: cargo xtask test"]
fn both_sides_bring_their_own() {
    let (ours, theirs) = (channel(), channel());
    let (_listener, address) = listen(&theirs, rxe(0));
    let client = resolve(&ours, address);
    let from = external(&client);
    go(&client, &from, &[QpState::IB_QPS_INIT]);
    client.connect(&named(&from)).expect("connect");
    let server = request(&theirs);
    let to = external(&server);
    go(&server, &to, &CONNECTED);
    server.accept(&named(&to)).expect("accept");
    // Nobody confirms but the program.
    let event = ours.expect_event(EventType::ConnectResponse).expect("an answer");
    assert_eq!(event.connection().expect("a connection's").qp_num, to.qp().number());
    drop(event);
    go(&client, &from, &CONNECTED);
    client.establish().expect("establish");
    theirs.expect_event(EventType::Established).expect("the server is connected");
    to.receive(1, 0..64).expect("post a receive");
    from.post(2, SendOperation::Send, 0..64, SendFlags::SIGNALED).expect("post a send");
    to.done(1);
    from.done(2);
    // Ending the connection leaves the queue pairs alone.
    client.disconnect().expect("disconnect");
    theirs.expect_event(EventType::Disconnected).expect("the server hears");
    server.disconnect().expect("disconnect");
    ours.expect_event(EventType::Disconnected).expect("the client hears");
    assert_eq!(from.qp().query().expect("query").qp_state, QpState::IB_QPS_RTS);
    client.destroy().expect("destroy");
    server.destroy().expect("destroy");
}

#[test]
#[ignore = "needs the test bed: cargo xtask test"]
fn what_the_library_looks_after_is_not_the_programs_to_confirm() {
    let connection = Connection::new(Shape::default());
    let error = connection.client.id.establish().expect_err("it has one of its own");
    assert_invalid(&error, &["establish", "queue pair of its own"]);
    connection.close();
}
