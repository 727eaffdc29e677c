//! `conform`: compares a kernel's ucma and uverbs with those of Linux, command by command.
//!
//! The catalogue is data: each [`Check`] has an id, a description, the kernel's source, and the expectation by version.
//! A check needs only the two device nodes.

mod alter;
mod bench;
mod check;
mod kernel;
mod probe;
mod report;
mod trace;
mod ucma;
mod uverbs;

use std::fs;
use std::io::Write;
use std::net::IpAddr;
use std::slice;

use clap::Args;
use nix::sys::utsname::uname;

use self::alter::{Totals, alter};
use self::bench::{Bench, RDMA_CM, Setting};
use self::check::{Check, Driver, Machine, Version};
use self::kernel::{Kernel, Outcome};
use self::probe::Real;
use self::report::{Format, Report};
use self::trace::Traced;
use crate::failure::Failure;

/// Directory of the device nodes.
const NODES: &str = "/dev/infiniband";

/// Check that the kernel keeps the ABI of rdma_cm and uverbs
#[derive(Debug, Args)]
#[command(
    after_help = "The output is TAP version 14; the exit status is 1 after a violation, and 3 if there is nothing to check."
)]
pub(crate) struct Options {
    /// Run only checks whose id contains FILTER
    #[arg(value_name = "FILTER", default_value = "")]
    filter: String,
    /// Show the catalogue: each check with its source in the kernel and its expectation
    #[arg(long)]
    list: bool,
    /// Print JSON instead of TAP
    #[arg(long, conflicts_with_all = ["alter", "trace"])]
    json: bool,
    /// Run only checks that cannot disturb other users of the machine; the default
    #[arg(long, conflicts_with = "all")]
    safe: bool,
    /// Also bind, listen and connect on the device with this address, which no other program should use
    #[arg(long, value_name = "ADDRESS")]
    all: Option<IpAddr>,
    /// Verbs node [default: the node of the device with the address, or the first one]
    #[arg(long, value_name = "NODE")]
    device: Option<String>,
    /// Expect the behavior of this Linux version [default: that of the running kernel]
    #[arg(long, value_name = "VERSION")]
    kernel: Option<Version>,
    /// Also show each answer of the kernel
    #[arg(long)]
    trace: bool,
    /// Test the checks: run each of them with every alteration of every answer of the kernel
    #[arg(long)]
    alter: bool,
}

pub(crate) fn run(options: &Options, out: &mut (dyn Write + Send)) -> Result<(), Failure> {
    let mut catalogue = ucma::checks();
    catalogue.extend(uverbs::checks());
    catalogue.retain(|check| check.id.contains(&options.filter));
    if catalogue.is_empty() {
        return Err(Failure::new(format!(
            "cannot select a check: no id contains {:?}",
            options.filter
        )));
    }
    let format = if options.json { Format::Json } else { Format::Tap };
    if options.list {
        return Ok(report::list(&catalogue, format, out)?);
    }
    let mut kernel = Real::new()
        .map_err(|errno| Failure::new(format!("cannot map memory: {}", errno.desc())))?;
    let setting = read_setting(options, &mut kernel)?;
    let mut kernel = Traced::new(&mut kernel);
    if options.alter {
        let mut record = |check: &Check| {
            check.verdict(&mut Bench::new(&mut kernel, &setting));
            kernel.take()
        };
        return match alter(&catalogue, &setting, &mut record, out)? {
            Totals { failed: 0, .. } => Ok(()),
            Totals { failed, .. } => Err(Failure::new(format!(
                "cannot detect altered answers: {failed} checks pass with some of them"
            ))),
        };
    }
    let mut report = Report::begin(format, &catalogue, &setting.machine, out)?;
    for check in &catalogue {
        let verdict = check.verdict(&mut Bench::new(&mut kernel, &setting));
        let trace = kernel.take();
        report.add(check, &verdict, if options.trace { &trace } else { &[] }, out)?;
    }
    match report.end(out)? {
        0 => Ok(()),
        violations => Err(Failure::new(format!("{violations} violations"))),
    }
}

/// Hint for a connection manager that cannot be opened.
const OPEN_HINT: &str =
    "load the kernel's RDMA modules (modprobe rdma_ucm), or add the node to the container";

/// Determines the properties of the machine.
fn read_setting(options: &Options, kernel: &mut Real) -> Result<Setting, Failure> {
    let version = options.kernel.map_or_else(running_version, Ok)?;
    kernel.open(RDMA_CM).map_err(|errno| {
        let why = Outcome::Errno(errno);
        Failure::Unavailable(format!("cannot open {RDMA_CM}: {why}; {OPEN_HINT}"))
    })?;
    kernel.end();
    let address = options.all.map(ucma::sockaddr);
    let guid = match (&address, options.all) {
        (Some(address), Some(ip)) => {
            let guid = ucma::node_guid(kernel, address);
            let none = || {
                Failure::Unavailable(format!(
                    "cannot check connections: no RDMA device has the address {ip}"
                ))
            };
            Some(guid.ok_or_else(none)?)
        }
        _ => None,
    };
    let found = match &options.device {
        Some(node) => {
            Ok(first_usable(slice::from_ref(node), None, kernel).map_err(Failure::Unavailable)?)
        }
        None => first_usable(&verbs_nodes(), guid, kernel),
    };
    let driver = found.as_ref().map_or(Driver::Other, |(_, driver)| *driver);
    let verbs = found.map(|(node, _)| node);
    Ok(Setting { machine: Machine { version, driver }, verbs, address })
}

/// Returns the verbs nodes.
fn verbs_nodes() -> Vec<String> {
    let names = fs::read_dir(NODES).into_iter().flatten().flatten();
    let names = names.filter_map(|entry| entry.file_name().into_string().ok());
    let verbs = names.filter(|name| name.starts_with("uverbs"));
    let mut nodes: Vec<_> = verbs.map(|name| format!("{NODES}/{name}")).collect();
    nodes.sort();
    nodes
}

/// Returns the first usable node and its driver, or the reasons why there is none.
///
/// If `guid` is given, the node must belong to the device with this GUID.
fn first_usable(
    nodes: &[String],
    guid: Option<u64>,
    kernel: &mut dyn Kernel,
) -> Result<(String, Driver), String> {
    let mut why = Vec::new();
    for node in nodes {
        match uverbs::identify(kernel, node) {
            Ok(identity) if guid.is_none_or(|guid| guid == identity.node_guid) => {
                return Ok((node.clone(), identity.driver));
            }
            Ok(_) => why.push(format!("{node} belongs to another device")),
            Err(reason) => why.push(reason),
        }
    }
    Err(if why.is_empty() { "there is no verbs node".to_owned() } else { why.join("; ") })
}

/// Returns the version of the running kernel.
fn running_version() -> Result<Version, Failure> {
    let name = uname().map_err(|errno| {
        Failure::new(format!("cannot read the kernel version: {}", errno.desc()))
    })?;
    let release = name.release().to_string_lossy();
    release.parse().map_err(|why: String| {
        Failure::new(format!("cannot read the kernel version: {why}; set it with --kernel"))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    use std::collections::{BTreeMap, BTreeSet};

    use super::check::Verdict;
    use super::trace::{Line, Replayed};

    /// Answers of Linux 6.12 on rxe, call by call, and below it the results of the checks.
    const ANSWERS: &str = include_str!("../../../../tests/conform/6.12-rxe.trace");
    const RESULTS: &str = include_str!("../../../../tests/conform/6.12-rxe.tap");

    fn catalogue() -> Vec<Check> {
        let mut catalogue = ucma::checks();
        catalogue.extend(uverbs::checks());
        catalogue
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
        let (catalogue, answers, version) = (catalogue(), answers(), Version(6, 12));
        let mut out = Vec::new();
        let machine = setting(version).machine;
        let mut report = Report::begin(Format::Tap, &catalogue, &machine, &mut out).unwrap();
        for check in &catalogue {
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
        for check in catalogue() {
            let is_new =
                ["resolve_ib_service.", "write_cm_event.", "query.ib_service.", "event.user"]
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
        let (catalogue, answers) = (catalogue(), answers());
        let mut out = Vec::new();
        let mut record = |check: &Check| answers[&check.id].clone();
        let tally = alter(&catalogue, &setting(Version(6, 12)), &mut record, &mut out).unwrap();
        let output = String::from_utf8(out).unwrap();
        let bad: Vec<&str> = output.lines().filter(|line| line.starts_with("not ok")).collect();
        assert_eq!(bad, [""; 0]);
        println!("{tally:?}");
        // Checks of behavior that Linux 6.12 lacks.
        let not_there = ["ucma.event.user"];
        assert_eq!((tally.failed, tally.skipped), (0, not_there.len()));
        assert_eq!(tally.checks + tally.skipped, catalogue.len());
        assert!(tally.alterations > 3 * catalogue.len(), "{tally:?}");
    }

    /// A kernel whose nodes are not accessible to this user.
    struct Closed;

    impl Kernel for Closed {
        fn open(&mut self, _: &str) -> Result<kernel::File, i32> {
            Err(nix::libc::EACCES)
        }

        fn descriptor(&self, _: kernel::File) -> u32 {
            unreachable!("nothing is open")
        }

        fn call(&mut self, _: kernel::File, _: &kernel::Call) -> kernel::Answer {
            unreachable!("nothing is open")
        }

        fn wait(&mut self, _: kernel::File) -> bool {
            unreachable!("nothing is open")
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
        let catalogue = uverbs::checks();
        let verdict = catalogue[0].verdict(&mut Bench::new(&mut Closed, &setting));
        assert_eq!(verdict, Verdict::Skip(why.to_owned()));
    }

    #[test]
    fn ids_are_unique_and_described() {
        let catalogue = catalogue();
        let ids: BTreeSet<&str> = catalogue.iter().map(|check| &check.id[..]).collect();
        assert_eq!(ids.len(), catalogue.len());
        for check in &catalogue {
            assert!(check.id.starts_with("ucma.") || check.id.starts_with("uverbs."));
            assert!(!check.shows.is_empty() && !check.source.is_empty(), "{}", check.id);
            assert!(!check.id.contains([':', ' ']), "{}", check.id);
        }
    }
}
