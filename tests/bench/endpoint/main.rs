//! Time of messages between two ends in this process, in microseconds.
//!
//! The ends are on one of the library's two levels: see the [usage](USAGE). The address chooses the device.
//!
//! Both levels do the same work and wait in the same way. Each request asks for a completion, a sender waits for one
//! only if no more may be in flight, and the bytes are not read. Short messages are copied into their memory, as a
//! program does that has the bytes elsewhere. Long ones count as written in place.

mod group;
mod low;
mod many;
mod safe;
mod waiters;

use std::env;
use std::error::Error;
use std::io::{self, Write};
use std::thread;
use std::time::{Duration, Instant};

use rdmacm_tests::heap::Counting;

#[global_allocator]
static ALLOCATOR: Counting = Counting;

pub(crate) type Outcome<T = ()> = Result<T, Box<dyn Error + Send + Sync>>;

const USAGE: &str = "usage: bench-endpoint group|low|safe ADDRESS asleep|data|polling LOAD SIZE COUNT
LOAD: latency, rate, read or write, of COUNT messages of SIZE bytes;
      many: there and back on SIZE connections in one thread, asleep; also with `group`, which is a poll group;
      idle: none; prints the heap of a member and the descriptors of a group of SIZE members; only with `group`;
      waiters: there and back on a connection of the safe tier, on whose server SIZE threads wait, asleep
data: asleep until data arrives, without detection of the connection's end; only with `low`";

/// Maximum number of sends, and of receives, in flight.
pub(crate) const DEPTH: u32 = 128;
/// Number of messages of a stream before an answer, and before an answer is awaited.
///
/// So the receiver always has a buffer, as iWARP requires.
const WINDOW: usize = 32;
/// Length up to which a message is short, in bytes.
const SHORT: usize = 64;

/// Returns the bytes of a short message.
pub(crate) fn short(size: usize) -> Option<&'static [u8]> {
    static BYTES: [u8; SHORT] = [7; SHORT];
    BYTES.get(..size)
}

/// One end of a connection. Its messages have the size of the load. It waits by sleeping or by polling.
pub(crate) trait End: Send {
    /// Waits for room, and posts a message.
    fn post(&mut self) -> Outcome;
    /// Waits for a message, and posts its buffer again.
    fn receive(&mut self) -> Outcome;
    /// Waits for room, and posts a write to the peer's memory.
    fn write(&mut self) -> Outcome;
    /// Reads the peer's memory.
    fn read(&mut self) -> Outcome;
    /// Waits until all posted requests have completed.
    fn flush(&mut self) -> Outcome;
}

/// Way in which an end waits.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Waiting {
    /// Sleeps until data arrives or the connection ends. Each end has its own thread.
    Sleeps,
    /// Sleeps until data arrives, without detecting the end of the connection.
    SleepsForData,
    /// Polls; both ends are in one thread, so that neither polls while the other one works.
    Polls,
}

/// The work, and the meaning of a message.
#[derive(Debug, Clone, Copy)]
enum Load {
    /// One side sends a message, and the other side answers it.
    Latency,
    /// Messages in one direction, in windows.
    Rate,
    /// Reads, one after the other.
    Read,
    /// Writes, with as many in flight as permitted.
    Write,
}

impl Load {
    fn from_name(name: &str) -> Option<Self> {
        Some(match name {
            "latency" => Self::Latency,
            "rate" => Self::Rate,
            "read" => Self::Read,
            "write" => Self::Write,
            _ => return None,
        })
    }

    /// Sends `count` messages, and returns the time that this takes.
    fn carry_out(
        self,
        [client, server]: [&mut impl End; 2],
        waiting: Waiting,
        count: usize,
    ) -> Outcome<Duration> {
        let start = Instant::now();
        match (self, waiting) {
            (Self::Latency, Waiting::Sleeps | Waiting::SleepsForData) => {
                both(|| pong(server, count / 2), || ping(client, count / 2))?;
            }
            (Self::Latency, Waiting::Polls) => {
                for _ in 0..count / 2 {
                    client.post()?;
                    server.receive()?;
                    server.post()?;
                    client.receive()?;
                }
            }
            (Self::Rate, Waiting::Sleeps | Waiting::SleepsForData) => {
                both(|| sink(server, count), || stream(client, count))?;
            }
            (Self::Rate, Waiting::Polls) => {
                for _ in 0..count / WINDOW {
                    (0..WINDOW).try_for_each(|_| client.post())?;
                    (0..WINDOW).try_for_each(|_| server.receive())?;
                }
            }
            (Self::Read, _) => (0..count).try_for_each(|_| client.read())?,
            (Self::Write, _) => {
                (0..count).try_for_each(|_| client.write())?;
                client.flush()?;
            }
        }
        Ok(start.elapsed())
    }
}

fn ping(end: &mut impl End, count: usize) -> Outcome {
    for _ in 0..count {
        end.post()?;
        end.receive()?;
    }
    Ok(())
}

fn pong(end: &mut impl End, count: usize) -> Outcome {
    for _ in 0..count {
        end.receive()?;
        end.post()?;
    }
    Ok(())
}

fn stream(end: &mut impl End, count: usize) -> Outcome {
    for number in 1..=count {
        end.post()?;
        if number % WINDOW == 0 && number > WINDOW {
            end.receive()?;
        }
    }
    // The answer to the last window follows.
    end.receive()
}

fn sink(end: &mut impl End, count: usize) -> Outcome {
    for number in 1..=count {
        end.receive()?;
        if number % WINDOW == 0 {
            end.post()?;
        }
    }
    Ok(())
}

/// Runs both functions in parallel, the first one in another thread.
fn both(there: impl FnOnce() -> Outcome + Send, here: impl FnOnce() -> Outcome) -> Outcome {
    thread::scope(|scope| {
        let there = scope.spawn(there);
        here()?;
        there.join().map_err(|_| "the other thread panicked")?
    })
}

/// Prints the time of a message, after some messages that are not measured.
fn measure(load: Load, waiting: Waiting, mut ends: [impl End; 2], count: usize) -> Outcome {
    let count = count.next_multiple_of(WINDOW);
    let [client, server] = &mut ends;
    load.carry_out([client, server], waiting, (count / 10).next_multiple_of(WINDOW))?;
    let time = load.carry_out([client, server], waiting, count)?;
    print_each(time, count)?;
    // No object is destroyed, so the memory outlives the last request of the process.
    std::process::exit(0)
}

/// Prints the time of each of `count` messages, which together take `time`.
pub(crate) fn print_each(time: Duration, count: usize) -> Outcome {
    let each = time.as_secs_f64() * 1e6 / f64::from(u32::try_from(count)?);
    Ok(writeln!(io::stdout(), "{each:.3}")?)
}

fn main() -> Outcome {
    let arguments: Vec<String> = env::args().skip(1).collect();
    let arguments: Vec<&str> = arguments.iter().map(|argument| &**argument).collect();
    let [level, address, waiting, load, size, count] = arguments[..] else {
        return Err(USAGE.into());
    };
    let (address, size, count) = (address.parse()?, size.parse()?, count.parse()?);
    let waiting = match waiting {
        "asleep" => Waiting::Sleeps,
        "data" if level == "low" => Waiting::SleepsForData,
        "polling" => Waiting::Polls,
        _ => return Err(USAGE.into()),
    };
    match (level, load, Load::from_name(load)) {
        (_, "many", _) => {
            many::allow(size)?;
            match level {
                "group" => many::measure(group::pair(address, size)?, count),
                "safe" => many::measure_ends(safe::many(address, size)?, count),
                "low" => many::measure_ends(low::many(address, size)?, count),
                _ => Err(USAGE.into()),
            }
        }
        ("group", "idle", _) => {
            many::allow(size)?;
            group::print_idle(address, size)
        }
        ("safe", "waiters", _) => {
            let [connection] =
                <[_; 1]>::try_from(safe::many(address, 1)?).map_err(|_| "one connection")?;
            waiters::measure(connection, size, count)
        }
        ("safe", _, Some(load)) => {
            measure(load, waiting, safe::pair(address, waiting, size)?, count)
        }
        ("low", _, Some(load)) => measure(load, waiting, low::pair(address, waiting, size)?, count),
        _ => Err(USAGE.into()),
    }
}
