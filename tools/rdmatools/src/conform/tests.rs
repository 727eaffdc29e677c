use super::*;

use std::collections::{BTreeMap, BTreeSet};

use super::check::Verdict;
use super::trace::{Line, Replayed};

/// Answers of Linux 6.12 on rxe, call by call, and below it the results of the checks.
const ANSWERS: &str = include_str!("../../../../tests/conform/6.12-rxe.trace");
const RESULTS: &str = include_str!("../../../../tests/conform/6.12-rxe.tap");

fn catalog() -> Vec<Check> {
    let mut catalog = ucma::checks();
    catalog.extend(uverbs::checks());
    catalog
}

fn setting(version: Version) -> Setting {
    let machine = Machine { version, driver: Driver::Rxe };
    let address = ucma::sockaddr([10, 0, 0, 1].into());
    Setting { machine, verbs: Ok("uverbs0".into()), address: Some(address) }
}

/// Returns the recorded answers by check.
fn answers() -> BTreeMap<String, Vec<Line>> {
    let (mut answers, mut lines) = (BTreeMap::new(), Vec::new());
    for line in ANSWERS.lines() {
        match (line.strip_prefix("# ").map(str::parse), line.split_once(" - ")) {
            (Some(Ok(answer)), _) => lines.push(answer),
            (None, Some((_, result))) => {
                let id = result.split([':', ' ']).next().expect("the result should have an id");
                answers.insert(id.to_owned(), std::mem::take(&mut lines));
            }
            _ => {}
        }
    }
    answers
}

fn replayed(check: &Check, answers: &BTreeMap<String, Vec<Line>>, version: Version) -> Verdict {
    let lines = answers.get(&check.id).expect("the answers should be recorded");
    check.verdict(&mut Bench::new(&mut Replayed::new(lines), &setting(version)))
}

#[test]
fn recorded_linux_6_12_conforms() {
    let (catalog, answers, version) = (catalog(), answers(), Version(6, 12));
    let mut out = Vec::new();
    let machine = setting(version).machine;
    let mut report = Report::begin(Format::Tap, &catalog, &machine, &mut out).unwrap();
    for check in &catalog {
        let verdict = replayed(check, &answers, version);
        report.add(check, &verdict, &[], &mut out).unwrap();
    }
    assert_eq!(report.end(&mut out).unwrap(), 0);
    let output = String::from_utf8(out).unwrap();
    for (output, kept) in output.lines().zip(RESULTS.lines()) {
        assert_eq!(output, kept);
    }
    assert_eq!(output.lines().count(), RESULTS.lines().count());
}

/// Checks that only the commands and the option of Linux 6.18 are reported as changed.
#[test]
fn recorded_linux_6_12_is_not_linux_6_18() {
    let answers = answers();
    for check in catalog() {
        let is_new = ["resolve_ib_service.", "write_cm_event.", "query.ib_service.", "event.user"]
            .iter()
            .any(|name| check.id["ucma.".len()..].starts_with(name));
        match replayed(&check, &answers, Version(6, 18)) {
            Verdict::Fail(why) => assert!(is_new, "{}: {why}", check.id),
            Verdict::Pass(_) if check.id.ends_with(".implemented") => {
                // The kernel checks the option last.
                assert!(!is_new || check.id.starts_with("ucma.query"), "{}", check.id);
            }
            _ => {}
        }
    }
}

#[test]
fn every_check_can_fail() {
    let (catalog, answers) = (catalog(), answers());
    let mut out = Vec::new();
    let mut record = |check: &Check| answers[&check.id].clone();
    let tally = alter(&catalog, &setting(Version(6, 12)), &mut record, &mut out).unwrap();
    let output = String::from_utf8(out).unwrap();
    let bad: Vec<&str> = output.lines().filter(|line| line.starts_with("not ok")).collect();
    assert_eq!(bad, [""; 0]);
    println!("{tally:?}");
    // These checks need behavior that Linux 6.12 or rxe lacks.
    let not_there =
        ["ucma.event.user", "uverbs.open_xrcd.handle.own", "uverbs.close_xrcd.handle.own"];
    assert_eq!((tally.failed, tally.skipped), (0, not_there.len()));
    assert_eq!(tally.checks + tally.skipped, catalog.len());
    assert!(tally.alterations > 3 * catalog.len(), "{tally:?}");
}

/// A kernel whose nodes are not accessible to this user.
struct Closed;

impl Kernel for Closed {
    fn open(&mut self, _: &str) -> Result<kernel::File, i32> {
        Err(nix::libc::EACCES)
    }

    fn descriptor(&self, _: kernel::File) -> u32 {
        unreachable!("no file should be open")
    }

    fn call(&mut self, _: kernel::File, _: &kernel::Call) -> kernel::Answer {
        unreachable!("no file should be open")
    }

    fn wait(&mut self, _: kernel::File) -> bool {
        unreachable!("no file should be open")
    }

    fn close(&mut self, _: kernel::File) {}

    fn end(&mut self) {}
}

#[test]
fn unusable_nodes_are_reported_with_reasons() {
    let nodes = ["/uverbs0", "/uverbs1"].map(str::to_owned);
    let why = "/uverbs0 cannot be opened: EACCES; /uverbs1 cannot be opened: EACCES";
    assert_eq!(first_usable(&nodes, None, &mut Closed), Err(why.to_owned()));
    assert_eq!(first_usable(&[], None, &mut Closed), Err("there is no verbs node".to_owned()));
    let setting = Setting { verbs: Err(why.to_owned()), ..setting(Version(6, 12)) };
    let catalog = uverbs::checks();
    let verdict = catalog[0].verdict(&mut Bench::new(&mut Closed, &setting));
    assert_eq!(verdict, Verdict::Skip(why.to_owned()));
}

#[test]
fn ids_are_unique_and_described() {
    let catalog = catalog();
    let ids: BTreeSet<&str> = catalog.iter().map(|check| &check.id[..]).collect();
    assert_eq!(ids.len(), catalog.len());
    for check in &catalog {
        assert!(check.id.starts_with("ucma.") || check.id.starts_with("uverbs."));
        assert!(!check.shows.is_empty() && !check.source.is_empty(), "{}", check.id);
        assert!(!check.id.contains([':', ' ']), "{}", check.id);
    }
}
