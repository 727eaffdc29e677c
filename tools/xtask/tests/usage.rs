//! Exit statuses and messages of the command line.

use std::process::{Command, Output};

fn xtask(line: &str) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_xtask"));
    command.args(line.split_whitespace()).output().expect("xtask should run")
}

#[test]
fn wrong_command_line_exits_with_2() {
    for (line, status, part) in [
        ("help", 0, "Usage: cargo xtask <COMMAND>"),
        ("fly", 2, "unrecognized subcommand"),
        ("vm --kernel 5.4 -- true", 2, "invalid value '5.4'"),
    ] {
        let output = xtask(line);
        let stream = if status == 0 { &output.stdout } else { &output.stderr };
        let text = String::from_utf8_lossy(stream);
        assert_eq!(output.status.code(), Some(status), "{line}: {text}");
        assert!(text.contains(part), "{line}: {text}");
    }
}
