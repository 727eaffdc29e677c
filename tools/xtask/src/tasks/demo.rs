//! `cargo xtask demo`: a server and a client on a real kernel.
//!
//! The whole userland is one program of this project.

use std::fs;
use std::io::{self, Write};
use std::path::Path;
use std::time::{Duration, Instant};

use guest::plan::{Device, Plan, Work};
use guest::report::Frame;
use tool_error::{Context, Result};

use crate::host::packages;
use crate::host::{self, progress};
use crate::tasks::vm::Relay;
use crate::testbed::architecture::Architecture;
use crate::testbed::initramfs;
use crate::testbed::kernel::Kernel;
use crate::testbed::machine::{FrameListener, Machine};
use crate::testbed::vm::{Guest, PACKAGES, UVERBS_FIRST, module_files};

const PINGS: u32 = 5;

/// Listens to the guest of the demonstration.
#[derive(Debug, Default)]
struct Listener {
    relay: Relay,
    /// Release of the guest's kernel.
    kernel: String,
}

impl FrameListener for Listener {
    fn handle_frame(&mut self, frame: Frame) -> io::Result<()> {
        match frame {
            Frame::Ready { kernel } => {
                self.kernel = kernel;
                Ok(())
            }
            frame => self.relay.handle_frame(frame),
        }
    }
}

/// Runs the demonstration with the guest's own program.
///
/// If `program` is given, it is used instead, as the only file of the guest.
///
/// # Errors
///
/// Returns an error if a ping was not answered or the kernel complained.
pub(crate) fn run(kernel: Kernel, device: Device, program: Option<&Path>) -> Result<()> {
    let architecture = kernel.architecture();
    let mut wanted = [&PACKAGES, architecture.packages()].concat();
    if device != Device::Rxe {
        wanted.extend(Guest::packages());
    }
    packages::require(&wanted)?;
    let image = kernel.image()?;
    let files = module_files(kernel, &[device], &UVERBS_FIRST)?;
    let init = initramfs::build_init(architecture)?;
    let shown = program.unwrap_or(&init);
    let size =
        fs::metadata(shown).with_context(|| format!("read the size of {}", shown.display()))?.len();
    let work = program.map_or(Work::Demo(PINGS), |_| Work::DemoOnly(PINGS));
    let plan = Plan { modules: Vec::new(), devices: vec![device], work };
    let initramfs = initramfs::pack(&init, program, plan, &files)?;
    progress(&format!(
        "booting Linux {} with one static program of {} KiB, {} kernel modules and no other file",
        image.release,
        size / 1024,
        files.len(),
    ));
    let started = Instant::now();
    let machine = Machine {
        architecture,
        vmlinuz: image.vmlinuz,
        initramfs,
        memory_mb: 512,
        processors: host::processors(),
        counts_instructions: false,
        host_root: false,
        programs: None,
        link_end: None,
        limit: Duration::from_secs(120),
    };
    let mut listener = Listener::default();
    let outcome = machine.run(&mut listener)?;
    let name = device.name();
    let doing = format!("answer {PINGS} pings over {name} on Linux {}", listener.kernel);
    listener.relay.check(&outcome, &doing)?;
    let seconds = started.elapsed().as_secs_f64();
    if program.is_none() && architecture == Architecture::X86_64 {
        progress("to run another program in a guest: cargo xtask vm -- PROGRAM");
    }
    writeln!(
        io::stdout(),
        "demo passed: {PINGS} pings over {name} answered on Linux {}, {seconds:.1} s from boot to power-off",
        listener.kernel
    )
    .context("print the verdict")
}
