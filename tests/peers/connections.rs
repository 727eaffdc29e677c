//! `rdma_server` and `rdma_client`, which exchange one message each; and `ucmatose`, which makes
//! many connections, and `cmtime`, which times them.

use rdmacm_tests::Process;

use crate::rping::{Program, listening, port};
use crate::{SIW, V4, V6};

pub(crate) fn messages(server: Program, client: Program) {
    exchange(server, client, V4);
}

pub(crate) fn messages_over_ipv6(server: Program, client: Program) {
    exchange(server, client, V6);
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

pub(crate) fn a_hundred_connections_that_migrate(server: Program, client: Program) {
    connect(server, client, V4, &["-c", "100", "-m"]);
}

pub(crate) fn connections_with_a_type_of_service(server: Program, client: Program) {
    connect(server, client, V4, &["-c", "5", "-t", "0x20", "-a", "14", "-S", "4000", "-C", "30"]);
}

pub(crate) fn connections_in_the_port_space_of_infiniband(server: Program, client: Program) {
    connect(server, client, V4, &["-c", "5", "-P", "ib"]);
}

pub(crate) fn connections_over_ipv6(server: Program, client: Program) {
    connect(server, client, V6, &["-c", "5"]);
}

/// Runs the two programs with the same options, and looks at every line that they print.
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
        let mut server = listening(server.run("cmtime", &["-b", V4, "-p", &port]));
        let mut options = vec!["-s", V4, "-p", &port, "-c", "5"];
        if bound {
            options.extend(["-b", V4]);
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

/// That a program ends well, and has printed `lines`.
#[track_caller]
pub(crate) fn printed(program: Process, lines: &[&str]) {
    let ended = program.finish();
    assert!(ended.status.success(), "{}: {}\n{:?}", ended.status, ended.stderr, ended.stdout);
    assert_eq!(ended.stdout, lines, "{}", ended.stderr);
}
