//! Drivers that the test bed builds: siw, which Debian omits, and the tests' own devices.

use std::fs;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::path::{Path, PathBuf};
use std::thread::available_parallelism;

use guest::plan::Device;
use tool_error::{Context, Error, Result};

use crate::host;
use crate::host::progress;
use crate::testbed::cache;
use crate::testbed::kernel::{Image, Kernel};

/// Packages that are installed for the build.
pub(crate) const PACKAGES: [&str; 5] = ["gcc-12", "libc6-dev", "libelf1", "libssl3", "make"];

/// A driver of the tests whose source belongs to this repository.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum TestModule {
    /// The device `kt0`, whose data path is commands.
    Commands,
    /// An emulated card with the user ABI of mlx5.
    Mlx5,
}

impl TestModule {
    #[cfg(test)]
    const ALL: [Self; 2] = [Self::Commands, Self::Mlx5];

    /// Returns the directory of the source.
    const fn source(self) -> &'static str {
        match self {
            Self::Commands => "tests/kmod",
            Self::Mlx5 => "tests/kmod/mlx5",
        }
    }

    /// Returns the name of the module.
    const fn name(self) -> &'static str {
        match self {
            Self::Commands => "rdmacm_test",
            Self::Mlx5 => "rdmacm_mlx5",
        }
    }

    /// Returns the files of the source.
    fn files(self) -> Result<Vec<PathBuf>> {
        let mut files = host::files(&host::workspace().join(self.source()))?;
        files.retain(|path| path.is_file());
        Ok(files)
    }
}

/// Returns the siw driver, built for `kernel`.
pub(crate) fn siw(kernel: Kernel) -> Result<PathBuf> {
    if !kernel.devices().contains(&Device::Siw) {
        return Err(Error::new(format!(
            "cannot build siw: there is no source for Linux {}",
            kernel.name()
        )));
    }
    let build = |root: &Path| {
        let source = format!("linux-source-{}", kernel.name());
        let work = root.join("work");
        let version = kernel.image()?.package_version;
        kernel.archive()?.unpack(&[&format!("{source}={version}")], &work)?;
        let mut tar = host::command("tar");
        tar.arg("-xJf").arg(work.join(format!("usr/src/{source}.tar.xz")));
        tar.arg("-C").arg(&work).args(["--strip-components=5", "--wildcards"]);
        tar.arg("*/drivers/infiniband/sw/siw/*");
        host::run(&mut tar, "extract siw from the kernel's source")?;
        make(kernel, &work, "siw", &["CONFIG_RDMA_SIW=m"])
    };
    Ok(cache::entry(&format!("{}/siw", kernel.name()), build)?.join("siw.ko"))
}

/// Returns a module of the tests, built for `kernel` from its current source.
pub(crate) fn test_module(kernel: Kernel, module: TestModule) -> Result<PathBuf> {
    let name = module.name();
    let mut files = Vec::new();
    let mut hasher = DefaultHasher::new();
    for path in module.files()? {
        let bytes = fs::read(&path).with_context(|| format!("read {}", path.display()))?;
        let name = path.file_name().expect("a listed file should have a name").to_owned();
        (&name, &bytes).hash(&mut hasher);
        files.push((name, bytes));
    }
    let build = |root: &Path| {
        let work = root.join("work");
        fs::create_dir(&work).with_context(|| format!("create {}", work.display()))?;
        for (name, bytes) in &files {
            let path = work.join(name);
            fs::write(&path, bytes).with_context(|| format!("write {}", path.display()))?;
        }
        make(kernel, &work, name, &["KCFLAGS=-Werror"])
    };
    let entry = format!("{}/{name}-{:016x}", kernel.name(), hasher.finish());
    Ok(cache::entry(&entry, build)?.join(format!("{name}.ko")))
}

/// Builds the module `name` in the directory `work`, moves the module out of it and removes it.
fn make(kernel: Kernel, work: &Path, name: &str, options: &[&str]) -> Result<()> {
    let Image { release, .. } = kernel.image()?;
    let headers = kernel.headers_root()?;
    progress(&format!("building {name} for Linux {release}"));
    let jobs = available_parallelism().map_or(1, usize::from);
    let mut make = host::command("make");
    make.env("PATH", kernel.build_path()?);
    make.arg("-C").arg(headers.join(format!("usr/src/linux-headers-{release}")));
    let (build_options, prefix) = kernel.architecture().kernel_build();
    make.arg(format!("M={}", work.display())).args(options).args(build_options);
    // Type information for tracers would require another program, pahole.
    make.args(["CONFIG_DEBUG_INFO_BTF_MODULES=", "modules"]).arg(format!("-j{jobs}"));
    host::run(&mut make, &format!("build {name} for Linux {release}"))?;
    let file = format!("{name}.ko");
    let mut strip = host::command(&format!("{prefix}strip"));
    strip.arg("--strip-debug").arg(work.join(&file));
    host::run(&mut strip, &format!("strip {file}"))?;
    let root = work.parent().expect("the directory should be below the cache's root");
    fs::rename(work.join(&file), root.join(&file))
        .with_context(|| format!("move {file} out of its build directory"))?;
    fs::remove_dir_all(work).with_context(|| format!("remove {}", work.display()))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Checks the licenses of the source files.
    ///
    /// The kernel loads the modules as GPL, so each source file must name that license.
    #[test]
    fn test_module_sources_name_license() {
        for module in TestModule::ALL {
            let files = module.files().expect("the source should be readable");
            assert!(files.iter().any(|file| file.ends_with("Kbuild")), "{files:?}");
            for file in files {
                let text = fs::read_to_string(&file).expect("text");
                let first = text.lines().next().unwrap_or_default();
                assert!(first.contains("SPDX-License-Identifier: GPL-2.0"), "{}", file.display());
            }
        }
    }
}
