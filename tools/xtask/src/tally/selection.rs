//! Selection of tests and kernels.

use std::time::Duration;

use crate::tally::card;
use crate::tally::watch::C_ONLY;
use crate::testbed::kernel::Kernel;

/// Prefixes of the names of tests whose result cannot depend on the kernel's version.
///
/// These tests check only this process: its heap, descriptors and texts, the order of its threads and tasks, its
/// children, and its programs beside C's. Other tests use each of their kernel commands, events and completions, and run
/// on every kernel. They run on [`ONE`] kernel, and with `--all` on every kernel.
const ON_ONE_KERNEL: [&str; 25] = [
    // The memory and descriptors of the process after many connections.
    "heap::",
    "leak::",
    // The locks of this library: a forked child must not wait for them.
    "process::forked_child_skips_lock",
    // The values of counters and traces, and the times at which a thread polls.
    "endpoint_busy_poll::",
    "endpoint_stats::",
    "endpoint_trace::",
    // The order of threads and tasks of this process. Tasks use the operations of threads.
    "endpoint_close::close_delivers_concurrent",
    "endpoint_tokio::tokio_close_delivers_concurrent",
    "endpoint_tokio_cancel::",
    "endpoint_tokio_memory::",
    "endpoint_tokio_blocking_pool::",
    "migrate::readers_share",
    "stress::",
    // The resources of this process that members of a poll group use. Other tests of poll groups use the same commands.
    "endpoint_poll_group_many::",
    // The programs of the guide and the examples.
    "guide::",
    "file_copy::",
    "key_value::",
    "task_echo::",
    "functions::",
    // The programs of `rdmatools` with many messages or clients, and their texts, beside C's programs.
    "datagram::c_and_own_programs_fail_alike",
    "eight_clients::",
    "perftest::",
    "pingpong::",
    "pings::",
    "selftest::",
];

/// Prefixes of the names of tests that run only with `--all`, a filter, or `--device mlx5`.
///
/// Each of these tests takes minutes.
const ON_REQUEST: [&str; 2] =
    ["faults::programs_survive_each_failed", "journal::environment_variables_match_c"];

/// Kernel of the tests that run on a single kernel.
const ONE: Kernel = Kernel::V6_12;

/// The devices on which the tests of RoCE run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum RoceDevices {
    /// `rxe0`, and on one kernel the emulated card too.
    Both,
    /// The emulated card only.
    Card,
}

/// The selected tests.
#[derive(Clone, Debug)]
pub(crate) struct Selection {
    pub(crate) kernels: Vec<Kernel>,
    /// Runs only tests whose name contains this text.
    pub(crate) filter: Option<String>,
    /// Time limit of one test in a guest.
    pub(crate) limit: Duration,
    /// `true` if every test runs on every kernel.
    pub(crate) all: bool,
    /// The devices on which the tests of RoCE run.
    pub(crate) roce: RoceDevices,
}

impl Selection {
    /// Returns `true` if the filter matches the test.
    pub(crate) fn chooses(&self, test: &str) -> bool {
        self.filter.as_deref().is_none_or(|filter| test.contains(filter))
    }

    /// Returns `true` if each selected test runs on each selected kernel.
    fn is_everywhere(&self) -> bool {
        self.all || self.filter.is_some() || !self.kernels.contains(&ONE)
    }

    /// Returns `true` if tests run on the emulated card with `kernel`.
    pub(crate) fn has_card_on(&self, kernel: Kernel) -> bool {
        self.roce == RoceDevices::Card || self.is_everywhere() || kernel == ONE
    }

    /// Returns `true` if the test runs on the emulated card.
    pub(crate) fn runs_on_card(&self, test: &str) -> bool {
        self.roce == RoceDevices::Card
            || self.all
            || (card::is_in_every_run(test) && self.is_requested(test))
    }

    /// Returns `true` if the test is fast, or if the run includes the tests [on request](ON_REQUEST).
    fn is_requested(&self, test: &str) -> bool {
        let is_long = ON_REQUEST.iter().any(|prefix| test.starts_with(prefix));
        self.all || self.filter.is_some() || !is_long
    }

    /// Returns `true` if the test runs on `kernel`.
    ///
    /// All tests run on a kernel if it is the only one, or if a filter names the tests. Tests of [C's programs
    /// alone](C_ONLY) concern the test bed and not this library, so they run on [`ONE`] kernel too.
    pub(crate) fn runs_on(&self, test: &str, kernel: Kernel) -> bool {
        let depends_on_kernel = || {
            !test.ends_with(C_ONLY) && ON_ONE_KERNEL.iter().all(|prefix| !test.starts_with(prefix))
        };
        self.is_requested(test) && (self.is_everywhere() || kernel == ONE || depends_on_kernel())
    }
}

#[cfg(test)]
mod tests;
