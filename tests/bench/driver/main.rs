//! Measures the cost of this library beside that of the C library, on this machine.
//!
//! Usage: `bench-driver [--compare FILE | --renew] DEVICE ADDRESS SUBJECT DIRECTORY...`. ADDRESS belongs to the device.
//! The subjects are:
//!
//! - `connect`: the [cost of a connection](connect). It takes two directories of our programs: linked dynamically, and
//!   statically. Each other subject takes one directory.
//! - `calls`, `latency` and `rates`: the [cost of messages](data).
//! - `posts`: the [cost of posting and polling](posts) for the program.
//! - `endpoint`: the [cost of messages on the safe tier](endpoint).
//! - `null`: the [cost of posting and polling without a device](null). It takes any device and address.
//! - `alone`: the [size, system calls and memory of the static program](alone) in the directory. A missed goal is an error.
//!
//! Figures that vary are measured in rounds, in which our program and the C program take turns.
//!
//! With `--compare`, the program fails if a figure leaves its band of the [baseline] FILE. With `--renew`, it prints
//! the lines of a new baseline, each after `baseline` and a tab.

mod alone;
mod baseline;
mod connect;
mod data;
mod endpoint;
mod fences;
mod null;
mod peer;
mod posts;
mod profile;
mod rounds;
mod run;
mod scheduler;
mod stores;
mod table;
mod trace;

use std::env;
use std::error::Error;
use std::ffi::OsStr;
use std::fs;
use std::io::{self, Write};
use std::path::Path;

use nix::sys::personality::{self, Persona};
use rdmacm::device;

use crate::baseline::{Baseline, Renewed};
use crate::table::{Row, Table};

const PORT: &str = "7471";

fn main() -> Result<(), Box<dyn Error>> {
    let arguments: Vec<_> = env::args_os().skip(1).collect();
    let arguments: Vec<&OsStr> = arguments.iter().map(|argument| &**argument).collect();
    let (task, arguments) = Task::parse(&arguments);
    let [name, address, subject, directories @ ..] = arguments else {
        let usage = "bench-driver [--compare file | --renew] device address subject directory ...";
        return Err(format!("usage: {usage}").into());
    };
    let name = name.to_str().ok_or("the device's name is not text")?;
    let address = address.to_str().ok_or("the address is not text")?;
    if subject.to_str() == Some("null") {
        let [directory] = directories else { return Err("null takes one directory".into()) };
        return show(task, ["library", "driver"], &null::rows(Path::new(directory))?);
    }
    let found = device::list()?.into_iter().find(|device| device.name() == name);
    let device = found.ok_or_else(|| format!("there is no device {name}"))?;
    // The programs inherit this. An emulator translates code for each address again, so with random addresses the first
    // calls of a program would take a hundred times as long as the rest.
    personality::set(personality::get()? | Persona::ADDR_NO_RANDOMIZE)?;
    let mut names = ["ours", "C"];
    let rows = match (subject.to_str(), directories) {
        (Some("connect"), [linked_dynamically, linked_statically]) => {
            let directories = [linked_dynamically, linked_statically].map(Path::new);
            connect::rows(&device, address, directories)
        }
        (Some("calls"), [directory]) => data::calls(&device, address, Path::new(directory)),
        (Some("latency"), [directory]) => data::latency(&device, address, Path::new(directory)),
        (Some("rates"), [directory]) => data::rates(&device, address, Path::new(directory)),
        (Some("posts"), [directory]) => posts::rows(&device, address, Path::new(directory)),
        (Some("alone"), [directory]) => alone::rows(&device, address, Path::new(directory)),
        (Some("endpoint"), [directory]) => {
            names = ["safe", "other"];
            endpoint::rows(&device, address, Path::new(directory))
        }
        _ => {
            let usage = "`connect` with two directories, or another one with one";
            return Err(format!("the subject is {usage}").into());
        }
    }?;
    run::progress(&format!("{} runs were useless and repeated", run::repetitions()));
    let missed = rows.iter().any(|row| !row.is_reached());
    if missed && subject.to_str() == Some("alone") {
        write!(io::stdout(), "{}", Table { names, rows: &rows })?;
        return Err("a goal is missed".into());
    }
    show(task, names, &rows)
}

/// Shows the rows, and carries out the task.
fn show(task: Task<'_>, names: [&'static str; 2], rows: &[Row]) -> Result<(), Box<dyn Error>> {
    write!(io::stdout(), "{}", Table { names, rows })?;
    task.carry_out(rows)
}

/// Action on the rows besides showing them.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Task<'a> {
    Show,
    /// Compare them with the baseline in this file.
    Compare(&'a Path),
    /// Print a new baseline.
    Renew,
}

impl<'a> Task<'a> {
    /// Splits the arguments into the task and the rest.
    fn parse<'b>(arguments: &'b [&'a OsStr]) -> (Self, &'b [&'a OsStr]) {
        match arguments {
            [option, file, rest @ ..] if *option == "--compare" => {
                (Self::Compare(Path::new(*file)), rest)
            }
            [option, rest @ ..] if *option == "--renew" => (Self::Renew, rest),
            _ => (Self::Show, arguments),
        }
    }

    fn carry_out(self, rows: &[Row]) -> Result<(), Box<dyn Error>> {
        let mut out = io::stdout();
        match self {
            Self::Show => Ok(()),
            Self::Renew => {
                for line in Renewed(rows).to_string().lines() {
                    writeln!(out, "baseline\t{line}")?;
                }
                Ok(())
            }
            Self::Compare(file) => {
                let named = |error: &dyn Error| format!("{}: {error}", file.display());
                let text = fs::read_to_string(file).map_err(|error| named(&error))?;
                let baseline = Baseline::parse(&text).map_err(|error| named(&*error))?;
                let deviations = baseline.deviations(rows);
                for deviation in &deviations {
                    writeln!(out, "{deviation}")?;
                }
                let name = file.display();
                if baseline.unmeasured() > 0 {
                    writeln!(out, "{} rows have no figure in {name}", baseline.unmeasured())?;
                }
                if deviations.is_empty() {
                    writeln!(out, "every figure lies in its band of {name}")?;
                    return Ok(());
                }
                Err(format!("{} figures differ from {name}", deviations.len()).into())
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn task_is_read_from_first_arguments() {
        let parsed = |line: &'static str| {
            let arguments: Vec<&OsStr> = line.split(' ').map(OsStr::new).collect();
            let (task, rest) = Task::parse(&arguments);
            (task, rest.len())
        };
        assert_eq!(parsed("rxe0 10.0.0.1 posts /x"), (Task::Show, 4));
        assert_eq!(parsed("--renew rxe0 10.0.0.1"), (Task::Renew, 2));
        assert_eq!(parsed("--compare file rxe0"), (Task::Compare(Path::new("file")), 1));
    }
}
