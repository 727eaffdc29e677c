//! Checks of a work request before a driver stores it.

use super::error::{PostError, Posted};
use crate::work::{QpState, Sge};

/// Returns the total length of the scatter/gather entries.
#[inline(never)]
pub fn total(pieces: &[Sge]) -> u64 {
    pieces.iter().map(|piece| u64::from(piece.length)).sum()
}

/// Returns the length of a message of `bytes`.
#[inline]
pub fn length(bytes: u64) -> Posted<u32> {
    u32::try_from(bytes).map_err(|_| PostError::Long(bytes))
}

/// Returns [`total`] for a kernel that adds the bytes up in a signed word.
#[inline]
pub fn signed_length(bytes: u64) -> Posted<u32> {
    match u32::try_from(bytes) {
        Ok(length) if length < TOO_LONG => Ok(length),
        _ => Err(PostError::Long(bytes)),
    }
}

/// The smallest number of bytes that is too long for a message of such a kernel.
pub const TOO_LONG: u32 = 1 << 31;

/// Returns the number of scatter/gather entries, if the queue takes as many.
#[inline]
pub fn count(pieces: &[Sge], most: u32) -> Posted<u32> {
    let given = pieces.len();
    within(given, most).ok_or(PostError::ManyPieces { given, most })
}

/// Returns the number of inline bytes of a request, if the queue takes as many.
#[inline]
pub fn inline(bytes: &[u8], most: u32) -> Posted<u32> {
    let given = bytes.len();
    within(given, most).ok_or(PostError::ManyBytes { given, most })
}

#[inline]
fn within(given: usize, most: u32) -> Option<u32> {
    #[expect(clippy::cast_possible_truncation, reason = "`most` has 32 bits")]
    (given <= most as usize).then_some(given as u32)
}

/// Checks that the kernel processes sends that are posted in `state`.
#[inline]
pub fn check_send(state: QpState) -> Posted {
    if state.0 >= QpState::IB_QPS_RTS.0 { Ok(()) } else { Err(PostError::Early(state)) }
}

/// Checks that the kernel processes receives that are posted in `state`.
pub fn check_receive(state: QpState) -> Posted {
    match state {
        QpState::IB_QPS_RESET => Err(PostError::Invalid(
            "the queue pair is in IB_QPS_RESET, and receives need IB_QPS_INIT",
        )),
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests {
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
        assert!(matches!(count(&[sge(1); 3], 2), Err(PostError::ManyPieces { given: 3, most: 2 })));
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
}
