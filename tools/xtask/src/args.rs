//! The command line.

use std::ffi::OsString;
use std::time::Duration;

use guest::plan::Device;
use tool_error::{Error, Result};

use crate::tally::selection::Selection;
use crate::tasks::bench::{self, Subject};
use crate::tasks::faults::Extent;
use crate::tasks::fuzz;
use crate::testbed::kernel::Kernel;
use crate::testbed::vm::Guest;

pub(crate) const USAGE: &str = "\
usage: cargo xtask COMMAND

A command line that is wrong ends with status 2.

  demo
      Boots a kernel whose whole userland is one static program of this project, and lets it be an RDMA
      server and client: pings and connection events are shown, the last line is the verdict.

  vm [--kernel 6.1|6.12|latest] [--device rxe|siw] [--timeout SECONDS] [--memory MB] [--processors N]
     [--icount] -- PROGRAM [ARGUMENT...]
      Runs a program of this machine in a virtual machine that sees this machine's files (what is
      written there is lost) and has RDMA devices: rxe0 at 10.0.0.1 and fd00::1, siw0 at 10.0.0.2 and
      fd00::2. Standard input is empty; output and exit status are the program's; 128+N: signal N
      killed it; 125: the virtual machine failed, or its time was over; 126: its kernel complained (BUG,
      WARNING, Oops); 127: the program could not be started. Without --timeout it has 300 seconds, with the boot; without
      --processors, two if this machine has them; without --kernel, 6.12; without --device, every
      device that the kernel has. With --icount its clock counts instructions, two nanoseconds each, so
      that the time of what it executes does not depend on what else this machine does; while it is
      idle, time passes as it does here. Several processors take turns then, of some microseconds each,
      which takes some ten times longer. `latest` is Debian unstable's kernel, kept in
      target/test-bed/latest until that is removed; it has no siw0.

  test [--all] [--kernel 6.1|6.12|latest] [--timeout SECONDS] [FILTER]
      Runs every test whose name contains FILTER: on this machine, against the kernels' headers, and in
      virtual machines with every kernel or the one named. Tests whose result cannot depend on the kernel
      run on 6.12 only, unless --all, --kernel or a FILTER is given. A test that takes longer than SECONDS
      (600 without --timeout) has failed. Results are shown as they come; what the test programs print is
      in target/test-logs. The last line is `N passed, N failed`, with `, N skipped` if some tests do not
      apply to a kernel; a line above it counts what ran more than once.

  bench connect|data|endpoint|posts [--kernel 6.1|6.12|latest] [--device rxe|siw] [--renew]
      Runs this project's programs and the C library's by turns, in virtual machines with 6.1 and with
      6.12, or with the kernel named, on each device, or the one named. `connect` compares what a
      connection costs: system calls, memory, and time by the instructions as with `vm --icount`;
      `data` what messages cost, beside perftest's, for sizes from 2 to 65536: latency, system calls (of three sizes),
      bandwidth and rate, again by the instructions; `endpoint` what messages of the safe tier cost,
      by the instructions, beside the low level's and perftest's, and with up to 1,000 connections in a
      thread; `posts` the program's instructions for each post and poll, beside the C library's. Goals that are
      not reached are named. On 6.12 the figures are compared with tests/bench/baseline: each that left its band,
      is new or is missing is named and makes the exit status 1. `--renew` writes the figures there instead.

  bench null [--renew]
      Counts the instructions of posts and polls on a device without hardware, on this machine without a
      kernel: what the library itself costs, beside the driver alone. The figures are compared with
      tests/bench/baseline as above.

  faults [--all] [--kernel 6.1|6.12|latest] [WORD...]
      Lets each system call of a run fail once, in a virtual machine with 6.12 or with the kernel named, and
      kills the run at each fourth: each side of `rdmatools rping`, at every call on a device node, with EIO.
      With `--all`, which takes hours and kills at each: of rping, cmatose, udaddy and mckey, at every call that writes, reads,
      maps, opens, waits, controls a device or talks to netlink, with ENOMEM, EINTR, EIO, EAGAIN and ENODEV.
      Words choose a part, `udaddy client KILL`: programs, sides, faults. A run that panics, hangs, does not say what
      failed or leaves something in the kernel is shown, and makes the exit status 1. The last line is `N faults tried,
      N survived`.

  static
      Builds rdmatools as a static program for musl, with rustup's target where that is installed, else with
      Debian's compiler, which is kept in target/test-bed, else with glibc. Looks at what it names, lets it be
      server and client in a kernel that has no other file, and start in a directory without any other; then
      compares its size, system calls and memory with the C programs'. A goal that is missed makes the exit
      status 1.

  soak [--minutes N] [--kernel 6.1|6.12]
      Makes connections and breaks them at random for N minutes, 30 without it, with many threads, on both
      levels of the library and both devices, with data that is checked; meanwhile looks up to 30 times at the
      memory, descriptors and kernel objects that are there while nobody has a connection: a table, a
      verdict, which is the exit status too, and a picture, soak-KERNEL.svg in cargo's target directory.

  fuzz [--seconds N] [FILTER]
      Feeds any bytes to what hears kernels and peers, each target whose name contains FILTER for N seconds (3
      without): tests/fuzz. `test` does so too. What fails is in target/fuzz/artifacts; the program of the target, in
      target/fuzz, does it again with that file as its argument.

  sanitize [--kernel 6.1|6.12|latest] [--timeout SECONDS] [FILTER]
      Runs the kernel tests whose name contains FILTER under AddressSanitizer, on 6.12 or the kernel named. Needs
      a compiler of rustup, and is no part of `test`.

  api [--renew]
      Compares what the three crates for others offer with tests/api, a line for each item, and shows what differs,
      which makes the exit status 1; with `--renew` writes it there. By the documentation of Debian's compiler.

  ci
      Checks format, lints, documentation, packages, the minimum Rust version and the public interface, does what
      demo, static and test do.
";

const HELP: &str = "cargo xtask help says what there is";

/// What the user asks for.
#[derive(Debug)]
pub(crate) enum Task {
    Help,
    Demo,
    Static,
    Api {
        renew: bool,
    },
    Vm {
        guest: Guest,
        command: Vec<OsString>,
    },
    Test(Selection),
    /// Whether the baseline is to be renewed.
    BenchNull {
        renew: bool,
    },
    Bench {
        subject: Subject,
        kernels: Vec<Kernel>,
        devices: Vec<Device>,
        renew: bool,
    },
    Soak(Duration, Kernel),
    Fuzz {
        filter: Option<String>,
        time: Duration,
    },
    Sanitize(Selection),
    Faults(Extent, Kernel, Vec<OsString>),
    Ci(Selection),
}

/// Reads the arguments after the program's name.
pub(crate) fn parse(arguments: impl IntoIterator<Item = OsString>) -> Result<Task> {
    let arguments: Vec<OsString> = arguments.into_iter().collect();
    // What stands behind `--` is another program's.
    let own = arguments.iter().take_while(|argument| *argument != "--");
    if own.into_iter().any(|argument| argument == "--help" || argument == "-h") {
        return Ok(Task::Help);
    }
    let mut arguments = arguments.into_iter();
    let Some(task) = arguments.next() else {
        return Err(Error::new(format!("a command is missing; {HELP}")));
    };
    match task.to_str() {
        Some("demo") => alone("demo", arguments, Task::Demo),
        Some("static") => alone("static", arguments, Task::Static),
        Some("api") => api(arguments),
        Some("vm") => vm(arguments),
        Some("test") => Ok(Task::Test(selection("test", everything(), arguments)?)),
        Some("fuzz") => fuzz(arguments),
        Some("sanitize") => {
            let limit = Duration::from_secs(3600);
            let sanitized = Selection { kernels: vec![Kernel::V6_12], limit, ..everything() };
            Ok(Task::Sanitize(selection("sanitize", sanitized, arguments)?))
        }
        Some("bench") => bench(arguments),
        Some("soak") => soak(arguments),
        Some("faults") => faults(arguments),
        Some("ci") => alone("ci", arguments, Task::Ci(everything())),
        Some("help") => Ok(Task::Help),
        _ => Err(Error::new(format!("unknown command {task:?}; {HELP}"))),
    }
}

fn vm(mut arguments: impl Iterator<Item = OsString>) -> Result<Task> {
    let mut guest = Guest::new(Kernel::V6_12);
    let mut devices = Vec::new();
    while let Some(option) = arguments.next() {
        match option.to_str() {
            Some("--kernel") => guest.kernel = kernel(&mut arguments)?,
            Some("--device") => devices.push(device(&mut arguments, &devices)?),
            Some("--timeout") => guest.limit = seconds(&mut arguments, "--timeout")?,
            Some("--memory") => {
                guest.memory_mb = value(&mut arguments, "--memory", |text| text.parse().ok())?;
            }
            Some("--processors") => {
                guest.processors = value(&mut arguments, "--processors", |text| text.parse().ok())?;
            }
            Some("--icount") => guest.counts_instructions = true,
            Some("--") => break,
            _ => {
                let what = format!("vm: {option:?} is no option; before the program stands --");
                return Err(Error::new(format!("{what}; {HELP}")));
            }
        }
    }
    guest.devices = if devices.is_empty() { guest.kernel.devices().to_vec() } else { devices };
    let command: Vec<OsString> = arguments.collect();
    if command.is_empty() {
        return Err(Error::new(format!("vm: the program is missing: -- PROGRAM; {HELP}")));
    }
    Ok(Task::Vm { guest, command })
}

/// A task without arguments.
fn alone(name: &str, mut arguments: impl Iterator<Item = OsString>, task: Task) -> Result<Task> {
    match arguments.next() {
        None => Ok(task),
        Some(surplus) => Err(Error::new(format!("{name} does not take {surplus:?}; {HELP}"))),
    }
}

/// The tests that run where nothing else is said.
fn everything() -> Selection {
    let limit = Duration::from_secs(600);
    Selection { kernels: Kernel::ALL.to_vec(), filter: None, limit, all: false }
}

/// What a task that runs tests is to run, which without arguments is all of `selection`.
fn selection(
    task: &str,
    mut selection: Selection,
    mut arguments: impl Iterator<Item = OsString>,
) -> Result<Selection> {
    while let Some(argument) = arguments.next() {
        match argument.to_str() {
            Some("--kernel") => selection.kernels = vec![kernel(&mut arguments)?],
            Some("--timeout") => selection.limit = seconds(&mut arguments, "--timeout")?,
            Some("--all") if task == "test" => selection.all = true,
            Some(filter) if selection.filter.is_none() && !filter.starts_with('-') => {
                selection.filter = Some(filter.to_owned());
            }
            _ => return Err(Error::new(format!("{task} does not take {argument:?}; {HELP}"))),
        }
    }
    Ok(selection)
}

fn api(mut arguments: impl Iterator<Item = OsString>) -> Result<Task> {
    match arguments.next() {
        Some(option) if option == "--renew" => alone("api", arguments, Task::Api { renew: true }),
        Some(surplus) => Err(Error::new(format!("api does not take {surplus:?}; {HELP}"))),
        None => Ok(Task::Api { renew: false }),
    }
}

fn fuzz(mut arguments: impl Iterator<Item = OsString>) -> Result<Task> {
    let (mut filter, mut time) = (None, fuzz::DEFAULT_DURATION);
    while let Some(argument) = arguments.next() {
        match argument.to_str() {
            Some("--seconds") => time = seconds(&mut arguments, "--seconds")?,
            Some(text) if filter.is_none() && !text.starts_with('-') => {
                filter = Some(text.to_owned());
            }
            _ => return Err(Error::new(format!("fuzz does not take {argument:?}; {HELP}"))),
        }
    }
    Ok(Task::Fuzz { filter, time })
}

fn bench(mut arguments: impl Iterator<Item = OsString>) -> Result<Task> {
    let Some(name) = arguments.next() else {
        let message = format!(
            "bench: the subject is missing: connect, data, endpoint, null or posts; {HELP}"
        );
        return Err(Error::new(message));
    };
    if name == "null" {
        return match arguments.next() {
            Some(option) if option == "--renew" => {
                alone("bench null", arguments, Task::BenchNull { renew: true })
            }
            Some(surplus) => {
                Err(Error::new(format!("bench null does not take {surplus:?}; {HELP}")))
            }
            None => Ok(Task::BenchNull { renew: false }),
        };
    }
    let subject = name.to_str().and_then(Subject::from_name);
    let subject =
        subject.ok_or_else(|| Error::new(format!("bench does not know {name:?}; {HELP}")))?;
    let mut chosen = None;
    let mut devices = Vec::new();
    let mut renew = false;
    while let Some(argument) = arguments.next() {
        match argument.to_str() {
            Some("--kernel") => chosen = Some(kernel(&mut arguments)?),
            Some("--device") => devices.push(device(&mut arguments, &devices)?),
            Some("--renew") => renew = true,
            _ => return Err(Error::new(format!("bench does not take {argument:?}; {HELP}"))),
        }
    }
    let devices = if devices.is_empty() { Device::ALL.to_vec() } else { devices };
    let kernels = match (chosen, renew) {
        (None, false) => Kernel::RELEASED.to_vec(),
        (None | Some(bench::BASELINE_KERNEL), true) => vec![bench::BASELINE_KERNEL],
        (Some(kernel), false) => vec![kernel],
        (Some(kernel), true) => {
            let (name, baseline) = (kernel.name(), bench::BASELINE_KERNEL.name());
            let message = format!("bench: baselines are of Linux {baseline}, not of {name}");
            return Err(Error::new(message));
        }
    };
    Ok(Task::Bench { subject, kernels, devices, renew })
}

fn faults(mut arguments: impl Iterator<Item = OsString>) -> Result<Task> {
    let (mut extent, mut chosen, mut words) = (Extent::Devices, Kernel::V6_12, Vec::new());
    while let Some(argument) = arguments.next() {
        match argument.to_str() {
            Some("--all") => extent = Extent::All,
            Some("--kernel") => chosen = kernel(&mut arguments)?,
            Some(word) if !word.starts_with('-') => words.push(argument),
            _ => return Err(Error::new(format!("faults does not take {argument:?}; {HELP}"))),
        }
    }
    Ok(Task::Faults(extent, chosen, words))
}

fn soak(mut arguments: impl Iterator<Item = OsString>) -> Result<Task> {
    let (mut time, mut kernel_of) = (Duration::from_secs(30 * 60), Kernel::V6_12);
    while let Some(argument) = arguments.next() {
        match argument.to_str() {
            Some("--minutes") => {
                let minutes = |text: &str| text.parse().ok().filter(|minutes: &u32| *minutes > 0);
                let minutes = value(&mut arguments, "--minutes", minutes)?;
                time = Duration::from_secs(u64::from(minutes) * 60);
            }
            Some("--kernel") => kernel_of = kernel(&mut arguments)?,
            _ => return Err(Error::new(format!("soak does not take {argument:?}; {HELP}"))),
        }
    }
    Ok(Task::Soak(time, kernel_of))
}

fn seconds(arguments: &mut impl Iterator<Item = OsString>, option: &str) -> Result<Duration> {
    value(arguments, option, |text| text.parse().ok().map(Duration::from_secs))
}

/// A device that is none of the ones that were named before.
fn device(arguments: &mut impl Iterator<Item = OsString>, before: &[Device]) -> Result<Device> {
    value(arguments, "--device", |text| {
        Device::from_link_type(text).filter(|device| !before.contains(device))
    })
}

fn kernel(arguments: &mut impl Iterator<Item = OsString>) -> Result<Kernel> {
    value(arguments, "--kernel", Kernel::from_name)
}

fn value<T>(
    arguments: &mut impl Iterator<Item = OsString>,
    option: &str,
    read: impl FnOnce(&str) -> Option<T>,
) -> Result<T> {
    let text =
        arguments.next().ok_or_else(|| Error::new(format!("{option} needs a value; {HELP}")))?;
    let value = text.to_str().and_then(read);
    value.ok_or_else(|| Error::new(format!("{option} does not take {text:?}; {HELP}")))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parsed(line: &str) -> Result<Task> {
        parse(line.split_whitespace().map(OsString::from))
    }

    #[test]
    fn vm_takes_options_before_the_command() {
        let Ok(Task::Vm { guest, command }) = parsed(
            "vm --kernel 6.1 --device siw --timeout 7 --memory 512 --processors 3 --icount -- ls --kernel -- x",
        ) else {
            panic!("refused");
        };
        assert_eq!(guest.kernel, Kernel::V6_1);
        assert_eq!(guest.devices, [Device::Siw]);
        assert_eq!(guest.limit, Duration::from_secs(7));
        assert_eq!((guest.memory_mb, guest.processors.get()), (512, 3));
        assert!(guest.counts_instructions);
        assert_eq!(command, ["ls", "--kernel", "--", "x"]);
    }

    #[test]
    fn the_devices_of_the_kernel_are_there_where_none_is_named() {
        for (line, devices) in
            [("vm -- true", &Device::ALL[..]), ("vm --kernel latest -- true", &[Device::Rxe])]
        {
            let Ok(Task::Vm { guest, .. }) = parsed(line) else { panic!("{line}: refused") };
            assert!(!guest.counts_instructions, "{line}");
            assert_eq!(guest.devices, devices, "{line}");
        }
    }

    #[test]
    fn test_takes_one_filter() {
        let Ok(Task::Test(selection)) = parsed("test reject --kernel 6.1 --timeout 9") else {
            panic!("refused");
        };
        assert_eq!(selection.kernels, [Kernel::V6_1]);
        assert_eq!(selection.filter.as_deref(), Some("reject"));
        assert_eq!(selection.limit, Duration::from_secs(9));
        assert!(parsed("test a b").is_err());
        assert!(parsed("test --nocapture").is_err());
    }

    #[test]
    fn fuzz_and_sanitize_take_one_filter() {
        let Ok(Task::Fuzz { filter, time }) = parsed("fuzz --seconds 9 ring") else {
            panic!("refused");
        };
        assert_eq!((filter.as_deref(), time), (Some("ring"), Duration::from_secs(9)));
        assert!(parsed("fuzz a b").is_err() && parsed("fuzz --seconds").is_err());
        let Ok(Task::Sanitize(selection)) = parsed("sanitize rxe") else { panic!("refused") };
        assert_eq!(selection.kernels, [Kernel::V6_12]);
        assert_eq!(selection.filter.as_deref(), Some("rxe"));
        assert!(parsed("sanitize --nocapture").is_err());
    }

    #[test]
    fn bench_takes_its_subject_a_kernel_and_a_device() {
        let bench = |line| match parsed(line) {
            Ok(Task::Bench { subject, kernels, devices, renew: false }) => {
                (subject, kernels, devices)
            }
            other => panic!("{line}: {other:?}"),
        };
        let all = Device::ALL.to_vec();
        assert_eq!(bench("bench connect"), (Subject::Connect, Kernel::RELEASED.to_vec(), all));
        assert_eq!(bench("bench endpoint").0, Subject::Endpoint);
        assert!(matches!(parsed("bench null"), Ok(Task::BenchNull { renew: false })));
        assert!(matches!(parsed("bench null --renew"), Ok(Task::BenchNull { renew: true })));
        assert_eq!(
            bench("bench data --kernel 6.1 --device siw"),
            (Subject::Data, vec![Kernel::V6_1], vec![Device::Siw])
        );
    }

    #[test]
    fn bench_renews_the_baselines_of_one_kernel() {
        for line in ["bench posts --renew", "bench posts --renew --kernel 6.12"] {
            let Ok(Task::Bench { kernels, renew: true, .. }) = parsed(line) else {
                panic!("{line} should renew");
            };
            assert_eq!(kernels, [bench::BASELINE_KERNEL]);
        }
        let error = parsed("bench posts --kernel 6.1 --renew").expect_err("6.1 has no baseline");
        assert!(error.to_string().contains("baselines are of Linux 6.12"), "{error}");
    }

    #[test]
    fn soak_takes_minutes_and_a_kernel() {
        let soak = |line| match parsed(line) {
            Ok(Task::Soak(time, kernel)) => (time.as_secs(), kernel),
            other => panic!("{line}: {other:?}"),
        };
        assert_eq!(soak("soak"), (1800, Kernel::V6_12));
        assert_eq!(soak("soak --minutes 2 --kernel 6.1"), (120, Kernel::V6_1));
        assert!(parsed("soak --minutes 0").is_err());
        assert!(parsed("soak 5").is_err());
    }

    #[test]
    fn faults_takes_its_extent_and_a_kernel() {
        let faults = |line| match parsed(line) {
            Ok(Task::Faults(extent, kernel, words)) => (extent, kernel, words),
            other => panic!("{line}: {other:?}"),
        };
        assert_eq!(faults("faults"), (Extent::Devices, Kernel::V6_12, vec![]));
        let words = ["udaddy", "KILL"].map(OsString::from).to_vec();
        assert_eq!(
            faults("faults --all udaddy --kernel 6.1 KILL"),
            (Extent::All, Kernel::V6_1, words)
        );
    }

    #[test]
    fn api_compares_unless_it_is_to_renew() {
        assert!(matches!(parsed("api"), Ok(Task::Api { renew: false })));
        assert!(matches!(parsed("api --renew"), Ok(Task::Api { renew: true })));
        assert!(matches!(parsed("static"), Ok(Task::Static)));
    }

    #[test]
    fn help_is_to_be_had_everywhere() {
        for line in ["help", "--help", "-h", "demo --help", "vm -h", "test --help", "bench --help"]
        {
            assert!(matches!(parsed(line), Ok(Task::Help)), "{line}");
        }
        assert!(matches!(parsed("vm -- ls --help"), Ok(Task::Vm { .. })));
    }

    #[test]
    fn what_is_wrong_is_named() {
        for (line, part) in [
            ("bench", "the subject is missing"),
            ("bench latency", "bench does not know \"latency\""),
            ("fuzz --quickly", "fuzz does not take \"--quickly\""),
            ("bench connect quickly", "bench does not take \"quickly\""),
            ("bench null --device rxe", "bench null does not take \"--device\""),
            ("faults --many", "faults does not take \"--many\""),
            ("", "a command is missing"),
            ("fly", "unknown command \"fly\""),
            ("api now", "api does not take \"now\""),
            ("api --renew now", "api does not take \"now\""),
            ("static now", "static does not take \"now\""),
            ("ci quickly", "ci does not take \"quickly\""),
            ("vm", "program is missing"),
            ("vm true", "before the program stands --"),
            ("vm --kernel", "--kernel needs a value"),
            ("vm --kernel 5.4 -- true", "--kernel does not take \"5.4\""),
            ("vm --device mlx5 -- true", "--device does not take"),
            ("vm --device rxe --device rxe -- true", "--device does not take"),
            ("vm --timeout soon -- true", "--timeout does not take"),
        ] {
            let error = parsed(line).unwrap_err().to_string();
            assert!(error.contains(part), "{line}: {error}");
        }
    }
}
