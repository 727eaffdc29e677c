//! What Linux 6.18 brought; older kernels refuse it by name.

use std::thread;

use nix::sys::utsname::uname;
use rdmacm::addr::{AddrInfoFlags, AddrInfoHints, Address};
use rdmacm::cm::{CmId, EventData, EventType, PortSpace, getaddrinfo};
use rdmacm::{Error, ErrorKind};

use crate::bed::{LONG, ask, assert_invalid, channel, id, listen, rxe};

/// Returns `true` if the kernel is of the release that brought it.
fn is_there() -> bool {
    let name = uname().expect("ask the kernel for its name");
    let release = name.release().to_str().expect("a text");
    let mut numbers = release.split(['.', '-']).map(|number| number.parse().unwrap_or(0));
    let version: (u32, u32) = (numbers.next().unwrap_or(0), numbers.next().unwrap_or(0));
    version >= (6, 18)
}

/// That an older kernel refused it, by name.
#[track_caller]
fn assert_too_old(error: &Error, command: &str) {
    assert!(matches!(error.kind(), ErrorKind::Unsupported(_)), "{error:?}");
    let text = error.to_string();
    assert!(text.contains(command) && text.contains("needs Linux 6.18"), "{text}");
}

fn by_administrator() -> AddrInfoHints {
    AddrInfoHints { flags: AddrInfoFlags::SA, ..AddrInfoHints::default() }
}

#[test]
#[ignore = "needs the test bed: cargo xtask test"]
fn a_program_writes_events_to_its_channel() {
    let channel = channel();
    let id = id(&channel);
    let written = id.write_event(-7, 0x0102_0304_0506_0708);
    if !is_there() {
        assert_too_old(&written.expect_err("too old"), "RDMA_USER_CM_CMD_WRITE_CM_EVENT");
        return;
    }
    written.expect("write");
    let event = channel.get_event().expect("an event");
    assert_eq!((event.event_type(), event.token()), (EventType::User, id.token()));
    assert_eq!(event.status(), -7);
    assert_eq!(event.data(), &EventData::Argument(0x0102_0304_0506_0708));
    drop(event);
    // Another thread sleeps on the channel.
    thread::scope(|scope| {
        let sleeper = scope.spawn(|| channel.get_event().map(|event| event.status()));
        id.write_event(3, 0).expect("write");
        assert_eq!(sleeper.join().expect("no panic").expect("an event"), 3);
    });
    // One that nobody reads goes with the id.
    id.write_event(4, 0).expect("write");
    id.destroy().expect("destroy");
}

#[test]
#[ignore = "needs the test bed: cargo xtask test"]
fn a_request_has_no_events_of_its_own() {
    let (ours, theirs) = (channel(), channel());
    let (_listener, server) = listen(&theirs, rxe(0));
    let _client = ask(&ours, server, &rdmacm::cm::ConnParam::default());
    let request = crate::bed::request(&theirs);
    let error = request.write_event(0, 9).expect_err("it is not accepted");
    if is_there() {
        assert_eq!(error.errno(), libc::EINVAL, "{error}");
    } else {
        assert_too_old(&error, "RDMA_USER_CM_CMD_WRITE_CM_EVENT");
    }
}

#[test]
#[ignore = "needs the test bed: cargo xtask test"]
fn a_lookup_answers_by_an_event() {
    let channel = channel();
    let id = id(&channel);
    let error = id.query_addrinfo().expect_err("nothing was asked");
    assert_eq!(error.errno(), libc::ENOENT, "{error}");
    let flags = AddrInfoFlags::NUMERICHOST | AddrInfoFlags::DNS;
    let port_space = Some(PortSpace::Tcp);
    let hints = AddrInfoHints { flags, port_space, ..AddrInfoHints::default() };
    let bad = id.resolve_addrinfo(Some("no.such.host"), None, Some(&hints));
    let error = bad.expect_err("it is not a number");
    assert!(matches!(error.kind(), ErrorKind::NotResolved { .. }), "{error:?}");
    for _ in 0..2 {
        let asked = id.resolve_addrinfo(Some("10.0.0.1"), Some("7471"), Some(&hints));
        if !is_there() {
            assert_too_old(&asked.expect_err("too old"), "RDMA_USER_CM_CMD_WRITE_CM_EVENT");
            // Nothing is left of it.
            id.query_addrinfo().expect_err("nothing was found");
            continue;
        }
        asked.expect("resolve");
        let again = id.resolve_addrinfo(Some("10.0.0.1"), Some("7471"), Some(&hints));
        assert_eq!(again.expect_err("one at a time").errno(), libc::EBUSY);
        let event = channel.expect_event(EventType::AddrinfoResolved).expect("resolved");
        assert_eq!((event.token(), event.data()), (id.token(), &EventData::None));
        let found = id.query_addrinfo().expect("the result");
        assert_eq!(found.len(), 1, "{found:?}");
        assert_eq!(found[0].dst_addr, Some(Address::from(rxe(7471))));
        id.query_addrinfo().expect_err("it comes once");
    }
}

#[test]
#[ignore = "needs the test bed: cargo xtask test"]
fn a_synchronous_id_has_the_answer_when_the_call_returns() {
    let id = CmId::new_sync(PortSpace::Tcp).expect("an id");
    let hints = AddrInfoHints { port_space: Some(PortSpace::Tcp), ..AddrInfoHints::default() };
    let resolved = id.resolve_addrinfo(Some("10.0.0.1"), None, Some(&hints));
    if !is_there() {
        assert_too_old(&resolved.expect_err("too old"), "RDMA_USER_CM_CMD_WRITE_CM_EVENT");
        return;
    }
    resolved.expect("resolve");
    let found = id.query_addrinfo().expect("the result");
    assert_eq!(found[0].dst_addr, Some(Address::from(rxe(0))));
    id.resolve_addr(None, found[0].dst_addr.expect("as above"), LONG).expect("resolve");
}

#[test]
#[ignore = "needs the test bed: cargo xtask test"]
fn services_are_a_matter_of_infiniband() {
    let channel = channel();
    let id = id(&channel);
    let hints = by_administrator();
    let ask = |service| id.resolve_addrinfo(None, Some(service), Some(&hints));
    let error = ask("").expect_err("no name");
    assert_invalid(&error, &["1 to 63 bytes"]);
    let node = id.resolve_addrinfo(Some("10.0.0.1"), Some("storage"), Some(&hints));
    let error = node.expect_err("a node");
    assert!(error.to_string().contains("not for nodes"), "{error}");
    assert_eq!(error.errno(), libc::EOPNOTSUPP);
    let unbound = ask("storage").expect_err("it is not bound");
    let services = id.ib_services();
    if !is_there() {
        assert_too_old(&unbound, "RDMA_USER_CM_CMD_RESOLVE_IB_SERVICE");
        assert_too_old(&services.expect_err("too old"), "RDMA_USER_CM_QUERY_IB_SERVICE");
        return;
    }
    // Not to be taken for an older kernel's word.
    assert_eq!(unbound.errno(), libc::EINVAL, "{unbound}");
    assert!(matches!(unbound.kind(), ErrorKind::Os(_)), "{unbound:?}");
    assert_eq!(services.expect_err("none was resolved").errno(), libc::ENODATA);
    id.bind(rxe(0)).expect("bind");
    let error = ask("0x1234").expect_err("RoCE has no subnet administrator");
    assert_eq!(error.errno(), libc::EOPNOTSUPP, "{error}");
}

#[test]
#[ignore = "needs the test bed: cargo xtask test"]
fn no_infiniband_port_is_there_to_be_asked() {
    let error = getaddrinfo(None, Some("storage"), Some(&by_administrator()));
    let error = error.expect_err("no port");
    assert_eq!(error.errno(), libc::ENOENT, "{error}");
    let flags = AddrInfoFlags::SA | AddrInfoFlags::DNS;
    let both = getaddrinfo(
        None,
        Some("storage"),
        Some(&AddrInfoHints { flags, ..AddrInfoHints::default() }),
    );
    let error = both.expect_err("one or the other");
    assert!(matches!(error.kind(), ErrorKind::Unsupported(_)), "{error:?}");
}
