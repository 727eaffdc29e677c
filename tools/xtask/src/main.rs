//! The project's tasks. `cargo xtask help` lists them.
//!
//! Each folder imports only those below it:
//!
//! | Folder | Contents |
//! |---|---|
//! | `tasks` | the commands, one module each |
//! | `tally` | test programs: which tests run where, and their results |
//! | `testbed` | kernels, modules, the emulator, guests |
//! | `host` | programs and packages of this machine |
// `println!` panics if standard output is a closed pipe.
#![cfg_attr(not(test), warn(clippy::print_stdout))]

mod args;
mod host;
mod tally;
mod tasks;
mod testbed;

use std::env;
use std::process::ExitCode;

use crate::args::Task;
use crate::tasks::{
    api, bench, ci, demo, faults, fuzz, sanitize, soak, static_build, test, test_aarch64, vm,
};

fn main() -> ExitCode {
    let task = args::parse(env::args_os()).unwrap_or_else(|error| error.exit());
    let succeeded = |()| ExitCode::SUCCESS;
    let done = match task {
        Task::Demo(kernel, device) => demo::run(kernel, device, None).map(succeeded),
        Task::Api { renew } => api::run(renew).map(succeeded),
        Task::Static => static_build::run().map(succeeded),
        Task::Vm { guest, command } => vm::run(&guest, &command),
        Task::Test(selection) => Ok(test::run(&selection)),
        Task::TestAarch64(selection) => Ok(test_aarch64::run(&selection)),
        Task::BenchNull { renew } => bench::run_null(renew),
        Task::Bench { subject, kernels, devices, renew } => {
            bench::run(subject, &kernels, &devices, renew)
        }
        Task::Soak(time, guest) => soak::run(time, &guest).map(succeeded),
        Task::Fuzz { filter, time } => Ok(fuzz::run(filter.as_deref(), time)),
        Task::Sanitize(selection) => Ok(sanitize::run(&selection)),
        Task::Faults(extent, guest, words) => faults::run(extent, guest, words),
        Task::Ci(selection) => Ok(ci::run(&selection)),
    };
    done.unwrap_or_else(|error| {
        eprintln!("xtask: {error}");
        ExitCode::from(vm::BED_FAILED)
    })
}
