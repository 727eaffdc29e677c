//! What the drivers check of a work request before they store it.

use super::PostError;
use crate::verbs::{QpState, Sge};

/// The length of all pieces together.
pub(super) fn total(pieces: &[Sge]) -> Result<u32, PostError> {
    let sum: u64 = pieces.iter().map(|piece| u64::from(piece.length)).sum();
    u32::try_from(sum).map_err(|_| PostError::Invalid(format!("a message of {sum} bytes").into()))
}

/// The number of pieces, if the queue takes as many.
pub(super) fn count(pieces: &[Sge], most: u32) -> Result<u32, PostError> {
    match u32::try_from(pieces.len()) {
        Ok(count) if count <= most => Ok(count),
        _ => {
            let given = pieces.len();
            let reason = format!("{given} pieces of memory where {most} are the most");
            Err(PostError::Invalid(reason.into()))
        }
    }
}

/// The number of bytes that a request carries in itself, if the queue takes as many.
pub(super) fn inline(bytes: &[u8], most: u32) -> Result<u32, PostError> {
    match u32::try_from(bytes.len()) {
        Ok(length) if length <= most => Ok(length),
        _ => {
            let given = bytes.len();
            let reason = format!("{given} bytes inline where {most} are the most");
            Err(PostError::Invalid(reason.into()))
        }
    }
}

/// That the kernel looks at what is posted in `state`.
#[inline]
pub(super) fn check_receive(state: QpState) -> Result<(), PostError> {
    if state == QpState::IB_QPS_RESET {
        let reason = "the queue pair is in IB_QPS_RESET, and receives need IB_QPS_INIT";
        return Err(PostError::Invalid(reason.into()));
    }
    Ok(())
}
