use std::fs;

use super::*;

#[test]
fn every_listed_prefix_runs_example() {
    for prefix in EXAMPLE_TESTS {
        let (module, test) = prefix.split_once("::").expect("the prefix should name a module");
        let file = host::workspace().join(format!("tests/peers/{module}.rs"));
        let text = fs::read_to_string(file).expect("the module should be a file of the peers");
        assert!(text.contains(&format!("fn {test}")), "no test begins with {prefix}");
        assert!(text.contains("example"), "{module} runs no example");
    }
}

#[test]
fn every_module_with_examples_is_listed() {
    let listed =
        |module: &str| EXAMPLE_TESTS.iter().any(|prefix| prefix.split("::").next() == Some(module));
    let peers = fs::read_dir(host::workspace().join("tests/peers")).expect("a directory");
    let files = peers.map(|entry| entry.expect("an entry").path()).filter(|path| path.is_file());
    let mut with_examples = 0;
    for file in files {
        let text = fs::read_to_string(&file).expect("a text");
        if text.contains("example(") || text.contains("example_within(") {
            let module = file.file_stem().and_then(|name| name.to_str()).expect("a plain name");
            assert!(listed(module), "tests of {module} run examples: add them to EXAMPLE_TESTS");
            with_examples += 1;
        }
    }
    assert!(with_examples >= 5, "{with_examples} modules");
}
