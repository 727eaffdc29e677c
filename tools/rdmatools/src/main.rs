//! The `rdmatools` program.

use std::process::ExitCode;

fn main() -> ExitCode {
    rdmatools::main(std::env::args_os())
}
