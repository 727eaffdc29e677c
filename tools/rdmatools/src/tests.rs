use clap::{Args, Command};

use super::*;

/// Parses the options of a tool from a line without its name.
pub(crate) fn options<T: Args>(name: &'static str, line: &str) -> Result<T, clap::Error> {
    let command = T::augment_args(Command::new(name).no_binary_name(true));
    let matches = command.try_get_matches_from(line.split_whitespace())?;
    T::from_arg_matches(&matches)
}

/// Returns status, output and errors of a call.
fn call(line: &str) -> (u8, String, String) {
    let (mut out, mut err) = (Vec::new(), Vec::new());
    let status = run(line.split(' ').map(OsString::from).collect(), &mut out, &mut err);
    (status, String::from_utf8(out).unwrap(), String::from_utf8(err).unwrap())
}

/// An output whose operations all fail with this error.
struct Broken(ErrorKind);

impl Write for Broken {
    fn write(&mut self, _: &[u8]) -> io::Result<usize> {
        Err(self.0.into())
    }

    fn flush(&mut self) -> io::Result<()> {
        Err(self.0.into())
    }
}

#[test]
fn help_succeeds_and_is_printed() {
    for line in ["rdmatools --help", "rdmatools help", "rdmatools link --help", "/bin/link -h"] {
        let (status, out, err) = call(line);
        assert_eq!((status, err.as_str()), (0, ""), "{line}");
        assert!(out.contains("Usage: rdmatools"), "{out}");
    }
    let (_, out, _) = call("rdmatools --help");
    assert!(out.contains("devinfo") && out.contains("Exit status"), "{out}");
}

#[test]
fn wrong_usage_exits_with_2() {
    let lines = [
        "rdmatools",
        "rdmatools nonsense",
        "rdmatools devinfo --nonsense",
        "rdmatools link add rxe0",
        "rdmatools link add rxe0 type mlx5 netdev eth0",
        "rdmatools link add rxe0 kind rxe netdev eth0",
        "rdmatools rdma_xserver -c y",
        "link delete",
    ];
    for line in lines {
        let (status, out, err) = call(line);
        assert_eq!((status, out.as_str()), (2, ""), "{line}");
        assert!(err.contains("Usage") || err.contains("--help"), "{line}: {err}");
    }
}

#[test]
fn unknown_link_action_lists_actions() {
    let (status, _, err) = call("rdmatools link nope");
    assert_eq!(status, 2);
    assert!(err.contains("[show|add|delete]"), "{err}");
}

#[test]
fn alias_selects_applet() {
    for line in ["rdmatools ucmatose --nonsense", "/usr/bin/ucmatose --nonsense"] {
        let (status, _, err) = call(line);
        assert_eq!(status, 2, "{line}");
        assert!(err.contains("Usage: rdmatools cmatose"), "{line}: {err}");
    }
}

#[test]
fn failure_exits_with_1_and_names_applet() {
    for line in [
        "rdmatools link add rxe%d type rxe netdev lo",
        "/usr/bin/link add rxe%d type rxe netdev lo",
    ] {
        let (status, out, err) = call(line);
        assert_eq!((status, out.as_str()), (1, ""));
        assert!(err.starts_with("rdmatools link: cannot add the RDMA link rxe%d"), "{err}");
        assert_eq!(err.lines().count(), 1);
    }
}

#[test]
fn closed_output_is_no_failure() {
    let mut err = Vec::new();
    let mut status = |kind: ErrorKind| report(Err(io::Error::from(kind).into()), "link", &mut err);
    assert_eq!(status(ErrorKind::BrokenPipe), 0);
    assert_eq!(status(ErrorKind::StorageFull), 1);
    assert!(String::from_utf8(err).unwrap().starts_with("rdmatools link: cannot write"));
    let help = ["rdmatools", "--help"].map(OsString::from).to_vec();
    assert_eq!(run(help, &mut Broken(ErrorKind::BrokenPipe), &mut Broken(ErrorKind::Other)), 0);
}

#[test]
fn definition_is_consistent() {
    command_line(&APPLETS).debug_assert();
}
