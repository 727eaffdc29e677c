use super::*;

#[test]
fn every_reason_has_text() {
    assert_eq!(RejectReason(28).to_string(), "rejected by the peer application (reason 28)");
    assert_eq!(RejectReason(34).to_string(), "reason 34");
    assert_eq!(RejectReason(-111).to_string(), "Connection refused (ECONNREFUSED)");
    assert!(!RejectReason(i32::MIN).to_string().is_empty());
}

#[test]
fn debug_output_omits_padding() {
    let rejection = |private_data: &[u8]| Rejection {
        reason: RejectReason::CONSUMER_DEFINED,
        private_data: private_data.to_vec(),
    };
    let reason = "RejectReason(rejected by the peer application (reason 28))";
    for (private_data, expected) in [
        (&[0; 148][..], "b\"\" (148 bytes)"),
        (b"", "b\"\" (0 bytes)"),
        (b"no\0\xff\"\0\0", "b\"no\\x00\\xff\\\"\" (7 bytes)"),
    ] {
        let expected = format!("Rejection {{ reason: {reason}, private_data: {expected} }}");
        assert_eq!(format!("{:?}", rejection(private_data)), expected);
    }
}

#[test]
fn only_negative_number_is_errno() {
    let errnos = [-111, -1, 0, 28, i32::MIN, i32::MAX].map(|number| RejectReason(number).errno());
    assert_eq!(errnos, [Some(111), Some(1), None, None, None, None]);
}
