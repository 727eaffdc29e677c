use super::*;

#[test]
fn guid_text_round_trips() {
    let guid = Guid::new(0x0002_c9ff_fe12_0034);
    assert_eq!(guid.to_string(), "0002:c9ff:fe12:0034");
    assert_eq!("0002:c9ff:fe12:0034".parse(), Ok(guid));
    assert_eq!(Guid::from_be_bytes([0, 2, 0xc9, 0xff, 0xfe, 0x12, 0, 0x34]), guid);
}

#[test]
fn invalid_guid_text_is_refused() {
    for text in ["", ":::", "1:2:3", "1:2:3:4:5", "1:2:3:g", "00001:2:3:4", "+1:2:3:4"] {
        assert_eq!(text.parse::<Guid>(), Err(ParseGuidError), "{text}");
    }
}

#[cfg(feature = "serde")]
#[test]
fn serialized_form_is_text() {
    let guid = Guid::new(0x0002_c9ff_fe12_0034);
    let gid: Gid = "fe80::1".parse().unwrap();
    let text = serde_json::to_string(&(guid, gid)).unwrap();
    assert_eq!(text, r#"["0002:c9ff:fe12:0034","fe80:0000:0000:0000:0000:0000:0000:0001"]"#);
    assert_eq!(serde_json::from_str::<(Guid, Gid)>(&text).unwrap(), (guid, gid));
    serde_json::from_str::<Gid>(r#""10.0.0.1""#).unwrap_err();
}

#[test]
fn gid_text_round_trips() {
    let gid = Gid::from("::ffff:10.0.0.1".parse::<Ipv6Addr>().unwrap());
    assert_eq!(gid.to_string(), "0000:0000:0000:0000:0000:ffff:0a00:0001");
    assert_eq!(gid.to_string().parse::<Ipv6Addr>().unwrap(), Ipv6Addr::from(gid));
    assert_eq!(gid.to_string().parse(), Ok(gid));
    assert_eq!("::ffff:10.0.0.1".parse(), Ok(gid));
    for text in ["", "10.0.0.1", "fe80::1%eth0", "[::1]"] {
        assert_eq!(text.parse::<Gid>(), Err(ParseGidError), "{text}");
    }
    assert!(!gid.is_zero());
    assert!(Gid::default().is_zero());
}
