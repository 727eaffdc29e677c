//! `cargo xtask bench`: what a connection costs, with this library and with the C one, on each device.

use std::ffi::OsString;
use std::num::NonZeroUsize;
use std::process::ExitCode;
use std::time::Duration;

use guest::error::Result;
use guest::plan::Device;

use crate::host::{self, progress};
use crate::kernel::Kernel;
use crate::packages;
use crate::vm::{self, Guest};

/// The package that holds the programs to measure, and the one of them that measures.
const PACKAGE: &str = "rdmacm-tests";
/// The package with a tool that measures by itself.
const TOOLS: &str = "rdmatools";
const DRIVER: &str = "bench-driver";

/// The C programs, and what counts their system calls.
const PACKAGES: [&str; 3] = ["ibverbs-providers", "rdmacm-utils", "strace"];

/// Many connections, one after the other, in a machine that others may load.
const LIMIT: Duration = Duration::from_secs(1200);

/// Measures connections in a guest of each kernel, on each device. Success says that everything was measured,
/// whatever the numbers are.
pub(crate) fn connect(kernels: &[Kernel]) -> Result<ExitCode> {
    let mut wanted = PACKAGES.to_vec();
    wanted.extend(Guest::packages());
    wanted.sort_unstable();
    wanted.dedup();
    packages::require(&wanted)?;
    progress("building the programs");
    let mut cargo = host::cargo();
    cargo.args([
        "build",
        "--quiet",
        "--release",
        "--bins",
        "--package",
        PACKAGE,
        "--package",
        TOOLS,
    ]);
    host::run(&mut cargo, "build the programs")?;
    let release = host::build_directory().join("release");
    let linked_statically = host::build_static(PACKAGE, "release")?;
    let command = [release.join(DRIVER), release, linked_statically].map(OsString::from);
    for kernel in kernels {
        for device in kernel.devices() {
            let address = match device {
                Device::Rxe => "10.0.0.1",
                Device::Siw => "10.0.0.2",
            };
            progress(&format!("== Linux {}, {}", kernel.name(), device.name()));
            // With one processor: where the client, the server and the kernel's threads run beside each other,
            // times differ by half from run to run, and with one by some hundredths.
            let (devices, processors) = (vec![*device], NonZeroUsize::MIN);
            let guest = Guest { devices, processors, limit: LIMIT, ..Guest::new(*kernel) };
            let command = [&command[..], &[device.name(), address].map(OsString::from)].concat();
            let status = vm::run(&guest, &command)?;
            if status != ExitCode::SUCCESS {
                return Ok(status);
            }
        }
    }
    Ok(ExitCode::SUCCESS)
}
