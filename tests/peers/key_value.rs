//! The example that keeps keys and values: clients read complete values, also those of other clients.

use std::time::Duration;

use rdmacm::endpoint::{ConnectionConfig, DmaMemory, Listener, RemoteAccess};
use rdmacm_tests::roce::{roce_ip, roce_name};
use rdmacm_tests::rxe::counter;
use rdmacm_tests::{Ended, Process, promised_device, wait_until};

use crate::SIW;
use crate::examples::example;
use crate::rping::{listening, port};

const LONG: Duration = Duration::from_secs(60);

/// Starts a server, and returns it with its address.
fn server(address: &str) -> (Process, String) {
    let address = format!("{address}:{}", port());
    (listening(example("key_value", &["server", &address])), address)
}

fn client(address: &str, commands: &[&str]) -> Process {
    example("key_value", &[&["client", address], commands].concat())
}

#[track_caller]
fn assert_printed(client: Process, lines: &[&str]) {
    let client = client.finish();
    assert!(client.status.success(), "{}", client.stderr);
    assert_eq!(client.stdout, lines);
}

#[track_caller]
fn assert_failed(client: Process, text: &str) -> Ended {
    let client = client.finish();
    assert_eq!(client.status.code(), Some(1), "{}", client.stderr);
    assert!(client.stderr.contains(text), "no {text:?} in {}", client.stderr);
    client
}

fn writes_are_read_by_others(address: &str) {
    let (mut server, address) = server(address);
    assert_printed(client(&address, &["a=1", "b=two words", "a", "empty=", "a=="]), &["1"]);
    let many: Vec<[String; 2]> =
        (0..40).map(|number| [format!("key {number}"), format!("value {number}")]).collect();
    // Several clients write at the same time, also to each other's places, and read a value of the first client.
    let writers: Vec<_> = many
        .chunks(10)
        .map(|some| {
            let some: Vec<_> = some.iter().map(|pair| pair.join("=")).collect();
            let commands: Vec<_> = some.iter().map(String::as_str).chain(["b"]).collect();
            client(&address, &commands)
        })
        .collect();
    writers.into_iter().for_each(|writer| assert_printed(writer, &["two words"]));
    let [keys, values]: [Vec<&str>; 2] =
        [0, 1].map(|part| many.iter().map(|pair| pair[part].as_str()).collect());
    assert_printed(client(&address, &keys), &values);
    let long = "x".repeat(245);
    assert_printed(client(&address, &[&format!("y={long}"), "y", "a", "empty"]), &[&long, "=", ""]);
    assert_failed(client(&address, &[&format!("yy={long}")]), "exceeds 246 bytes");
    assert_failed(client(&address, &["=nothing"]), "the key is empty");
    let reader = assert_failed(client(&address, &["a", "c", "b"]), "c: there is no such key");
    assert_eq!(reader.stdout, ["="]);
    assert!(server.is_running());
}

#[test]
#[ignore = "needs the test bed: cargo xtask test"]
fn clients_read_writes_of_others() {
    promised_device(roce_name());
    writes_are_read_by_others(roce_ip());
}

#[test]
#[ignore = "needs the test bed: cargo xtask test"]
fn siw_clients_read_writes_of_others() {
    promised_device("siw0");
    writes_are_read_by_others(SIW);
}

/// Checks that a client that reads while another one writes gets a complete value.
fn values_are_whole(address: &str) {
    let (_server, address) = server(address);
    let values = ["a", "b", "c"].map(|letter| letter.repeat(200));
    let writes = values.each_ref().map(|value| format!("key={value}"));
    assert_printed(client(&address, &[&writes[0]]), &[]);
    let both = ["key"; 200].map(str::to_owned);
    let writing: Vec<_> = writes.iter().cycle().take(100).map(String::as_str).collect();
    let writer = client(&address, &writing);
    let reader = client(&address, &both.each_ref().map(String::as_str)).finish();
    assert!(reader.status.success(), "{}", reader.stderr);
    assert_eq!(reader.stdout.len(), both.len());
    for line in &reader.stdout {
        assert!(values.contains(line), "{line}");
    }
    assert_printed(writer, &[]);
}

#[test]
#[ignore = "needs the test bed: cargo xtask test"]
fn concurrently_written_values_are_whole() {
    promised_device(roce_name());
    values_are_whole(roce_ip());
}

#[test]
#[ignore = "needs the test bed: cargo xtask test"]
fn siw_concurrently_written_values_are_whole() {
    promised_device("siw0");
    values_are_whole(SIW);
}

/// Returns an entry of the table, in the form in which the example keeps it.
fn entry(key: &str, value: &str) -> [u8; 256] {
    let mut entry = [0; 256];
    (entry[0], entry[1]) =
        [key, value].map(|text| u8::try_from(text.len()).expect("the length should fit")).into();
    let text = [key, value].concat();
    entry[2..][..text.len()].copy_from_slice(text.as_bytes());
    let sum = entry[..248]
        .iter()
        .fold(0, |sum: u64, byte| (sum ^ u64::from(*byte)).wrapping_mul(0x100_0000_01b3));
    entry[248..].copy_from_slice(&sum.to_be_bytes());
    entry
}

/// Returns the number of packets that the peer has sent, as its device counts.
fn sent_packets() -> u64 {
    counter("rxe0", "sent_pkts").expect("a counter")
}

#[test]
#[ignore = "needs the test bed: cargo xtask test"]
fn torn_entry_is_read_again() {
    promised_device(roce_name());
    let address = format!("{}:{}", roce_ip(), port());
    let bound: std::net::SocketAddr = address.parse().expect("an address");
    let listener = Listener::bind(bound).expect("listen");
    let client = client(&address, &["key"]);
    let incoming = listener.accept_timeout(LONG).expect("a request");
    let connection = incoming.accept(&ConnectionConfig::default(), &[], LONG).expect("accept");
    let [old, new] = ["old", "new"].map(|value| entry("key", &value.repeat(80)));
    let torn = [&new[..128], &old[128..]].concat();
    // Each place has the entry, because the client may begin at any place.
    let mut table = DmaMemory::new(1024 * 256).expect("memory");
    table.write(0, &torn.repeat(1024)).expect("the bytes should fit");
    let export = connection.export(&table, .., RemoteAccess::READ).expect("export");
    assert!(connection.recv_timeout(LONG).expect("receive").expect("a question").is_empty());
    connection.post_bytes(&export.remote_memory().to_bytes()).expect("post");
    let before = sent_packets();
    wait_until("the client reads repeatedly", || sent_packets() > before + 100);
    table.write(0, &new.repeat(1024)).expect("the bytes should fit");
    assert!(connection.recv_timeout(LONG).expect("receive").is_none(), "the client should close");
    assert_printed(client, &[&"new".repeat(80)]);
}

/// Checks that a client reports the death of its server, and that a server survives a client.
fn program_death_is_reported(address: &str) {
    let (mut server, address) = server(address);
    let reads = [&["key=value"][..], &["key"; 50_000]].concat();
    let mut begun = [0, 1].map(|_| {
        let mut client = client(&address, &reads);
        client.next_line().expect("a value");
        client
    });
    begun[0].kill();
    assert_printed(client(&address, &["key"]), &["value"]);
    server.kill();
    let [_, other] = begun;
    assert_failed(other, "key_value: ");
}

#[test]
#[ignore = "needs the test bed: cargo xtask test"]
fn killed_program_is_reported_by_peer() {
    promised_device(roce_name());
    program_death_is_reported(roce_ip());
}

#[test]
#[ignore = "needs the test bed: cargo xtask test"]
fn siw_killed_program_is_reported_by_peer() {
    promised_device("siw0");
    program_death_is_reported(SIW);
}
