//! The processor architectures of guests.

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
}

/// Prefix of the programs of the cross compiler.
pub(crate) const CROSS: &str = "aarch64-linux-gnu-";
