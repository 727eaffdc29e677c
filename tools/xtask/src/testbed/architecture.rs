//! The processor architectures of guests.

use std::path::PathBuf;
use std::process::Command;

use tool_error::Result;

use crate::host;
use crate::testbed::rust::Rust;

/// The architecture of a guest's processor.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Architecture {
    /// The architecture of this machine.
    X86_64,
    Aarch64,
}

impl Architecture {
    pub(crate) const ALL: [Self; 2] = [Self::X86_64, Self::Aarch64];

    pub(crate) const fn name(self) -> &'static str {
        match self {
            Self::X86_64 => "x86_64",
            Self::Aarch64 => "aarch64",
        }
    }

    pub(crate) fn from_name(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|architecture| architecture.name() == name)
    }

    /// Returns the name in the packages of Debian.
    pub(crate) const fn debian(self) -> &'static str {
        match self {
            Self::X86_64 => "amd64",
            Self::Aarch64 => "arm64",
        }
    }

    /// Returns the packages that a guest of this architecture needs in addition to those of every guest.
    pub(crate) const fn packages(self) -> &'static [&'static str] {
        match self {
            Self::X86_64 => &[],
            Self::Aarch64 => &["gcc-aarch64-linux-gnu", "libc6-dev-arm64-cross", "qemu-system-arm"],
        }
    }

    /// Returns the name of the emulator's program.
    pub(crate) const fn emulator(self) -> &'static str {
        match self {
            Self::X86_64 => "qemu-system-x86_64",
            Self::Aarch64 => "qemu-system-aarch64",
        }
    }

    /// Returns the emulator's options for machine and processor.
    pub(crate) const fn machine(self) -> &'static [&'static str] {
        match self {
            Self::X86_64 => &["-cpu", "max"],
            Self::Aarch64 => &["-machine", "virt,gic-version=3", "-cpu", "neoverse-n1"],
        }
    }

    /// Returns the name of the first serial port.
    pub(crate) const fn console(self) -> &'static str {
        match self {
            Self::X86_64 => "ttyS0",
            Self::Aarch64 => "ttyAMA0",
        }
    }

    /// Returns the options of make and the prefix of the programs that build a kernel's module.
    pub(crate) const fn kernel_build(self) -> (&'static [&'static str], &'static str) {
        match self {
            Self::X86_64 => (&[], ""),
            Self::Aarch64 => (&["ARCH=arm64", "CROSS_COMPILE=aarch64-linux-gnu-"], CROSS),
        }
    }

    /// Builds the programs of a package as static programs. Returns their directory.
    pub(crate) fn build_static(self, package: &str, profile: &str) -> Result<PathBuf> {
        match self {
            Self::X86_64 => host::build_static(package, profile),
            Self::Aarch64 => {
                let mut cargo = aarch64_cargo("build", "std,panic_abort")?;
                cargo.args(["--quiet", "--bins"]);
                cargo.args(["--package", package, "--profile", profile]);
                host::run(&mut cargo, &format!("build {package} for aarch64"))?;
                Ok(aarch64_directory().join(AARCH64).join(profile))
            }
        }
    }
}

/// Prefix of the programs of the cross compiler.
const CROSS: &str = "aarch64-linux-gnu-";

const AARCH64: &str = "aarch64-unknown-linux-gnu";

/// Returns a command of Debian's cargo that builds Rust's `libraries` for aarch64 from source, because Debian's packages for
/// this machine have none. `RUSTC_BOOTSTRAP` permits the option for that, which is not stable.
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
