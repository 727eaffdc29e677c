use super::*;

#[test]
fn entry_parts_are_padded_to_four_bytes() {
    let mut archive = Archive::default();
    archive.file("init", b"hello");
    let bytes = archive.finish();
    let header = "070701\
        00000001000081ed00000000000000000000000100000000\
        0000000500000000000000000000000000000000000000050000\
        0000";
    assert_eq!(std::str::from_utf8(&bytes[..110]).unwrap(), header);
    assert_eq!(bytes[110..116], *b"init\0\0");
    assert_eq!(bytes[116..124], *b"hello\0\0\0");
    assert_eq!(bytes[124..130], *b"070701");
    assert_eq!(bytes[124 + 110..124 + 121], *b"TRAILER!!!\0");
    assert_eq!(bytes.len() % 4, 0);
}

#[test]
fn device_has_number_directory_has_two_links() {
    let mut archive = Archive::default();
    archive.directory("dev");
    archive.device("dev/console", (5, 1));
    let bytes = archive.finish();
    let field = |entry: usize, index: usize| {
        let start = entry + 6 + 8 * index;
        u32::from_str_radix(std::str::from_utf8(&bytes[start..start + 8]).unwrap(), 16).unwrap()
    };
    assert_eq!((field(0, 1), field(0, 4)), (0o040_755, 2));
    let second = 116;
    assert_eq!((field(second, 1), field(second, 9), field(second, 10)), (0o020_600, 5, 1));
}
