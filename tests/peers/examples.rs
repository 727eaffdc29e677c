//! The two programs of `docs/low-level.md`, which are examples of the library.

use std::path::Path;
use std::process::Command;
use std::time::Duration;

use rdmacm_tests::roce::{roce_ip, roce_name};
use rdmacm_tests::{Process, promised, promised_device};

use crate::SIW;
use crate::rping::{LIMIT, listening, port};

/// Runs an example, which is built beside the tools.
pub(crate) fn example(name: &str, arguments: &[&str]) -> Process {
    example_within(LIMIT, name, arguments)
}

/// Runs an example with this time limit.
pub(crate) fn example_within(limit: Duration, name: &str, arguments: &[&str]) -> Process {
    let tools = promised("RDMACM_TEST_RDMATOOLS");
    let built = Path::new(&tools).parent().expect("the tools should be in a directory");
    Process::start(Command::new(built.join("examples").join(name)).args(arguments), limit)
}

fn example_message_arrives(address: &str) {
    let address = format!("{address}:{}", port());
    let server = listening(example("server", &[&address]));
    let message = "hello from the other side";
    let client = example("client", &[&address, message]).finish();
    assert!(client.status.success(), "{}", client.stderr);
    assert_eq!(client.stdout, [""; 0]);
    let server = server.finish();
    assert!(server.status.success(), "{}", server.stderr);
    assert_eq!(server.stdout, [message]);
}

#[test]
#[ignore = "needs the test bed: cargo xtask test"]
fn example_message_arrives_over_roce() {
    promised_device(roce_name());
    example_message_arrives(roce_ip());
}

#[test]
#[ignore = "needs the test bed: cargo xtask test"]
fn example_message_arrives_over_siw() {
    promised_device("siw0");
    example_message_arrives(SIW);
}
