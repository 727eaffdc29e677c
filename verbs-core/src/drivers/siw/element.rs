//! Checks of a request, and its scatter/gather entries in an element of a work queue.

use verbs_abi::siw::{SIW_MAX_SGE, siw_sge};

use super::queue::Free;
use crate::driver::checks::{count, signed_length, total};
use crate::driver::{PostError, Posted};
use crate::work::{QpState, Sge};

/// Checks that requests can be posted in `state`.
///
/// The kernel flushes when the queue pair moves to ERR. Requests that are posted later stay in the ring: they are
/// orphans.
pub(super) fn check_state(state: QpState) -> Posted {
    match state {
        QpState::IB_QPS_RESET => Err(PostError::Invalid(
            "the queue pair is in IB_QPS_RESET, and posting needs IB_QPS_INIT",
        )),
        _ => Ok(()),
    }
}

/// Copies the scatter/gather entries into an element, from `offset` on, and returns their number.
///
/// Empty entries are left out. The kernel does not look up their keys, and crashes when it processes such an entry.
#[inline(always)]
pub(super) fn gather<E>(
    element: &mut Free<'_, E>,
    offset: usize,
    pieces: &[Sge],
    most: u32,
) -> Posted<u8> {
    count(pieces, most)?;
    let (number, length) = match pieces {
        // Most have one. A loop over one is longer than the rest.
        [piece] if piece.length > 0 => {
            element.put(offset, &translated_piece(piece));
            (1, u64::from(piece.length))
        }
        pieces => {
            let (list, number) = filled(pieces);
            element.put(offset, &list);
            (number, total(pieces))
        }
    };
    signed_length(length).map(|_| number)
}

/// Returns the non-empty entries and their number.
///
/// The remaining entries are empty: for a read, the kernel uses the first entry and ignores the number.
#[inline(never)]
fn filled(pieces: &[Sge]) -> ([siw_sge; SIW_MAX_SGE], u8) {
    let mut list = [siw_sge::default(); SIW_MAX_SGE];
    let mut number = 0;
    let filled = pieces.iter().filter(|piece| piece.length > 0);
    for (place, piece) in list.iter_mut().zip(filled) {
        *place = translated_piece(piece);
        number += 1;
    }
    (list, number)
}

#[inline]
pub(super) fn translated_piece(piece: &Sge) -> siw_sge {
    siw_sge { laddr: piece.addr, length: piece.length, lkey: piece.lkey }
}
