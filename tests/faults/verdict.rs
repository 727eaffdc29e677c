//! Verdicts on programs in which a call failed.

use std::fmt;
use std::ops::Add;
use std::os::unix::process::ExitStatusExt;
use std::process::ExitStatus;

use nix::libc;

use crate::plan::{Fault, POLL, READ};
use crate::trace::Injected;

/// A program that has ended.
#[derive(Debug)]
pub(crate) struct Ended {
    pub(crate) status: ExitStatus,
    /// The standard error of the program.
    pub(crate) errors: String,
    /// `true` if the program did not end by itself within its limit.
    pub(crate) is_overdue: bool,
}

impl Ended {
    pub(crate) fn is_killed(&self) -> bool {
        self.status.signal() == Some(libc::SIGKILL)
    }
}

/// A permitted end of a program, or the text of its fault.
pub(crate) type Verdict = Result<Fine, String>;

/// The permitted ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Fine {
    /// The program continued and succeeded.
    Continued,
    /// The program reported the operation that failed.
    Reported,
    /// The loader or the language's runtime gave up before the program's own code ran.
    NotStarted,
    /// The allocator had no memory, and ended the program with a message.
    NoMemory,
    /// The program was killed.
    Killed,
}

/// The visited calls that wait.
const WAITS: [&str; 2] = [READ, POLL];

/// Beginning of the message of the allocator.
const NO_MEMORY: &str = "memory allocation of ";
/// Message of the runtime if a thread cannot start.
const NO_STACK: &str = "failed to allocate an alternative stack";

/// Judges the end of the program in which a call failed.
///
/// The call is known unless the program was killed.
pub(crate) fn of(
    name: &str,
    call: &str,
    fault: Fault,
    injected: Option<&Injected>,
    ended: &Ended,
) -> Verdict {
    let goes_on = fault == Fault::Errno("EINTR") && WAITS.contains(&call);
    let wrong = |what: &str| {
        let call = injected.map_or("", |injected| &injected.call);
        Err(format!("{what}\n  {call}\n  {}, {}", ended.status, ended.errors.trim_end()))
    };
    if ended.is_overdue {
        return wrong("the program did not end");
    }
    if fault == Fault::Kill {
        return Ok(Fine::Killed);
    }
    let is_own = injected.is_some_and(|injected| injected.is_own);
    let aborted = ended.status.signal() == Some(libc::SIGABRT);
    match ended.status.code() {
        Some(0) => Ok(Fine::Continued),
        _ if !is_own => Ok(Fine::NotStarted),
        _ if goes_on => wrong("a signal ended a wait that the program should have repeated"),
        _ if aborted && ended.errors.contains(NO_MEMORY) => Ok(Fine::NoMemory),
        _ if aborted && ended.errors.contains(NO_STACK) => Ok(Fine::NotStarted),
        Some(1) if names_operation(name, &ended.errors) => Ok(Fine::Reported),
        Some(1) if injected.is_some_and(|injected| injected.is_silenced) => Ok(Fine::Reported),
        Some(1) => wrong("the error of the program does not name the operation"),
        _ => wrong("the program did not end with status 0 or 1"),
    }
}

/// Judges the end of a peer whose other side failed.
pub(crate) fn of_peer(name: &str, ended: &Ended) -> Result<(), String> {
    let wrong = |what: &str| Err(format!("the peer {what}: {}, {}", ended.status, ended.errors));
    match ended.status.code() {
        _ if ended.is_overdue => wrong("did not end"),
        Some(0) => Ok(()),
        Some(1) if last_words(name, &ended.errors).is_some() => Ok(()),
        _ => wrong("ended badly"),
    }
}

/// Returns `true` if the error of `name` names the operation that failed.
fn names_operation(name: &str, errors: &str) -> bool {
    let operation = last_words(name, errors).and_then(|words| words.strip_prefix("cannot "));
    operation.is_some_and(|operation| operation.contains(": "))
}

/// Returns the text after `name` in the last line.
fn last_words<'a>(name: &str, errors: &'a str) -> Option<&'a str> {
    let line = errors.lines().last()?;
    line.strip_prefix("rdmatools ")?.strip_prefix(name)?.strip_prefix(": ")
}

/// Numbers of faults with each kind of end.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Counts {
    continued: u32,
    reported: u32,
    not_started: u32,
    no_memory: u32,
    killed: u32,
    wrong: u32,
}

impl Counts {
    pub(crate) fn count(&mut self, end: Option<Fine>) {
        *match end {
            Some(Fine::Continued) => &mut self.continued,
            Some(Fine::Reported) => &mut self.reported,
            Some(Fine::NotStarted) => &mut self.not_started,
            Some(Fine::NoMemory) => &mut self.no_memory,
            Some(Fine::Killed) => &mut self.killed,
            None => &mut self.wrong,
        } += 1;
    }

    pub(crate) fn survived(self) -> u32 {
        self.continued + self.reported + self.not_started + self.no_memory + self.killed
    }

    pub(crate) fn tried(self) -> u32 {
        self.survived() + self.wrong
    }
}

impl Add for Counts {
    type Output = Self;

    fn add(self, other: Self) -> Self {
        Self {
            continued: self.continued + other.continued,
            reported: self.reported + other.reported,
            not_started: self.not_started + other.not_started,
            no_memory: self.no_memory + other.no_memory,
            killed: self.killed + other.killed,
            wrong: self.wrong + other.wrong,
        }
    }
}

impl fmt::Display for Counts {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "{:>4} tried: {:>4} continued, {:>4} reported the failure, {:>3} not started, {:>3} without memory, {:>4} killed, {:>3} wrong",
            self.tried(),
            self.continued,
            self.reported,
            self.not_started,
            self.no_memory,
            self.killed,
            self.wrong
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ended(wait_status: i32, errors: &str) -> Ended {
        let status = ExitStatus::from_raw(wait_status);
        Ended { status, errors: errors.to_owned(), is_overdue: false }
    }

    fn judged(is_own: bool, ended: &Ended) -> Option<Fine> {
        let injected = Injected { call: "write(3) = -1".to_owned(), is_own, is_silenced: false };
        of("rping", READ, Fault::Errno("EIO"), Some(&injected), ended).ok()
    }

    #[test]
    fn interrupted_wait_continues() {
        let injected = |is_own| Injected { call: String::new(), is_own, is_silenced: false };
        let judged = |call, is_own, ended: &Ended| {
            of("rping", call, Fault::Errno("EINTR"), Some(&injected(is_own)), ended).ok()
        };
        let reported = ended(1 << 8, ERROR);
        for call in WAITS {
            assert_eq!(judged(call, true, &reported), None, "{call}");
            assert_eq!(judged(call, true, &ended(0, "")), Some(Fine::Continued));
            assert_eq!(judged(call, false, &reported), Some(Fine::NotStarted));
        }
        assert_eq!(judged("mmap", true, &reported), Some(Fine::Reported));
    }

    const ERROR: &str = "rdmatools rping: cannot bind 10.0.0.1:7: Input/output error\n";

    #[test]
    fn each_end_is_classified() {
        assert_eq!(judged(true, &ended(0, "")), Some(Fine::Continued));
        assert_eq!(judged(true, &ended(1 << 8, ERROR)), Some(Fine::Reported));
        assert_eq!(
            judged(true, &ended(6, "memory allocation of 7 bytes failed\n")),
            Some(Fine::NoMemory)
        );
        assert_eq!(judged(false, &ended(127 << 8, "no libc")), Some(Fine::NotStarted));
        for wrong in [
            ended(1 << 8, ""),
            ended(1 << 8, "rdmatools rping: cannot\n"),
            ended(101 << 8, "thread 'main' panicked"),
            ended(6, "thread 'main' panicked"),
            ended(11, ERROR),
            Ended { is_overdue: true, ..ended(0, "") },
        ] {
            assert_eq!(judged(true, &wrong), None, "{wrong:?}");
        }
    }

    #[test]
    fn peer_succeeds_or_reports_error() {
        assert!(of_peer("rping", &ended(0, "")).is_ok());
        assert!(of_peer("rping", &ended(1 << 8, ERROR)).is_ok());
        assert!(of_peer("rping", &ended(1 << 8, "")).is_err());
        assert!(of_peer("rping", &Ended { is_overdue: true, ..ended(0, "") }).is_err());
    }

    #[test]
    fn counts_add_up() {
        let mut counts = Counts::default();
        for end in [Some(Fine::Continued), Some(Fine::Reported), Some(Fine::Killed), None] {
            counts.count(end);
        }
        let twice = counts + counts;
        assert_eq!((twice.tried(), twice.survived()), (8, 6));
    }
}
