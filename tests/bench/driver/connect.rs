//! Cost of a connection, for programs of ours and of C that make the same steps.
//!
//! All of them connect to the same C server.

use std::error::Error;
use std::path::Path;

use rdmacm::device::{Device, DriverId};

use crate::PORT;
use crate::peer::Peer;
use crate::rounds::{by_turns, median_trace, served};
use crate::run::{self, Program, progress};
use crate::scheduler;
use crate::table::Row;
use crate::trace::{self, Counts};

/// Number of timed runs of a client.
const CLIENT_ROUNDS: usize = 25;
/// Number of runs in which a client's memory is measured.
const MEMORY_ROUNDS: usize = 5;
/// Largest ratio of times at which a step does not count as slower than the C library.
const TIME_GOAL: f64 = 1.05;

/// Measures on the device, with our programs in the directories: linked dynamically, and statically.
pub(crate) fn rows(
    device: &Device,
    address: &str,
    directories: [&Path; 2],
) -> Result<Vec<Row>, Box<dyn Error>> {
    scheduler::batch()?;
    let bench = Bench::new(device, address);
    let mut rows = bench.client(directories)?;
    rows.push(bench.commands(directories[0])?);
    rows.push(bench.calls(directories[0])?);
    rows.extend(bench.connections(directories[0])?);
    Ok(rows)
}

/// Device, address and sizes of the measurements.
struct Bench<'a> {
    device: &'a Device,
    address: &'a str,
    /// Connections of one run whose commands are counted.
    counted: u32,
    /// Connections of one run whose time is taken, and the number of such runs.
    timed: u32,
    rounds: usize,
}

impl<'a> Bench<'a> {
    fn new(device: &'a Device, address: &'a str) -> Self {
        // The C library treats the mapping of a siw context's 145th page as an error, so its programs
        // reach at most 71 connections. With completion queues for each connection, they reach fewer.
        let (counted, timed, rounds) = match device.driver() {
            Some(DriverId::RDMA_DRIVER_SIW) => (30, 60, 151),
            _ => (50, 1000, 45),
        };
        Self { device, address, counted, timed, rounds }
    }
}

impl Bench<'_> {
    /// Measures one run of a client that connects, sends a message and receives one.
    ///
    /// Our client is measured twice: as cargo links it, and linked statically.
    fn client(&self, directories: [&Path; 2]) -> Result<Vec<Row>, Box<dyn Error>> {
        let [ours, ours_static] =
            directories.map(|path| ours(path, "bench-rdma-client").args([self.address, PORT]));
        let c = Program::new("rdma_client").args(["-s", self.address, "-p", PORT]);
        let server = Program::new("rdma_server").args(["-s", self.address, "-p", PORT]);
        let programs = [&ours, &ours_static, &c];
        let names = |name: &str| [name.to_owned(), format!("{name}, linked statically")];

        progress("system calls of a client run");
        let traces = programs.map(|program| median_trace(|| traced(self.device, &server, program)));
        let [ours, ours_static, c] = traces;
        let (ours, c) = ([ours?, ours_static?], c?);
        let calls = |name: &str, of: fn(Counts) -> u32| {
            let rows = names(name).into_iter().zip(ours);
            rows.map(move |(name, ours)| Row::exact(name, "", of(ours).into(), of(c).into()))
        };
        let all = calls("system calls of a client run", |calls| calls.all);
        let mut rows: Vec<Row> = all.map(|row| row.at_most(0.25)).collect();
        rows.extend(calls("system calls after opening rdma_cm", |calls| calls.after_open));

        for (name, unit, count, measure) in [
            ("time of a client run", "ms", CLIENT_ROUNDS, run::milliseconds as Measure),
            ("peak memory of a client run", "kB", MEMORY_ROUNDS, run::peak_kilobytes),
        ] {
            progress(&format!("{name}: {count} rounds of three programs"));
            let rounds = by_turns(count, programs, |program| {
                served(self.device, &server, || measure(program))
            })?;
            for (place, name) in names(name).into_iter().enumerate() {
                let pairs = rounds.iter().map(|round| [round[place], round[2]]);
                rows.push(Row::of_pairs(name, unit, pairs));
            }
        }
        Ok(rows)
    }

    /// Measures the commands of a connection.
    fn commands(&self, directory: &Path) -> Result<Row, Box<dyn Error>> {
        let count = self.counted.to_string();
        let options = ["-p", PORT, "-c", &count, "-C", "0"];
        let c = Program::new("ucmatose").args(["-s", self.address]).args(options);
        let server = Program::new("ucmatose").args(["-b", self.address]).args(options);
        let ours = ours(directory, "bench-ucmatose").args([self.address, PORT, &count]);
        let name = format!("commands per connection of {}", self.counted);
        progress(&name);
        let traces =
            [&ours, &c].map(|program| median_trace(|| traced(self.device, &server, program)));
        let [ours, c] = traces;
        let each = |calls: Counts| f64::from(calls.commands) / f64::from(self.counted);
        Ok(Row::exact(name, "", each(ours?), each(c?)).at_most(1.0))
    }

    /// Measures the library's system calls for one more connection.
    ///
    /// They are commands, and the calls that map its queue pair and unmap it.
    fn calls(&self, directory: &Path) -> Result<Row, Box<dyn Error>> {
        let name = format!("library's system calls per connection of {}", self.counted);
        progress(&name);
        let calls = |program: &dyn Fn(&str) -> Program| -> Result<f64, Box<dyn Error>> {
            let [few, many] = [1, 1 + self.counted].map(|count| {
                let program = program(&count.to_string());
                median_trace(|| {
                    let _server = Peer::start(self.device, &self.cmtime_server())?;
                    trace::count(&program)
                })
            });
            let calls =
                |counts: Counts| f64::from(counts.commands + counts.mappings + counts.unmappings);
            Ok((calls(many?) - calls(few?)) / f64::from(self.counted))
        };
        let ours =
            calls(&|count| self.cmtime(ours(directory, "rdmatools").args(["cmtime"]), count))?;
        let c = calls(&|count| self.cmtime(Program::new("cmtime"), count))?;
        Ok(Row::exact(name, "", ours, c).at_most(0.9))
    }

    /// Returns `program` as the client of [`cmtime_server`](Self::cmtime_server).
    fn cmtime(&self, program: Program, connections: &str) -> Program {
        program.args(["-s", self.address, "-p", PORT, "-c", connections])
    }

    /// Returns the server of one run, which does not end by itself.
    ///
    /// It creates every queue pair on the queues of its first connection, which are destroyed with that connection.
    fn cmtime_server(&self) -> Program {
        Program::new("cmtime").args(["-b", self.address, "-p", PORT])
    }

    /// Measures the time of each step with many connections at once, and of all steps together.
    fn connections(&self, directory: &Path) -> Result<Vec<Row>, Box<dyn Error>> {
        let count = self.timed.to_string();
        let c = self.cmtime(Program::new("cmtime"), &count);
        let ours = self.cmtime(ours(directory, "rdmatools").args(["cmtime"]), &count);
        let name = format!("time per connection of {}", self.timed);
        progress(&format!("{name}: {} rounds of two programs", self.rounds));
        let rounds = by_turns(self.rounds, [&ours, &c], |program| {
            let _server = Peer::start(self.device, &self.cmtime_server())?;
            steps(&run::output(program)?)
        })?;
        let pairs = |of: fn(&Steps) -> f64| rounds.iter().map(move |[ours, c]| [of(ours), of(c)]);
        let total = pairs(|steps| steps.iter().sum());
        let mut rows = vec![Row::of_pairs(name, "us", total).at_most(TIME_GOAL)];
        for (place, name) in STEPS.iter().enumerate() {
            let pairs = rounds.iter().map(|[ours, c]| [ours[place], c[place]]);
            rows.push(Row::of_pairs(format!("  {name}"), "us", pairs).at_most(TIME_GOAL));
        }
        Ok(rows)
    }
}

fn ours(directory: &Path, name: &str) -> Program {
    Program::new(directory.join(name))
}

fn traced(device: &Device, server: &Program, program: &Program) -> Result<Counts, Box<dyn Error>> {
    served(device, server, || trace::count(program))
}

/// A measurement of one run of a program.
type Measure = fn(&Program) -> Result<f64, Box<dyn Error>>;

/// The steps of cmtime.
const STEPS: [&str; 7] =
    ["create id", "resolve addr", "resolve route", "create qp", "connect", "disconnect", "destroy"];

/// Time of each step per connection, in microseconds.
type Steps = [f64; STEPS.len()];

/// Reads the table of cmtime.
///
/// The last number of a line, such as `resolve addr :  13.0  5.7  67.0  65.1`, is the time per connection.
fn steps(table: &str) -> Result<Steps, Box<dyn Error>> {
    let mut steps = [0.0; STEPS.len()];
    for (name, step) in STEPS.iter().zip(&mut steps) {
        let line = table
            .lines()
            .filter_map(|line| line.split_once(':'))
            .find(|(found, _)| found.trim() == *name);
        let each = line.and_then(|(_, numbers)| numbers.split_whitespace().last()?.parse().ok());
        *step = each.ok_or_else(|| format!("no {name} in:\n{table}"))?;
    }
    Ok(steps)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn last_number_of_step_counts() {
        let line = |name: &str| format!("{name:13}:  5.2  0.4  26.2\n");
        let table = format!("creating id\n{}", STEPS.map(line).concat());
        assert_eq!(steps(&table).expect("all steps"), [26.2; STEPS.len()]);
        let error = steps(&line("create id"))
            .expect_err("a table with one step should be refused")
            .to_string();
        assert!(error.contains("resolve addr"), "{error}");
    }
}
