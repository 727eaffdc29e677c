//! A device that disappears and returns at random times.
//!
//! The device is deleted, its port goes down or its address is removed. A program that uses the device meanwhile gets
//! errors, never wrong data, and can use the device again.

use std::env;
use std::io::{self, Write};
use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use rdmacm::Result;
use rdmacm::endpoint::{ConnectionConfig, Connector, Listener};
use rdmacm_tests::open_descriptors;

use crate::fixtures::Ending;
use crate::netdev::ip;
use crate::removal::Own;
use crate::rng::Rng;

/// Returns the duration of the test.
///
/// The default suffices for each event to happen. The environment can set another number of seconds.
fn time() -> Duration {
    let seconds = env::var("RDMACM_TEST_UPHEAVAL_SECONDS").unwrap_or_else(|_| "3".to_owned());
    Duration::from_secs(seconds.parse().expect("a number of seconds"))
}

/// The time for which a thread waits for a peer that does not respond.
const PEER_TIMEOUT: Duration = Duration::from_millis(300);
const PORT: u16 = 7555;

/// State shared by the threads.
#[derive(Default)]
struct Load {
    is_over: AtomicBool,
    connections: AtomicUsize,
    messages: AtomicUsize,
    failures: AtomicUsize,
}

impl Load {
    /// Repeats `work`, which fails while the device is absent or has changed.
    fn repeat(&self, work: impl Fn() -> Result<()>) {
        while !self.is_over.load(Ordering::SeqCst) {
            if work().is_err() {
                self.failures.fetch_add(1, Ordering::Relaxed);
                thread::sleep(Duration::from_millis(5));
            }
        }
    }

    /// Serves one client after the other, and checks the bytes of their messages.
    fn serve(&self, address: SocketAddr) -> Result<()> {
        let listener = Listener::bind(address)?;
        loop {
            let incoming = listener.accept_timeout(PEER_TIMEOUT)?;
            let connection = incoming.accept(&config(), b"", PEER_TIMEOUT)?;
            self.connections.fetch_add(1, Ordering::Relaxed);
            let mut number = 0_u64;
            while let Some(message) = connection.recv_timeout(PEER_TIMEOUT)? {
                assert!(*message == number.to_ne_bytes(), "message {number}");
                number += 1;
                self.messages.fetch_add(1, Ordering::Relaxed);
            }
        }
    }

    fn send(&self, address: SocketAddr) -> Result<()> {
        let connector =
            Connector::new().config(config()).ack_timeout(10).total_timeout(PEER_TIMEOUT);
        let connection = connector.connect(address)?;
        for number in 0..200_u64 {
            let mut buffer = connection.acquire_buffer_timeout(PEER_TIMEOUT)?;
            buffer.copy_from(&number.to_ne_bytes())?;
            connection.start_send(buffer).and_then(|send| send.wait_timeout(PEER_TIMEOUT))?;
        }
        connection.close(PEER_TIMEOUT)
    }
}

fn config() -> ConnectionConfig {
    ConnectionConfig::new().retry_count(2)
}

/// Changes the device, and restores it after a random time.
fn upset(own: &Own, rng: &mut Rng) {
    let moment = Duration::from_millis(u64::try_from(rng.roll(60)).expect("the number should fit"));
    match rng.roll(3) {
        0 => {
            own.delete().finish();
            thread::sleep(moment);
            own.add_link();
        }
        1 => {
            ip(&["link", "set", own.netdev, "down"]);
            thread::sleep(moment);
            ip(&["link", "set", own.netdev, "up"]);
        }
        _ => {
            ip(&["address", "delete", "10.6.0.1/24", "dev", own.netdev]);
            thread::sleep(moment);
            ip(&["address", "add", "10.6.0.1/24", "dev", own.netdev]);
        }
    }
}

fn survives(own: &Own) {
    let before = open_descriptors();
    let load = Load::default();
    let address = SocketAddr::new(own.address.ip(), PORT);
    let end = Instant::now() + time();
    let mut rng = Rng(0x9e37_79b9_7f4a_7c15);
    let mut upsets = 0;
    thread::scope(|scope| {
        let _ending = Ending(&load.is_over);
        scope.spawn(|| load.repeat(|| load.serve(address)));
        for _ in 0..2 {
            scope.spawn(|| load.repeat(|| load.send(address)));
        }
        while Instant::now() < end {
            thread::sleep(Duration::from_millis(
                u64::try_from(rng.roll(250)).expect("the number should fit"),
            ));
            upset(own, &mut rng);
            upsets += 1;
        }
    });
    let count = |number: &AtomicUsize| number.load(Ordering::Relaxed);
    let [connections, messages, failures] =
        [&load.connections, &load.messages, &load.failures].map(count);
    let what = format!(
        "{upsets} upsets: {connections} connections, {messages} messages, {failures} failures"
    );
    writeln!(io::stdout(), "{what}").expect("print the result");
    assert!(connections > 0 && messages > 0 && failures > 0, "{what}");
    own.delete().finish();
    own.comes_back();
    assert_eq!(open_descriptors(), before);
}

#[test]
#[ignore = "needs the test bed: cargo xtask test"]
fn rxe_device_is_used_whenever_present() {
    survives(&Own::roce());
}

#[test]
#[ignore = "needs the test bed: cargo xtask test"]
fn siw_device_is_used_whenever_present() {
    survives(&Own::siw());
}
