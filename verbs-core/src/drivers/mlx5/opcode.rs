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

/// Returns the operation of a completion whose entry had `opcode`.
#[inline(always)]
pub(super) fn completed_operation(opcode: u32) -> WcOpcode {
    match opcode {
        WRITE | WRITE_WITH_IMMEDIATE => WcOpcode::IB_UVERBS_WC_RDMA_WRITE,
        READ => WcOpcode::IB_UVERBS_WC_RDMA_READ,
        COMPARE_SWAP => WcOpcode::IB_UVERBS_WC_COMP_SWAP,
        FETCH_ADD => WcOpcode::IB_UVERBS_WC_FETCH_ADD,
        _ => WcOpcode::IB_UVERBS_WC_SEND,
    }
}
