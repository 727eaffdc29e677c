//! Functions of Linux 6.18; older kernels refuse them with an error that names the command.

use std::thread;

use rdmacm::addr::{AddrInfoFlags, AddrInfoHints, Address};
use rdmacm::cm::{CmId, EventData, EventType, PortSpace, getaddrinfo};
use rdmacm::{Error, ErrorKind};

use crate::fixtures::{
    LONG, ask, assert_invalid, channel, id, kernel_version, listen, roce, roce_ip,
};

/// Returns `true` if the kernel has the functions of Linux 6.18.
fn is_there() -> bool {
    kernel_version() >= (6, 18)
}

/// Checks that an older kernel refused the command, and that the error names it.
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
fn written_event_arrives_on_channel() {
    let channel = channel();
    let id = id(&channel);
    let written = id.write_event(-7, 0x0102_0304_0506_0708);
    if !is_there() {
        assert_too_old(
            &written.expect_err("the kernel should be too old"),
            "RDMA_USER_CM_CMD_WRITE_CM_EVENT",
        );
        return;
    }
    written.expect("write");
    let event = channel.get_event().expect("an event");
    assert_eq!((event.event_type(), event.token()), (EventType::User, id.token()));
    assert_eq!(event.status(), -7);
    assert_eq!(event.data(), &EventData::Argument(0x0102_0304_0506_0708));
    drop(event);
    // Another thread waits on the channel.
    thread::scope(|scope| {
        let sleeper = scope.spawn(|| channel.get_event().map(|event| event.status()));
        id.write_event(3, 0).expect("write");
        assert_eq!(sleeper.join().expect("sleeper should not panic").expect("an event"), 3);
    });
    // An unread event is destroyed with the id.
    id.write_event(4, 0).expect("write");
    id.destroy().expect("destroy");
}

#[test]
#[ignore = "needs the test bed: cargo xtask test"]
fn write_event_on_request_is_refused() {
    let (ours, theirs) = (channel(), channel());
    let (_listener, server) = listen(&theirs, roce(0));
    let _client = ask(&ours, server, &rdmacm::cm::ConnParam::default());
    let request = crate::fixtures::request(&theirs);
    let error = request.write_event(0, 9).expect_err("the request should not be accepted yet");
    if is_there() {
        assert_eq!(error.errno(), libc::EINVAL, "{error}");
    } else {
        assert_too_old(&error, "RDMA_USER_CM_CMD_WRITE_CM_EVENT");
    }
}

#[test]
#[ignore = "needs the test bed: cargo xtask test"]
fn lookup_completes_by_event() {
    let channel = channel();
    let id = id(&channel);
    let error = id.query_addrinfo().expect_err("no lookup should have been started");
    assert_eq!(error.errno(), libc::ENOENT, "{error}");
    let flags = AddrInfoFlags::NUMERICHOST | AddrInfoFlags::DNS;
    let port_space = Some(PortSpace::Tcp);
    let hints = AddrInfoHints { flags, port_space, ..AddrInfoHints::default() };
    let bad = id.resolve_addrinfo(Some("no.such.host"), None, Some(&hints));
    let error = bad.expect_err("a name that is no number should be refused");
    assert!(matches!(error.kind(), ErrorKind::NameResolution { .. }), "{error:?}");
    for _ in 0..2 {
        let asked = id.resolve_addrinfo(Some(roce_ip()), Some("7471"), Some(&hints));
        if !is_there() {
            assert_too_old(
                &asked.expect_err("the kernel should be too old"),
                "RDMA_USER_CM_CMD_WRITE_CM_EVENT",
            );
            // The failed call leaves no addresses.
            id.query_addrinfo().expect_err("the failed lookup should leave no addresses");
            continue;
        }
        asked.expect("resolve");
        let again = id.resolve_addrinfo(Some(roce_ip()), Some("7471"), Some(&hints));
        assert_eq!(again.expect_err("a second lookup should be refused").errno(), libc::EBUSY);
        let event =
            channel.expect_event(EventType::AddrinfoResolved).expect("the name should be resolved");
        assert_eq!((event.token(), event.data()), (id.token(), &EventData::None));
        let found = id.query_addrinfo().expect("the result");
        assert_eq!(found.len(), 1, "{found:?}");
        assert_eq!(found[0].dst_addr, Some(Address::from(roce(7471))));
        id.query_addrinfo().expect_err("the result should be taken once");
    }
}

#[test]
#[ignore = "needs the test bed: cargo xtask test"]
fn synchronous_lookup_returns_answer() {
    let id = CmId::new_sync(PortSpace::Tcp).expect("an id");
    let hints = AddrInfoHints { port_space: Some(PortSpace::Tcp), ..AddrInfoHints::default() };
    let resolved = id.resolve_addrinfo(Some(roce_ip()), None, Some(&hints));
    if !is_there() {
        assert_too_old(
            &resolved.expect_err("the kernel should be too old"),
            "RDMA_USER_CM_CMD_WRITE_CM_EVENT",
        );
        return;
    }
    resolved.expect("resolve");
    let found = id.query_addrinfo().expect("the result");
    assert_eq!(found[0].dst_addr, Some(Address::from(roce(0))));
    id.resolve_addr(None, found[0].dst_addr.expect("the answer should have an address"), LONG)
        .expect("resolve");
}

#[test]
#[ignore = "needs the test bed: cargo xtask test"]
fn service_lookup_needs_infiniband() {
    let channel = channel();
    let id = id(&channel);
    let hints = by_administrator();
    let ask = |service| id.resolve_addrinfo(None, Some(service), Some(&hints));
    let error = ask("").expect_err("an empty name should be refused");
    assert_invalid(&error, &["1 to 63 bytes"]);
    let node = id.resolve_addrinfo(Some(roce_ip()), Some("storage"), Some(&hints));
    let error = node.expect_err("a node should be refused");
    assert!(error.to_string().contains("not nodes"), "{error}");
    assert_eq!(error.errno(), libc::EOPNOTSUPP);
    let unbound = ask("storage").expect_err("the id should not be bound");
    let services = id.ib_services();
    if !is_there() {
        assert_too_old(&unbound, "RDMA_USER_CM_CMD_RESOLVE_IB_SERVICE");
        assert_too_old(
            &services.expect_err("the kernel should be too old"),
            "RDMA_USER_CM_QUERY_IB_SERVICE",
        );
        return;
    }
    // This error must not be reported as that of an older kernel.
    assert_eq!(unbound.errno(), libc::EINVAL, "{unbound}");
    assert!(matches!(unbound.kind(), ErrorKind::Os(_)), "{unbound:?}");
    assert_eq!(services.expect_err("no service should have been resolved").errno(), libc::ENODATA);
    id.bind(roce(0)).expect("bind");
    let error = ask("0x1234").expect_err("RoCE should have no subnet administrator");
    assert_eq!(error.errno(), libc::EOPNOTSUPP, "{error}");
}

#[test]
#[ignore = "needs the test bed: cargo xtask test"]
fn service_lookup_without_infiniband_port_fails() {
    let error = getaddrinfo(None, Some("storage"), Some(&by_administrator()));
    let error = error.expect_err("the port should be missing");
    assert_eq!(error.errno(), libc::ENOENT, "{error}");
    let flags = AddrInfoFlags::SA | AddrInfoFlags::DNS;
    let both = getaddrinfo(
        None,
        Some("storage"),
        Some(&AddrInfoHints { flags, ..AddrInfoHints::default() }),
    );
    let error = both.expect_err("both at once should be refused");
    assert!(matches!(error.kind(), ErrorKind::Unsupported(_)), "{error:?}");
}
