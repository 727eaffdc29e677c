//! Checks that the program contains no C library for RDMA, and no code that would build or load one.

use std::process::Command;

/// Returns the output of `readelf` with `options` for the program.
fn readelf(options: &[&str]) -> String {
    let mut readelf = Command::new("readelf");
    readelf.args(options).arg(env!("CARGO_BIN_EXE_rdmatools")).env("LC_ALL", "C");
    let output = readelf.output().expect("readelf should be installed");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).expect("text")
}

#[test]
fn program_links_only_c_library() {
    let output = readelf(&["--dynamic", "--wide"]);
    assert!(
        output.contains("Dynamic section") || output.contains("no dynamic section"),
        "{output}"
    );
    for line in output.lines().filter(|line| line.contains("(NEEDED)")) {
        let (_, library) = line.split_once('[').expect("a name in brackets");
        let of_the_system = ["libc.", "libm.", "libpthread.", "libdl.", "ld-linux"];
        // On glibc the unwinder is linked statically.
        let is_unwinder = cfg!(not(target_env = "gnu")) && library.starts_with("libgcc_s.");
        let is_known = of_the_system.iter().any(|begin| library.starts_with(begin));
        assert!(is_known || is_unwinder, "{line}");
    }
}

#[test]
fn program_loads_no_library() {
    let output = readelf(&["--dyn-syms", "--wide"]);
    assert!(output.contains("write"), "the output should have the symbols: {output}");
    assert!(!output.lines().any(|line| line.contains(" dlopen")), "{output}");
}

/// Returns the names of all packages that the workspace is built with, on this machine.
fn packages() -> Vec<String> {
    let mut tree = Command::new(env!("CARGO"));
    tree.args(["tree", "--workspace", "--all-features", "--locked", "--prefix", "none"]);
    let output = tree.args(["--format", "{p}"]).output().expect("cargo should run");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let output = String::from_utf8(output.stdout).expect("text");
    output.lines().filter_map(|line| Some(line.split(' ').next()?.to_owned())).collect()
}

#[test]
fn no_package_binds_or_builds_c_library() {
    let packages = packages();
    for known in ["rdmacm", "libc", "tokio"] {
        assert!(packages.iter().any(|name| name == known), "{known} is not among {packages:?}");
    }
    for name in packages {
        // A package with constants of the kernel's ABI, which smol's reactor needs. It links no library.
        let has_numbers_alone = name == "linux-raw-sys";
        assert!(has_numbers_alone || !name.ends_with("-sys"), "{name} binds a C library");
        let builds = ["bindgen", "cc", "cmake", "pkg-config"];
        assert!(!builds.contains(&name.as_str()), "{name} should not build a C library");
    }
}
