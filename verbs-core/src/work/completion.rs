//! Completions of work requests.

use verbs_abi::{ib_uverbs_wc, ib_wc_flags};
use zerocopy::FromZeros;

use super::{WcOpcode, WcStatus};

/// A completion of a work request.
#[doc(alias = "ibv_wc")]
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(transparent)]
pub struct Completion(pub ib_uverbs_wc);

impl Default for Completion {
    /// Returns an empty completion for a poll to fill.
    fn default() -> Self {
        Self(ib_uverbs_wc::new_zeroed())
    }
}

impl Completion {
    /// Returns the identifier of the request.
    pub fn wr_id(&self) -> u64 {
        self.0.wr_id.get()
    }

    /// Returns the status.
    ///
    /// After a failure, only the status, [`wr_id`](Self::wr_id), [`qp_num`](Self::qp_num) and
    /// [`vendor_err`](Self::vendor_err) are valid.
    pub fn status(&self) -> WcStatus {
        self.0.status
    }

    /// Returns `true` if the request succeeded.
    pub fn is_success(&self) -> bool {
        self.0.status == WcStatus::IB_WC_SUCCESS
    }

    /// Returns the operation of the request.
    ///
    /// # Driver notes
    ///
    /// rxe stores the operation of a send for flushed receives (Linux 6.12 at least).
    pub fn opcode(&self) -> WcOpcode {
        self.0.opcode
    }

    /// Returns the number of bytes that were received, read, or fetched by an atomic operation.
    ///
    /// For a datagram it includes the 40 bytes of the header before it.
    pub fn byte_len(&self) -> u32 {
        self.0.byte_len
    }

    /// Returns the number of the local queue pair.
    pub fn qp_num(&self) -> u32 {
        self.0.qp_num
    }

    /// Returns the number of the queue pair that sent a datagram.
    pub fn src_qp(&self) -> u32 {
        self.0.src_qp
    }

    /// Returns `true` if the request was a receive.
    ///
    /// # Driver notes
    ///
    /// On rxe this is `false` for flushed receives, because their [`opcode`](Self::opcode) is that of a send. To
    /// distinguish them, use their [`wr_id`](Self::wr_id), or a separate completion queue for receives.
    pub fn is_receive(&self) -> bool {
        self.0.opcode.0 & WcOpcode::IB_WC_RECV.0 != 0
    }

    /// Returns the immediate data of the message, if any.
    pub fn imm_data(&self) -> Option<u32> {
        // rxe sets the flag with the sender's completion too.
        self.0.imm_data().filter(|_| self.is_receive()).map(verbs_abi::Be32::get)
    }

    /// Returns the key of this side that the message has invalidated, if any.
    ///
    /// See [`SendOperation::SendWithInvalidate`](super::SendOperation::SendWithInvalidate). siw does not report it.
    #[doc(alias = "IBV_WC_WITH_INV")]
    pub fn invalidated_rkey(&self) -> Option<u32> {
        self.0.invalidate_rkey().filter(|_| self.is_receive())
    }

    /// Returns `true` if the first 40 bytes of a datagram's memory are a header.
    ///
    /// rxe returns `true` for messages on connections too, which have none.
    #[doc(alias = "IBV_WC_GRH")]
    pub fn has_grh(&self) -> bool {
        self.0.wc_flags.contains(ib_wc_flags::IB_WC_GRH)
    }

    /// Returns the index of the P_Key of a message to a management queue pair.
    pub fn pkey_index(&self) -> u16 {
        self.0.pkey_index
    }

    /// Returns the LID of a datagram's sender; 0 on RoCE.
    pub fn slid(&self) -> u16 {
        self.0.slid
    }

    /// Returns the service level of a datagram.
    pub fn sl(&self) -> u8 {
        self.0.sl
    }

    /// Returns the low bits of the local LID to which a datagram was sent.
    pub fn dlid_path_bits(&self) -> u8 {
        self.0.dlid_path_bits
    }

    /// Returns the local port, if the driver reports it.
    pub fn port_num(&self) -> u8 {
        self.0.port_num
    }

    /// Returns the vendor's error code of a failure.
    pub fn vendor_err(&self) -> u32 {
        self.0.vendor_err
    }

    /// Returns the flags of the completion.
    pub fn flags(&self) -> ib_wc_flags {
        self.0.wc_flags
    }
}

#[cfg(test)]
mod tests;
