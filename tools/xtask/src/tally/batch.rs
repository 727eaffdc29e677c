//! Tests of one program that run together: in one guest, or in a pair of guests.

use std::ffi::OsString;
use std::fs::{self, File};
use std::io::{self, Write};
use std::path::PathBuf;
use std::time::{Duration, Instant};

use guest::plan::Device;
use guest::report::{Frame, Status};
use tool_error::{Context, Error, Result};

use crate::host;
use crate::tally::Ended;
use crate::tally::libtest::{Artifact, Counts};
use crate::tally::progress::Progress;
use crate::tally::watch::{Ending, Happening, Outcome as TestOutcome, Watch};
use crate::testbed::guest_pair;
use crate::testbed::machine::{Deadline, GUESTS_FAULT, Listener, Outcome};
use crate::testbed::vm::Guest;

/// How often a batch goes on in another guest after the kernel of one broke by no fault of the tests.
const FAULTS: u32 = 2;

/// The package whose ignored tests need the test bed.
const PACKAGE: &str = "tests";

/// The program that the peers' tests set against the C ones.
pub(crate) const TOOLS: &str = "rdmatools";

/// Where tests run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Place {
    /// In one guest.
    Alone,
    /// In one guest whose kernel tells rdma_cm last that a device goes: tests whose name begins so.
    RdmaCmFirst,
    /// In one of two guests that wires join: tests whose name begins so.
    Pair,
}

impl Place {
    pub(crate) const ALL: [Self; 3] = [Self::Pair, Self::RdmaCmFirst, Self::Alone];
}

const RDMA_CM_FIRST: &str = "late_removal::";
const PAIR: &str = "wire::";
/// The other guest's part in those tests, which looks like one of them.
const FAR: &str = "wire::far::serve";

/// Tests to run.
#[derive(Debug)]
pub(crate) struct Batch<'a> {
    place: Place,
    artifact: &'a Artifact,
    guest: &'a Guest,
    tests: Vec<String>,
    /// Of the program's environment: `NAME=value`.
    setting: Option<&'static str>,
}

impl<'a> Batch<'a> {
    /// The tests among `tests` that belong to this place and this guest; `None` if there are none.
    pub(crate) fn new(
        place: Place,
        artifact: &'a Artifact,
        guest: &'a Guest,
        tests: &[String],
    ) -> Option<Self> {
        let belongs = |test: &&String| {
            place_of(test) == Some(place) && needs(test).all(|d| guest.devices.contains(&d))
        };
        let tests: Vec<String> = tests.iter().filter(belongs).cloned().collect();
        (!tests.is_empty()).then_some(Self { place, artifact, guest, tests, setting: None })
    }

    /// Adds `setting`, a `NAME=value`, to the program's environment.
    pub(crate) fn with(self, setting: &'static str) -> Self {
        Self { setting: Some(setting), ..self }
    }

    pub(crate) fn name(&self) -> String {
        let (before, after) = match self.place {
            Place::Alone => ("", ""),
            Place::RdmaCmFirst => ("", ", rdma_cm loaded first"),
            Place::Pair => ("two guests with ", ""),
        };
        format!("{} on {before}Linux {}{after}", self.artifact.target, self.guest.kernel.name())
    }

    /// Returns `true` if the tests run in one of two guests.
    pub(crate) fn is_of_two(&self) -> bool {
        self.place == Place::Pair
    }

    pub(crate) fn count(&self) -> usize {
        self.tests.len()
    }

    /// Runs the tests. A guest in which a test does not end in time, or that ends during a test, is followed by another
    /// one for the tests that are left. A test runs once more if its guest's kernel broke by no fault of the test, or if
    /// siw or the C programs alone failed it.
    pub(crate) fn run(&self, progress: &Progress) -> Result<Ended> {
        let mut run = Run::new(self.name(), progress)?;
        let result = run.all(self, self.tests.clone(), true).and_then(|()| {
            let put_aside = std::mem::take(&mut run.put_aside);
            if put_aside.is_empty() { Ok(()) } else { run.all(self, put_aside, false) }
        });
        progress.leave(&run.name);
        let Run { mut ended, log, .. } = run;
        result.map_err(|error| Error::new(format!("{error}\nlog: {}", log.path.display())))?;
        ended.log = Some(log.path);
        Ok(ended)
    }

    /// Runs `tests` in a guest.
    fn run_once(&self, tests: &[String], listener: &mut dyn Listener) -> Result<Outcome> {
        let command = self.command(tests);
        match self.place {
            Place::Alone => self.guest.run(&directory(), &command, listener),
            Place::RdmaCmFirst => {
                let guest = Guest { rdma_cm_first: true, ..self.guest.clone() };
                guest.run(&directory(), &command, listener)
            }
            Place::Pair => {
                let far = self.plain_command(&[FAR.to_owned()]);
                guest_pair::run(self.guest, &directory(), &command, &far, listener)
            }
        }
    }

    /// The program with `tests`, for [`Watch`]. Its standard error goes where its standard output goes, so that a panic's
    /// text stands where the test is.
    fn command(&self, tests: &[String]) -> Vec<OsString> {
        let joined = ["sh", "-c", r#"exec "$@" 2>&1"#, "sh"].map(OsString::from);
        let mut command = joined.to_vec();
        command.extend(self.plain_command(tests));
        command.push(OsString::from("--nocapture"));
        command
    }

    /// The program with `tests`, and where what they run is: `RDMACM_TEST_RDMATOOLS`.
    fn plain_command(&self, tests: &[String]) -> Vec<OsString> {
        let mut tools = OsString::from("RDMACM_TEST_RDMATOOLS=");
        tools.push(host::build_directory().join("debug").join(TOOLS));
        let mut command = vec![OsString::from("env"), tools];
        command.extend(self.setting.map(OsString::from));
        command.push(OsString::from(&self.artifact.program));
        command.extend(arguments(tests).map(OsString::from));
        command
    }
}

/// Everything that the guests of a batch print.
#[derive(Debug)]
struct Log {
    path: PathBuf,
    file: File,
}

impl Log {
    fn create(name: &str) -> Result<Self> {
        let name = name.replace(", ", " ").replace(' ', "-");
        let path = host::build_directory().join(format!("test-logs/{name}.log"));
        let directory = path.parent().expect("it is in a directory");
        let file = fs::create_dir_all(directory).and_then(|()| File::create(&path));
        let file = file.with_context(|| format!("create {}", path.display()))?;
        Ok(Self { path, file })
    }
}

/// A batch that is running.
struct Run<'a> {
    name: String,
    progress: &'a Progress,
    log: Log,
    ended: Ended,
    /// The tests that failed by no fault of this project, and that run once more.
    put_aside: Vec<String>,
}

impl<'a> Run<'a> {
    fn new(name: String, progress: &'a Progress) -> Result<Self> {
        let log = Log::create(&name)?;
        let ended = Ended { success: true, ..Ended::default() };
        Ok(Self { name, progress, log, ended, put_aside: Vec::new() })
    }

    /// Runs `tests` in as many guests as that takes. If `may_rerun`, a test that fails by no fault of this project is put
    /// aside and not counted.
    fn all(&mut self, batch: &Batch<'_>, mut tests: Vec<String>, may_rerun: bool) -> Result<()> {
        let mut faults = 0;
        while !tests.is_empty() {
            self.progress.begin(&self.name, "booting");
            let limit = batch.guest.limit;
            let (watch, last) = (Watch::default(), Instant::now());
            let mut heard = Heard { run: self, watch, limit, last, may_rerun };
            let outcome = batch.run_once(&tests, &mut heard);
            let mut watch = heard.watch;
            let during = watch.running().map(|running| running.test.clone());
            let is_over = match (outcome, during) {
                (Ok(Outcome { status: Status::Exited(_), complaints }), None) => {
                    self.ended.complaints.extend(complaints);
                    true
                }
                (Ok(Outcome { status, complaints }), Some(_)) => {
                    self.ended.complaints.extend(complaints);
                    self.give_up(&mut watch, &format!("the test program ended: {status:?}"));
                    false
                }
                (Ok(Outcome { status, .. }), None) => {
                    return Err(Error::new(format!("the test program ended: {status:?}")));
                }
                (Err(error), during)
                    if error.to_string().starts_with(GUESTS_FAULT) && faults < FAULTS =>
                {
                    faults += 1;
                    let during = during.as_deref().unwrap_or("between tests");
                    let text = error.to_string();
                    let first_line = text.lines().next().unwrap_or_default();
                    self.ended.reruns.push(format!("{during}: {first_line}"));
                    false
                }
                (Err(error), Some(_)) => {
                    self.give_up(&mut watch, &error.to_string());
                    false
                }
                (Err(error), None) => return Err(error),
            };
            let (endings, counts) = watch.finish();
            tests.retain(|test| endings.iter().all(|ending| ending.test != *test));
            if is_over {
                check(&endings, counts)?;
                if !tests.is_empty() {
                    return Err(Error::new(format!("these did not run: {}", tests.join(" "))));
                }
            }
        }
        self.ended.success = self.ended.counts.failed == 0;
        Ok(())
    }

    /// Counts the test that is running as failed for this reason.
    fn give_up(&mut self, watch: &mut Watch, reason: &str) {
        if let Some(ending) = watch.fail(reason, Instant::now()) {
            self.count(&ending, false);
        }
    }

    /// Counts and shows a test's end. If `may_rerun`, a test that failed by no fault of this project is put aside.
    fn count(&mut self, ending: &Ending, may_rerun: bool) {
        let Ending { test, outcome, tried_again, .. } = ending;
        self.progress.end(&self.name, ending);
        let again = tried_again.iter().map(|why| format!("{test}: {why}"));
        self.ended.reruns.extend(again);
        let counts = &mut self.ended.counts;
        match outcome {
            TestOutcome::Passed => counts.passed += 1,
            TestOutcome::Skipped(_) => counts.skipped += 1,
            TestOutcome::Failed(_) => match ending.foreign_fault() {
                Some(fault) if may_rerun => {
                    self.ended.reruns.push(format!("{test}: {fault}"));
                    self.put_aside.push(test.clone());
                    self.progress.expect(1);
                }
                _ => {
                    counts.failed += 1;
                    self.ended.failed.push(test.clone());
                }
            },
        }
    }
}

/// Hears what a guest of the batch reports.
struct Heard<'a, 'b> {
    run: &'a mut Run<'b>,
    watch: Watch,
    /// How long a test may take, and how long the program may say nothing between tests.
    limit: Duration,
    /// When the guest said something last.
    last: Instant,
    may_rerun: bool,
}

impl Listener for Heard<'_, '_> {
    fn hear(&mut self, frame: Frame) -> io::Result<()> {
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
                Happening::Began(test) => self.run.progress.begin(&self.run.name, &test),
                Happening::Ended(ending) => self.run.count(&ending, self.may_rerun),
                // It names the tests that failed, whose text has been shown.
                Happening::Summary(_) => {}
            }
        }
        Ok(())
    }

    /// Each test has a limit of its own.
    fn deadline(&self) -> Option<Deadline> {
        let (what, since) = match self.watch.running() {
            Some(running) => (running.test.as_str(), running.since),
            None => ("the program, between two tests,", self.last),
        };
        let seconds = self.limit.as_secs();
        let reason =
            format!("{what} ran out of time: it has {seconds} s; --timeout gives it longer");
        Some(Deadline { at: since + self.limit, reason })
    }
}

/// Compares what was counted with what the program says in its last line, where skipped tests have passed.
fn check(endings: &[Ending], says: Option<Counts>) -> Result<()> {
    let failed = endings.iter().filter(|ending| matches!(ending.outcome, TestOutcome::Failed(_)));
    let failed = failed.count() as u64;
    let counted = Counts { passed: endings.len() as u64 - failed, failed, skipped: 0 };
    if says == Some(counted) {
        return Ok(());
    }
    Err(Error::new(format!("the program says {says:?}, and its lines say {counted:?}")))
}

/// The directory of the package, in which its tests run.
pub(crate) fn directory() -> PathBuf {
    host::workspace().join(PACKAGE)
}

/// What makes a program run these ignored tests.
pub(crate) fn arguments(tests: &[String]) -> impl Iterator<Item = &str> {
    let options = ["--ignored", "--test-threads=1", "--exact"];
    options.into_iter().chain(tests.iter().map(String::as_str))
}

fn place_of(test: &str) -> Option<Place> {
    match test {
        FAR => None,
        test if test.starts_with(PAIR) => Some(Place::Pair),
        test if test.starts_with(RDMA_CM_FIRST) => Some(Place::RdmaCmFirst),
        _ => Some(Place::Alone),
    }
}

/// The devices that not every kernel has and that a test needs: their link type is part of its name.
fn needs(test: &str) -> impl Iterator<Item = Device> {
    [Device::Siw].into_iter().filter(|device| test.contains(device.link_type()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testbed::kernel::Kernel;

    fn chosen(place: Place, kernel: Kernel) -> Vec<String> {
        let artifact = Artifact {
            manifest: "/Cargo.toml".to_owned(),
            target: "kernel".to_owned(),
            program: "/kernel".to_owned(),
        };
        let tests = [
            "wire::cut",
            FAR,
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
        assert_eq!(chosen(Place::Alone, Kernel::V6_12), alone);
    }

    /// Hears `output` as that of a batch's program, whose tests have 7 s each, and then calls `look`.
    fn heard<T>(output: &str, may_rerun: bool, look: impl FnOnce(&Heard<'_, '_>) -> T) -> T {
        let progress = Progress::default();
        let mut run = Run::new("unit-test".to_owned(), &progress).expect("a log");
        let limit = Duration::from_secs(7);
        let (watch, last) = (Watch::default(), Instant::now());
        let mut heard = Heard { run: &mut run, watch, limit, last, may_rerun };
        heard.hear(Frame::Output(output.as_bytes().to_vec())).expect("it is heard");
        look(&heard)
    }

    #[test]
    fn test_that_others_failed_is_put_aside_once() {
        let output = "test a ... ok\ntest b ... thread 'b' (1) panicked at a.rs:1:1:\n\
            siw has left bytes lying: x\nFAILED\ntest c ... [skipped] no\nok\n\
            test d ... [tried again] late\nok\ntest e ... FAILED\n\
            test e::c_serves_c ... FAILED\n";
        heard(output, true, |heard| {
            assert_eq!(heard.run.put_aside, ["b", "e::c_serves_c"]);
            assert_eq!(heard.run.ended.counts, Counts { passed: 2, failed: 1, skipped: 1 });
            assert_eq!(heard.run.ended.failed, ["e"]);
            let c_alone = "e::c_serves_c: the C programs failed among themselves";
            assert_eq!(heard.run.ended.reruns, ["b: siw stopped it", "d: late", c_alone]);
        });
        heard(output, false, |heard| {
            assert!(heard.run.put_aside.is_empty());
            assert_eq!(
                heard.run.ended.failed,
                ["b", "e", "e::c_serves_c"],
                "the second time it counts"
            );
        });
    }

    #[test]
    fn deadline_is_that_of_running_test() {
        let deadline = |output| heard(output, true, |heard| heard.deadline().expect("one is set"));
        let due = deadline("test a ... ok\ntest b ... ");
        assert!(due.reason.starts_with("b ran out of time: it has 7 s"), "{}", due.reason);
        assert!(due.at > Instant::now(), "the limit begins with the test");
        let due = deadline("test a ... ok\ntest b ... ok\n");
        assert!(
            due.reason.starts_with("the program, between two tests, ran out"),
            "{}",
            due.reason
        );
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
        let says = |passed, failed| Some(Counts { passed, failed, skipped: 0 });
        assert!(check(&endings, says(2, 1)).is_ok());
        assert!(check(&endings, says(3, 0)).is_err() && check(&endings, None).is_err());
    }

    #[test]
    fn a_device_that_a_kernel_lacks_is_not_missed() {
        assert_eq!(chosen(Place::Alone, Kernel::Latest), ["removal::a_link"]);
    }
}
