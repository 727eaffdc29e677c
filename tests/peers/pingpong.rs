//! `ibv_rc_pingpong`, `ibv_uc_pingpong`, `ibv_ud_pingpong` and `ibv_srq_pingpong`: ours against
//! rdma-core's.

use std::fs;
use std::net::Ipv6Addr;

use rdmacm_tests::roce::{roce_ip, roce_ip_v6, roce_name};
use rdmacm_tests::{Process, promised_device, wait_until};

use crate::rping::{Program, port};

every_pair! {
    rc_pingpongs
    uc_pingpongs
    ud_pingpongs
    srq_pingpongs
}

fn rc_pingpongs(server: Program, client: Program) {
    bounce(server, client, "rc", roce_ip(), 1, "-e -c -n 20 -s 100000 -m 4096");
    bounce(server, client, "rc", roce_ip_v6(), 1, "-n 40 -s 1 -r 3");
}

fn uc_pingpongs(server: Program, client: Program) {
    bounce(server, client, "uc", roce_ip(), 1, "-c -n 40 -m 256");
}

fn ud_pingpongs(server: Program, client: Program) {
    bounce(server, client, "ud", roce_ip(), 1, "-c -n 40");
}

fn srq_pingpongs(server: Program, client: Program) {
    bounce(server, client, "srq", roce_ip(), 3, "-e -c -q 3 -n 40 -s 5000 -r 8");
}

/// Runs `players` queue pairs of each program, and checks every printed line.
///
/// Their GIDs belong to `address`.
pub(crate) fn bounce(
    server: Program,
    client: Program,
    kind: &str,
    address: &str,
    players: usize,
    options: &str,
) {
    let what = format!("{client:?} to {server:?}: {kind} {options}");
    let (name, port) = (format!("ibv_{kind}_pingpong"), port());
    let (index, gid) = gid(address);
    let mut arguments = vec!["-d", roce_name(), "-g", &index, "-p", &port];
    arguments.extend(options.split_whitespace());
    let server = listening(server.run(&name, &arguments), &port);
    arguments.push(roce_ip());
    let client = client.run(&name, &arguments).finish();
    let server = server.finish();
    for (ended, side) in [(&server, "server"), (&client, "client")] {
        assert!(ended.status.success(), "{what}: {side} {}: {}", ended.status, ended.stderr);
        assert_eq!(ended.stderr, "", "{what}: {side}");
        assert_eq!(ended.stdout.len(), 2 * players + 2, "{what}: {side} {:?}", ended.stdout);
    }
    let colon = if kind == "ud" { ":" } else { "," };
    for (here, there) in [(&server, &client), (&client, &server)] {
        let (ours, theirs) = (&here.stdout[..players], &there.stdout[players..2 * players]);
        for (ours, theirs) in ours.iter().zip(theirs) {
            let place = place(ours, "  local address:  ", colon, &gid);
            assert_eq!(place, self::place(theirs, "  remote address: ", ",", &gid), "{what}");
        }
    }
    let timed = |lines: &[String]| {
        lines[2 * players..].iter().map(|line| untimed(line)).collect::<Vec<_>>()
    };
    let option = |option: &str| options.split(option).nth(1)?.split(' ').next()?.parse().ok();
    let size = option("-s ").unwrap_or(if kind == "ud" { 1024 } else { 4096 });
    let count = option("-n ").expect("a count");
    let lines = [
        format!("{} bytes in # seconds = # Mbit/sec", 2 * size * count),
        format!("{count} iters in # seconds = # usec/iter"),
    ];
    assert_eq!(timed(&server.stdout), lines, "{what}");
    assert_eq!(timed(&client.stdout), lines, "{what}");
}

/// Returns the numbers of queue pair and first packet from a line that describes a queue pair.
#[track_caller]
fn place<'a>(line: &'a str, heading: &str, colon: &str, gid: &str) -> [&'a str; 2] {
    let place = line.strip_prefix(heading).and_then(|line| line.strip_prefix("LID 0x0000, QPN 0x"));
    let place = place.and_then(|line| line.strip_suffix(&format!("{colon} GID {gid}")));
    let (number, packet) = place.and_then(|line| line.split_once(", PSN 0x")).expect(line);
    let is_number =
        |digits: &str| digits.len() == 6 && digits.bytes().all(|digit| digit.is_ascii_hexdigit());
    assert!(is_number(number) && is_number(packet), "{line}");
    [number, packet]
}

/// Returns the line with `#` for each number that has two digits of a fraction.
fn untimed(line: &str) -> String {
    let word = |word| match str::split_once(word, '.') {
        Some((_, fraction)) if fraction.len() == 2 => "#",
        _ => word,
    };
    line.split(' ').map(word).collect::<Vec<_>>().join(" ")
}

/// Returns the index of `address` among the GIDs of the RoCE device, and its printed form.
pub(crate) fn gid(address: &str) -> (String, String) {
    let address: std::net::IpAddr = address.parse().expect("an address");
    let address = match address {
        std::net::IpAddr::V4(address) => address.to_ipv6_mapped(),
        std::net::IpAddr::V6(address) => address,
    };
    let port = promised_device(roce_name()).port(1).expect("a port");
    let mut gids = port.gids().expect("the GID table");
    let entry = gids.find(|entry| Ipv6Addr::from(entry.gid) == address).expect("the address's GID");
    (entry.index.to_string(), address.to_string())
}

#[test]
#[ignore = "needs the test bed: cargo xtask test"]
fn roce_pingpong_without_gid_is_refused() {
    let ended = Program::Ours.run("ibv_rc_pingpong", &["-d", roce_name()]).finish();
    assert_eq!(ended.status.code(), Some(1));
    assert!(ended.stderr.contains("choose one of devinfo -v with -g INDEX"), "{}", ended.stderr);
}

/// Waits until a server listens on TCP's `port`.
pub(crate) fn listening(mut server: Process, port: &str) -> Process {
    let port: u16 = port.parse().expect("a port");
    let listens = |table: &str| {
        let table = fs::read_to_string(table).expect("the kernel's list of sockets");
        // The fields are the local address and the state; 0A is LISTEN.
        table.lines().any(|line| {
            let mut words = line.split_whitespace();
            let local = words.nth(1).is_some_and(|local| local.ends_with(&format!(":{port:04X}")));
            local && words.nth(1) == Some("0A")
        })
    };
    wait_until("the server listens", || {
        listens("/proc/net/tcp") || listens("/proc/net/tcp6") || !server.is_running()
    });
    if !server.is_running() {
        panic!("the server ended: {}", server.finish().stderr);
    }
    server
}
