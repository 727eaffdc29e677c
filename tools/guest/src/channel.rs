//! The virtio-serial port that carries the report to xtask, and its acknowledgment back.

use std::fs::{self, File, OpenOptions};
use std::io::Read;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::sleep;
use std::time::{Duration, Instant};

use guest::plan::REPORT_PORT;
use guest::report::{Frame, Writer};
use tool_error::{Context, Error, Result};

const DISCOVERY_TIMEOUT: Duration = Duration::from_secs(10);

/// The report in progress; all clones share it.
#[derive(Clone)]
pub(crate) struct Report {
    port: Arc<File>,
    writer: Arc<Mutex<Writer<Arc<File>>>>,
}

impl Report {
    /// Opens the port, after waiting until the kernel has discovered it.
    pub(crate) fn open() -> Result<Self> {
        let deadline = Instant::now() + DISCOVERY_TIMEOUT;
        let device = loop {
            match find() {
                Some(device) => break device,
                None if Instant::now() > deadline => {
                    return Err(Error::new(format!(
                        "cannot open the virtio-serial port {REPORT_PORT}: no such port"
                    )));
                }
                None => sleep(Duration::from_millis(2)),
            }
        };
        let port = OpenOptions::new().read(true).write(true).open(&device);
        let port = Arc::new(port.with_context(|| format!("open {}", device.display()))?);
        let writer = Arc::new(Mutex::new(Writer::new(Arc::clone(&port))));
        Ok(Self { port, writer })
    }

    pub(crate) fn send(&self, frame: &Frame) -> Result<()> {
        let mut writer = self.writer.lock().unwrap_or_else(PoisonError::into_inner);
        writer.send(frame).context("send the report")
    }

    /// Waits until xtask has read the whole report: data that is queued when the machine stops is lost.
    pub(crate) fn wait_until_read(&self) -> Result<()> {
        let mut port = &*self.port;
        port.read_exact(&mut [0]).context("read xtask's acknowledgment")
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
