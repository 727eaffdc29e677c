//! `cargo xtask test`: every test of the project, with the test bed that some of them need.

use std::io::{self, Read, Write};
use std::iter;
use std::process::{Command, ExitCode, Output, Stdio};
use std::sync::{Mutex, PoisonError, mpsc};
use std::thread;
use std::time::Duration;

use guest::error::{Context, Error, Result};

use crate::batch::{self, Batch, Ended, Place, TOOLS};
use crate::host::{self, progress};
use crate::kernel::Kernel;
use crate::libtest::{self, Artifact, Counts, Tally};
use crate::vm::{self, Guest};
use crate::{fuzz, loom, packages, soak};

/// The step that lets connections be made and broken at random, by its name, and how long it does.
const SOAK: &str = "soak";
const SOAK_TIME: Duration = Duration::from_secs(60);

/// The target whose tests need no guest.
const HEADERS: &str = "headers";

/// What the tests run besides the project's own programs: the C peers, the C compiler, tools.
const PACKAGES: [&str; 9] = [
    "gcc",
    "ibverbs-providers",
    "ibverbs-utils",
    "iproute2",
    "libc6-dev",
    "librdmacm-dev",
    "perftest",
    "rdmacm-utils",
    "strace",
];

/// Which tests to run.
#[derive(Clone, Debug)]
pub(crate) struct Selection {
    pub(crate) kernels: Vec<Kernel>,
    /// Only tests whose name contains this.
    pub(crate) filter: Option<String>,
    /// The wall-clock limit of one test program in one guest.
    pub(crate) limit: Duration,
}

impl Selection {
    pub(crate) fn chooses(&self, test: &str) -> bool {
        self.filter.as_deref().is_none_or(|filter| test.contains(filter))
    }
}

/// What has run so far.
#[derive(Debug, Default)]
pub(crate) struct Tests {
    counts: Counts,
    /// What went wrong besides failed tests; each counts as one.
    troubles: Vec<String>,
}

impl Tests {
    /// Counts a step that is a test as a whole.
    pub(crate) fn step(&mut self, name: &str, result: Result<()>) {
        match result {
            Ok(()) => self.counts.passed += 1,
            Err(error) => self.trouble(&format!("{name}: {error}")),
        }
    }

    /// Says now what went wrong, and again at the end: much output may lie between.
    fn trouble(&mut self, text: &str) {
        progress(text);
        self.counts.failed += 1;
        self.troubles.push(text.to_owned());
    }

    /// Takes note of what keeps everything else from running.
    pub(crate) fn stop(&mut self, error: &Error) {
        self.counts.failed += 1;
        self.troubles.push(error.to_string());
    }

    /// Says how it went: `N passed, N failed` is the last line.
    pub(crate) fn finish(mut self) -> ExitCode {
        if self.counts == Counts::default() {
            self.trouble("no test ran");
        }
        if !self.troubles.is_empty() {
            eprintln!("\nxtask: what went wrong, besides failed tests:");
        }
        for trouble in &self.troubles {
            eprintln!("xtask: {trouble}");
        }
        let Counts { passed, failed } = self.counts;
        match writeln!(io::stdout(), "{passed} passed, {failed} failed") {
            Ok(()) if failed == 0 => ExitCode::SUCCESS,
            _ => ExitCode::FAILURE,
        }
    }
}

/// Runs the tests.
pub(crate) fn run(selection: &Selection) -> ExitCode {
    let mut tests = Tests::default();
    add(selection, &mut tests);
    tests.finish()
}

/// Runs the tests and adds them to `tests`.
pub(crate) fn add(selection: &Selection, tests: &mut Tests) {
    let guests: Vec<Guest> = selection
        .kernels
        .iter()
        .map(|kernel| Guest { limit: selection.limit, ..Guest::new(*kernel) })
        .collect();
    let ready = require_packages().and_then(|()| set_up(guests, tests));
    let (guests, artifacts) = match ready.and_then(|guests| Ok((guests, build()?))) {
        Ok(ready) => ready,
        Err(error) => return tests.stop(&error),
    };
    let (mut headers, mut batches) = (None, Vec::new());
    for artifact in &artifacts {
        let all = match listed(artifact) {
            Ok(all) => all.into_iter().filter(|test| selection.chooses(test)).collect::<Vec<_>>(),
            Err(error) => {
                tests.trouble(&format!("{}: {error}", artifact.target));
                continue;
            }
        };
        if artifact.target == HEADERS {
            headers = Some((artifact, all)).filter(|(_, tests)| !tests.is_empty());
            continue;
        }
        for guest in &guests {
            let batch = |place| Batch::new(place, artifact, guest, &all);
            batches.extend(Place::ALL.into_iter().filter_map(batch));
        }
    }
    // They wait about as much as they work, those of two guests most of the time: one after the other of these, and as many
    // of the others at once as there are processors, beside what runs here.
    let (pairs, others): (Vec<_>, Vec<_>) = batches.iter().partition(|batch| batch.is_of_two());
    let (says, hears) = mpsc::channel();
    let queues = [(1, pairs), (host::processors().get(), others)]
        .map(|(at_once, batches)| (at_once, Mutex::new(batches.into_iter())));
    thread::scope(|scope| {
        let workers = queues.iter().flat_map(|(at_once, queue)| iter::repeat_n(queue, *at_once));
        for queue in workers {
            let says = says.clone();
            scope.spawn(move || {
                let next = || queue.lock().unwrap_or_else(PoisonError::into_inner).next();
                while let Some(batch) = next() {
                    progress(&format!("{}: {} tests begin", batch.name(), batch.count()));
                    let mut output = Vec::new();
                    let ended = batch.run(|frame| vm::keep(frame, &mut output));
                    // Heard until all of these have ended.
                    let _ = says.send((batch, ended, output));
                }
            });
        }
        drop(says);
        on_host(selection, tests);
        loom::add(selection, tests);
        fuzz::add(selection, tests);
        if let Some((artifact, listed)) = headers {
            on_headers(artifact, &listed, &guests, tests);
        }
        for (batch, ended, output) in hears {
            progress(&format!("== {}", batch.name()));
            let shown = io::stdout().write_all(&output).context("show the output");
            tests.add_program(&batch.name(), Some(batch.count()), shown.and(ended));
        }
    });
    let has_devices = |guest: &&Guest| guest.kernel == Kernel::V6_12;
    if let Some(guest) = guests.iter().find(has_devices).filter(|_| selection.chooses(SOAK)) {
        progress(&format!("== {SOAK} on Linux {}", guest.kernel.name()));
        let passed = soak::run(SOAK_TIME, guest.kernel).and_then(|status| match status {
            ExitCode::SUCCESS => Ok(()),
            _ => Err(Error::new("it failed")),
        });
        tests.step(SOAK, passed);
    }
}

/// Makes sure that the packages are installed which the tests need.
pub(crate) fn require_packages() -> Result<()> {
    let mut wanted = [&PACKAGES[..], &fuzz::PACKAGES].concat();
    wanted.extend(Guest::packages());
    wanted.sort_unstable();
    wanted.dedup();
    packages::require(&wanted)
}

/// Gets everything that the guests and the tests in them need; returns the guests whose kernel could be had.
fn set_up(guests: Vec<Guest>, tests: &mut Tests) -> Result<Vec<Guest>> {
    let results: Vec<Result<()>> = thread::scope(|scope| {
        let fetch = |guest: &Guest| guest.fetch().and_then(|()| guest.kernel.headers().map(drop));
        let kernels: Vec<_> =
            guests.iter().map(|guest| scope.spawn(move || fetch(guest))).collect();
        let panicked = |_| Err(Error::new("its preparation panicked"));
        kernels.into_iter().map(|kernel| kernel.join().unwrap_or_else(panicked)).collect()
    });
    let mut ready = Vec::new();
    for (guest, result) in guests.into_iter().zip(results) {
        match result {
            Ok(()) => ready.push(guest),
            Err(error) => tests.trouble(&format!(
                "Linux {0} cannot be had, and nothing runs on it: {error}\n--kernel NAME runs the tests of one kernel",
                guest.kernel.name()
            )),
        }
    }
    Ok(ready)
}

/// Builds every test; returns the programs of the package that needs the bed.
fn build() -> Result<Vec<Artifact>> {
    progress("building the tests");
    let mut cargo = host::cargo();
    cargo.args(["test", "--workspace", "--all-features", "--no-run"]);
    cargo.arg("--message-format=json-render-diagnostics").stderr(Stdio::inherit());
    let Output { status, stdout: messages, .. } = cargo.output().context("build the tests")?;
    if !status.success() {
        return Err(Error::new("cannot build the tests: cargo says why above"));
    }
    build_tools()?;
    let manifest = batch::directory().join("Cargo.toml");
    let manifest = manifest
        .to_str()
        .ok_or_else(|| Error::new(format!("the path {} is not valid UTF-8", manifest.display())))?;
    Ok(libtest::integration_tests(&String::from_utf8_lossy(&messages), manifest))
}

/// Builds the program that the tests run besides the C ones.
pub(crate) fn build_tools() -> Result<()> {
    let mut cargo = host::cargo();
    cargo.args(["build", "--quiet", "--workspace", "--bin", TOOLS]);
    host::run(&mut cargo, "build the tools that the tests run")
}

/// Runs what needs no bed.
fn on_host(selection: &Selection, tests: &mut Tests) {
    progress("== host: cargo test --workspace --all-features");
    let mut cargo = host::cargo();
    cargo.args(["test", "--workspace", "--all-features", "--no-fail-fast", "--"]);
    cargo.args(&selection.filter);
    let result = counted(&mut cargo);
    tests.add_program("host", None, result);
}

/// Runs the tests that compare with the kernels' headers.
fn on_headers(artifact: &Artifact, listed: &[String], guests: &[Guest], tests: &mut Tests) {
    progress("== headers");
    let result = uapi_headers(guests).and_then(|headers| {
        let mut program = Command::new(&artifact.program);
        program.args(batch::arguments(listed)).current_dir(batch::directory());
        counted(program.env("RDMACM_UAPI_HEADERS", headers))
    });
    tests.add_program(HEADERS, Some(listed.len()), result);
}

/// The ignored tests of a program.
pub(crate) fn listed(artifact: &Artifact) -> Result<Vec<String>> {
    let mut program = Command::new(&artifact.program);
    program.args(["--ignored", "--list", "--format", "terse"]).stdin(Stdio::null());
    let list = host::output(&mut program, "list the tests")?;
    Ok(libtest::listed(&String::from_utf8_lossy(&list)))
}

impl Tests {
    /// Adds a program's tests. Each way in which it was not what it should have been is a trouble.
    pub(crate) fn add_program(&mut self, name: &str, listed: Option<usize>, ended: Result<Ended>) {
        let Ended { counts, success, complaints } = match ended {
            Ok(ended) => ended,
            Err(error) => return self.trouble(&format!("{name}: {error}")),
        };
        self.counts.add(counts);
        let Counts { passed, failed } = counts;
        progress(&format!("{name}: {passed} passed, {failed} failed"));
        if let Some(listed) = listed.filter(|listed| *listed as u64 != passed + failed) {
            self.trouble(&format!(
                "{name}: {listed} tests should have run, {} did",
                passed + failed
            ));
        }
        if success != (failed == 0) {
            let ending = if success { "was content" } else { "failed" };
            self.trouble(&format!("{name}: the program {ending} with {failed} failed tests"));
        }
        if !complaints.is_empty() {
            self.trouble(&format!("{name}: the kernel complained:\n{}", complaints.join("\n")));
        }
    }
}

/// `6.1=DIRECTORY:6.12=DIRECTORY`.
fn uapi_headers(guests: &[Guest]) -> Result<String> {
    let kernels = guests.iter().map(|guest| {
        let version = guest.kernel.image()?.version;
        Ok(format!("{version}={}", guest.kernel.headers()?.display()))
    });
    Ok(kernels.collect::<Result<Vec<_>>>()?.join(":"))
}

/// Runs a program of the host, passes its output on and counts the tests in it.
pub(crate) fn counted(command: &mut Command) -> Result<Ended> {
    let name = command.get_program().to_string_lossy().into_owned();
    let doing = || format!("run {name}");
    let spawned = command.stdin(Stdio::null()).stdout(Stdio::piped()).spawn();
    let mut child = spawned.with_context(doing)?;
    let mut output = child.stdout.take().expect("standard output is a pipe");
    let mut tally = Tally::default();
    let mut buffer = [0; 8192];
    loop {
        let count = output.read(&mut buffer).with_context(doing)?;
        if count == 0 {
            break;
        }
        tally.feed(&buffer[..count]);
        io::stdout().write_all(&buffer[..count]).context("pass the output on")?;
    }
    let success = child.wait().with_context(doing)?.success();
    Ok(Ended { counts: tally.counts(), success, complaints: Vec::new() })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What is counted of a program that listed `listed` tests and ended so, and how many troubles there are.
    fn added(listed: Option<usize>, ended: Result<Ended>) -> (u64, u64, usize) {
        let mut tests = Tests::default();
        tests.add_program("it", listed, ended);
        (tests.counts.passed, tests.counts.failed, tests.troubles.len())
    }

    fn ended(passed: u64, failed: u64, success: bool) -> Result<Ended> {
        Ok(Ended { counts: Counts { passed, failed }, success, complaints: Vec::new() })
    }

    #[test]
    fn a_program_that_did_what_it_should_is_no_trouble() {
        assert_eq!(added(Some(3), ended(3, 0, true)), (3, 0, 0));
        assert_eq!(added(Some(3), ended(2, 1, false)), (2, 1, 0));
        assert_eq!(added(None, ended(5, 0, true)), (5, 0, 0));
    }

    #[test]
    fn each_way_of_passing_by_accident_is_a_failure() {
        assert_eq!(added(Some(3), ended(2, 0, true)), (2, 1, 1), "a test did not run");
        assert_eq!(added(Some(0), ended(1, 0, true)), (1, 1, 1), "a test too many");
        assert_eq!(added(Some(3), ended(3, 0, false)), (3, 1, 1), "the program failed");
        assert_eq!(added(Some(3), ended(2, 1, true)), (2, 2, 1), "it was content with a failure");
        assert_eq!(added(Some(3), ended(0, 0, false)), (0, 2, 2), "it ended before any test");
        assert_eq!(added(Some(3), Err(Error::new("no report"))), (0, 1, 1));
        let complaints = vec!["WARNING: at".to_owned()];
        let counts = Counts { passed: 3, failed: 0 };
        let complained = Ok(Ended { counts, success: true, complaints });
        assert_eq!(added(Some(3), complained), (3, 1, 1), "the kernel complained");
    }
}
