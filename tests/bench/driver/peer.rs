//! The C programs that the clients talk to.

use std::error::Error;
use std::fs;
use std::io::Read;
use std::process::{Child, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use rdmacm::device::Device;

use crate::run::{self, Program, Watch};

/// Time within which a server must start: ten times the duration on a loaded machine.
const TIMEOUT: Duration = Duration::from_secs(60);

/// A server that listens. Dropping it kills the program.
pub(crate) struct Peer {
    child: Child,
    program: String,
}

impl Peer {
    /// Starts the server and waits until it listens on an address of `device`. Then the device has one
    /// id more, and the server sleeps.
    pub(crate) fn start(device: &Device, program: &Program) -> Result<Self, Box<dyn Error>> {
        let before = ids(device)?;
        let child = program.command().stdout(Stdio::null()).stderr(Stdio::piped()).spawn();
        let child = child.map_err(|error| format!("{program}: {error}"))?;
        let mut peer = Self { child, program: program.to_string() };
        let start = Instant::now();
        while ids(device)? <= before || !peer.sleeps()? {
            if let Some(status) = peer.child.try_wait()? {
                let errors = peer.errors();
                return Err(format!("{program}: {status} before any client came\n{errors}").into());
            }
            if start.elapsed() > TIMEOUT {
                return Err(format!("{program} does not listen").into());
            }
            thread::sleep(Duration::from_millis(2));
        }
        Ok(peer)
    }

    /// Waits for the end of a server that serves once.
    pub(crate) fn finish(mut self) -> Result<(), Box<dyn Error>> {
        let _watch = Watch::over(&self.child)?;
        let status = self.child.wait()?;
        let program = self.program.clone();
        run::ended_well(&program, status, || self.errors())
    }

    /// Returns the error output of the program after its end. The output is short, so it is not read earlier.
    fn errors(&mut self) -> String {
        let mut errors = Vec::new();
        // Output before a failure to read is better than none.
        let _ = self.child.stderr.take().map(|mut pipe| pipe.read_to_end(&mut errors));
        String::from_utf8_lossy(&errors).into_owned()
    }

    /// Returns the id of its process.
    pub(crate) fn id(&self) -> u32 {
        self.child.id()
    }

    fn sleeps(&self) -> Result<bool, Box<dyn Error>> {
        let stat = fs::read_to_string(format!("/proc/{}/stat", self.child.id()))?;
        // The name before the state is in parentheses and may hold anything.
        Ok(stat.rsplit_once(") ").is_some_and(|(_, rest)| rest.starts_with('S')))
    }
}

impl Drop for Peer {
    fn drop(&mut self) {
        // The program may have ended already. Then both errors are irrelevant.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn ids(device: &Device) -> Result<u64, Box<dyn Error>> {
    Ok(device.resources()?.count("cm_id").ok_or("the device does not count ids")?)
}
