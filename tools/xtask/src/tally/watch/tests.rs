use super::*;

/// Returns the events of `pieces`, the results of the tests and the final counts.
fn watched(pieces: &[&str]) -> (Vec<Event>, Vec<(String, Outcome)>, Option<Counts>) {
    let mut watch = Watch::default();
    let now = Instant::now();
    let happened = pieces.iter().flat_map(|piece| watch.feed(piece.as_bytes(), now)).collect();
    let (endings, counts) = watch.finish();
    (happened, endings.into_iter().map(|end| (end.test, end.outcome)).collect(), counts)
}

fn outcomes(output: &str) -> Vec<(String, Outcome)> {
    let whole = watched(&[output]).1;
    let pieces: Vec<_> = output.split_inclusive("").collect();
    assert_eq!(watched(&pieces).1, whole, "the result should not depend on the pieces");
    whole
}

#[test]
fn test_begins_before_its_line_ends() {
    let began = |test: &str| Event::Began(test.to_owned());
    let (happened, endings, counts) = watched(&["running 2 tests\ntest a::b ... "]);
    assert_eq!((happened, endings, counts), (vec![began("a::b")], vec![], None));
    let (happened, endings, _) = watched(&["test a ... ", "ok\ntest b ...", " "]);
    assert_eq!((happened.len(), endings.len()), (3, 1), "{happened:?}");
    assert_eq!(happened.last(), Some(&began("b")));
}

#[test]
fn outcomes_are_distinguished() {
    let output = "test a ... ok\ntest b ... word\nthread 'b' (7) panicked at x.rs:1:1:\nno\nFAILED\n\
        test c ... [skipped] no XRC\nok\ntest d ... ignored, needs more\ntest e - should panic ... ok\n\
        \nfailures:\n\nfailures:\n    b\n\ntest result: FAILED. 3 passed; 1 failed; 1 ignored; 0 measured\n";
    let failed = "word\nthread 'b' (7) panicked at x.rs:1:1:\nno\n".to_owned();
    let expected = [
        ("a".to_owned(), Outcome::Passed),
        ("b".to_owned(), Outcome::Failed(failed)),
        ("c".to_owned(), Outcome::Skipped("no XRC".to_owned())),
        ("e - should panic".to_owned(), Outcome::Passed),
    ];
    assert_eq!(outcomes(output), expected);
    let counts = watched(&[output]).2;
    assert_eq!(counts, Some(Counts { passed: 3, failed: 1, skipped: 0 }));
}

#[test]
fn unfinished_line_of_test_hides_no_other_test() {
    let outcomes = outcomes("test a ... no end of line, ok\ntest b ... FAILED\n");
    let failed = Outcome::Failed(String::new());
    assert_eq!(outcomes, [("a".to_owned(), Outcome::Passed), ("b".to_owned(), failed)]);
}

#[test]
fn failed_program_summary_is_reported() {
    let output = "test a ... FAILED\n\nfailures:\n\n---- a stdout ----\nno\n\nfailures:\n    a\n\n\
        test result: FAILED. 0 passed; 1 failed; 0 ignored\n";
    let lines = watched(&[output]).0.into_iter().filter_map(|happened| match happened {
        Event::Summary(line) => Some(line),
        _ => None,
    });
    assert!(lines.collect::<Vec<_>>().contains(&"---- a stdout ----".to_owned()));
}

#[test]
fn first_panic_decides_external_failure() {
    let stopped = |panics: &[&str]| {
        let text: String = panics
            .iter()
            .map(|message| format!("thread 'a' (7) panicked at a.rs:1:1:\n{message}\n"))
            .collect();
        let outcome = Outcome::Failed(format!("printed before\n{text}"));
        let (test, tried_again) = ("a".to_owned(), vec![]);
        Ending { test, outcome, time: Duration::ZERO, tried_again }.external_cause().is_some()
    };
    let by_siw = "siw leaves bytes unread: \"rping\" did not end";
    assert!(stopped(&[by_siw]) && stopped(&[by_siw, "another"]));
    assert!(!stopped(&["another", by_siw]) && !stopped(&["not: siw leaves bytes unread: "]));
    let source = include_str!("../../../../../tests/src/process.rs");
    for (start, _) in BLOCKED_BY_DRIVER {
        assert!(stopped(&[&format!("{start}\"rping\" did not end")]), "{start}");
        assert!(source.contains(&format!("{start:?}")), "the tests should print {start:?}");
    }
}

#[test]
fn markers_match_tests() {
    let source = include_str!("../../../../../tests/src/lib.rs");
    for marker in [SKIPPED, TRIED_AGAIN] {
        assert!(source.contains(&format!("\"{marker}")), "the tests should print {marker:?}");
    }
}

#[test]
fn repeated_attempts_are_counted() {
    let mut watch = Watch::default();
    let output = "test a ... [tried again] siw was late\nok\n";
    watch.feed(output.as_bytes(), Instant::now());
    assert_eq!(watch.finish().0[0].tried_again, ["siw was late"]);
}

#[test]
fn abandoned_test_fails_with_its_output() {
    let mut watch = Watch::default();
    let start = Instant::now();
    watch.feed(b"test a ... so far\n", start);
    assert_eq!(watch.running().map(|running| running.since), Some(start));
    let ending = watch
        .fail("out of time", start + Duration::from_secs(9))
        .expect("a test should be running");
    assert_eq!(ending.outcome, Outcome::Failed("so far\nout of time".to_owned()));
    assert_eq!(ending.time, Duration::from_secs(9));
    assert_eq!(watch.fail("out of time", start), None);
}

/// Checks that the cause comes last, because the summary shows the end of the output.
#[test]
fn cause_of_failure_follows_its_details() {
    let mut watch = Watch::default();
    watch.feed(b"test a ... so far\n", Instant::now());
    let ending = watch.fail("the guest died\nits last\nlines", Instant::now());
    let outcome = ending.expect("a test should be running").outcome;
    let expected = "so far\nits last\nlines\nthe guest died";
    assert_eq!(outcome, Outcome::Failed(expected.to_owned()));
}

#[test]
fn long_output_keeps_its_end() {
    let mut watch = Watch::default();
    let line = "\u{e9}".repeat(1000);
    let output = format!("test a ... {}the end\nFAILED\n", format!("{line}\n").repeat(200));
    watch.feed(output.as_bytes(), Instant::now());
    let Outcome::Failed(text) = &watch.finish().0[0].outcome else {
        panic!("the test should fail")
    };
    assert!(text.len() < 3 * MAX_TEXT && text.ends_with("the end\n"), "{}", text.len());
}
