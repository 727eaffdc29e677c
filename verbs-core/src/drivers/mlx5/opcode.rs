//! Operations of the entries of send queues.

use crate::work::WcOpcode;

pub(super) const SEND_WITH_INVALIDATE: u32 = 0x01;
pub(super) const WRITE: u32 = 0x08;
pub(super) const WRITE_WITH_IMMEDIATE: u32 = 0x09;
pub(super) const SEND: u32 = 0x0a;
pub(super) const SEND_WITH_IMMEDIATE: u32 = 0x0b;
pub(super) const READ: u32 = 0x10;
pub(super) const COMPARE_SWAP: u32 = 0x11;
pub(super) const FETCH_ADD: u32 = 0x12;
/// Changes a memory key: binds a window, or invalidates it.
pub(super) const CHANGE_KEY: u32 = 0x25;

/// The operations of completions by the opcodes of their entries. Entries with other opcodes are sends.
const COMPLETED: [WcOpcode; FETCH_ADD as usize + 1] = {
    let mut operations = [WcOpcode::IB_UVERBS_WC_SEND; FETCH_ADD as usize + 1];
    operations[WRITE as usize] = WcOpcode::IB_UVERBS_WC_RDMA_WRITE;
    operations[WRITE_WITH_IMMEDIATE as usize] = WcOpcode::IB_UVERBS_WC_RDMA_WRITE;
    operations[READ as usize] = WcOpcode::IB_UVERBS_WC_RDMA_READ;
    operations[COMPARE_SWAP as usize] = WcOpcode::IB_UVERBS_WC_COMP_SWAP;
    operations[FETCH_ADD as usize] = WcOpcode::IB_UVERBS_WC_FETCH_ADD;
    operations
};

/// Returns the operation of a completion whose entry had `opcode`.
#[inline(always)]
pub(super) fn completed_operation(opcode: u32) -> WcOpcode {
    COMPLETED.get(opcode as usize).copied().unwrap_or(WcOpcode::IB_UVERBS_WC_SEND)
}
