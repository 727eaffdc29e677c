//! That there is no C library for RDMA in the program, nor anything that would build or load one.

use std::process::Command;

/// What `readelf` with `options` says of the program.
fn readelf(options: &[&str]) -> String {
    let mut readelf = Command::new("readelf");
    readelf.args(options).arg(env!("CARGO_BIN_EXE_rdmatools")).env("LC_ALL", "C");
    let said = readelf.output().expect("readelf comes with the linker");
    assert!(said.status.success(), "{}", String::from_utf8_lossy(&said.stderr));
    String::from_utf8(said.stdout).expect("text")
}

#[test]
fn it_is_linked_with_the_c_library_alone() {
    let said = readelf(&["--dynamic", "--wide"]);
    assert!(said.contains("Dynamic section") || said.contains("no dynamic section"), "{said}");
    for line in said.lines().filter(|line| line.contains("(NEEDED)")) {
        let (_, library) = line.split_once('[').expect("a name in brackets");
        let of_the_system = ["libc.", "libm.", "libpthread.", "libdl.", "ld-linux"];
        // For glibc the unwinder is linked in.
        let is_unwinder = cfg!(not(target_env = "gnu")) && library.starts_with("libgcc_s.");
        let is_known = of_the_system.iter().any(|begin| library.starts_with(begin));
        assert!(is_known || is_unwinder, "{line}");
    }
}

#[test]
fn it_loads_nothing() {
    let said = readelf(&["--dyn-syms", "--wide"]);
    assert!(said.contains("write"), "the symbols are there: {said}");
    assert!(!said.lines().any(|line| line.contains(" dlopen")), "{said}");
}

/// The names of the packages that anything of the workspace is built with, on this machine.
fn packages() -> Vec<String> {
    let mut tree = Command::new(env!("CARGO"));
    tree.args(["tree", "--workspace", "--all-features", "--locked", "--prefix", "none"]);
    let said = tree.args(["--format", "{p}"]).output().expect("cargo runs");
    assert!(said.status.success(), "{}", String::from_utf8_lossy(&said.stderr));
    let said = String::from_utf8(said.stdout).expect("text");
    said.lines().filter_map(|line| Some(line.split(' ').next()?.to_owned())).collect()
}

#[test]
fn no_package_binds_or_builds_a_c_library() {
    let packages = packages();
    for known in ["rdmacm", "libc", "tokio"] {
        assert!(packages.iter().any(|name| name == known), "{known} is not among {packages:?}");
    }
    for name in packages {
        // The numbers of the kernel's ABI, which smol's reactor needs. It links no library.
        let has_numbers_alone = name == "linux-raw-sys";
        assert!(has_numbers_alone || !name.ends_with("-sys"), "{name} binds a C library");
        let builds = ["bindgen", "cc", "cmake", "pkg-config"];
        assert!(!builds.contains(&name.as_str()), "{name} builds one");
    }
}
