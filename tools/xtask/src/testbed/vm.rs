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
use crate::testbed::machine::{FrameListener, Machine, Outcome};
use crate::testbed::module_source::{self, TestModule};

/// Modules for access to the host's files.
const HOST_MODULES: [&str; 3] = ["9pnet_virtio", "9p", "overlay"];

/// Modules that every guest needs.
const MODULES: [&str; 3] = ["virtio_pci", "virtio_console", "veth"];
/// Modules of the connection manager.
///
/// The kernel notifies its clients of a device's removal in the reverse order of registration. If rdma_cm is loaded
/// first, a program that holds a context open is notified only after it has closed the context.
pub(crate) const UVERBS_FIRST: [&str; 3] = ["ib_uverbs", "rdma_cm", "rdma_ucm"];
const RDMA_CM_FIRST: [&str; 3] = ["rdma_cm", "ib_uverbs", "rdma_ucm"];

/// Module that siw, which is built by the test bed, is linked with.
const SIW_NEEDS: &str = "libcrc32c";

/// Packages that a guest needs.
pub(crate) const PACKAGES: [&str; 3] = ["kmod", emulator::PACKAGE, "xz-utils"];

/// The configuration of a guest.
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
    /// Variables of the environment, in addition to those of this process.
    pub(crate) environment: Vec<(&'static str, OsString)>,
    /// `true` if the standard error of the command goes to its standard output.
    pub(crate) joins_output: bool,
}

impl Guest {
    /// Creates a guest with every device that its kernel has.
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
            environment: Vec::new(),
            joins_output: false,
        }
    }

    /// Returns `true` if the guest has the emulated card.
    pub(crate) fn has_card(&self) -> bool {
        self.devices.contains(&Device::Mlx5)
    }

    /// Returns the packages that must be installed.
    pub(crate) fn packages() -> Vec<&'static str> {
        [&PACKAGES[..], &module_source::PACKAGES].concat()
    }

    /// Downloads and builds everything else that [`run`](Self::run) needs.
    pub(crate) fn fetch(&self) -> Result<()> {
        if self.devices.contains(&Device::Siw) {
            module_source::siw(self.kernel)?;
        }
        if self.has_card() {
            module_source::test_module(self.kernel, TestModule::Mlx5)?;
        }
        self.kernel.programs()?;
        module_source::test_module(self.kernel, TestModule::Commands).map(drop)
    }

    /// Runs a command in a directory of the host with this process's environment.
    ///
    /// It also sets `RDMACM_TEST_KERNEL` (`6.1`), `RDMACM_TEST_DEVICES` (`rxe0,siw0`) and `RDMACM_TEST_MODULE`, the
    /// file of a module that is not loaded and provides the device `kt0`.
    pub(crate) fn run(
        &self,
        directory: &Path,
        command: &[OsString],
        listener: &mut dyn FrameListener,
    ) -> Result<Outcome> {
        self.machine(directory, command)?.run(listener)
    }

    /// Returns the machine that [`run`](Self::run) starts.
    pub(crate) fn machine(&self, directory: &Path, command: &[OsString]) -> Result<Machine> {
        let image = self.kernel.image()?;
        let manager = if self.rdma_cm_first { RDMA_CM_FIRST } else { UVERBS_FIRST };
        let files = module_files(self.kernel, &self.devices, &[manager, HOST_MODULES].concat())?;
        let names: Vec<&str> = self.devices.iter().map(|device| device.name()).collect();
        let module = module_source::test_module(self.kernel, TestModule::Commands)?;
        let mut promises = vec![
            ("PATH", host::search_path()),
            ("RDMACM_TEST_KERNEL", image.version.into()),
            ("RDMACM_TEST_DEVICES", names.join(",").into()),
            ("RDMACM_TEST_MODULE", module.into()),
        ];
        promises.extend(self.environment.iter().cloned());
        let mut environment: Vec<_> = env::vars_os().collect();
        environment.retain(|(name, _)| promises.iter().all(|(promised, _)| name != promised));
        environment.extend(promises.into_iter().map(|(name, value)| (name.into(), value)));
        let programs = self.kernel.programs()?;
        let work = Work::Command(HostCommand {
            module_tree: image.modules.into(),
            has_programs: programs.is_some(),
            directory: directory.into(),
            environment,
            arguments: command.to_vec(),
            joins_output: self.joins_output,
        });
        let plan = Plan { modules: Vec::new(), devices: self.devices.clone(), work };
        Ok(Machine {
            architecture: self.kernel.architecture(),
            vmlinuz: image.vmlinuz,
            initramfs: initramfs::pack(
                &initramfs::build_init(self.kernel.architecture())?,
                None,
                plan,
                &files,
            )?,
            memory_mb: self.memory_mb,
            processors: self.processors,
            counts_instructions: self.counts_instructions,
            host_root: true,
            programs,
            link_end: None,
            limit: self.limit,
        })
    }
}

/// Returns the module files for a guest with these devices, and `more`, in load order.
pub(crate) fn module_files(
    kernel: Kernel,
    devices: &[Device],
    more: &[&'static str],
) -> Result<Vec<PathBuf>> {
    let mut wanted = [&MODULES[..], more].concat();
    wanted.extend(devices.iter().filter_map(|device| kernel.checksum(*device)));
    let mut built_here = Vec::new();
    for device in devices {
        match device {
            Device::Rxe => wanted.push("rdma_rxe"),
            Device::Siw => {
                wanted.push(SIW_NEEDS);
                built_here.push(module_source::siw(kernel)?);
            }
            Device::Mlx5 => built_here.push(module_source::test_module(kernel, TestModule::Mlx5)?),
        }
    }
    let mut files = kernel.image()?.module_files(&wanted)?;
    files.extend(built_here);
    Ok(files)
}
