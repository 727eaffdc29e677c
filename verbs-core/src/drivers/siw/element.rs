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
    sges: &[Sge],
    most: u32,
) -> Posted<u8> {
    count(sges, most)?;
    let (number, length) = match sges {
        // Most have one. A loop over one is longer than the rest.
        [sge] if sge.length > 0 => {
            element.put(offset, &translated_sge(sge));
            (1, u64::from(sge.length))
        }
        sges => {
            let (list, number) = filled(sges);
            element.put(offset, &list);
            (number, total(sges))
        }
    };
    signed_length(length).map(|_| number)
}

/// Returns the non-empty entries and their number.
///
/// The remaining entries are empty: for a read, the kernel uses the first entry and ignores the number.
#[inline(never)]
fn filled(sges: &[Sge]) -> ([siw_sge; SIW_MAX_SGE], u8) {
    let mut list = [siw_sge::default(); SIW_MAX_SGE];
    let mut number = 0;
    let filled = sges.iter().filter(|sge| sge.length > 0);
    for (place, sge) in list.iter_mut().zip(filled) {
        *place = translated_sge(sge);
        number += 1;
    }
    (list, number)
}

#[inline]
pub(super) fn translated_sge(sge: &Sge) -> siw_sge {
    siw_sge { laddr: sge.addr, length: sge.length, lkey: sge.lkey }
}
