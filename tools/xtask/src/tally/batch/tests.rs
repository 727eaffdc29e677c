use super::*;
use crate::testbed::kernel::Kernel;

fn chosen(place: Place, kernel: Kernel) -> Vec<String> {
    let artifact = Artifact {
        manifest: "/Cargo.toml".to_owned(),
        target: "kernel".to_owned(),
        program: "/kernel".to_owned(),
        runner: None,
    };
    let tests = [
        "wire::cut",
        SECOND_GUEST_TEST,
        "late_removal::waits",
        "siw::reads",
        "removal::a_link",
        "an_address_of_siw",
    ];
    let guest = Guest::new(kernel);
    Batch::new(place, &artifact, &guest, &tests.map(str::to_owned))
        .map(|batch| batch.tests)
        .unwrap_or_default()
}

#[test]
fn each_test_has_its_place() {
    assert_eq!(chosen(Place::Pair, Kernel::Latest), ["wire::cut"]);
    assert_eq!(chosen(Place::RdmaCmFirst, Kernel::Latest), ["late_removal::waits"]);
    let alone = ["siw::reads", "removal::a_link", "an_address_of_siw"];
    assert_eq!(chosen(Place::OneGuest, Kernel::V6_12), alone);
}

#[test]
fn tests_of_card_run_only_there() {
    let artifact = Artifact {
        manifest: "/Cargo.toml".to_owned(),
        target: "peers".to_owned(),
        program: "/peers".to_owned(),
        runner: None,
    };
    let tests = ["journal::datagrams", "pings", "bytes::active"].map(str::to_owned);
    let on = |guest: &Guest| {
        let batch = Batch::new(Place::OneGuest, &artifact, guest, &tests);
        batch.map(|batch| batch.tests).unwrap_or_default()
    };
    let guest = Guest::new(Kernel::V6_12);
    assert_eq!(on(&guest), ["pings", "bytes::active"]);
    let card = Guest { devices: vec![Device::Mlx5], ..guest };
    assert_eq!(on(&card), ["journal::datagrams", "pings"]);
}

/// Handles `output` as that of a batch's program, and then calls `look`.
///
/// The tests have a limit of 7 s.
fn listen_to<T>(
    output: &str,
    may_rerun: bool,
    look: impl FnOnce(&BatchListener<'_, '_>) -> T,
) -> T {
    let progress = Progress::default();
    let mut run = Run::new("unit-test".to_owned(), &progress).expect("a log");
    let limit = Duration::from_secs(7);
    let (watch, last) = (Watch::default(), Instant::now());
    let mut listener = BatchListener { run: &mut run, watch, limit, last, may_rerun };
    listener
        .handle_frame(Frame::Output(output.as_bytes().to_vec()))
        .expect("the frame should be handled");
    look(&listener)
}

/// Returns the names of the failed tests.
fn failed_names<'a>(listener: &'a BatchListener<'_, '_>) -> Vec<&'a str> {
    listener.run.ended.failed.iter().map(|test| test.name.as_str()).collect()
}

#[test]
fn externally_failed_test_reruns_once() {
    let output = "test a ... ok\ntest b ... thread 'b' (1) panicked at a.rs:1:1:\n\
        siw leaves bytes unread: x\nFAILED\ntest c ... [skipped] no\nok\n\
        test d ... [tried again] late\nok\ntest e ... FAILED\n\
        test e::c_serves_c ... FAILED\n";
    listen_to(output, true, |listener| {
        assert_eq!(listener.run.to_rerun, ["b", "e::c_serves_c"]);
        assert_eq!(listener.run.ended.counts, Counts { passed: 2, failed: 1, skipped: 1 });
        assert_eq!(failed_names(listener), ["e"]);
        let c_alone = "e::c_serves_c: the C programs failed without this library";
        assert_eq!(listener.run.ended.reruns, ["b: siw blocked the program", "d: late", c_alone]);
    });
    listen_to(output, false, |listener| {
        assert!(listener.run.to_rerun.is_empty());
        let failed = failed_names(listener);
        assert_eq!(failed, ["b", "e", "e::c_serves_c"], "the second failure is counted");
        assert!(listener.run.ended.failed[0].output.ends_with("siw leaves bytes unread: x\n"));
    });
}

#[test]
fn deadline_is_that_of_running_test() {
    let deadline = |output| {
        listen_to(output, true, |listener| listener.deadline().expect("a deadline should be set"))
    };
    let due = deadline("test a ... ok\ntest b ... ");
    assert!(due.reason.starts_with("b exceeded its limit of 7 s"), "{}", due.reason);
    assert!(due.at > Instant::now(), "the limit starts with the test");
    let due = deadline("test a ... ok\ntest b ... ok\n");
    assert!(due.reason.starts_with("the program, between two tests, exceeded"), "{}", due.reason);
}

#[test]
fn last_line_must_agree_with_results() {
    let ending = |outcome| {
        let (test, tried_again) = ("a".to_owned(), Vec::new());
        Ending { test, outcome, time: Duration::ZERO, tried_again }
    };
    let endings = [
        ending(TestOutcome::Passed),
        ending(TestOutcome::Skipped("no".to_owned())),
        ending(TestOutcome::Failed(String::new())),
    ];
    let reported = |passed, failed| Some(Counts { passed, failed, skipped: 0 });
    assert!(check(&endings, reported(2, 1)).is_ok());
    assert!(check(&endings, reported(3, 0)).is_err() && check(&endings, None).is_err());
}

#[test]
fn test_of_missing_device_is_not_expected() {
    assert_eq!(chosen(Place::OneGuest, Kernel::Latest), ["removal::a_link"]);
}
