//! `cargo xtask test`: every test of the project, with the test bed that some of them need.

use std::cmp::Reverse;
use std::iter;
use std::path::Path;
use std::process::ExitCode;
use std::sync::{Mutex, PoisonError, mpsc};
use std::thread;
use std::time::Duration;

use tool_error::{Error, Result};

use crate::host;
use crate::host::packages;
use crate::tally::Tests;
use crate::tally::batch::{self, Batch, Place};
use crate::tally::host_program;
use crate::tally::libtest::{self, Artifact};
use crate::tally::progress::Progress;
use crate::tally::selection::Selection;
use crate::tasks::fuzz;
use crate::tasks::loom;
use crate::tasks::soak;
use crate::testbed::kernel::Kernel;
use crate::testbed::vm::Guest;

/// The step that lets connections be made and broken at random, by its name, and how long it does.
const SOAK: &str = "soak";
const SOAK_TIME: Duration = Duration::from_secs(60);
/// The kernel on which it does: it has every device.
const SOAK_KERNEL: Kernel = Kernel::V6_12;

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

/// Runs the tests.
pub(crate) fn run(selection: &Selection) -> ExitCode {
    let mut tests = Tests::default();
    add(selection, &mut tests, |_| ());
    tests.finish()
}

/// Runs the tests and adds them to `tests`. While the first guests work, `beside` runs, with all that it needs built.
pub(crate) fn add(selection: &Selection, tests: &mut Tests, beside: impl FnOnce(&mut Tests)) {
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
    let progress = Progress::default();
    let (mut headers, mut batches) = (None, Vec::new());
    for artifact in artifacts.iter().filter(|artifact| needs_bed(artifact)) {
        let mut all = match host_program::listed(artifact, true) {
            Ok(all) => all,
            Err(error) => {
                tests.trouble(&format!("{}: {error}", artifact.target));
                continue;
            }
        };
        all.retain(|test| selection.chooses(test));
        if artifact.target == HEADERS {
            headers = Some((artifact, all)).filter(|(_, tests)| !tests.is_empty());
            continue;
        }
        for guest in &guests {
            let chosen: Vec<String> =
                all.iter().filter(|test| selection.runs_on(test, guest.kernel)).cloned().collect();
            let batch = |place| Batch::new(place, artifact, guest, &chosen);
            batches.extend(Place::ALL.into_iter().filter_map(batch));
        }
    }
    let soak = guests.iter().any(|guest| guest.kernel == SOAK_KERNEL) && selection.chooses(SOAK);
    progress.expect(batches.iter().map(Batch::count).sum::<usize>() + usize::from(soak));
    // They wait about as much as they work, those of two guests most of the time: one after the other of these, and as many
    // of the others at once as there are processors, beside what runs here.
    let (pairs, mut others): (Vec<_>, Vec<_>) = batches.iter().partition(|batch| batch.is_of_two());
    // The longest first, so that none is left alone in the end.
    others.sort_by_key(|batch| Reverse(batch.count()));
    let (says, hears) = mpsc::channel();
    let queues = [(1, pairs), (host::processors().get(), others)]
        .map(|(at_once, batches)| (at_once, Mutex::new(batches.into_iter())));
    let progress = &progress;
    let work = || {
        thread::scope(|scope| {
            let workers =
                queues.iter().flat_map(|(at_once, queue)| iter::repeat_n(queue, *at_once));
            for queue in workers {
                let says = says.clone();
                scope.spawn(move || {
                    let next = || queue.lock().unwrap_or_else(PoisonError::into_inner).next();
                    while let Some(batch) = next() {
                        host::progress(&format!("{}: {} tests begin", batch.name(), batch.count()));
                        // Heard until all of these have ended.
                        let _ = says.send((batch, batch.run(progress)));
                    }
                });
            }
            drop(says);
            beside(tests);
            on_host(&artifacts, selection, progress, tests);
            loom::add(selection, progress, tests);
            fuzz::add(selection, progress, tests);
            if let Some((artifact, listed)) = headers {
                on_headers(artifact, &listed, &guests, progress, tests);
            }
            if soak {
                progress.begin(SOAK, "at random");
                let passed =
                    soak::in_guest(SOAK_TIME, SOAK_KERNEL).and_then(|status| match status {
                        ExitCode::SUCCESS => Ok(()),
                        _ => Err(Error::new("it failed")),
                    });
                progress.leave(SOAK);
                tests.step(SOAK, passed);
            }
            for (batch, ended) in hears {
                tests.add_program(&batch.name(), Some(batch.count()), ended);
            }
        });
    };
    progress.during(work);
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

/// Builds every test and every program that the tests run; returns the test programs.
pub(crate) fn build() -> Result<Vec<Artifact>> {
    host::progress("building the tests");
    let mut cargo = host::cargo();
    cargo.args(["test", "--workspace", "--all-features"]);
    host_program::build(&mut cargo)
}

/// Returns `true` if a program's ignored tests need the test bed.
fn needs_bed(artifact: &Artifact) -> bool {
    Path::new(&artifact.manifest) == batch::directory().join("Cargo.toml")
}

/// Runs the tests that need no bed, and those in the documentation.
fn on_host(artifacts: &[Artifact], selection: &Selection, progress: &Progress, tests: &mut Tests) {
    for artifact in artifacts {
        let name = format!("host {}", artifact.target);
        let mut listed = match host_program::listed(artifact, false) {
            Ok(listed) => listed,
            Err(error) => {
                tests.trouble(&format!("{name}: {error}"));
                continue;
            }
        };
        listed.retain(|test| selection.chooses(test));
        if listed.is_empty() {
            continue;
        }
        let mut command = host_program::command(artifact);
        if selection.filter.is_some() {
            command.arg("--exact").args(&listed);
        }
        let ended = host_program::run(&mut command, &name, Some(listed.len()), progress);
        tests.add_program(&name, Some(listed.len()), ended);
    }
    on_documentation(selection, progress, tests);
}

/// Runs the tests in the documentation.
fn on_documentation(selection: &Selection, progress: &Progress, tests: &mut Tests) {
    const NAME: &str = "documentation";
    let cargo = || {
        let mut cargo = host::cargo();
        cargo.args(["test", "--quiet", "--workspace", "--all-features", "--doc", "--no-fail-fast"]);
        cargo
    };
    if let Some(filter) = &selection.filter {
        let mut listing = cargo();
        listing.args(["--", "--list", "--format", "terse"]).arg(filter);
        match host::output(&mut listing, "list the tests in the documentation") {
            Ok(list) if libtest::listed(&String::from_utf8_lossy(&list)).is_empty() => return,
            Ok(_) => {}
            Err(error) => return tests.trouble(&format!("{NAME}: {error}")),
        }
    }
    let mut cargo = cargo();
    cargo.args(["--", "--format", "pretty"]).args(&selection.filter);
    let ended = host_program::run(&mut cargo, NAME, None, progress);
    tests.add_program(NAME, None, ended);
}

/// Runs the tests that compare with the kernels' headers.
fn on_headers(
    artifact: &Artifact,
    listed: &[String],
    guests: &[Guest],
    progress: &Progress,
    tests: &mut Tests,
) {
    let result = uapi_headers(guests).and_then(|headers| {
        let mut command = host_program::command(artifact);
        command.args(batch::arguments(listed)).env("RDMACM_UAPI_HEADERS", headers);
        host_program::run(&mut command, HEADERS, Some(listed.len()), progress)
    });
    tests.add_program(HEADERS, Some(listed.len()), result);
}

/// `6.1=DIRECTORY:6.12=DIRECTORY`.
fn uapi_headers(guests: &[Guest]) -> Result<String> {
    let kernels = guests.iter().map(|guest| {
        let version = guest.kernel.image()?.version;
        Ok(format!("{version}={}", guest.kernel.headers()?.display()))
    });
    Ok(kernels.collect::<Result<Vec<_>>>()?.join(":"))
}
