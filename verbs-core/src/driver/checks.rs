//! Checks of a work request before a driver stores it.

use super::error::{PostError, Posted};
use crate::work::{QpState, Sge};

/// Returns the total length of the scatter/gather entries.
#[inline(never)]
pub fn total(sges: &[Sge]) -> u64 {
    sges.iter().map(|sge| u64::from(sge.length)).sum()
}

/// Returns the length of a message of `bytes`.
#[inline]
pub fn length(bytes: u64) -> Posted<u32> {
    u32::try_from(bytes).map_err(|_| PostError::Long(bytes))
}

/// Returns the length of a message of `bytes` for a kernel that adds the bytes up in a signed word.
#[inline]
pub fn signed_length(bytes: u64) -> Posted<u32> {
    match u32::try_from(bytes) {
        Ok(length) if length < TOO_LONG => Ok(length),
        _ => Err(PostError::Long(bytes)),
    }
}

/// The smallest number of bytes that does not fit into a signed word.
pub const TOO_LONG: u32 = 1 << 31;

/// Returns the number of scatter/gather entries, or an error if the queue takes fewer.
#[inline]
pub fn count(sges: &[Sge], most: u32) -> Posted<u32> {
    let given = sges.len();
    within(given, most).ok_or(PostError::ManySges { given, most })
}

/// Returns the number of inline bytes of a request, or an error if the queue takes fewer.
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
mod tests;
