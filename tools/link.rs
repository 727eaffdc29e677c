//! Has the unwinder linked into the programs of this workspace, where the default is the shared `libgcc_s`: the
//! loader has one library less to find and to map at each start, and a container's image needs the C library only.
//!
//! Only for glibc: elsewhere the unwinder is another one. The archive comes with gcc, as does what links
//! `libgcc_s` by default. A program that only depends on the `rdmacm` crate is linked as its own build says.
#![expect(clippy::print_stdout, reason = "it is how a build script speaks to cargo")]

use std::env;

fn main() {
    println!("cargo::rerun-if-env-changed=CARGO_CFG_TARGET_ENV");
    let is = |what: &str, value: &str| env::var(what).is_ok_and(|found| found == value);
    if is("CARGO_CFG_TARGET_OS", "linux") && is("CARGO_CFG_TARGET_ENV", "gnu") {
        // Not bundled, as the archive belongs to the compiler: the linker looks where gcc has it.
        println!("cargo::rustc-link-lib=static:-bundle=gcc_eh");
    }
}
