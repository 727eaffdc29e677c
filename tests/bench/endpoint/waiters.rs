//! Threads that wait on one connection, each of which answers the message that it receives.

use std::thread;
use std::time::{Duration, Instant};

use rdmacm::endpoint::Connection;

use crate::many::{FIRST, SIZE};
use crate::{Outcome, print_each, short};

/// Prints the time of each of `count` messages that go back and forth.
///
/// Meanwhile, `threads` threads of the server wait for a message.
pub(crate) fn measure([client, server]: [Connection; 2], threads: usize, count: usize) -> Outcome {
    for _ in 0..threads {
        let server = server.clone();
        thread::spawn(move || answer(&server));
    }
    exchange(&client, (count / 10).max(FIRST * threads))?;
    let time = exchange(&client, count)?;
    print_each(time, 2 * count)?;
    // The threads wait forever.
    std::process::exit(0)
}

/// Answers messages until the process ends.
fn answer(server: &Connection) -> Outcome {
    let bytes = short(SIZE).ok_or("the messages are long")?;
    while server.recv()?.is_some() {
        server.post_bytes(bytes)?;
    }
    Ok(())
}

/// Sends `count` messages, each when the one before was answered, and returns the time that this takes.
fn exchange(client: &Connection, count: usize) -> Outcome<Duration> {
    let bytes = short(SIZE).ok_or("the messages are long")?;
    let start = Instant::now();
    for _ in 0..count {
        client.post_bytes(bytes)?;
        client.recv()?.ok_or("the connection has ended")?;
    }
    Ok(start.elapsed())
}
