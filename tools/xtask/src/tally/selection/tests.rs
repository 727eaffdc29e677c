use std::fs;

use super::*;
use crate::host;

fn selection(kernels: &[Kernel], filter: Option<&str>, all: bool) -> Selection {
    let filter = filter.map(str::to_owned);
    let (kernels, limit) = (kernels.to_vec(), Duration::ZERO);
    Selection { kernels, filter, limit, all, roce: RoceDevices::Both }
}

#[test]
fn library_only_test_runs_on_one_kernel() {
    let ci = selection(&Kernel::ALL, None, false);
    let on = |test: &str| Kernel::ALL.map(|kernel| ci.runs_on(test, kernel));
    assert_eq!(on("heap::rxe_leaves_nothing"), [false, true, false]);
    assert_eq!(on("pings::c_serves_c"), [false, true, false]);
    assert_eq!(on("pings::c_serves_ours"), [true, true, true]);
    assert_eq!(on("connection::of_heap::"), [true, true, true], "a module is meant");
}

#[test]
fn all_or_filter_runs_tests_on_each_kernel() {
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
fn card_tests_run_on_each_kernel_with_all() {
    let on = |all, test: &str| {
        let selection = selection(&Kernel::ALL, None, all);
        Kernel::ALL.map(|kernel| selection.has_card_on(kernel) && selection.runs_on_card(test))
    };
    for test in ["journal::xrc", "card_fault::next", "card_answer::altered", "card::checks"] {
        assert_eq!(on(false, test), [false, true, false], "{test}");
        assert_eq!(on(true, test), [true; 3], "{test}");
    }
    // Other tests run on the card only if a table lists them for a run of all tests.
    assert_eq!(on(false, "heap::rxe_leaves_nothing"), [false; 3]);
    assert_eq!(on(true, "heap::rxe_leaves_nothing"), [true; 3]);
}

#[test]
fn every_listed_prefix_matches_test() {
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
