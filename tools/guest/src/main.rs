//! The init of the test bed's virtual machine.
//!
//! It executes the [`plan`](guest::plan) of its initramfs, [reports](guest::report) to xtask and powers the machine
//! off. As any other process, the program is `rdmatools`.
// `println!` panics if standard output is a closed pipe.
#![cfg_attr(not(test), warn(clippy::print_stdout))]

mod channel;
mod command;
mod demo;
mod modules;
mod mounts;
mod netlink;
mod network;
mod rdma;

use std::env;
use std::fs;
use std::process::ExitCode;

use guest::plan::{self, Plan, Work};
use guest::report::{Frame, Status};
use nix::sys::reboot::{RebootMode, reboot};
use tool_error::{Context, Result};

use crate::channel::Report;

fn main() -> ExitCode {
    if std::process::id() != 1 {
        // A guest without the host's files has no other program.
        return rdmatools::main(env::args_os());
    }
    // Standard error is the kernel's console here.
    if let Err(error) = run_guest() {
        eprintln!("guest: {error}");
    }
    let Err(errno) = reboot(RebootMode::RB_POWER_OFF);
    eprintln!("guest: cannot power off: {errno}");
    ExitCode::FAILURE
}

/// Runs the guest from boot to power-off. Only failures outside the report are errors.
fn run_guest() -> Result<()> {
    mounts::kernel_file_systems()?;
    let plan = fs::read(plan::PATH).with_context(|| format!("read {}", plan::PATH))?;
    let plan = Plan::from_bytes(&plan)?;
    modules::load(&plan.modules)?;
    let report = Report::open()?;
    let last = match execute_plan(&plan, &report) {
        Ok(status) => Frame::End { status, taint: taint()? },
        Err(error) => Frame::Failed(error.to_string()),
    };
    report.send(&last)?;
    report.wait_until_read()
}

fn execute_plan(plan: &Plan, report: &Report) -> Result<Status> {
    if let Work::Command(command) = &plan.work {
        mounts::host_root(&command.module_tree, command.has_programs)?;
    }
    network::set_up(&plan.devices)?;
    rdma::set_up(&plan.devices)?;
    let kernel = fs::read_to_string("/proc/sys/kernel/osrelease").context("read the release")?;
    report.send(&Frame::Ready { kernel: kernel.trim().to_owned() })?;
    match &plan.work {
        Work::Command(command) => command::run(command, report),
        Work::Demo(pings) => demo::run("/proc/self/exe", &plan.devices, *pings, report),
        Work::DemoOnly(pings) => {
            mounts::keep_only(plan::PROGRAM)?;
            demo::run(plan::PROGRAM, &plan.devices, *pings, report)
        }
    }
}

fn taint() -> Result<u64> {
    let taint =
        fs::read_to_string("/proc/sys/kernel/tainted").context("read the kernel's taint")?;
    taint.trim().parse().context("parse the kernel's taint")
}
