//! Debian's Rust of the minimum version, with the library for musl: unpacked, not installed.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use tool_error::{Context, Error, Result};

use crate::host::{self, progress};
use crate::testbed::archive::Archive;
use crate::testbed::cache;

/// The version in the manifests.
pub(crate) const MINIMUM: &str = "1.85";

/// Packages of the compiler and cargo.
const PACKAGES: [&str; 3] = ["rustc-web", "libstd-rust-web-dev", "cargo-web"];
/// Packages with the source of the standard library, built for musl, and musl's C library.
const MUSL_PACKAGES: [&str; 2] = ["rust-web-src", "musl-dev"];

pub(crate) const MUSL: &str = "x86_64-unknown-linux-musl";

/// Directory in which rustc looks for the startup objects of musl programs.
const SELF_CONTAINED: &str = "usr/lib/rustlib/x86_64-unknown-linux-musl/lib/self-contained";

/// The functions of an unwinder that the standard library calls if a panic aborts.
///
/// They find no frames: a program without symbols could not name them.
const UNWINDER: &str = "int _Unwind_Backtrace(void) { return 5; }\n\
                        unsigned long _Unwind_GetIP(void) { return 0; }\n";

/// The unpacked compiler.
#[derive(Debug)]
pub(crate) struct Rust {
    root: PathBuf,
}

impl Rust {
    /// Downloads the compiler, unless the cache has it.
    pub(crate) fn minimum() -> Result<Self> {
        cache::entry(&format!("rust-{MINIMUM}"), fetch).map(|root| Self { root })
    }

    /// Returns the target directory of this compiler.
    ///
    /// A shared directory would invalidate the build of another compiler.
    pub(crate) fn target_directory() -> PathBuf {
        host::build_directory().join(format!("rust-{MINIMUM}"))
    }

    /// Checks the unmodified workspace with this version.
    pub(crate) fn check(&self) -> Result<()> {
        progress(&format!("checking the workspace with Rust {MINIMUM}"));
        let mut cargo = self.cargo();
        cargo.args(["check", "--quiet", "--workspace", "--all-features", "--locked"]);
        cargo.arg("--target-dir").arg(Self::target_directory());
        host::run(&mut cargo, &format!("build with Rust {MINIMUM}"))
    }

    /// Returns a command that runs this cargo with this compiler.
    pub(crate) fn cargo(&self) -> Command {
        let programs = self.root.join("usr/bin");
        let mut command = host::command(&programs.join("cargo").to_string_lossy());
        let libraries = ["usr/lib/x86_64-linux-gnu", "lib/x86_64-linux-gnu"];
        let libraries = libraries.map(|place| self.root.join(place).display().to_string());
        command.env("LD_LIBRARY_PATH", libraries.join(":"));
        command.env("RUSTC", programs.join("rustc")).env("RUSTDOC", programs.join("rustdoc"));
        for other in ["RUSTFLAGS", "CARGO_ENCODED_RUSTFLAGS", "RUSTC_WRAPPER", "RUSTUP_TOOLCHAIN"] {
            command.env_remove(other);
        }
        command.current_dir(host::workspace());
        command
    }
}

fn fetch(root: &Path) -> Result<()> {
    let archive = Archive::Host;
    let version = archive.version(PACKAGES[0], &format!("{MINIMUM}."))?;
    let exact = |package: &&str| format!("{package}={version}");
    let named: Vec<String> = PACKAGES.iter().map(exact).collect();
    // The dependencies that this machine lacks are unpacked too.
    let mut packages = archive.closure(&named)?;
    packages.extend(named);
    packages.push(exact(&MUSL_PACKAGES[0]));
    packages.push(MUSL_PACKAGES[1].to_owned());
    packages.sort_unstable();
    packages.dedup();
    archive.unpack(&packages.iter().map(String::as_str).collect::<Vec<_>>(), root)?;
    remove_unused_source(root)?;
    let place = root.join(SELF_CONTAINED);
    fs::create_dir_all(&place).with_context(|| format!("create {}", place.display()))?;
    let musl = root.join("usr/lib/x86_64-linux-musl");
    for name in ["crt1.o", "crti.o", "crtn.o", "libc.a"] {
        copy(&musl.join(name), &place)?;
    }
    for name in ["crtbegin.o", "crtend.o"] {
        let mut gcc = host::command("gcc");
        let file = host::output(
            gcc.arg(format!("-print-file-name={name}")),
            "print the path of a file of gcc",
        )?;
        copy(Path::new(String::from_utf8_lossy(&file).trim()), &place)?;
    }
    let [source, object, library] =
        ["unwind.c", "unwind.o", "libunwind.a"].map(|name| place.join(name));
    fs::write(&source, UNWINDER).with_context(|| format!("write {}", source.display()))?;
    let mut gcc = host::command("gcc");
    host::run(gcc.arg("-c").arg(&source).arg("-o").arg(&object), "compile an unwinder")?;
    let mut ar = host::command("ar");
    host::run(ar.arg("rcs").arg(&library).arg(&object), "archive an unwinder")
}

/// Removes all source except that of the standard library, which frees most of the space.
fn remove_unused_source(root: &Path) -> Result<()> {
    for source in host::files(&root.join("usr/src"))? {
        for part in ["compiler", "src"] {
            let part = source.join(part);
            fs::remove_dir_all(&part).with_context(|| format!("remove {}", part.display()))?;
        }
    }
    Ok(())
}

fn copy(file: &Path, directory: &Path) -> Result<()> {
    let name = file
        .file_name()
        .ok_or_else(|| Error::new("cannot copy a file of gcc: gcc printed no path"))?;
    let copied = fs::copy(file, directory.join(name));
    copied.map(drop).with_context(|| format!("copy {}", file.display()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn manifests_name_minimum_version() {
        let manifest = host::workspace().join("Cargo.toml");
        let text = fs::read_to_string(manifest).expect("the workspace should have a manifest");
        assert!(text.contains(&format!("\nrust-version = \"{MINIMUM}\"\n")), "{text}");
    }
}
