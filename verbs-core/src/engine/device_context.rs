//! An open device.

use std::sync::atomic::{AtomicBool, Ordering};

use crate::driver::CreateError;
use crate::driver::{Capabilities, CommandContext, DeviceInfo, Driver as _, Opened};
use crate::drivers::any::AnyDriver;
use crate::sys::uverbs::UverbsFile;

/// An open device: its file, its driver, and whether it was removed.
#[derive(Debug)]
pub struct DeviceContext {
    file: UverbsFile,
    driver: AnyDriver,
    capabilities: Capabilities,
    is_removed: AtomicBool,
}

impl DeviceContext {
    /// Makes `file` a context of `device`.
    pub fn open(mut file: UverbsFile, device: &DeviceInfo) -> Result<(Self, Opened), CreateError> {
        let (driver, opened) = AnyDriver::open(device, &mut file)?;
        Ok((Self::new(file, driver), opened))
    }

    /// Takes `file`, which `driver` has made a context.
    pub fn new(file: UverbsFile, driver: AnyDriver) -> Self {
        let capabilities = driver.capabilities();
        Self { file, driver, capabilities, is_removed: AtomicBool::new(false) }
    }

    /// Returns the file of the device.
    #[inline]
    pub fn file(&self) -> &UverbsFile {
        &self.file
    }

    /// Returns the driver of the device.
    pub fn driver(&self) -> &AnyDriver {
        &self.driver
    }

    /// Returns the facts in which the driver differs from others.
    pub fn capabilities(&self) -> &Capabilities {
        &self.capabilities
    }

    /// Returns the context in which commands are issued.
    pub fn commands(&self) -> CommandContext<'_> {
        CommandContext::new(&self.file, &self.is_removed)
    }

    /// Returns `true` if the device is known to be removed.
    #[inline]
    pub fn is_removed(&self) -> bool {
        self.is_removed.load(Ordering::Relaxed)
    }

    /// Returns `true` if neither a fork nor the removal of the device can make a command fail.
    ///
    /// If this is `false`, [`CommandContext::check`] decides.
    #[inline]
    pub fn is_usable_fast(&self) -> bool {
        self.file.is_owner_fast() && !self.is_removed()
    }

    /// Records that the device was removed. A device that returns is another device.
    pub fn set_removed(&self) {
        self.is_removed.store(true, Ordering::Relaxed);
    }
}
