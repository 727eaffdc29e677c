//! Comparison of the bytes that rdma-core and this library write to rdma_cm in one scenario.
//!
//! [`differences`] has each permitted difference with its reason.
//!
//! Verbs are not compared this way: rdma-core issues them by ioctl if the kernel has it, this library by write.

mod differences;
mod stream;

use std::env;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{self, Command};
use std::sync::OnceLock;
use std::time::Duration;

use rdmacm_tests::{Process, promised_device, wait_until};

use self::differences::{
    BOUND, CLOSED, Difference, LISTENING, REQUESTED, REQUESTED_ON_ITS_CHANNEL, RESOLVED,
    RESOLVED_ON_IWARP, RESOLVED_ON_TWO_CHANNELS, TRIAL,
};
use crate::rping::{COMPILER_LIMIT, listens};

const LIMIT: Duration = Duration::from_secs(60);

/// Returns rdma-core's program, which is compiled once.
fn c_scenario() -> &'static Path {
    static PROGRAM: OnceLock<PathBuf> = OnceLock::new();
    PROGRAM.get_or_init(|| {
        let program = env::temp_dir().join(format!("scenario-{}", process::id()));
        let source = concat!(env!("CARGO_MANIFEST_DIR"), "/peers/bytes/scenario.c");
        let mut gcc = Command::new("gcc");
        gcc.args(["-Wall", "-Wextra", "-Werror", source, "-lrdmacm", "-libverbs", "-o"]);
        let compiled = Process::start(gcc.arg(&program), COMPILER_LIMIT).finish();
        assert!(compiled.status.success(), "{}", compiled.stderr);
        program
    })
}

/// A device, and its address.
type Place = (&'static str, &'static str);

const RXE: Place = ("rxe0", "10.0.0.1");
const SIW: Place = ("siw0", "10.0.0.2");

/// Returns the commands of a program in `role`. Its peer is rdma-core's program.
fn commands(program: &Path, role: &str, peer: Option<&str>, there: [&str; 2]) -> Vec<String> {
    let start_peer = |role| Process::start(Command::new(c_scenario()).arg(role).args(there), LIMIT);
    let trace = env::temp_dir().join(format!("trace-{}-{}", process::id(), there[1]));
    let mut strace = Command::new("strace");
    strace.args(["-f", "-xx", "-s", "1000", "-e", "trace=write", "-P", "/dev/infiniband/rdma_cm"]);
    strace.arg("-o").arg(&trace).arg(program).arg(role).args(there);
    let run = |strace: &mut Command| Process::start(strace, LIMIT);

    let ended = if role.contains("passive") || role == "rejecting" {
        let running = run(&mut strace);
        wait_until("the program listens", || child(running.id()).is_some_and(listens));
        let peer = start_peer(peer.expect("scenario should have a peer")).finish();
        assert!(peer.status.success(), "{role}'s peer: {}", peer.stderr);
        running.finish()
    } else {
        let peer = peer.map(|role| {
            let peer = start_peer(role);
            wait_until("the peer listens", || listens(peer.id()));
            peer
        });
        let ended = run(&mut strace).finish();
        if let Some(peer) = peer.map(Process::finish) {
            assert!(peer.status.success(), "{role}'s peer: {}", peer.stderr);
        }
        ended
    };
    assert!(ended.status.success(), "{} {role}: {}", program.display(), ended.stderr);
    let lines = stream::read(&fs::read_to_string(&trace).expect("the trace"));
    fs::remove_file(&trace).expect("remove the trace");
    assert!(!lines.is_empty(), "{role} sends commands");
    lines
}

/// Returns the process that `parent` has started. strace starts it before it reads the first call.
fn child(parent: u32) -> Option<u32> {
    let children = fs::read_to_string(format!("/proc/{parent}/task/{parent}/children")).ok()?;
    children.split_whitespace().next()?.parse().ok()
}

/// Returns the lines of only one side, around a longest common subsequence.
///
/// Lines of the first begin with `-`, and lines of the second with `+`.
fn differ(first: &[String], second: &[String]) -> Vec<String> {
    // lengths[i][j] is the length of the longest common subsequence of first[i..] and second[j..].
    let mut lengths = vec![vec![0; second.len() + 1]; first.len() + 1];
    for i in (0..first.len()).rev() {
        for j in (0..second.len()).rev() {
            lengths[i][j] = match first[i] == second[j] {
                true => lengths[i + 1][j + 1] + 1,
                false => lengths[i + 1][j].max(lengths[i][j + 1]),
            };
        }
    }
    let (mut i, mut j, mut found) = (0, 0, Vec::new());
    while i < first.len() || j < second.len() {
        if i < first.len() && j < second.len() && first[i] == second[j] {
            (i, j) = (i + 1, j + 1);
        } else if j == second.len() || (i < first.len() && lengths[i + 1][j] >= lengths[i][j + 1]) {
            found.push(format!("- {}", first[i]));
            i += 1;
        } else {
            found.push(format!("+ {}", second[j]));
            j += 1;
        }
    }
    found
}

/// Runs both libraries in `role`, each with a peer of rdma-core, and compares their commands.
fn compare(
    role: &str,
    peer: Option<&str>,
    (device, address): Place,
    port: &str,
    allowed: &[&[Difference]],
) {
    promised_device(device);
    let there = [address, port];
    let c = commands(c_scenario(), role, peer, there);
    let ours = commands(Path::new(env!("CARGO_BIN_EXE_scenario")), role, peer, there);
    let found = differ(&c, &ours);
    let allowed: Vec<&str> = allowed.iter().copied().flatten().map(|(line, _)| *line).collect();
    assert!(
        found == allowed,
        "{role}: found\n{}\n\nallowed\n{}\n\nrdma-core\n{}\n\nours\n{}",
        found.join("\n"),
        allowed.join("\n"),
        c.join("\n"),
        ours.join("\n")
    );
}

#[test]
fn differences_are_found() {
    let lines = |text: &str| text.chars().map(String::from).collect::<Vec<_>>();
    assert_eq!(differ(&lines("abcde"), &lines("abcde")), [""; 0]);
    assert_eq!(differ(&lines("abcde"), &lines("axce")), ["- b", "+ x", "- d"]);
    assert_eq!(differ(&lines(""), &lines("ab")), ["+ a", "+ b"]);
    assert_eq!(differ(&lines("ab"), &lines("")), ["- a", "- b"]);
}

macro_rules! scenarios {
    ($($name:ident: $role:literal, $peer:expr, $place:expr, $port:literal, $allowed:expr;)*) => {$(
        #[test]
        #[ignore = "needs the test bed: cargo xtask test"]
        fn $name() {
            compare($role, $peer, $place, $port, $allowed);
        }
    )*};
}

scenarios! {
    active: "active", Some("passive"), RXE, "7301", &[TRIAL, RESOLVED];
    passive: "passive", Some("active"), RXE, "7302", &[TRIAL, LISTENING, REQUESTED];
    rejected: "rejected", Some("rejecting"), RXE, "7303", &[TRIAL, RESOLVED];
    rejecting: "rejecting", Some("rejected"), RXE, "7304", &[TRIAL, LISTENING, REQUESTED];
    datagram_active: "datagram-active", Some("datagram-passive"), RXE, "7306", &[TRIAL, RESOLVED];
    datagram_passive: "datagram-passive", Some("datagram-active"), RXE, "7307", &[TRIAL, LISTENING, REQUESTED];
    multicast: "multicast", None, RXE, "7308", &[TRIAL, BOUND];
    migrate: "migrate", Some("passive"), RXE, "7309", &[TRIAL, RESOLVED_ON_TWO_CHANNELS];
    synchronous_active: "synchronous-active", Some("synchronous-passive"), RXE, "7310", &[TRIAL, RESOLVED];
    synchronous_passive: "synchronous-passive", Some("synchronous-active"), RXE, "7311", &[TRIAL, LISTENING, REQUESTED_ON_ITS_CHANNEL];
    siw_active: "active", Some("passive"), SIW, "7312", &[TRIAL, RESOLVED_ON_IWARP, CLOSED];
    siw_passive: "passive", Some("active"), SIW, "7313", &[TRIAL, LISTENING, REQUESTED];
    external: "external", Some("passive"), RXE, "7305", &[TRIAL, RESOLVED];
}
