//! A device that is deleted, whose port goes down or whose address is removed, at any moment, and comes back: who uses it
//! meanwhile is told, has no wrong data, and can use it again.

use std::env;
use std::fs;
use std::io::{self, Write};
use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use rdmacm::Result;
use rdmacm::endpoint::{Connector, Listener, Settings};

use crate::bed::Ending;
use crate::dice::Dice;
use crate::netdev::ip;
use crate::removal::Own;

/// How long: long enough for each thing to happen, or so many seconds.
fn time() -> Duration {
    let seconds = env::var("RDMACM_TEST_UPHEAVAL_SECONDS").unwrap_or_else(|_| "3".to_owned());
    Duration::from_secs(seconds.parse().expect("a number of seconds"))
}

/// How long nobody is waited for who may be gone.
const PATIENCE: Duration = Duration::from_millis(300);
const PORT: u16 = 7555;

/// What the threads share.
#[derive(Default)]
struct Load {
    is_over: AtomicBool,
    connections: AtomicUsize,
    messages: AtomicUsize,
    failures: AtomicUsize,
}

impl Load {
    /// Does `work` again and again: it fails where the device is not what it was.
    fn repeat(&self, work: impl Fn() -> Result<()>) {
        while !self.is_over.load(Ordering::SeqCst) {
            if work().is_err() {
                self.failures.fetch_add(1, Ordering::Relaxed);
                thread::sleep(Duration::from_millis(5));
            }
        }
    }

    /// Serves one client after the other, whose messages must be what they were.
    fn serve(&self, address: SocketAddr) -> Result<()> {
        let listener = Listener::bind(address)?;
        loop {
            let incoming = listener.incoming_timeout(PATIENCE)?;
            let connection = incoming.accept(&settings(), b"", PATIENCE)?;
            self.connections.fetch_add(1, Ordering::Relaxed);
            let mut number = 0_u64;
            while let Some(message) = connection.recv_timeout(PATIENCE)? {
                assert!(*message == number.to_ne_bytes(), "message {number}");
                number += 1;
                self.messages.fetch_add(1, Ordering::Relaxed);
            }
        }
    }

    fn send(&self, address: SocketAddr) -> Result<()> {
        let connector = Connector::new().settings(settings()).ack_timeout(10).timeout(PATIENCE);
        let connection = connector.connect(address)?;
        for number in 0..200_u64 {
            let mut buffer = connection.buffer_timeout(PATIENCE)?;
            buffer.copy_from(&number.to_ne_bytes())?;
            connection.start_send(buffer).and_then(|send| send.wait_timeout(PATIENCE))?;
        }
        connection.close(PATIENCE)
    }
}

fn settings() -> Settings {
    Settings { retry_count: 2, ..Settings::default() }
}

/// Does something to the device, and undoes it a moment later.
fn upset(own: &Own, dice: &mut Dice) {
    let moment = Duration::from_millis(u64::try_from(dice.roll(60)).expect("small"));
    match dice.roll(3) {
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

fn descriptors() -> usize {
    fs::read_dir("/proc/self/fd").expect("list the descriptors").count()
}

fn survives(own: &Own) {
    let before = descriptors();
    let load = Load::default();
    let address = SocketAddr::new(own.address.ip(), PORT);
    let end = Instant::now() + time();
    let mut dice = Dice(0x9e37_79b9_7f4a_7c15);
    let mut upsets = 0;
    thread::scope(|scope| {
        let _ending = Ending(&load.is_over);
        scope.spawn(|| load.repeat(|| load.serve(address)));
        for _ in 0..2 {
            scope.spawn(|| load.repeat(|| load.send(address)));
        }
        while Instant::now() < end {
            thread::sleep(Duration::from_millis(u64::try_from(dice.roll(250)).expect("small")));
            upset(own, &mut dice);
            upsets += 1;
        }
    });
    let count = |number: &AtomicUsize| number.load(Ordering::Relaxed);
    let [connections, messages, failures] =
        [&load.connections, &load.messages, &load.failures].map(count);
    let what = format!(
        "{upsets} upsets: {connections} connections, {messages} messages, {failures} failures"
    );
    writeln!(io::stdout(), "{what}").expect("say it");
    assert!(connections > 0 && messages > 0 && failures > 0, "{what}");
    own.delete().finish();
    own.comes_back();
    assert_eq!(descriptors(), before);
}

#[test]
#[ignore = "needs the test bed: cargo xtask test"]
fn an_rxe_device_in_upheaval_is_used_whenever_it_is_there() {
    survives(&Own::rxe());
}

#[test]
#[ignore = "needs the test bed: cargo xtask test"]
fn a_siw_device_in_upheaval_is_used_whenever_it_is_there() {
    survives(&Own::siw());
}
