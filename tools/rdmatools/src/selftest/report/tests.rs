use rdmacm::endpoint::RemoteMemory;

use super::*;

/// Returns the result of a check that ends with `problem`, if it begins before `end`.
fn result(end: Instant, problem: Problem) -> (&'static str, String) {
    let mut result = None;
    let mut record = |check: Check| {
        result = Some((check.outcome.word(), check.outcome.detail().to_owned()));
    };
    Checks::new(end, &mut record).optional("a", || Err(problem));
    result.expect("the check should be recorded")
}

fn later() -> Instant {
    Instant::now() + std::time::Duration::from_secs(3600)
}

#[test]
fn only_missing_features_are_skipped() {
    for kind in
        [ErrorKind::Unsupported("XRC".into()), ErrorKind::Os(nix::errno::Errno::EOPNOTSUPP as i32)]
    {
        assert!(is_missing(&kind), "{kind:?}");
    }
    assert!(!is_missing(&ErrorKind::TimedOut));
    let missing = result(later(), Problem::Missing("no atomics".into()));
    assert_eq!(missing, ("skipped", "no atomics".to_owned()));
    assert_eq!(result(later(), Problem::Wrong("3 and not 4".into())).0, "FAILED");
    let error = RemoteMemory::from_bytes(b"short").unwrap_err();
    assert_eq!(result(later(), error.into()).0, "FAILED");
}

#[test]
fn check_fails_after_time_limit() {
    let (word, detail) = result(Instant::now(), Problem::Missing("not reached".into()));
    assert_eq!(
        (word, &detail[..]),
        ("FAILED", "not run: the time limit has passed; raise --timeout")
    );
}

#[test]
fn report_lists_checks() {
    let outcome = Outcome::Passed("seen".into());
    let listed = listed(&[Check { name: "a check", outcome, milliseconds: 0 }]);
    assert_eq!(listed[0]["check"], "a check");
    assert_eq!((&listed[0]["result"], &listed[0]["detail"]), (&json!("ok"), &json!("seen")));
}

#[test]
fn failed_replacement_keeps_file() {
    let directory = std::env::temp_dir().join(format!("rdmatools-report-{}", std::process::id()));
    fs::create_dir(&directory).expect("the directory should be new");
    let (path, link) = (directory.join("report"), directory.join("link"));
    std::os::unix::fs::symlink(&path, &link).expect("the link should be created");
    replace_file(&path, "first").expect("the file should be written");
    replace_file(&link, "second").expect("the file should be replaced");
    let read = || fs::read_to_string(&path).expect("the file should exist");
    assert_eq!(read(), "second");
    assert!(link.is_symlink());

    // The new contents cannot be written beside the file.
    fs::create_dir(directory.join("report.new")).expect("the directory should be new");
    replace_file(&path, "third").expect_err("the replacement should fail");
    assert_eq!(read(), "second");
    fs::remove_dir_all(&directory).expect("the directory should be removable");
}
