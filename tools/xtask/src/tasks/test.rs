//! `cargo xtask test`: runs every test of the project, with the test bed for the tests that need it.

use std::cmp::Reverse;
use std::iter;
use std::path::Path;
use std::process::ExitCode;
use std::sync::mpsc;
use std::thread;
use std::time::Duration;

use guest::plan::Device;
use tool_error::{Error, Result};

use crate::host;
use crate::host::packages;
use crate::tally::Tests;
use crate::tally::batch::{self, Batch, Place, Queue};
use crate::tally::host_program;
use crate::tally::libtest::{self, Artifact};
use crate::tally::progress::Progress;
use crate::tally::selection::{RoceDevices, Selection};
use crate::tasks::fuzz;
use crate::tasks::loom;
use crate::tasks::soak;
use crate::testbed::kernel::Kernel;
use crate::testbed::vm::Guest;

/// Name and, below it, duration of the steps that open and close connections at random.
const SOAK: &str = "soak";
const SOAK_TIME: Duration = Duration::from_secs(60);
/// Kernel of these steps, which has every device.
const SOAK_KERNEL: Kernel = Kernel::V6_12;

/// Name of the test target that needs no guest.
const HEADERS: &str = "headers";

/// Packages that the tests run in addition to the project's own programs: C peers, C compiler, tools.
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

/// Runs the tests and adds them to `tests`.
///
/// `beside` runs in parallel with the first guests, with all its programs built.
pub(crate) fn add(selection: &Selection, tests: &mut Tests, beside: impl FnOnce(&mut Tests)) {
    let guest = |kernel| Guest { limit: selection.limit, ..Guest::new(kernel) };
    let with_card = |kernel| Guest { devices: vec![Device::Mlx5], ..guest(kernel) };
    let mut guests: Vec<Guest> = match selection.roce {
        RoceDevices::Both => selection.kernels.iter().copied().map(guest).collect(),
        RoceDevices::Card => Vec::new(),
    };
    let on_card = selection.kernels.iter().copied().filter(|kernel| selection.has_card_on(*kernel));
    guests.extend(on_card.map(with_card));
    guests.sort_by_key(|guest| guest.kernel.name());
    let ready = require_packages().and_then(|()| set_up(guests, tests));
    let (guests, artifacts) = match ready.and_then(|guests| Ok((guests, build()?))) {
        Ok(ready) => ready,
        Err(error) => return tests.stop(&error),
    };
    let progress = Progress::default();
    let (mut headers, mut batches) = (None, Vec::new());
    for artifact in artifacts.iter().filter(|artifact| needs_test_bed(artifact)) {
        let mut all = match host_program::listed(artifact, true) {
            Ok(all) => all,
            Err(error) => {
                tests.add_problem(&format!("{}: {error}", artifact.target));
                continue;
            }
        };
        all.retain(|test| selection.chooses(test));
        if artifact.target == HEADERS {
            headers = Some((artifact, all)).filter(|(_, tests)| !tests.is_empty());
            continue;
        }
        let runs_on = |test: &str, guest: &Guest| match guest.has_card() {
            true => selection.runs_on_card(test),
            false => selection.runs_on(test, guest.kernel),
        };
        for guest in &guests {
            let chosen: Vec<String> =
                all.iter().filter(|test| runs_on(test, guest)).cloned().collect();
            let batch = |place| Batch::new(place, artifact, guest, &chosen);
            batches.extend(Place::ALL.into_iter().filter_map(batch));
        }
    }
    let is_all = selection.roce == RoceDevices::Both;
    let is_soaked = |guest: &&Guest| {
        let has_time = selection.all || !is_all || !guest.has_card();
        guest.kernel == SOAK_KERNEL && has_time && selection.chooses(SOAK)
    };
    let soaked: Vec<&Guest> = guests.iter().filter(is_soaked).collect();
    progress.expect(batches.iter().map(Batch::count).sum::<usize>() + soaked.len());
    // Tests wait about as long as they work, tests in a pair of guests most of the time. Batches of pairs run one after the
    // other; of the other batches, as many run in parallel as there are processors, next to the checks on this machine.
    let (pairs, mut others): (Vec<_>, Vec<_>) =
        batches.iter().partition(|batch| batch.needs_two_guests());
    // The longest batch starts first, so that it does not run alone at the end.
    others.sort_by_key(|batch| Reverse(batch.count()));
    let (sender, results) = mpsc::channel();
    let queues = [(1, pairs), (host::processors().get(), others)]
        .map(|(at_once, batches)| (at_once, Queue::new(batches)));
    let progress = &progress;
    let work = || {
        thread::scope(|scope| {
            let workers =
                queues.iter().flat_map(|(at_once, queue)| iter::repeat_n(queue, *at_once));
            for queue in workers {
                let sender = sender.clone();
                scope.spawn(move || queue.run(progress, &sender));
            }
            drop(sender);
            beside(tests);
            if is_all {
                on_host(&artifacts, selection, progress, tests);
                loom::add(selection, progress, tests);
                fuzz::add(selection, progress, tests);
            }
            if let Some((artifact, listed)) = headers.filter(|_| is_all) {
                // Headers do not depend on devices.
                let guests: Vec<_> = guests.iter().filter(|guest| !guest.has_card()).collect();
                on_headers(artifact, &listed, &guests, progress, tests);
            }
            for guest in soaked {
                let names: Vec<&str> = guest.devices.iter().map(|device| device.name()).collect();
                let step = format!("{SOAK} on {}", names.join(" and "));
                progress.begin(&step, "at random");
                let passed = soak::in_guest(SOAK_TIME, guest);
                progress.leave(&step);
                tests.step(&step, passed);
            }
            for (batch, ended) in results {
                tests.add_program(&batch.name(), Some(batch.count()), ended);
            }
        });
    };
    progress.during(work);
}

/// Checks that the packages that the tests need are installed, and installs missing ones if possible.
pub(crate) fn require_packages() -> Result<()> {
    let mut wanted = [&PACKAGES[..], &fuzz::PACKAGES].concat();
    wanted.extend(Guest::packages());
    wanted.sort_unstable();
    wanted.dedup();
    packages::require(&wanted)
}

/// Downloads and builds everything that the guests and their tests need.
///
/// Returns the guests with an available kernel.
fn set_up(guests: Vec<Guest>, tests: &mut Tests) -> Result<Vec<Guest>> {
    let results: Vec<Result<()>> = thread::scope(|scope| {
        let fetch = |guest: &Guest| guest.fetch().and_then(|()| guest.kernel.headers().map(drop));
        // Guests of one kernel need the same files.
        let of_one_kernel = guests.chunk_by(|one, other| one.kernel == other.kernel);
        let kernels: Vec<_> = of_one_kernel
            .map(|guests| scope.spawn(move || guests.iter().map(fetch).collect::<Vec<_>>()))
            .collect();
        let panicked = |_| vec![Err(Error::new("the preparation of the guest panicked"))];
        kernels.into_iter().flat_map(|kernel| kernel.join().unwrap_or_else(panicked)).collect()
    });
    let mut ready = Vec::new();
    for (guest, result) in guests.into_iter().zip(results) {
        match result {
            Ok(()) => ready.push(guest),
            Err(error) => tests.add_problem(&format!(
                "cannot prepare Linux {0}, its tests do not run: {error}; run the tests of one kernel with --kernel NAME",
                guest.kernel.name()
            )),
        }
    }
    Ok(ready)
}

/// Builds every test and every program that the tests run. Returns the test programs.
pub(crate) fn build() -> Result<Vec<Artifact>> {
    host::progress("building the tests");
    let mut cargo = host::cargo();
    cargo.args(["test", "--workspace", "--all-features"]);
    host_program::build(&mut cargo)
}

/// Returns `true` if the ignored tests of a program need the test bed.
fn needs_test_bed(artifact: &Artifact) -> bool {
    Path::new(&artifact.manifest) == batch::directory().join("Cargo.toml")
}

/// Runs the tests that need no test bed, and those in the documentation.
fn on_host(artifacts: &[Artifact], selection: &Selection, progress: &Progress, tests: &mut Tests) {
    for artifact in artifacts {
        let name = format!("host {}", artifact.target);
        let mut listed = match host_program::listed(artifact, false) {
            Ok(listed) => listed,
            Err(error) => {
                tests.add_problem(&format!("{name}: {error}"));
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
            Err(error) => return tests.add_problem(&format!("{NAME}: {error}")),
        }
    }
    let mut cargo = cargo();
    cargo.args(["--", "--format", "pretty"]).args(&selection.filter);
    let ended = host_program::run(&mut cargo, NAME, None, progress);
    tests.add_program(NAME, None, ended);
}

/// Runs the tests that compare constants with the kernels' headers.
fn on_headers(
    artifact: &Artifact,
    listed: &[String],
    guests: &[&Guest],
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

/// Returns the directories of the headers: `6.1=DIRECTORY:6.12=DIRECTORY`.
fn uapi_headers(guests: &[&Guest]) -> Result<String> {
    let kernels = guests.iter().map(|guest| {
        let version = guest.kernel.image()?.version;
        Ok(format!("{version}={}", guest.kernel.headers()?.display()))
    });
    Ok(kernels.collect::<Result<Vec<_>>>()?.join(":"))
}
