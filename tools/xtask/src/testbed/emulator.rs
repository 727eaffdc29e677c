//! QEMU: Debian 12's own, and that of its backports where processors are to take turns.
//!
//! Before 8.1 a guest whose clock counts instructions has one processor run until something stops it.

use std::fs;
use std::io::{BufRead, BufReader, Write};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::Command;

use tool_error::{Context, Error, Result};

use crate::host;
use crate::host::packages;
use crate::testbed::archive::Archive;
use crate::testbed::cache;

const SUITE: &str = "bookworm-backports";
/// The package: of both.
pub(crate) const PACKAGE: &str = "qemu-system-x86";
/// What of the packages that it depends on it reads; the rest are libraries, and what nobody here asks for.
const DATA: [&str; 2] = ["qemu-system-data", "seabios"];
/// Where the packages have their data.
const PLACES: [&str; 2] = ["usr/share/qemu", "usr/share/seabios"];

/// The libraries that it needs, by line.
const LIBRARIES: &str = "libraries";

/// A command that starts an emulator, and kills it where this process is killed.
pub(crate) fn command(takes_turns: bool) -> Result<Command> {
    let mut command = host::command("setpriv");
    command.args(["--pdeathsig", "KILL"]);
    if takes_turns {
        let root = unpacked()?;
        command.arg(root.join("usr/bin/qemu-system-x86_64"));
        for place in PLACES {
            command.arg("-L").arg(root.join(place));
        }
    } else {
        command.arg("qemu-system-x86_64");
    }
    Ok(command)
}

/// That of the backports, unpacked, and the libraries that it is linked with, installed.
fn unpacked() -> Result<PathBuf> {
    let root = cache::entry("emulator/root", fetch)?;
    let list = root.join(LIBRARIES);
    let libraries =
        fs::read_to_string(&list).with_context(|| format!("read {}", list.display()))?;
    packages::require(&libraries.lines().collect::<Vec<_>>())?;
    Ok(root)
}

fn fetch(root: &Path) -> Result<()> {
    let archive = Archive::suite(SUITE, "emulator")?;
    let record = archive.record(PACKAGE)?;
    archive.unpack(&[&[PACKAGE], &DATA[..]].concat(), root)?;
    let mut libraries = record.depends;
    libraries.retain(|name| name.starts_with("lib"));
    let list = root.join(LIBRARIES);
    fs::write(&list, libraries.join("\n")).with_context(|| format!("write {}", list.display()))
}

/// The name of a socket by which the emulator is told what to do, in its directory.
pub(crate) const CONTROL: &str = "control";

/// Has two clocks interrupt the processors, which then take turns: each gets half of the time until the next
/// tick. The ticks of the two, in microseconds, fall at ever other distances, so that nothing that the guest does
/// keeps step with the turns.
const TICKS: [u32; 2] = [7, 11];

/// Where the ticks come from: what holds back the packets of a network that has nobody in it.
pub(crate) const TICKING: [&str; 2] = ["-netdev", "hubport,id=nobody,hubid=0"];

/// Lets the processors of a guest whose clock counts instructions take turns of some microseconds. This costs the
/// emulator some ten times what the guest does, and is not for its boot.
pub(crate) fn take_turns(emulator: u32) -> Result<()> {
    // Its own directory, since the name of a socket must be short.
    let path = format!("/proc/{emulator}/cwd/{CONTROL}");
    let control = UnixStream::connect(&path).with_context(|| format!("connect to {path}"))?;
    let mut answers = BufReader::new(&control).lines();
    let ticks = TICKS.iter().map(|interval| {
        format!(
            r#"{{"execute": "object-add", "arguments": {{"qom-type": "filter-buffer", "id": "every{interval}us", "netdev": "nobody", "interval": {interval}}}}}"#
        )
    });
    for request in std::iter::once(r#"{"execute": "qmp_capabilities"}"#.to_owned()).chain(ticks) {
        writeln!(&control, "{request}").context("write to the emulator")?;
        let said = answers
            .find_map(|line| match line {
                Ok(line) if line.starts_with(r#"{"return""#) => Some(Ok(())),
                Ok(line) if line.starts_with(r#"{"error""#) => Some(Err(Error::new(line))),
                Ok(_) => None,
                Err(error) => Some(Err(Error::new(error.to_string()))),
            })
            .unwrap_or_else(|| Err(Error::new("it ended")));
        said.map_err(|error| Error::new(format!("the emulator does not {request}: {error}")))?;
    }
    Ok(())
}
