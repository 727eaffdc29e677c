//! The guide's tables of C functions, compared with the functions of the C libraries.

use std::env;
use std::fs;
use std::process::Command;

/// Returns the functions that `library` exports: `... rdma_connect@@RDMACM_1.0`.
fn exported(library: &str, version: &str) -> Vec<String> {
    let debian = format!("/usr/lib/{}-linux-gnu", env::consts::ARCH);
    let folders = [debian.as_str(), "/usr/lib64", "/usr/lib"];
    let paths = folders.map(|folder| format!("{folder}/{library}"));
    let path = paths.iter().find(|path| fs::exists(path).expect("look for the library"));
    let path = path.expect("the C library should be installed");
    let read = Command::new("readelf").args(["--dyn-syms", "--wide", path]).output();
    let read = read.expect("run readelf");
    assert!(read.status.success(), "{}", String::from_utf8_lossy(&read.stderr));
    let text = String::from_utf8(read.stdout).expect("text");
    let names = text.lines().filter_map(|line| line.rsplit_once(version));
    let names = names.filter_map(|(before, _)| before.split_whitespace().next_back());
    names.filter(|name| !name.starts_with('_')).map(str::to_owned).collect()
}

/// Returns the functions that `infiniband/verbs.h` has or declares: `... ibv_poll_cq(...`.
fn declared() -> Vec<String> {
    let header = fs::read_to_string("/usr/include/infiniband/verbs.h");
    let header = header.expect("the headers of rdma-core should be installed");
    let names = header.match_indices("ibv_").filter_map(|(at, _)| {
        let begins = header[..at].chars().next_back().is_some_and(|c| !is_identifier(c));
        let (name, _) = header[at..].split_once(|c| !is_identifier(c))?;
        let is_called = header[at + name.len()..].starts_with('(');
        (begins && is_called).then(|| name.to_owned())
    });
    names.collect()
}

fn is_identifier(character: char) -> bool {
    character.is_ascii_alphanumeric() || character == '_'
}

#[track_caller]
fn assert_named(guide: &str, functions: &[String]) {
    assert!(functions.len() > 60, "rdma-core 44 has more: {functions:?}");
    let missing = functions.iter().filter(|name| !guide.contains(&format!("`{name}`")));
    let missing: Vec<_> = missing.collect();
    assert!(missing.is_empty(), "{missing:?}");
}

#[test]
#[ignore = "needs the test bed: cargo xtask test"]
fn guide_names_every_librdmacm_function() {
    let guide = include_str!("../../rdmacm/src/guide/from_librdmacm.rs");
    assert_named(guide, &exported("librdmacm.so.1", "@@RDMACM_"));
}

#[test]
#[ignore = "needs the test bed: cargo xtask test"]
fn guide_names_every_libibverbs_function() {
    let guide = include_str!("../../rdmacm/src/guide/from_libibverbs.rs");
    assert_named(guide, &exported("libibverbs.so.1", "@@IBVERBS_1."));
    assert_named(guide, &declared());
}
