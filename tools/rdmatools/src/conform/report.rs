//! The catalogue and the results, as TAP and as JSON.

use std::fmt::Write as _;
use std::io::{self, Write};

use super::check::{Check, Machine, Needs, Verdict};
use super::trace::Line;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Format {
    Tap,
    Json,
}

/// What was found so far.
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
            Format::Json => json(check, verdict, number < self.all, out),
        }
    }

    fn skips(&self) -> usize {
        self.skipped.iter().map(|(_, count)| count).sum()
    }

    /// The summary. Returns the number of violations.
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

fn json(check: &Check, verdict: &Verdict, more: bool, out: &mut dyn Write) -> io::Result<()> {
    let (result, detail) = match verdict {
        Verdict::Pass(seen) => ("pass", seen.map(|outcome| outcome.to_string())),
        Verdict::Fail(why) => ("fail", Some(why.clone())),
        Verdict::Skip(why) => ("skip", Some(why.clone())),
    };
    write!(out, "  {{\"id\": {}, \"result\": \"{result}\"", text(&check.id))?;
    if let Some(detail) = detail {
        write!(out, ", \"detail\": {}", text(&detail))?;
    }
    writeln!(out, "}}{}", if more { "," } else { "" })
}

/// The catalogue.
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
                let since = since.map_or_else(|| "null".to_owned(), |since| text(&since));
                write!(
                    out,
                    "  {{\"id\": {}, \"shows\": {}, ",
                    text(&check.id),
                    text(&check.shows)
                )?;
                write!(out, "\"source\": {}, \"since\": {since}, ", text(&check.source))?;
                write!(
                    out,
                    "\"needs\": {}, \"expected\": {}}}",
                    text(needs),
                    text(&check.expected())
                )?;
                writeln!(out, "{}", if number + 1 < catalogue.len() { "," } else { "" })?;
            }
        }
    }
    match format {
        Format::Tap => writeln!(out, "{} checks", catalogue.len()),
        Format::Json => writeln!(out, "]"),
    }
}

/// A string of JSON, which is one of YAML too.
fn text(text: &str) -> String {
    let mut quoted = String::from("\"");
    for character in text.chars() {
        match character {
            '"' | '\\' => quoted.extend(['\\', character]),
            control if control.is_control() => {
                write!(quoted, "\\u{:04x}", u32::from(control)).expect("a string takes all");
            }
            other => quoted.push(other),
        }
    }
    quoted + "\""
}

#[cfg(test)]
mod tests {
    use super::*;

    use super::super::check::{Driver, Expectation, Run, Version};
    use super::super::kernel::Outcome;

    fn check(id: &str) -> Check {
        Check {
            id: id.to_owned(),
            shows: "what \"it\" shows".to_owned(),
            source: "a.c f".to_owned(),
            since: Some(Version(6, 18)),
            needs: Needs::Verbs,
            run: Run::Row(
                Expectation::of(Outcome::Done(4)),
                Box::new(|_| unreachable!("it is not run")),
            ),
        }
    }

    /// What is said of a check that passes, one that does not and one that is skipped; and how many violations that is.
    fn said(format: Format) -> (String, usize) {
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
    fn a_violation_is_a_point_of_tap_that_says_why() {
        let wanted = "TAP version 14\n1..4\n# expecting Linux 6.12, siw\nok 1 - a: success with 4 bytes\n\
            not ok 2 - b\n  ---\n  message: \"a \\\"quote\\\", a \\\\ and a \\u000a\"\n  \
            shows: \"what \\\"it\\\" shows\"\n  source: \"a.c f\"\n  expected: \"success with 4 bytes\"\n  ...\n\
            ok 3 - c # SKIP not here\nok 4 - d\n\
            # 4 checks: 2 as expected, 1 violations, 1 skipped\n# 1 skipped: not here\n# violation: b\n";
        assert_eq!(said(Format::Tap), (wanted.to_owned(), 1));
    }

    /// The rest behind the value of JSON that `text` begins with.
    fn value(text: &str) -> Option<&str> {
        let text = text.trim_start();
        match text.as_bytes().first()? {
            open @ (b'{' | b'[') => {
                let (is_object, close) = (*open == b'{', if *open == b'{' { '}' } else { ']' });
                let mut rest = text[1..].trim_start();
                if let Some(behind) = rest.strip_prefix(close) {
                    return Some(behind);
                }
                loop {
                    if is_object {
                        rest = string(rest.trim_start())?.trim_start().strip_prefix(':')?;
                    }
                    rest = value(rest)?.trim_start();
                    match rest.strip_prefix(',') {
                        Some(more) => rest = more,
                        None => return rest.strip_prefix(close),
                    }
                }
            }
            b'"' => string(text),
            b'0'..=b'9' => Some(text.trim_start_matches(|c: char| c.is_ascii_digit())),
            _ => text.strip_prefix("null"),
        }
    }

    /// The same of a string.
    fn string(text: &str) -> Option<&str> {
        let mut rest = text.strip_prefix('"')?;
        loop {
            let character = rest.chars().next()?;
            rest = &rest[character.len_utf8()..];
            match character {
                '"' => return Some(rest),
                '\\' => {
                    let escaped = rest.chars().next()?;
                    rest = rest.get(if escaped == 'u' { 5 } else { 1 }..)?;
                    if !"\"\\/bfnrtu".contains(escaped) {
                        return None;
                    }
                }
                _ if character.is_control() => return None,
                _ => {}
            }
        }
    }

    #[test]
    fn json_is_json() {
        for text in ["{\"a\": [1, null, {}], \"b\\n\": \"\"}", "[]"] {
            assert_eq!(value(text), Some(""), "{text}");
        }
        for text in ["{\"a\": }", "[1,]", "\"\n\"", "[1", "{a: 1}", "\"\\x\""] {
            assert_ne!(value(text), Some(""), "{text}");
        }
        let (results, violations) = said(Format::Json);
        assert_eq!((value(&results).map(str::trim), violations), (Some(""), 1), "{results}");
        for part in
            ["\"driver\": \"siw\"", "\"result\": \"fail\"", "\"failed\": 1", "\"skipped\": 1"]
        {
            assert!(results.contains(part), "{part} is not in {results}");
        }
        let mut out = Vec::new();
        list(&["a", "b"].map(check), Format::Json, &mut out).expect("written");
        let listed = String::from_utf8(out).expect("text");
        assert_eq!(value(&listed).map(str::trim), Some(""), "{listed}");
    }
}
