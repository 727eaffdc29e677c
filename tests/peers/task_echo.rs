//! The examples for tasks, on Tokio and on smol: a server and a client with many connections, each in one thread.

use std::time::Duration;

use nix::sys::resource::{Resource, setrlimit};
use rdmacm_tests::roce::{roce_ip, roce_name};
use rdmacm_tests::{promised, promised_device};

use crate::SIW;
use crate::examples::{example, example_within};
use crate::rping::{listening, port};

/// The time limit of the longest run, in which each connection may take more than a quarter of a second.
const LIMIT: Duration = Duration::from_secs(600);

/// Runs the server, and the client with one connection and then with `connections`.
fn one_thread_has(name: &str, connections: &str, address: &str) {
    // Each connection has three descriptors, and the programs inherit the limit of this process.
    setrlimit(Resource::RLIMIT_NOFILE, 8192, 8192).expect("raise the descriptor limit");
    let address = format!("{address}:{}", port());
    let server = listening(example(name, &["server", &address]));
    for connections in ["1", connections] {
        let client = example_within(LIMIT, name, &["client", &address, connections]);
        let client = client.finish();
        assert!(client.status.success(), "{}", client.stderr);
        assert_eq!(client.stdout, [format!("{connections} connections received 10 answers each")]);
    }
    drop(server);
}

/// Serves 1000 connections in one thread; a program would not have a thread for each.
///
/// One epoll instance accepts no more than 500 connections that wait for one descriptor. Each connection takes as long
/// as the first one. The test has 1000 connections on one of the kernels only.
#[test]
#[ignore = "needs the test bed: cargo xtask test"]
fn tokio_thread_has_thousand_connections() {
    promised_device(roce_name());
    let has_all = promised("RDMACM_TEST_KERNEL") == "6.12";
    one_thread_has("tokio_echo", if has_all { "1000" } else { "100" }, roce_ip());
}

#[test]
#[ignore = "needs the test bed: cargo xtask test"]
fn tokio_thread_has_some_siw_connections() {
    promised_device("siw0");
    one_thread_has("tokio_echo", "30", SIW);
}

#[test]
#[ignore = "needs the test bed: cargo xtask test"]
fn smol_thread_has_hundred_connections() {
    promised_device(roce_name());
    one_thread_has("smol_echo", "100", roce_ip());
}

#[test]
#[ignore = "needs the test bed: cargo xtask test"]
fn smol_thread_has_some_siw_connections() {
    promised_device("siw0");
    one_thread_has("smol_echo", "30", SIW);
}
