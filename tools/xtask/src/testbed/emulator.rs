//! QEMU: Debian 12's version, and the version of its backports if processors take turns.
//!
//! In QEMU before 8.1, a guest whose clock counts instructions runs one processor until some event stops it.

use std::fs;
use std::io::{BufRead, BufReader, Write};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::Command;

use tool_error::{Context, Error, Result};

use crate::host;
use crate::host::packages;
use crate::testbed::architecture::Architecture;
use crate::testbed::archive::Archive;
use crate::testbed::cache;

const SUITE: &str = "bookworm-backports";
/// Name of the package in both suites.
pub(crate) const PACKAGE: &str = "qemu-system-x86";
/// Dependencies whose data QEMU reads; the others are libraries, or not used here.
const DATA: [&str; 2] = ["qemu-system-data", "seabios"];
/// Data directories of these packages.
const DATA_DIRECTORIES: [&str; 2] = ["usr/share/qemu", "usr/share/seabios"];

/// Name of the file that lists the needed libraries, one per line.
const LIBRARIES: &str = "libraries";

/// Returns a command that starts an emulator, which is killed if this process is killed.
pub(crate) fn command(architecture: Architecture, takes_turns: bool) -> Result<Command> {
    let mut command = host::command("setpriv");
    command.args(["--pdeathsig", "KILL"]);
    if takes_turns {
        let root = unpacked_backport()?;
        command.arg(root.join("usr/bin/qemu-system-x86_64"));
        for place in DATA_DIRECTORIES {
            command.arg("-L").arg(root.join(place));
        }
    } else {
        command.arg(architecture.emulator());
    }
    Ok(command)
}

/// Returns the directory of the unpacked emulator of the backports.
///
/// The libraries that it is linked with are installed.
fn unpacked_backport() -> Result<PathBuf> {
    let root = cache::entry("emulator/root", fetch)?;
    let list = root.join(LIBRARIES);
    let libraries =
        fs::read_to_string(&list).with_context(|| format!("read {}", list.display()))?;
    packages::require(&libraries.lines().collect::<Vec<_>>())?;
    Ok(root)
}

fn fetch(root: &Path) -> Result<()> {
    let archive = Archive::suites(&[SUITE], "emulator", Architecture::X86_64)?;
    let record = archive.record(PACKAGE)?;
    archive.unpack(&[&[PACKAGE], &DATA[..]].concat(), root)?;
    let mut libraries = record.depends;
    libraries.retain(|name| name.starts_with("lib"));
    let list = root.join(LIBRARIES);
    fs::write(&list, libraries.join("\n")).with_context(|| format!("write {}", list.display()))
}

/// Name of the emulator's control socket, in its working directory.
pub(crate) const CONTROL: &str = "control";

/// Periods of two clocks that interrupt the processors, in microseconds.
///
/// The processors take turns: each gets half of the time until the next tick.
///
/// The distances of the ticks of both clocks keep changing, so that no activity of the guest stays in step with the
/// turns.
const TICK_PERIODS: [u32; 2] = [7, 11];

/// Options of the source of the ticks: the packet throttle of a network without members.
pub(crate) const TICK_SOURCE: [&str; 2] = ["-netdev", "hubport,id=ticks,hubid=0"];

/// Lets the processors of a guest whose clock counts instructions take turns of some microseconds.
///
/// This makes the emulator about ten times slower, so it is not used during boot.
pub(crate) fn take_turns(emulator: u32) -> Result<()> {
    // The path is relative to the emulator's directory, since the path of a socket must be short.
    let path = format!("/proc/{emulator}/cwd/{CONTROL}");
    let control = UnixStream::connect(&path).with_context(|| format!("connect to {path}"))?;
    let mut answers = BufReader::new(&control).lines();
    let ticks = TICK_PERIODS.iter().map(|interval| {
        format!(
            r#"{{"execute": "object-add", "arguments": {{"qom-type": "filter-buffer", "id": "every{interval}us", "netdev": "ticks", "interval": {interval}}}}}"#
        )
    });
    for request in std::iter::once(r#"{"execute": "qmp_capabilities"}"#.to_owned()).chain(ticks) {
        writeln!(&control, "{request}").context("write to the emulator")?;
        let answer = answers
            .find_map(|line| match line {
                Ok(line) if line.starts_with(r#"{"return""#) => Some(Ok(())),
                Ok(line) if line.starts_with(r#"{"error""#) => Some(Err(Error::new(line))),
                Ok(_) => None,
                Err(error) => Some(Err(Error::new(error.to_string()))),
            })
            .unwrap_or_else(|| Err(Error::new("the emulator ended")));
        answer.map_err(|error| {
            Error::new(format!("cannot run {request} in the emulator: {error}"))
        })?;
    }
    Ok(())
}
