//! The safe tier: what it tells a subscriber of `tracing`.

use std::fmt::{self, Write};
use std::net::SocketAddr;
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;
use std::time::Duration;

use nix::sys::resource::{Resource, getrlimit, setrlimit};
use rdmacm::cm::RejectReason;
use rdmacm::endpoint::{Connector, Incoming, Listener, Settings};
use rdmacm::verbs::QpState;
use rdmacm::{Error, ErrorKind};
use tracing::field::{Field, Visit};
use tracing::span::{Attributes, Id, Record};
use tracing::{Dispatch, Event, Metadata, Subscriber, dispatcher};

use crate::bed::{LONG, rxe, siw};
use crate::child::in_child;
use crate::endpoint_connect::pair;
use crate::endpoint_datagrams::{self, found, socket};
use crate::endpoint_end::with_low_peer;
use crate::endpoint_messages::{filled, receives};
use crate::limit::descriptors;
use crate::modify::bring;
use crate::netdev::Sysctl;
use crate::removal::Own;

/// Takes down what is said, as text.
#[derive(Default)]
struct Notes {
    said: Mutex<Vec<String>>,
}

impl Notes {
    fn say(&self, name: &str, fields: Fields) -> u64 {
        let mut said = self.said.lock().unwrap_or_else(PoisonError::into_inner);
        said.push(format!("{name}:{}", fields.0));
        u64::try_from(said.len()).expect("few")
    }

    /// What is said in what `run` does.
    fn of<T>(run: impl FnOnce() -> T) -> (T, Vec<String>) {
        let notes = Arc::new(Self::default());
        // Where there is one subscriber alone, tracing asks the thread that first comes by whether anybody listens: it may be
        // one without.
        let _other = Dispatch::new(Self::default());
        let result = dispatcher::with_default(&Dispatch::new(Arc::clone(&notes)), run);
        let said = notes.said.lock().unwrap_or_else(PoisonError::into_inner).clone();
        (result, said)
    }
}

/// Fields with their values; of numbers that nobody knows beforehand that there are any.
struct Fields(String);

impl Visit for Fields {
    fn record_debug(&mut self, field: &Field, value: &dyn fmt::Debug) {
        let value = format!("{value:?}");
        let shown = if field.name() == "id" { "some" } else { &value };
        write!(self.0, " {field}={shown}").expect("a string takes all");
    }

    fn record_str(&mut self, field: &Field, value: &str) {
        self.record_debug(field, &format_args!("{value}"));
    }
}

impl Subscriber for Notes {
    fn enabled(&self, metadata: &Metadata<'_>) -> bool {
        metadata.target() == "rdmacm::endpoint"
    }

    fn new_span(&self, span: &Attributes<'_>) -> Id {
        let mut fields = Fields(String::new());
        span.record(&mut fields);
        Id::from_u64(self.say(span.metadata().name(), fields))
    }

    fn record(&self, _: &Id, values: &Record<'_>) {
        let mut fields = Fields(String::new());
        values.record(&mut fields);
        self.say("it", fields);
    }

    fn event(&self, event: &Event<'_>) {
        let mut fields = Fields(String::new());
        event.record(&mut fields);
        self.say(if event.parent().is_some() { "it" } else { "nobody" }, fields);
    }

    fn record_follows_from(&self, _: &Id, _: &Id) {}

    fn enter(&self, _: &Id) {}

    fn exit(&self, _: &Id) {}
}

/// What is said of an event.
fn event(of: &str) -> String {
    format!("it: message=event kind=RDMA_CM_EVENT_{of}")
}

/// What is said of a change.
fn state(of: &str) -> String {
    format!("it: message=state state={of}")
}

fn a_connection_tells(address: SocketAddr) {
    let listener = || Listener::bind(address).expect("listen");
    let (listener, listening) = Notes::of(listener);
    let server = listener.local_addr().expect("an IP address");
    assert_eq!(
        listening,
        ["listener: id=some", &format!("it: local={server}"), &state("listening")]
    );
    // siw leaves no message lying when more comes.
    let settings = Settings { keep_alive: Some(Duration::from_secs(1)), ..Settings::default() };
    let ((local, asked), (peer, answered)) = thread::scope(|scope| {
        let connects = || {
            let connection = Connector::new().settings(settings.clone()).timeout(LONG);
            let connection = connection.connect(server).expect("connect");
            connection.post(filled(&connection, b"hello")).expect("post");
            receives(&connection, b"hello");
            connection.close(LONG).expect("close");
            connection.local_addr().expect("an IP address")
        };
        let client = scope.spawn(move || Notes::of(connects));
        let serves = || {
            let incoming = listener.incoming_timeout(LONG).expect("a request");
            let connection = incoming.accept(&settings, &[], LONG).expect("accept");
            receives(&connection, b"hello");
            connection.post(filled(&connection, b"hello")).expect("post");
            assert!(connection.recv_timeout(LONG).expect("receive").is_none(), "it has closed");
            connection.peer_addr().expect("an IP address")
        };
        let served = Notes::of(serves);
        (client.join().expect("the client lives"), served)
    });
    assert_eq!(local, peer);
    assert_eq!(
        asked,
        [
            "connection: id=some",
            &format!("it: peer={server}"),
            &state("resolving"),
            &event("ADDR_RESOLVED status=0"),
            &event("ROUTE_RESOLVED status=0"),
            &state("connecting"),
            &event("ESTABLISHED status=0"),
            &format!("it: local={local}"),
            &state("connected"),
            &state("closing"),
            &event("DISCONNECTED status=0"),
            &state("closed"),
        ]
    );
    assert_eq!(
        answered,
        [
            // Of the listener.
            &event("CONNECT_REQUEST status=0"),
            "connection: id=some",
            &format!("it: peer={peer}"),
            &state("accepting"),
            &event("ESTABLISHED status=0"),
            &format!("it: local={server}"),
            &state("connected"),
            &event("DISCONNECTED status=0"),
            &state("disconnected"),
            &state("closed"),
        ]
    );
}

#[test]
#[ignore = "needs the test bed: cargo xtask test"]
fn rxe_a_connection_tells_what_becomes_of_it() {
    a_connection_tells(rxe(0));
}

#[test]
#[ignore = "needs the test bed: cargo xtask test"]
fn siw_a_connection_tells_what_becomes_of_it() {
    a_connection_tells(siw(0));
}

/// A connection whose peer falls silent, and its end.
#[test]
#[ignore = "needs the test bed: cargo xtask test"]
fn a_connection_tells_why_it_failed() {
    let ((error, peer), said) = Notes::of(|| {
        let (connection, peer) = with_low_peer(None);
        bring(peer.io.qp(), QpState::IB_QPS_RESET);
        let sent = connection
            .start_send(filled(&connection, b"hello"))
            .and_then(|send| send.wait_timeout(LONG));
        (sent.expect_err("nobody answers"), peer)
    });
    let last = [state(&format!("failed error={}", error.kind())), state("closed")];
    assert_eq!(said.last_chunk(), Some(&last), "{said:?}");
    drop(peer);
}

#[test]
#[ignore = "needs the test bed: cargo xtask test"]
fn a_socket_tells_what_becomes_of_it() {
    let ((addresses, peer), said) = Notes::of(|| {
        let [asks, answers] = [(); 2].map(|()| socket(rxe(0)));
        let peer = found(&asks, &answers);
        asks.post_to(endpoint_datagrams::filled(&asks, b"hello"), &peer).expect("post");
        endpoint_datagrams::receives(&answers, b"hello");
        ([&asks, &answers].map(endpoint_datagrams::address), peer)
    });
    let local = addresses.map(|address| format!("it: local={address}"));
    let listening = state("listening");
    assert_eq!(
        said,
        [
            "socket: id=some",
            &local[0],
            &listening,
            "socket: id=some",
            &local[1],
            &listening,
            // Of the one that asks, and the one that is asked.
            &event("ADDR_RESOLVED status=0"),
            &event("ROUTE_RESOLVED status=0"),
            &event("CONNECT_REQUEST status=0"),
            &event("ESTABLISHED status=0"),
            // Of each.
            &state("closed"),
            &state("closed"),
        ]
    );
    drop(peer);
}

/// A listener, a connection and a socket, each of them once, whoever hears of it first.
#[test]
#[ignore = "needs the test bed: cargo xtask test"]
fn all_tell_that_their_device_is_gone() {
    let own = Own::rxe();
    let ((deletion, client, ended), said) = Notes::of(|| {
        let listener = Listener::bind(own.address).expect("listen");
        // The client is made in another thread, where nobody listens.
        let [client, server] = pair(own.address, &Settings::default());
        let socket = socket(own.address);
        let deletion = own.delete();
        let is_gone = |error: Error| {
            assert!(matches!(error.kind(), ErrorKind::DeviceGone(_)), "{error}");
        };
        is_gone(listener.incoming_timeout(LONG).expect_err("the device is gone"));
        is_gone(socket.recv_from_timeout(LONG).expect_err("the device is gone"));
        // The kernel may take the client's end first, and say goodbye for it.
        let ended = match server.recv_timeout(LONG) {
            Ok(message) => usize::from(message.is_none()),
            Err(error) => {
                is_gone(error);
                0
            }
        };
        (deletion, client, ended)
    });
    drop(client);
    deletion.finish();
    let count = |what: &str| said.iter().filter(|said| *said == what).count();
    let gone = count(&state("device gone"));
    assert!((3 - ended..=3).contains(&gone), "{said:?}");
    assert_eq!(count(&state("closed")), 2, "{said:?}");
    assert!(count(&event("DEVICE_REMOVAL status=0")) >= gone, "{said:?}");
    own.comes_back();
}

#[test]
#[ignore = "needs the test bed: cargo xtask test"]
fn an_attempt_tells_why_it_failed() {
    let listener = Listener::bind(rxe(0)).expect("listen");
    let nobody = listener.local_addr().expect("an IP address");
    drop(listener);
    let (failed, said) = Notes::of(|| Connector::new().connect(nobody).map(drop));
    let error = failed.expect_err("nobody listens");
    let last = [event("REJECTED status=8"), state(&format!("failed error={error}"))];
    assert_eq!(said.last_chunk(), Some(&last), "{said:?}");
}

#[test]
#[ignore = "needs the test bed: cargo xtask test"]
fn an_attempt_that_cannot_begin_tells_why() {
    let nowhere = SocketAddr::from(([192, 0, 2, 1], 0));
    let connector = Connector::new().source(nowhere);
    let (failed, said) = Notes::of(|| connector.connect(rxe(7471)).map(drop));
    let error = failed.expect_err("no device has the address");
    let peer = format!("it: peer={}", rxe(7471));
    let failed = state(&format!("failed error={error}"));
    assert_eq!(said, ["connection: id=some".to_owned(), peer, failed]);
}

/// Also what fails when its id is there already, for want of descriptors to wait with.
#[test]
#[ignore = "needs the test bed: cargo xtask test"]
fn an_attempt_without_descriptors_tells_why() {
    in_child(|| {
        let (_, most) = getrlimit(Resource::RLIMIT_NOFILE).expect("ask for the limit");
        let (used, mut told) = (descriptors(), 0);
        let limit = |limit| setrlimit(Resource::RLIMIT_NOFILE, limit, most).expect("set the limit");
        for more in 0.. {
            limit(used + more);
            let (started, said) = Notes::of(|| Connector::new().start(rxe(7471)).map(drop));
            limit(most);
            let Err(error) = started else { break };
            assert_eq!(error.errno(), libc::EMFILE, "{error}");
            if let Some(last) = said.last() {
                assert_eq!(*last, state(&format!("failed error={error}")));
                told += 1;
            }
        }
        assert!(told > 0, "none began");
    });
}

/// Also what fails when all is there.
#[test]
#[ignore = "needs the test bed: cargo xtask test"]
fn a_connection_that_nobody_can_wait_for_tells_why() {
    let (finished, said) = of_a_request(rxe(0), |incoming| {
        let connecting = incoming.start(&Settings::default(), &[], LONG).expect("accept");
        let _none = Sysctl::new("fs/epoll/max_user_watches", "0");
        connecting.wait().map(drop)
    });
    let error = finished.expect_err("no more descriptors are waited for");
    assert_eq!(error.errno(), libc::ENOSPC, "{error}");
    let said: Vec<_> = said.iter().map(String::as_str).collect();
    let [accepting, established, failed] = said[..] else { panic!("{said:?}") };
    assert_eq!(accepting, state("accepting"));
    assert_eq!(established, event("ESTABLISHED status=0"));
    assert_eq!(failed, state(&format!("failed error={error}")));
}

/// What is said of a request from its coming on, to who does `with` with it, and what it does.
fn of_a_request<T>(address: SocketAddr, with: impl FnOnce(Incoming) -> T) -> (T, Vec<String>) {
    // Its span is only where somebody listens.
    let (listener, _) = Notes::of(|| Listener::bind(address).expect("listen"));
    let server = listener.local_addr().expect("an IP address");
    thread::scope(|scope| {
        let client = scope.spawn(move || Connector::new().timeout(LONG).connect(server));
        let ((outcome, peer), mut said) = Notes::of(|| {
            let incoming = listener.incoming_timeout(LONG).expect("a request");
            let peer = incoming.peer_addr().expect("it has one").expect("an IP address");
            (with(incoming), peer)
        });
        // Rejected, or told of the end.
        drop(client.join().expect("it lives"));
        let peer = format!("it: peer={peer}");
        let first = [event("CONNECT_REQUEST status=0"), "connection: id=some".to_owned(), peer];
        assert_eq!(said.drain(..3).collect::<Vec<_>>(), first);
        (outcome, said)
    })
}

#[test]
#[ignore = "needs the test bed: cargo xtask test"]
fn a_request_tells_that_it_is_rejected() {
    let (rejected, said) =
        of_a_request(rxe(0), |incoming| incoming.reject(RejectReason::CONSUMER_DEFINED, &[]));
    rejected.expect("reject");
    assert_eq!(said, [state("rejected")]);
    let ((), said) = of_a_request(rxe(0), drop);
    assert_eq!(said, [state("rejected")]);
}

/// Whichever step of it is the one that fails.
#[test]
#[ignore = "needs the test bed: cargo xtask test"]
fn a_request_tells_why_it_could_not_be_accepted() {
    let settings = Settings::default();
    let none = Settings { receive_buffers: 0, ..settings.clone() };
    for (settings, private_data, timeout) in
        [(&settings, 0, Duration::ZERO), (&none, 0, LONG), (&settings, 252, LONG)]
    {
        let (accepted, said) = of_a_request(rxe(0), |incoming| {
            incoming.accept(settings, &vec![0; private_data], timeout).map(drop)
        });
        let error = accepted.expect_err("it is refused");
        assert_eq!(said, [state(&format!("failed error={error}"))]);
    }
}

#[test]
#[ignore = "needs the test bed: cargo xtask test"]
fn an_attempt_tells_that_it_is_given_up() {
    let ((), said) = of_a_request(rxe(0), |incoming| {
        drop(incoming.start(&Settings::default(), &[], LONG).expect("accept"));
    });
    assert_eq!(said, [state("accepting"), state("given up")]);
    // Nobody is there.
    let nobody = SocketAddr::from(([10, 0, 0, 99], 7471));
    let connector = Connector::new().source(rxe(0));
    let (started, said) = Notes::of(|| connector.start(nobody).map(drop));
    started.expect("it begins");
    let peer = format!("it: peer={nobody}");
    let rest = [state("resolving"), state("given up")];
    assert_eq!(said[..2], ["connection: id=some".to_owned(), peer]);
    assert_eq!(said[2..], rest);
}
