//! Drivers that the test bed builds: siw, which Debian leaves out, and the tests' own device.

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

/// What is installed for building them.
pub(crate) const PACKAGES: [&str; 5] = ["gcc-12", "libc6-dev", "libelf1", "libssl3", "make"];

/// The tests' device: where its source is, and the module's name.
const TEST_SOURCE: &str = "tests/kmod";
const TEST_MODULE: &str = "rdmacm_test";

/// The siw driver, built for `kernel`.
pub(crate) fn siw(kernel: Kernel) -> Result<PathBuf> {
    if !kernel.devices().contains(&Device::Siw) {
        return Err(Error::new(format!("there is no siw for Linux {}", kernel.name())));
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
        host::run(&mut tar, "take siw out of the kernel's source")?;
        make(kernel, &work, "siw", &["CONFIG_RDMA_SIW=m"])
    };
    Ok(cache::entry(&format!("{}/siw", kernel.name()), build)?.join("siw.ko"))
}

/// The module of the tests' device, built for `kernel` from the source as it is now.
pub(crate) fn test_device(kernel: Kernel) -> Result<PathBuf> {
    let mut files = Vec::new();
    let mut hasher = DefaultHasher::new();
    for path in host::files(&host::workspace().join(TEST_SOURCE))? {
        let bytes = fs::read(&path).with_context(|| format!("read {}", path.display()))?;
        let name = path.file_name().expect("a listed file has a name").to_owned();
        (&name, &bytes).hash(&mut hasher);
        files.push((name, bytes));
    }
    let build = |root: &Path| {
        let work = root.join("work");
        fs::create_dir(&work).with_context(|| format!("make {}", work.display()))?;
        for (name, bytes) in &files {
            let path = work.join(name);
            fs::write(&path, bytes).with_context(|| format!("write {}", path.display()))?;
        }
        make(kernel, &work, TEST_MODULE, &["KCFLAGS=-Werror"])
    };
    let entry = format!("{}/{TEST_MODULE}-{:016x}", kernel.name(), hasher.finish());
    Ok(cache::entry(&entry, build)?.join(format!("{TEST_MODULE}.ko")))
}

/// Builds the module `name` in the directory `work`, of which only the module is left, beside it.
fn make(kernel: Kernel, work: &Path, name: &str, options: &[&str]) -> Result<()> {
    let Image { release, .. } = kernel.image()?;
    let headers = kernel.headers_root()?;
    progress(&format!("building {name} for Linux {release}"));
    let jobs = available_parallelism().map_or(1, usize::from);
    let mut make = host::command("make");
    make.env("PATH", kernel.build_path()?);
    make.arg("-C").arg(headers.join(format!("usr/src/linux-headers-{release}")));
    make.arg(format!("M={}", work.display())).args(options);
    // Type information for tracers would need one more program, pahole.
    make.args(["CONFIG_DEBUG_INFO_BTF_MODULES=", "modules"]).arg(format!("-j{jobs}"));
    host::run(&mut make, &format!("build {name} for Linux {release}"))?;
    let file = format!("{name}.ko");
    let mut strip = host::command("strip");
    strip.arg("--strip-debug").arg(work.join(&file));
    host::run(&mut strip, &format!("strip {file}"))?;
    let root = work.parent().expect("it is below the cache's root");
    fs::rename(work.join(&file), root.join(&file))
        .with_context(|| format!("take {file} out of its build directory"))?;
    fs::remove_dir_all(work).with_context(|| format!("remove {}", work.display()))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What the kernel loads as GPL says so in each of its files.
    #[test]
    fn the_source_of_the_tests_device_names_its_licence() {
        let files = host::files(&host::workspace().join(TEST_SOURCE)).expect("its source");
        assert!(files.iter().any(|file| file.ends_with("Kbuild")), "{files:?}");
        for file in files {
            let text = fs::read_to_string(&file).expect("text");
            let first = text.lines().next().unwrap_or_default();
            assert!(first.contains("SPDX-License-Identifier: GPL-2.0"), "{}", file.display());
        }
    }
}
