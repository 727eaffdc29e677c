//! Which tests run, and on which kernels.

use std::time::Duration;

use crate::testbed::kernel::Kernel;

/// Tests whose result cannot depend on the kernel's version, by the beginnings of their names: they look at this side
/// alone (its heap, descriptors and texts, the order of its own threads and tasks, its children), and every kernel
/// command, event and completion that they use has a test of its own elsewhere, which runs on every kernel.
///
/// They run on [`ONE`] kernel, and on every kernel with `--all`.
const ON_ONE_KERNEL: [&str; 20] = [
    // What the process holds after many connections.
    "heap::",
    "leak::",
    // The locks of this library, which a forked child must not wait for.
    "process::a_child_does_not_wait",
    "process::a_child_of_a_process_that",
    // The values of counters and traces, and when a thread polls.
    "endpoint_busy_poll::",
    "endpoint_counters::",
    "endpoint_trace::",
    // The order of threads and tasks of this process. The operations of tasks are those of threads.
    "endpoint_end::closing_loses_nothing",
    "endpoint_tokio::closing_loses_nothing",
    "endpoint_tokio_dropped::",
    "endpoint_tokio_memory::",
    "endpoint_tokio_off::",
    "migrate::sleepers_share",
    "stress::",
    // How much members of a poll group take of this process. Their commands are those of the other tests of poll groups.
    "endpoint_poll_group_many::",
    // The programs of the guide and the examples.
    "guide::",
    "file_copy::",
    "key_value::",
    "task_echo::",
    "functions::",
];

/// The kernel of the tests that run on one.
const ONE: Kernel = Kernel::V6_12;

/// Which tests to run.
#[derive(Clone, Debug)]
pub(crate) struct Selection {
    pub(crate) kernels: Vec<Kernel>,
    /// Only tests whose name contains this.
    pub(crate) filter: Option<String>,
    /// How long one test may take in a guest.
    pub(crate) limit: Duration,
    /// `true` if every test runs on every kernel.
    pub(crate) all: bool,
}

impl Selection {
    /// Returns `true` if the test was meant.
    pub(crate) fn chooses(&self, test: &str) -> bool {
        self.filter.as_deref().is_none_or(|filter| test.contains(filter))
    }

    /// Returns `true` if the test runs on a kernel. A kernel that is the only one runs all tests, as does every kernel for a
    /// filter, which names what is wanted.
    pub(crate) fn runs_on(&self, test: &str, kernel: Kernel) -> bool {
        let everywhere = self.all || self.filter.is_some() || !self.kernels.contains(&ONE);
        everywhere || kernel == ONE || !ON_ONE_KERNEL.iter().any(|module| test.starts_with(module))
    }
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;
    use crate::host;

    fn selection(kernels: &[Kernel], filter: Option<&str>, all: bool) -> Selection {
        let filter = filter.map(str::to_owned);
        Selection { kernels: kernels.to_vec(), filter, limit: Duration::ZERO, all }
    }

    #[test]
    fn test_of_library_alone_runs_on_one_kernel() {
        let ci = selection(&Kernel::ALL, None, false);
        let on = |test: &str| Kernel::ALL.map(|kernel| ci.runs_on(test, kernel));
        assert_eq!(on("heap::rxe_leaves_nothing"), [false, true, false]);
        assert_eq!(on("connection::of_heap::"), [true, true, true], "a module is meant");
    }

    #[test]
    fn all_tests_run_where_all_or_some_are_wanted() {
        let heap = "heap::rxe_leaves_nothing";
        for selection in [
            selection(&Kernel::ALL, None, true),
            selection(&Kernel::ALL, Some("heap"), false),
            selection(&[Kernel::V6_1], None, false),
        ] {
            assert!(selection.runs_on(heap, Kernel::V6_1), "{selection:?}");
        }
    }

    #[test]
    fn every_beginning_in_list_is_that_of_a_test() {
        for beginning in ON_ONE_KERNEL {
            let (module, test) = beginning.split_once("::").expect("a module");
            let files = ["kernel", "peers"].map(|program| format!("tests/{program}/{module}.rs"));
            let text: String = files
                .iter()
                .filter_map(|file| fs::read_to_string(host::workspace().join(file)).ok())
                .collect();
            assert!(text.contains(&format!("fn {test}")), "no test begins with {beginning}");
        }
    }
}
