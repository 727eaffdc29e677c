//! Who gets a processor.
//!
//! Connections: an event wakes the thread that waits for it. Whether that one cuts short the kernel's thread,
//! which has more events to bring, or finds them all when it comes to its turn, depends on how little it has
//! run before, and a step takes a fifth more or less by that. In the batch class nobody who wakes up cuts
//! others short.
//!
//! Messages: a software device is threads of the kernel, or becomes that under load, and both programs poll
//! without rest, so that more threads want a processor than there are. Left alone, the scheduler lets a
//! program poll to the end of its slice, some milliseconds, while the thread that would bring the message
//! waits: what is measured then is who waits how often. So everything here runs in the idle class, and no
//! slice is protected: whatever is not in that class gets a processor at once. And for latencies each of the
//! two programs has a processor of its own: where both are on one, which the scheduler does not mend in this
//! class, each message waits for the end of a slice. Of a rate that costs both programs the same part. What the kernel
//! hands to whichever processor is free, as rxe does with its work, has the last one: on one of the programs' a message
//! takes a tenth longer, and which it gets is settled anew for each run.

use std::error::Error;
use std::fs;
use std::num::NonZeroUsize;
use std::path::Path;
use std::{process, thread};

use nix::mount::{MsFlags, mount};

use crate::run::{self, Program, progress};

/// Which processors have the work that is bound to none.
const WORK: &str = "/sys/devices/virtual/workqueue/cpumask";
const DEBUGFS: &str = "/sys/kernel/debug";
const FEATURES: &str = "/sys/kernel/debug/sched/features";
/// That a slice is not cut short, by whomever. Kernels before 6.6 do not have it.
const PROTECTION: &str = "RUN_TO_PARITY";

/// Lets whoever wakes up have the processor of one that runs.
pub(crate) fn cut_slices() -> Result<(), Box<dyn Error>> {
    if !Path::new(FEATURES).exists() {
        mount(Some("none"), DEBUGFS, Some("debugfs"), MsFlags::empty(), None::<&str>)?;
    }
    if fs::read_to_string(FEATURES)?.contains(PROTECTION) {
        fs::write(FEATURES, format!("NO_{PROTECTION}"))?;
    }
    Ok(())
}

/// Has this process, and those that it starts from now on, cut nobody short when they wake up.
pub(crate) fn batch() -> Result<(), Box<dyn Error>> {
    set_class("--batch")?;
    progress("the programs run in the batch class: who wakes up waits for its turn");
    Ok(())
}

/// Has this process, and those that it starts from now on, run behind all others.
pub(crate) fn prefer_others() -> Result<(), Box<dyn Error>> {
    set_class("--idle")?;
    progress(
        "the programs run in the idle class, so that the kernel's threads never wait for them",
    );
    Ok(())
}

/// Has work that the kernel does on any processor done on the last one, where there is one for neither program.
pub(crate) fn gather_work() -> Result<(), Box<dyn Error>> {
    let processors = thread::available_parallelism().unwrap_or(NonZeroUsize::MIN).get();
    if processors > 2 {
        fs::write(WORK, format!("{:x}", 1_u64 << (processors - 1)))?;
    }
    Ok(())
}

fn set_class(class: &str) -> Result<(), Box<dyn Error>> {
    let process = process::id().to_string();
    run::output(&Program::new("chrt").args([class, "--pid", "0", &process])).map(drop)
}

/// The program on the processor of that number, or where there are fewer, on one of those.
pub(crate) fn on(number: usize, program: &Program) -> Program {
    let processors = thread::available_parallelism().unwrap_or(NonZeroUsize::MIN);
    let number = (number % processors).to_string();
    Program::new("taskset")
        .args(["--cpu-list", &number])
        .arg(program.path())
        .args(program.arguments())
}
