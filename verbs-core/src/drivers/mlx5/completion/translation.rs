//! Completions as the device writes them, translated into those of the kernel's ABI.

use verbs_abi::{ib_uverbs_wc, ib_wc_flags};

use super::super::memory::{Entry, at};
use super::super::opcode::{CHANGE_KEY, completed_operation};
use super::super::table::{KeyChange, Table};
use crate::work::{Completion, WcOpcode, WcStatus};

/// The bits of an index that the device sees.
///
/// This process counts completions by numbers of 64 bits, which never wrap.
pub(super) const INDEX: u32 = 0xff_ffff;

pub(super) const UNKNOWN_REQUEST: &str = "a completion names a request that is not posted";
pub(super) const UNKNOWN_OPCODE: &str = "a completion has an unknown opcode";

/// Opcodes of completions.
pub(super) mod opcode {
    pub(in super::super) const REQUEST: u8 = 0;
    pub(in super::super) const WRITE_WITH_IMMEDIATE: u8 = 1;
    pub(in super::super) const SEND: u8 = 2;
    pub(in super::super) const SEND_WITH_IMMEDIATE: u8 = 3;
    pub(in super::super) const SEND_WITH_INVALIDATE: u8 = 4;
    /// Not a completion: the device continues in another ring.
    pub(in super::super) const RESIZED: u8 = 5;
    pub(in super::super) const REQUEST_ERROR: u8 = 13;
    pub(in super::super) const RECEIVE_ERROR: u8 = 14;
}

fn is_receive(opcode: u8) -> bool {
    matches!(
        opcode,
        opcode::WRITE_WITH_IMMEDIATE
            | opcode::SEND
            | opcode::SEND_WITH_IMMEDIATE
            | opcode::SEND_WITH_INVALIDATE
            | opcode::RECEIVE_ERROR
    )
}

/// Returns `true` if a completion of a generation that has ended is returned nevertheless.
///
/// A request of a shared receive queue belongs to that queue. Only this completion shows that the request is done.
#[cold]
pub(super) fn outlives(table: &Table, opcode: u8) -> bool {
    table.srq.is_some() && table.qp_num != Table::NO_QP && is_receive(opcode)
}

/// Drops a completion of a generation that has ended.
///
/// The entry of a shared receive queue is free again.
#[cold]
pub(super) fn drop_completion(entry: Entry<'_>, table: &Table, opcode: u8) {
    if let (Some(srq), true) = (&table.srq, is_receive(opcode)) {
        let _ = srq.complete(entry.u16(at::COUNTER));
    }
}

/// Bit numbers and masks of the word with flags and the source queue pair.
mod flags {
    pub(super) const HAS_GRH: u32 = 3 << 28;
    pub(super) const SL_SHIFT: u32 = 24;
    pub(super) const SL: u32 = 15;
}

/// Translates the completion `entry` of a queue pair with `table` into `into`.
#[inline(always)]
pub(super) fn translate(
    entry: Entry<'_>,
    table: &Table,
    opcode: u8,
    into: &mut Completion,
) -> Result<(), &'static str> {
    match opcode {
        opcode::REQUEST => sent(entry, table, into),
        opcode::SEND => received(entry, table, opcode, into),
        _ => translate_rest(entry, table, opcode, into),
    }
}

/// Translates the completion of a send, or of a receive that is not one of a shared receive queue.
///
/// Returns `None`, and changes nothing, if the completion is of another kind or malformed.
#[inline(always)]
pub(super) fn translate_frequent(
    entry: Entry<'_>,
    table: &Table,
    opcode: u8,
    into: &mut Completion,
) -> Option<()> {
    match opcode {
        opcode::REQUEST => sent(entry, table, into).ok(),
        opcode::SEND if table.srq.is_none() => received(entry, table, opcode, into).ok(),
        _ => None,
    }
}

/// Translates the completions that are less frequent.
#[inline(never)]
fn translate_rest(
    entry: Entry<'_>,
    table: &Table,
    opcode: u8,
    into: &mut Completion,
) -> Result<(), &'static str> {
    match opcode {
        opcode::WRITE_WITH_IMMEDIATE
        | opcode::SEND_WITH_IMMEDIATE
        | opcode::SEND_WITH_INVALIDATE => received(entry, table, opcode, into),
        opcode::REQUEST_ERROR | opcode::RECEIVE_ERROR => failed(entry, table, opcode, into),
        _ => Err(UNKNOWN_OPCODE),
    }
}

#[inline(always)]
fn sent(entry: Entry<'_>, table: &Table, into: &mut Completion) -> Result<(), &'static str> {
    let (wr_id, operation) = complete_send(entry, table)?;
    let byte_len = match operation {
        // These come first, as they are the most frequent.
        WcOpcode::IB_UVERBS_WC_SEND | WcOpcode::IB_UVERBS_WC_RDMA_WRITE => 0,
        WcOpcode::IB_UVERBS_WC_RDMA_READ => entry.u32(at::BYTES),
        WcOpcode::IB_UVERBS_WC_COMP_SWAP | WcOpcode::IB_UVERBS_WC_FETCH_ADD => 8,
        _ => 0,
    };
    into.0 = ib_uverbs_wc {
        wr_id: wr_id.into(),
        status: WcStatus::IB_WC_SUCCESS,
        opcode: operation,
        byte_len,
        qp_num: table.qp_num,
        ..ib_uverbs_wc::default()
    };
    Ok(())
}

/// Completes a send. Returns its identifier and its operation.
#[inline(always)]
fn complete_send(entry: Entry<'_>, table: &Table) -> Result<(u64, WcOpcode), &'static str> {
    let counter = entry.u16(at::COUNTER);
    let opcode = u32::from(entry.u8(at::OPCODE_AND_QP));
    let operation = match opcode {
        CHANGE_KEY => match table.key_change(counter) {
            KeyChange::Bind => WcOpcode::IB_UVERBS_WC_BIND_MW,
            KeyChange::Invalidation => WcOpcode::IB_UVERBS_WC_LOCAL_INV,
        },
        opcode => completed_operation(opcode),
    };
    let wr_id = table.complete_send(counter).ok_or(UNKNOWN_REQUEST)?;
    Ok((wr_id, operation))
}

/// Returns the number of the queue pair that has received.
///
/// A shared receive queue in an XRC domain receives for all targets.
#[inline(always)]
fn receiver(entry: Entry<'_>, table: &Table) -> u32 {
    match table.qp_num {
        Table::NO_QP => entry.u32(at::OPCODE_AND_QP) & INDEX,
        number => number,
    }
}

/// Completes a receive of the queue pair, or of its shared receive queue.
#[inline(always)]
fn complete_receive(entry: Entry<'_>, table: &Table) -> Result<u64, &'static str> {
    let wr_id = match &table.srq {
        None => table.complete_receive(),
        Some(srq) => srq.complete(entry.u16(at::COUNTER)),
    };
    wr_id.ok_or(UNKNOWN_REQUEST)
}

#[inline(always)]
fn received(
    entry: Entry<'_>,
    table: &Table,
    opcode: u8,
    into: &mut Completion,
) -> Result<(), &'static str> {
    let wr_id = complete_receive(entry, table)?;
    let source = entry.u32(at::FLAGS_AND_SOURCE);
    let mut wc_flags = match source & flags::HAS_GRH {
        0 => ib_wc_flags::empty(),
        _ => ib_wc_flags::IB_WC_GRH,
    };
    let mut ex = [0; 4];
    match opcode {
        opcode::WRITE_WITH_IMMEDIATE | opcode::SEND_WITH_IMMEDIATE => {
            wc_flags |= ib_wc_flags::IB_WC_WITH_IMM;
            ex = entry.u32(at::IMMEDIATE).to_be_bytes();
        }
        opcode::SEND_WITH_INVALIDATE => {
            wc_flags |= ib_wc_flags::IB_WC_WITH_INVALIDATE;
            ex = entry.u32(at::IMMEDIATE).to_ne_bytes();
        }
        _ => {}
    }
    let operation = match opcode {
        opcode::WRITE_WITH_IMMEDIATE => WcOpcode::IB_WC_RECV_RDMA_WITH_IMM,
        _ => WcOpcode::IB_WC_RECV,
    };
    into.0 = ib_uverbs_wc {
        wr_id: wr_id.into(),
        status: WcStatus::IB_WC_SUCCESS,
        opcode: operation,
        byte_len: entry.u32(at::BYTES),
        ex,
        qp_num: receiver(entry, table),
        src_qp: source & INDEX,
        wc_flags,
        slid: entry.u16(at::SLID),
        sl: (source >> flags::SL_SHIFT & flags::SL) as u8,
        dlid_path_bits: entry.u8(at::PATH) & 0x7f,
        ..ib_uverbs_wc::default()
    };
    Ok(())
}

/// Translates the completion of a request that has failed.
#[cold]
fn failed(
    entry: Entry<'_>,
    table: &Table,
    opcode: u8,
    into: &mut Completion,
) -> Result<(), &'static str> {
    let (wr_id, operation) = match opcode {
        opcode::RECEIVE_ERROR => (complete_receive(entry, table)?, WcOpcode::IB_WC_RECV),
        _ => complete_send(entry, table)?,
    };
    into.0 = ib_uverbs_wc {
        wr_id: wr_id.into(),
        status: status(entry.u8(at::SYNDROME)),
        opcode: operation,
        vendor_err: entry.u8(at::VENDOR_ERROR).into(),
        qp_num: receiver(entry, table),
        ..ib_uverbs_wc::default()
    };
    Ok(())
}

/// Translates the reason of a failure.
pub(super) fn status(syndrome: u8) -> WcStatus {
    match syndrome {
        0x01 => WcStatus::IB_WC_LOC_LEN_ERR,
        0x02 => WcStatus::IB_WC_LOC_QP_OP_ERR,
        0x04 => WcStatus::IB_WC_LOC_PROT_ERR,
        0x05 => WcStatus::IB_WC_WR_FLUSH_ERR,
        0x06 => WcStatus::IB_WC_MW_BIND_ERR,
        0x10 => WcStatus::IB_WC_BAD_RESP_ERR,
        0x11 => WcStatus::IB_WC_LOC_ACCESS_ERR,
        0x12 => WcStatus::IB_WC_REM_INV_REQ_ERR,
        0x13 => WcStatus::IB_WC_REM_ACCESS_ERR,
        0x14 => WcStatus::IB_WC_REM_OP_ERR,
        0x15 => WcStatus::IB_WC_RETRY_EXC_ERR,
        0x16 => WcStatus::IB_WC_RNR_RETRY_EXC_ERR,
        0x22 => WcStatus::IB_WC_REM_ABORT_ERR,
        _ => WcStatus::IB_WC_GENERAL_ERR,
    }
}
