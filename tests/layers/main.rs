//! The modules of the library import only from layers below their own, and never in circles.
//!
//! [`LAYERS`] is the table of layers. The other lists name what does not follow the rules yet: the
//! test fails on what they do not name and on what they name without need, so they only shrink.

mod graph;
mod imports;
mod tokens;

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;

use graph::{Graph, top_module};

/// The top-level modules of `verbs-core/src`, folders and single files, from the lowest layer to the highest. A
/// module imports from itself and from the layers above its line.
const CORE_LAYERS: &[&[&str]] = &[
    &["lock", "testing"],
    &["sync"],
    &["sys"],
    &["work"],
    &["driver"],
    &["drivers"],
    &["engine"],
    &["lib"],
];

/// The modules of `rdmacm/src`.
const LAYERS: &[&[&str]] = &[
    &["non_exhaustive"],
    &["sys"],
    &["error"],
    &["acks", "registry"],
    &["device"],
    &["addr"],
    &["verbs"],
    &["cm"],
    &["endpoint"],
    &["fuzzing", "guide"],
    &["lib"],
];

/// Files that import from a module which is not below their own.
const UPWARD: &[(&str, &str)] = &[];

/// Files that are part of a circle of imports within their module.
const CIRCULAR: &[&str] = &[];

/// Returns the imports that [`LAYERS`] forbids: the file, and the module from which it imports.
fn upward(graph: &Graph, layers: &[&[&str]]) -> BTreeSet<(String, String)> {
    let layer = |module: &str| {
        let layer = layers.iter().position(|modules| modules.contains(&module));
        layer.unwrap_or_else(|| panic!("{module} should have a line in LAYERS of tests/layers"))
    };
    let placed = graph.files().map(|file| layer(top_module(file)));
    assert!(placed.max() < Some(layers.len()));
    graph
        .edges()
        .map(|(from, to)| (from, top_module(from), top_module(to)))
        .filter(|(_, from, to)| from != to && layer(from) <= layer(to))
        .map(|(file, _, to)| (file.to_owned(), to.to_owned()))
        .collect()
}

/// Compares what was found with the list that names it.
#[track_caller]
fn compare<T: Ord + std::fmt::Debug>(found: &BTreeSet<T>, listed: &BTreeSet<T>, list: &str) {
    let new: Vec<_> = found.difference(listed).collect();
    assert!(new.is_empty(), "imports that the layers forbid (not in {list}): {new:#?}");
    let stale: Vec<_> = listed.difference(found).collect();
    assert!(stale.is_empty(), "exceptions that are not needed any more, in {list}: {stale:#?}");
}

fn library(package: &str) -> Graph {
    let sources = Path::new(env!("CARGO_MANIFEST_DIR")).join("..").join(package).join("src");
    Graph::read(|file| fs::read_to_string(sources.join(file)).ok())
}

#[test]
fn module_imports_only_from_lower_modules() {
    let listed = UPWARD.iter().map(|(file, module)| ((*file).to_owned(), (*module).to_owned()));
    compare(&upward(&library("rdmacm"), LAYERS), &listed.collect(), "UPWARD");
    assert_eq!(upward(&library("verbs-core"), CORE_LAYERS), BTreeSet::new());
}

#[test]
fn files_of_module_do_not_import_in_circles() {
    assert_eq!(library("verbs-core").circular(), BTreeSet::new());
    compare(&library("rdmacm").circular(), &CIRCULAR.iter().copied().collect(), "CIRCULAR");
}

/// Every source file is read: the graph follows `mod` declarations as the compiler does.
#[test]
fn graph_has_all_library_files() {
    assert!(library("verbs-core").files().any(|file| file == "drivers/rxe/queue.rs"));
    let library = library("rdmacm");
    for file in ["lib.rs", "sys/mod.rs", "verbs/queue_pair.rs", "cm/id.rs", "endpoint/mod.rs"] {
        assert!(library.files().any(|found| found == file), "{file} is missing");
    }
    let edges: Vec<_> = library.edges().collect();
    for edge in [("cm/id.rs", "registry.rs"), ("verbs/pd.rs", "verbs/context.rs")] {
        assert!(edges.contains(&edge), "{edge:?} is missing");
    }
}

mod planted {
    use super::*;

    const MODULES: &[&[&str]] = &[&["low"], &["left", "right"], &["lib"]];

    fn found(low: &'static str, left: &'static str) -> Vec<String> {
        let graph = Graph::read(|file| {
            let text = match file {
                "lib.rs" => "mod low; mod left; mod right;",
                "low.rs" => low,
                "left/mod.rs" => left,
                "left/part.rs" => "use super::f;",
                "right.rs" => "use crate::low::f;",
                _ => return None,
            };
            Some(text.to_owned())
        });
        let circles = graph.circular().into_iter().map(str::to_owned);
        upward(&graph, MODULES)
            .into_iter()
            .map(|(file, module)| file + " " + &module)
            .chain(circles)
            .collect()
    }

    #[test]
    fn downward_imports_are_allowed() {
        assert_eq!(found("", "use crate::low::f; mod part;"), [""; 0]);
    }

    #[test]
    fn upward_import_is_found() {
        assert_eq!(found("fn f() { crate::left::f() }", ""), ["low.rs left"]);
        assert_eq!(found("use super::right;", ""), ["low.rs right"]);
    }

    #[test]
    fn import_within_layer_is_found() {
        assert_eq!(found("", "use crate::right::g as f;"), ["left/mod.rs right"]);
    }

    #[test]
    fn cycle_is_found() {
        let left = "mod part; fn f() { part::f() }";
        assert_eq!(found("", left), ["left/mod.rs", "left/part.rs"]);
    }

    #[test]
    #[should_panic(expected = "right should have a line in LAYERS")]
    fn module_without_layer_is_refused() {
        let graph = Graph::read(|file| {
            let text = if file == "lib.rs" { "mod right;" } else { "" };
            (file != "right/mod.rs").then(|| text.to_owned())
        });
        upward(&graph, &[&["lib"]]);
    }

    #[test]
    #[should_panic(expected = "not in EXAMPLE")]
    fn unlisted_import_fails() {
        compare(&BTreeSet::from([1, 2]), &BTreeSet::from([1]), "EXAMPLE");
    }

    #[test]
    #[should_panic(expected = "not needed any more, in EXAMPLE")]
    fn exception_without_need_fails() {
        compare(&BTreeSet::from([1]), &BTreeSet::from([1, 2]), "EXAMPLE");
    }
}
