//! The example for tasks: a server and a client of many connections, each in one thread.

use std::time::Duration;

use nix::sys::resource::{Resource, setrlimit};
use rdmacm_tests::{promised, promised_device};

use crate::examples::{example, example_within};
use crate::rping::{listening, port};
use crate::{SIW, V4};

/// A quarter of a second for each, which a machine that does much else takes.
const PATIENCE: Duration = Duration::from_secs(600);

fn one_thread_has(connections: &str, address: &str) {
    // Three descriptors each, and this process's programs have its limit.
    setrlimit(Resource::RLIMIT_NOFILE, 8192, 8192).expect("a guest allows it");
    let address = format!("{address}:{}", port());
    let server = listening(example("tokio_echo", &["server", &address]));
    for connections in ["1", connections] {
        let client = example_within(PATIENCE, "tokio_echo", &["client", &address, connections]);
        let client = client.finish();
        assert!(client.status.success(), "{}", client.stderr);
        assert_eq!(client.stdout, [format!("{connections} connections have had 10 answers each")]);
    }
    drop(server);
}

/// So many that no program would have a thread for each, and more than one epoll takes that wait for one descriptor
/// (500). Each takes as long as the first, but there are many: on one of the kernels.
#[test]
#[ignore = "needs the test bed: cargo xtask test"]
fn one_thread_has_a_thousand_connections() {
    promised_device("rxe0");
    let has_all = promised("RDMACM_TEST_KERNEL") == "6.12";
    one_thread_has(if has_all { "1000" } else { "100" }, V4);
}

#[test]
#[ignore = "needs the test bed: cargo xtask test"]
fn siw_one_thread_has_some_connections() {
    promised_device("siw0");
    one_thread_has("30", SIW);
}
