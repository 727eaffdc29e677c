//! `udaddy` and `mckey`: ours against rdma-core's. Their output is identical.

use std::process::Command;

use rdmacm_tests::roce::{roce_ip, roce_ip_v6, roce_name};
use rdmacm_tests::{Ended, Process, promised_device};

use crate::rping::{LIMIT, Program, listening};

every_pair! {
    udaddies
    mckeys
}

/// Starts `line`, which begins with the tool's name. Its output arrives line by line.
pub(crate) fn start(program: Program, line: &str) -> Process {
    let (tool, arguments) = line.split_once(' ').expect("a tool and its arguments");
    let mut command = match program {
        Program::Ours => program.command(tool),
        Program::C if line.contains(" -s ") && tool == "mckey" => slowly(),
        Program::C => Command::new("stdbuf"),
    };
    if program == Program::C {
        command.args(["-oL", tool]);
    }
    Process::start(command.args(arguments.split(' ')), LIMIT)
}

/// Returns `stdbuf` with a delay before each verb of its program.
///
/// rdma-core's sender destroys its address handle without knowing whether the sends have used it. If the kernel sends
/// asynchronously, as Linux 6.12 does, such sends are lost.
fn slowly() -> Command {
    let mut command = Command::new("strace");
    let device = promised_device(roce_name());
    let uverbs = device.uverbs().expect("the device should have a verbs node").path();
    command.args(["-f", "-o", "/dev/null", "-P", &uverbs]);
    command.args(["-e", "inject=ioctl:delay_enter=50000", "stdbuf"]);
    command
}

#[track_caller]
pub(crate) fn assert_printed(ended: &Ended, expected: &[&str], what: &str) {
    assert!(ended.status.success(), "{what}: {}: {}", ended.status, ended.stderr);
    assert_eq!(ended.stdout, expected, "{what}: {}", ended.stderr);
}

fn udaddies(server: Program, client: Program) {
    for (address, options) in [(roce_ip(), "-c 3 -C 7 -S 1024"), (roce_ip_v6(), "-C 10")] {
        let what = format!("{client:?} to {server:?}, {address} {options}");
        let serving = listening(start(server, &format!("udaddy -b {address} {options}")));
        let sent = start(client, &format!("udaddy -s {address} {options}")).finish();
        let lines = [
            "udaddy: starting client",
            "udaddy: connecting",
            "initiating data transfers",
            "receiving data transfers",
            "data transfers complete",
            "test complete",
            "return status 0",
        ];
        assert_printed(&sent, &lines, &what);
        let lines = [
            "udaddy: starting server",
            "receiving data transfers",
            "sending replies",
            "data transfers complete",
            "test complete",
            "return status 0",
        ];
        assert_printed(&serving.finish(), &lines, &what);
    }
}

/// Runs a receiver and a sender of a multicast group, which takes some seconds.
///
/// Both programs wait for three seconds after joining, because switches do not report when they are ready.
fn mckeys(receiver: Program, sender: Program) {
    let what = format!("{sender:?} to {receiver:?}");
    let options = format!("-m 239.1.1.1 -b {} -C 5 -S 500", roce_ip());
    let joined = "mckey: joined dgid: ::ffff:239.1.1.1 mlid 0x0 sl 0";
    let mut receiving = start(receiver, &format!("mckey {options} -c 2"));
    let mut members = 0;
    while members < 2 {
        members += usize::from(receiving.next_line().expect("the receiver should join") == joined);
    }
    let sent = start(sender, &format!("mckey -s -o {options}")).finish();
    let end = ["data transfers complete", "test complete", "return status 0"];
    let start = ["mckey: starting client", "mckey: joining", joined, "initiating data transfers"];
    assert_printed(&sent, &[&start[..], &end].concat(), &what);
    let start = ["mckey: starting server", "mckey: joining", joined, joined];
    let lines = [&start[..], &["receiving data transfers"], &end].concat();
    assert_printed(&receiving.finish(), &lines, &what);
}

#[test]
#[ignore = "needs the test bed: cargo xtask test"]
fn c_and_own_programs_fail_alike() {
    let (v4, v6, name) = (roce_ip(), roce_ip_v6(), roce_name());
    for (line, complaint) in [
        (format!("udaddy -s {v4}"), "no program listens on the port"),
        (format!("udaddy -s {v4} -S 5000"), "5000 bytes"),
        ("udaddy -f ip -s no.such.host".into(), "EAI_NONAME"),
        // On RoCE the kernel resolves no GID to a device.
        ("udaddy -f gid -s fe80::1".into(), "ENODEV"),
        ("ucmatose -f gid -s fe80::1".into(), "cannot resolve the route"),
        (format!("ucmatose -f gid -s ::ffff:{v4} -P ib"), "cannot resolve the route"),
        ("ucmatose -f gid -b fe80::1 -s fe80::1".into(), "cannot resolve the address"),
        ("ucmatose -f gid -b fe80::1".into(), "cannot bind"),
        ("ucmatose -f ip -s no.such.host".into(), "EAI_NONAME"),
        ("ucmatose -f ip -b 10.9.9.9".into(), "EADDRNOTAVAIL"),
        (format!("ucmatose -f ip -s {v4} -p 7199"), "no program listens on the port"),
        (format!("mckey -m ff0e::1 -b {v6}"), "cannot join the multicast group"),
        (format!("mckey -m 239.1.1.1 -b {v4} -p 2"), "cannot bind"),
        // Neither rxe nor siw has flags.
        (
            format!("mckey -m 239.1.1.1 -b {v4} -l"),
            &format!("cannot create a queue pair on {name}"),
        ),
    ] {
        let ours = start(Program::Ours, &line).finish();
        let theirs = start(Program::C, &line).finish();
        assert_eq!(ours.stdout, theirs.stdout, "{line}");
        assert_eq!(ours.status.code(), Some(1), "{line}");
        assert!(!theirs.status.success(), "{line}");
        assert!(ours.stderr.contains(complaint), "{line}: {}", ours.stderr);
    }
}
