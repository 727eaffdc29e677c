use super::*;

/// Returns the counts and the number of problems after a program that listed `listed` tests.
fn added(listed: Option<usize>, ended: Result<ProgramResult>) -> (u64, u64, usize) {
    let mut tests = Tests::default();
    tests.add_program("it", listed, ended);
    (tests.counts.passed, tests.counts.failed, tests.problems.len())
}

fn ended(passed: u64, failed: u64, success: bool) -> Result<ProgramResult> {
    let counts = Counts { passed, failed, skipped: 0 };
    Ok(ProgramResult { counts, success, ..ProgramResult::default() })
}

#[test]
fn expected_result_is_no_problem() {
    assert_eq!(added(Some(3), ended(3, 0, true)), (3, 0, 0));
    assert_eq!(added(Some(3), ended(2, 1, false)), (2, 1, 0));
    assert_eq!(added(None, ended(5, 0, true)), (5, 0, 0));
    let counts = Counts { passed: 2, failed: 0, skipped: 1 };
    let skipped = ProgramResult { counts, success: true, ..ProgramResult::default() };
    assert_eq!(added(Some(3), Ok(skipped)), (2, 0, 0));
}

#[test]
fn unexpected_result_is_failure() {
    assert_eq!(added(Some(3), ended(2, 0, true)), (2, 1, 1), "a test did not run");
    assert_eq!(added(Some(0), ended(1, 0, true)), (1, 1, 1), "a test too many");
    assert_eq!(added(Some(3), ended(3, 0, false)), (3, 1, 1), "the program failed");
    assert_eq!(
        added(Some(3), ended(2, 1, true)),
        (2, 2, 1),
        "the program reported success despite a failure"
    );
    assert_eq!(added(Some(3), ended(0, 0, false)), (0, 2, 2), "the program ended before any test");
    assert_eq!(added(Some(3), Err(Error::new("no report"))), (0, 1, 1));
    let complaints = vec!["WARNING: at".to_owned()];
    let complained = ended(3, 0, true).map(|ended| ProgramResult { complaints, ..ended });
    assert_eq!(added(Some(3), complained), (3, 1, 1), "the kernel complained");
}

#[test]
fn last_line_counts_warnings_reruns_and_skips() {
    let mut tests = Tests::default();
    tests.add_program("it", Some(2), ended(2, 0, true));
    assert_eq!(tests.last_line(), "2 passed, 0 failed\n");
    let counts = Counts { passed: 1, failed: 1, skipped: 4 };
    let backtrace = "   0: function\n             at ./file.rs:1:1\n 100: deep\n".repeat(20);
    let printed = "  at most\n".repeat(20);
    let output = format!("{printed}last\nstack backtrace:\n{backtrace}");
    let failed = vec![FailedTest { name: "a".to_owned(), output }];
    let reruns = vec!["b: siw blocked the program".to_owned()];
    let known_warnings = vec!["WARNING: at".to_owned()];
    let ended = ProgramResult { counts, failed, reruns, known_warnings, ..Default::default() };
    tests.add_program("it", None, Ok(ended));
    assert_eq!(
        tests.last_line(),
        "3 passed, 1 failed, 4 skipped, 1 run again, 1 known kernel warnings\n"
    );
    let shown = format!("it: a{}\n    last", "\n      at most".repeat(19));
    assert_eq!(tests.failed, [shown], "the last 20 lines");
}
