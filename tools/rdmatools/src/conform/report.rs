//! Output of the catalogue and the results, as TAP and as JSON.

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
        catalogue: &[Check],
        machine: &Machine,
        out: &mut dyn Write,
    ) -> io::Result<Self> {
        match format {
            Format::Tap => {
                writeln!(out, "TAP version 14\n1..{}", catalogue.len())?;
                writeln!(out, "# expecting Linux {}, {}", machine.version, machine.driver)?;
            }
            Format::Json => {
                let driver = machine.driver.to_string();
                write!(out, "{{\"kernel\": \"{}\", ", machine.version)?;
                writeln!(out, "\"driver\": {}, \"results\": [", text(&driver))?;
            }
        }
        let (failed, skipped) = (Vec::new(), Vec::new());
        Ok(Self { format, all: catalogue.len(), passed: 0, failed, skipped })
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

/// Prints the catalogue.
pub(super) fn list(catalogue: &[Check], format: Format, out: &mut dyn Write) -> io::Result<()> {
    if format == Format::Json {
        writeln!(out, "[")?;
    }
    for (number, check) in catalogue.iter().enumerate() {
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
                writeln!(out, "  {object}{}", comma(number + 1 == catalogue.len()))?;
            }
        }
    }
    match format {
        Format::Tap => writeln!(out, "{} checks", catalogue.len()),
        Format::Json => writeln!(out, "]"),
    }
}

/// Formats a JSON string, which is also a YAML string.
fn text(text: &str) -> String {
    Value::from(text).to_string()
}

#[cfg(test)]
mod tests {
    use super::*;

    use super::super::check::{Driver, Expectation, Run, Version};
    use super::super::kernel::Outcome;

    fn check(id: &str) -> Check {
        Check {
            id: id.to_owned(),
            shows: "a \"quoted\" word".to_owned(),
            source: "a.c f".to_owned(),
            since: Some(Version(6, 18)),
            needs: Needs::Verbs,
            run: Run::Row(
                Expectation::of(Outcome::Done(4)),
                Box::new(|_| unreachable!("the check should not run")),
            ),
        }
    }

    /// Returns the report of checks that pass, fail and are skipped, and the number of violations.
    fn report(format: Format) -> (String, usize) {
        let catalogue = ["a", "b", "c", "d"].map(check);
        let machine = Machine { version: Version(6, 12), driver: Driver::Siw };
        let mut out = Vec::new();
        let mut report = Report::begin(format, &catalogue, &machine, &mut out).expect("written");
        let verdicts = [
            Verdict::Pass(Some(Outcome::Done(4))),
            Verdict::Fail("a \"quote\", a \\ and a \n".to_owned()),
            Verdict::Skip("not here".to_owned()),
            Verdict::Pass(None),
        ];
        for (check, verdict) in catalogue.iter().zip(&verdicts) {
            report.add(check, verdict, &[], &mut out).expect("written");
        }
        let violations = report.end(&mut out).expect("written");
        (String::from_utf8(out).expect("text"), violations)
    }

    #[test]
    fn violation_has_reason_in_tap() {
        let wanted = "TAP version 14\n1..4\n# expecting Linux 6.12, siw\nok 1 - a: success with 4 bytes\n\
            not ok 2 - b\n  ---\n  message: \"a \\\"quote\\\", a \\\\ and a \\n\"\n  \
            shows: \"a \\\"quoted\\\" word\"\n  source: \"a.c f\"\n  expected: \"success with 4 bytes\"\n  ...\n\
            ok 3 - c # SKIP not here\nok 4 - d\n\
            # 4 checks: 2 as expected, 1 violations, 1 skipped\n# 1 skipped: not here\n# violation: b\n";
        assert_eq!(report(Format::Tap), (wanted.to_owned(), 1));
    }

    #[test]
    fn report_is_valid_json() {
        let (results, violations) = report(Format::Json);
        let object: Value = serde_json::from_str(&results).expect("valid JSON");
        assert_eq!(violations, 1);
        assert_eq!([&object["kernel"], &object["driver"]], [&json!("6.12"), &json!("siw")]);
        assert_eq!(
            [&object["passed"], &object["failed"], &object["skipped"]],
            [&json!(2), &json!(1), &json!(1)]
        );
        assert_eq!(
            object["results"][1],
            json!({ "id": "b", "result": "fail", "detail": "a \"quote\", a \\ and a \n" })
        );
        let mut out = Vec::new();
        list(&["a", "b"].map(check), Format::Json, &mut out).expect("written");
        let listed: Value = serde_json::from_slice(&out).expect("valid JSON");
        assert_eq!([&listed[0]["since"], &listed[1]["id"]], [&json!("6.18"), &json!("b")]);
    }
}
