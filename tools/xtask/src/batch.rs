//! Tests of one program that run together: in one guest, or in a pair of guests.

use std::ffi::OsString;
use std::io;
use std::path::PathBuf;

use guest::error::{Context, Error, Result};
use guest::plan::Device;
use guest::report::{Frame, Status};

use crate::host::progress;
use crate::libtest::{Artifact, Counts, Tally};
use crate::machine::GUESTS_FAULT;
use crate::vm::Guest;
use crate::{host, pair};

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

/// How a test program ended: what it counted, and whether it was content.
pub(crate) struct Ended {
    pub(crate) counts: Counts,
    pub(crate) success: bool,
    /// What the kernel said against it.
    pub(crate) complaints: Vec<String>,
}

impl Ended {
    /// What `again` says counts for `failures` of the tests that failed.
    fn instead_of(&mut self, failures: u64, again: Self) {
        self.counts.failed = self.counts.failed.saturating_sub(failures);
        self.success = again.success && self.counts.failed == 0;
        self.counts.add(again.counts);
        self.complaints.extend(again.complaints);
    }
}

impl<'a> Batch<'a> {
    /// Those of `tests` that belong to this place and this guest; `None` where there are none.
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

    /// The same with `setting`, a `NAME=value`, in the program's environment.
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

    /// Whether they run in one of two guests.
    pub(crate) fn is_of_two(&self) -> bool {
        self.place == Place::Pair
    }

    pub(crate) fn count(&self) -> usize {
        self.tests.len()
    }

    /// Runs them, and counts those that the program says it ran. All of them run once more where the guest's kernel breaks by
    /// no fault of theirs, and of those that fail the ones that siw has stopped.
    pub(crate) fn run(&self, mut sink: impl FnMut(Frame) -> io::Result<()>) -> Result<Ended> {
        let (mut ended, stopped) = unless_guests_fault(|| self.run_once(&self.tests, &mut sink))?;
        if !ended.success && !stopped.is_empty() {
            let note = format!("siw has stopped these, which run once more: {}", stopped.join(" "));
            progress(&note);
            sink(Frame::Output(format!("{note}\n").into_bytes())).context("pass the note on")?;
            let (again, _) = unless_guests_fault(|| self.run_once(&stopped, &mut sink))?;
            ended.instead_of(stopped.len() as u64, again);
        }
        Ok(ended)
    }

    /// Runs some; also returns which of them siw stopped.
    fn run_once(
        &self,
        tests: &[String],
        mut sink: impl FnMut(Frame) -> io::Result<()>,
    ) -> Result<(Ended, Vec<String>)> {
        let mut tally = Tally::default();
        let counting = |frame| {
            if let Frame::Output(bytes) = &frame {
                tally.feed(bytes);
            }
            sink(frame)
        };
        let command = self.command(tests);
        let outcome = match self.place {
            Place::Alone => self.guest.run(&directory(), &command, counting),
            Place::RdmaCmFirst => {
                let guest = Guest { rdma_cm_first: true, ..self.guest.clone() };
                guest.run(&directory(), &command, counting)
            }
            Place::Pair => {
                let far = self.command(&[FAR.to_owned()]);
                pair::run(self.guest, &directory(), &command, &far, counting)
            }
        }?;
        let success = match outcome.status {
            Status::Exited(code) => code == 0,
            Status::Signaled(signal) => {
                return Err(Error::new(format!("signal {signal} killed the program")));
            }
            Status::NotStarted(reason) => {
                return Err(Error::new(format!("the program could not be started: {reason}")));
            }
        };
        let ended = Ended { counts: tally.counts(), success, complaints: outcome.complaints };
        Ok((ended, tally.stopped_by_siw()))
    }

    /// The program with `tests`, and where what they run is: `RDMACM_TEST_RDMATOOLS`.
    fn command(&self, tests: &[String]) -> Vec<OsString> {
        let mut tools = OsString::from("RDMACM_TEST_RDMATOOLS=");
        tools.push(host::build_directory().join("debug").join(TOOLS));
        let mut command = vec![OsString::from("env"), tools];
        command.extend(self.setting.map(OsString::from));
        command.push(OsString::from(&self.artifact.program));
        command.extend(arguments(tests).map(OsString::from));
        command
    }
}

/// What `run` comes to: the second time, where the guest's kernel broke under it the first time.
fn unless_guests_fault<T>(mut run: impl FnMut() -> Result<T>) -> Result<T> {
    match run() {
        Err(error) if error.to_string().starts_with(GUESTS_FAULT) => {
            progress(&format!("{error}\nonce more"));
            run()
        }
        ended => ended,
    }
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
    use crate::kernel::Kernel;

    fn chosen(place: Place, kernel: Kernel) -> Vec<String> {
        let artifact = Artifact { target: "kernel".to_owned(), program: "/kernel".to_owned() };
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

    /// How the last of the runs ended that `endings` are those of, and how many there were.
    fn runs(endings: [Result<&'static str>; 3]) -> (Result<&'static str>, usize) {
        let mut left = endings.into_iter();
        let ended = unless_guests_fault(|| left.next().expect("a run more than twice"));
        (ended, 3 - left.len())
    }

    #[test]
    fn what_the_guest_and_not_its_program_broke_is_run_once_more() {
        let broken = || Err(Error::new(format!("{GUESTS_FAULT}the guest ended")));
        let other = || Err(Error::new(format!("the guest said: {GUESTS_FAULT}no")));
        assert_eq!(runs([Ok("first"), Ok("second"), Ok("third")]), (Ok("first"), 1));
        assert_eq!(runs([broken(), Ok("second"), Ok("third")]), (Ok("second"), 2));
        assert_eq!(runs([broken(), broken(), Ok("third")]), (broken(), 2), "and no more");
        assert_eq!(runs([broken(), other(), Ok("third")]), (other(), 2));
        assert_eq!(runs([other(), Ok("second"), Ok("third")]), (other(), 1), "a fault of its own");
    }

    #[test]
    fn a_test_that_is_run_again_counts_as_it_ended_then() {
        let ended = |passed, failed| Ended {
            counts: Counts { passed, failed },
            success: failed == 0,
            complaints: Vec::new(),
        };
        let with_two_again = |mut first: Ended, again| {
            first.instead_of(2, again);
            (first.counts.passed, first.counts.failed, first.success)
        };
        assert_eq!(with_two_again(ended(7, 2), ended(2, 0)), (9, 0, true));
        assert_eq!(with_two_again(ended(7, 2), ended(1, 1)), (8, 1, false));
        assert_eq!(with_two_again(ended(6, 3), ended(2, 0)), (8, 1, false), "another failed too");
        assert_eq!(with_two_again(ended(7, 2), ended(0, 0)), (7, 0, true), "and is missed");
    }

    #[test]
    fn a_device_that_a_kernel_lacks_is_not_missed() {
        assert_eq!(chosen(Place::Alone, Kernel::Latest), ["removal::a_link"]);
    }
}
