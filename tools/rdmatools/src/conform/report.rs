//! Output of the catalog and the results, as TAP and as JSON.

use std::io::{self, Write};

use serde_json::{Value, json};

use super::check::{Check, Machine, Needs, Verdict};
use super::trace::Line;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Format {
    Tap,
    Json,
}

/// The results so far.
pub(super) struct Report {
    format: Format,
    all: usize,
    passed: usize,
    failed: Vec<String>,
    skipped: Vec<(String, usize)>,
}

impl Report {
    pub(super) fn begin(
        format: Format,
        catalog: &[Check],
        machine: &Machine,
        out: &mut dyn Write,
    ) -> io::Result<Self> {
        match format {
            Format::Tap => {
                writeln!(out, "TAP version 14\n1..{}", catalog.len())?;
                writeln!(out, "# expecting Linux {}, {}", machine.version, machine.driver)?;
            }
            // The object is written in parts by hand, because each result is printed when its check ends.
            Format::Json => {
                let driver = machine.driver.to_string();
                write!(out, "{{\"kernel\": \"{}\", ", machine.version)?;
                writeln!(out, "\"driver\": {}, \"results\": [", text(&driver))?;
            }
        }
        let (failed, skipped) = (Vec::new(), Vec::new());
        Ok(Self { format, all: catalog.len(), passed: 0, failed, skipped })
    }

    pub(super) fn add(
        &mut self,
        check: &Check,
        verdict: &Verdict,
        trace: &[Line],
        out: &mut dyn Write,
    ) -> io::Result<()> {
        let number = self.passed + self.failed.len() + self.skips() + 1;
        match verdict {
            Verdict::Pass(_) => self.passed += 1,
            Verdict::Fail(_) => self.failed.push(check.id.clone()),
            Verdict::Skip(why) => match self.skipped.iter_mut().find(|(other, _)| other == why) {
                Some((_, count)) => *count += 1,
                None => self.skipped.push((why.clone(), 1)),
            },
        }
        trace.iter().try_for_each(|line| writeln!(out, "# {line}"))?;
        match self.format {
            Format::Tap => tap(number, check, verdict, out),
            Format::Json => {
                writeln!(out, "  {}{}", result(check, verdict), comma(number == self.all))
            }
        }
    }

    fn skips(&self) -> usize {
        self.skipped.iter().map(|(_, count)| count).sum()
    }

    /// Prints the summary. Returns the number of violations.
    pub(super) fn end(self, out: &mut dyn Write) -> io::Result<usize> {
        let (failed, skipped) = (self.failed.len(), self.skips());
        match self.format {
            Format::Tap => {
                let Self { all, passed, .. } = self;
                writeln!(
                    out,
                    "# {all} checks: {passed} as expected, {failed} violations, {skipped} skipped"
                )?;
                for (why, count) in &self.skipped {
                    writeln!(out, "# {count} skipped: {why}")?;
                }
                for id in &self.failed {
                    writeln!(out, "# violation: {id}")?;
                }
            }
            Format::Json => writeln!(
                out,
                "], \"passed\": {}, \"failed\": {failed}, \"skipped\": {skipped}}}",
                self.passed
            )?,
        }
        Ok(failed)
    }
}

fn tap(number: usize, check: &Check, verdict: &Verdict, out: &mut dyn Write) -> io::Result<()> {
    let Check { id, shows, source, .. } = check;
    match verdict {
        Verdict::Pass(None) => writeln!(out, "ok {number} - {id}"),
        Verdict::Pass(Some(outcome)) => writeln!(out, "ok {number} - {id}: {outcome}"),
        Verdict::Skip(why) => writeln!(out, "ok {number} - {id} # SKIP {why}"),
        Verdict::Fail(why) => {
            writeln!(out, "not ok {number} - {id}\n  ---")?;
            writeln!(out, "  message: {}\n  shows: {}", text(why), text(shows))?;
            writeln!(out, "  source: {}\n  expected: {}", text(source), text(&check.expected()))?;
            writeln!(out, "  ...")
        }
    }
}

/// Returns the JSON object of a result.
fn result(check: &Check, verdict: &Verdict) -> Value {
    let (result, detail) = match verdict {
        Verdict::Pass(seen) => ("pass", seen.map(|outcome| outcome.to_string())),
        Verdict::Fail(why) => ("fail", Some(why.clone())),
        Verdict::Skip(why) => ("skip", Some(why.clone())),
    };
    let mut object = json!({ "id": check.id, "result": result });
    if let Some(detail) = detail {
        object["detail"] = Value::from(detail);
    }
    object
}

/// Returns the comma after an element that is not the last one.
fn comma(is_last: bool) -> &'static str {
    if is_last { "" } else { "," }
}

/// Prints the catalog.
pub(super) fn list(catalog: &[Check], format: Format, out: &mut dyn Write) -> io::Result<()> {
    if format == Format::Json {
        writeln!(out, "[")?;
    }
    for (number, check) in catalog.iter().enumerate() {
        let since = check.since.map(|since| since.to_string());
        let needs = match check.needs {
            Needs::Nothing => "rdma_cm",
            Needs::Verbs => "a verbs node",
            Needs::Device => "--all",
        };
        match format {
            Format::Tap => {
                writeln!(out, "{}\n    shows: {}", check.id, check.shows)?;
                writeln!(out, "    source: {}", check.source)?;
                if let Some(since) = since {
                    writeln!(out, "    since: Linux {since}")?;
                }
                writeln!(out, "    needs: {needs}\n    expected: {}", check.expected())?;
            }
            Format::Json => {
                let object = json!({
                    "id": check.id,
                    "shows": check.shows,
                    "source": check.source,
                    "since": since,
                    "needs": needs,
                    "expected": check.expected(),
                });
                writeln!(out, "  {object}{}", comma(number + 1 == catalog.len()))?;
            }
        }
    }
    match format {
        Format::Tap => writeln!(out, "{} checks", catalog.len()),
        Format::Json => writeln!(out, "]"),
    }
}

/// Formats a JSON string, which is also a YAML string.
fn text(text: &str) -> String {
    Value::from(text).to_string()
}

#[cfg(test)]
mod tests;
