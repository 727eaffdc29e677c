use verbs_abi::ib_wc_status;

use super::*;

#[test]
fn error_names_operation_subject_and_errno() {
    let error = Error::os("resolve the address", "10.0.0.9:7471 of id 3", Errno::ENODEV);
    assert_eq!(
        error.to_string(),
        "cannot resolve the address 10.0.0.9:7471 of id 3: No such device (ENODEV)"
    );
    assert_eq!(error.errno(), libc::ENODEV);
}

#[test]
fn hint_is_for_its_errno_only() {
    let error = || Error::os("bind", "id 1", Errno::ENODEV);
    let with = error().with_hint(Errno::ENODEV, "buy a device");
    assert_eq!(with.to_string(), "cannot bind id 1: No such device (ENODEV); buy a device");
    assert_eq!((with.errno(), with.hint()), (libc::ENODEV, Some("buy a device")));
    assert_eq!(*with.kind(), ErrorKind::Os(libc::ENODEV));
    let second = with.with_hint(Errno::ENODEV, "try again");
    assert_eq!(second.hint(), Some("buy a device"));
    let without = error().with_hint(Errno::EINVAL, "try again");
    assert_eq!(without.to_string(), "cannot bind id 1: No such device (ENODEV)");
    assert_eq!(format!("{without:?}"), without.to_string());
}

#[test]
fn peer_is_named_once() {
    let error = |subject| Error::new("wait for", subject, ErrorKind::TimedOut);
    for (subject, named) in [
        ("", "for the connection to 10.0.0.9:7471"),
        ("it on id 1", "it on id 1, for the connection to 10.0.0.9:7471"),
        ("10.0.0.9:7471 of id 1", "10.0.0.9:7471 of id 1"),
        ("110.0.0.9:7471", "110.0.0.9:7471, for the connection to 10.0.0.9:7471"),
    ] {
        assert_eq!(error(subject).with_peer("10.0.0.9:7471").subject(), named);
    }
}

#[test]
fn unknown_errno_is_kept() {
    let error = Error::new("connect", "", ErrorKind::Os(4095));
    assert_eq!(error.to_string(), "cannot connect: errno 4095");
    assert_eq!(error.errno(), 4095);
}

#[test]
fn io_error_keeps_kind_and_text() {
    let error = Error::os("listen", "id 1", Errno::EADDRINUSE);
    assert_eq!(error.io_kind(), std::io::ErrorKind::AddrInUse);
    let io = std::io::Error::from(error);
    assert_eq!(io.kind(), std::io::ErrorKind::AddrInUse);
    assert!(io.to_string().contains("cannot listen id 1"));
}

/// The error of an unavailable name server is not `WouldBlock`: no descriptor becomes readable.
#[test]
fn temporary_failure_of_name_server_is_no_would_block() {
    let kind = ErrorKind::NameResolution { code: libc::EAI_AGAIN, reason: "try again".into() };
    let error = Error::new("look up", "a name", kind);
    assert_eq!(error.errno(), libc::EAGAIN);
    assert_eq!(error.io_kind(), std::io::ErrorKind::Other);
}

#[test]
fn discarded_request_names_cause() {
    let kind = ErrorKind::WorkRequestFailed(ib_wc_status::IB_WC_WR_FLUSH_ERR);
    let expected = "the request was discarded, because the queue pair failed or the connection ended (IB_WC_WR_FLUSH_ERR)";
    assert_eq!(kind.to_string(), expected);
}

/// The device of the peer does not report which of the two causes it was.
#[test]
fn refused_message_names_both_causes() {
    for status in [ib_wc_status::IB_WC_REM_INV_REQ_ERR, ib_wc_status::IB_WC_REM_OP_ERR] {
        let kind = ErrorKind::WorkRequestFailed(status);
        let text = kind.to_string();
        assert!(text.contains("longer than its receive buffer or invalidates a key"), "{text}");
        assert_eq!(Error::new("send", "a message", kind).errno(), libc::EIO);
    }
}

#[test]
fn codes_of_name_resolution_have_closest_errno() {
    let error = |code| {
        let kind = ErrorKind::NameResolution { code, reason: String::new() };
        Error::new("look up", "a name", kind)
    };
    let cases = [
        (libc::EAI_MEMORY, libc::ENOMEM),
        (libc::EAI_FAMILY, libc::EAFNOSUPPORT),
        (libc::EAI_BADFLAGS, libc::EINVAL),
        (libc::EAI_SERVICE, libc::EINVAL),
        (libc::EAI_SOCKTYPE, libc::EINVAL),
        (libc::EAI_NONAME, libc::ENOENT),
        (libc::EAI_NODATA, libc::ENOENT),
        (libc::EAI_FAIL, libc::ENOENT),
    ];
    for (code, errno) in cases {
        assert_eq!(error(code).errno(), errno, "{code}");
    }
    assert_eq!(error(libc::EAI_NONAME).io_kind(), std::io::ErrorKind::NotFound);
}

#[test]
fn failed_requests_have_closest_errno_and_hint() {
    let cases = [
        (ib_wc_status::IB_WC_LOC_LEN_ERR, libc::EMSGSIZE, None),
        (ib_wc_status::IB_WC_RETRY_EXC_ERR, libc::ETIMEDOUT, None),
        (ib_wc_status::IB_WC_RNR_RETRY_EXC_ERR, libc::ETIMEDOUT, None),
        (ib_wc_status::IB_WC_REM_ACCESS_ERR, libc::EACCES, Some(hint::REFUSED_ACCESS)),
        (ib_wc_status::IB_WC_GENERAL_ERR, libc::EIO, None),
    ];
    for (status, errno, expected) in cases {
        let kind = ErrorKind::WorkRequestFailed(status);
        assert_eq!(hint::of_failure(&kind), expected, "{status:?}");
        assert_eq!(Error::new("write", "memory", kind).errno(), errno, "{status:?}");
    }
    assert_eq!(hint::of_failure(&ErrorKind::UnreportedCause), Some(hint::UNREPORTED));
    assert_eq!(hint::of_failure(&ErrorKind::ReceiveOverrun), Some(hint::OVERRUN));
}
