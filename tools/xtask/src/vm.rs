//! `cargo xtask vm`: a command of the host, run in a guest that sees the host's files.

use std::env;
use std::ffi::OsString;
use std::io::{self, Write};
use std::num::NonZeroUsize;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Duration;

use guest::error::{Context, Result};
use guest::plan::{Device, HostCommand, Plan, Work};
use guest::report::{Frame, Status};

use crate::host::{self, progress};
use crate::kernel::Kernel;
use crate::machine::{Machine, Outcome};
use crate::{driver, emulator, initramfs, packages};

/// Exit status where the test bed failed: set-up, boot, time limit, no report.
pub(crate) const BED_FAILED: u8 = 125;
/// Exit status where the command ended but the kernel complained.
const KERNEL_COMPLAINED: u8 = 126;
/// Exit status where the command could not be started.
const NOT_STARTED: u8 = 127;

/// What a guest needs to see the host's files.
const HOST_MODULES: [&str; 3] = ["9pnet_virtio", "9p", "overlay"];

/// What every guest needs.
const MODULES: [&str; 3] = ["virtio_pci", "virtio_console", "veth"];
/// What the connection manager needs. Kernel clients of a device are told that it goes last in, first out: with rdma_cm loaded
/// first, a program that holds a context open hears of it only when it has closed that.
pub(crate) const UVERBS_FIRST: [&str; 3] = ["ib_uverbs", "rdma_cm", "rdma_ucm"];
const RDMA_CM_FIRST: [&str; 3] = ["rdma_cm", "ib_uverbs", "rdma_ucm"];

/// What siw, which is built by the test bed, is linked with.
const SIW_NEEDS: &str = "libcrc32c";

/// What is installed for a guest.
pub(crate) const PACKAGES: [&str; 3] = ["kmod", emulator::PACKAGE, "xz-utils"];

/// A guest to start.
#[derive(Clone, Debug)]
pub(crate) struct Guest {
    pub(crate) kernel: Kernel,
    pub(crate) devices: Vec<Device>,
    pub(crate) limit: Duration,
    pub(crate) memory_mb: u32,
    pub(crate) processors: NonZeroUsize,
    pub(crate) counts_instructions: bool,
    /// Whether rdma_cm is loaded before ib_uverbs.
    pub(crate) rdma_cm_first: bool,
}

impl Guest {
    /// A guest with every device that its kernel has.
    pub(crate) fn new(kernel: Kernel) -> Self {
        let limit = Duration::from_secs(300);
        Self {
            kernel,
            devices: kernel.devices().to_vec(),
            limit,
            memory_mb: 2048,
            processors: host::processors(),
            counts_instructions: false,
            rdma_cm_first: false,
        }
    }

    /// The packages that must be installed.
    pub(crate) fn packages() -> Vec<&'static str> {
        [&PACKAGES[..], &driver::PACKAGES].concat()
    }

    /// Downloads and builds whatever else [`run`](Self::run) needs.
    pub(crate) fn fetch(&self) -> Result<()> {
        if self.devices.contains(&Device::Siw) {
            driver::siw(self.kernel)?;
        }
        driver::test_device(self.kernel).map(drop)
    }

    /// Runs a command in a directory of the host with this process's environment and what it was promised:
    /// `RDMACM_TEST_KERNEL` (`6.1`), `RDMACM_TEST_DEVICES` (`rxe0,siw0`) and `RDMACM_TEST_MODULE`, the file of a module that
    /// is not loaded: with it comes the device `kt0`.
    pub(crate) fn run(
        &self,
        directory: &Path,
        command: &[OsString],
        sink: impl FnMut(Frame) -> io::Result<()>,
    ) -> Result<Outcome> {
        self.machine(directory, command)?.run(sink)
    }

    /// The machine that [`run`](Self::run) starts.
    pub(crate) fn machine(&self, directory: &Path, command: &[OsString]) -> Result<Machine> {
        let image = self.kernel.image()?;
        let manager = if self.rdma_cm_first { RDMA_CM_FIRST } else { UVERBS_FIRST };
        let files = module_files(self.kernel, &self.devices, &[manager, HOST_MODULES].concat())?;
        let names: Vec<&str> = self.devices.iter().map(|device| device.name()).collect();
        let module = driver::test_device(self.kernel)?;
        let promises = [
            ("PATH", host::search_path()),
            ("RDMACM_TEST_KERNEL", image.version.into()),
            ("RDMACM_TEST_DEVICES", names.join(",").into()),
            ("RDMACM_TEST_MODULE", module.into()),
        ];
        let mut environment: Vec<_> = env::vars_os().collect();
        environment.retain(|(name, _)| promises.iter().all(|(promised, _)| name != promised));
        environment.extend(promises.map(|(name, value)| (name.into(), value)));
        let work = Work::Command(HostCommand {
            module_tree: image.modules.into(),
            directory: directory.into(),
            environment,
            arguments: command.to_vec(),
        });
        let plan = Plan { modules: Vec::new(), devices: self.devices.clone(), work };
        Ok(Machine {
            vmlinuz: image.vmlinuz,
            initramfs: initramfs::pack(&initramfs::build_init()?, None, plan, &files)?,
            memory_mb: self.memory_mb,
            processors: self.processors,
            counts_instructions: self.counts_instructions,
            host_root: true,
            wires: None,
            limit: self.limit,
        })
    }
}

/// The module files that give a guest of this kernel its devices, and `more`, in the order in which to load them.
pub(crate) fn module_files(
    kernel: Kernel,
    devices: &[Device],
    more: &[&'static str],
) -> Result<Vec<PathBuf>> {
    let mut wanted = [&MODULES[..], more].concat();
    wanted.extend(devices.iter().filter_map(|device| kernel.checksum(*device)));
    let mut built_here = None;
    for device in devices {
        match device {
            Device::Rxe => wanted.push("rdma_rxe"),
            Device::Siw => {
                wanted.push(SIW_NEEDS);
                built_here = Some(driver::siw(kernel)?);
            }
        }
    }
    let mut files = kernel.image()?.module_files(&wanted)?;
    files.extend(built_here);
    Ok(files)
}

/// Passes what the command prints on to where it belongs.
pub(crate) fn pass_on(frame: Frame) -> io::Result<()> {
    match frame {
        Frame::Output(bytes) => {
            io::stdout().write_all(&bytes)?;
            io::stdout().flush()
        }
        Frame::Error(bytes) => io::stderr().write_all(&bytes),
        _ => Ok(()),
    }
}

/// Keeps what the command prints, to be shown later.
pub(crate) fn keep(frame: Frame, output: &mut Vec<u8>) -> io::Result<()> {
    match frame {
        Frame::Output(bytes) | Frame::Error(bytes) => output.write_all(&bytes),
        _ => Ok(()),
    }
}

/// Runs the command and ends as it did.
pub(crate) fn run(guest: &Guest, command: &[OsString]) -> Result<ExitCode> {
    packages::require(&Guest::packages())?;
    guest.fetch()?;
    let directory = env::current_dir().context("find the current directory")?;
    let outcome = guest.run(&directory, command, pass_on)?;
    let program = command.first().map(|name| name.to_string_lossy());
    Ok(end(&outcome, &program.unwrap_or_default()))
}

/// Ends as `program` did in a guest, and says what there is to say about that.
pub(crate) fn end(outcome: &Outcome, program: &str) -> ExitCode {
    let (code, said) = ending(outcome);
    if let Some(said) = said {
        progress(&format!("{program}: {said}"));
    }
    ExitCode::from(code)
}

/// The exit status, and what there is to say about it.
fn ending(outcome: &Outcome) -> (u8, Option<String>) {
    if !outcome.complaints.is_empty() {
        let complaints = outcome.complaints.join("\n");
        return (KERNEL_COMPLAINED, Some(format!("the guest's kernel complained:\n{complaints}")));
    }
    match &outcome.status {
        Status::Exited(code) => (u8::try_from(*code).unwrap_or(BED_FAILED), None),
        // As a shell has it.
        Status::Signaled(signal) => {
            let code = u8::try_from(128 + signal).unwrap_or(BED_FAILED);
            (code, Some(format!("killed by signal {signal}")))
        }
        Status::NotStarted(reason) => (NOT_STARTED, Some(format!("cannot be started: {reason}"))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_command_ends_the_task_as_it_ended_unless_the_kernel_complains() {
        let ended = |status: &Status, complaints: &[&str]| {
            let complaints = complaints.iter().map(|text| (*text).to_owned()).collect();
            ending(&Outcome { status: status.clone(), complaints })
        };
        let statuses = [
            (Status::Exited(0), 0, None),
            (Status::Exited(7), 7, None),
            (Status::Signaled(9), 137, Some("killed by signal 9")),
            (
                Status::NotStarted("no such file".into()),
                127,
                Some("cannot be started: no such file"),
            ),
        ];
        for (status, code, said) in statuses {
            assert_eq!(ended(&status, &[]), (code, said.map(str::to_owned)));
            let (code, said) = ended(&status, &["WARNING: one", "BUG: two"]);
            assert_eq!(code, 126, "{status:?}");
            let said = said.expect("it is said");
            assert!(said.contains("WARNING: one") && said.contains("BUG: two"), "{said}");
        }
    }
}
