//! The guide's table of C functions, beside what the C library has.

use std::fs;
use std::process::Command;

const GUIDE: &str = include_str!("../../rdmacm/src/guide/functions.rs");

/// The functions that `librdmacm.so.1` has for programs: `... rdma_connect@@RDMACM_1.0`.
fn exported() -> Vec<String> {
    let folders = ["/usr/lib/x86_64-linux-gnu", "/usr/lib64", "/usr/lib"];
    let paths = folders.map(|folder| format!("{folder}/librdmacm.so.1"));
    let path = paths.iter().find(|path| fs::exists(path).expect("look for the library"));
    let path = path.expect("the C programs are there, and their library with them");
    let read = Command::new("readelf").args(["--dyn-syms", "--wide", path]).output();
    let read = read.expect("run readelf");
    assert!(read.status.success(), "{}", String::from_utf8_lossy(&read.stderr));
    let text = String::from_utf8(read.stdout).expect("text");
    let names = text.lines().filter_map(|line| line.rsplit_once("@@RDMACM_"));
    names
        .filter_map(|(before, _)| Some(before.split_whitespace().next_back()?.to_owned()))
        .collect()
}

#[test]
#[ignore = "needs the test bed: cargo xtask test"]
fn the_guide_names_every_function_of_the_c_library() {
    let exported = exported();
    assert!(exported.len() > 60, "rdma-core 44 has more: {exported:?}");
    let mut missing = exported;
    missing.retain(|name| !GUIDE.contains(&format!("`{name}`")));
    assert!(missing.is_empty(), "{missing:?}");
}
