//! `cargo xtask bench`: measures connections and messages, with this library and in C.
//!
//! Each device is measured separately.

use std::env;
use std::ffi::OsString;
use std::fmt::Write;
use std::fs;
use std::num::NonZeroUsize;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode, Stdio};
use std::time::Duration;

use guest::plan::Device;
use guest::report::Frame;
use tool_error::{Context, Error, Result};

use crate::host::packages;
use crate::host::{self, progress};
use crate::tasks::vm;
use crate::testbed::kernel::Kernel;
use crate::testbed::vm::Guest;

/// Package that contains the measured programs, and below it the program that measures.
const PACKAGE: &str = "rdmacm-tests";
/// Package with the tools that measure themselves.
const TOOLS: &str = "rdmatools";
const DRIVER: &str = "bench-driver";
/// C program that is measured next to the Rust program that posts.
const C_POSTS: &str = "bench-posts-c";

/// The library that finds the stores to registers of both.
const FINDER_OF_STORES: &str = "libregister_stores.so";

/// Time limit of a guest. Each run in it has a limit of its own, which is repeated a few times.
const LIMIT: Duration = Duration::from_secs(4 * 3600);

/// Folder of the committed figures, one file for each part and device, and below it their kernel.
const BASELINES: &str = "tests/bench/baseline";
pub(crate) const BASELINE_KERNEL: Kernel = Kernel::V6_12;
/// Start of a line of a new baseline.
const RENEWED: &str = "baseline\t";

/// A subject of the benchmark.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Subject {
    /// Cost of a connection.
    Connect,
    /// Cost of messages: latency, bandwidth and rate.
    Data,
    /// Cost of messages of the safe API.
    Endpoint,
    /// Cost of posting and polling for the program.
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

    /// Returns the packages of the C programs and of the counting tools.
    ///
    /// For some programs these are build tools; the counting tools count system calls or instructions.
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

    /// Returns the parts, each of which is measured in its own guest.
    fn parts(self) -> &'static [Part] {
        match self {
            Self::Connect => &[Part::Connect],
            Self::Data => &[Part::Calls, Part::Latency, Part::Rates],
            Self::Endpoint => &[Part::Endpoint],
            Self::Posts => &[Part::Posts],
        }
    }
}

/// A part of a subject, measured in one guest.
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

    /// Returns `true` if the guest's clock counts instructions.
    ///
    /// Times are then numbers of executed instructions, and nearly the same in every run, whatever else this machine
    /// does.
    fn counts_instructions(self) -> bool {
        !matches!(self, Self::Calls | Self::Posts)
    }

    /// Returns the number of the guest's processors.
    ///
    /// If the client, the server and the kernel's threads run in parallel, times vary by half, so one processor runs
    /// them all. A program that polls for a single message would then wait for the end of the other side's time slice.
    /// Latencies therefore need a processor for each side and one for the kernel's threads, which take turns.
    ///
    /// siw has threads bound to each processor, and assigns the least used one to a queue pair. perftest creates two
    /// queue pairs on each side. Only with two processors does perftest get the same as our program, which creates a
    /// single queue pair on each side.
    fn processors(self, device: Device) -> NonZeroUsize {
        match self {
            Self::Calls | Self::Posts => host::processors(),
            Self::Latency => NonZeroUsize::MIN.saturating_add(match device {
                Device::Rxe | Device::Mlx5 => 2,
                Device::Siw => 1,
            }),
            Self::Connect | Self::Rates | Self::Endpoint => NonZeroUsize::MIN,
        }
    }
}

/// Measures in guests of each kernel, on each of its devices.
///
/// Returns success if everything was measured, and if each figure of the kernel with baselines is within its band, or,
/// with `renew`, has a new baseline.
pub(crate) fn run(
    subject: Subject,
    kernels: &[Kernel],
    devices: &[Device],
    renew: bool,
) -> Result<ExitCode> {
    // The emulated card is built for every kernel.
    let has = |kernel: Kernel, device| device == Device::Mlx5 || kernel.devices().contains(&device);
    let on = |kernel: Kernel| devices.iter().filter(move |device| has(kernel, **device));
    if !kernels.iter().any(|kernel| on(*kernel).next().is_some()) {
        return Err(Error::new(
            "cannot run the benchmark: none of the selected kernels has a driver for the selected device",
        ));
    }
    let directories = build(subject)?;
    let mut result = ExitCode::SUCCESS;
    for kernel in kernels {
        for device in on(*kernel) {
            for part in subject.parts() {
                progress(&format!(
                    "== Linux {}, {}: {}",
                    kernel.name(),
                    device.name(),
                    part.name()
                ));
                let run = Run { part: *part, kernel: *kernel, device: *device };
                match run.measure(&directories, renew)? {
                    ExitCode::SUCCESS => {}
                    // Some figures are outside their bands: the other parts are measured nevertheless.
                    ExitCode::FAILURE => result = ExitCode::FAILURE,
                    status => return Ok(status),
                }
            }
        }
    }
    Ok(result)
}

/// Counts the instructions of posts and polls on the null driver, on this machine.
pub(crate) fn run_null(renew: bool) -> Result<ExitCode> {
    packages::require(&["valgrind"])?;
    progress("building the programs");
    let mut cargo = host::cargo();
    cargo.args(["build", "--quiet", "--release", "--package", PACKAGE, "--features", "null"]);
    cargo.args(["--bin", DRIVER, "--bin", "bench-null", "--bin", "bench-null-message"]);
    host::run(&mut cargo, "build the programs")?;
    let release = host::build_directory().join("release");
    let baseline = host::workspace().join(BASELINES).join("null.txt");
    let mut driver = Command::new(release.join(DRIVER));
    if renew {
        driver.arg("--renew");
    } else {
        driver.arg("--compare").arg(&baseline);
    }
    driver.args(["null0", "-", "null"]).arg(&release).stdin(Stdio::null()).stderr(Stdio::inherit());
    let output = driver.output().context("run the benchmark driver")?;
    let text = String::from_utf8_lossy(&output.stdout);
    let shown = text.lines().filter(|line| !line.starts_with(RENEWED));
    shown.for_each(progress);
    if renew && output.status.success() {
        let heading = "# Measured by `cargo xtask bench` on the null driver.\n";
        write_baseline(&baseline, heading, &text)?;
    }
    Ok(if output.status.success() { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

/// Writes the figures that the driver printed, after `heading`.
fn write_baseline(baseline: &Path, heading: &str, output: &str) -> Result<()> {
    let text = renewed(heading, output)?;
    fs::write(baseline, text).with_context(|| format!("write {}", baseline.display()))?;
    progress(&format!("wrote {}", baseline.display()));
    Ok(())
}

/// Returns the text of a baseline: `heading` and the figures in `output`.
fn renewed(heading: &str, output: &str) -> Result<String> {
    let mut text = heading.to_owned();
    for line in output.lines().filter_map(|line| line.strip_prefix(RENEWED)) {
        let _ = writeln!(text, "{line}");
    }
    match text.len() > heading.len() {
        true => Ok(text),
        false => Err(Error::new(format!("cannot renew the baseline: {DRIVER} printed no figures"))),
    }
}

/// Builds the measured programs, and returns their directories.
fn build(subject: Subject) -> Result<Vec<PathBuf>> {
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
    if subject == Subject::Posts {
        let source = host::workspace().join("tests/bench/posts.c");
        let mut compiler = Command::new("gcc");
        compiler
            .args(["-O2", "-Wall", "-Wextra", "-Wno-missing-field-initializers", "-Werror", "-o"])
            .arg(release.join(C_POSTS));
        compiler.arg(source).args(["-lrdmacm", "-libverbs", "-lpthread"]);
        host::run(&mut compiler, "build the C program")?;
        let source = host::workspace().join("tests/bench/register_stores.c");
        let mut compiler = Command::new("gcc");
        compiler.args(["-O2", "-Wall", "-Wextra", "-Werror", "-shared", "-fPIC", "-o"]);
        compiler.arg(release.join(FINDER_OF_STORES)).arg(source);
        host::run(&mut compiler, "build the library that finds stores to registers")?;
    }
    let mut directories = vec![release];
    if subject == Subject::Connect {
        directories.push(host::build_static(PACKAGE, "release")?);
    }
    Ok(directories)
}

/// A part of a subject, measured in one guest.
#[derive(Clone, Copy, Debug)]
struct Run {
    part: Part,
    kernel: Kernel,
    device: Device,
}

impl Run {
    fn measure(self, directories: &[PathBuf], renew: bool) -> Result<ExitCode> {
        let Self { part, kernel, device } = self;
        let guest = Guest {
            devices: vec![device],
            processors: part.processors(device),
            counts_instructions: part.counts_instructions(),
            limit: LIMIT,
            ..Guest::new(kernel)
        };
        let mut command = vec![directories[0].join(DRIVER).into_os_string()];
        if renew {
            command.push("--renew".into());
        } else if kernel == BASELINE_KERNEL {
            command.extend(["--compare".into(), self.baseline().into_os_string()]);
        }
        command.extend([device.name(), device.address(), part.name()].map(OsString::from));
        command.extend(directories.iter().map(OsString::from));
        guest.fetch()?;
        let directory = env::current_dir().context("find the current directory")?;
        let mut output = Vec::new();
        let outcome = guest.run(&directory, &command, &mut |frame: Frame| {
            if let Frame::Output(bytes) = &frame {
                output.extend_from_slice(bytes);
            }
            vm::pass_on(frame)
        })?;
        let status = vm::end(&outcome, DRIVER);
        if renew && status == ExitCode::SUCCESS {
            self.renew(&String::from_utf8_lossy(&output))?;
        } else if kernel != BASELINE_KERNEL {
            progress(&format!(
                "not compared: baselines exist for Linux {}",
                BASELINE_KERNEL.name()
            ));
        }
        Ok(status)
    }

    /// Returns the path of the committed figures.
    fn baseline(self) -> PathBuf {
        let name = format!("{}-{}.txt", self.part.name(), self.device.name());
        host::workspace().join(BASELINES).join(name)
    }

    /// Writes the figures that the driver printed.
    fn renew(self, output: &str) -> Result<()> {
        write_baseline(&self.baseline(), &self.heading(), output)
    }

    /// Returns the first line of a baseline.
    fn heading(self) -> String {
        let Self { part, kernel, device } = self;
        format!(
            "# Measured by `cargo xtask bench` on Linux {}, {}: {}.\n",
            kernel.name(),
            device.name(),
            part.name()
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn renewed_baseline_has_printed_figures() {
        let run = Run { part: Part::Posts, kernel: Kernel::V6_12, device: Device::Rxe };
        assert!(run.baseline().ends_with("tests/bench/baseline/posts-rxe0.txt"));
        let output =
            "a send 1\nbaseline\tours 98 102  a send\nbench\ta send\nbaseline\tother 1 2  x\n";
        let expected = "# Measured by `cargo xtask bench` on Linux 6.12, rxe0: posts.\n\
                        ours 98 102  a send\nother 1 2  x\n";
        assert_eq!(renewed(&run.heading(), output).expect("two figures"), expected);
        let error = renewed(&run.heading(), "bench\ta send\n")
            .expect_err("output without figures should be refused")
            .to_string();
        assert!(error.contains("no figures"), "{error}");
    }

    #[test]
    fn every_part_has_baseline_on_each_device() {
        let subjects = [Subject::Connect, Subject::Data, Subject::Endpoint, Subject::Posts];
        for part in subjects.iter().flat_map(|subject| subject.parts()) {
            for device in BASELINE_KERNEL.devices() {
                let run = Run { part: *part, kernel: BASELINE_KERNEL, device: *device };
                assert!(run.baseline().is_file(), "{}", run.baseline().display());
            }
        }
    }
}
