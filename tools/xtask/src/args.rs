//! The command line.

use std::ffi::OsString;
use std::num::{NonZeroU32, NonZeroUsize, ParseIntError};
use std::time::Duration;

use clap::builder::{PossibleValuesParser, TypedValueParser};
use clap::error::ErrorKind;
use clap::{ArgAction, Args, CommandFactory, Parser, Subcommand};
use guest::plan::Device;

use crate::tally::selection::{RoceDevices, Selection};
use crate::tasks::bench::{self, Subject};
use crate::tasks::faults::Extent;
use crate::tasks::fuzz;
use crate::testbed::architecture::Architecture;
use crate::testbed::kernel::Kernel;
use crate::testbed::vm::Guest;

/// Tasks of the project: guests with real kernels, tests, benchmarks and continuous integration
///
/// A wrong command line ends with exit status 2.
#[derive(Debug, Parser)]
#[command(name = "cargo xtask", bin_name = "cargo xtask")]
struct CommandLine {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Boot a kernel that runs rping over an RDMA device
    ///
    /// The whole userland of the guest is one static program of this project, which is both the RDMA server and the
    /// client. The output shows the pings and the connection events; its last line is the verdict.
    Demo {
        /// Architecture of the guest
        #[arg(long, value_parser = architectures(), default_value = "x86_64")]
        arch: Architecture,
        /// RDMA device of the guest; siw is not on aarch64
        #[arg(long, value_name = "DEVICE", value_parser = devices(), default_value = "rxe")]
        device: Device,
    },
    /// Run a program of this machine in a guest with RDMA devices
    ///
    /// The guest sees the files of this machine; its writes are lost. It has rxe0 at 10.0.0.1 and fd00::1, and siw0 at
    /// 10.0.0.2 and fd00::2. Standard input is empty. Output and exit status are those of the program. Other statuses
    /// are 128+N: signal N killed the program; 125: the guest failed or exceeded its time limit; 126: the guest's
    /// kernel logged a BUG, WARNING or Oops; 127: the program could not be started.
    Vm(Vm),
    /// Run the tests
    ///
    /// The tests run on this machine, against the headers of the kernels, and in guests with each kernel. Tests whose
    /// result cannot depend on the kernel run on 6.12 only, unless --all, --kernel or FILTER is given. Two tests that
    /// take minutes run only with --all, FILTER or --device mlx5. Results are printed as they arrive; target/test-logs
    /// has the output of the test programs. The last line is `N passed, N failed`, with `, N skipped` if some tests do
    /// not apply to a kernel. A line above it counts the tests that ran more than once.
    Test {
        /// Run all tests on each kernel
        #[arg(long)]
        all: bool,
        /// Architecture of the guests; on aarch64 the tests of kernels and peers run, with Debian's kernel 6.1
        #[arg(long, value_parser = architectures(), default_value = "x86_64")]
        arch: Architecture,
        #[command(flatten)]
        tests: Tests,
    },
    /// Compare this library with the C library, alternating in one guest
    ///
    /// connect: system calls, memory and time of a connection. data: latency, system calls, bandwidth and message rate
    /// for messages of 2 to 65536 bytes, compared with perftest. endpoint: messages of the safe API, compared with the
    /// low-level API and perftest, with up to 1,000 connections in a thread and 10,000 in a poll group. posts:
    /// instructions of each post and poll. null: instructions of each post and poll on a driver without a device, on
    /// this machine.
    ///
    /// Times are instruction counts, as with `vm --icount`. Without --kernel the benchmark runs on 6.1 and 6.12. On
    /// 6.12 the figures are compared with tests/bench/baseline: the exit status is 1 if a figure is outside its band,
    /// new or missing.
    Bench(Bench),
    /// Let each system call of a run fail once, and kill the run at every fourth call
    ///
    /// Without --all: each side of `rdmatools rping`, at every call on a device node, with EIO. The exit status is 1 if
    /// a run panics, hangs, does not report the failed operation, or leaves an object in the kernel. The last line is
    /// `N faults tried, N survived`.
    Faults {
        /// Run rping, cmatose, udaddy and mckey, with five errors and a kill at every call: takes hours
        #[arg(long)]
        all: bool,
        /// Kernel of the guest
        #[arg(long, value_parser = kernels(&Kernel::ALL), default_value = "6.12")]
        kernel: Kernel,
        /// RDMA device that the programs use
        #[arg(long, value_name = "DEVICE", value_parser = roce_devices(), default_value = "rxe")]
        device: Device,
        /// Restrict the run to programs, sides or faults, such as `udaddy client KILL`
        #[arg(value_name = "WORD")]
        words: Vec<OsString>,
    },
    /// Build rdmatools as a static program for musl, and check it
    ///
    /// Uses rustup's target if it is installed, otherwise Debian's compiler, which is kept in target/test-bed,
    /// otherwise glibc. The program runs as server and client in a kernel that has no other file, and is compared with
    /// the C programs: the exit status is 1 if a goal is missed.
    Static,
    /// Open and close connections at random, and watch memory, descriptors and kernel objects
    ///
    /// Runs many threads on both APIs of the library and all devices of the guest, and checks the data. Writes a table,
    /// a verdict and a chart, soak-KERNEL-DEVICES.svg in cargo's target directory.
    Soak {
        /// Duration in minutes
        #[arg(long, value_name = "N", default_value = "30")]
        minutes: NonZeroU32,
        /// Kernel of the guest
        #[arg(long, value_parser = kernels(&Kernel::RELEASED), default_value = "6.12")]
        kernel: Kernel,
        /// RDMA devices of the guest [default: rxe and siw]
        #[arg(long = "device", value_name = "DEVICE", value_parser = devices(), action = ArgAction::Append)]
        devices: Vec<Device>,
    },
    /// Fuzz every function that reads input from kernels and peers
    ///
    /// A failing input is stored in target/fuzz/artifacts. To reproduce the failure, run the program of its target, in
    /// target/fuzz, with the file as its argument.
    Fuzz {
        /// Duration of each target
        #[arg(long, value_name = "SECONDS", value_parser = seconds)]
        seconds: Option<Duration>,
        /// Run only the targets whose names contain FILTER
        filter: Option<String>,
    },
    /// Run the kernel tests under AddressSanitizer
    ///
    /// Needs a compiler of rustup, and runs on 6.12 without --kernel.
    Sanitize(Tests),
    /// Compare the public interface of the crates with tests/api
    ///
    /// Uses the documentation of Debian's compiler. The exit status is 1 if the interface differs.
    Api {
        /// Write the interface to tests/api
        #[arg(long)]
        renew: bool,
    },
    /// Check a change: format, subjects, lints, docs, packages, Rust 1.85, interface, demos, static, tests
    Ci,
}

#[derive(Debug, Args)]
struct Vm {
    /// Kernel of the guest; `latest` is Debian unstable's, lacks siw0, stays in target/test-bed/latest
    #[arg(long, value_parser = kernels(&Kernel::ALL), default_value = "6.12")]
    kernel: Kernel,
    /// RDMA devices of the guest [default: all that the kernel has]
    #[arg(long = "device", value_name = "DEVICE", value_parser = devices(), action = ArgAction::Append)]
    devices: Vec<Device>,
    /// Time limit of the guest, including its boot [default: 300]
    #[arg(long, value_name = "SECONDS", value_parser = seconds)]
    timeout: Option<Duration>,
    /// Memory of the guest in MiB [default: 2048]
    #[arg(long, value_name = "MIB")]
    memory: Option<u32>,
    /// Processors of the guest [default: two, if this machine has them]
    #[arg(long, value_name = "N")]
    processors: Option<NonZeroUsize>,
    /// Let the guest's clock count instructions, two nanoseconds each
    ///
    /// Times then do not depend on the load of this machine, except for the time in which the guest is idle. Several
    /// processors take turns of some microseconds, and the guest is about ten times slower.
    #[arg(long)]
    icount: bool,
    /// Program and its arguments
    #[arg(last = true, required = true, value_name = "PROGRAM")]
    command: Vec<OsString>,
}

/// The tests that a command runs.
#[derive(Debug, Args)]
struct Tests {
    /// Run on this kernel only
    #[arg(long, value_parser = kernels(&Kernel::ALL))]
    kernel: Option<Kernel>,
    /// Run only the tests of RoCE, on this device in place of rxe0
    #[arg(long, value_name = "DEVICE", value_parser = [Device::Mlx5.kind()])]
    device: Option<String>,
    /// Time limit of each test; a test that exceeds it fails [default: 600, for `sanitize` 3600]
    #[arg(long, value_name = "SECONDS", value_parser = seconds)]
    timeout: Option<Duration>,
    /// Run only the tests whose names contain FILTER
    filter: Option<String>,
}

#[derive(Debug, Args)]
struct Bench {
    #[arg(value_parser = ["connect", "data", "endpoint", "null", "posts"])]
    subject: String,
    /// Kernel of the guests [default: 6.1 and 6.12]
    #[arg(long, value_parser = kernels(&Kernel::ALL))]
    kernel: Option<Kernel>,
    /// RDMA devices, each in its own guests [default: both]
    #[arg(long = "device", value_name = "DEVICE", value_parser = devices(), action = ArgAction::Append)]
    devices: Vec<Device>,
    /// Write the figures to tests/bench/baseline
    #[arg(long)]
    renew: bool,
}

/// The task that the user requested.
#[derive(Debug)]
pub(crate) enum Task {
    Demo(Kernel, Device),
    Static,
    Api { renew: bool },
    Vm { guest: Guest, command: Vec<OsString> },
    Test(Selection),
    TestAarch64(Selection),
    BenchNull { renew: bool },
    Bench { subject: Subject, kernels: Vec<Kernel>, devices: Vec<Device>, renew: bool },
    Soak(Duration, Guest),
    Fuzz { filter: Option<String>, time: Duration },
    Sanitize(Selection),
    Faults(Extent, Guest, Vec<OsString>),
    Ci(Selection),
}

/// Reads the command line, which begins with the name of the program.
///
/// # Errors
///
/// Returns an error if the command line is wrong or asks for help.
pub(crate) fn parse(arguments: impl IntoIterator<Item = OsString>) -> Result<Task, clap::Error> {
    Ok(match CommandLine::try_parse_from(arguments)?.command {
        Command::Demo { arch, device } => {
            let kernel = match arch {
                Architecture::X86_64 => Kernel::V6_12,
                Architecture::Aarch64 => Kernel::Aarch64,
            };
            Task::Demo(kernel, device)
        }
        Command::Static => Task::Static,
        Command::Api { renew } => Task::Api { renew },
        Command::Vm(vm) => vm.task(),
        Command::Test { all, arch, tests } => {
            if arch == Architecture::Aarch64 && (all || tests.kernel.is_some()) {
                let reason = "`test --arch aarch64` takes neither --all nor --kernel";
                return Err(usage_error(reason));
            }
            let selection = tests.selection(Selection { all, ..all_tests() });
            match arch {
                Architecture::X86_64 => Task::Test(selection),
                Architecture::Aarch64 => Task::TestAarch64(selection),
            }
        }
        Command::Bench(bench) => bench.task()?,
        Command::Soak { minutes, kernel, devices } => {
            let time = Duration::from_secs(u64::from(minutes.get()) * 60);
            Task::Soak(time, guest_with(kernel, devices))
        }
        Command::Fuzz { seconds, filter } => {
            Task::Fuzz { filter, time: seconds.unwrap_or(fuzz::DEFAULT_DURATION) }
        }
        Command::Sanitize(tests) => {
            let limit = Duration::from_secs(3600);
            let sanitized = Selection { kernels: vec![Kernel::V6_12], limit, ..all_tests() };
            Task::Sanitize(tests.selection(sanitized))
        }
        Command::Faults { all, kernel, device, words } => {
            let extent = if all { Extent::All } else { Extent::Devices };
            Task::Faults(extent, guest_with(kernel, vec![device]), words)
        }
        Command::Ci => Task::Ci(all_tests()),
    })
}

impl Vm {
    fn task(self) -> Task {
        let default = guest_with(self.kernel, self.devices);
        let guest = Guest {
            limit: self.timeout.unwrap_or(default.limit),
            memory_mb: self.memory.unwrap_or(default.memory_mb),
            processors: self.processors.unwrap_or(default.processors),
            counts_instructions: self.icount,
            ..default
        };
        Task::Vm { guest, command: self.command }
    }
}

impl Tests {
    /// Returns `default`, modified by the options of the command line.
    fn selection(self, default: Selection) -> Selection {
        Selection {
            kernels: self.kernel.map_or(default.kernels, |kernel| vec![kernel]),
            limit: self.timeout.unwrap_or(default.limit),
            filter: self.filter,
            roce: self.device.map_or(default.roce, |_| RoceDevices::Card),
            ..default
        }
    }
}

impl Bench {
    fn task(self) -> Result<Task, clap::Error> {
        let Self { subject, kernel, devices, renew } = self;
        let Some(subject) = Subject::from_name(&subject) else {
            return match (kernel, &devices[..]) {
                (None, []) => Ok(Task::BenchNull { renew }),
                _ => Err(usage_error("`bench null` takes neither a kernel nor a device")),
            };
        };
        let kernels = match (kernel, renew) {
            (None, false) => Kernel::RELEASED.to_vec(),
            (None | Some(bench::BASELINE_KERNEL), true) => vec![bench::BASELINE_KERNEL],
            (Some(kernel), false) => vec![kernel],
            (Some(kernel), true) => {
                let (name, baseline) = (kernel.name(), bench::BASELINE_KERNEL.name());
                return Err(usage_error(&format!(
                    "baselines exist for Linux {baseline}, not for {name}"
                )));
            }
        };
        let devices = distinct(devices).unwrap_or_else(|| Device::SOFTWARE.to_vec());
        Ok(Task::Bench { subject, kernels, devices, renew })
    }
}

/// Returns a selection of all tests on all kernels.
fn all_tests() -> Selection {
    let limit = Duration::from_secs(600);
    let (kernels, roce) = (Kernel::ALL.to_vec(), RoceDevices::Both);
    Selection { kernels, filter: None, limit, all: false, roce }
}

/// Returns each device once, or `None` if there is none.
fn distinct(devices: Vec<Device>) -> Option<Vec<Device>> {
    let mut distinct: Vec<Device> = Vec::new();
    for device in devices {
        if !distinct.contains(&device) {
            distinct.push(device);
        }
    }
    (!distinct.is_empty()).then_some(distinct)
}

fn usage_error(reason: &str) -> clap::Error {
    CommandLine::command().error(ErrorKind::ArgumentConflict, reason)
}

fn seconds(text: &str) -> Result<Duration, ParseIntError> {
    text.parse().map(Duration::from_secs)
}

fn kernels(allowed: &[Kernel]) -> impl TypedValueParser<Value = Kernel> {
    let names = PossibleValuesParser::new(allowed.iter().map(|kernel| kernel.name()));
    names.map(|name| Kernel::from_name(&name).expect("a name of a kernel"))
}

fn architectures() -> impl TypedValueParser<Value = Architecture> {
    let names = PossibleValuesParser::new(Architecture::ALL.map(Architecture::name));
    names.map(|name| Architecture::from_name(&name).expect("a name of an architecture"))
}

/// Returns a guest with `devices`, or with all devices of its kernel if `devices` is empty.
fn guest_with(kernel: Kernel, devices: Vec<Device>) -> Guest {
    let default = Guest::new(kernel);
    match distinct(devices) {
        Some(devices) => Guest { devices, ..default },
        None => default,
    }
}

fn roce_devices() -> impl TypedValueParser<Value = Device> {
    let names = PossibleValuesParser::new([Device::Rxe, Device::Mlx5].map(Device::kind));
    names.map(|name| Device::from_kind(&name).expect("a name of a device"))
}

fn devices() -> impl TypedValueParser<Value = Device> {
    let names = PossibleValuesParser::new(Device::ALL.map(Device::kind));
    names.map(|name| Device::from_kind(&name).expect("a name of a device"))
}

#[cfg(test)]
mod tests;
