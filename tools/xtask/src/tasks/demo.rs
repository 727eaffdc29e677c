//! `cargo xtask demo`: a server and a client on a real kernel.
//!
//! The whole userland is one program of this project.

use std::fs;
use std::io::{self, Write};
use std::path::Path;
use std::process::ExitCode;
use std::time::{Duration, Instant};

use guest::plan::{Device, Plan, Work};
use guest::report::{Frame, Status};
use tool_error::{Context, Result};

use crate::host::packages;
use crate::host::{self, progress};
use crate::tasks::vm;
use crate::testbed::initramfs;
use crate::testbed::kernel::Kernel;
use crate::testbed::machine::Machine;
use crate::testbed::vm::{PACKAGES, UVERBS_FIRST, module_files};

const PINGS: u32 = 5;

/// Runs the demonstration with the guest's own program.
///
/// If `program` is given, it is used instead, as the only file of the guest.
///
/// Returns success if every ping was answered and the kernel printed no complaint.
pub(crate) fn run(program: Option<&Path>) -> Result<ExitCode> {
    packages::require(&PACKAGES)?;
    let image = Kernel::V6_12.image()?;
    let files = module_files(Kernel::V6_12, &[Device::Rxe], &UVERBS_FIRST)?;
    let init = initramfs::build_init()?;
    let shown = program.unwrap_or(&init);
    let size =
        fs::metadata(shown).with_context(|| format!("read the size of {}", shown.display()))?.len();
    let work = program.map_or(Work::Demo(PINGS), |_| Work::DemoOnly(PINGS));
    let plan = Plan { modules: Vec::new(), devices: vec![Device::Rxe], work };
    let initramfs = initramfs::pack(&init, program, plan, &files)?;
    progress(&format!(
        "booting Linux {} with one static program of {} KiB, {} kernel modules and no other file",
        image.release,
        size / 1024,
        files.len(),
    ));
    let started = Instant::now();
    let machine = Machine {
        vmlinuz: image.vmlinuz,
        initramfs,
        memory_mb: 512,
        processors: host::processors(),
        counts_instructions: false,
        host_root: false,
        link_end: None,
        limit: Duration::from_secs(120),
    };
    let mut kernel = String::new();
    let outcome = machine.run(&mut |frame| match frame {
        Frame::Ready { kernel: release } => {
            kernel = release;
            Ok(())
        }
        frame => vm::pass_on(frame),
    })?;
    let passed = outcome.status == Status::Exited(0) && outcome.complaints.is_empty();
    for complaint in &outcome.complaints {
        progress(&format!("the kernel complained: {complaint}"));
    }
    let (verdict, pings) =
        if passed { ("passed", "answered") } else { ("FAILED", "not all answered") };
    let seconds = started.elapsed().as_secs_f64();
    writeln!(
        io::stdout(),
        "demo {verdict}: {PINGS} pings over RoCE {pings} on Linux {kernel}, {seconds:.1} s from boot to power-off"
    )
    .context("print the verdict")?;
    Ok(if passed { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}
