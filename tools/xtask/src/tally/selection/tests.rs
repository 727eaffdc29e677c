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
    assert_eq!(on("pings::ours_serves_c"), [false, true, false]);
    assert_eq!(on("messages::c_serves_ours"), [true, true, true]);
    assert_eq!(on("connection::of_heap::"), [true, true, true], "the table should name a module");
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
fn test_of_minutes_runs_on_request() {
    let faults = "faults::programs_survive_each_failed_device_call";
    let journal = "journal::environment_variables_match_c";
    let ci = selection(&Kernel::ALL, None, false);
    assert!(!ci.runs_on(faults, ONE) && !ci.runs_on_card(journal));
    assert!(ci.runs_on_card("journal::xrc"));
    let (all, filtered) =
        (selection(&Kernel::ALL, None, true), selection(&[ONE], Some("s"), false));
    for chosen in [all, filtered] {
        assert!(chosen.runs_on(faults, ONE) && chosen.runs_on_card(journal), "{chosen:?}");
    }
    let card = Selection { roce: RoceDevices::Card, ..ci };
    assert!(card.runs_on_card(journal));
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
    let read = |file: &str| fs::read_to_string(host::workspace().join(file)).unwrap_or_default();
    let generated = read("tests/peers/main.rs");
    for beginning in ON_ONE_KERNEL.into_iter().chain(ON_REQUEST) {
        let (module, test) = beginning.split_once("::").expect("a module");
        let places = ["kernel/MODULE.rs", "peers/MODULE.rs", "peers/MODULE/mod.rs"];
        let text = places.map(|place| read(&format!("tests/{place}").replace("MODULE", module)));
        // A macro makes a module with the tests of each pair of programs. The tables list only the whole module.
        let is_generated = generated.lines().any(|line| line.trim() == module);
        let found =
            is_generated && test.is_empty() || text.concat().contains(&format!("fn {test}"));
        assert!(found, "no test begins with {beginning}");
    }
}
