use std::time::Duration;

use super::*;

fn ending(outcome: Outcome) -> Ending {
    let time = Duration::from_millis(1250);
    Ending { test: "a::b".to_owned(), outcome, time, tried_again: vec![] }
}

#[test]
fn result_is_single_numbered_line() {
    let line = |outcome| result_text("kernel on Linux 6.1", &ending(outcome), 3, 70);
    assert_eq!(line(Outcome::Passed), "[3/70] kernel on Linux 6.1: a::b ... ok (1.2 s)\n");
    let skipped = line(Outcome::Skipped("it has no XRC".to_owned()));
    assert!(skipped.ends_with("a::b ... skipped (1.2 s): it has no XRC\n"), "{skipped}");
    let failed = line(Outcome::Failed("one\ntwo\n".to_owned()));
    assert!(failed.ends_with("a::b ... FAILED (1.2 s)\n    one\n    two\n"), "{failed}");
}

#[test]
fn repeated_attempt_is_shown() {
    let tried_again = vec!["siw was late".to_owned()];
    let line = result_text("x", &Ending { tried_again, ..ending(Outcome::Passed) }, 1, 1);
    assert!(line.ends_with("ok (1.2 s), tried again: siw was late\n"), "{line}");
}

#[test]
fn running_tests_are_shown_with_duration() {
    let progress = Progress::default();
    progress.expect(2);
    progress.begin("one", "a");
    progress.begin("two", "b");
    progress.begin("one", "c");
    progress.leave("two");
    let state = progress.state();
    let text = running_text(&state, Instant::now() + Duration::from_secs(40));
    assert!(text.starts_with("0 of 2 tests have ended; running: one: c (4"), "{text}");
    assert!(!text.contains("two"), "{text}");
}
