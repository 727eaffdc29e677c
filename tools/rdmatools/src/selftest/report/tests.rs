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
fn file_is_replaced_and_link_is_followed() {
    let directory = std::env::temp_dir().join(format!("rdmatools-report-{}", process::id()));
    fs::create_dir(&directory).expect("the directory should be new");
    let (path, link) = (directory.join("report"), directory.join("link"));
    std::os::unix::fs::symlink(&path, &link).expect("the link should be created");
    let read = || fs::read_to_string(&path).expect("the file should exist");
    replace_file(&link, "first").expect("the target of the link should be written");
    assert_eq!(read(), "first");
    let former = fs::File::open(&path).expect("the file should exist");
    replace_file(&path, "second").expect("the file should be replaced");
    assert_eq!(read(), "second");
    let kept = io::read_to_string(former).expect("the former file should be readable");
    assert_eq!(kept, "first", "the former file should be unchanged");

    // A file cannot be created beside the report.
    let beside = directory.join(format!("report.{}.new", process::id()));
    fs::create_dir(&beside).expect("the directory should be new");
    replace_file(&path, "third").expect("the file should be written");
    assert_eq!(read(), "third");
    fs::remove_dir(&beside).expect("the directory should be empty");
    let files = fs::read_dir(&directory).expect("the directory should be readable").count();
    assert_eq!(files, 2, "the replacement should leave no other file");
    fs::remove_dir_all(&directory).expect("the directory should be removable");
}
