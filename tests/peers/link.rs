//! `rdmatools link` beside `rdma link` of iproute2, and `devinfo` beside `ibv_devinfo`.

use std::process::Command;

use rdmacm_tests::{Process, wait_until};

use crate::rping::{LIMIT, Program};

const NETDEV: &str = "link0";

/// Returns the lines that a successful program prints, without the spaces around them.
#[track_caller]
fn lines(program: Process) -> Vec<String> {
    let ended = program.finish();
    assert!(ended.status.success(), "{}: {}", ended.status, ended.stderr);
    ended.stdout.iter().map(|line| line.trim().to_owned()).collect()
}

fn run(program: &str, arguments: &[&str]) -> Vec<String> {
    lines(Process::start(Command::new(program).args(arguments), LIMIT))
}

fn ours(applet: &str, arguments: &[&str]) -> Vec<String> {
    lines(Program::Ours.run(applet, arguments))
}

/// Returns the values of `keys` in the output of a devinfo.
fn values(lines: &[String], keys: &[&str]) -> Vec<String> {
    let value = |key: &&str| {
        let line = lines.iter().find_map(|line| line.strip_prefix(&format!("{key}:")));
        line.unwrap_or_else(|| panic!("no {key} in {lines:#?}")).trim().to_owned()
    };
    keys.iter().map(value).collect()
}

#[test]
#[ignore = "needs the test bed: cargo xtask test"]
fn link_is_added_shown_and_deleted() {
    run("ip", &["link", "add", NETDEV, "type", "dummy"]);
    run("ip", &["link", "set", NETDEV, "up"]);
    assert_eq!(ours("link", &["add", "rxe5", "type", "rxe", "netdev", NETDEV]), [""; 0]);
    let shown = || ours("link", &["show", "rxe5/1"]);
    wait_until("the port is active", || shown()[0].contains("state ACTIVE"));
    assert_eq!(shown(), ["link rxe5/1 state ACTIVE physical_state LINK_UP netdev link0"]);
    assert_eq!(shown(), run("rdma", &["link", "show", "rxe5/1"]));
    assert_eq!(ours("link", &[]), run("rdma", &["link"]));

    assert!(ours("devinfo", &["-l"]).contains(&"rxe5".to_owned()));
    let [ours_says, c_says] =
        [ours("devinfo", &["-d", "rxe5"]), run("ibv_devinfo", &["-d", "rxe5"])];
    let keys = ["hca_id", "transport", "node_guid", "phys_port_cnt", "port", "state", "max_mtu"];
    let [ours_says, c_says] = [ours_says, c_says].map(|lines| values(&lines, &keys));
    assert_eq!(ours_says, c_says);
    let verbose = ours("devinfo", &["-d", "rxe5", "-v"]);
    let values = values(&verbose, &["driver", "netdev", "max_srq", "GID[  0]"]);
    assert_eq!(values[..2], ["rxe", NETDEV]);
    assert!(values[3].starts_with("fe80:"), "{values:?}");

    assert_eq!(ours("link", &["delete", "rxe5"]), [""; 0]);
    let gone = Program::Ours.run("link", &["show", "rxe5"]).finish();
    assert_eq!(gone.status.code(), Some(1), "{:?}", gone.stdout);
    assert!(gone.stderr.contains("there is no link rxe5"), "{}", gone.stderr);
    run("ip", &["link", "delete", NETDEV]);
}
