use super::*;

fn shown(number: u64, size: usize) -> String {
    String::from_utf8(text(&data(number, size)).to_vec()).unwrap()
}

#[test]
fn data_matches_c_program() {
    // `rping -c -v -C 2` of rdma-core 44 prints these lines.
    assert_eq!(shown(0, 64), "rdma-ping-0: ABCDEFGHIJKLMNOPQRSTUVWXYZ[\\]^_`abcdefghijklmnopqr");
    assert_eq!(shown(1, 64), "rdma-ping-1: BCDEFGHIJKLMNOPQRSTUVWXYZ[\\]^_`abcdefghijklmnopqrs");
}

#[test]
fn letters_start_again_after_z() {
    assert_eq!(shown(57, 30), "rdma-ping-57: zABCDEFGHIJKLMN");
    assert_eq!(shown(58, 30), "rdma-ping-58: ABCDEFGHIJKLMNO");
    assert!(shown(0, 100).contains("xyzABC"));
}

#[test]
fn every_size_is_filled_and_ends_in_zero() {
    for size in [23, 24, 64, 65_535] {
        let data = data(2_147_483_647, size);
        assert_eq!((data.len(), data[size - 1]), (size, 0));
        assert!(!data[..size - 1].contains(&0));
    }
    assert_eq!(shown(2_147_483_647, 23), "rdma-ping-2147483647: ");
}

#[test]
fn text_without_zero_byte_is_whole_data() {
    assert_eq!(text(b"abc"), b"abc");
    assert_eq!(text(b""), b"");
}
