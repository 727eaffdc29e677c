//! `conform`: compares a kernel's ucma and uverbs with those of Linux, command by command.
//!
//! The catalog is data: each [`Check`] has an id, a description, the kernel's source, and the expectation by version.
//! A check needs only the two device nodes.

mod alter;
mod bench;
mod check;
mod kernel;
mod probe;
mod report;
mod trace;
mod ucma;
mod uverbs;

use std::fs;
use std::io::Write;
use std::net::IpAddr;
use std::slice;

use clap::Args;
use nix::sys::utsname::uname;

use self::alter::{Totals, alter};
use self::bench::{Bench, RDMA_CM, Setting};
use self::check::{Check, Driver, Machine, Version};
use self::kernel::{Kernel, Outcome};
use self::probe::Real;
use self::report::{Format, Report};
use self::trace::Traced;
use crate::failure::Failure;

/// Directory of the device nodes.
const NODES: &str = "/dev/infiniband";

/// Check that the kernel keeps the ABI of rdma_cm and uverbs
#[derive(Debug, Args)]
#[command(
    after_help = "The output is TAP version 14; the exit status is 1 after a violation, and 3 if there is nothing to check."
)]
pub(crate) struct Options {
    /// Run only checks whose id contains FILTER
    #[arg(value_name = "FILTER", default_value = "")]
    filter: String,
    /// Show the catalog: each check with its source in the kernel and its expectation
    #[arg(long)]
    list: bool,
    /// Print JSON instead of TAP
    #[arg(long, conflicts_with_all = ["alter", "trace"])]
    json: bool,
    /// Run only checks that cannot disturb other users of the machine; the default
    #[arg(long, conflicts_with = "all")]
    safe: bool,
    /// Also bind, listen and connect on the device with this address, which no other program should use
    #[arg(long, value_name = "ADDRESS")]
    all: Option<IpAddr>,
    /// Verbs node [default: the node of the device with the address, or the first one]
    #[arg(long, value_name = "NODE")]
    device: Option<String>,
    /// Expect the behavior of this Linux version [default: that of the running kernel]
    #[arg(long, value_name = "VERSION")]
    kernel: Option<Version>,
    /// Also show each answer of the kernel
    #[arg(long)]
    trace: bool,
    /// Test the checks: run each of them with every alteration of every answer of the kernel
    #[arg(long)]
    alter: bool,
}

pub(crate) fn run(options: &Options, out: &mut (dyn Write + Send)) -> Result<(), Failure> {
    let mut catalog = ucma::checks();
    catalog.extend(uverbs::checks());
    catalog.retain(|check| check.id.contains(&options.filter));
    if catalog.is_empty() {
        return Err(Failure::new(format!(
            "cannot select a check: no id contains {:?}",
            options.filter
        )));
    }
    let format = if options.json { Format::Json } else { Format::Tap };
    if options.list {
        return Ok(report::list(&catalog, format, out)?);
    }
    let mut kernel = Real::new()
        .map_err(|errno| Failure::new(format!("cannot map memory: {}", errno.desc())))?;
    let setting = read_setting(options, &mut kernel)?;
    let mut kernel = Traced::new(&mut kernel);
    if options.alter {
        let mut record = |check: &Check| {
            check.verdict(&mut Bench::new(&mut kernel, &setting));
            kernel.take()
        };
        return match alter(&catalog, &setting, &mut record, out)? {
            Totals { failed: 0, .. } => Ok(()),
            Totals { failed, .. } => Err(Failure::new(format!(
                "cannot detect altered answers: {failed} checks pass with some of them"
            ))),
        };
    }
    let mut report = Report::begin(format, &catalog, &setting.machine, out)?;
    for check in &catalog {
        let verdict = check.verdict(&mut Bench::new(&mut kernel, &setting));
        let trace = kernel.take();
        report.add(check, &verdict, if options.trace { &trace } else { &[] }, out)?;
    }
    match report.end(out)? {
        0 => Ok(()),
        violations => Err(Failure::new(format!("{violations} violations"))),
    }
}

/// Hint for a connection manager that cannot be opened.
const OPEN_HINT: &str =
    "load the kernel's RDMA modules (modprobe rdma_ucm), or add the node to the container";

/// Determines the properties of the machine.
fn read_setting(options: &Options, kernel: &mut Real) -> Result<Setting, Failure> {
    let version = options.kernel.map_or_else(running_version, Ok)?;
    kernel.open(RDMA_CM).map_err(|errno| {
        let why = Outcome::Errno(errno);
        Failure::Unavailable(format!("cannot open {RDMA_CM}: {why}; {OPEN_HINT}"))
    })?;
    kernel.end();
    let address = options.all.map(ucma::sockaddr);
    let guid = match (&address, options.all) {
        (Some(address), Some(ip)) => {
            let guid = ucma::node_guid(kernel, address);
            let none = || {
                Failure::Unavailable(format!(
                    "cannot check connections: no RDMA device has the address {ip}"
                ))
            };
            Some(guid.ok_or_else(none)?)
        }
        _ => None,
    };
    let found = match &options.device {
        Some(node) => {
            Ok(first_usable(slice::from_ref(node), None, kernel).map_err(Failure::Unavailable)?)
        }
        None => first_usable(&verbs_nodes(), guid, kernel),
    };
    let driver = found.as_ref().map_or(Driver::Other, |(_, driver)| *driver);
    let verbs = found.map(|(node, _)| node);
    Ok(Setting { machine: Machine { version, driver }, verbs, address })
}

/// Returns the verbs nodes.
fn verbs_nodes() -> Vec<String> {
    let names = fs::read_dir(NODES).into_iter().flatten().flatten();
    let names = names.filter_map(|entry| entry.file_name().into_string().ok());
    let verbs = names.filter(|name| name.starts_with("uverbs"));
    let mut nodes: Vec<_> = verbs.map(|name| format!("{NODES}/{name}")).collect();
    nodes.sort();
    nodes
}

/// Returns the first usable node and its driver, or the reasons why there is none.
///
/// If `guid` is given, the node must belong to the device with this GUID.
fn first_usable(
    nodes: &[String],
    guid: Option<u64>,
    kernel: &mut dyn Kernel,
) -> Result<(String, Driver), String> {
    let mut why = Vec::new();
    for node in nodes {
        match uverbs::identify(kernel, node) {
            Ok(identity) if guid.is_none_or(|guid| guid == identity.node_guid) => {
                return Ok((node.clone(), identity.driver));
            }
            Ok(_) => why.push(format!("{node} belongs to another device")),
            Err(reason) => why.push(reason),
        }
    }
    Err(if why.is_empty() { "there is no verbs node".to_owned() } else { why.join("; ") })
}

/// Returns the version of the running kernel.
fn running_version() -> Result<Version, Failure> {
    let name = uname().map_err(|errno| {
        Failure::new(format!("cannot read the kernel version: {}", errno.desc()))
    })?;
    let release = name.release().to_string_lossy();
    release.parse().map_err(|why: String| {
        Failure::new(format!("cannot read the kernel version: {why}; set it with --kernel"))
    })
}

#[cfg(test)]
mod tests;
