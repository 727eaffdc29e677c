//! How the command line is answered.

use std::process::{Command, Output};

fn xtask(line: &str) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_xtask"));
    command.args(line.split_whitespace()).output().expect("run it")
}

#[test]
fn a_wrong_command_line_has_a_status_of_its_own() {
    for (line, status, part) in [
        ("help", 0, "usage: cargo xtask COMMAND"),
        ("fly", 2, "unknown command"),
        ("vm --kernel 5.4 -- true", 2, "--kernel does not take"),
    ] {
        let output = xtask(line);
        let heard = if status == 0 { &output.stdout } else { &output.stderr };
        let said = String::from_utf8_lossy(heard);
        assert_eq!(output.status.code(), Some(status), "{line}: {said}");
        assert!(said.contains(part), "{line}: {said}");
    }
}
