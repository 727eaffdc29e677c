//! The project's tasks. `cargo xtask help` lists them.

mod archive;
mod args;
mod batch;
mod bench;
mod cache;
mod ci;
mod console;
mod cpio;
mod demo;
mod driver;
mod foreign;
mod host;
mod initramfs;
mod kernel;
mod libtest;
mod machine;
mod modules;
mod packages;
mod pair;
mod test;
mod vm;

use std::env;
use std::process::ExitCode;

use crate::args::Task;

fn main() -> ExitCode {
    let result = args::parse(env::args_os().skip(1)).and_then(|task| match task {
        Task::Help => {
            eprint!("{}", args::USAGE);
            Ok(ExitCode::SUCCESS)
        }
        Task::Demo => demo::run(),
        Task::Vm { guest, command } => vm::run(&guest, &command),
        Task::Test(selection) => Ok(test::run(&selection)),
        Task::Bench(subject, kernels, devices) => bench::run(subject, &kernels, &devices),
        Task::Ci(selection) => Ok(ci::run(&selection)),
    });
    result.unwrap_or_else(|error| {
        eprintln!("xtask: {error}");
        ExitCode::from(vm::BED_FAILED)
    })
}
