//! Static programs for guests of each architecture.

use std::path::PathBuf;
use std::process::Command;

use tool_error::Result;

use crate::host;
use crate::testbed::architecture::{Architecture, CROSS};
use crate::testbed::rust::Rust;

const AARCH64: &str = "aarch64-unknown-linux-gnu";

/// Builds the programs of a package as static programs for `architecture`. Returns their directory.
pub(crate) fn build_static(
    architecture: Architecture,
    package: &str,
    profile: &str,
) -> Result<PathBuf> {
    match architecture {
        Architecture::X86_64 => host::build_static(package, profile),
        Architecture::Aarch64 => {
            let mut cargo = aarch64_cargo("build", "std,panic_abort")?;
            cargo.args(["--quiet", "--bins"]);
            cargo.args(["--package", package, "--profile", profile]);
            host::run(&mut cargo, &format!("build {package} for aarch64"))?;
            Ok(aarch64_directory().join(AARCH64).join(profile))
        }
    }
}

/// Returns a command of Debian's cargo that builds Rust's `libraries` for aarch64 from source.
///
/// Debian's packages for this machine have none. `RUSTC_BOOTSTRAP` permits the unstable option that this needs.
pub(crate) fn aarch64_cargo(command: &str, libraries: &str) -> Result<Command> {
    let mut cargo = Rust::minimum()?.cargo();
    cargo.env("RUSTC_BOOTSTRAP", "1").env("RUSTFLAGS", "-C target-feature=+crt-static");
    cargo.env("CARGO_TARGET_AARCH64_UNKNOWN_LINUX_GNU_LINKER", format!("{CROSS}gcc"));
    cargo.arg(command).arg(format!("-Zbuild-std={libraries}")).arg("-Zbuild-std-features=");
    cargo.args(["--target", AARCH64, "--target-dir"]).arg(aarch64_directory());
    Ok(cargo)
}

fn aarch64_directory() -> PathBuf {
    host::build_directory().join("aarch64")
}
