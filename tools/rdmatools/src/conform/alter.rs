//! Mutation test of the checks.
//!
//! Each check runs once for each alteration of each of the kernel's answers, and must fail.
//!
//! Each check runs on the kernel once, and then on a replay of the kernel's answers.

use std::io::{self, Write};

use nix::libc::{EIO, EPERM};

use super::bench::{Bench, Setting};
use super::check::{Check, Run, Verdict};
use super::kernel::{Answer, Call, File, Kernel};
use super::trace::{Line, Replayed};

/// A change of an answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Alteration {
    /// A failure with another errno.
    OtherErrno,
    /// A failure instead of a success.
    Refused,
    /// A success instead of a failure.
    Accepted,
    /// A return value one byte less than that of the write.
    Partial,
    /// One more stored byte.
    Longer,
    /// A response with other bytes.
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

    /// Alters `answer`, and returns `true` if the alteration is applicable.
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

    /// Returns `true` if `check` should detect the alteration.
    ///
    /// Only scenarios check the content of a response; a row checks the outcome and the length of the response.
    fn applies_to(self, check: &Check) -> bool {
        self != Self::Garbled || matches!(check.run, Run::Scenario(_))
    }
}

/// A kernel that alters one answer.
struct Altered {
    kernel: Replayed,
    /// Index and alteration of the altered call; `None` if no answer is altered.
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

/// The result of the alterations of a check.
enum MutationResult {
    /// The check detected all alterations; their number.
    Noticed(usize),
    /// The check passed despite these alterations.
    Missed(Vec<String>),
    /// The check does not pass without an alteration.
    DoesNotPass(Verdict),
}

/// Totals over all checks.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Totals {
    pub(super) checks: usize,
    pub(super) alterations: usize,
    pub(super) skipped: usize,
    pub(super) failed: usize,
}

/// Runs `check` with every alteration of the recorded answers.
fn test_check(check: &Check, lines: &[Line], setting: &Setting) -> MutationResult {
    let mut plain = Altered::new(lines, None);
    let verdict = check.verdict(&mut Bench::new(&mut plain, setting));
    let calls = plain.calls;
    if !matches!(verdict, Verdict::Pass(_)) {
        return MutationResult::DoesNotPass(verdict);
    }
    let (mut noticed, mut missed) = (0, Vec::new());
    for call in 0..calls {
        for alteration in Alteration::ALL.into_iter().filter(|all| all.applies_to(check)) {
            let mut altered = Altered::new(lines, Some((call, alteration)));
            let verdict = check.verdict(&mut Bench::new(&mut altered, setting));
            match (altered.is_applied, verdict) {
                (false, _) => {}
                (true, Verdict::Fail(_)) => noticed += 1,
                (true, _) => missed.push(format!("{alteration:?} of call {}", call + 1)),
            }
        }
    }
    if noticed > 0 && missed.is_empty() {
        MutationResult::Noticed(noticed)
    } else {
        MutationResult::Missed(missed)
    }
}

/// Tests each check with the answers that `record` returns for it, and prints the results as TAP.
pub(super) fn alter(
    catalog: &[Check],
    setting: &Setting,
    record: &mut dyn FnMut(&Check) -> Vec<Line>,
    out: &mut dyn Write,
) -> io::Result<Totals> {
    let mut tally = Totals::default();
    writeln!(out, "TAP version 14\n1..{}", catalog.len())?;
    for (number, check) in (1..).zip(catalog) {
        let id = &check.id;
        match test_check(check, &record(check), setting) {
            MutationResult::Noticed(count) => {
                tally.checks += 1;
                tally.alterations += count;
                writeln!(out, "ok {number} - {id}: fails for each of {count} altered answers")?;
            }
            MutationResult::Missed(missed) => {
                tally.failed += 1;
                writeln!(out, "not ok {number} - {id}: passes with {}", missed.join(", "))?;
            }
            MutationResult::DoesNotPass(Verdict::Skip(why)) => {
                tally.skipped += 1;
                writeln!(out, "ok {number} - {id} # SKIP {why}")?;
            }
            MutationResult::DoesNotPass(verdict) => {
                tally.failed += 1;
                writeln!(
                    out,
                    "not ok {number} - {id}: does not pass without an alteration: {verdict:?}"
                )?;
            }
        }
    }
    let Totals { checks, alterations, skipped, failed } = tally;
    writeln!(
        out,
        "# {checks} checks can fail: {alterations} altered answers, each detected; {skipped} skipped, {failed} failed"
    )?;
    Ok(tally)
}
