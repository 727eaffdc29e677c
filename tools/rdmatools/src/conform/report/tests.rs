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
    let catalog = ["a", "b", "c", "d"].map(check);
    let machine = Machine { version: Version(6, 12), driver: Driver::Siw };
    let mut out = Vec::new();
    let mut report = Report::begin(format, &catalog, &machine, &mut out).expect("write the report");
    let verdicts = [
        Verdict::Pass(Some(Outcome::Done(4))),
        Verdict::Fail("a \"quote\", a \\ and a \n".to_owned()),
        Verdict::Skip("not here".to_owned()),
        Verdict::Pass(None),
    ];
    for (check, verdict) in catalog.iter().zip(&verdicts) {
        report.add(check, verdict, &[], &mut out).expect("write the report");
    }
    let violations = report.end(&mut out).expect("write the report");
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
    list(&["a", "b"].map(check), Format::Json, &mut out).expect("write the report");
    let listed: Value = serde_json::from_slice(&out).expect("valid JSON");
    assert_eq!([&listed[0]["since"], &listed[1]["id"]], [&json!("6.18"), &json!("b")]);
}
