//! The init of the test bed's virtual machine: carries out the [`plan`](guest::plan) of its initramfs,
//! [reports](guest::report) to xtask and switches the machine off.

mod channel;
mod command;
mod modules;
mod mounts;
mod netlink;
mod network;
mod rdma;

use std::fs::{self, File};
use std::process::ExitCode;
use std::sync::{Arc, Mutex, PoisonError};

use guest::plan::{self, Plan};
use guest::report::{Frame, Status, Writer};
use nix::sys::reboot::{RebootMode, reboot};

use guest::error::{Context, Result};

fn main() -> ExitCode {
    if std::process::id() != 1 {
        eprintln!("guest: this is the init of a virtual machine; it runs as process 1 only");
        return ExitCode::FAILURE;
    }
    // Standard error is the kernel's console here.
    if let Err(error) = live() {
        eprintln!("guest: {error}");
    }
    let Err(errno) = reboot(RebootMode::RB_POWER_OFF);
    eprintln!("guest: cannot power off: {errno}");
    ExitCode::FAILURE
}

/// Everything between boot and power-off. Only what goes wrong outside the report is an error here.
fn live() -> Result<()> {
    mounts::kernel_file_systems()?;
    let plan = fs::read(plan::PATH).with_context(|| format!("read {}", plan::PATH))?;
    let plan = Plan::from_bytes(&plan).context("understand the plan")?;
    modules::load(&plan.modules)?;
    let channel = channel::open()?;
    let copy = channel.try_clone().context("duplicate the report's port")?;
    let report = Arc::new(Mutex::new(Writer::new(copy)));
    let last = match serve(&plan, &report) {
        Ok(status) => Frame::End { status, taint: taint()? },
        Err(error) => Frame::Failed(error.to_string()),
    };
    send(&report, &last)?;
    channel::wait_until_read(&channel)
}

fn serve(plan: &Plan, report: &Arc<Mutex<Writer<File>>>) -> Result<Status> {
    mounts::host_root(&plan.module_tree)?;
    network::set_up()?;
    rdma::set_up(&plan.devices)?;
    let kernel = fs::read_to_string("/proc/sys/kernel/osrelease").context("read the release")?;
    send(report, &Frame::Ready { kernel: kernel.trim().to_owned() })?;
    command::run(plan, report)
}

fn send(report: &Mutex<Writer<File>>, frame: &Frame) -> Result<()> {
    let mut report = report.lock().unwrap_or_else(PoisonError::into_inner);
    report.send(frame).context("send the report")
}

fn taint() -> Result<u64> {
    let taint =
        fs::read_to_string("/proc/sys/kernel/tainted").context("read the kernel's taint")?;
    taint.trim().parse().context("understand the kernel's taint")
}
