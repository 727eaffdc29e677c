use super::*;

fn options(line: &str) -> Result<Options, clap::Error> {
    crate::tests::options(NAME, line)
}

#[test]
fn options_match_c_program() {
    let client = options("-s10.0.0.1 -b 10.0.0.2 -c 3 -C7 -S 1024 -t 32 -f ipv6").unwrap();
    assert_eq!(client.server.as_deref(), Some("10.0.0.1"));
    assert_eq!((client.connections, client.count, client.size), (3, 7, 1024));
    assert_eq!((client.tos, client.port_space()), (Some(32), PortSpace::Udp));
    let server = options("").unwrap();
    assert_eq!((server.connections, server.count, server.size), (1, 10, 100));
    for (line, space) in [
        ("-P ipoib", PortSpace::IpoIb),
        ("-P UDP", PortSpace::Udp),
        ("-p 2", PortSpace::IpoIb),
        ("-p 2 -P udp", PortSpace::Udp),
    ] {
        assert_eq!(options(line).unwrap().port_space(), space, "{line}");
    }
    for wrong in ["-P tcp", "-p 0x106", "-c -1", "-t 256", "-f mac", "-s"] {
        assert!(options(wrong).is_err(), "{wrong}");
    }
}

#[test]
fn addresses_are_parsed_by_format() {
    let find = |line: &str, host| {
        let options = options(line).unwrap();
        options.find(Some(host), Some(PORT), AddrInfoFlags::empty(), &mut Vec::new())
    };
    let address =
        find("-f ip", "10.0.0.1").unwrap_or_else(|_| panic!("an address should be accepted"));
    assert_eq!(address.ip(), Some("10.0.0.1:7174".parse().unwrap()));
    let address = find("-f gid", "fe80::1").unwrap_or_else(|_| panic!("a GID should be accepted"));
    assert_eq!(address.family(), AddressFamily::Ib);
    let Err(exit) = find("-f ip", "localhost") else { panic!("a name should be rejected") };
    assert_eq!(exit.status, -2, "EAI_NONAME");
}
