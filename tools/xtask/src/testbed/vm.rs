//! Guests that run a command of the host and see the host's files.

use std::env;
use std::ffi::OsString;
use std::num::NonZeroUsize;
use std::path::{Path, PathBuf};
use std::time::Duration;

use guest::plan::{Device, HostCommand, Plan, Work};
use tool_error::Result;

use crate::host;
use crate::testbed::emulator;
use crate::testbed::initramfs;
use crate::testbed::kernel::Kernel;
use crate::testbed::machine::{Listener, Machine, Outcome};
use crate::testbed::module_source;

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
    /// `true` if rdma_cm is loaded before ib_uverbs.
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
        [&PACKAGES[..], &module_source::PACKAGES].concat()
    }

    /// Downloads and builds whatever else [`run`](Self::run) needs.
    pub(crate) fn fetch(&self) -> Result<()> {
        if self.devices.contains(&Device::Siw) {
            module_source::siw(self.kernel)?;
        }
        module_source::test_device(self.kernel).map(drop)
    }

    /// Runs a command in a directory of the host with this process's environment and what it was promised:
    /// `RDMACM_TEST_KERNEL` (`6.1`), `RDMACM_TEST_DEVICES` (`rxe0,siw0`) and `RDMACM_TEST_MODULE`, the file of a module that
    /// is not loaded: with it comes the device `kt0`.
    pub(crate) fn run(
        &self,
        directory: &Path,
        command: &[OsString],
        listener: &mut dyn Listener,
    ) -> Result<Outcome> {
        self.machine(directory, command)?.run(listener)
    }

    /// The machine that [`run`](Self::run) starts.
    pub(crate) fn machine(&self, directory: &Path, command: &[OsString]) -> Result<Machine> {
        let image = self.kernel.image()?;
        let manager = if self.rdma_cm_first { RDMA_CM_FIRST } else { UVERBS_FIRST };
        let files = module_files(self.kernel, &self.devices, &[manager, HOST_MODULES].concat())?;
        let names: Vec<&str> = self.devices.iter().map(|device| device.name()).collect();
        let module = module_source::test_device(self.kernel)?;
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
                built_here = Some(module_source::siw(kernel)?);
            }
        }
    }
    let mut files = kernel.image()?.module_files(&wanted)?;
    files.extend(built_here);
    Ok(files)
}
