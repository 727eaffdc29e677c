//! Enhanced connection establishment (ECE): the options in messages, and those of the id's queue pair.

use ucma_abi::rdma_ucm_ece;

use super::own_qp::OwnQp;
use super::record::{Inner, State};
use crate::error::{Error, Result};
use crate::verbs::Ece;

/// The highest vendor number that fits into the messages.
pub(super) const MAX_VENDOR: u32 = 0xff_ffff;

impl From<rdma_ucm_ece> for Ece {
    fn from(ece: rdma_ucm_ece) -> Self {
        Self { vendor_id: ece.vendor_id, options: ece.attr_mod }
    }
}

impl From<Ece> for rdma_ucm_ece {
    fn from(ece: Ece) -> Self {
        Self { vendor_id: ece.vendor_id, attr_mod: ece.options }
    }
}

impl State {
    /// Notes the options that the id's new queue pair offers. If a peer has sent options, requests them.
    pub(super) fn offer_ece(&mut self, qp: &OwnQp) -> Result<()> {
        self.local_ece = qp.ece().unwrap_or_default();
        match self.remote_ece.vendor_id {
            0 => Ok(()),
            _ => qp.request_ece(self.remote_ece),
        }
    }

    /// Notes the options that the queue pair uses since its last change, if the peer has sent options.
    pub(super) fn record_ece(&mut self, qp: &OwnQp) {
        if self.remote_ece.vendor_id != 0 {
            self.local_ece.options = qp.ece().unwrap_or_default().options;
        }
    }

    /// Returns the options with which the id answers those of the peer.
    pub(super) fn answer_ece(&self) -> Ece {
        Ece { vendor_id: self.remote_ece.vendor_id, options: self.local_ece.options }
    }
}

impl Inner {
    /// Requests the options `answer` of the peer that has accepted.
    ///
    /// A peer or a kernel that does not know ECE answers with vendor 0.
    pub(super) fn take_ece_answer(&self, qp: &OwnQp, answer: Ece) -> Result<()> {
        let own = {
            let mut state = self.state();
            state.remote_ece = answer;
            state.local_ece.vendor_id
        };
        if answer.vendor_id != 0 && answer.vendor_id != own {
            let other = answer.vendor_id;
            let reason = format!("the vendor_id of the options is {other:#x} instead of {own:#x}");
            return Err(Error::invalid(
                "apply the ECE options of the peer of",
                self.to_string(),
                reason,
            ));
        }
        qp.request_ece(answer)
    }
}

#[cfg(all(test, feature = "null", not(loom)))]
mod tests;
