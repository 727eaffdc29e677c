//! Scheduling of the measured programs.
//!
//! For connections, an event wakes the thread that waits for it. That thread either preempts the kernel's thread, which
//! has more events to bring, or finds them all when its turn comes. The choice depends on its earlier run time, and
//! changes the time of a step by a fifth. In the batch class no thread preempts others when it wakes.
//!
//! For messages, a software device consists of kernel threads, or does so under load, and both programs poll all the
//! time. So there are more runnable threads than processors. By default, the scheduler lets a program poll to the end
//! of its slice, some milliseconds, while the thread that would bring the message waits. The result would measure
//! such waits. So everything here runs in the idle class, and no slice is protected: a thread of any other class gets
//! a processor at once. For latencies each of the two programs has a processor of its own. If both share one, which
//! the scheduler does not correct in this class, each message waits for the end of a slice. In a rate this costs both
//! programs the same part. The last processor takes the work that the kernel gives to any free processor, as rxe
//! does. On a program's processor such work makes a message a tenth slower, and the kernel chooses the processor
//! again for each run.

use std::error::Error;
use std::fs;
use std::num::NonZeroUsize;
use std::path::Path;
use std::{process, thread};

use nix::mount::{MsFlags, mount};

use crate::run::{self, Program, progress};

/// The processors for kernel work that is bound to no processor.
const WORK: &str = "/sys/devices/virtual/workqueue/cpumask";
const DEBUGFS: &str = "/sys/kernel/debug";
const FEATURES: &str = "/sys/kernel/debug/sched/features";
/// Kernel feature that protects a slice from preemption. Kernels before 6.6 do not have it.
const PROTECTION: &str = "RUN_TO_PARITY";

/// Lets a thread that wakes preempt the running one.
pub(crate) fn cut_slices() -> Result<(), Box<dyn Error>> {
    if !Path::new(FEATURES).exists() {
        mount(Some("none"), DEBUGFS, Some("debugfs"), MsFlags::empty(), None::<&str>)?;
    }
    if fs::read_to_string(FEATURES)?.contains(PROTECTION) {
        fs::write(FEATURES, format!("NO_{PROTECTION}"))?;
    }
    Ok(())
}

/// Keeps this process, and those that it starts from now on, from preempting others when they wake.
pub(crate) fn batch() -> Result<(), Box<dyn Error>> {
    set_class("--batch")?;
    progress("the programs run in the batch class, so a process that wakes preempts no other one");
    Ok(())
}

/// Gives all other processes precedence over this process and those that it starts from now on.
pub(crate) fn prefer_others() -> Result<(), Box<dyn Error>> {
    set_class("--idle")?;
    progress(
        "the programs run in the idle class, so that the kernel's threads never wait for them",
    );
    Ok(())
}

/// Moves work that the kernel does on any processor to the last one, if neither program uses it.
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

/// Returns the program on the processor of that number, or on another one if there are fewer.
pub(crate) fn on(number: usize, program: &Program) -> Program {
    let processors = thread::available_parallelism().unwrap_or(NonZeroUsize::MIN);
    let number = (number % processors).to_string();
    Program::new("taskset")
        .args(["--cpu-list", &number])
        .arg(program.path())
        .args(program.arguments())
}
