//! Shared receive queues.
//!
//! # Safety
//!
//! Posting a request gives its memory to the device. The unsafe functions pass that contract on from their caller to
//! the driver: see [`RecvOps::store`](crate::driver::RecvOps::store).
#![expect(unsafe_code, reason = "posting gives memory to the device")]

use std::sync::Arc;

use verbs_abi::{ib_srq_attr_mask, ib_uverbs_create_srq_resp, ib_uverbs_modify_srq};

use super::cq::Cq;
use super::device_context::DeviceContext;
use crate::driver::{
    CreateError, CreateSrq, CreatedSrq, Driver as _, OnDestroyed, Posted, RecvOps as _,
};
use crate::drivers::any::AnyRecvRing;
use crate::sys::command::CommandError;
use crate::sys::mapping::Mapping;
use crate::work::ReceiveRequest;

/// A shared receive queue without its ring.
///
/// The caller owns the ring to which requests are posted, and passes it to each call that needs it.
#[derive(Debug)]
pub struct Srq {
    handle: u32,
    on_destroyed: Option<Box<dyn OnDestroyed>>,
}

/// A new shared receive queue.
#[derive(Debug)]
pub struct NewSrq {
    /// The queue.
    pub srq: Srq,
    /// The answer of the kernel.
    pub response: ib_uverbs_create_srq_resp,
    /// The ring that is posted to.
    pub ring: AnyRecvRing,
    /// The memory that the device uses until the queue is destroyed.
    pub memory: Option<Arc<Mapping>>,
}

impl Srq {
    /// Creates a shared receive queue. One in an XRC domain has a completion queue of its own, `cq`.
    pub fn create(
        device: &DeviceContext,
        request: CreateSrq,
        cq: Option<&Cq>,
    ) -> Result<NewSrq, CreateError> {
        let cq = cq.map(Cq::control);
        let created = device.driver().create_srq(device.commands(), request, cq)?;
        let CreatedSrq { response, ring, on_destroyed, memory } = created;
        let srq = Self { handle: response.srq_handle, on_destroyed };
        Ok(NewSrq { srq, response, ring, memory })
    }

    /// Handles that the kernel has destroyed the queue.
    pub fn on_destroyed(&self) {
        if let Some(part) = &self.on_destroyed {
            part.on_destroyed();
        }
    }

    /// Returns the name of the queue in commands.
    pub fn handle(&self) -> u32 {
        self.handle
    }

    /// Stores `request` if no other state must be checked and no doorbell is needed.
    ///
    /// Returns `false`, and stores nothing, otherwise.
    ///
    /// # Safety
    ///
    /// The caller keeps the contract of [`store`](Self::store). `ring` is that of this queue.
    #[inline(always)]
    pub unsafe fn try_store(
        &self,
        device: &DeviceContext,
        ring: &mut AnyRecvRing,
        request: &ReceiveRequest<'_>,
    ) -> bool {
        // SAFETY: the contract of this function is that of the callee.
        device.is_usable_fast() && unsafe { ring.try_store_request(request) }
    }

    /// Stores `request`.
    ///
    /// # Safety
    ///
    /// The caller keeps the contract of [`RecvOps::store`](crate::driver::RecvOps::store). `ring` is that of this
    /// queue.
    pub unsafe fn store(&self, ring: &mut AnyRecvRing, request: &ReceiveRequest<'_>) -> Posted {
        // SAFETY: the contract of this function is that of the callee.
        unsafe { ring.store(request) }
    }

    /// Rings the doorbell for the requests that were stored since the last time, if the device needs that.
    pub fn ring(&self, device: &DeviceContext, ring: &mut AnyRecvRing) -> Posted {
        ring.ring(device.file(), self.handle)
    }

    /// Sets the number of requests below which the kernel raises an event, once.
    ///
    /// `IB_USER_VERBS_CMD_MODIFY_SRQ`.
    pub fn set_limit(&self, device: &DeviceContext, limit: u32) -> Result<(), CommandError> {
        let request = ib_uverbs_modify_srq {
            attr_mask: ib_srq_attr_mask::IB_SRQ_LIMIT,
            srq_limit: limit,
            ..self.modification()
        };
        device.driver().set_srq_limit(device.commands(), request)
    }

    /// Changes the number of requests that the queue holds. `IB_USER_VERBS_CMD_MODIFY_SRQ`.
    ///
    /// After [`CreateError::Map`] every post fails.
    pub fn resize(
        &self,
        device: &DeviceContext,
        ring: &mut AnyRecvRing,
        max_wr: u32,
    ) -> Result<(), CreateError> {
        let request = ib_uverbs_modify_srq {
            attr_mask: ib_srq_attr_mask::IB_SRQ_MAX_WR,
            max_wr,
            ..self.modification()
        };
        ring.resize(device.commands(), request)
    }

    fn modification(&self) -> ib_uverbs_modify_srq {
        ib_uverbs_modify_srq { srq_handle: self.handle, ..ib_uverbs_modify_srq::default() }
    }
}

#[cfg(test)]
mod tests;
