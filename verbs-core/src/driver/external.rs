//! Drivers of other crates, as trait objects, which cost an indirect call.
//!
//! # Safety
//!
//! Each unsafe function calls the function of the driver in the trait object, with its own arguments.
#![expect(unsafe_code, reason = "passes registrations on")]

use std::any::Any;
use std::fmt::Debug;

use verbs_abi::{
    ib_uverbs_alloc_pd_resp, ib_uverbs_create_ah, ib_uverbs_create_ah_resp, ib_uverbs_create_cq,
    ib_uverbs_ex_create_qp, ib_uverbs_ex_modify_qp, ib_uverbs_modify_srq, ib_uverbs_reg_mr,
    ib_uverbs_reg_mr_resp,
};

use super::capabilities::Capabilities;
use super::context::CommandContext;
use super::error::CreateError;
use super::interface::{
    Arm, CqControlOps, CqControls, CqOps, CreateSrq, CreatedCq, CreatedQp, CreatedSrq, Driver,
    RecvOps, SendOps,
};
use crate::sys::command::CommandError;
use crate::work::{AddressVector, PdNumber};

/// A driver as a trait object.
#[derive(Debug)]
pub struct External(Box<dyn ErasedDriver>);

impl External {
    /// Converts `driver` into a trait object.
    pub fn new(driver: impl Driver) -> Self {
        Self(Box::new(driver))
    }
}

/// The shared part of a completion queue of any driver.
pub trait ErasedControl: CqControlOps {
    fn as_any(&self) -> &dyn Any;
}

impl<T: CqControlOps> ErasedControl for T {
    fn as_any(&self) -> &dyn Any {
        self
    }
}

/// The data of a queue pair of any driver.
pub trait ErasedData: Debug + Send + Sync {
    fn as_any(&self) -> &dyn Any;
}

impl<T: Debug + Send + Sync + 'static> ErasedData for T {
    fn as_any(&self) -> &dyn Any {
        self
    }
}

const OTHER_DRIVER: &str = "the object belongs to another driver";

/// Returns the completion queues of a queue pair in the type of driver `D`.
fn controls<'a, D: Driver>(cqs: &CqControls<'a, External>) -> Option<CqControls<'a, D>> {
    let send = (**cqs.send).as_any().downcast_ref()?;
    let recv = (**cqs.recv).as_any().downcast_ref()?;
    Some(CqControls { send, recv })
}

/// The functions of [`Driver`], without associated types.
///
/// # Safety
///
/// The implementation keeps the contract of [`Driver`].
pub(super) unsafe trait ErasedDriver: Debug + Send + Sync {
    fn capabilities(&self) -> Capabilities;

    fn create_cq(
        &self,
        cx: CommandContext<'_>,
        request: ib_uverbs_create_cq,
    ) -> Result<CreatedCq<External>, CreateError>;

    fn create_qp(
        &self,
        cx: CommandContext<'_>,
        request: ib_uverbs_ex_create_qp,
        cqs: CqControls<'_, External>,
    ) -> Result<CreatedQp<External>, CreateError>;

    fn create_srq(
        &self,
        cx: CommandContext<'_>,
        request: CreateSrq,
        cq: Option<&dyn ErasedControl>,
    ) -> Result<CreatedSrq<External>, CreateError>;

    fn create_ah(
        &self,
        cx: CommandContext<'_>,
        pd: PdNumber,
        request: ib_uverbs_create_ah,
    ) -> Result<(ib_uverbs_create_ah_resp, AddressVector), CreateError>;

    fn create_pd(&self, cx: CommandContext<'_>) -> Result<ib_uverbs_alloc_pd_resp, CommandError>;

    /// Registers memory.
    ///
    /// # Safety
    ///
    /// The caller keeps the contract of [`Driver::register`].
    unsafe fn register(
        &self,
        cx: CommandContext<'_>,
        request: ib_uverbs_reg_mr,
    ) -> Result<ib_uverbs_reg_mr_resp, CommandError>;

    fn set_srq_limit(
        &self,
        cx: CommandContext<'_>,
        request: ib_uverbs_modify_srq,
    ) -> Result<(), CommandError>;

    fn modify_qp_with_ece(
        &self,
        cx: CommandContext<'_>,
        request: ib_uverbs_ex_modify_qp,
        options: u32,
    ) -> Result<u32, CommandError>;

    fn on_reset(&self, qp: &dyn ErasedData, cqs: CqControls<'_, External>);

    fn on_destroyed(&self, qp: &dyn ErasedData, cqs: CqControls<'_, External>);
}

// SAFETY: each function passes on to the driver, which keeps the promise of `Driver`.
unsafe impl<D: Driver> ErasedDriver for D {
    fn capabilities(&self) -> Capabilities {
        Driver::capabilities(self)
    }

    fn create_cq(
        &self,
        cx: CommandContext<'_>,
        request: ib_uverbs_create_cq,
    ) -> Result<CreatedCq<External>, CreateError> {
        let CreatedCq { response, ring, control, memory } = Driver::create_cq(self, cx, request)?;
        Ok(CreatedCq { response, ring: Box::new(ring), control: Box::new(control), memory })
    }

    fn create_qp(
        &self,
        cx: CommandContext<'_>,
        request: ib_uverbs_ex_create_qp,
        cqs: CqControls<'_, External>,
    ) -> Result<CreatedQp<External>, CreateError> {
        let cqs = controls(&cqs).ok_or(CreateError::Unsupported(OTHER_DRIVER))?;
        let CreatedQp { response, send, recv, data, ece_options, memory } =
            Driver::create_qp(self, cx, request, cqs)?;
        let recv = recv.map(|ring| Box::new(ring) as Box<dyn RecvOps>);
        let (send, data) = (Box::new(send), Box::new(data));
        Ok(CreatedQp { response, send, recv, data, ece_options, memory })
    }

    fn create_srq(
        &self,
        cx: CommandContext<'_>,
        request: CreateSrq,
        cq: Option<&dyn ErasedControl>,
    ) -> Result<CreatedSrq<External>, CreateError> {
        let cq = match cq {
            Some(cq) => {
                Some(cq.as_any().downcast_ref().ok_or(CreateError::Unsupported(OTHER_DRIVER))?)
            }
            None => None,
        };
        let CreatedSrq { response, ring, on_destroyed, memory } =
            Driver::create_srq(self, cx, request, cq)?;
        Ok(CreatedSrq { response, ring: Box::new(ring), on_destroyed, memory })
    }

    fn create_ah(
        &self,
        cx: CommandContext<'_>,
        pd: PdNumber,
        request: ib_uverbs_create_ah,
    ) -> Result<(ib_uverbs_create_ah_resp, AddressVector), CreateError> {
        Driver::create_ah(self, cx, pd, request)
    }

    fn create_pd(&self, cx: CommandContext<'_>) -> Result<ib_uverbs_alloc_pd_resp, CommandError> {
        Driver::create_pd(self, cx)
    }

    unsafe fn register(
        &self,
        cx: CommandContext<'_>,
        request: ib_uverbs_reg_mr,
    ) -> Result<ib_uverbs_reg_mr_resp, CommandError> {
        // SAFETY: the contract of this function is that of the callee.
        unsafe { Driver::register(self, cx, request) }
    }

    fn set_srq_limit(
        &self,
        cx: CommandContext<'_>,
        request: ib_uverbs_modify_srq,
    ) -> Result<(), CommandError> {
        Driver::set_srq_limit(self, cx, request)
    }

    fn modify_qp_with_ece(
        &self,
        cx: CommandContext<'_>,
        request: ib_uverbs_ex_modify_qp,
        options: u32,
    ) -> Result<u32, CommandError> {
        Driver::modify_qp_with_ece(self, cx, request, options)
    }

    fn on_reset(&self, qp: &dyn ErasedData, cqs: CqControls<'_, External>) {
        if let (Some(qp), Some(cqs)) = (qp.as_any().downcast_ref(), controls(&cqs)) {
            Driver::on_reset(self, qp, cqs);
        }
    }

    fn on_destroyed(&self, qp: &dyn ErasedData, cqs: CqControls<'_, External>) {
        if let (Some(qp), Some(cqs)) = (qp.as_any().downcast_ref(), controls(&cqs)) {
            Driver::on_destroyed(self, qp, cqs);
        }
    }
}

// SAFETY: each function passes on to a driver, which keeps the promise of `Driver`.
unsafe impl Driver for External {
    type CqRing = Box<dyn CqOps>;
    type CqControl = Box<dyn ErasedControl>;
    type SendRing = Box<dyn SendOps>;
    type RecvRing = Box<dyn RecvOps>;
    type QpData = Box<dyn ErasedData>;

    fn capabilities(&self) -> Capabilities {
        self.0.capabilities()
    }

    fn create_cq(
        &self,
        cx: CommandContext<'_>,
        request: ib_uverbs_create_cq,
    ) -> Result<CreatedCq<Self>, CreateError> {
        self.0.create_cq(cx, request)
    }

    fn create_qp(
        &self,
        cx: CommandContext<'_>,
        request: ib_uverbs_ex_create_qp,
        cqs: CqControls<'_, Self>,
    ) -> Result<CreatedQp<Self>, CreateError> {
        self.0.create_qp(cx, request, cqs)
    }

    fn create_srq(
        &self,
        cx: CommandContext<'_>,
        request: CreateSrq,
        cq: Option<&Self::CqControl>,
    ) -> Result<CreatedSrq<Self>, CreateError> {
        self.0.create_srq(cx, request, cq.map(|cq| &**cq))
    }

    fn create_ah(
        &self,
        cx: CommandContext<'_>,
        pd: PdNumber,
        request: ib_uverbs_create_ah,
    ) -> Result<(ib_uverbs_create_ah_resp, AddressVector), CreateError> {
        self.0.create_ah(cx, pd, request)
    }

    fn create_pd(&self, cx: CommandContext<'_>) -> Result<ib_uverbs_alloc_pd_resp, CommandError> {
        self.0.create_pd(cx)
    }

    unsafe fn register(
        &self,
        cx: CommandContext<'_>,
        request: ib_uverbs_reg_mr,
    ) -> Result<ib_uverbs_reg_mr_resp, CommandError> {
        // SAFETY: the contract of this function is that of the callee.
        unsafe { self.0.register(cx, request) }
    }

    fn set_srq_limit(
        &self,
        cx: CommandContext<'_>,
        request: ib_uverbs_modify_srq,
    ) -> Result<(), CommandError> {
        self.0.set_srq_limit(cx, request)
    }

    fn modify_qp_with_ece(
        &self,
        cx: CommandContext<'_>,
        request: ib_uverbs_ex_modify_qp,
        options: u32,
    ) -> Result<u32, CommandError> {
        self.0.modify_qp_with_ece(cx, request, options)
    }

    fn on_reset(&self, qp: &Self::QpData, cqs: CqControls<'_, Self>) {
        self.0.on_reset(&**qp, cqs);
    }

    fn on_destroyed(&self, qp: &Self::QpData, cqs: CqControls<'_, Self>) {
        self.0.on_destroyed(&**qp, cqs);
    }
}

impl CqControlOps for Box<dyn ErasedControl> {
    fn arm(&self, cx: CommandContext<'_>, arm: &Arm<'_>) -> Result<(), CommandError> {
        (**self).arm(cx, arm)
    }

    fn is_armed(&self) -> bool {
        (**self).is_armed()
    }
}

#[cfg(test)]
mod tests;
