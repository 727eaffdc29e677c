//! Tests of our programs against those of rdma-core, in every combination.
//!
//! `cargo xtask test` runs them in the test bed.

mod bytes;
mod card;
mod connections;
mod rping;

use connections::{
    connections_in_infiniband_port_space, connections_over_ipv6, connections_with_tos,
    hundred_connections_migrate, messages, messages_over_ipv6, siw_messages, timed_connections,
};
use rdmacm_tests::roce::{roce_ip, roce_ip_v6};
use rdmacm_tests::{Ended, wait_until};
use rping::{Program, Server, connect, expected};

/// Makes four tests of each body, which takes the server's program and the client's.
macro_rules! every_pair {
    ($($body:ident)*) => {$(
        mod $body {
            use crate::rping::Program::{C, Ours};

            #[test]
            #[ignore = "needs the test bed: cargo xtask test"]
            fn ours_serves_ours() {
                super::$body(Ours, Ours);
            }

            #[test]
            #[ignore = "needs the test bed: cargo xtask test"]
            fn ours_serves_c() {
                super::$body(Ours, C);
            }

            #[test]
            #[ignore = "needs the test bed: cargo xtask test"]
            fn c_serves_ours() {
                super::$body(C, Ours);
            }

            #[test]
            #[ignore = "needs the test bed: cargo xtask test"]
            fn c_serves_c() {
                super::$body(C, C);
            }
        }
    )*};
}

mod datagram;
mod endpoint;
mod endpoint_datagrams;
mod endpoint_rping;
mod endpoint_tokio;
mod examples;
mod faults;
mod file_copy;
mod functions;
mod journal;
mod key_value;
mod link;
mod perf;
mod perftest;
mod pingpong;
mod selftest;
mod shared;
mod task_echo;
mod xrc_connection;

every_pair! {
    pings
    ipv6
    eight_clients
    killed_server_ends_client
    siw_pings
    messages
    messages_over_ipv6
    siw_messages
    hundred_connections_migrate
    connections_with_tos
    connections_over_ipv6
    connections_in_infiniband_port_space
    timed_connections
}

const SIW: &str = "10.0.0.2";
const SIW_V6: &str = "fd00::2";

/// Runs the two programs once, and checks all of their output.
fn run(server: Program, client: Program, address: &str, size: usize, count: usize) {
    let run = format!("{client:?} to {server:?}: {count} pings of {size} bytes");
    let started = Server::start(server, address, &["-v", "-S", &size.to_string()]);
    let client_ended = connect(client, &started, size, count, &["-v", "-V"]).finish();
    let server_ended = started.process.finish();
    ended_well(client, &client_ended, &run);
    ended_well(server, &server_ended, &run);
    assert_lines(&client_ended.stdout, "ping data", size, count, &run);
    assert_lines(&server_ended.stdout, "server ping data", size, count, &run);
}

/// Checks that the program succeeded.
///
/// rdma-core's program may, when all is done, close its channel while one of its threads waits there. That wait then
/// fails, and so does the program.
#[track_caller]
fn ended_well(program: Program, ended: &Ended, run: &str) {
    let ends_itself = ended.stderr.contains("rdma_get_cm_event: Bad file descriptor");
    let is_well = ended.status.success() || program == Program::C && ends_itself;
    assert!(is_well, "{run}: {program:?} {}: {}", ended.status, ended.stderr);
}

#[track_caller]
fn assert_lines(lines: &[String], heading: &str, size: usize, count: usize, run: &str) {
    for (number, line) in lines.iter().enumerate() {
        let expected = expected(heading, number, size);
        assert!(
            *line == expected,
            "{run}: line {number} is\n{line:.200}\nand not\n{expected:.200}"
        );
    }
    assert_eq!(lines.len(), count, "{run}: lines");
}

fn pings(server: Program, client: Program) {
    for (size, count) in [(64, 1), (64, 1000), (100, 10), (4096, 10), (4097, 10), (65_535, 10)] {
        run(server, client, roce_ip(), size, count);
    }
}

fn siw_pings(server: Program, client: Program) {
    for (size, count) in [(64, 100), (65_535, 10)] {
        run(server, client, SIW, size, count);
    }
}

#[test]
#[ignore = "needs the test bed: cargo xtask test"]
fn siw_programs_connect_over_ipv6() {
    run(Program::Ours, Program::C, SIW_V6, 64, 10);
    run(Program::C, Program::Ours, SIW_V6, 64, 10);
}

fn ipv6(server: Program, client: Program) {
    run(server, client, roce_ip_v6(), 64, 10);
}

fn eight_clients(server: Program, client: Program) {
    serves_eight(server, client, roce_ip());
}

#[test]
#[ignore = "needs the test bed: cargo xtask test"]
fn siw_server_serves_eight_clients() {
    serves_eight(Program::Ours, Program::C, SIW);
}

fn killed_server_ends_client(server: Program, client: Program) {
    server_death_ends_client(server, client, roce_ip());
}

#[test]
#[ignore = "needs the test bed: cargo xtask test"]
fn siw_killed_server_ends_client() {
    server_death_ends_client(Program::C, Program::Ours, SIW);
}

/// Serves eight clients at once by a persistent server.
///
/// Our server also loses another client meanwhile, and keeps no object of a client after its end.
fn serves_eight(server: Program, program: Program, address: &str) {
    let (size, count) = (1000, 100);
    let ours = server == Program::Ours;
    let mut server = Server::start(server, address, &["-P", "-S", &size.to_string()]);
    let before = server.holds();
    let torn = ours.then(|| {
        let mut torn = connect(program, &server, size, 0, &["-v"]);
        torn.next_line().expect("a ping");
        torn
    });
    let clients: Vec<_> = (0..8)
        .map(|_| {
            let mut client = connect(program, &server, size, count, &["-v", "-V"]);
            // rdma-core's server before version 57 forgets a request that the next one overtakes.
            if !ours {
                client.next_line().expect("a ping");
            }
            client
        })
        .collect();
    torn.into_iter().for_each(|mut torn| torn.kill());
    for client in clients {
        let client = client.finish();
        ended_well(program, &client, "one of eight");
        assert_lines(&client.stdout, "ping data", size, count, "one of eight");
    }
    assert!(server.process.is_running(), "persistent server should continue");
    if ours {
        wait_until("the server holds nothing of its clients", || server.holds() == before);
    }
    let last = connect(program, &server, size, 1, &["-V"]).finish();
    ended_well(program, &last, "the last one");
}

/// Checks that a client ends by itself when its server is killed.
fn server_death_ends_client(server: Program, client: Program, address: &str) {
    let mut server = Server::start(server, address, &[]);
    let mut torn = connect(client, &server, 64, 0, &["-v"]);
    torn.next_line().expect("a ping");
    server.process.kill();
    let torn = torn.finish();
    if client == Program::Ours {
        assert_eq!(torn.status.code(), Some(1), "{}", torn.stderr);
        assert!(torn.stderr.starts_with("rdmatools rping: "), "{}", torn.stderr);
    }
}

/// Checks that our server ends by itself when its client is killed.
///
/// On Linux 6.1, rdma-core's server may post a receive when its queue pair is already in ERR, and wait forever for the
/// flush of this receive.
#[test]
#[ignore = "needs the test bed: cargo xtask test"]
fn killed_client_ends_server() {
    client_death_ends_server(roce_ip());
}

#[test]
#[ignore = "needs the test bed: cargo xtask test"]
fn siw_killed_client_ends_server() {
    client_death_ends_server(SIW);
}

fn client_death_ends_server(address: &str) {
    for client in [Program::Ours, Program::C] {
        let server = Server::start(Program::Ours, address, &[]);
        let mut torn = connect(client, &server, 64, 0, &["-v"]);
        torn.next_line().expect("a ping");
        torn.kill();
        server.process.finish();
    }
}

#[test]
#[ignore = "needs the test bed: cargo xtask test"]
fn ping_without_listener_fails() {
    let client = Program::Ours.start(&["-c", "-a", roce_ip(), "-p", "7199", "-C", "1"]).finish();
    assert_eq!(client.status.code(), Some(1), "{}", client.stderr);
    let message = format!(
        "rping: cannot connect to {}:7199: rejected by the peer: no program listens on",
        roce_ip()
    );
    assert!(client.stderr.contains(&message), "{}", client.stderr);
    assert_eq!(client.stdout, [""; 0]);
}

/// Checks the lines of `-d`, which begin with the time in seconds and an id.
///
/// The line of an event ends with the name of the event.
#[test]
#[ignore = "needs the test bed: cargo xtask test"]
fn debug_output_shows_time_of_each_event() {
    let server = Server::start(Program::Ours, roce_ip(), &["-d"]);
    let client = connect(Program::Ours, &server, 64, 2, &["-d"]).finish();
    let server = server.process.finish();
    assert_eq!(
        events(&client.stdout),
        ["ADDR_RESOLVED", "ROUTE_RESOLVED", "ESTABLISHED", "DISCONNECTED"]
    );
    assert_eq!(events(&server.stdout), ["CONNECT_REQUEST", "ESTABLISHED", "DISCONNECTED"]);
}

/// Returns the names of the events in `lines`, whose times must ascend.
fn events(lines: &[String]) -> Vec<&str> {
    let mut last = 0.0;
    let event = |line| {
        let (time, what) = str::split_once(line, " id ").expect("an id");
        let (_, microseconds) = time.split_once('.').expect("a fraction");
        assert_eq!(microseconds.len(), 6, "{line}");
        let time: f64 = time.trim().parse().expect("a time");
        assert!(time >= last, "{line} after {last}");
        last = time;
        let (_, event) = what.split_once("RDMA_CM_EVENT_")?;
        event.split(' ').next()
    };
    lines.iter().map(String::as_str).filter_map(event).collect()
}
