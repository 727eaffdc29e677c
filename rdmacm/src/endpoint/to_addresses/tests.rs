use std::net::IpAddr;

use super::*;
use crate::error::ErrorKind;

fn addresses(value: impl ToAddresses) -> Vec<Address> {
    value.to_target().resolve().expect("the addresses should be resolved")
}

#[test]
fn all_forms_of_address_are_equal() {
    let v4: SocketAddr = "10.0.0.1:7471".parse().expect("the address should be parsed");
    let expected = vec![Address::from(v4)];
    assert_eq!(addresses("10.0.0.1:7471"), expected);
    assert_eq!(addresses(String::from("10.0.0.1:7471")), expected);
    assert_eq!(addresses(("10.0.0.1", 7471)), expected);
    assert_eq!(addresses((String::from("10.0.0.1"), 7471)), expected);
    assert_eq!(addresses((Ipv4Addr::new(10, 0, 0, 1), 7471)), expected);
    assert_eq!(addresses((v4.ip(), 7471)), expected);
    assert_eq!(addresses(v4), expected);
    let by_reference = &v4;
    assert_eq!(addresses(by_reference), expected);
    assert_eq!(addresses(Address::from(v4)), expected);
    let v6 = (Ipv6Addr::LOCALHOST, 1);
    assert_eq!(addresses("[::1]:1"), [Address::from((IpAddr::from(v6.0), v6.1))]);
    assert_eq!(addresses(v6), [Address::from(v6)]);
}

#[test]
fn lists_keep_their_order() {
    let list: Vec<SocketAddr> = ["10.0.0.2:1", "10.0.0.1:1"]
        .map(|text| text.parse().expect("the address should be parsed"))
        .into();
    let expected: Vec<Address> = list.iter().copied().map(Address::from).collect();
    assert_eq!(addresses(&list[..]), expected);
    let mut tried = Vec::new();
    let found = first_success(addresses(&list[..]), |address| {
        tried.push(address);
        match tried.len() {
            1 => Err(Error::invalid("use", "an address", "the first one fails")),
            _ => Ok(address),
        }
    });
    assert_eq!(found.expect("the second address should succeed"), expected[1]);
    assert_eq!(tried, expected);
}

#[test]
fn infiniband_text_is_accepted_as_address() {
    let ib =
        IbAddress::new("fe80::1".parse().expect("the GID should be parsed"), PortSpace::Tcp, 7);
    assert_eq!(addresses(ib.to_string().as_str()), [Address::from(ib)]);
}

#[test]
fn text_with_one_colon_is_split() {
    assert_eq!(split("host:7471"), Some(("host", 7471)));
    assert_eq!(split("10.0.0.1:0"), Some(("10.0.0.1", 0)));
    assert_eq!(split("host"), None);
}

#[test]
fn malformed_text_is_refused() {
    for text in ["", "10.0.0.1", ":1", "host:", "host:port", "host:65536", "fe80::1:1", "a:b:1"] {
        let error = text.to_target().resolve().expect_err(text);
        assert!(matches!(error.kind(), ErrorKind::InvalidInput { .. }), "{text}: {error}");
        assert!(error.to_string().contains("HOST:PORT"), "{error}");
    }
    let empty: &[SocketAddr] = &[];
    let error = empty.to_target().resolve().expect_err("an empty list should be refused");
    assert!(matches!(error.kind(), ErrorKind::InvalidInput { .. }), "{error}");
}
