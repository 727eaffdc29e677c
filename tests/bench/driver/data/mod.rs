//! Cost of messages: `rdmatools lat` and `bw` beside the programs of perftest, with the same options.
//!
//! The bandwidth of messages of one size is the rate times the size, so one ratio stands for both.

mod load;
mod printed;

use std::error::Error;
use std::fs;
use std::path::Path;
use std::time::Instant;

use rdmacm::device::{Device, DriverId};

pub(crate) use self::load::Test;
use self::load::{Load, Maker, Place, Side};
use crate::PORT;
use crate::peer::Peer;
use crate::rounds::{by_turns, fewest_calls};
use crate::run::{self, Useless, progress};
use crate::scheduler;
use crate::table::{Goal, Row};
use crate::trace::{self, Counts, Tracer};

/// Number of measurements of each load. A latency is nearly the same each time.
const LATENCY_ROUNDS: usize = 12;
const BANDWIDTH_ROUNDS: usize = 12;
/// Number of comparisons of printed results with a clock.
const CLOCK_ROUNDS: usize = 5;

/// Bytes of the messages.
const SIZES: [u32; 8] = [2, 16, 64, 256, 1024, 4096, 16_384, 65_536];

const LATENCY: [&str; 3] = ["send", "write", "read"];
const BANDWIDTH: [&str; 2] = ["send", "write"];

/// Maximum ratio of a latency, and minimum ratio of a bandwidth.
const LATENCY_GOAL: f64 = 1.05;
const BANDWIDTH_GOAL: f64 = 0.95;

/// Our small messages in lists, compared with single messages of the C program.
const LIST: u32 = 16;
const LISTED_SIZE: u32 = 16;
const LIST_GOAL: f64 = 1.2;

/// Traced message sizes.
///
/// They are the shortest messages, and the longest of those whose completions are requested differently.
const TRACED_SIZES: [u32; 3] = [2, 4096, 65_536];

/// Numbers of messages of two runs under strace. The difference of their calls is the cost of the additional messages.
const TRACED: [u32; 2] = [100, 1100];

/// Counts the system calls of each message on the device, with our programs in the directory.
pub(crate) fn calls(
    device: &Device,
    address: &str,
    directory: &Path,
) -> Result<Vec<Row>, Box<dyn Error>> {
    let bench = Bench::new(device, address, directory)?;
    // On siw, a program that posts faster than the kernel sends rings fewer doorbells. strace slows the calls down. So a
    // run has between 0.1 and 1 call for a message in both libraries, by chance.
    let is_siw = device.driver() == Some(DriverId::RDMA_DRIVER_SIW);
    let loads = latencies().chain(bandwidths().filter(|_| !is_siw));
    let sized = loads.flat_map(|load| TRACED_SIZES.map(|size| Load { size, ..load }));
    sized.map(|load| bench.calls(&load)).collect()
}

/// Measures the time of single messages.
pub(crate) fn latency(
    device: &Device,
    address: &str,
    directory: &Path,
) -> Result<Vec<Row>, Box<dyn Error>> {
    let bench = Bench::new(device, address, directory)?;
    scheduler::prefer_others()?;
    scheduler::gather_work()?;
    bench.at_each_size(latencies())
}

/// Measures the rate of messages.
pub(crate) fn rates(
    device: &Device,
    address: &str,
    directory: &Path,
) -> Result<Vec<Row>, Box<dyn Error>> {
    let bench = Bench::new(device, address, directory)?;
    scheduler::prefer_others()?;
    let mut rows = vec![bench.clock()?];
    rows.extend(bench.at_each_size(bandwidths())?);
    for operation in BANDWIDTH {
        rows.push(bench.lists(operation)?);
    }
    Ok(rows)
}

/// The programs of perftest that sleep until an event arrives.
pub(crate) struct Asleep<'a>(Bench<'a>);

impl<'a> Asleep<'a> {
    pub(crate) fn new(device: &'a Device, address: &'a str) -> Result<Self, Box<dyn Error>> {
        Ok(Self(Bench::new(device, address, Path::new(""))?))
    }

    /// Returns the microseconds of a message.
    pub(crate) fn message(
        &self,
        test: Test,
        operation: &'static str,
        size: u32,
    ) -> Result<f64, Box<dyn Error>> {
        let load = Load { asleep: true, ..Load::new(test, operation, size) };
        let figure = self.0.run(Maker::C, &load)?.figure;
        Ok(match test {
            Test::Latency => figure,
            Test::Bandwidth => 1e3 / figure,
        })
    }
}

/// Returns one load of each kind.
fn latencies() -> impl Iterator<Item = Load> {
    LATENCY.into_iter().map(|operation| Load::new(Test::Latency, operation, SIZES[0]))
}

fn bandwidths() -> impl Iterator<Item = Load> {
    BANDWIDTH.into_iter().map(|operation| Load::new(Test::Bandwidth, operation, SIZES[0]))
}

struct Bench<'a> {
    place: Place<'a>,
}

impl<'a> Bench<'a> {
    fn new(
        device: &'a Device,
        address: &'a str,
        directory: &'a Path,
    ) -> Result<Self, Box<dyn Error>> {
        scheduler::cut_slices()?;
        let cycles = printed::cycles(&fs::read_to_string("/proc/cpuinfo")?);
        let cycles = cycles.ok_or("the kernel does not know the processor's clock")?;
        Ok(Self { place: Place { directory, device, address, port: PORT, cycles } })
    }
}

impl Bench<'_> {
    /// Measures each load with messages of each size.
    fn at_each_size(&self, loads: impl Iterator<Item = Load>) -> Result<Vec<Row>, Box<dyn Error>> {
        let sized = |load: Load| SIZES.map(|size| Load::new(load.test, load.operation, size));
        loads.flat_map(sized).map(|load| self.figures(load)).collect()
    }

    /// Compares our program with the C program under the same load.
    fn figures(&self, load: Load) -> Result<Row, Box<dyn Error>> {
        let name = format!("{load}, {} bytes", load.size);
        let (unit, scale) = match load.test {
            Test::Latency => ("us", 1.0),
            // A rate of large messages is shown in millions of bytes.
            Test::Bandwidth if load.size >= 1024 => ("MB/s", f64::from(load.size) / 1e3),
            Test::Bandwidth => ("1000/s", 1.0),
        };
        let goal = match load.test {
            Test::Latency => Goal::AtMost(LATENCY_GOAL),
            Test::Bandwidth => Goal::AtLeast(BANDWIDTH_GOAL),
        };
        self.compare(name, unit, scale, [load; 2], goal)
    }

    /// Compares our lists of small messages with the C program's single messages.
    fn lists(&self, operation: &'static str) -> Result<Row, Box<dyn Error>> {
        let single = Load::new(Test::Bandwidth, operation, LISTED_SIZE);
        let listed = Load { list: LIST, ..single };
        let name = format!("{listed} by one by one, {LISTED_SIZE} bytes");
        self.compare(name, "1000/s", 1.0, [listed, single], Goal::AtLeast(LIST_GOAL))
    }

    /// Compares our figures under the first load with the C program's under the second.
    fn compare(
        &self,
        name: String,
        unit: &'static str,
        scale: f64,
        [ours, c]: [Load; 2],
        goal: Goal,
    ) -> Result<Row, Box<dyn Error>> {
        let rounds = match ours.test {
            Test::Latency => LATENCY_ROUNDS,
            Test::Bandwidth => BANDWIDTH_ROUNDS,
        };
        let figure = |(maker, load): &_| Ok(self.run(*maker, load)?.figure * scale);
        let pairs = by_turns(rounds, [&(Maker::Ours, ours), &(Maker::C, c)], figure)?;
        let row = Row { goal: Some(goal), ..Row::of_pairs(name, unit, pairs) };
        progress(&format!("{row}, {rounds} rounds"));
        Ok(row)
    }

    /// Compares the printed times, from the processor's counter, with the clock of this process.
    ///
    /// Each time is the difference of two runs, one with more messages than the other.
    fn clock(&self) -> Result<Row, Box<dyn Error>> {
        let name = "printed time by measured time";
        progress(&format!("{name}: {CLOCK_ROUNDS} rounds"));
        let few = Load::new(Test::Bandwidth, "send", SIZES[SIZES.len() - 1]);
        let many = Load { messages: few.messages * 4, ..few };
        let percent = |maker: &Maker| {
            let [few, many] = [few, many].map(|load| {
                let Run { figure, seconds } = self.run(*maker, &load)?;
                Ok::<_, Box<dyn Error>>((f64::from(load.messages) / figure / 1e3, seconds))
            });
            let (few, many) = (few?, many?);
            Ok((many.0 - few.0) / (many.1 - few.1) * 100.0)
        };
        let pairs = by_turns(CLOCK_ROUNDS, [&Maker::Ours, &Maker::C], percent)?;
        Ok(Row::of_pairs(name, "%", pairs))
    }

    /// Counts the system calls of both sides for one more message.
    fn calls(&self, load: &Load) -> Result<Row, Box<dyn Error>> {
        let name = format!("system calls per message, {load}, {} bytes", load.size);
        progress(&name);
        let each = |maker| -> Result<f64, Box<dyn Error>> {
            let [few, many] = TRACED.map(|messages| {
                let load = Load { messages, ..*load };
                fewest_calls(|| self.trace(maker, &load))
            });
            let each = (f64::from(many?) - f64::from(few?)) / f64::from(TRACED[1] - TRACED[0]);
            // The figure is rounded to hundredths, because a few calls belong to the connection's events and vary.
            Ok((each * 100.0).round() / 100.0)
        };
        Ok(Row::exact(name, "", each(Maker::Ours)?, each(Maker::C)?).at_most(1.0))
    }

    fn run(&self, maker: Maker, load: &Load) -> Result<Run, Box<dyn Error>> {
        let server = self.server(maker, load)?;
        let client = load.program(maker, &self.place, Side::Client);
        let start = Instant::now();
        let text = run::output(&client).map_err(|error| racing(maker, error))?;
        let seconds = start.elapsed().as_secs_f64();
        server.finish().map_err(|error| racing(maker, error))?;
        let figure = printed::figure(maker, load, self.place.cycles, &text)?;
        Ok(Run { figure, seconds })
    }

    /// Returns the system calls of client and server.
    fn trace(&self, maker: Maker, load: &Load) -> Result<Counts, Box<dyn Error>> {
        let server = self.server(maker, load)?;
        let tracer = Tracer::attach(server.id())?;
        let client = load.program(maker, &self.place, Side::Client);
        let client = trace::count(&client).map_err(|error| racing(maker, error))?;
        server.finish().map_err(|error| racing(maker, error))?;
        Ok(client + tracer.finish()?)
    }

    fn server(&self, maker: Maker, load: &Load) -> Result<Peer, Box<dyn Error>> {
        Peer::start(self.place.device, &load.program(maker, &self.place, Side::Server))
    }
}

/// Results of one run.
struct Run {
    /// The figure that the client printed.
    figure: f64,
    /// The time from the start of the client to its end.
    seconds: f64,
}

/// Marks the failure of a perftest run as useless.
///
/// perftest connects twice. The second time it does not wait for its server to listen, and fails if the server listens
/// later.
fn racing(maker: Maker, error: Box<dyn Error>) -> Box<dyn Error> {
    match maker {
        Maker::Ours => error,
        Maker::C => Useless(error.to_string()).into(),
    }
}
