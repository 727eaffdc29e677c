//! Boxed ends of queues: of any driver, or large ones of a known driver.
//!
//! # Safety
//!
//! Each unsafe function calls the function of the same name in the box, with its own arguments.
#![expect(unsafe_code, reason = "passes posts on")]

use std::sync::Arc;

use verbs_abi::{ib_uverbs_modify_srq, ib_uverbs_resize_cq};

use super::context::{CommandContext, Doorbell};
use super::error::{CreateError, PollError, Posted};
use super::interface::{CqOps, OrphanedRequests, RecvOps, SendOps};
use crate::sys::mapping::Mapping;
use crate::sys::uverbs::UverbsFile;
use crate::work::{Completion, QpState, ReceiveRequest, SendRequest, Sge};

impl<T: CqOps + ?Sized> CqOps for Box<T> {
    fn poll(&mut self, file: &UverbsFile, into: &mut [Completion]) -> Result<usize, PollError> {
        (**self).poll(file, into)
    }

    #[inline(always)]
    fn try_poll(&mut self, into: &mut [Completion]) -> Option<usize> {
        (**self).try_poll(into)
    }

    #[inline(always)]
    fn try_take(&mut self, into: &mut [Completion]) -> Option<usize> {
        (**self).try_take(into)
    }

    fn sweep(&mut self) {
        (**self).sweep();
    }

    fn resize(
        &mut self,
        cx: CommandContext<'_>,
        request: ib_uverbs_resize_cq,
        memory: &mut Option<Arc<Mapping>>,
    ) -> Result<u32, CreateError> {
        (**self).resize(cx, request, memory)
    }
}

impl<T: SendOps + ?Sized> SendOps for Box<T> {
    unsafe fn store(
        &mut self,
        at: Doorbell<'_>,
        state: QpState,
        request: &SendRequest<'_>,
    ) -> Posted {
        // SAFETY: the contract of this function is that of the callee.
        unsafe { (**self).store(at, state, request) }
    }

    #[inline(always)]
    unsafe fn try_store(&mut self, state: QpState, request: &SendRequest<'_>) -> bool {
        // SAFETY: the contract of this function is that of the callee.
        unsafe { (**self).try_store(state, request) }
    }

    #[inline(always)]
    fn ring(&mut self, at: Doorbell<'_>) -> Posted {
        (**self).ring(at)
    }

    fn orphans(&self) -> Option<Box<dyn OrphanedRequests>> {
        (**self).orphans()
    }
}

impl<T: RecvOps + ?Sized> RecvOps for Box<T> {
    fn check(&self, state: QpState) -> Posted {
        (**self).check(state)
    }

    unsafe fn store(&mut self, request: &ReceiveRequest<'_>) -> Posted {
        // SAFETY: the contract of this function is that of the callee.
        unsafe { (**self).store(request) }
    }

    #[inline(always)]
    unsafe fn try_store(&mut self, wr_id: u64, sge: Sge) -> bool {
        // SAFETY: the contract of this function is that of the callee.
        unsafe { (**self).try_store(wr_id, sge) }
    }

    #[inline]
    fn ring(&mut self, file: &UverbsFile, handle: u32) -> Posted {
        (**self).ring(file, handle)
    }

    fn orphans(&self) -> Option<Box<dyn OrphanedRequests>> {
        (**self).orphans()
    }

    fn resize(
        &mut self,
        cx: CommandContext<'_>,
        request: ib_uverbs_modify_srq,
    ) -> Result<(), CreateError> {
        (**self).resize(cx, request)
    }
}

#[cfg(test)]
mod tests;
