//! `rdma_server` and `rdma_client`, `ucmatose`, and `cmtime`.
//!
//! The first two exchange one message each, `ucmatose` makes many connections, and `cmtime` times them.

use std::env;
use std::fs;
use std::process::{self, Command};

use rdmacm::device;
use rdmacm_tests::roce::{roce_ip, roce_ip_v6};
use rdmacm_tests::{Ended, Process};

use crate::SIW;
use crate::rping::{LIMIT, Program, listening, port};

pub(crate) fn messages(server: Program, client: Program) {
    exchange(server, client, roce_ip());
}

pub(crate) fn messages_over_ipv6(server: Program, client: Program) {
    exchange(server, client, roce_ip_v6());
}

pub(crate) fn siw_messages(server: Program, client: Program) {
    exchange(server, client, SIW);
}

fn exchange(server: Program, client: Program, address: &str) {
    let port = port();
    let options = ["-s", address, "-p", &port];
    let server = listening(server.run("rdma_server", &options));
    let client = client.run("rdma_client", &options);
    printed(client, &["rdma_client: start", "rdma_client: end 0"]);
    printed(server, &["rdma_server: start", "rdma_server: end 0"]);
}

pub(crate) fn hundred_connections_migrate(server: Program, client: Program) {
    connect(server, client, roce_ip(), &["-c", "100", "-m"]);
}

pub(crate) fn connections_with_tos(server: Program, client: Program) {
    connect(
        server,
        client,
        roce_ip(),
        &["-c", "5", "-t", "0x20", "-a", "14", "-S", "4000", "-C", "30"],
    );
}

pub(crate) fn connections_in_infiniband_port_space(server: Program, client: Program) {
    connect(server, client, roce_ip(), &["-c", "5", "-P", "ib"]);
}

pub(crate) fn connections_over_ipv6(server: Program, client: Program) {
    connect(server, client, roce_ip_v6(), &["-c", "5"]);
}

/// Runs the two programs with the same options, and checks every line that they print.
fn connect(server: Program, client: Program, address: &str, options: &[&str]) {
    let port = port();
    let with = |side: &str| {
        let mut arguments = vec![side.to_owned(), address.to_owned(), "-p".into(), port.clone()];
        arguments.extend(options.iter().map(|option| (*option).to_owned()));
        arguments
    };
    let run = |program: Program, side: &str| {
        let arguments = with(side);
        program.run("ucmatose", &arguments.iter().map(String::as_str).collect::<Vec<_>>())
    };
    let server = listening(run(server, "-b"));
    let client = run(client, "-s");
    let moves = options.contains(&"-m").then_some("migrating to new event channel");
    let transfers = ["receiving data transfers", "sending replies", "data transfers complete"];
    let end = ["test complete", "return status 0"];
    let begin = ["cmatose: starting client", "cmatose: connecting"];
    printed(client, &[&begin[..], &transfers, moves.as_slice(), &end].concat());
    let begin = ["cmatose: starting server", "initiating data transfers", "completing sends"];
    let transfers = ["receiving data transfers", "data transfers complete"];
    let parting = ["cmatose: disconnecting", "disconnected"];
    printed(server, &[&begin[..], &transfers, moves.as_slice(), &parting, &end].concat());
}

pub(crate) fn timed_connections(server: Program, client: Program) {
    let begin = ["creating id"];
    let steps = ["resolving address", "resolving route", "creating qp", "connecting"];
    let end = ["disconnecting", "destroying id"];
    let heading = ["step              total ms     max ms     min us  us / conn"];
    let rows = ["resolve addr", "resolve route", "create qp", "connect", "disconnect", "destroy"];
    for bound in [false, true] {
        let port = port();
        let mut server = listening(server.run("cmtime", &["-b", roce_ip(), "-p", &port]));
        let mut options = vec!["-s", roce_ip(), "-p", &port, "-c", "5"];
        if bound {
            options.extend(["-b", roce_ip()]);
        }
        let ended = client.run("cmtime", &options).finish();
        server.kill();
        assert!(ended.status.success(), "{}: {}", ended.status, ended.stderr);
        let bind = |line| bound.then_some(line);
        let (binding, row) = (bind("binding source address"), bind("bind addr"));
        let lines = [
            &begin,
            binding.as_slice(),
            &steps,
            &end,
            &heading,
            &["create id"],
            row.as_slice(),
            &rows,
        ];
        let shown = ended.stdout.iter().map(|line| match line.split_once(':') {
            None => line.as_str(),
            Some((name, numbers)) => {
                assert_eq!((name.len(), numbers.len()), (13, 45), "{line}");
                for number in numbers.split_whitespace() {
                    let (_, fraction) = number.split_once('.').expect("a fraction");
                    assert_eq!(fraction.len(), 2, "{line}");
                }
                name.trim_end()
            }
        });
        assert_eq!(shown.collect::<Vec<_>>(), lines.concat());
    }
}

/// Checks that a program succeeds and has printed `lines`.
#[track_caller]
pub(crate) fn printed(program: Process, lines: &[&str]) {
    let ended = program.finish();
    assert!(ended.status.success(), "{}: {}\n{:?}", ended.status, ended.stderr, ended.stdout);
    assert_eq!(ended.stdout, lines, "{}", ended.stderr);
}

/// Checks that our `cmatose`, ended too early, reports the operation that failed.
#[track_caller]
fn assert_failed(ended: &Ended, words: &str) {
    assert_eq!(ended.status.code(), Some(1), "{}\n{:?}", ended.stderr, ended.stdout);
    let line = format!("rdmatools cmatose: {words}");
    assert!(ended.stderr.starts_with(&line), "{}", ended.stderr);
}

fn cmatose(arguments: &[&str]) -> Process {
    Program::Ours.run("ucmatose", arguments)
}

/// Connects to a server without messages to send, which ends the connection at once.
///
/// The client waits for messages.
fn silent_server_is_tolerated(address: &str, words: &str) {
    let port = port();
    let server = listening(cmatose(&["-b", address, "-p", &port, "-C", "0"]));
    let client = cmatose(&["-s", address, "-p", &port]).finish();
    assert_failed(&client, words);
    let server = server.finish();
    assert!(server.status.success(), "{}", server.stderr);
}

#[test]
#[ignore = "needs the test bed: cargo xtask test"]
fn silent_cmatose_server_is_tolerated() {
    silent_server_is_tolerated(roce_ip(), "the peer has ended the connection");
}

#[test]
#[ignore = "needs the test bed: cargo xtask test"]
fn siw_silent_cmatose_server_is_tolerated() {
    // On siw the receives are flushed before the event arrives.
    silent_server_is_tolerated(SIW, "");
}

/// Kills a server while it waits for another client before it sends.
fn killed_server_is_reported(address: &str) {
    let port = port();
    let mut server = listening(cmatose(&["-b", address, "-p", &port, "-c", "2"]));
    let mut client = cmatose(&["-s", address, "-p", &port]);
    while client.next_line().expect("the client should wait") != "receiving data transfers" {}
    server.kill();
    assert_failed(&client.finish(), "");
}

#[test]
#[ignore = "needs the test bed: cargo xtask test"]
fn killed_cmatose_server_is_reported() {
    killed_server_is_reported(roce_ip());
}

#[test]
#[ignore = "needs the test bed: cargo xtask test"]
fn siw_killed_cmatose_server_is_reported() {
    killed_server_is_reported(SIW);
}

/// Runs a server and its client, which send nothing, and returns how both end.
///
/// The first value has the server's writes to the connection manager, as strace shows them; `injection` changes some of
/// them.
fn watched(injection: &[&str]) -> (Vec<String>, [Ended; 2]) {
    let port = port();
    let trace = env::temp_dir().join(format!("cmatose-{}-{port}", process::id()));
    let tools = Program::Ours.command("ucmatose");
    let mut strace = Command::new("strace");
    strace.args(["-D", "-f", "-e", "trace=write"]).args(injection);
    strace.arg("-P").arg(device::cm_char_device().path()).arg("-o").arg(&trace);
    strace.arg(tools.get_program()).args(tools.get_args());
    strace.args(["-b", roce_ip(), "-p", &port, "-C", "0"]);
    let server = listening(Process::start(&mut strace, LIMIT));
    let client = cmatose(&["-s", roce_ip(), "-p", &port, "-C", "0"]).finish();
    let ended = [server.finish(), client];
    let text = fs::read_to_string(&trace).expect("read the trace");
    fs::remove_file(trace).expect("the trace should exist");
    (text.lines().filter(|line| line.contains(" write(")).map(str::to_owned).collect(), ended)
}

/// Checks that a server reports a refused disconnect command, and both programs end.
#[test]
#[ignore = "needs the test bed: cargo xtask test"]
fn refused_disconnect_is_reported_by_cmatose_server() {
    let (writes, ended) = watched(&[]);
    assert!(ended.iter().all(|ended| ended.status.success()), "{ended:?}");
    // The command has number 10.
    let disconnect = writes.iter().position(|line| line.contains(r#", "\n\0\0\0"#));
    let number = disconnect.expect("the client should disconnect") + 1;
    let injection = format!("inject=write:error=EIO:when={number}");
    let (writes, [server, client]) = watched(&["-e", &injection]);
    assert!(writes.iter().any(|line| line.contains("(INJECTED)")), "{writes:?}");
    assert_failed(&server, "cannot disconnect");
    assert!(client.status.success(), "{}", client.stderr);
}
