//! Runs of strace, which injects faults and reports the failed calls.

use std::env;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::process::{self, Command};

use crate::plan::Fault;

/// The call by which the programs only pass time. It is excluded, because most visited calls would be of this kind.
const PAUSE: &str = "clock_nanosleep";
/// The last call that the language's runtime makes before a program's own `main`.
const START: &str = "sigaltstack";
/// The form of that call in a trace.
const STARTED: &str = "sigaltstack({";
/// A write to standard error.
const WORDS: &str = " write(2, ";

/// Returns `program` under strace, without its pauses, with call `number` of each thread failing.
///
/// Without a fault no call fails. The started process is the program itself: strace is its grandchild.
pub(crate) fn command(
    program: &Path,
    fault: Option<(&str, Fault, u32)>,
    nodes: &[PathBuf],
) -> Command {
    let mut strace = Command::new("strace");
    // A run without a fault has no result, and may follow a run that has one. So its trace is discarded.
    strace.args(["-D", "-f", "-o"]).arg(fault.map_or_else(|| "/dev/null".into(), |_| file()));
    // A signal is injected at a stop of the program that `--seccomp-bpf` omits.
    if !matches!(fault, Some((_, Fault::Kill, _))) {
        strace.arg("--seccomp-bpf");
    }
    for node in nodes {
        strace.arg("-P").arg(node);
    }
    let calls = fault.map_or_else(String::new, |(calls, ..)| format!("{calls},"));
    strace.args(["-e", &format!("trace={calls}{START},{PAUSE}")]);
    strace.args(["-e", &format!("inject={PAUSE}:retval=0")]);
    if let Some((calls, fault, number)) = fault {
        strace.args(["-e", &format!("inject={calls}:{}:when={number}", fault.injection())]);
    }
    strace.arg(program);
    strace
}

/// A call that failed because of an injected fault.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Injected {
    /// Line of strace about the call.
    pub(crate) call: String,
    /// `true` if the program's own code made the call, and `false` if the runtime made it before `main`.
    pub(crate) is_own: bool,
    /// `true` if this call, or the same call of another thread, writes the error message.
    pub(crate) is_silenced: bool,
}

/// Returns the first call with an injected fault of the program that has just ended.
///
/// If there are `nodes`, only calls on them count.
pub(crate) fn injected(nodes: &[PathBuf]) -> io::Result<Option<Injected>> {
    let trace = fs::read_to_string(file())?;
    fs::remove_file(file())?;
    // Calls of the runtime before `main` are not on nodes, so with nodes each call in the trace is the program's own.
    Ok(first(&trace, !nodes.is_empty()))
}

fn first(trace: &str, mut is_own: bool) -> Option<Injected> {
    let mut first: Option<Injected> = None;
    for line in trace.lines() {
        if line.contains(STARTED) {
            is_own = true;
        } else if line.contains("(INJECTED)") && !line.contains(PAUSE) {
            let call = || Injected { call: line.to_owned(), is_own, is_silenced: false };
            first.get_or_insert_with(call).is_silenced |= line.contains(WORDS);
        }
    }
    first
}

fn file() -> PathBuf {
    env::temp_dir().join(format!("fault-trace-{}", process::id()))
}

#[cfg(test)]
mod tests {
    use super::*;

    const PAUSED: &str = "7   clock_nanosleep(0, 0, {3, 0}) = 0 (INJECTED)\n";
    const STARTED: &str = "7   sigaltstack({ss_sp=0x7f}, NULL) = 0\n";
    const SILENCED: &str =
        "7   write(2, \"cannot\"..., 9) = -1 EIO (Input/output error) (INJECTED)\n";
    const FAILED: &str = "8   <... write resumed>) = -1 EIO (Input/output error) (INJECTED)\n";

    #[test]
    fn fault_counts_after_program_start() {
        let found = |parts: &[&str]| first(&parts.concat(), false).map(|injected| injected.is_own);
        assert_eq!(found(&[]), None);
        assert_eq!(found(&[STARTED, PAUSED]), None);
        assert_eq!(found(&[STARTED, PAUSED, FAILED]), Some(true));
        assert_eq!(found(&[FAILED, STARTED]), Some(false));
        assert_eq!(first(FAILED, true).map(|injected| injected.is_own), Some(true));
        let silenced = |trace: &str| first(trace, true).map(|injected| injected.is_silenced);
        assert_eq!(silenced(FAILED), Some(false));
        assert_eq!(silenced(&[FAILED, SILENCED].concat()), Some(true));
    }
}
