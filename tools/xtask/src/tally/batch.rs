//! Batches: tests of one program that run together in one guest, or in a pair of guests.

use std::ffi::OsString;
use std::fs::{self, File};
use std::io::{self, Write};
use std::path::PathBuf;
use std::sync::mpsc::Sender;
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use guest::plan::Device;
use guest::report::{Frame, Status};
use tool_error::{Context, Error, Result};

use crate::host;
use crate::tally::card;
use crate::tally::libtest::{Artifact, Counts};
use crate::tally::progress::Progress;
use crate::tally::watch::{Ending, Event, Outcome as TestOutcome, Watch};
use crate::tally::{FailedTest, ProgramResult};
use crate::testbed::guest_pair;
use crate::testbed::machine::{self, Deadline, FrameListener, Outcome};
use crate::testbed::vm::Guest;

/// Batches that have not started, for the threads that run them.
pub(crate) struct Queue<'a>(Mutex<std::vec::IntoIter<&'a Batch<'a>>>);

impl<'a> Queue<'a> {
    pub(crate) fn new(batches: Vec<&'a Batch<'a>>) -> Self {
        Self(Mutex::new(batches.into_iter()))
    }

    fn next(&self) -> Option<&'a Batch<'a>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).next()
    }

    /// Runs batches, one after the other, until none is left. Sends each one with its result.
    pub(crate) fn run(
        &self,
        progress: &Progress,
        results: &Sender<(&'a Batch<'a>, Result<ProgramResult>)>,
    ) {
        while let Some(batch) = self.next() {
            host::progress(&format!("{}: starting {} tests", batch.name(), batch.count()));
            // The receiver exists until all threads have ended.
            let _ = results.send((batch, batch.run(progress)));
        }
    }
}

/// Number of times a batch continues in another guest after an unrelated guest failure.
const MAX_GUEST_FAILURES: u32 = 2;

/// Package whose ignored tests need the test bed.
const PACKAGE: &str = "tests";

/// Program that the interoperability tests run against the C programs.
pub(crate) const TOOLS: &str = "rdmatools";

/// The kind of guest that a test runs in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Place {
    /// A single guest.
    OneGuest,
    /// A single guest whose kernel notifies rdma_cm last of a device's removal.
    ///
    /// The tests have the prefix `RDMA_CM_FIRST_PREFIX`.
    RdmaCmFirst,
    /// The first of two connected guests, for tests with the prefix `PAIR_PREFIX`.
    Pair,
}

impl Place {
    pub(crate) const ALL: [Self; 3] = [Self::Pair, Self::RdmaCmFirst, Self::OneGuest];
}

const RDMA_CM_FIRST_PREFIX: &str = "late_removal::";
const PAIR_PREFIX: &str = "wire::";
/// Test that runs in the second guest of a pair; it is a part of the other tests, not a test itself.
const SECOND_GUEST_TEST: &str = "wire::remote_guest::serve";

/// Tests that run together.
#[derive(Debug)]
pub(crate) struct Batch<'a> {
    place: Place,
    artifact: &'a Artifact,
    guest: &'a Guest,
    tests: Vec<String>,
    /// Variable of the program's environment, with its value.
    setting: Option<(&'static str, &'static str)>,
    /// Path of the program `rdmatools` that the tests run.
    tools: PathBuf,
}

impl<'a> Batch<'a> {
    /// Creates a batch of the `tests` that belong to this place and guest.
    ///
    /// Returns `None` if there are none.
    pub(crate) fn new(
        place: Place,
        artifact: &'a Artifact,
        guest: &'a Guest,
        tests: &[String],
    ) -> Option<Self> {
        let belongs = |test: &&String| {
            place_of(test) == Some(place)
                && needed_devices(test).all(|d| guest.devices.contains(&d))
                && match guest.has_card() {
                    true => place != Place::Pair && card::has(&artifact.target, test),
                    false => !card::is_alone_for(test),
                }
        };
        let tests: Vec<String> = tests.iter().filter(belongs).cloned().collect();
        let tools = host::build_directory().join("debug").join(TOOLS);
        (!tests.is_empty()).then_some(Self { place, artifact, guest, tests, setting: None, tools })
    }

    /// Adds a variable to the program's environment.
    pub(crate) fn with(self, name: &'static str, value: &'static str) -> Self {
        Self { setting: Some((name, value)), ..self }
    }

    /// Lets the tests run another `rdmatools`.
    pub(crate) fn with_tools(self, tools: PathBuf) -> Self {
        Self { tools, ..self }
    }

    pub(crate) fn name(&self) -> String {
        let (before, after) = match self.place {
            Place::OneGuest => ("", ""),
            Place::RdmaCmFirst => ("", ", rdma_cm loaded first"),
            Place::Pair => ("two guests with ", ""),
        };
        let device = if self.guest.has_card() { " with mlx5_0" } else { "" };
        let (program, kernel) = (&self.artifact.target, self.guest.kernel.name());
        format!("{program} on {before}Linux {kernel}{device}{after}")
    }

    /// Returns `true` if the tests run in a pair of guests.
    pub(crate) fn needs_two_guests(&self) -> bool {
        self.place == Place::Pair
    }

    pub(crate) fn count(&self) -> usize {
        self.tests.len()
    }

    /// Runs the tests.
    ///
    /// If a test does not end in time, or the guest ends during a test, another guest runs the remaining tests. A test
    /// runs a second time if its guest's kernel failed for a reason unrelated to the test, or if the failure was caused
    /// by siw or the C programs.
    pub(crate) fn run(&self, progress: &Progress) -> Result<ProgramResult> {
        let mut run = Run::new(self.name(), progress)?;
        let result = run.run_all(self, self.tests.clone(), true).and_then(|()| {
            let to_rerun = std::mem::take(&mut run.to_rerun);
            if to_rerun.is_empty() { Ok(()) } else { run.run_all(self, to_rerun, false) }
        });
        progress.leave(&run.name);
        let Run { mut ended, log, .. } = run;
        result.map_err(|error| Error::new(format!("{error}\nlog: {}", log.path.display())))?;
        ended.log = Some(log.path);
        Ok(ended)
    }

    /// Runs `tests` in one guest, with output for [`Watch`]: a panic message appears within its test.
    fn run_once(&self, tests: &[String], listener: &mut dyn FrameListener) -> Result<Outcome> {
        let command = self.command(tests);
        let rdma_cm_first = self.place == Place::RdmaCmFirst;
        let guest = Guest { rdma_cm_first, joins_output: true, ..self.guest() };
        match self.place {
            Place::OneGuest | Place::RdmaCmFirst => guest.run(&directory(), &command, listener),
            Place::Pair => {
                // A panic of the far guest's threads is a complaint.
                let far = self.command(&[SECOND_GUEST_TEST.to_owned()]);
                let guests = [guest, self.guest()];
                guest_pair::run(&guests, &directory(), &command, &far, listener)
            }
        }
    }

    /// Returns the guest with the environment of the tests: the path of `rdmatools` in `RDMACM_TEST_RDMATOOLS`, and the
    /// batch's own variable.
    fn guest(&self) -> Guest {
        let mut environment = vec![("RDMACM_TEST_RDMATOOLS", self.tools.clone().into_os_string())];
        environment.extend(self.setting.map(|(name, value)| (name, OsString::from(value))));
        Guest { environment, ..self.guest.clone() }
    }

    /// Returns the command line that runs `tests` and prints their output.
    fn command(&self, tests: &[String]) -> Vec<OsString> {
        let mut command = vec![OsString::from(&self.artifact.program)];
        command.extend(arguments(tests).chain(["--nocapture"]).map(OsString::from));
        command
    }
}

/// The log file of a batch, with everything that its guests print.
#[derive(Debug)]
struct Log {
    path: PathBuf,
    file: File,
}

impl Log {
    fn create(name: &str) -> Result<Self> {
        let name = name.replace(", ", " ").replace(' ', "-");
        let path = host::build_directory().join(format!("test-logs/{name}.log"));
        let directory = path.parent().expect("the path should have a parent");
        let file = fs::create_dir_all(directory).and_then(|()| File::create(&path));
        let file = file.with_context(|| format!("create {}", path.display()))?;
        Ok(Self { path, file })
    }
}

/// A running batch.
struct Run<'a> {
    name: String,
    progress: &'a Progress,
    log: Log,
    ended: ProgramResult,
    /// Tests that failed for a reason outside this project and run a second time.
    to_rerun: Vec<String>,
}

impl<'a> Run<'a> {
    fn new(name: String, progress: &'a Progress) -> Result<Self> {
        let log = Log::create(&name)?;
        let ended = ProgramResult { success: true, ..ProgramResult::default() };
        Ok(Self { name, progress, log, ended, to_rerun: Vec::new() })
    }

    /// Runs `tests`, in several guests if necessary.
    ///
    /// If `may_rerun` is set, a test that fails for a reason outside this project is added to `to_rerun` and not
    /// counted.
    fn run_all(
        &mut self,
        batch: &Batch<'_>,
        mut tests: Vec<String>,
        may_rerun: bool,
    ) -> Result<()> {
        let mut faults = 0;
        while !tests.is_empty() {
            self.progress.begin(&self.name, "booting");
            let limit = batch.guest.limit;
            let (watch, last) = (Watch::default(), Instant::now());
            let mut listener = BatchListener { run: self, watch, limit, last, may_rerun };
            let outcome = batch.run_once(&tests, &mut listener);
            if let Ok(outcome) = &outcome {
                listener.run.ended.known_warnings.extend(outcome.known_warning.clone());
            }
            let mut watch = listener.watch;
            let during = watch.running().map(|running| running.test.clone());
            let is_over = match (outcome, during) {
                (Ok(Outcome { status: Status::Exited(_), complaints, .. }), None) => {
                    self.ended.complaints.extend(complaints);
                    true
                }
                (Ok(Outcome { status, complaints, .. }), Some(_)) => {
                    self.ended.complaints.extend(complaints);
                    self.fail_running_test(
                        &mut watch,
                        &format!("the test program ended: {status:?}"),
                    );
                    false
                }
                (Ok(Outcome { status, .. }), None) => {
                    return Err(Error::new(format!(
                        "cannot run the tests: the test program ended: {status:?}"
                    )));
                }
                (Err(error), during)
                    if machine::is_guest_failure(&error) && faults < MAX_GUEST_FAILURES =>
                {
                    faults += 1;
                    let during = during.as_deref().unwrap_or("between tests");
                    let text = error.to_string();
                    let first_line = text.lines().next().unwrap_or_default();
                    self.ended.reruns.push(format!("{during}: {first_line}"));
                    false
                }
                (Err(error), Some(_)) => {
                    self.fail_running_test(&mut watch, &error.to_string());
                    false
                }
                (Err(error), None) => return Err(error),
            };
            let (endings, counts) = watch.finish();
            tests.retain(|test| endings.iter().all(|ending| ending.test != *test));
            if is_over {
                check(&endings, counts)?;
                if !tests.is_empty() {
                    return Err(Error::new(format!(
                        "cannot run all tests: the guest ended before {}",
                        tests.join(" ")
                    )));
                }
            }
        }
        self.ended.success = self.ended.counts.failed == 0;
        Ok(())
    }

    /// Counts the running test as failed for `reason`.
    fn fail_running_test(&mut self, watch: &mut Watch, reason: &str) {
        if let Some(ending) = watch.fail(reason, Instant::now()) {
            self.count(&ending, false);
        }
    }

    /// Counts and shows the result of a test.
    ///
    /// If `may_rerun` is set, a test that failed for a reason outside this project is added to `to_rerun` instead.
    fn count(&mut self, ending: &Ending, may_rerun: bool) {
        let Ending { test, outcome, tried_again, .. } = ending;
        self.progress.end(&self.name, ending);
        let again = tried_again.iter().map(|why| format!("{test}: {why}"));
        self.ended.reruns.extend(again);
        let counts = &mut self.ended.counts;
        match outcome {
            TestOutcome::Passed => counts.passed += 1,
            TestOutcome::Skipped(_) => counts.skipped += 1,
            TestOutcome::Failed(output) => match ending.external_cause() {
                Some(fault) if may_rerun => {
                    self.ended.reruns.push(format!("{test}: {fault}"));
                    self.to_rerun.push(test.clone());
                    self.progress.expect(1);
                }
                _ => {
                    counts.failed += 1;
                    let (name, output) = (test.clone(), output.clone());
                    self.ended.failed.push(FailedTest { name, output });
                }
            },
        }
    }
}

/// Handles the reports of a guest of the batch.
struct BatchListener<'a, 'b> {
    run: &'a mut Run<'b>,
    watch: Watch,
    /// Time limit of a test, and of silence between tests.
    limit: Duration,
    /// Time of the last report of the guest.
    last: Instant,
    may_rerun: bool,
}

impl FrameListener for BatchListener<'_, '_> {
    fn handle_frame(&mut self, frame: Frame) -> io::Result<()> {
        self.last = Instant::now();
        let bytes = match frame {
            Frame::Output(bytes) | Frame::Error(bytes) => bytes,
            Frame::Ready { .. } => {
                self.run.progress.begin(&self.run.name, "starting the program");
                return Ok(());
            }
            _ => return Ok(()),
        };
        self.run.log.file.write_all(&bytes)?;
        for happened in self.watch.feed(&bytes, Instant::now()) {
            match happened {
                Event::Began(test) => self.run.progress.begin(&self.run.name, &test),
                Event::ProgramResult(ending) => self.run.count(&ending, self.may_rerun),
                // The summary names the failed tests, whose text was already printed.
                Event::Summary(_) => {}
            }
        }
        Ok(())
    }

    /// Returns the deadline of the running test: each test has its own limit.
    fn deadline(&self) -> Option<Deadline> {
        let (what, since) = match self.watch.running() {
            Some(running) => (running.test.as_str(), running.since),
            None => ("the program, between two tests,", self.last),
        };
        let seconds = self.limit.as_secs();
        let reason = format!("{what} exceeded its limit of {seconds} s; raise it with --timeout");
        Some(Deadline { at: since + self.limit, reason })
    }
}

/// Compares the counted results with the program's last line, which counts skipped tests as passed.
fn check(endings: &[Ending], reported: Option<Counts>) -> Result<()> {
    let failed = endings.iter().filter(|ending| matches!(ending.outcome, TestOutcome::Failed(_)));
    let failed = failed.count() as u64;
    let counted = Counts { passed: endings.len() as u64 - failed, failed, skipped: 0 };
    if reported == Some(counted) {
        return Ok(());
    }
    Err(Error::new(format!(
        "cannot count the tests: the program reports {reported:?}, its lines contain {counted:?}"
    )))
}

/// Returns the directory of the package, in which its tests run.
pub(crate) fn directory() -> PathBuf {
    host::workspace().join(PACKAGE)
}

/// Returns the arguments that make a program run these ignored tests.
pub(crate) fn arguments(tests: &[String]) -> impl Iterator<Item = &str> {
    let options = ["--ignored", "--test-threads=1", "--exact"];
    options.into_iter().chain(tests.iter().map(String::as_str))
}

fn place_of(test: &str) -> Option<Place> {
    match test {
        SECOND_GUEST_TEST => None,
        test if test.starts_with(PAIR_PREFIX) => Some(Place::Pair),
        test if test.starts_with(RDMA_CM_FIRST_PREFIX) => Some(Place::RdmaCmFirst),
        _ => Some(Place::OneGuest),
    }
}

/// Returns the devices that a test needs and that some kernels lack.
///
/// The name of the test contains their link type.
fn needed_devices(test: &str) -> impl Iterator<Item = Device> {
    [Device::Siw].into_iter().filter(|device| test.contains(device.kind()))
}

#[cfg(test)]
mod tests;
