//! What the README shows, and the tests that the semantics name, are there.

use std::fs;
use std::path::Path;

/// A program that the README shows is the example of that name, to the letter.
fn shows(example: &str) {
    let readme = include_str!("../../README.md");
    assert!(readme.contains(&format!("```rust\n{example}```\n")), "the README shows another text");
}

#[test]
fn the_server_is_the_example() {
    shows(include_str!("../../rdmacm/examples/server.rs"));
}

#[test]
fn the_client_is_the_example() {
    shows(include_str!("../../rdmacm/examples/client.rs"));
}

/// Every file of Rust under `directory`, of this repository.
fn sources(directory: &str) -> String {
    let mut text = String::new();
    let mut directories = vec![Path::new(env!("CARGO_MANIFEST_DIR")).join("..").join(directory)];
    while let Some(directory) = directories.pop() {
        for entry in fs::read_dir(&directory).expect("read a directory") {
            let path = entry.expect("read an entry").path();
            if path.is_dir() {
                directories.push(path);
            } else if path.extension().is_some_and(|extension| extension == "rs") {
                text += &fs::read_to_string(&path).expect("read a file");
            }
        }
    }
    text
}

#[test]
fn every_test_of_the_semantics_is_there() {
    let (tests, library) = (sources("tests"), sources("rdmacm/src"));
    let table = include_str!("../SEMANTICS.md");
    let mut count = 0;
    for row in table.lines().filter(|line| line.starts_with("| ") && !line.starts_with("| #")) {
        let shown_by = row.split('|').nth(4).expect("a last column");
        for name in shown_by.split('`').skip(1).step_by(2) {
            let (source, name) = match name.split_once("::") {
                Some(("addr", "info")) => continue,
                Some((_, name)) => (&tests, name),
                None => (&library, name),
            };
            let written = [format!("fn {name}("), format!("    {name}: \"")];
            assert!(written.iter().any(|text| source.contains(text)), "there is no test {name}");
            count += 1;
        }
        assert!(shown_by.contains('`'), "nothing shows {row}");
    }
    assert!(count >= 28, "{count} tests");
}
