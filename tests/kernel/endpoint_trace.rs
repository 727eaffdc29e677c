//! The safe tier: the spans and events that a subscriber of `tracing` gets.

use std::fmt::{self, Write};
use std::net::SocketAddr;
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;
use std::time::Duration;

use nix::sys::resource::{Resource, getrlimit, setrlimit};
use rdmacm::cm::RejectReason;
use rdmacm::endpoint::{ConnectionConfig, Connector, Incoming, Listener};
use rdmacm::verbs::QpState;
use rdmacm::{Error, ErrorKind};
use tracing::field::{Field, Visit};
use tracing::span::{Attributes, Id, Record};
use tracing::{Dispatch, Event, Metadata, Subscriber, dispatcher};

use crate::child::in_child;
use crate::endpoint_close::with_low_peer;
use crate::endpoint_connect::pair;
use crate::endpoint_datagrams::{self, found, socket};
use crate::endpoint_messages::{filled, receives};
use crate::fixtures::{LONG, roce, siw};
use crate::limit::descriptors;
use crate::modify::bring;
use crate::netdev::Sysctl;
use crate::removal::Own;

/// Records spans and events as text.
#[derive(Default)]
struct Notes {
    reports: Mutex<Vec<String>>,
}

impl Notes {
    fn record_line(&self, name: &str, fields: Fields) -> u64 {
        let mut reports = self.reports.lock().unwrap_or_else(PoisonError::into_inner);
        reports.push(format!("{name}:{}", fields.0));
        u64::try_from(reports.len()).expect("the number should fit")
    }

    /// Returns the result of `run` and the records of its execution.
    fn of<T>(run: impl FnOnce() -> T) -> (T, Vec<String>) {
        let notes = Arc::new(Self::default());
        // With a single subscriber, tracing caches its interest from the first thread that reaches a span. That thread
        // may have no subscriber.
        let _other = Dispatch::new(Self::default());
        let result = dispatcher::with_default(&Dispatch::new(Arc::clone(&notes)), run);
        let reports = notes.reports.lock().unwrap_or_else(PoisonError::into_inner).clone();
        (result, reports)
    }
}

/// Fields with their values. The value of `id`, which varies, is replaced by "some".
struct Fields(String);

impl Visit for Fields {
    fn record_debug(&mut self, field: &Field, value: &dyn fmt::Debug) {
        let value = format!("{value:?}");
        let shown = if field.name() == "id" { "some" } else { &value };
        write!(self.0, " {field}={shown}").expect("writing to a string should succeed");
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
        Id::from_u64(self.record_line(span.metadata().name(), fields))
    }

    fn record(&self, _: &Id, values: &Record<'_>) {
        let mut fields = Fields(String::new());
        values.record(&mut fields);
        self.record_line("span", fields);
    }

    fn event(&self, event: &Event<'_>) {
        let mut fields = Fields(String::new());
        event.record(&mut fields);
        self.record_line(if event.parent().is_some() { "span" } else { "no span" }, fields);
    }

    fn record_follows_from(&self, _: &Id, _: &Id) {}

    fn enter(&self, _: &Id) {}

    fn exit(&self, _: &Id) {}
}

/// Returns the record of a kernel event.
fn event(of: &str) -> String {
    format!("span: message=event kind=RDMA_CM_EVENT_{of}")
}

/// Returns the record of a state change.
fn state(of: &str) -> String {
    format!("span: message=state state={of}")
}

fn connection_life_is_traced(address: SocketAddr) {
    let listener = || Listener::bind(address).expect("listen");
    let (listener, listening) = Notes::of(listener);
    let server = listener.local_addr().expect("an IP address");
    assert_eq!(
        listening,
        ["listener: id=some", &format!("span: local={server}"), &state("listening")]
    );
    // siw leaves a message unread only until more data arrives, which the keep-alive sends.
    let config = ConnectionConfig::new().keep_alive_interval(Some(Duration::from_secs(1)));
    let ((local, asked), (peer, answered)) = thread::scope(|scope| {
        let connects = || {
            let connection = Connector::new().config(config.clone()).total_timeout(LONG);
            let connection = connection.connect(server).expect("connect");
            connection.post_send(filled(&connection, b"hello")).expect("post");
            receives(&connection, b"hello");
            connection.close(LONG).expect("close");
            connection.local_addr().expect("an IP address")
        };
        let client = scope.spawn(move || Notes::of(connects));
        let serves = || {
            let incoming = listener.accept_timeout(LONG).expect("a request");
            let connection = incoming.accept(&config, &[], LONG).expect("accept");
            receives(&connection, b"hello");
            connection.post_send(filled(&connection, b"hello")).expect("post");
            assert!(
                connection.recv_timeout(LONG).expect("receive").is_none(),
                "the peer should have closed"
            );
            connection.peer_addr().expect("an IP address")
        };
        let served = Notes::of(serves);
        (client.join().expect("client should not panic"), served)
    });
    assert_eq!(local, peer);
    assert_eq!(
        asked,
        [
            "connection: id=some",
            &format!("span: peer={server}"),
            &state("resolving"),
            &event("ADDR_RESOLVED status=0"),
            &event("ROUTE_RESOLVED status=0"),
            &state("connecting"),
            &event("ESTABLISHED status=0"),
            &format!("span: local={local}"),
            &state("connected"),
            &state("closing"),
            &event("DISCONNECTED status=0"),
            &state("closed"),
        ]
    );
    assert_eq!(
        answered,
        [
            // This event belongs to the listener.
            &event("CONNECT_REQUEST status=0"),
            "connection: id=some",
            &format!("span: peer={peer}"),
            &state("accepting"),
            &event("ESTABLISHED status=0"),
            &format!("span: local={server}"),
            &state("connected"),
            &event("DISCONNECTED status=0"),
            &state("disconnected"),
            &state("closed"),
        ]
    );
}

#[test]
#[ignore = "needs the test bed: cargo xtask test"]
fn rxe_connection_life_is_traced() {
    connection_life_is_traced(roce(0));
}

#[test]
#[ignore = "needs the test bed: cargo xtask test"]
fn siw_connection_life_is_traced() {
    connection_life_is_traced(siw(0));
}

/// Checks that a connection whose peer does not answer any more reports its failure and its end.
#[test]
#[ignore = "needs the test bed: cargo xtask test"]
fn connection_failure_is_traced() {
    let ((error, peer), reports) = Notes::of(|| {
        let (connection, peer) = with_low_peer(None);
        bring(peer.io.qp(), QpState::IB_QPS_RESET);
        let sent = connection
            .start_send(filled(&connection, b"hello"))
            .and_then(|send| send.wait_timeout(LONG));
        (sent.expect_err("no peer should answer"), peer)
    });
    let last = [state(&format!("failed error={}", error.kind())), state("closed")];
    assert_eq!(reports.last_chunk(), Some(&last), "{reports:?}");
    drop(peer);
}

#[test]
#[ignore = "needs the test bed: cargo xtask test"]
fn socket_life_is_traced() {
    let ((addresses, peer), reports) = Notes::of(|| {
        let [asks, answers] = [(); 2].map(|()| socket(roce(0)));
        let peer = found(&asks, &answers);
        asks.post_send_to(endpoint_datagrams::filled(&asks, b"hello"), &peer).expect("post");
        endpoint_datagrams::receives(&answers, b"hello");
        ([&asks, &answers].map(endpoint_datagrams::address), peer)
    });
    let local = addresses.map(|address| format!("span: local={address}"));
    let listening = state("listening");
    assert_eq!(
        reports,
        [
            "socket: id=some",
            &local[0],
            &listening,
            "socket: id=some",
            &local[1],
            &listening,
            // These events belong to both sides of the attempt.
            &event("ADDR_RESOLVED status=0"),
            &event("ROUTE_RESOLVED status=0"),
            &event("CONNECT_REQUEST status=0"),
            &event("ESTABLISHED status=0"),
            // Each of the two sides closes.
            &state("closed"),
            &state("closed"),
        ]
    );
    drop(peer);
}

/// Checks that a listener, a connection and a socket each report the removal once.
///
/// This holds whichever call detects the removal first.
#[test]
#[ignore = "needs the test bed: cargo xtask test"]
fn device_removal_is_traced_once_per_object() {
    let own = Own::roce();
    let ((deletion, client, ended), reports) = Notes::of(|| {
        let listener = Listener::bind(own.address).expect("listen");
        // The client is created in another thread, which has no subscriber.
        let [client, server] = pair(own.address, &ConnectionConfig::default());
        let socket = socket(own.address);
        let deletion = own.delete();
        let is_gone = |error: Error| {
            assert!(matches!(error.kind(), ErrorKind::DeviceRemoved(_)), "{error}");
        };
        is_gone(listener.accept_timeout(LONG).expect_err("device should be removed"));
        is_gone(socket.recv_from_timeout(LONG).expect_err("device should be removed"));
        // The kernel may remove the client first, and then disconnects its peer.
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
    let count = |what: &str| reports.iter().filter(|report| *report == what).count();
    let gone = count(&state("device removed"));
    assert!((3 - ended..=3).contains(&gone), "{reports:?}");
    assert_eq!(count(&state("closed")), 2, "{reports:?}");
    assert!(count(&event("DEVICE_REMOVAL status=0")) >= gone, "{reports:?}");
    own.comes_back();
}

#[test]
#[ignore = "needs the test bed: cargo xtask test"]
fn failed_attempt_is_traced() {
    let listener = Listener::bind(roce(0)).expect("listen");
    let closed = listener.local_addr().expect("an IP address");
    drop(listener);
    let (failed, reports) = Notes::of(|| Connector::new().connect(closed).map(drop));
    let error = failed.expect_err("no program should listen");
    let last = [event("REJECTED status=8"), state(&format!("failed error={error}"))];
    assert_eq!(reports.last_chunk(), Some(&last), "{reports:?}");
}

#[test]
#[ignore = "needs the test bed: cargo xtask test"]
fn attempt_failing_at_start_is_traced() {
    let nowhere = SocketAddr::from(([192, 0, 2, 1], 0));
    let connector = Connector::new().local_addr(nowhere);
    let (failed, reports) = Notes::of(|| connector.connect(roce(7471)).map(drop));
    let error = failed.expect_err("no device should have the address");
    let peer = format!("span: peer={}", roce(7471));
    let failed = state(&format!("failed error={error}"));
    assert_eq!(reports, ["connection: id=some".to_owned(), peer, failed]);
}

/// Traces an attempt whose id already exists when its descriptors cannot be created.
#[test]
#[ignore = "needs the test bed: cargo xtask test"]
fn attempt_without_descriptors_is_traced() {
    in_child(|| {
        let (_, most) = getrlimit(Resource::RLIMIT_NOFILE).expect("ask for the limit");
        let (used, mut attempts) = (descriptors(), 0);
        let limit = |limit| setrlimit(Resource::RLIMIT_NOFILE, limit, most).expect("set the limit");
        for more in 0.. {
            limit(used + more);
            let (started, reports) =
                Notes::of(|| Connector::new().start_connect(roce(7471)).map(drop));
            limit(most);
            let Err(error) = started else { break };
            assert_eq!(error.errno(), libc::EMFILE, "{error}");
            if let Some(last) = reports.last() {
                assert_eq!(*last, state(&format!("failed error={error}")));
                attempts += 1;
            }
        }
        assert!(attempts > 0, "an attempt should have begun");
    });
}

/// Traces a connection that is already established when epoll refuses its descriptors.
#[test]
#[ignore = "needs the test bed: cargo xtask test"]
fn failed_epoll_registration_is_traced() {
    let (finished, reports) = trace_of_request(roce(0), |incoming| {
        let connecting =
            incoming.start_accept(&ConnectionConfig::default(), &[], LONG).expect("accept");
        let _none = Sysctl::new("fs/epoll/max_user_watches", "0");
        connecting.wait().map(drop)
    });
    let error = finished.expect_err("epoll should accept no more descriptors");
    assert_eq!(error.errno(), libc::ENOSPC, "{error}");
    let reports: Vec<_> = reports.iter().map(String::as_str).collect();
    let [accepting, established, failed] = reports[..] else { panic!("{reports:?}") };
    assert_eq!(accepting, state("accepting"));
    assert_eq!(established, event("ESTABLISHED status=0"));
    assert_eq!(failed, state(&format!("failed error={error}")));
}

/// Returns the result of `with`, which handles a request, and the records from its arrival on.
fn trace_of_request<T>(address: SocketAddr, with: impl FnOnce(Incoming) -> T) -> (T, Vec<String>) {
    // The span of the listener exists only if there is a subscriber.
    let (listener, _) = Notes::of(|| Listener::bind(address).expect("listen"));
    let server = listener.local_addr().expect("an IP address");
    thread::scope(|scope| {
        let client = scope.spawn(move || Connector::new().total_timeout(LONG).connect(server));
        let ((outcome, peer), mut reports) = Notes::of(|| {
            let incoming = listener.accept_timeout(LONG).expect("a request");
            let peer = incoming.peer_addr().expect("an IP address");
            (with(incoming), peer)
        });
        // The client is rejected, or its connection has ended.
        drop(client.join().expect("thread should not panic"));
        let peer = format!("span: peer={peer}");
        let first = [event("CONNECT_REQUEST status=0"), "connection: id=some".to_owned(), peer];
        assert_eq!(reports.drain(..3).collect::<Vec<_>>(), first);
        (outcome, reports)
    })
}

#[test]
#[ignore = "needs the test bed: cargo xtask test"]
fn rejected_request_is_traced() {
    let (rejected, reports) =
        trace_of_request(roce(0), |incoming| incoming.reject(RejectReason::CONSUMER_DEFINED, &[]));
    rejected.expect("reject");
    assert_eq!(reports, [state("rejected")]);
    let ((), reports) = trace_of_request(roce(0), drop);
    assert_eq!(reports, [state("rejected")]);
}

/// Checks that each step of an accept that fails is reported.
#[test]
#[ignore = "needs the test bed: cargo xtask test"]
fn failed_accept_is_traced() {
    let config = ConnectionConfig::default();
    let none = config.clone().receive_buffers(0);
    for (config, private_data, timeout) in
        [(&config, 0, Duration::ZERO), (&none, 0, LONG), (&config, 252, LONG)]
    {
        let (accepted, reports) = trace_of_request(roce(0), |incoming| {
            incoming.accept(config, &vec![0; private_data], timeout).map(drop)
        });
        let error = accepted.expect_err("the accept should be refused");
        assert_eq!(reports, [state(&format!("failed error={error}"))]);
    }
}

#[test]
#[ignore = "needs the test bed: cargo xtask test"]
fn abandoned_attempt_is_traced() {
    let ((), reports) = trace_of_request(roce(0), |incoming| {
        drop(incoming.start_accept(&ConnectionConfig::default(), &[], LONG).expect("accept"));
    });
    assert_eq!(reports, [state("accepting"), state("canceled")]);
    // No machine has this address.
    let absent = SocketAddr::from(([10, 0, 0, 99], 7471));
    let connector = Connector::new().local_addr(roce(0));
    let (started, reports) = Notes::of(|| connector.start_connect(absent).map(drop));
    started.expect("the attempt should begin");
    let peer = format!("span: peer={absent}");
    let rest = [state("resolving"), state("canceled")];
    assert_eq!(reports[..2], ["connection: id=some".to_owned(), peer]);
    assert_eq!(reports[2..], rest);
}
