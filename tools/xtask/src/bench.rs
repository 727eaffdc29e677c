//! `cargo xtask bench`: what a connection or a message costs, with this library and with the C one, on each
//! device.

use std::ffi::OsString;
use std::num::NonZeroUsize;
use std::process::{Command, ExitCode};
use std::time::Duration;

use guest::error::{Error, Result};
use guest::plan::Device;

use crate::host::{self, progress};
use crate::kernel::Kernel;
use crate::packages;
use crate::vm::{self, Guest};

/// The package that holds the programs to measure, and the one of them that measures.
const PACKAGE: &str = "rdmacm-tests";
/// The package with the tools that measure by themselves.
const TOOLS: &str = "rdmatools";
const DRIVER: &str = "bench-driver";
/// What is measured beside our program that posts.
const C_POSTS: &str = "bench-posts-c";

/// What is measured.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Subject {
    /// What a connection costs.
    Connect,
    /// What messages cost: their latency, bandwidth and rate.
    Data,
    /// What messages cost on the safe tier.
    Endpoint,
    /// What posting and polling cost the program.
    Posts,
}

impl Subject {
    pub(crate) fn from_name(name: &str) -> Option<Self> {
        [Self::Connect, Self::Data, Self::Endpoint, Self::Posts]
            .into_iter()
            .find(|subject| subject.name() == name)
    }

    fn name(self) -> &'static str {
        match self {
            Self::Connect => "connect",
            Self::Data => "data",
            Self::Endpoint => "endpoint",
            Self::Posts => "posts",
        }
    }

    /// The C programs, or what makes them, and what counts their system calls or instructions.
    fn packages(self) -> &'static [&'static str] {
        match self {
            Self::Connect => &["ibverbs-providers", "rdmacm-utils", "strace"],
            Self::Data | Self::Endpoint => &["ibverbs-providers", "perftest", "strace"],
            Self::Posts => &[
                "gcc",
                "ibverbs-providers",
                "libc6-dev",
                "libibverbs-dev",
                "librdmacm-dev",
                "valgrind",
            ],
        }
    }

    /// What is measured in a guest each.
    fn parts(self) -> &'static [Part] {
        match self {
            Self::Connect => &[Part::Connect],
            Self::Data => &[Part::Calls, Part::Latency, Part::Rates],
            Self::Endpoint => &[Part::Endpoint],
            Self::Posts => &[Part::Posts],
        }
    }
}

/// What one guest measures.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Part {
    Connect,
    Calls,
    Latency,
    Rates,
    Endpoint,
    Posts,
}

impl Part {
    fn name(self) -> &'static str {
        match self {
            Self::Connect => "connect",
            Self::Calls => "calls",
            Self::Latency => "latency",
            Self::Rates => "rates",
            Self::Endpoint => "endpoint",
            Self::Posts => "posts",
        }
    }

    /// With a clock that counts instructions, times are what was executed, and nearly the same in every run,
    /// whatever else this machine does.
    fn counts_instructions(self) -> bool {
        !matches!(self, Self::Calls | Self::Posts)
    }

    /// Where the client, the server and the kernel's threads run beside each other, times differ by half: one processor
    /// has them all. But who waits at work for a single message would wait there for the end of the other side's slice:
    /// latencies take a processor for each side and one for the kernel's threads, which take turns. siw has threads bound
    /// to each processor, and gives the one that fewest have to a queue pair: perftest, which makes two on each side, has
    /// the same as ours has for its one only where there are two.
    fn processors(self, device: Device) -> NonZeroUsize {
        match self {
            Self::Calls | Self::Posts => host::processors(),
            Self::Latency => NonZeroUsize::MIN.saturating_add(match device {
                Device::Rxe => 2,
                Device::Siw => 1,
            }),
            Self::Connect | Self::Rates | Self::Endpoint => NonZeroUsize::MIN,
        }
    }

    /// Many runs, one after the other, in a machine that others may load.
    fn limit(self) -> Duration {
        Duration::from_secs(match self {
            Self::Connect | Self::Calls | Self::Endpoint | Self::Posts => 1200,
            Self::Latency | Self::Rates => 7200,
        })
    }
}

/// Measures in guests of each kernel, on each of the devices that it has. Success says that everything was measured,
/// whatever the numbers are.
pub(crate) fn run(subject: Subject, kernels: &[Kernel], devices: &[Device]) -> Result<ExitCode> {
    let on = |kernel: &Kernel| kernel.devices().iter().filter(|device| devices.contains(device));
    if !kernels.iter().any(|kernel| on(kernel).next().is_some()) {
        return Err(Error::new(
            "bench: none of the kernels named has a driver for the device named",
        ));
    }
    let mut wanted = subject.packages().to_vec();
    wanted.extend(Guest::packages());
    wanted.sort_unstable();
    wanted.dedup();
    packages::require(&wanted)?;
    progress("building the programs");
    let mut cargo = host::cargo();
    cargo.args([
        "build",
        "--quiet",
        "--release",
        "--bins",
        "--package",
        PACKAGE,
        "--package",
        TOOLS,
    ]);
    host::run(&mut cargo, "build the programs")?;
    let release = host::build_directory().join("release");
    let driver = release.join(DRIVER);
    if subject == Subject::Posts {
        let source = host::workspace().join("tests/bench/posts.c");
        let mut compiler = Command::new("gcc");
        compiler
            .args(["-O2", "-Wall", "-Wextra", "-Wno-missing-field-initializers", "-Werror", "-o"])
            .arg(release.join(C_POSTS));
        compiler.arg(source).args(["-lrdmacm", "-libverbs", "-lpthread"]);
        host::run(&mut compiler, "build the C program")?;
    }
    let mut directories = vec![release];
    if subject == Subject::Connect {
        directories.push(host::build_static(PACKAGE, "release")?);
    }
    for kernel in kernels {
        for device in on(kernel) {
            let address = match device {
                Device::Rxe => "10.0.0.1",
                Device::Siw => "10.0.0.2",
            };
            for part in subject.parts() {
                progress(&format!(
                    "== Linux {}, {}: {}",
                    kernel.name(),
                    device.name(),
                    part.name()
                ));
                let guest = Guest {
                    devices: vec![*device],
                    processors: part.processors(*device),
                    counts_instructions: part.counts_instructions(),
                    limit: part.limit(),
                    ..Guest::new(*kernel)
                };
                let names = [device.name(), address, part.name()].map(OsString::from);
                let mut command = vec![driver.clone().into_os_string()];
                command.extend(names);
                command.extend(directories.iter().map(OsString::from));
                let status = vm::run(&guest, &command)?;
                if status != ExitCode::SUCCESS {
                    return Ok(status);
                }
            }
        }
    }
    Ok(ExitCode::SUCCESS)
}
