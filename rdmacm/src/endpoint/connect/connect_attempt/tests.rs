use nix::errno::Errno;

use super::*;
use crate::error::Rejection;

#[test]
fn error_of_step_names_server() {
    let failed = || Error::os("wait for", "an event on id 1", Errno::EINVAL);
    let server = std::net::SocketAddr::from(([10, 0, 0, 2], 7474));
    for (awaited, step) in [
        (EventType::AddrResolved, "resolve the address"),
        (EventType::RouteResolved, "resolve the route to"),
        (EventType::Established, "connect to"),
    ] {
        let error = step_error(failed(), awaited, Some(server.into())).with_peer(server);
        let expected = format!("cannot {step} 10.0.0.2:7474: Invalid argument (EINVAL)");
        assert!(error.to_string().starts_with(&expected), "{error}");
        let error = step_error(failed(), awaited, None);
        assert_eq!(error.to_string(), failed().to_string());
    }
}

#[test]
fn connect_failure_has_hint() {
    let rejected =
        |reason| ErrorKind::Rejected(Box::new(Rejection { reason, private_data: vec![] }));
    for (kind, hint) in [
        (ErrorKind::TimedOut, Some(hint::NOT_ACCEPTED)),
        (rejected(RejectReason::INVALID_SERVICE_ID), Some(hint::NO_PROGRAM)),
        (rejected(RejectReason::CONSUMER_DEFINED), None),
        (ErrorKind::Os(libc::EINVAL), None),
        (ErrorKind::Os(libc::EIO), None),
    ] {
        let server = std::net::SocketAddr::from(([10, 0, 0, 2], 7474));
        let failed = Error::new("wait for", "an event", kind);
        let error = step_error(failed, EventType::Established, Some(server.into()));
        assert_eq!(error.hint(), hint, "{error}");
    }
}

#[test]
fn early_server_is_named_on_iwarp_only() {
    let server = Address::from(std::net::SocketAddr::from(([10, 0, 0, 2], 7474)));
    let client = (EventType::Established, Some(server));
    for ((awaited, server), is_iwarp, hint) in [
        (client, true, Some(hint::EARLY_SERVER)),
        (client, false, None),
        ((EventType::Established, None), true, None),
        ((EventType::RouteResolved, Some(server)), true, None),
    ] {
        let failed = Error::os("wait for", "an event", Errno::EINVAL);
        let error = event_error(failed, awaited, server, is_iwarp);
        assert_eq!(error.hint(), hint, "{error}");
    }
}
