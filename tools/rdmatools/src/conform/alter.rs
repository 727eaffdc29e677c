//! That each check can fail: it runs once for each way to alter each of the kernel's answers, and must notice.
//!
//! It runs on the kernel once, and then on one that answers as that did.

use std::io::{self, Write};

use nix::libc::{EIO, EPERM};

use super::bench::{Bench, Setting};
use super::check::{Check, Run, Verdict};
use super::kernel::{Answer, Call, File, Kernel};
use super::trace::{Line, Replayed};

/// What happens to an answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Alteration {
    /// A failure has another errno.
    OtherErrno,
    /// A success is a failure.
    Refused,
    /// A failure is a success.
    Accepted,
    /// Of a write, a byte less was taken.
    Partial,
    /// A byte more is stored.
    Longer,
    /// All that is stored is something else.
    Garbled,
}

impl Alteration {
    const ALL: [Self; 6] = [
        Self::OtherErrno,
        Self::Refused,
        Self::Accepted,
        Self::Partial,
        Self::Longer,
        Self::Garbled,
    ];

    /// Alters `answer`, if it is one that can be altered so.
    fn apply(self, answer: &mut Answer) -> bool {
        match (self, answer.returned) {
            (Self::OtherErrno, Err(errno)) => {
                answer.returned = Err(if errno == EIO { EPERM } else { EIO });
            }
            (Self::Refused, Ok(_)) => {
                answer.returned = Err(EIO);
                answer.stored.clear();
            }
            (Self::Accepted, Err(_)) => answer.returned = Ok(answer.count),
            (Self::Partial, Ok(count)) if count > 0 => answer.returned = Ok(count - 1),
            (Self::Longer, _) => answer.stored.push(0),
            (Self::Garbled, Ok(_)) if !answer.stored.is_empty() => {
                answer.stored.iter_mut().for_each(|byte| *byte = !*byte);
            }
            _ => return false,
        }
        true
    }

    /// Returns `true` if `check` is to notice. What a response holds is for scenarios; a row says what comes to pass, and how
    /// long a response is.
    fn concerns(self, check: &Check) -> bool {
        self != Self::Garbled || matches!(check.run, Run::Scenario(_))
    }
}

/// A kernel, one of whose answers is altered.
struct Altered {
    kernel: Replayed,
    /// The call whose answer it is, and how; `None` where none is.
    alteration: Option<(usize, Alteration)>,
    calls: usize,
    is_applied: bool,
}

impl Altered {
    fn new(lines: &[Line], alteration: Option<(usize, Alteration)>) -> Self {
        Self { kernel: Replayed::new(lines), alteration, calls: 0, is_applied: false }
    }
}

impl Kernel for Altered {
    fn open(&mut self, node: &str) -> Result<File, i32> {
        self.kernel.open(node)
    }

    fn descriptor(&self, file: File) -> u32 {
        self.kernel.descriptor(file)
    }

    fn call(&mut self, file: File, call: &Call) -> Answer {
        let mut answer = self.kernel.call(file, call);
        if let Some((_, alteration)) = self.alteration.filter(|(at, _)| *at == self.calls) {
            self.is_applied = alteration.apply(&mut answer);
        }
        self.calls += 1;
        answer
    }

    fn wait(&mut self, file: File) -> bool {
        self.kernel.wait(file)
    }

    fn close(&mut self, file: File) {
        self.kernel.close(file);
    }

    fn end(&mut self) {
        self.kernel.end();
    }
}

/// How a check fared.
enum Fared {
    /// It noticed so many alterations.
    Noticed(usize),
    /// It passed in spite of these.
    Missed(Vec<String>),
    /// It does not pass as it is.
    DoesNotPass(Verdict),
}

/// What all came to.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Tally {
    pub(super) checks: usize,
    pub(super) alterations: usize,
    pub(super) skipped: usize,
    pub(super) failed: usize,
}

/// Runs `check` with every alteration of what the kernel has answered.
fn fare(check: &Check, lines: &[Line], setting: &Setting) -> Fared {
    let mut plain = Altered::new(lines, None);
    let verdict = check.verdict(&mut Bench::new(&mut plain, setting));
    let calls = plain.calls;
    if !matches!(verdict, Verdict::Pass(_)) {
        return Fared::DoesNotPass(verdict);
    }
    let (mut noticed, mut missed) = (0, Vec::new());
    for call in 0..calls {
        for alteration in Alteration::ALL.into_iter().filter(|all| all.concerns(check)) {
            let mut altered = Altered::new(lines, Some((call, alteration)));
            let verdict = check.verdict(&mut Bench::new(&mut altered, setting));
            match (altered.is_applied, verdict) {
                (false, _) => {}
                (true, Verdict::Fail(_)) => noticed += 1,
                (true, _) => missed.push(format!("{alteration:?} of call {}", call + 1)),
            }
        }
    }
    if noticed > 0 && missed.is_empty() { Fared::Noticed(noticed) } else { Fared::Missed(missed) }
}

/// Does so for each check, of which `record` says what the kernel answers, and says how it went as TAP.
pub(super) fn alter(
    catalogue: &[Check],
    setting: &Setting,
    record: &mut dyn FnMut(&Check) -> Vec<Line>,
    out: &mut dyn Write,
) -> io::Result<Tally> {
    let mut tally = Tally::default();
    writeln!(out, "TAP version 14\n1..{}", catalogue.len())?;
    for (number, check) in (1..).zip(catalogue) {
        let id = &check.id;
        match fare(check, &record(check), setting) {
            Fared::Noticed(count) => {
                tally.checks += 1;
                tally.alterations += count;
                writeln!(out, "ok {number} - {id}: fails for each of {count} altered answers")?;
            }
            Fared::Missed(missed) => {
                tally.failed += 1;
                writeln!(out, "not ok {number} - {id}: passes with {}", missed.join(", "))?;
            }
            Fared::DoesNotPass(Verdict::Skip(why)) => {
                tally.skipped += 1;
                writeln!(out, "ok {number} - {id} # SKIP {why}")?;
            }
            Fared::DoesNotPass(verdict) => {
                tally.failed += 1;
                writeln!(out, "not ok {number} - {id}: not as it is: {verdict:?}")?;
            }
        }
    }
    let Tally { checks, alterations, skipped, failed } = tally;
    writeln!(
        out,
        "# {checks} checks can fail: {alterations} altered answers, each noticed; {skipped} skipped, {failed} failed"
    )?;
    Ok(tally)
}
