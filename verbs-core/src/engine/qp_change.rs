//! Changes of queue pairs.

use verbs_abi::{ib_qp_attr_mask, ib_uverbs_ex_modify_qp, ib_uverbs_modify_qp};

use super::device_context::DeviceContext;
use crate::sys::command::CommandError;
use crate::work::QpState;

/// A change of the attributes of a queue pair.
#[derive(Debug, Clone, Copy)]
pub struct QpChange {
    /// The attributes that the plain command supports.
    pub base: ib_uverbs_modify_qp,
    /// The rate limit in kbit/s, if it changes. Only the extended command has it.
    pub rate_limit: Option<u32>,
}

impl QpChange {
    /// Returns the state to which the queue pair moves, if its state changes.
    pub fn state(&self) -> Option<QpState> {
        let changes = self.base.attr_mask.contains(ib_qp_attr_mask::IB_QP_STATE);
        changes.then_some(self.base.qp_state)
    }

    /// Issues the command without a part for the driver.
    ///
    /// `IB_USER_VERBS_CMD_MODIFY_QP`, or `IB_USER_VERBS_EX_CMD_MODIFY_QP` if there is a rate limit.
    ///
    /// # Errors
    ///
    /// The errno of the kernel.
    pub fn issue(&self, device: &DeviceContext) -> Result<(), CommandError> {
        match self.rate_limit {
            None => device.file().command(self.base),
            Some(_) => device.file().command(self.extended()).map(drop),
        }
    }

    /// Returns the request of the extended command.
    pub(super) fn extended(&self) -> ib_uverbs_ex_modify_qp {
        let mut base = self.base;
        if self.rate_limit.is_some() {
            base.attr_mask |= ib_qp_attr_mask::IB_QP_RATE_LIMIT;
        }
        ib_uverbs_ex_modify_qp { base, rate_limit: self.rate_limit.unwrap_or(0), reserved: 0 }
    }
}
