//! The guest's initramfs: its init, its plan, and the kernel modules that the plan names.

use std::ffi::OsString;
use std::fs;
use std::path::{Path, PathBuf};

use guest::error::{Context, Result};
use guest::plan::Plan;

use crate::cpio::Archive;
use crate::host::{self, progress};
use crate::modules;

const TARGET: &str = "x86_64-unknown-linux-gnu";

/// Builds the guest's init, which needs nothing of the system that it runs on.
pub(crate) fn build_init() -> Result<PathBuf> {
    // Its own directory: other flags than the host's programs have would throw those away.
    let directory = host::build_directory().join("guest");
    let program = directory.join(TARGET).join("guest/guest");
    if !program.exists() {
        progress("building the guest's init");
    }
    let mut cargo = host::cargo();
    cargo.args(["build", "--quiet", "--package", "guest", "--profile", "guest"]);
    cargo.args(["--target", TARGET, "--target-dir"]).arg(&directory);
    cargo.env("RUSTFLAGS", "-C target-feature=+crt-static").env_remove("CARGO_ENCODED_RUSTFLAGS");
    host::run(&mut cargo, "build the guest's init")?;
    Ok(program)
}

/// Packs an initramfs whose plan loads `module_files` in their order.
pub(crate) fn pack(init: &Path, mut plan: Plan, module_files: &[PathBuf]) -> Result<Vec<u8>> {
    let mut archive = Archive::default();
    for directory in ["dev", "modules"] {
        archive.directory(directory);
    }
    // The kernel opens it for the standard streams of init.
    archive.device("dev/console", (5, 1));
    let program = fs::read(init).with_context(|| format!("read {}", init.display()))?;
    archive.file("init", &program);
    for (index, file) in module_files.iter().enumerate() {
        let name = format!("{index}.ko");
        archive.file(&format!("modules/{name}"), &modules::image(file)?);
        plan.modules.push(OsString::from(name));
    }
    archive.file(guest::plan::PATH.trim_start_matches('/'), &plan.to_bytes());
    Ok(archive.finish())
}
