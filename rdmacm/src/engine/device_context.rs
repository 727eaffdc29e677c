//! An open device.

use std::sync::atomic::{AtomicBool, Ordering};

use crate::driver::CreateError;
use crate::driver::{Capabilities, CommandContext, DeviceInfo, Driver as _, Opened};
use crate::drivers::any::AnyDriver;
use crate::sys::uverbs::UverbsFile;

/// An open device: its file, its driver, and whether it was removed.
#[derive(Debug)]
pub(crate) struct DeviceContext {
    file: UverbsFile,
    driver: AnyDriver,
    capabilities: Capabilities,
    is_removed: AtomicBool,
}

impl DeviceContext {
    /// Makes `file` a context of `device`.
    pub(crate) fn open(
        file: UverbsFile,
        device: &DeviceInfo,
    ) -> Result<(Self, Opened), CreateError> {
        let (driver, opened) = AnyDriver::open(device, &file)?;
        Ok((Self::new(file, driver), opened))
    }

    /// Takes `file`, which `driver` has made a context.
    pub(crate) fn new(file: UverbsFile, driver: AnyDriver) -> Self {
        let capabilities = driver.capabilities();
        Self { file, driver, capabilities, is_removed: AtomicBool::new(false) }
    }

    #[inline]
    pub(crate) fn file(&self) -> &UverbsFile {
        &self.file
    }

    pub(crate) fn driver(&self) -> &AnyDriver {
        &self.driver
    }

    pub(crate) fn capabilities(&self) -> &Capabilities {
        &self.capabilities
    }

    /// The way of commands to the kernel.
    pub(crate) fn commands(&self) -> CommandContext<'_> {
        CommandContext::new(&self.file, &self.is_removed)
    }

    /// Returns `true` if the device is known to be removed.
    #[inline]
    pub(crate) fn is_removed(&self) -> bool {
        self.is_removed.load(Ordering::Relaxed)
    }

    /// Returns `true` if a command would surely be refused neither because of a fork nor because the device was removed. If
    /// this is `false`, [`CommandContext::check`] tells.
    #[inline]
    pub(crate) fn is_usable_fast(&self) -> bool {
        self.file.surely_belongs_here() && !self.is_removed()
    }

    /// Records that the device was removed. One that comes back is another device.
    pub(crate) fn set_removed(&self) {
        self.is_removed.store(true, Ordering::Relaxed);
    }
}
