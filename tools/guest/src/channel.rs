//! The virtio-serial port that carries the report to xtask, and its acknowledgement back.

use std::fs::{self, File, OpenOptions};
use std::io::Read;
use std::path::{Path, PathBuf};
use std::thread::sleep;
use std::time::{Duration, Instant};

use guest::plan::REPORT_PORT;

use guest::error::{Context, Error, Result};

const PATIENCE: Duration = Duration::from_secs(10);

/// Opens the port, which the kernel may still be discovering.
pub(crate) fn open() -> Result<File> {
    let deadline = Instant::now() + PATIENCE;
    loop {
        if let Some(device) = find() {
            return OpenOptions::new()
                .read(true)
                .write(true)
                .open(&device)
                .with_context(|| format!("open {}", device.display()));
        }
        if Instant::now() > deadline {
            return Err(Error::new(format!("no virtio-serial port is named {REPORT_PORT}")));
        }
        sleep(Duration::from_millis(2));
    }
}

fn find() -> Option<PathBuf> {
    let ports = fs::read_dir("/sys/class/virtio-ports").ok()?;
    ports.filter_map(std::result::Result::ok).find_map(|port| {
        let name = fs::read_to_string(port.path().join("name")).ok()?;
        let device = Path::new("/dev").join(port.file_name());
        (name.trim() == REPORT_PORT && device.exists()).then_some(device)
    })
}

/// Waits until xtask has read the whole report: what is still queued when the machine stops is lost.
pub(crate) fn wait_until_read(mut channel: &File) -> Result<()> {
    channel.read_exact(&mut [0]).context("read xtask's acknowledgement")
}
