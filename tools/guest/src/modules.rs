//! The kernel modules of the initramfs.

use std::ffi::OsString;
use std::fs::File;
use std::path::Path;

use nix::errno::Errno;
use nix::kmod::{ModuleInitFlags, finit_module};

use tool_error::{Context, Error, Result};

/// Loads modules of the initramfs in the given order.
///
/// Dependencies must precede the modules that need them.
pub(crate) fn load(names: &[OsString]) -> Result<()> {
    for name in names {
        let path = Path::new("/modules").join(name);
        let file = File::open(&path).with_context(|| format!("open {}", path.display()))?;
        match finit_module(&file, c"", ModuleInitFlags::empty()) {
            Ok(()) | Err(Errno::EEXIST) => {}
            Err(errno) => {
                return Err(Error::new(format!("cannot load {}: {errno}", path.display())));
            }
        }
    }
    Ok(())
}
