//! What the README shows is what is there.

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
