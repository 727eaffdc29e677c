//! Measures what this library costs beside the C one, in the machine that it runs in:
//! `bench-driver DEVICE ADDRESS SUBJECT DIRECTORY...`, with an address of the device, and
//!
//! - `connect` and the directories of our programs, linked dynamically and statically, for
//!   [what a connection costs](connect);
//! - `calls`, `latency` or `rates` and the directory of our programs for [what messages cost](data);
//! - `posts` and the same for [what posting and polling cost the program](posts);
//! - `endpoint` and the same for [what they cost on the safe tier](endpoint);
//! - `alone` and the directory of our static program for [what it takes](alone), with an exit status.
//!
//! What varies is measured in rounds, in which ours and the C program run by turns.

mod alone;
mod connect;
mod data;
mod endpoint;
mod peer;
mod posts;
mod rounds;
mod run;
mod scheduler;
mod table;
mod trace;

use std::env;
use std::error::Error;
use std::ffi::OsStr;
use std::io::{self, Write};
use std::path::Path;

use nix::sys::personality::{self, Persona};
use rdmacm::device;

use crate::table::Table;

const PORT: &str = "7471";

fn main() -> Result<(), Box<dyn Error>> {
    let arguments: Vec<_> = env::args_os().skip(1).collect();
    let arguments: Vec<&OsStr> = arguments.iter().map(|argument| &**argument).collect();
    let [name, address, subject, directories @ ..] = &arguments[..] else {
        return Err("usage: bench-driver device address subject directory ...".into());
    };
    let name = name.to_str().ok_or("the device's name is not text")?;
    let address = address.to_str().ok_or("the address is not text")?;
    let found = device::list()?.into_iter().find(|device| device.name() == name);
    let device = found.ok_or_else(|| format!("there is no device {name}"))?;
    // Inherited by the programs. An emulator translates code anew for each address that it lies at, and a
    // program's first calls would take a hundred times as long as the rest.
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
        (Some("posts"), [directory]) => posts::rows(address, Path::new(directory)),
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
    run::progress(&format!("{} runs were useless and made again", run::made_again()));
    write!(io::stdout(), "{}", Table { names, rows: &rows })?;
    let missed = rows.iter().any(|row| !row.is_reached());
    if missed && subject.to_str() == Some("alone") {
        Err("a goal is missed".into())
    } else {
        Ok(())
    }
}
