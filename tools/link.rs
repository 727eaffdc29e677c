//! Links the unwinder statically into the programs of this workspace.
//!
//! The default is the shared `libgcc_s`. Without it, the loader maps one library less at each start, and a container's
//! image needs only the C library.
//!
//! This applies only to glibc: other systems have another unwinder. The archive is part of gcc, as is the linker
//! configuration that adds `libgcc_s` by default. A program that merely depends on the `rdmacm` crate is linked as its
//! own build requires.

use std::env;

fn main() {
    println!("cargo::rerun-if-env-changed=CARGO_CFG_TARGET_ENV");
    let is = |what: &str, value: &str| env::var(what).is_ok_and(|found| found == value);
    if is("CARGO_CFG_TARGET_OS", "linux") && is("CARGO_CFG_TARGET_ENV", "gnu") {
        // Not bundled, because the archive belongs to the compiler: the linker searches gcc's directories.
        println!("cargo::rustc-link-lib=static:-bundle=gcc_eh");
    }
}
