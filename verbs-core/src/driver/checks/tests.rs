use super::*;

/// Returns an entry of `length` bytes.
fn sge(length: u32) -> Sge {
    Sge { length, ..Sge::default() }
}

#[test]
fn total_exceeds_32_bits() {
    assert_eq!(total(&[]), 0);
    assert_eq!(total(&[sge(u32::MAX), sge(1), sge(2)]), u64::from(u32::MAX) + 3);
}

#[test]
fn length_is_limited_by_its_word() {
    assert_eq!(length(u64::from(u32::MAX)).ok(), Some(u32::MAX));
    let long = u64::from(u32::MAX) + 1;
    assert!(matches!(length(long), Err(PostError::Long(bytes)) if bytes == long));
    assert_eq!(signed_length(0x7fff_ffff).ok(), Some(0x7fff_ffff));
    for long in [0x8000_0000, u64::from(u32::MAX), long] {
        assert!(matches!(signed_length(long), Err(PostError::Long(bytes)) if bytes == long));
    }
}

#[test]
fn entries_and_inline_bytes_are_limited_by_queue() {
    assert_eq!(count(&[sge(1); 3], 3).ok(), Some(3));
    assert!(matches!(count(&[sge(1); 3], 2), Err(PostError::ManySges { given: 3, most: 2 })));
    assert_eq!(inline(&[0; 8], 8).ok(), Some(8));
    assert!(matches!(inline(&[0; 9], 8), Err(PostError::ManyBytes { given: 9, most: 8 })));
}

#[test]
fn state_decides_about_sends_and_receives() {
    use QpState as S;
    let (ready, early) = (
        [S::IB_QPS_RTS, S::IB_QPS_SQD, S::IB_QPS_SQE, S::IB_QPS_ERR],
        [S::IB_QPS_RESET, S::IB_QPS_INIT, S::IB_QPS_RTR],
    );
    for state in ready {
        check_send(state).expect("sends are processed");
        check_receive(state).expect("receives are processed");
    }
    for state in early {
        assert!(matches!(check_send(state), Err(PostError::Early(found)) if found == state));
        assert_eq!(check_receive(state).is_ok(), state != S::IB_QPS_RESET);
    }
}
