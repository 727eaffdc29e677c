//! `rdmatools selftest`: its checks pass on each device, and its report has the results.

use std::fs;
use std::path::PathBuf;
use std::{env, process};

use rdmacm::device::{self, Device};
use rdmacm_tests::promised;
use rdmacm_tests::roce::{is_card, roce_ip, roce_name};
use serde_json::Value;

use crate::SIW;
use crate::rping::{Program, port};

/// Checks of the commands, in the order of the report.
const COMMANDS: [&str; 15] = [
    "open the device",
    "port and GIDs",
    "memory region",
    "completion queue",
    "resized completion queue",
    "shared receive queue",
    "queue pair",
    "queue pairs of other types",
    "memory windows",
    "XRC domain",
    "write with immediate data",
    "shared receives",
    "unreliable connection",
    "write through a type 1 window",
    "XRC message",
];

/// Checks of a connection, in the order of the report.
const CONNECTION: [&str; 12] = [
    "connect",
    "messages",
    "immediate data",
    "deadline and completion event",
    "writes and reads",
    "atomics",
    "window that the peer invalidates",
    "refused access",
    "rejected connection",
    "64 connections one by one",
    "datagrams",
    "speed",
];

/// Checks of features that siw does not have.
const NOT_ON_SIW: [&str; 13] = [
    "resized completion queue",
    "immediate data",
    "queue pairs of other types",
    "memory windows",
    "XRC domain",
    "write with immediate data",
    "shared receives",
    "unreliable connection",
    "write through a type 1 window",
    "XRC message",
    "atomics",
    "window that the peer invalidates",
    "datagrams",
];

/// The option for a time limit that a slow guest does not reach.
const TIMEOUT: [&str; 2] = ["--timeout", "3600"];

/// Returns the path of a report, which no other test uses.
fn report_path(name: &str) -> PathBuf {
    env::temp_dir().join(format!("selftest-{name}-{}.json", process::id()))
}

/// Runs the program to its successful end, and returns its report.
fn report(arguments: &[&str], name: &str) -> Value {
    let path = report_path(name);
    let output = path.display().to_string();
    let ended =
        Program::Ours.run("selftest", &[arguments, &TIMEOUT, &["-o", &output]].concat()).finish();
    assert!(ended.status.success(), "{}: {}\n{:#?}", ended.status, ended.stderr, ended.stdout);
    assert_eq!(ended.stdout.last(), Some(&format!("report: {output}")));
    read(&path)
}

fn read(path: &PathBuf) -> Value {
    let text = fs::read_to_string(path).expect("the report should be readable");
    fs::remove_file(path).expect("the report should be removable");
    serde_json::from_str(&text).expect("the report should be JSON")
}

/// Checks that the report is about `device` only, and has the results that this device should have.
#[track_caller]
fn assert_checks(report: &Value, device: &str, names: &[&str]) {
    assert_eq!(report["devices"].as_array().map(Vec::len), Some(1), "{report:#}");
    assert_eq!(report["is_complete"], true);
    assert_device(&report["devices"][0], device, names);
    let kernel = report["machine"]["kernel"].as_str().expect("the kernel should be named");
    let promised = promised("RDMACM_TEST_KERNEL");
    assert!(kernel.starts_with(&format!("{promised}.")), "{kernel}");
}

/// Checks the facts about a device, and that the results are those that `device` should have.
#[track_caller]
fn assert_device(found: &Value, device: &str, names: &[&str]) {
    let facts = &found["device"];
    assert_eq!(facts["name"], device);
    // `tests/kmod/mlx5/card.h` defines the version. Software devices have no firmware.
    let firmware = if is_card() { Value::from("16.35.4030") } else { Value::Null };
    assert_eq!(facts["firmware"], firmware);
    let driver = match device {
        "siw0" => "siw",
        _ if is_card() => "mlx5",
        _ => "rxe",
    };
    assert_eq!((&facts["driver"], &facts["ports"][0]["state"]), (&driver.into(), &"ACTIVE".into()));

    let checks = found["checks"].as_array().expect("the checks should be a list");
    let made: Vec<_> = checks.iter().filter_map(|check| check["check"].as_str()).collect();
    assert_eq!(made, names, "{checks:#?}");
    for check in checks {
        let name = check["check"].as_str().unwrap_or_default();
        let is_missing = match device {
            "siw0" => NOT_ON_SIW.contains(&name),
            _ => !is_card() && name.starts_with("XRC "),
        };
        let expected = if is_missing { "skipped" } else { "ok" };
        assert_eq!(check["result"], expected, "{check:#}");
        assert_ne!(check["detail"], "", "{check:#}");
    }
    for speed in ["latency_us", "write_mb_per_s"] {
        assert!(found["speed"][speed].as_f64() > Some(0.0), "{found:#}");
    }
}

/// Returns the names of the checks of a device with itself.
fn alone() -> Vec<&'static str> {
    [&COMMANDS[..], &["listen"], &CONNECTION, &["nothing is left"]].concat()
}

#[test]
#[ignore = "needs the test bed: cargo xtask test"]
fn device_passes_selftest() {
    let name = roce_name();
    assert_checks(&report(&["-d", name], name), name, &alone());
}

/// Kills the program during a check, which may also crash the program or never end.
#[test]
#[ignore = "needs the test bed: cargo xtask test"]
fn killed_selftest_leaves_report() {
    let (path, name) = (report_path("killed"), roce_name());
    let output = path.display().to_string();
    let mut program = Program::Ours.run("selftest", &["-d", name, "-o", &output]);
    // The line of the second check follows the report of the first one.
    while program.next_line().is_some_and(|line| !line.contains(COMMANDS[1])) {}
    program.kill();
    program.finish();
    let report = read(&path);
    assert_eq!(report["is_complete"], false, "{report:#}");
    assert_eq!(report["devices"][0]["device"]["name"], name);
    assert_eq!(report["devices"][0]["checks"][0]["check"], COMMANDS[0], "{report:#}");
}

/// Checks that each check fails without running after the time limit, except for the last one.
#[test]
#[ignore = "needs the test bed: cargo xtask test"]
fn no_check_begins_after_time_limit() {
    let (path, name) = (report_path("over"), roce_name());
    let output = path.display().to_string();
    let ended = Program::Ours.run("selftest", &["-d", name, "-t", "0", "-o", &output]).finish();
    assert_eq!(ended.status.code(), Some(1), "{}", ended.stderr);
    let report = read(&path);
    assert_eq!(report["is_complete"], true, "{report:#}");
    let checks = report["devices"][0]["checks"].as_array().expect("the checks should be a list");
    let (last, others) = checks.split_last().expect("checks");
    assert_eq!((&last["check"], &last["result"]), (&"nothing is left".into(), &"ok".into()));
    assert!(!others.is_empty());
    for check in others {
        assert_eq!(
            check["detail"], "not run: the time limit has passed; raise --timeout",
            "{report:#}"
        );
    }
}

/// Runs the program without arguments, except for the time limit and the path of the report. Its memory must stay bounded.
#[test]
#[ignore = "needs the test bed: cargo xtask test"]
fn all_devices_pass_selftest() {
    const MOST_KIB: u64 = 64 << 10;
    let path = report_path("all");
    let output = path.display().to_string();
    let mut program = Program::Ours.run("selftest", &[&TIMEOUT[..], &["-o", &output]].concat());
    let status = format!("/proc/{}/status", program.id());
    let (mut lines, mut most) = (Vec::new(), 0);
    while let Some(line) = program.next_line() {
        lines.push(line.to_owned());
        // The peak of the process never decreases. The file has no peak after the end of the process.
        let status = fs::read_to_string(&status).unwrap_or_default();
        let peak = status.lines().find_map(|line| line.strip_prefix("VmHWM:")?.strip_suffix("kB"));
        most = peak.map_or(most, |peak| peak.trim().parse::<u64>().expect("a number"));
    }
    let ended = program.finish();
    assert!(ended.status.success(), "{}: {}\n{lines:#?}", ended.status, ended.stderr);
    assert!((1..MOST_KIB).contains(&most), "peak of {most} KiB");

    let report = read(&path);
    let found = report["devices"].as_array().expect("the devices should be a list");
    let names = found.iter().map(|found| found["device"]["name"].as_str().expect("a name"));
    let devices = device::list().expect("list the devices");
    assert!(names.eq(devices.iter().map(Device::name)), "{report:#}");
    let mut sum = 0;
    for (found, device) in found.iter().zip(&devices) {
        assert_device(found, device.name(), &alone());
        let checks = found["checks"].as_array().expect("the checks should be a list");
        sum += checks.iter().map(|check| check["ms"].as_u64().expect("a time")).sum::<u64>();
    }
    // The guest has a software emulation of its processors, so the total has no limit here.
    let total = report["total_ms"].as_u64().expect("a time");
    assert!(total >= sum, "{sum} ms in {total} ms");
    assert!(lines.iter().any(|line| line.starts_with("total time: ")), "{lines:#?}");
    for feature in report["not_exercised"].as_array().expect("the features should be a list") {
        let line = format!("not exercised: {}", feature.as_str().expect("a name"));
        assert!(lines.contains(&line), "{lines:#?}");
    }
    println!("peak of {most} KiB, {total} ms");
}

#[test]
#[ignore = "needs the test bed: cargo xtask test"]
fn siw_passes_selftest() {
    assert_checks(&report(&["-d", "siw0"], "siw0"), "siw0", &alone());
}

#[test]
#[ignore = "needs the test bed: cargo xtask test"]
fn two_programs_pass_selftest() {
    two_programs(roce_ip(), roce_name());
}

#[test]
#[ignore = "needs the test bed: cargo xtask test"]
fn siw_programs_pass_selftest() {
    two_programs(SIW, "siw0");
}

/// Checks `device` with a program that listens on `address`.
fn two_programs(address: &str, device: &str) {
    let port = port();
    let mut server = Program::Ours.run("selftest", &["--listen", "--bind", address, "-p", &port]);
    assert_eq!(server.next_line(), Some(format!("listening on {address}:{port}").as_str()));
    let report = report(&[address, "-p", &port], &format!("{device}-two"));
    assert_eq!(report["peer"], address);
    let names = [&COMMANDS[..], &CONNECTION, &["nothing is left"]].concat();
    assert_checks(&report, device, &names);
    server.kill();
}

#[test]
#[ignore = "needs the test bed: cargo xtask test"]
fn selftest_without_peer_reports_failure() {
    let path = report_path("refused");
    let output = path.display().to_string();
    let arguments = [roce_ip(), "-p", &port(), "-o", &output];
    let ended = Program::Ours.run("selftest", &arguments).finish();
    assert_eq!(ended.status.code(), Some(1), "{}", ended.stderr);
    let name = roce_name();
    let text = format!("rdmatools selftest: {name}: connect: ");
    assert!(ended.stderr.starts_with(&text), "{}", ended.stderr);
    let report = read(&path);
    let checks = report["devices"][0]["checks"].as_array().expect("the checks should be a list");
    let connect = checks
        .iter()
        .find(|check| check["check"] == "connect")
        .expect("connect should be among the checks");
    assert_eq!(connect["result"], "FAILED");
    assert!(
        ended.stderr.contains(connect["detail"].as_str().expect("the detail should be a string")),
        "{connect:#}"
    );
}

#[test]
#[ignore = "needs the test bed: cargo xtask test"]
fn unknown_device_is_named_in_error() {
    let ended = Program::Ours.run("selftest", &["-d", "none0"]).finish();
    assert!(!ended.status.success());
    let name = roce_name();
    assert!(ended.stderr.contains("none0") && ended.stderr.contains(name), "{}", ended.stderr);
    // The address belongs to a device, but not to that one.
    let ended = Program::Ours.run("selftest", &[roce_ip(), "-d", "none0"]).finish();
    assert!(ended.stderr.contains("none0") && ended.stderr.contains(name), "{}", ended.stderr);
}

#[test]
#[ignore = "needs the test bed: cargo xtask test"]
fn siw_address_selects_its_device() {
    assert_checks(&report(&["--bind", SIW], "bound"), "siw0", &alone());
    let name = roce_name();
    let ended = Program::Ours.run("selftest", &["--bind", SIW, "-d", name]).finish();
    assert!(!ended.status.success());
    let text =
        format!("cannot check {name}: no such RDMA device with a verbs node at {SIW}; found: siw0");
    assert!(ended.stderr.contains(&text), "{}", ended.stderr);
}
