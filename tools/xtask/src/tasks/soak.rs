//! `cargo xtask soak`: opens and closes connections at random, and reports leftovers.

use std::ffi::OsString;
use std::fs;
use std::io;
use std::time::Duration;

use guest::report::Frame;
use tool_error::{Context, Result};

use crate::host::packages;
use crate::host::{self, progress};
use crate::tasks::vm::Relay;
use crate::testbed::machine::FrameListener;
use crate::testbed::vm::Guest;

const PACKAGE: &str = "rdmacm-tests";
const PROGRAM: &str = "soak";

/// Start of the program's last output.
const SVG_START: &[u8] = b"<svg";

/// Time for booting and the final report, in addition to the requested time.
const EXTRA_TIME: Duration = Duration::from_secs(240);

/// Builds the program and runs it for `time` on every device of `guest`.
pub(crate) fn run(time: Duration, guest: &Guest) -> Result<()> {
    packages::require(&Guest::packages())?;
    progress("building the program");
    let mut cargo = host::cargo();
    cargo.args(["build", "--quiet", "--package", PACKAGE, "--bin", PROGRAM]);
    host::run(&mut cargo, "build the program")?;
    in_guest(time, guest)
}

/// Runs the program, which must be built. Its table goes to standard output, its chart to a file.
pub(crate) fn in_guest(time: Duration, guest: &Guest) -> Result<()> {
    let guest = Guest { limit: time + EXTRA_TIME, ..guest.clone() };
    guest.fetch()?;
    let seconds = OsString::from(time.as_secs().to_string());
    let program = host::build_directory().join("debug").join(PROGRAM);
    // All threads share one heap, because each of sixteen heaps would eventually keep its peak size resident.
    let command = ["env".into(), "MALLOC_ARENA_MAX=1".into(), program.into_os_string(), seconds];
    let mut output = Output::default();
    let outcome = guest.run(&host::workspace(), &command, &mut output)?;
    if !output.chart.is_empty() {
        let devices: Vec<_> = guest.devices.iter().map(|device| device.name()).collect();
        let name = format!("soak-{}-{}.svg", guest.kernel.name(), devices.join("-"));
        let file = host::build_directory().join(name);
        fs::write(&file, &output.chart).with_context(|| format!("write {}", file.display()))?;
        progress(&format!("chart: {}", file.display()));
    }
    output.relay.check(&outcome, "open and close connections at random")
}

/// Splits the output of the program: text, then a chart.
#[derive(Debug, Default)]
struct Output {
    /// An incomplete line.
    line: Vec<u8>,
    chart: Vec<u8>,
    relay: Relay,
}

impl FrameListener for Output {
    fn handle_frame(&mut self, frame: Frame) -> io::Result<()> {
        match frame {
            Frame::Output(bytes) => self.take(&bytes),
            frame => self.relay.handle_frame(frame),
        }
    }
}

impl Output {
    fn take(&mut self, bytes: &[u8]) -> io::Result<()> {
        for line in bytes.split_inclusive(|byte| *byte == b'\n') {
            self.line.extend_from_slice(line);
            if !line.ends_with(b"\n") {
                return Ok(());
            }
            let line = std::mem::take(&mut self.line);
            if self.chart.is_empty() && !line.starts_with(SVG_START) {
                self.relay.handle_frame(Frame::Output(line))?;
            } else {
                self.chart.extend(line);
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn chart_follows_text() {
        let mut output = Output::default();
        for piece in ["a\nb", "c\n<s", "vg a='1'>\n<p", "ath/>\n", "</svg>\n"] {
            output.take(piece.as_bytes()).expect("standard output should be writable");
        }
        assert_eq!(String::from_utf8_lossy(&output.chart), "<svg a='1'>\n<path/>\n</svg>\n");
        assert!(output.line.is_empty());
    }
}
