//! Debian's kernels: image, modules, headers, and the siw driver that Debian does not build.

use std::fs;
use std::path::{Path, PathBuf};
use std::thread::available_parallelism;

use guest::error::{Context, Error, Result};

use crate::host::progress;
use crate::modules::Index;
use crate::{cache, host, packages};

/// A kernel that the test bed knows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kernel {
    V6_1,
    V6_12,
}

/// A kernel, unpacked in the cache.
#[derive(Debug)]
pub(crate) struct Image {
    /// What `uname -r` says in it.
    pub(crate) release: String,
    /// The compressed kernel that a machine starts.
    pub(crate) vmlinuz: PathBuf,
    /// `lib/modules/RELEASE`, where `depmod` has run.
    pub(crate) modules: PathBuf,
    /// The version of its package.
    version: String,
}

impl Kernel {
    pub(crate) const ALL: [Self; 2] = [Self::V6_1, Self::V6_12];

    pub(crate) const fn name(self) -> &'static str {
        match self {
            Self::V6_1 => "6.1",
            Self::V6_12 => "6.12",
        }
    }

    pub(crate) fn from_name(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|kernel| kernel.name() == name)
    }

    /// The package that depends on the current image.
    const fn image_package(self) -> &'static str {
        match self {
            Self::V6_1 => "linux-image-amd64",
            Self::V6_12 => "linux-image-6.12-amd64",
        }
    }

    /// The kernel's image and modules.
    pub(crate) fn image(self) -> Result<Image> {
        let root = cache::entry(&format!("{}/image", self.name()), |root| self.fetch_image(root))?;
        let about = root.join("about");
        let text =
            fs::read_to_string(&about).with_context(|| format!("read {}", about.display()))?;
        let (release, version) = text.trim().split_once(' ').ok_or_else(|| {
            Error::new(format!("{} is damaged; remove {}", about.display(), root.display()))
        })?;
        Ok(Image {
            vmlinuz: root.join(format!("boot/vmlinuz-{release}")),
            modules: root.join("lib/modules").join(release),
            release: release.to_owned(),
            version: version.to_owned(),
        })
    }

    fn fetch_image(self, root: &Path) -> Result<()> {
        let meta = self.image_package();
        let lost = || Error::new(format!("{meta} depends on no linux-image package"));
        let meta = packages::record(meta)?;
        let package = meta.dependency("linux-image-").ok_or_else(lost)?;
        let release = package.trim_start_matches("linux-image-");
        if !release.starts_with(&format!("{}.", self.name())) {
            return Err(Error::new(format!(
                "the archive's {} is Linux {release}; the test bed needs {} (it runs on Debian 12)",
                self.image_package(),
                self.name(),
            )));
        }
        packages::unpack(&[&format!("{package}={}", meta.version)], root)?;
        progress(&format!("indexing the modules of Linux {release}"));
        let mut depmod = host::command("depmod");
        host::run(depmod.arg("-b").arg(root).arg(release), "index the kernel's modules")?;
        let about = root.join("about");
        fs::write(&about, format!("{release} {}\n", meta.version))
            .with_context(|| format!("write {}", about.display()))
    }

    /// The headers of the kernel's package, unpacked: their `include/uapi`.
    pub(crate) fn headers(self) -> Result<PathBuf> {
        let release = self.image()?.release;
        let root = self.headers_root()?;
        let common = release.trim_end_matches("-amd64");
        Ok(root.join(format!("usr/src/linux-headers-{common}-common/include/uapi")))
    }

    fn headers_root(self) -> Result<PathBuf> {
        cache::entry(&format!("{}/headers", self.name()), |root| self.fetch_headers(root))
    }

    fn fetch_headers(self, root: &Path) -> Result<()> {
        let Image { release, version, .. } = self.image()?;
        let package = format!("linux-headers-{release}");
        let record = packages::record(&package)?;
        if record.version != version {
            return Err(self.outdated(&version));
        }
        let need = |prefix: &str| {
            let lost = || Error::new(format!("{package} depends on no {prefix} package"));
            record.dependency(prefix).ok_or_else(lost)
        };
        packages::unpack(&[&package, need("linux-headers-")?, need("linux-kbuild-")?], root)?;
        // The one absolute path of the unpacked tree.
        let makefile = root.join(format!("usr/src/{package}/Makefile"));
        let text = fs::read_to_string(&makefile);
        let text = text.with_context(|| format!("read {}", makefile.display()))?;
        let relative =
            text.replace("include /usr/src/", "include $(dir $(lastword $(MAKEFILE_LIST)))../");
        fs::write(&makefile, relative).with_context(|| format!("write {}", makefile.display()))
    }

    /// The siw driver, built for this kernel.
    pub(crate) fn siw(self) -> Result<PathBuf> {
        let root = cache::entry(&format!("{}/siw", self.name()), |root| self.build_siw(root))?;
        Ok(root.join("siw.ko"))
    }

    fn build_siw(self, root: &Path) -> Result<()> {
        let Image { release, version, .. } = self.image()?;
        let headers = self.headers_root()?.join(format!("usr/src/linux-headers-{release}"));
        let source = format!("linux-source-{}", self.name());
        let work = root.join("work");
        packages::unpack(&[&format!("{source}={version}")], &work)?;
        progress(&format!("building siw for Linux {release}"));
        let mut tar = host::command("tar");
        tar.arg("-xJf").arg(work.join(format!("usr/src/{source}.tar.xz")));
        tar.arg("-C").arg(&work).args(["--strip-components=5", "--wildcards"]);
        tar.arg("*/drivers/infiniband/sw/siw/*");
        host::run(&mut tar, "take siw out of the kernel's source")?;
        let jobs = available_parallelism().map_or(1, usize::from);
        let mut make = host::command("make");
        make.arg("-C").arg(&headers).arg(format!("M={}", work.display()));
        // Type information for tracers would need one more program, pahole.
        make.args(["CONFIG_RDMA_SIW=m", "CONFIG_DEBUG_INFO_BTF_MODULES=", "modules"]);
        make.arg(format!("-j{jobs}"));
        host::run(&mut make, &format!("build siw for Linux {release}"))?;
        let mut strip = host::command("strip");
        strip.arg("--strip-debug").arg(work.join("siw.ko"));
        host::run(&mut strip, "strip siw.ko")?;
        let rename = fs::rename(work.join("siw.ko"), root.join("siw.ko"));
        rename.context("take siw.ko out of its build directory")?;
        fs::remove_dir_all(&work).with_context(|| format!("remove {}", work.display()))
    }

    fn outdated(self, version: &str) -> Error {
        let place = cache::root().join(self.name());
        Error::new(format!(
            "the archive no longer has version {version} of the kernel in {0}; remove {0} and run this again",
            place.display()
        ))
    }
}

impl Image {
    /// The module files that make `wanted` work, in the order in which to load them.
    pub(crate) fn module_files(&self, wanted: &[&str]) -> Result<Vec<PathBuf>> {
        Index::read(&self.modules)?.closure(wanted)
    }
}
