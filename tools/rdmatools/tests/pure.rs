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

/// The names of the packages that anything of the project is built with.
fn packages() -> impl Iterator<Item = &'static str> {
    let lock = include_str!("../../../Cargo.lock");
    lock.lines().filter_map(|line| line.strip_prefix("name = \"")?.strip_suffix('"'))
}

#[test]
fn no_package_binds_or_builds_a_c_library() {
    assert!(packages().any(|name| name == "rdmacm") && packages().any(|name| name == "libc"));
    // What the lock file has for the sake of Windows is not built.
    for name in packages().filter(|name| *name != "windows-sys") {
        assert!(!name.ends_with("-sys"), "{name} binds a C library");
        assert!(!["bindgen", "cc", "cmake", "pkg-config"].contains(&name), "{name} builds one");
    }
}
