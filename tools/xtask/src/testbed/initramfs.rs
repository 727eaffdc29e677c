//! The guest's initramfs: its init, its plan, and the kernel modules that the plan names.

use std::ffi::OsString;
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::OnceLock;

use guest::plan::Plan;
use tool_error::{Context, Result};

use crate::testbed::architecture::Architecture;
use crate::testbed::cpio::Archive;
use crate::testbed::modules;
use crate::testbed::static_programs;

/// Builds the guest's init, once for all guests of this process.
pub(crate) fn build_init(architecture: Architecture) -> Result<PathBuf> {
    static INITS: [OnceLock<Result<PathBuf>>; 2] = [OnceLock::new(), OnceLock::new()];
    let init = match architecture {
        Architecture::X86_64 => &INITS[0],
        Architecture::Aarch64 => &INITS[1],
    };
    let build = || Ok(static_programs::build_static(architecture, "guest", "guest")?.join("guest"));
    init.get_or_init(build).clone()
}

/// Packs an initramfs with a plan that loads `module_files` in this order.
///
/// If `program` is given, it is added next to the init.
pub(crate) fn pack(
    init: &Path,
    program: Option<&Path>,
    mut plan: Plan,
    module_files: &[PathBuf],
) -> Result<Vec<u8>> {
    let mut archive = Archive::default();
    for directory in ["dev", "modules"] {
        archive.directory(directory);
    }
    // The kernel opens this device for the standard streams of init.
    archive.device("dev/console", (5, 1));
    for (name, program) in [("/init", Some(init)), (guest::plan::PROGRAM, program)] {
        let Some(program) = program else { continue };
        let bytes = fs::read(program).with_context(|| format!("read {}", program.display()))?;
        archive.file(name.trim_start_matches('/'), &bytes);
    }
    for (index, file) in module_files.iter().enumerate() {
        let name = format!("{index}.ko");
        archive.file(&format!("modules/{name}"), &modules::image(file)?);
        plan.modules.push(OsString::from(name));
    }
    archive.file(guest::plan::PATH.trim_start_matches('/'), &plan.to_bytes());
    Ok(archive.finish())
}
