//! Cost of messages on the safe tier, beside the low level and perftest.
//!
//! In the mode "asleep", each side sleeps until a completion arrives or the connection ends. perftest with `-e` sleeps
//! for completions only and does not detect the end, which saves a system call. So the low level is measured both ways.
//! In perftest's bandwidth tests every hundredth message completes, in the others each message does; perftest has no
//! answers to a window of messages. If both programs of perftest share one processor, they stall in the latency of
//! sends and the bandwidth of writes. Those rows are left out, and so is siw.
//!
//! In the mode "polling", both ends are in one thread that never sleeps, so that neither end polls while the other one
//! works. perftest has no such mode.

use std::error::Error;
use std::path::Path;

use rdmacm::device::{Device, DriverId};

use crate::data::{Asleep, Test};
use crate::rounds::{by_turns, median_trace};
use crate::run::{self, Program, progress};
use crate::scheduler;
use crate::table::Row;
use crate::trace;

/// Number of measurements of each load: enough for an interval.
const ROUNDS: usize = 12;
/// Messages of one run.
const MESSAGES: u32 = 1024;
/// Bytes of a message if the size does not matter.
const SIZE: u32 = 16;
const LARGE: u32 = 4096;

/// Largest permitted ratio of a latency, and smallest permitted ratio of a rate.
const LATENCY_GOAL: f64 = 1.05;
const RATE_GOAL: f64 = 0.9;

/// Numbers of connections of one thread.
const CONNECTIONS: [u32; 3] = [10, 100, 1000];
/// Limit of the growth of a message's cost from the fewest connections to the most.
///
/// The growth is divided by that on the low level.
const FLAT_GOAL: f64 = 1.05;
/// Round trips of messages in one run.
const EXCHANGES: u32 = 2000;

/// Numbers of members of a poll group.
const MEMBERS: [u32; 3] = [10, 1000, 10_000];
/// Limit of the ratio of a message's cost in a larger group to that in the smallest.
const GROUP_GOAL: f64 = 1.2;
/// Rounds of groups: the fewest from which an interval with a confidence of 95 % follows.
const GROUP_ROUNDS: usize = 6;

/// Limits of the heap of an idle member, in bytes, and of the descriptors of a group.
const IDLE_HEAP: f64 = 2048.0;
const GROUP_DESCRIPTORS: f64 = 10.0;

/// Numbers of threads that wait on one connection.
const WAITERS: [u32; 2] = [1, 64];
/// Limit of the ratio of a message's cost with the most waiting threads to that with one.
const WAITERS_GOAL: f64 = 1.1;

/// Numbers of messages of two runs under strace. Their difference in system calls is the cost of the additional messages.
const TRACED: [u32; 2] = [96, 416];
/// Number of all messages divided by that of the measured ones, which unmeasured messages precede.
const WARM_UP: f64 = 1.1;

/// A message load.
#[derive(Debug, Clone, Copy)]
struct Load {
    name: &'static str,
    /// The load of both programs of this project.
    ours: &'static str,
    test: Test,
    /// Operation of perftest, if its program does not stall.
    perftest: Option<&'static str>,
    size: u32,
}

const LOADS: [Load; 5] = [
    LATENCY,
    Load { size: LARGE, ..LATENCY },
    Load { name: "send rate", ours: "rate", perftest: Some("send"), ..RATE },
    Load { name: "read latency", ours: "read", perftest: Some("read"), ..LATENCY },
    Load { name: "write rate", ours: "write", ..RATE },
];

const LATENCY: Load =
    Load { name: "send latency", ours: "latency", test: Test::Latency, perftest: None, size: SIZE };

const RATE: Load = Load { name: "rate", ours: "rate", test: Test::Bandwidth, ..LATENCY };

/// Measures on the device, with our programs in the directory.
pub(crate) fn rows(
    device: &Device,
    address: &str,
    directory: &Path,
) -> Result<Vec<Row>, Box<dyn Error>> {
    let perftest = Asleep::new(device, address)?;
    let has_perftest = device.driver() == Some(DriverId::RDMA_DRIVER_RXE);
    let bench = Bench { address, directory, perftest, has_perftest };
    let mut rows = Vec::new();
    scheduler::batch()?;
    for waiting in ["asleep", "polling"] {
        for load in [LOADS[0], LOADS[2]] {
            rows.push(bench.calls(waiting, load)?);
        }
    }
    for load in LOADS {
        rows.extend(bench.asleep(load)?);
    }
    rows.extend(bench.many()?);
    rows.extend(bench.groups()?);
    rows.push(bench.waiters()?);
    scheduler::prefer_others()?;
    for load in LOADS {
        rows.push(bench.polling(load)?);
    }
    Ok(rows)
}

struct Bench<'a> {
    address: &'a str,
    directory: &'a Path,
    perftest: Asleep<'a>,
    has_perftest: bool,
}

/// Implementation that sends.
#[derive(Debug, Clone, Copy)]
enum Sender {
    Safe,
    Low,
    /// The low level, without detecting the end of the connection.
    LowForData,
    /// The program of perftest for this operation.
    Perftest(&'static str),
}

impl Bench<'_> {
    fn asleep(&self, load: Load) -> Result<Vec<Row>, Box<dyn Error>> {
        let name = format!("{}, {} bytes, asleep", load.name, load.size);
        progress(&format!("{name}: {ROUNDS} rounds"));
        let beside = |other| {
            by_turns(ROUNDS, [&Sender::Safe, &other], |sender| self.figure("asleep", load, *sender))
        };
        let mut rows = vec![load.row(format!("{name}, by the low level"), beside(Sender::Low)?)];
        let for_data = beside(Sender::LowForData)?;
        rows.push(Row::of_pairs(
            format!("{name}, by the low level, data only"),
            load.unit(),
            for_data,
        ));
        if let Some(operation) = load.perftest.filter(|_| self.has_perftest) {
            let pairs = beside(Sender::Perftest(operation))?;
            rows.push(load.row(format!("{name}, by perftest"), pairs));
        }
        Ok(rows)
    }

    fn polling(&self, load: Load) -> Result<Row, Box<dyn Error>> {
        let name = format!("{}, {} bytes, polling", load.name, load.size);
        progress(&format!("{name}: {ROUNDS} rounds of two programs"));
        let rounds = by_turns(ROUNDS, [&Sender::Safe, &Sender::Low], |sender| {
            self.figure("polling", load, *sender)
        })?;
        Ok(load.row(format!("{name}, by the low level"), rounds))
    }

    /// Compares messages of many connections in one thread with those of few, and with the low level.
    fn many(&self) -> Result<Vec<Row>, Box<dyn Error>> {
        let [few, more, most] = CONNECTIONS;
        let sides = [("safe", few), ("safe", more), ("safe", most), ("low", few), ("low", most)];
        let name = |count| format!("message of {count} connections in a thread");
        progress(&format!("{}: {ROUNDS} rounds of five", name(most)));
        let rounds = by_turns(ROUNDS, sides.each_ref(), |(level, count)| {
            measured(&self.program(level, "asleep", "many", *count, EXCHANGES))
        })?;
        let row = |name, place: usize, other: usize| {
            Row::of_pairs(name, "us", rounds.iter().map(|round| [round[place], round[other]]))
        };
        let by_few = |count| format!("{}, by one of {few}", name(count));
        // The kernel's cost of more connections is not that of the safe tier.
        let growths = rounds
            .iter()
            .map(|round| [round[2] / round[0], round[4] / round[3]])
            .collect::<Vec<_>>();
        let growth = format!("{}, by the low level's", by_few(most));
        Ok(vec![
            row(by_few(more), 1, 0),
            row(by_few(most), 2, 0),
            row(format!("{}, low level", by_few(most)), 4, 3),
            Row::of_pairs(growth, "", growths).at_most(FLAT_GOAL),
            row(format!("{}, by the low level", name(most)), 2, 4),
        ])
    }

    /// Measures a message between poll groups: with many members, relative to few.
    fn groups(&self) -> Result<Vec<Row>, Box<dyn Error>> {
        let [few, more, most] = MEMBERS;
        progress(&format!("message of a poll group of {most}: {GROUP_ROUNDS} rounds of three"));
        let rounds = by_turns(GROUP_ROUNDS, MEMBERS.each_ref(), |members| {
            measured(&self.program("group", "asleep", "many", *members, EXCHANGES))
        })?;
        let row = |members, place: usize| {
            let name = format!("message of a poll group of {members}, by one of {few}");
            Row::of_pairs(name, "us", rounds.iter().map(|round| [round[place], round[0]]))
                .at_most(GROUP_GOAL)
        };
        let idle = run::output(&self.program("group", "asleep", "idle", most, 0))?;
        let (heap, descriptors) = idle.trim().split_once(' ').ok_or("two numbers")?;
        let heap = Row::exact(
            format!("heap of an idle member of {most}, by the limit"),
            "bytes",
            heap.parse()?,
            IDLE_HEAP,
        );
        let descriptors = Row::exact(
            format!("descriptors of a poll group of {most}, by the limit"),
            "",
            descriptors.parse()?,
            GROUP_DESCRIPTORS,
        );
        Ok(vec![row(more, 1), row(most, 2), heap.at_most(1.0), descriptors.at_most(1.0)])
    }

    /// Measures a message to a connection on which many threads wait, relative to a single thread.
    fn waiters(&self) -> Result<Row, Box<dyn Error>> {
        let [one, all] = WAITERS;
        let name = format!("message to {all} threads of a connection, by one to {one}");
        progress(&format!("{name}: {ROUNDS} rounds"));
        let rounds = by_turns(ROUNDS, [&all, &one], |threads| {
            measured(&self.program("safe", "asleep", "waiters", *threads, EXCHANGES))
        })?;
        Ok(Row::of_pairs(name, "us", rounds).at_most(WAITERS_GOAL))
    }

    /// Counts the system calls of both ends for one more message.
    fn calls(&self, waiting: &str, load: Load) -> Result<Row, Box<dyn Error>> {
        let name = format!("system calls per message, {}, {waiting}, by the low level", load.name);
        progress(&name);
        let each = |level| -> Result<f64, Box<dyn Error>> {
            let [few, many] = TRACED.map(|count| {
                let program = self.program(level, waiting, load.ours, load.size, count);
                Ok::<_, Box<dyn Error>>(median_trace(|| trace::count(&program))?.but_time())
            });
            let messages = f64::from(TRACED[1] - TRACED[0]) * WARM_UP;
            // The figure is rounded to hundredths, because a few calls belong to the connection and vary.
            Ok(((f64::from(many?) - f64::from(few?)) / messages * 100.0).round() / 100.0)
        };
        Ok(Row::exact(name, "", each("safe")?, each("low")?))
    }

    /// Returns the microseconds of a message, or the thousands of messages in a second.
    fn figure(&self, waiting: &str, load: Load, sender: Sender) -> Result<f64, Box<dyn Error>> {
        let ours = |level, waiting| {
            measured(&self.program(level, waiting, load.ours, load.size, MESSAGES))
        };
        let micros = match sender {
            Sender::Safe => ours("safe", waiting),
            Sender::Low => ours("low", waiting),
            Sender::LowForData => ours("low", "data"),
            Sender::Perftest(operation) => self.perftest.message(load.test, operation, load.size),
        }?;
        Ok(match load.test {
            Test::Latency => micros,
            Test::Bandwidth => 1e3 / micros,
        })
    }

    fn program(&self, level: &str, waiting: &str, load: &str, size: u32, count: u32) -> Program {
        let program = Program::new(self.directory.join("bench-endpoint"));
        let program = program.args([level, self.address, waiting, load]);
        program.args([size.to_string(), count.to_string()])
    }
}

impl Load {
    fn row(self, name: String, pairs: impl IntoIterator<Item = [f64; 2]>) -> Row {
        let row = Row::of_pairs(name, self.unit(), pairs);
        match self.test {
            Test::Latency => row.at_most(LATENCY_GOAL),
            Test::Bandwidth => row.at_least(RATE_GOAL),
        }
    }

    fn unit(self) -> &'static str {
        match self.test {
            Test::Latency => "us",
            Test::Bandwidth => "1000/s",
        }
    }
}

/// Returns the number that the program prints.
fn measured(program: &Program) -> Result<f64, Box<dyn Error>> {
    Ok(run::output(program)?.trim().parse()?)
}
