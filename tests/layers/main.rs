//! The modules of the library import only from layers below their own, and never in circles.
//!
//! [`LAYERS`] is the table of layers of `rdmacm`, [`ENDPOINT_LAYERS`] that of its largest folder, [`CORE_LAYERS`] that
//! of `verbs-core`, and [`XTASK_LAYERS`] that of the tasks. There are no exceptions. The core of an endpoint also has
//! no clock, locks, descriptors or `unsafe` code.

mod graph;
mod imports;
mod tokens;

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

use graph::{Graph, top_module};
use imports::imports;

/// The top-level modules of `verbs-core/src`, from the lowest layer to the highest.
///
/// A module is a folder or a single file. It imports from itself and from the layers above its line.
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

/// The folders and files of `rdmacm/src/endpoint`. Those above `mod` may import what `mod.rs` exports.
const ENDPOINT_LAYERS: &[&[&str]] = &[
    &["core"],
    &["connection_config", "datagram_config", "to_addresses"],
    &["shared"],
    &["wait"],
    &["memory"],
    &["operations"],
    &["connection"],
    &["connect"],
    &["datagrams"],
    &["poll_group"],
    &["mod"],
    &["task"],
    &["null_connection", "smol", "tokio"],
];

/// The folders and files of `tools/xtask/src`.
const XTASK_LAYERS: &[&[&str]] =
    &[&["host"], &["testbed"], &["tally"], &["tasks"], &["args"], &["main"]];

/// Names that the core of an endpoint does not import: clocks, locks, threads and descriptors.
const IMPURE_NAMES: &[&str] = &[
    "Arc",
    "Mutex",
    "RwLock",
    "Condvar",
    "Instant",
    "SystemTime",
    "AsFd",
    "AsRawFd",
    "OwnedFd",
    "thread",
];

/// Modules of the library that the core of an endpoint does not import.
const IMPURE_MODULES: &[&str] = &["sys", "lock", "sync", "cm"];

/// Returns the names and modules in the code of a file that the core of an endpoint must not use.
fn impurities(text: &str) -> BTreeSet<String> {
    let found = imports(text);
    let paths = found.uses.iter().map(|used| &used.path).chain(&found.paths);
    let in_paths = paths.flat_map(|path| {
        let module = path.segments.first().filter(|first| *first == "crate");
        let module = module.and_then(|_| path.segments.get(1));
        let module = module.filter(|module| IMPURE_MODULES.contains(&module.as_str()));
        let names = path.segments.iter().filter(|name| IMPURE_NAMES.contains(&name.as_str()));
        names.chain(module).cloned().collect::<Vec<_>>()
    });
    let is_unsafe = found.words.iter().any(|word| word == "unsafe");
    in_paths.chain(is_unsafe.then(|| "unsafe".to_owned())).collect()
}

/// Returns the imports within `folder` that the table of `layers` forbids.
///
/// Each is a file, and the module from which it imports.
fn upward(graph: &Graph, folder: &str, layers: &[&[&str]]) -> BTreeSet<(String, String)> {
    let layer = |module: &str| {
        let layer = layers.iter().position(|modules| modules.contains(&module));
        layer.unwrap_or_else(|| panic!("{module} should have a line in LAYERS of tests/layers"))
    };
    let files = graph.files().filter_map(|file| file.strip_prefix(folder));
    let placed: BTreeSet<_> = files.map(top_module).inspect(|module| _ = layer(module)).collect();
    for module in layers.iter().copied().flatten() {
        assert!(placed.contains(module), "{module} has a line in the table, and no file");
    }
    graph
        .edges()
        .filter_map(|(from, to)| Some((from.strip_prefix(folder)?, to.strip_prefix(folder)?)))
        .map(|(from, to)| (from, top_module(from), top_module(to)))
        .filter(|(_, from, to)| from != to && layer(from) <= layer(to))
        .map(|(file, _, to)| (file.to_owned(), to.to_owned()))
        .collect()
}

fn sources(package: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("..").join(package).join("src")
}

fn library(package: &str) -> Graph {
    Graph::read("lib.rs", |file| fs::read_to_string(sources(package).join(file)).ok())
}

#[test]
fn module_imports_only_from_lower_modules() {
    assert_eq!(upward(&library("rdmacm"), "", LAYERS), BTreeSet::new());
    assert_eq!(upward(&library("rdmacm"), "endpoint/", ENDPOINT_LAYERS), BTreeSet::new());
    assert_eq!(upward(&library("verbs-core"), "", CORE_LAYERS), BTreeSet::new());
}

#[test]
fn folder_of_xtask_imports_only_from_lower_ones() {
    let read = |file: &str| fs::read_to_string(sources("tools/xtask").join(file)).ok();
    let graph = Graph::read("main.rs", read);
    assert!(graph.files().any(|file| file == "testbed/guest_pair.rs"));
    assert_eq!(upward(&graph, "", XTASK_LAYERS), BTreeSet::new());
    assert_eq!(graph.circular(), BTreeSet::new());
}

/// Checks the files of the core except those that are compiled for tests only.
#[test]
fn endpoint_core_has_no_clock_locks_or_descriptors() {
    let library = library("rdmacm");
    let exempt = "endpoint/core/fuzzing.rs";
    let core = library.files().filter(|file| file.starts_with("endpoint/core/") && *file != exempt);
    let mut count = 0;
    for file in core {
        let text = fs::read_to_string(sources("rdmacm").join(file)).expect("a source file");
        assert_eq!(impurities(&text), BTreeSet::new(), "{file}");
        count += 1;
    }
    assert!(count > 12, "{count} files");
}

#[test]
fn files_of_module_do_not_import_in_circles() {
    assert_eq!(library("verbs-core").circular(), BTreeSet::new());
    assert_eq!(library("rdmacm").circular(), BTreeSet::new());
}

/// Checks that the graph, which follows `mod` declarations, has files and imports of all depths.
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
        let graph = Graph::read("lib.rs", |file| {
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
        upward(&graph, "", MODULES)
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
    fn impurity_is_found() {
        let text = "
            #[cfg(doc)] use crate::cm::CmId;
            #[cfg(test)] mod tests { use std::sync::Arc; }
            use std::{sync::Mutex, time::{Duration, Instant}};
            fn f() { crate::lock::f(); std::thread::yield_now(); unsafe { g() } }";
        let found: Vec<_> = impurities(text).into_iter().collect();
        assert_eq!(found, ["Instant", "Mutex", "lock", "thread", "unsafe"]);
    }

    #[test]
    fn upward_import_is_found() {
        assert_eq!(found("fn f() { crate::left::f() }", ""), ["low.rs left"]);
        assert_eq!(found("use super::right;", ""), ["low.rs right"]);
    }

    #[test]
    fn upward_import_in_folder_is_found() {
        let found = |low: &'static str| -> Vec<String> {
            let graph = Graph::read("lib.rs", |file| {
                let text = match file {
                    "lib.rs" => "mod inner; mod other;",
                    "inner/mod.rs" => "mod low; mod high; pub use high::H;",
                    "inner/low/mod.rs" => "mod part; pub struct L;",
                    "inner/low/part.rs" => low,
                    "inner/high/mod.rs" => {
                        "pub use super::low::L; use crate::other::g; pub struct H;"
                    }
                    "other.rs" => "",
                    _ => return None,
                };
                Some(text.to_owned())
            });
            let found = upward(&graph, "inner/", &[&["low"], &["high"], &["mod"]]);
            found.into_iter().map(|(file, module)| file + " " + &module).collect()
        };
        assert_eq!(found("use crate::other::g; use super::L;"), [""; 0]);
        assert_eq!(found("fn f() { crate::inner::high::h() }"), ["low/part.rs high"]);
        // The name is exported by the folder, by a module above, or with all others.
        assert_eq!(found("use crate::inner::H;"), ["low/part.rs high"]);
        assert_eq!(found("use crate::inner::high::L;"), ["low/part.rs high"]);
        assert_eq!(found("use crate::inner::*;"), ["low/part.rs mod"]);
    }

    #[test]
    #[should_panic(expected = "gone has a line in the table, and no file")]
    fn line_without_file_is_refused() {
        let graph = Graph::read("lib.rs", |_| Some(String::new()));
        upward(&graph, "", &[&["gone"], &["lib"]]);
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
        let graph = Graph::read("lib.rs", |file| {
            let text = if file == "lib.rs" { "mod right;" } else { "" };
            (file != "right/mod.rs").then(|| text.to_owned())
        });
        upward(&graph, "", &[&["lib"]]);
    }
}
