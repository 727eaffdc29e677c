use super::super::golden;
use super::*;
use crate::sys::netlink::fake::{Kernel, acknowledgment, done, error, hex, message};
use crate::sys::sysfs::fake::Tree;

#[test]
fn bad_names_are_refused_without_command() {
    let (mut sources, kernel) = Sources::netlink_only(&[]);
    let long = "x".repeat(64);
    let names = [
        ("", "v0", "empty"),
        (&long, "v0", "63 bytes"),
        ("rxe%d", "v0", "'%'"),
        ("r\0", "v0", "NUL"),
        ("rxe0", "", "empty"),
        ("rxe0", "sixteen-bytes-xx", "15 bytes"),
        ("rxe0", "v\0", "NUL"),
    ];
    for (name, netdev, reason) in names {
        let error = add_by(&mut sources, name, LinkType::Rxe, netdev).unwrap_err();
        assert_eq!(error.errno(), libc::EINVAL);
        assert!(error.to_string().contains(reason), "{error}");
    }
    assert!(kernel.requests().is_empty());
}

#[test]
#[cfg(target_endian = "little")]
fn add_requests_acknowledgment() {
    let (mut sources, kernel) = Sources::netlink_only(&[acknowledgment(1)]);
    add_by(&mut sources, "siw0", LinkType::Siw, "v1").unwrap();
    let expected = hex("2c000000 0314 0500 01000000 00000000  | NEWLINK, NLM_F_REQUEST | NLM_F_ACK
             0900 0200 73697730 00 000000          | DEV_NAME
             0800 4100 736977 00                   | LINK_TYPE
             0700 3300 7631 00 00                  | NDEV_NAME");
    assert_eq!(kernel.requests(), [expected]);
}

#[test]
fn errors_of_add_have_hints() {
    const OTHER: LinkType = LinkType::Other("other");
    let cases = [
        (LinkType::Siw, libc::ENODEV, "no network device"),
        (LinkType::Siw, libc::EEXIST, "has a link"),
        (LinkType::Siw, libc::ENFILE, "has that name"),
        (LinkType::Siw, libc::EPERM, NEEDS_ADMIN),
        (OTHER, libc::EPERM, NEEDS_ADMIN),
        (LinkType::Rxe, libc::EPERM, "rxe refuses VLAN devices"),
        (LinkType::Siw, libc::EINVAL, "modprobe siw"),
        (LinkType::Rxe, libc::EINVAL, "modprobe rdma_rxe"),
        (OTHER, libc::EINVAL, "no loaded module"),
        (LinkType::Siw, libc::ENOMEM, "siw0 (siw on v1)"),
    ];
    for (link_type, errno, text) in cases {
        let (mut sources, _kernel) = Sources::netlink_only(&[error(1, -errno)]);
        let error = add_by(&mut sources, "siw0", link_type, "v1").unwrap_err();
        assert_eq!(error.errno(), errno);
        let shown = error.to_string();
        // The hint for rxe begins like that for other types.
        let is_right = text != NEEDS_ADMIN || shown.ends_with(text);
        assert!(is_right && shown.contains(text), "{shown}");
    }
}

#[test]
fn add_without_netlink_fails() {
    let tree = Tree::new(golden::SYSFS);
    let mut sources = Sources::sysfs_only(&tree);
    let error = add_by(&mut sources, "rxe1", LinkType::Rxe, "v0").unwrap_err();
    assert_eq!(error.errno(), libc::EPROTONOSUPPORT);
    let error = delete_by(&mut sources, "rxe0").unwrap_err();
    assert!(matches!(error.kind(), ErrorKind::Unsupported(_)), "{error}");
}

/// Returns a kernel that lists rxe0 and then gives `answer`.
fn kernel_with_rxe0(answer: &[Vec<u8>]) -> (Sources, Kernel) {
    let listed = [message(0x1401, 1, &hex(golden::DEVICE)), done(1, 0)];
    Sources::netlink_only(&[&listed, answer].concat())
}

#[test]
#[cfg(target_endian = "little")]
fn delete_uses_device_index() {
    let (mut sources, kernel) = kernel_with_rxe0(&[acknowledgment(2)]);
    delete_by(&mut sources, "rxe0").unwrap();
    let request = kernel.requests().remove(1);
    assert_eq!(request[4..8], hex("0414 0500"));
    assert_eq!(request[16..], hex("0800 0100 00000000"));
}

#[test]
#[cfg(target_endian = "little")]
fn errors_of_delete_have_hints() {
    for (errno, text) in [(libc::EINVAL, "only software devices"), (libc::EPERM, NEEDS_ADMIN)] {
        let (mut sources, _kernel) = kernel_with_rxe0(&[error(2, -errno)]);
        let error = delete_by(&mut sources, "rxe0").unwrap_err();
        assert!(error.errno() == errno && error.to_string().contains(text), "{error}");
    }
    let (mut sources, _kernel) = kernel_with_rxe0(&[]);
    let error = delete_by(&mut sources, "rxe1").unwrap_err();
    assert_eq!((error.errno(), error.subject()), (libc::ENODEV, "rxe1"));
}

#[test]
fn link_type_text_round_trips() {
    for kind in [LinkType::Rxe, LinkType::Siw] {
        assert_eq!(kind.to_string().parse(), Ok(kind));
    }
    assert_eq!("mlx5".parse::<LinkType>(), Err(ParseLinkTypeError));
}
