//! The traits that a driver implements.
//!
//! # Safety
//!
//! The memory of a request must live until its completion. The unsafe functions pass this contract on from the caller
//! of a post or a registration. The unsafe trait [`Driver`] promises that a completion has this meaning.
#![expect(unsafe_code, reason = "posting and registering give memory to the device")]

use std::fmt::Debug;
use std::os::fd::OwnedFd;
use std::sync::Arc;

use nix::errno::Errno;
use verbs_abi::{
    AlignedU64, ib_uverbs_alloc_pd, ib_uverbs_alloc_pd_resp, ib_uverbs_create_ah,
    ib_uverbs_create_ah_resp, ib_uverbs_create_cq, ib_uverbs_create_cq_resp,
    ib_uverbs_create_qp_resp, ib_uverbs_create_srq, ib_uverbs_create_srq_resp,
    ib_uverbs_create_xsrq, ib_uverbs_ex_create_qp, ib_uverbs_ex_modify_qp, ib_uverbs_modify_srq,
    ib_uverbs_reg_mr, ib_uverbs_reg_mr_resp, ib_uverbs_resize_cq, rdma_driver_id,
};

use super::capabilities::Capabilities;
use super::checks;
use super::context::{CommandContext, Doorbell};
use super::error::{CreateError, PollError, Posted};
use crate::sync::AtomicU32;
use crate::sys::command::CommandError;
use crate::sys::mapping::Mapping;
use crate::sys::uverbs::UverbsFile;
use crate::work::{AddressVector, Completion, PdNumber, QpState, ReceiveRequest, SendRequest, Sge};

/// The facts about a device by which its driver is chosen.
#[derive(Debug, Clone, Copy)]
pub struct DeviceInfo {
    /// The kernel's driver.
    pub driver: Option<rdma_driver_id>,
    /// The version of the driver's part of commands, if the kernel reports it.
    pub abi_version: Option<u32>,
}

impl DeviceInfo {
    /// Returns `true` for a device of `driver`, unless the kernel reports another ABI version.
    pub fn is(&self, driver: rdma_driver_id, version: u32) -> bool {
        self.driver == Some(driver) && self.abi_version.is_none_or(|known| known == version)
    }
}

/// The answer of GET_CONTEXT.
#[derive(Debug)]
pub struct Opened {
    /// The descriptor of the device's asynchronous events.
    pub async_events: OwnedFd,
    /// The number of completion vectors.
    pub completion_vectors: u32,
}

/// A driver that is tried when a device is opened.
pub trait BuiltIn: Driver {
    /// Returns `true` if this is the driver for `device`, whose file is `file`.
    fn supports(device: &DeviceInfo, file: &UverbsFile) -> bool;

    /// Makes `file` a context of the device. `IB_USER_VERBS_CMD_GET_CONTEXT`.
    ///
    /// A file can be a context only once. A driver that needs a second attempt [opens the node
    /// again](UverbsFile::reopen), and replaces `file`.
    fn open(device: &DeviceInfo, file: &mut UverbsFile) -> Result<(Self, Opened), CreateError>;
}

/// The driver of an open device.
///
/// # Safety
///
/// A completion of a request means that the device no longer uses the memory of the request. A ring
/// gives each completion out once, and only for a request that was posted to the queue pair whose
/// number the completion has.
pub unsafe trait Driver: Sized + Debug + Send + Sync + 'static {
    /// The part of a completion queue from which completions are polled.
    type CqRing: CqOps;
    /// The part of a completion queue that is shared: arming does not wait for a thread that polls.
    type CqControl: CqControlOps;
    /// The part of a send queue to which requests are posted.
    type SendRing: SendOps;
    /// The part of a receive queue to which requests are posted.
    type RecvRing: RecvOps;
    /// The part of a queue pair that belongs to neither queue alone.
    type QpData: Debug + Send + Sync + 'static;

    /// Returns the properties in which this driver differs from others.
    fn capabilities(&self) -> Capabilities;

    /// Creates a completion queue.
    fn create_cq(
        &self,
        cx: CommandContext<'_>,
        request: ib_uverbs_create_cq,
    ) -> Result<CreatedCq<Self>, CreateError>;

    /// Creates a queue pair on the completion queues of `cqs`.
    ///
    /// It has a receive queue unless it receives from a shared one.
    fn create_qp(
        &self,
        cx: CommandContext<'_>,
        request: ib_uverbs_ex_create_qp,
        cqs: CqControls<'_, Self>,
    ) -> Result<CreatedQp<Self>, CreateError>;

    /// Creates a shared receive queue. One in an XRC domain has a completion queue of its own, `cq`.
    fn create_srq(
        &self,
        cx: CommandContext<'_>,
        request: CreateSrq,
        cq: Option<&Self::CqControl>,
    ) -> Result<CreatedSrq<Self>, CreateError>;

    /// Creates an address handle in protection domain `pd`.
    fn create_ah(
        &self,
        cx: CommandContext<'_>,
        pd: PdNumber,
        request: ib_uverbs_create_ah,
    ) -> Result<(ib_uverbs_create_ah_resp, AddressVector), CreateError>;

    /// Creates a protection domain. `IB_USER_VERBS_CMD_ALLOC_PD`.
    fn create_pd(&self, cx: CommandContext<'_>) -> Result<ib_uverbs_alloc_pd_resp, CommandError> {
        let request = ib_uverbs_alloc_pd { response: AlignedU64::default() };
        cx.command(request).map(|(response, ())| response)
    }

    /// Registers memory. `IB_USER_VERBS_CMD_REG_MR`.
    ///
    /// # Safety
    ///
    /// - The range of addresses in `request` is valid for reads, and for writes if the access flags let a device or a
    ///   peer write. It stays valid until the region is deregistered, along with all memory windows that were ever
    ///   bound to it.
    /// - Until then, Rust references neither borrow memory that a device may write, nor mutably borrow memory that it
    ///   may read. The exception is a time in which no work request and no peer accesses the memory.
    unsafe fn register(
        &self,
        cx: CommandContext<'_>,
        request: ib_uverbs_reg_mr,
    ) -> Result<ib_uverbs_reg_mr_resp, CommandError> {
        // SAFETY: the contract of this function is that of the callee.
        let registered = unsafe { cx.file().register_memory(request, ()) };
        registered.map(|(response, ())| response)
    }

    /// Changes the limit of a shared receive queue. `IB_USER_VERBS_CMD_MODIFY_SRQ`.
    fn set_srq_limit(
        &self,
        cx: CommandContext<'_>,
        request: ib_uverbs_modify_srq,
    ) -> Result<(), CommandError> {
        cx.file().command(request)
    }

    /// Changes a queue pair, and asks the device to use the ECE options `options`.
    ///
    /// ECE is enhanced connection establishment. `options` is not 0.
    ///
    /// Returns the options that the device uses.
    ///
    /// Kernel command: `IB_USER_VERBS_EX_CMD_MODIFY_QP`.
    ///
    /// A driver that names a vendor in [`Capabilities::ece_vendor`] implements this function.
    fn modify_qp_with_ece(
        &self,
        _cx: CommandContext<'_>,
        _request: ib_uverbs_ex_modify_qp,
        _options: u32,
    ) -> Result<u32, CommandError> {
        Err(CommandError::Os(Errno::EOPNOTSUPP))
    }

    /// Forgets the earlier completions of a queue pair that the kernel has moved to RESET.
    fn on_reset(&self, _qp: &Self::QpData, _cqs: CqControls<'_, Self>) {}

    /// Handles a queue pair that the kernel has destroyed.
    ///
    /// A completion queue no longer finds the queue pair by its number.
    fn on_destroyed(&self, _qp: &Self::QpData, _cqs: CqControls<'_, Self>) {}
}

/// The completion queues of a queue pair.
#[derive(Debug)]
pub struct CqControls<'a, D: Driver> {
    /// The queue on which sends complete.
    pub send: &'a D::CqControl,
    /// The queue on which receives complete.
    pub recv: &'a D::CqControl,
}

/// The command that creates a shared receive queue.
#[derive(Debug, Clone, Copy)]
pub enum CreateSrq {
    /// A queue outside of XRC domains.
    Plain(ib_uverbs_create_srq),
    /// A queue in an XRC domain.
    Xrc(ib_uverbs_create_xsrq),
}

impl CreateSrq {
    /// Returns the number of requests, and the number of their scatter/gather entries.
    pub fn capacity(&mut self) -> (&mut u32, &mut u32) {
        match self {
            Self::Plain(request) => (&mut request.max_wr, &mut request.max_sge),
            Self::Xrc(request) => (&mut request.max_wr, &mut request.max_sge),
        }
    }
}

/// A new completion queue.
#[derive(Debug)]
pub struct CreatedCq<D: Driver> {
    /// The answer of the kernel.
    pub response: ib_uverbs_create_cq_resp,
    /// The end that is polled.
    pub ring: D::CqRing,
    /// The part that threads share.
    pub control: D::CqControl,
    /// The memory that the device uses until the queue is destroyed.
    pub memory: Option<Arc<Mapping>>,
}

/// A new queue pair.
#[derive(Debug)]
pub struct CreatedQp<D: Driver> {
    /// The answer of the kernel.
    pub response: ib_uverbs_create_qp_resp,
    /// The send queue.
    pub send: D::SendRing,
    /// Absent if the queue pair has no receive queue.
    pub recv: Option<D::RecvRing>,
    /// The part that belongs to neither queue alone.
    pub data: D::QpData,
    /// The options of enhanced connection establishment (ECE) that the device offers, or 0.
    pub ece_options: u32,
    /// The memory that the device uses until the queue pair is destroyed.
    pub memory: Option<Arc<Mapping>>,
}

/// A new shared receive queue.
#[derive(Debug)]
pub struct CreatedSrq<D: Driver> {
    /// The answer of the kernel.
    pub response: ib_uverbs_create_srq_resp,
    /// The end that is posted to.
    pub ring: D::RecvRing,
    /// The driver's reaction to the destruction of the queue; absent if the driver needs no call.
    pub on_destroyed: Option<Box<dyn OnDestroyed>>,
    /// The memory that the device uses until the queue is destroyed.
    pub memory: Option<Arc<Mapping>>,
}

/// The reaction of a driver to the destruction of a queue.
pub trait OnDestroyed: Debug + Send + Sync {
    /// Handles that the kernel has destroyed the queue.
    ///
    /// A completion queue no longer finds the queue by its number.
    fn on_destroyed(&self);
}

/// The part of a completion queue from which completions are polled.
pub trait CqOps: Debug + Send + 'static {
    /// Takes completions off the queue, and returns their number. `file` is the file of the device.
    fn poll(&mut self, file: &UverbsFile, into: &mut [Completion]) -> Result<usize, PollError>;

    /// Takes completions off the queue if that is quick.
    ///
    /// Returns `None`, and takes no completion, if the poll would be slow or fails.
    #[inline(always)]
    fn try_poll(&mut self, _into: &mut [Completion]) -> Option<usize> {
        None
    }

    /// Takes one completion in few instructions, after [`try_poll`](Self::try_poll) has returned `None`.
    ///
    /// `_into` has one element. Returns `None`, and takes no completion, if the common case does not apply. This is a
    /// separate function, so that an empty poll does not save registers for it.
    #[inline(always)]
    fn try_take(&mut self, _into: &mut [Completion]) -> Option<usize> {
        None
    }

    /// Removes completions of queue pairs that were reset or destroyed, to make room for others.
    ///
    /// The caller of the engine calls this function after such a change, unless another thread polls. By default
    /// there are no such completions.
    fn sweep(&mut self) {}

    /// Changes the size of the queue, and returns it. `IB_USER_VERBS_CMD_RESIZE_CQ`.
    ///
    /// If the device writes into other memory of this process from now on, the driver stores that memory in `memory`,
    /// even if the call fails. The owner of the queue keeps it, beside the memory from the creation of the queue, until
    /// the queue is destroyed or has other memory again.
    ///
    /// After [`CreateError::Map`] the ring must not be used.
    fn resize(
        &mut self,
        cx: CommandContext<'_>,
        request: ib_uverbs_resize_cq,
        _memory: &mut Option<Arc<Mapping>>,
    ) -> Result<u32, CreateError> {
        Ok(cx.file().command(request)?.cqe)
    }
}

/// The part of a completion queue that threads share.
pub trait CqControlOps: Debug + Send + Sync + 'static {
    /// Asks for an event with the next completion.
    fn arm(&self, cx: CommandContext<'_>, arm: &Arm<'_>) -> Result<(), CommandError>;

    /// Returns `true` if a thread may wait for an event of the queue, as far as this process can see.
    fn is_armed(&self) -> bool {
        false
    }
}

/// The parameters of arming a completion queue.
#[derive(Debug)]
pub struct Arm<'a> {
    /// The kernel's handle of the queue.
    pub cq_handle: u32,
    /// `true` if only completions that the sender marked as solicited raise the event.
    pub solicited_only: bool,
    /// The number of events of the queue that were read from its channel.
    pub events_read: &'a AtomicU32,
}

/// The end of a send queue that is posted to.
pub trait SendOps: Debug + Send + 'static {
    /// Stores `request` in the queue of the queue pair `at`, which is in `state`.
    ///
    /// The device may execute the request at once, and does so when the [doorbell](Self::ring) rings.
    ///
    /// # Safety
    ///
    /// The following holds for the memory to which a [`Payload::Gather`](crate::work::Payload::Gather) refers by
    /// addresses and keys. It holds until the request has completed (for an unsignaled request, until a later request
    /// of the queue has), or until the queue pair is destroyed. The memory
    /// - stays allocated and registered;
    /// - is not written, and for a read neither written nor read, except in ways that allow concurrent access of a
    ///   device.
    unsafe fn store(
        &mut self,
        at: Doorbell<'_>,
        state: QpState,
        request: &SendRequest<'_>,
    ) -> Posted;

    /// Stores `request` if that is quick.
    ///
    /// Returns `false`, and stores nothing, if the store would be slow or fails.
    ///
    /// # Safety
    ///
    /// The caller keeps the contract of [`store`](Self::store).
    #[inline(always)]
    unsafe fn try_store(&mut self, _state: QpState, _request: &SendRequest<'_>) -> bool {
        false
    }

    /// Rings the doorbell for the requests that were stored since it was last rung.
    fn ring(&mut self, at: Doorbell<'_>) -> Posted;

    /// Returns the requests that the kernel never completes, if the driver leaves any.
    fn orphans(&self) -> Option<Box<dyn OrphanedRequests>> {
        None
    }
}

/// The end of a receive queue that is posted to.
pub trait RecvOps: Debug + Send + 'static {
    /// Checks that requests can be posted to a queue pair in `state`.
    fn check(&self, state: QpState) -> Posted {
        checks::check_receive(state)
    }

    /// Stores `request`.
    ///
    /// # Safety
    ///
    /// Until the request has completed, or its queue is destroyed, the memory that it names by its addresses and keys
    /// - stays allocated and registered;
    /// - is neither written nor read, except in ways that cope with a device that writes to it.
    unsafe fn store(&mut self, request: &ReceiveRequest<'_>) -> Posted;

    /// Stores a request for the non-empty `sge`, if that is quick and needs no doorbell.
    ///
    /// Returns `false`, and stores nothing, if the store would be slow, needs a doorbell or fails.
    ///
    /// # Safety
    ///
    /// The caller keeps the contract of [`store`](Self::store).
    #[inline(always)]
    unsafe fn try_store(&mut self, _wr_id: u64, _sge: Sge) -> bool {
        false
    }

    /// Rings the doorbell of the queue that the kernel knows as `handle`, if the device needs that.
    #[inline]
    fn ring(&mut self, _file: &UverbsFile, _handle: u32) -> Posted {
        Ok(())
    }

    /// Returns the requests that the kernel never completes, if the driver leaves any.
    fn orphans(&self) -> Option<Box<dyn OrphanedRequests>> {
        None
    }

    /// Changes the size of a shared receive queue. `IB_USER_VERBS_CMD_MODIFY_SRQ`.
    ///
    /// After [`CreateError::Map`] the ring must not be used.
    fn resize(
        &mut self,
        cx: CommandContext<'_>,
        request: ib_uverbs_modify_srq,
    ) -> Result<(), CreateError> {
        Ok(cx.file().command(request)?)
    }
}

/// Requests that the kernel never completes: the library completes them once the queue pair is in ERR.
pub trait OrphanedRequests: Debug + Send + Sync {
    /// Takes the requests back. Returns their identifiers, in order.
    fn take(&self) -> Vec<u64>;
}

#[cfg(test)]
mod tests;
