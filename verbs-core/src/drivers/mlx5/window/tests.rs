use super::*;
use zerocopy::IntoBytes as _;

fn binding(mw_type: ib_mw_type, length: u64) -> WindowBinding {
    let access =
        AccessFlags::IB_UVERBS_ACCESS_REMOTE_READ | AccessFlags::IB_UVERBS_ACCESS_REMOTE_WRITE;
    let (rkey, new_rkey, lkey, addr) = (0x1234_5601, 0x1234_5602, 7, 0x1_0000);
    WindowBinding { mw_type, rkey, new_rkey, lkey, access, addr, length }
}

fn units(binding: &WindowBinding) -> Vec<u8> {
    let mut units = Vec::new();
    bind(binding, 0xabcd, |unit| units.push(unit)).expect("bind");
    units.as_bytes().to_vec()
}

#[test]
fn bind_of_type_2_belongs_to_queue_pair() {
    let bytes = units(&binding(ib_mw_type::IB_MW_TYPE_2, 0x100));
    assert_eq!(bytes.len(), 48 + 64 + 64);
    assert_eq!(bytes[..16], [0xb0, 0, 0, 0, 0, 4, 0, 0, 0, 0, 0, 0, 0x20, 0x3c, 0x60, 0x41]);
    assert_eq!(bytes[48..56], [0, 0, 0x30, 0, 0, 0xab, 0xcd, 2]);
    assert_eq!(bytes[64..80], [0, 0, 0, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0, 0, 1, 0]);
    assert_eq!(bytes[112..128], [0, 0, 1, 0, 0, 0, 0, 7, 0, 0, 0, 0, 0, 1, 0, 0]);
}

#[test]
fn bind_of_type_1_is_for_all_queue_pairs() {
    let bytes = units(&binding(ib_mw_type::IB_MW_TYPE_1, 0x100));
    assert_eq!((bytes[0], &bytes[12..16]), (0x90, &[0x20, 0x3c, 0x20, 0x41][..]));
    assert_eq!(bytes[52..56], [0xff, 0xff, 0xff, 2]);
    let bytes = units(&binding(ib_mw_type::IB_MW_TYPE_1, 0));
    assert_eq!(bytes.len(), 48 + 64, "an unbound window has no translation");
    assert_eq!((bytes[0], bytes[5], bytes[48]), (0x90, 0, 0x40));
    assert_eq!(bytes[52..56], [0xff, 0xff, 0xff, 2]);
}

#[test]
fn zero_based_window_starts_at_zero() {
    let mut binding = binding(ib_mw_type::IB_MW_TYPE_2, 0x100);
    binding.access |= AccessFlags::IB_UVERBS_ACCESS_ZERO_BASED;
    let bytes = units(&binding);
    assert_eq!(bytes[64..72], [0; 8]);
    assert_eq!(bytes[120..128], [0, 0, 0, 0, 0, 1, 0, 0]);
}

#[test]
fn window_is_at_most_2_gib() {
    assert_eq!(units(&binding(ib_mw_type::IB_MW_TYPE_2, MAX_LENGTH)).len(), 48 + 64 + 64);
    let long = binding(ib_mw_type::IB_MW_TYPE_2, MAX_LENGTH + 1);
    assert!(matches!(bind(&long, 1, drop), Err(PostError::Unsupported(_))));
}

#[test]
fn invalidation_checks_queue_pair() {
    let mut units = Vec::new();
    invalidate(|unit| units.push(unit));
    let bytes = units.as_bytes();
    assert_eq!(bytes[..16], [0x98, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0x20, 0, 0x60, 0]);
    assert_eq!(bytes[48..56], [0x40, 0, 0, 0, 0xff, 0xff, 0xff, 0]);
    assert_eq!(bytes.len(), 112);
}
