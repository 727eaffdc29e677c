use super::*;
use crate::error::{Rejection, UnreachableReason};

const SERVER: SocketAddr =
    SocketAddr::new(std::net::IpAddr::V4(std::net::Ipv4Addr::new(10, 0, 0, 2)), 7474);

fn server() -> AttemptPeer {
    AttemptPeer::Server(SERVER.into())
}

fn rejected(reason: RejectReason) -> ErrorKind {
    ErrorKind::Rejected(Box::new(Rejection { reason, private_data: vec![] }))
}

#[test]
fn error_of_step_names_peer() {
    let failed = || Error::os("wait for", "an event on id 1", Errno::EIO);
    let client = AttemptPeer::Client(Some(SERVER));
    for (peer, awaited, step) in [
        (server(), EventType::AddrResolved, "resolve the address 10.0.0.2:7474"),
        (server(), EventType::RouteResolved, "resolve the route to 10.0.0.2:7474"),
        (server(), EventType::Established, "connect to 10.0.0.2:7474"),
        (client, EventType::Established, "accept the request of 10.0.0.2:7474"),
        (AttemptPeer::Client(None), EventType::Established, "accept a connection request"),
    ] {
        let error = peer.add_to(peer.step_error(failed(), awaited));
        assert_eq!(error.to_string(), format!("cannot {step}: I/O error (EIO)"));
    }
}

#[test]
fn connect_failure_has_hint() {
    for (kind, hint) in [
        (ErrorKind::TimedOut, Some(hint::NOT_ACCEPTED)),
        (rejected(RejectReason::INVALID_SERVICE_ID), Some(hint::NO_PROGRAM)),
        (rejected(RejectReason::CONSUMER_DEFINED), None),
        (ErrorKind::Os(libc::EINVAL), None),
        (ErrorKind::Os(libc::EIO), None),
    ] {
        let failed = Error::new("wait for", "an event", kind);
        let error = server().step_error(failed, EventType::Established);
        assert_eq!(error.hint(), hint, "{error}");
    }
}

#[test]
fn accept_failure_has_hint() {
    let unreachable = ErrorKind::Unreachable(UnreachableReason::of_status(-libc::ETIMEDOUT));
    for (kind, hint) in [
        (ErrorKind::TimedOut, Some(hint::CLIENT_SILENT)),
        (unreachable, Some(hint::CLIENT_SILENT)),
        (rejected(RejectReason::CONSUMER_DEFINED), None),
        (ErrorKind::Os(libc::EINVAL), Some(hint::CLIENT_GONE)),
        (ErrorKind::Os(libc::ECONNRESET), Some(hint::CLIENT_GONE)),
        (ErrorKind::Os(libc::ENOMEM), None),
    ] {
        let failed = Error::new(ACCEPT, "id 1", kind);
        let error = AttemptPeer::Client(Some(SERVER)).command_error(failed);
        assert_eq!((error.hint(), error.subject()), (hint, "the request of 10.0.0.2:7474"));
    }
}

#[test]
fn command_error_names_accept_if_client_is_gone() {
    let client = AttemptPeer::Client(Some(SERVER));
    for (operation, errno, expected) in [
        (ASK_FOR_ATTRIBUTES, Errno::EINVAL, ACCEPT),
        (ASK_FOR_ATTRIBUTES, Errno::EIO, ASK_FOR_ATTRIBUTES),
        ("create", Errno::EINVAL, "create"),
    ] {
        let failed = Error::os(operation, "an object", errno);
        let error = client.command_error(failed.with_optional_hint(Some("of the command")));
        let is_accept = expected == ACCEPT;
        assert_eq!(error.operation(), expected);
        assert_eq!(
            error.hint(),
            Some(if is_accept { hint::CLIENT_GONE } else { "of the command" })
        );
        assert!(error.subject().contains("10.0.0.2:7474"), "{error}");
    }
}

#[test]
fn early_server_is_named_on_iwarp_only() {
    for (peer, awaited, is_iwarp, hint) in [
        (server(), EventType::Established, true, Some(hint::EARLY_SERVER)),
        (server(), EventType::Established, false, None),
        (AttemptPeer::Client(None), EventType::Established, true, Some(hint::CLIENT_GONE)),
        (server(), EventType::RouteResolved, true, None),
    ] {
        let failed = Error::os("wait for", "an event", Errno::EINVAL);
        let error = peer.event_error(failed, awaited, is_iwarp);
        assert_eq!(error.hint(), hint, "{error}");
    }
}
