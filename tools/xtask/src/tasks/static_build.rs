//! `cargo xtask static`: builds `rdmatools` as a static program.
//!
//! It checks that the program needs no other file of its system.

use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::process::Command;

use guest::plan::Device;
use tool_error::{Error, Result};

use crate::host::packages;
use crate::host::{self, progress};
use crate::tally::batch::TOOLS;
use crate::tasks::demo;
use crate::tasks::vm;
use crate::testbed::kernel::Kernel;
use crate::testbed::rust::{MUSL, Rust};
use crate::testbed::vm::Guest;

/// Cargo profile of the smallest program.
const PROFILE: &str = "static";

/// Package and name of the program that measures.
const DRIVER: [&str; 2] = ["rdmacm-tests", "bench-driver"];

/// Packages of the C programs for the comparison, and of the tool that counts their system calls.
const PACKAGES: [&str; 4] = ["ibverbs-providers", "ibverbs-utils", "rdmacm-utils", "strace"];

/// Builds the program, checks its headers, runs it without other files and measures it.
///
/// # Errors
///
/// Returns an error if a check failed or a goal was missed.
pub(crate) fn run() -> Result<()> {
    let [package, driver] = DRIVER;
    progress("building the benchmark driver");
    let mut cargo = host::cargo();
    cargo.args(["build", "--quiet", "--package", package, "--bin", driver]);
    host::run(&mut cargo, "build the benchmark driver")?;
    run_beside_tests()
}

/// Runs the checks with the measuring program that the tests have built.
pub(crate) fn run_beside_tests() -> Result<()> {
    let mut wanted = [&PACKAGES[..], &Guest::packages()].concat();
    wanted.sort_unstable();
    packages::require(&wanted)?;
    let program = build()?;
    check_elf(&program)?;
    progress(&format!("{} needs no loader and no library", program.display()));
    demo::run(Kernel::V6_12, Device::Rxe, Some(&program))?;
    measure(&program)
}

/// Builds the program for musl or, if neither rustup nor Debian provides it, with glibc.
fn build() -> Result<PathBuf> {
    let arguments = ["build", "--quiet", "--package", TOOLS, "--profile", PROFILE];
    let directory = host::build_directory().join("static");
    let mut cargo = if has_musl() {
        progress(&format!("building {TOOLS} for musl"));
        host::cargo()
    } else {
        match Rust::minimum() {
            Ok(rust) => {
                progress(&format!("building {TOOLS} for musl, with Debian's compiler"));
                let mut cargo = rust.cargo();
                // Debian does not package the standard library for musl.
                cargo.env("RUSTC_BOOTSTRAP", "1").arg("-Zbuild-std=std,panic_abort");
                cargo.arg("-Zbuild-std-features=");
                cargo
            }
            Err(error) => {
                progress(&format!("{error}\nmusl is not available: linking with glibc"));
                return Ok(host::build_static(TOOLS, PROFILE)?.join(TOOLS));
            }
        }
    };
    cargo.args(arguments).args(["--target", MUSL, "--target-dir"]).arg(&directory);
    cargo.env("RUSTFLAGS", "-C relocation-model=static").env_remove("CARGO_ENCODED_RUSTFLAGS");
    host::run(&mut cargo, &format!("build {TOOLS} for musl"))?;
    Ok(directory.join(MUSL).join(PROFILE).join(TOOLS))
}

/// Returns `true` if the installed compiler has the standard library for musl.
fn has_musl() -> bool {
    let mut rustc = Command::new("rustc");
    rustc.args(["--print", "target-libdir", "--target", MUSL]).current_dir(host::workspace());
    let Ok(place) = host::output(&mut rustc, "print the library directory of rustc") else {
        return false;
    };
    Path::new(String::from_utf8_lossy(&place).trim()).exists()
}

/// Returns an error if a program needs a loader or a library.
fn check_elf(program: &Path) -> Result<()> {
    let mut readelf = host::command("readelf");
    readelf.args(["--program-headers", "--dynamic", "--wide"]).arg(program);
    let headers = host::output(&mut readelf, "read the program's headers")?;
    let headers = String::from_utf8_lossy(&headers);
    match loader_lines(&headers).collect::<Vec<_>>()[..] {
        [] if headers.contains("LOAD") => Ok(()),
        [] => Err(Error::new(format!("cannot check {}: not an ELF program", program.display()))),
        ref lines => Err(Error::new(format!(
            "cannot accept {}: it is not static: {}",
            program.display(),
            lines.join("; ")
        ))),
    }
}

/// Returns the lines of `readelf` that name a loader or a library.
fn loader_lines(headers: &str) -> impl Iterator<Item = &str> {
    let names = |line: &&str| line.starts_with("INTERP") || line.contains("(NEEDED)");
    headers.lines().map(str::trim).filter(names)
}

/// Measures the program and the C programs in a guest.
fn measure(program: &Path) -> Result<()> {
    let [_, driver] = DRIVER;
    let driver = host::build_directory().join("debug").join(driver);
    let guest = Guest { devices: vec![Device::Rxe], ..Guest::new(Kernel::V6_12) };
    let directory = program.parent().expect("the path should have a parent");
    let mut command = vec![driver.into_os_string()];
    command.extend([Device::Rxe.name(), Device::Rxe.address(), "alone"].map(OsString::from));
    command.push(directory.into());
    vm::succeed(&guest, &command, "measure the program")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn loaders_and_libraries_are_found() {
        let headers = "  INTERP         0x000318 0x318 0x318 0x00001c 0x00001c R   0x1\n\
                    \x20     [Requesting program interpreter: /lib/ld-musl-x86_64.so.1]\n\
                    \x20 LOAD           0x000000 0x0 0x0 0x52a8c 0x52a8c R   0x1000\n\
                    \x20  03     .interp .dynsym\n\
                    \x200x0000000000000001 (NEEDED)             Shared library: [libc.so.6]\n";
        let lines: Vec<_> = loader_lines(headers).collect();
        assert_eq!(lines.len(), 2, "{lines:?}");
        assert!(lines[0].starts_with("INTERP") && lines[1].contains("libc.so.6"), "{lines:?}");
        assert_eq!(loader_lines("  LOAD           0x000000 0x400000\n").next(), None);
    }

    #[test]
    fn dynamic_program_is_rejected() {
        let here = std::env::current_exe().expect("the test program should have a path");
        let error = check_elf(&here).expect_err("the test program should be dynamic").to_string();
        assert!(error.contains("is not static"), "{error}");
        assert!(check_elf(Path::new("/dev/null")).is_err());
    }
}
