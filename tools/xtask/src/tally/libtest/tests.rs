use super::*;

#[test]
fn result_line_is_counted() {
    let line = "test result: FAILED. 2 passed; 1 failed; 4 ignored; 0 measured; 0 filtered out; finished in 0.1s";
    assert_eq!(result(line), Some(Counts { passed: 2, failed: 1, skipped: 0 }));
    for line in ["test result: ok. many passed; 0 failed", "test result: ok. 10 passed", "ok"] {
        assert_eq!(result(line), None, "{line}");
    }
}

#[test]
fn benchmarks_are_not_tests() {
    assert_eq!(listed("a::b: test\nc: test\nd: bench\n\n"), ["a::b", "c"]);
}

#[test]
fn only_test_programs_are_found() {
    let line = |manifest: &str, name: &str, is_test: bool, executable: &str| {
        format!(
            r#"{{"reason":"compiler-artifact","package_id":"x","manifest_path":"{manifest}","target":{{"kind":["lib"],"name":"{name}","test":true}},"profile":{{"opt_level":"1","test":{is_test}}},"features":[],"executable":{executable},"fresh":true}}"#
        )
    };
    let messages = [
        line("/w/tests/Cargo.toml", "kernel", true, r#""/t \"q\"/kernel-1""#),
        line("/w/a/Cargo.toml", "z", true, r#""/t/z-1""#),
        line("/w/tests/Cargo.toml", "headers", true, r#""/t/headers-1""#),
        line("/w/tests/Cargo.toml", "soak", false, r#""/t/soak""#),
        line("/w/tests/Cargo.toml", "unbuilt", true, "null"),
        r#"{"reason":"build-finished","success":true}"#.to_owned(),
    ];
    let artifact = |package: &str, target: &str, program: &str| Artifact {
        manifest: format!("/w/{package}/Cargo.toml"),
        target: target.to_owned(),
        program: program.to_owned(),
        runner: None,
    };
    let expected = [
        artifact("a", "z", "/t/z-1"),
        artifact("tests", "headers", "/t/headers-1"),
        artifact("tests", "kernel", "/t \"q\"/kernel-1"),
    ];
    assert_eq!(test_programs(&messages.join("\n")), expected);
}
