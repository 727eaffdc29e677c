use super::*;
use crate::driver::External;
use crate::drivers::any::AnyDriver;
use crate::drivers::null::Null;
use crate::sys::uverbs::UverbsFile;
use crate::verbs::Context;

#[test]
fn empty_or_long_part_is_refused() {
    let within = |part: (Bound<usize>, Bound<usize>)| bytes_within(part, 100).ok();
    assert_eq!(bytes_within(.., 100).ok(), Some(0..100));
    assert_eq!(bytes_within(40.., 100).ok(), Some(40..100));
    assert_eq!(bytes_within(..=99, 100).ok(), Some(0..100));
    assert_eq!(within((Bound::Excluded(39), Bound::Excluded(41))), Some(40..41));
    for part in [
        (Bound::Included(40), Bound::Excluded(40)),
        (Bound::Included(0), Bound::Included(100)),
        (Bound::Included(0), Bound::Included(usize::MAX)),
        (Bound::Excluded(usize::MAX), Bound::Unbounded),
        (Bound::Included(100), Bound::Unbounded),
    ] {
        assert_eq!(within(part), None, "{part:?}");
    }
    let text = |part| bytes_within(part, 100).expect_err("the range should be refused").to_string();
    assert!(text(80..101).contains("bytes 80 to 101 of memory: the memory has 100 bytes"));
    assert!(text(200..200).contains("the memory has 100 bytes"));
    for (start, end, reason) in [
        (5, 5, "bytes 5 to 5 of memory: the range has no bytes"),
        (100, 100, "the range has no bytes"),
        (7, 5, "the range has no bytes"),
        (101, 5, "the memory has 100 bytes"),
    ] {
        assert!(text(start..end).contains(reason), "{start} to {end}");
    }
}

#[test]
fn refused_revocation_is_error() {
    let (file, recorder) = UverbsFile::recording();
    let context = Context::on_file(file, AnyDriver::External(External::new(Null::default())));
    let pd = ProtectionDomain::new(&context).expect("protection domain");
    let memory = DmaMemory::new(8).expect("memory");
    let export = ExportedMemory::new(&pd, &memory, 0..8, RemoteAccess::READ).expect("export");
    recorder.refuse();
    let error = export.revoke().expect_err("the kernel should refuse");
    assert_eq!(error.errno(), libc::EPERM, "{error}");
}
