//! Runs programs on this machine repeatedly. In each run, another one of their system calls fails.
//!
//! Usage: `fault-driver TOOLS devices|all [WORD...]`, with the path of `rdmatools`. Words select: `cmatose`, `client`,
//! `ENODEV` and `KILL` together are the client of that scenario with these two faults. A category without a word is
//! complete.
//!
//! For each [scenario](plan::Scenario), each of its two sides and each [call](plan::CALLS), run N fails the N-th call,
//! or kills the program at it, until a run has no N-th call. `devices` visits the calls on the nodes of the connection
//! manager and of verbs, with one errno, and each fourth with a kill. `all` visits every call of the run, with every
//! [fault](plan::Fault).
//!
//! Each run must end by itself within its limit: successfully, or with an error that names the failed operation. Its
//! peer must too, and the kernel must have no more objects than before. Every other run is reported and makes the exit
//! status 1.

mod plan;
mod run;
mod trace;
mod verdict;

use std::env;
use std::error::Error;
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use rdmacm::device;

use crate::plan::{CALLS, Extent, Fault, Plan, Scenario, Side};
use crate::run::Walk;
use crate::verdict::Counts;

const USAGE: &str = "usage: fault-driver rdmatools devices|all [scenario|side|fault ...]";

fn main() -> Result<ExitCode, Box<dyn Error>> {
    let arguments: Vec<String> = env::args().skip(1).collect();
    let [tools, extent, words @ ..] = &arguments[..] else { return Err(USAGE.into()) };
    let extent = Extent::from_name(extent).ok_or(USAGE)?;
    let plan = Plan::new(extent, words)?;
    let mut out = io::stdout();
    let (mut total, mut port) = (Counts::default(), 7300);
    for scenario in plan.scenarios {
        for &side in &plan.sides {
            for &fault in &plan.faults {
                let counts = walk(tools.as_ref(), extent, scenario, side, fault, &mut port)?;
                writeln!(out, "{:<8} {side:<6} {fault:<6} {counts}", scenario.name)?;
                total = total + counts;
            }
        }
    }
    writeln!(out, "{total}\n{} faults tried, {} survived", total.tried(), total.survived())?;
    Ok(if total.survived() == total.tried() { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

/// Visits each call of one side.
fn walk(
    tools: &Path,
    extent: Extent,
    scenario: &Scenario,
    side: Side,
    fault: Fault,
    port: &mut u16,
) -> Result<Counts, Box<dyn Error>> {
    let mut counts = Counts::default();
    for call in CALLS {
        let mut number = 1;
        loop {
            *port = if *port == 7999 { 7300 } else { *port + 1 };
            let walk = Walk { tools, scenario, side, call, fault, number, port: *port };
            let Some(verdict) = walk.run(&nodes(extent)?)? else { break };
            if let Err(wrong) = &verdict {
                eprintln!("{walk}: {wrong}\n");
            }
            counts.count(verdict.ok());
            number += extent.step(fault);
        }
    }
    Ok(counts)
}

/// Returns the nodes to which the visited calls belong; none if all calls are visited.
fn nodes(extent: Extent) -> Result<Vec<PathBuf>, Box<dyn Error>> {
    if extent == Extent::All {
        return Ok(Vec::new());
    }
    let mut nodes = vec![PathBuf::from(device::cm_char_device().path())];
    for device in device::list()? {
        nodes.extend(device.uverbs().map(|uverbs| PathBuf::from(uverbs.path())));
    }
    Ok(nodes)
}
