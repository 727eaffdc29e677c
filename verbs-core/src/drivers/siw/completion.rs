//! Translation of siw's completions.

use verbs_abi::ib_uverbs_wc;
use verbs_abi::siw::{siw_cqe, siw_opcode, siw_wc_status};

use crate::work::{WcOpcode, WcStatus};

/// Represents an operation that no request of this library has.
const UNKNOWN: WcOpcode = WcOpcode(u32::MAX);

/// The operations by siw's numbers, which have 8 bits.
///
/// A lookup takes fewer instructions than comparisons.
static OPCODES: [WcOpcode; 256] = {
    let mut opcodes = [UNKNOWN; 256];
    let mut number = 0;
    while number < opcodes.len() {
        #[expect(clippy::cast_possible_truncation, reason = "it is below 256")]
        let opcode = siw_opcode(number as u8);
        opcodes[number] = translated_opcode(opcode);
        number += 1;
    }
    opcodes
};

const fn translated_opcode(opcode: siw_opcode) -> WcOpcode {
    match opcode {
        siw_opcode::SIW_OP_WRITE => WcOpcode::IB_UVERBS_WC_RDMA_WRITE,
        siw_opcode::SIW_OP_READ | siw_opcode::SIW_OP_READ_LOCAL_INV => {
            WcOpcode::IB_UVERBS_WC_RDMA_READ
        }
        siw_opcode::SIW_OP_SEND
        | siw_opcode::SIW_OP_SEND_WITH_IMM
        | siw_opcode::SIW_OP_SEND_REMOTE_INV => WcOpcode::IB_UVERBS_WC_SEND,
        siw_opcode::SIW_OP_RECEIVE => WcOpcode::IB_WC_RECV,
        _ => UNKNOWN,
    }
}

fn translate_status(status: siw_wc_status) -> WcStatus {
    match status {
        siw_wc_status::SIW_WC_SUCCESS => WcStatus::IB_WC_SUCCESS,
        siw_wc_status::SIW_WC_LOC_LEN_ERR => WcStatus::IB_WC_LOC_LEN_ERR,
        siw_wc_status::SIW_WC_LOC_PROT_ERR => WcStatus::IB_WC_LOC_PROT_ERR,
        siw_wc_status::SIW_WC_LOC_QP_OP_ERR => WcStatus::IB_WC_LOC_QP_OP_ERR,
        siw_wc_status::SIW_WC_WR_FLUSH_ERR => WcStatus::IB_WC_WR_FLUSH_ERR,
        siw_wc_status::SIW_WC_BAD_RESP_ERR => WcStatus::IB_WC_BAD_RESP_ERR,
        siw_wc_status::SIW_WC_LOC_ACCESS_ERR => WcStatus::IB_WC_LOC_ACCESS_ERR,
        siw_wc_status::SIW_WC_REM_ACCESS_ERR => WcStatus::IB_WC_REM_ACCESS_ERR,
        siw_wc_status::SIW_WC_REM_INV_REQ_ERR => WcStatus::IB_WC_REM_INV_REQ_ERR,
        _ => WcStatus::IB_WC_GENERAL_ERR,
    }
}

/// Translates a completion into the form of the other drivers. siw does not report keys that a peer invalidated, and
/// has no immediate data.
///
/// A completion of an unknown operation counts as failed, regardless of its status.
#[cold]
#[inline(never)]
pub(super) fn translate_completion(element: &siw_cqe) -> ib_uverbs_wc {
    let opcode = OPCODES[usize::from(element.opcode.0)];
    let status = match opcode {
        UNKNOWN => WcStatus::IB_WC_GENERAL_ERR,
        _ => translate_status(element.status),
    };
    completion(element, status, opcode)
}

/// Translates a completion of a known operation that has succeeded. Returns `None` for others.
#[inline(always)]
pub(super) fn translate_success(element: &siw_cqe) -> Option<ib_uverbs_wc> {
    let opcode = OPCODES[usize::from(element.opcode.0)];
    if element.status != siw_wc_status::SIW_WC_SUCCESS || opcode == UNKNOWN {
        return None;
    }
    Some(completion(element, WcStatus::IB_WC_SUCCESS, opcode))
}

#[inline(always)]
fn completion(element: &siw_cqe, status: WcStatus, opcode: WcOpcode) -> ib_uverbs_wc {
    // The kernel stores a number of 32 bits.
    #[expect(clippy::cast_possible_truncation, reason = "the upper half is zero")]
    let qp_num = element.qp_id.get() as u32;
    let (wr_id, byte_len) = (element.id, element.bytes);
    ib_uverbs_wc { wr_id, status, opcode, byte_len, qp_num, ..ib_uverbs_wc::default() }
}

#[cfg(test)]
mod tests;
