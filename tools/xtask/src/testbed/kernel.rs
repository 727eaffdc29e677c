//! Debian's kernels: images, modules, and the files for building modules.

use std::ffi::OsString;
use std::fs;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};

use guest::plan::Device;
use tool_error::{Context, Error, Result};

use crate::host;
use crate::host::progress;
use crate::testbed::architecture::Architecture;
use crate::testbed::archive::Archive;
use crate::testbed::cache;
use crate::testbed::modules::Index;
use crate::testbed::unstable_binaries;

/// Packages with the programs that tests run in a guest: C peers, C compiler, tools.
const PROGRAMS: [&str; 13] = [
    "coreutils",
    "dash",
    "gcc",
    "ibverbs-providers",
    "ibverbs-utils",
    "iproute2",
    "kmod",
    "libc6-dev",
    "librdmacm-dev",
    "perftest",
    "rdmacm-utils",
    "strace",
    "util-linux",
];

/// A kernel that the test bed supports.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kernel {
    V6_1,
    V6_12,
    /// The newest kernel of Debian, from its unstable suite.
    Latest,
    /// Debian's kernel for aarch64.
    Aarch64,
}

/// A kernel, unpacked in the cache.
#[derive(Debug)]
pub(crate) struct Image {
    /// The kernel's release, as printed by `uname -r`.
    pub(crate) release: String,
    /// The first two numbers of its version, such as `6.12`.
    pub(crate) version: String,
    /// Path of the compressed kernel that a machine boots.
    pub(crate) vmlinuz: PathBuf,
    /// Path of `lib/modules/RELEASE`, indexed by `depmod`.
    pub(crate) modules: PathBuf,
    /// The version of its package.
    pub(crate) package_version: String,
}

impl Kernel {
    /// Every kernel of the tests, except that of another architecture.
    pub(crate) const ALL: [Self; 3] = [Self::V6_1, Self::V6_12, Self::Latest];
    /// The kernels of Debian's releases.
    pub(crate) const RELEASED: [Self; 2] = [Self::V6_1, Self::V6_12];

    pub(crate) const fn name(self) -> &'static str {
        match self {
            Self::V6_1 => "6.1",
            Self::V6_12 => "6.12",
            Self::Latest => "latest",
            Self::Aarch64 => "6.1-arm64",
        }
    }

    pub(crate) fn from_name(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|kernel| kernel.name() == name)
    }

    /// Returns the devices for which the kernel itself has a driver.
    ///
    /// siw is built from the kernel's source, a large download that is omitted for the latest kernel and aarch64.
    pub(crate) const fn devices(self) -> &'static [Device] {
        match self {
            Self::V6_1 | Self::V6_12 => &Device::SOFTWARE,
            Self::Latest | Self::Aarch64 => &[Device::Rxe],
        }
    }

    pub(crate) const fn architecture(self) -> Architecture {
        match self {
            Self::V6_1 | Self::V6_12 | Self::Latest => Architecture::X86_64,
            Self::Aarch64 => Architecture::Aarch64,
        }
    }

    /// Returns the module with the checksum that a device's driver looks up by name on demand.
    ///
    /// The drivers of the latest kernel are linked with their checksums.
    pub(crate) const fn checksum(self, device: Device) -> Option<&'static str> {
        match (self, device) {
            (Self::Latest, _) => None,
            (_, Device::Rxe) => Some("crc32_generic"),
            (_, Device::Siw) => Some("crc32c_generic"),
            (_, Device::Mlx5) => None,
        }
    }

    pub(crate) fn archive(self) -> Result<Archive> {
        match self {
            Self::V6_1 | Self::V6_12 => Ok(Archive::Host),
            Self::Latest => Archive::suites(&["sid"], self.name(), self.architecture()),
            Self::Aarch64 => {
                let suites = ["bookworm", "bookworm-security"];
                Archive::suites(&suites, self.name(), self.architecture())
            }
        }
    }

    /// Returns the package that depends on the current image.
    const fn image_package(self) -> &'static str {
        match self {
            Self::V6_1 | Self::Latest => "linux-image-amd64",
            Self::V6_12 => "linux-image-6.12-amd64",
            Self::Aarch64 => "linux-image-arm64",
        }
    }

    /// Checks that the archive's kernel matches the name.
    fn check(self, release: &str) -> Result<()> {
        let (right, wanted) = match self {
            Self::V6_1 | Self::V6_12 => {
                (release.starts_with(&format!("{}.", self.name())), self.name())
            }
            Self::Aarch64 => (release.starts_with("6.1."), "6.1"),
            // This release introduced the newest commands of the connection manager.
            Self::Latest => (numbers(release)? >= (6, 18), "6.18 or later"),
        };
        if right {
            return Ok(());
        }
        Err(Error::new(format!(
            "cannot use the archive's {}: it is Linux {release}, the test bed needs {wanted}; run it on Debian 12",
            self.image_package(),
        )))
    }

    /// Returns the kernel's image and modules.
    pub(crate) fn image(self) -> Result<Image> {
        let root = cache::entry(&format!("{}/image", self.name()), |root| self.fetch_image(root))?;
        let about = root.join("about");
        let text =
            fs::read_to_string(&about).with_context(|| format!("read {}", about.display()))?;
        let (release, package_version) = text.trim().split_once(' ').ok_or_else(|| {
            Error::new(format!(
                "cannot read {}: it is damaged; remove {}",
                about.display(),
                root.display()
            ))
        })?;
        let modules = root.join("lib/modules").join(release);
        let places = [root.join(format!("boot/vmlinuz-{release}")), modules.join("vmlinuz")];
        let lost = || Error::new(format!("cannot find a kernel in {}", root.display()));
        let (major, minor) = numbers(release)?;
        Ok(Image {
            vmlinuz: places.into_iter().find(|place| place.exists()).ok_or_else(lost)?,
            modules,
            version: format!("{major}.{minor}"),
            release: release.to_owned(),
            package_version: package_version.to_owned(),
        })
    }

    fn fetch_image(self, root: &Path) -> Result<()> {
        let meta = self.image_package();
        let archive = self.archive()?;
        archive.refresh()?;
        let lost = || {
            Error::new(format!(
                "cannot find the image of {meta}: it depends on no linux-image package"
            ))
        };
        let meta = archive.record(meta)?;
        let package = meta.dependency("linux-image-").ok_or_else(lost)?;
        let release = package.trim_start_matches("linux-image-");
        self.check(release)?;
        let image = archive.record(package)?;
        // Newer kernels are split into these packages.
        let parts = ["linux-base-", "linux-binary-", "linux-modules-"];
        let parts = parts.iter().filter_map(|part| image.dependency(part));
        let packages: Vec<String> = std::iter::once(package)
            .chain(parts)
            .map(|package| format!("{package}={}", meta.version))
            .collect();
        archive.unpack(&packages.iter().map(String::as_str).collect::<Vec<_>>(), root)?;
        if !root.join("lib").exists() {
            symlink("usr/lib", root.join("lib")).context("create lib in the kernel's root")?;
        }
        progress(&format!("indexing the modules of Linux {release}"));
        let mut depmod = host::command("depmod");
        host::run(depmod.arg("-b").arg(root).arg(release), "index the kernel's modules")?;
        let about = root.join("about");
        fs::write(&about, format!("{release} {}\n", meta.version))
            .with_context(|| format!("write {}", about.display()))
    }

    /// Returns the `include/uapi` directory of the kernel's unpacked headers.
    pub(crate) fn headers(self) -> Result<PathBuf> {
        let release = self.image()?.release;
        let root = self.headers_root()?;
        let common = release.trim_end_matches(&format!("-{}", self.architecture().debian()));
        Ok(root.join(format!("usr/src/linux-headers-{common}-common/include/uapi")))
    }

    /// Returns the directory of the unpacked headers, which also contains the programs that build a module.
    pub(crate) fn headers_root(self) -> Result<PathBuf> {
        let name = match self {
            Self::V6_1 | Self::V6_12 | Self::Aarch64 => "headers",
            Self::Latest => "headers-and-compiler",
        };
        cache::entry(&format!("{}/{name}", self.name()), |root| self.fetch_headers(root))
    }

    /// Returns the search path of the programs that build a module.
    pub(crate) fn build_path(self) -> Result<OsString> {
        let mut path = OsString::new();
        if self == Self::Latest {
            path.push(self.headers_root()?.join("usr/bin"));
            path.push(":");
        }
        path.push(host::search_path());
        Ok(path)
    }

    fn fetch_headers(self, root: &Path) -> Result<()> {
        let Image { release, package_version, .. } = self.image()?;
        let package = format!("linux-headers-{release}");
        let archive = self.archive()?;
        let record = archive.record(&package)?;
        if record.version != package_version {
            return Err(self.outdated(&package_version));
        }
        let packages = match self {
            Self::V6_1 | Self::V6_12 | Self::Aarch64 => {
                let need = |prefix: &str| {
                    let lost = || {
                        Error::new(format!(
                            "cannot find the {prefix} package of {package}: it depends on none"
                        ))
                    };
                    record.dependency(prefix).map(str::to_owned).ok_or_else(lost)
                };
                let programs =
                    format!("{}:{}", need("linux-kbuild-")?, Architecture::X86_64.debian());
                vec![package.clone(), need("linux-headers-")?, programs]
            }
            // The kernel's compiler and its C library are newer than this machine's.
            Self::Latest => archive.closure(&[&package])?,
        };
        archive.unpack(&packages.iter().map(String::as_str).collect::<Vec<_>>(), root)?;
        if self == Self::Latest {
            unstable_binaries::make_runnable(root)?;
        }
        // This Makefile contains the only absolute paths of the unpacked tree.
        let makefile = root.join(format!("usr/src/{package}/Makefile"));
        let text = fs::read_to_string(&makefile);
        let text = text.with_context(|| format!("read {}", makefile.display()))?;
        let relative = text.replace("/usr/src/", "$(dir $(firstword $(MAKEFILE_LIST)))../");
        fs::write(&makefile, relative).with_context(|| format!("write {}", makefile.display()))
    }

    /// Returns a directory with Debian's programs for the kernel, unless this machine's programs run there.
    pub(crate) fn programs(self) -> Result<Option<PathBuf>> {
        let fetch = |root: &Path| {
            let archive = self.archive()?;
            let packages = archive.closure(&PROGRAMS)?;
            archive.unpack(&packages.iter().map(String::as_str).collect::<Vec<_>>(), root)?;
            merge_directories(root)
        };
        match self.architecture() {
            Architecture::X86_64 => Ok(None),
            Architecture::Aarch64 => {
                cache::entry(&format!("{}/programs-and-compiler", self.name()), fetch).map(Some)
            }
        }
    }

    fn outdated(self, version: &str) -> Error {
        let place = cache::root().join(self.name());
        Error::new(format!(
            "cannot find version {version} of the kernel in {0}: it is no longer in the archive; remove {0} and run this again",
            place.display()
        ))
    }
}

impl Image {
    /// Returns the files of the `wanted` modules and their dependencies, in load order.
    pub(crate) fn module_files(&self, wanted: &[&str]) -> Result<Vec<PathBuf>> {
        Index::read(&self.modules)?.closure(wanted)
    }
}

/// Moves the programs and libraries of a root to `usr`, and links the old directories to the new ones.
///
/// This machine has its programs in `usr` too, so a search finds none of them before those of the root.
fn merge_directories(root: &Path) -> Result<()> {
    for name in ["bin", "sbin", "lib"] {
        let (from, to) = (root.join(name), root.join("usr").join(name));
        fs::create_dir_all(&to).with_context(|| format!("create {}", to.display()))?;
        let mut copy = host::command("cp");
        copy.arg("--archive").arg(from.join(".")).arg(&to);
        host::run(&mut copy, &format!("copy {}", from.display()))?;
        fs::remove_dir_all(&from).with_context(|| format!("remove {}", from.display()))?;
        symlink(Path::new("usr").join(name), &from)
            .with_context(|| format!("replace {}", from.display()))?;
    }
    Ok(())
}

/// Returns the first two numbers of a release: 6 and 12 of `6.12.74-amd64`.
fn numbers(release: &str) -> Result<(u32, u32)> {
    let mut numbers = release.split('.').map_while(|number| number.parse().ok());
    let two = numbers.next().zip(numbers.next());
    two.ok_or_else(|| Error::new(format!("cannot parse {release}: not a release of Linux")))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn release_matches_kernel_name() {
        for (kernel, release, right) in [
            (Kernel::V6_1, "6.1.0-50-amd64", true),
            (Kernel::V6_1, "6.12.74-amd64", false),
            (Kernel::Latest, "6.18.3+deb14-amd64", true),
            (Kernel::Latest, "7.0.1+deb14-amd64", true),
            (Kernel::Latest, "6.17.9+deb14-amd64", false),
            (Kernel::Latest, "amd64", false),
            (Kernel::Aarch64, "6.1.0-50-arm64", true),
            (Kernel::Aarch64, "6.12.9-arm64", false),
        ] {
            assert_eq!(kernel.check(release).is_ok(), right, "{release}");
        }
    }
}
