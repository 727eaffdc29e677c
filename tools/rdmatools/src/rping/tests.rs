use super::*;

fn options(line: &str) -> Result<Options, clap::Error> {
    crate::tests::options("rping", line)
}

#[test]
fn short_options_combine_as_with_getopt() {
    let client = options("-cvVd -a10.0.0.1 -C5 -S 100 -p7471 -I 10.0.0.2").unwrap();
    assert!(client.client && client.verbose && client.validate && client.debug);
    assert_eq!(client.address.as_deref(), Some("10.0.0.1"));
    assert_eq!((client.count, client.size, client.port), (5, 100, 7471));
    assert_eq!(client.source.as_deref(), Some("10.0.0.2"));
    let server = options("-sPva ::0").unwrap();
    assert!(server.server && server.persistent && server.verbose && !server.client);
    assert_eq!((server.count, server.size, server.port), (0, 64, 7174));
}

#[test]
fn last_of_two_values_wins() {
    assert_eq!(options("-s -C 1 -C 2 -vv").unwrap().count, 2);
    assert!(!options("-c -a ::1 -s").unwrap().client);
    assert!(options("-s -c -a ::1").unwrap().client);
}

#[test]
fn values_rejected_by_c_program_are_rejected() {
    for line in ["", "-c", "-s -S 22", "-s -S 65536", "-s -S x", "-s -C -1", "-s -p 65536"] {
        assert!(options(line).is_err(), "{line}");
    }
    assert_eq!(options("-s -S 23").unwrap().size, 23);
    assert_eq!(options("-s -S 65535").unwrap().size, 65_535);
}
