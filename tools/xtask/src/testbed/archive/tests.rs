use super::*;

#[test]
fn record_has_version_and_alternatives() {
    let text = "Package: p\nVersion: 6.12.1-1\nDepends: linux-base (>= 4), \
         linux-image-6.12.1-amd64 (= 6.12.1-1) | linux-image-6.12.1-amd64-unsigned, gcc-12\n\n\
         Package: p\nVersion: 1\n";
    let record = Record::parse(text).unwrap();
    assert_eq!(record.version, "6.12.1-1");
    assert_eq!(record.dependency("linux-image-"), Some("linux-image-6.12.1-amd64"));
    assert_eq!(record.dependency("gcc-"), Some("gcc-12"));
    assert_eq!(record.dependency("pahole"), None);
}

#[test]
fn simulation_lists_installed_packages() {
    let text = "Reading package lists...\nInst libc6 (2.43-7 Debian:unstable [amd64]) []\n\
         Inst make [4.3-1] (4.4.1-3 Debian:unstable [amd64])\nConf libc6 (2.43-7 Debian:unstable [amd64])\n";
    assert_eq!(parse_installed(text), ["libc6=2.43-7", "make=4.4.1-3"]);
}

#[test]
fn versions_are_in_second_column() {
    let text = " rustc-web | 1.96.0-1 | http://x bookworm-security/main amd64 Packages\n \
         rustc-web | 1.85.0+dfsg3-1~deb12u3 | http://x bookworm/main amd64 Packages\n";
    assert_eq!(parse_versions(text).collect::<Vec<_>>(), ["1.96.0-1", "1.85.0+dfsg3-1~deb12u3"]);
}

#[test]
fn empty_text_is_no_record() {
    assert_eq!(Record::parse(""), None);
}
