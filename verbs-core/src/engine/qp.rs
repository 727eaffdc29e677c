//! Queue pairs.
//!
//! # Safety
//!
//! Posting a request gives its memory to the device. The unsafe functions pass that contract on from their caller to
//! the driver: see [`SendOps::store`] and [`RecvOps::store`](crate::driver::RecvOps::store).
#![expect(unsafe_code, reason = "posting gives memory to the device")]

use std::sync::atomic::{AtomicBool, AtomicU8, AtomicU32, Ordering, fence};
use std::sync::{Arc, Mutex, MutexGuard};

use verbs_abi::{
    ib_qp_attr_mask, ib_uverbs_create_qp_resp, ib_uverbs_ex_create_qp, ib_uverbs_modify_qp,
};

use super::device_context::DeviceContext;
use super::drain_marker::QueueSide;
use super::qp_change::QpChange;
use crate::driver::{
    CqControls, CreateError, CreatedQp, Doorbell, Driver as _, FlushMode, OrphanedRequests,
    PostError, Posted, RecvOps as _, SendOps,
};
use crate::drivers::any::{AnyDriver, AnyQpData, AnyRecvRing, AnySendRing};
use crate::lock::ignore_poison;
use crate::sys::command::CommandError;
use crate::sys::mapping::Mapping;
use crate::work::{
    Payload, PdNumber, QpState, QpType, ReceiveRequest, SendFlags, SendOperation, SendRequest,
};

/// A queue pair without its rings.
///
/// The caller owns the rings to which requests are posted, and passes them to each call that needs one.
#[derive(Debug)]
pub struct Qp {
    handle: u32,
    number: u32,
    qp_type: QpType,
    /// `true` if an operation needs no address: the queue pair is neither for datagrams nor an XRC initiator.
    sends_to_peer: bool,
    pd: PdNumber,
    /// The state that the last successful modification requested.
    ///
    /// The kernel may have moved the queue pair on to ERR, and on iWARP to RTS.
    state: AtomicU8,
    flush: FlushMode,
    /// Held while the kernel changes the queue pair, and while orphaned requests are taken.
    ///
    /// A thread that holds it waits for no ring, because a thread that holds a ring may wait for this lock, or for the
    /// completions of the change.
    changing: Mutex<()>,
    /// `true` if the owner of the queues flushes requests after posting them in ERR.
    defers_flush: AtomicBool,
    /// `true` if a request was posted in ERR and not flushed yet.
    owes_flush: AtomicBool,
    data: AnyQpData,
    /// The options of enhanced connection establishment (ECE) that the device uses, or offers.
    ece_options: AtomicU32,
    /// The options that the next modification asks the device to use, or 0.
    ece_request: AtomicU32,
    send_orphans: Option<Box<dyn OrphanedRequests>>,
    recv_orphans: Option<Box<dyn OrphanedRequests>>,
}

/// A new queue pair, in the state RESET.
#[derive(Debug)]
pub struct NewQp {
    /// The queue pair.
    pub qp: Qp,
    /// The answer of the kernel.
    pub response: ib_uverbs_create_qp_resp,
    /// The ring of the send queue.
    pub send: AnySendRing,
    /// The ring of the receive queue; absent if the queue pair has none.
    pub recv: Option<AnyRecvRing>,
    /// The memory that the device uses until the queue pair is destroyed.
    pub memory: Option<Arc<Mapping>>,
}

/// The owner of a queue pair, which has its completion queues.
pub trait QpOwner {
    /// Returns the completion queues, for the driver.
    fn cqs(&self) -> CqControls<'_, AnyDriver>;

    /// Completes requests that the driver never completes, with flush errors.
    ///
    /// No other thread does so at the same time.
    fn complete_orphans(&self, side: QueueSide, wr_ids: &[u64]);

    /// Returns `true` if there is room for another such completion.
    fn can_complete_orphan(&self, side: QueueSide) -> bool;
}

impl Qp {
    /// Creates a queue pair in protection domain `pd` on the completion queues of `cqs`.
    ///
    /// The handle of `pd` is in `request`.
    pub fn create(
        device: &DeviceContext,
        pd: PdNumber,
        request: ib_uverbs_ex_create_qp,
        cqs: CqControls<'_, AnyDriver>,
    ) -> Result<NewQp, CreateError> {
        let qp_type = request.qp_type;
        let created = device.driver().create_qp(device.commands(), request, cqs)?;
        let CreatedQp { response, send, recv, data, ece_options, memory } = created;
        let qp = Self {
            handle: response.qp_handle,
            number: response.qpn,
            qp_type,
            sends_to_peer: !matches!(
                qp_type,
                QpType::IB_UVERBS_QPT_UD | QpType::IB_UVERBS_QPT_XRC_INI
            ),
            pd,
            state: AtomicU8::new(QpState::IB_QPS_RESET.0),
            flush: device.capabilities().flush,
            changing: Mutex::default(),
            defers_flush: AtomicBool::new(false),
            owes_flush: AtomicBool::new(false),
            data,
            ece_options: AtomicU32::new(ece_options),
            ece_request: AtomicU32::new(0),
            send_orphans: send.orphans(),
            recv_orphans: recv.as_ref().and_then(|recv| recv.orphans()),
        };
        Ok(NewQp { qp, response, send, recv, memory })
    }

    /// Returns the name of the queue pair in commands.
    #[inline]
    pub fn handle(&self) -> u32 {
        self.handle
    }

    /// Returns the number of the queue pair.
    #[inline]
    pub fn number(&self) -> u32 {
        self.number
    }

    /// Returns the type of the queue pair.
    #[inline]
    pub fn qp_type(&self) -> QpType {
        self.qp_type
    }

    /// Returns the state that the last successful modification requested.
    ///
    /// The kernel may have moved the queue pair on.
    #[inline]
    pub fn state(&self) -> QpState {
        QpState(self.state.load(Ordering::Acquire))
    }

    fn set_state(&self, state: QpState) {
        self.state.store(state.0, Ordering::Release);
    }

    #[inline]
    fn doorbell<'a>(&'a self, device: &'a DeviceContext) -> Doorbell<'a> {
        Doorbell { file: device.file(), handle: self.handle, changing: &self.changing }
    }

    // The send queue.

    /// Stores `request` if no other state must be checked.
    ///
    /// Returns `false`, and stores nothing, otherwise.
    ///
    /// # Safety
    ///
    /// The caller keeps the contract of [`store_send`](Self::store_send). `ring` is the send queue of this queue pair.
    #[inline(always)]
    pub unsafe fn try_store_send(
        &self,
        device: &DeviceContext,
        ring: &mut impl SendOps,
        request: &SendRequest<'_>,
    ) -> bool {
        let state = self.state();
        let can_post = state != QpState::IB_QPS_ERR
            && device.is_usable_fast()
            && self.is_common(request)
            && SendFlags::all().contains(request.flags);
        // SAFETY: the contract of this function is that of the callee.
        can_post && unsafe { ring.try_store(state, request) }
    }

    /// Returns `true` if the queue pair supports the operation, and the operation supports the payload.
    ///
    /// Other requests may be correct too.
    #[inline(always)]
    fn is_common(&self, request: &SendRequest<'_>) -> bool {
        match request.operation {
            SendOperation::Send
            | SendOperation::SendWithImm { .. }
            | SendOperation::SendWithInvalidate { .. }
            | SendOperation::Write { .. }
            | SendOperation::WriteWithImm { .. } => self.sends_to_peer,
            SendOperation::Read { .. } => {
                let reads = self.qp_type == QpType::IB_UVERBS_QPT_RC;
                reads && matches!(request.payload, Payload::Gather(_))
            }
            SendOperation::SendTo { destination, .. } => {
                self.qp_type == QpType::IB_UVERBS_QPT_UD && destination.address.pd() == self.pd
            }
            _ => false,
        }
    }

    /// Checks that the queue pair can carry out `request` in its state, which is returned.
    ///
    /// The kernel detects an error only when it executes the request, and then ends the queue pair.
    pub fn check_send(&self, owner: &impl QpOwner, request: &SendRequest<'_>) -> Posted<QpState> {
        let checked = self.check_operation(&request.operation).and_then(|()| request.check());
        checked.map_err(PostError::Invalid)?;
        self.check_send_state(owner)
    }

    /// Checks that a request of the send queue completes in the state of the queue pair, which is returned.
    pub fn check_send_state(&self, owner: &impl QpOwner) -> Posted<QpState> {
        let state = self.state();
        if state == QpState::IB_QPS_ERR {
            self.check_orphan(owner, QueueSide::Send)?;
        }
        Ok(state)
    }

    fn check_operation(&self, operation: &SendOperation<'_>) -> Result<(), &'static str> {
        match (self.qp_type, operation) {
            (QpType::IB_UVERBS_QPT_UD, SendOperation::SendTo { destination, .. }) => {
                match destination.address.pd() == self.pd {
                    true => Ok(()),
                    false => Err("the address handle belongs to another protection domain"),
                }
            }
            (QpType::IB_UVERBS_QPT_UD, _) => Err("queue pairs of type UD support only `SendTo`"),
            (_, SendOperation::SendTo { .. }) => {
                Err("only queue pairs of type UD support `SendTo`")
            }
            (QpType::IB_UVERBS_QPT_XRC_INI, _) => Ok(()),
            (_, SendOperation::AtSharedQueue { .. }) => {
                Err("only XRC initiators support `AtSharedQueue`")
            }
            (
                QpType::IB_UVERBS_QPT_UC,
                SendOperation::Read { .. }
                | SendOperation::CompareSwap { .. }
                | SendOperation::FetchAdd { .. }
                | SendOperation::AtomicWrite { .. }
                | SendOperation::Flush { .. },
            ) => Err("queue pairs of type UC support no reads, atomics or flushes"),
            _ => Ok(()),
        }
    }

    /// Stores `request`, which was checked when the queue pair was in `state`.
    ///
    /// # Safety
    ///
    /// The caller keeps the contract of [`SendOps::store`]. `ring` is the send queue of this queue pair.
    pub unsafe fn store_send(
        &self,
        device: &DeviceContext,
        ring: &mut dyn SendOps,
        state: QpState,
        request: &SendRequest<'_>,
    ) -> Posted {
        // SAFETY: the contract of this function is that of the callee.
        unsafe { ring.store(self.doorbell(device), state, request) }
    }

    /// Rings the doorbell for the requests that were stored since the last doorbell.
    ///
    /// Completes the requests if the queue pair is in ERR and the driver does not complete them.
    #[inline(always)]
    pub fn ring_send(
        &self,
        device: &DeviceContext,
        ring: &mut (impl SendOps + ?Sized),
        owner: &impl QpOwner,
    ) -> Posted {
        ring.ring(self.doorbell(device))?;
        // The doorbell flushes, unless the library has to.
        match self.flush {
            FlushMode::Library => self.flush_if_error(device, owner),
            FlushMode::Device | FlushMode::OnRequest => Ok(()),
        }
    }

    /// Posts a request without memory, for a drain marker, to the send queue of a queue pair in ERR.
    pub fn mark_send(&self, device: &DeviceContext, ring: &mut AnySendRing, wr_id: u64) -> Posted {
        let operation = match self.qp_type {
            // A send would have to name one of the shared receive queues of the peer.
            QpType::IB_UVERBS_QPT_XRC_INI => SendOperation::Write { remote_addr: 0, rkey: 0 },
            _ => SendOperation::Send,
        };
        let payload = Payload::Gather(&[]);
        let request = SendRequest { wr_id, operation, payload, flags: SendFlags::SIGNALED };
        // SAFETY: the request names no memory.
        unsafe { self.store_send(device, ring, QpState::IB_QPS_ERR, &request) }?;
        ring.ring(self.doorbell(device))
    }

    // The receive queue.

    /// Stores `request` if that needs no further checks and no doorbell.
    ///
    /// The caller calls [`flush_if_error`](Self::flush_if_error) afterwards.
    ///
    /// Returns `false`, and stores nothing, otherwise.
    ///
    /// # Safety
    ///
    /// The caller keeps the contract of [`store_recv`](Self::store_recv). `ring` is the receive queue of this queue
    /// pair.
    #[inline(always)]
    pub unsafe fn try_store_recv(
        &self,
        device: &DeviceContext,
        ring: &mut AnyRecvRing,
        request: &ReceiveRequest<'_>,
    ) -> bool {
        let takes_none = matches!(self.state(), QpState::IB_QPS_RESET | QpState::IB_QPS_ERR);
        // SAFETY: the contract of this function is that of the callee.
        device.is_usable_fast() && !takes_none && unsafe { ring.try_store_request(request) }
    }

    /// Stores `request`.
    ///
    /// # Safety
    ///
    /// The caller keeps the contract of [`RecvOps::store`](crate::driver::RecvOps::store). `ring` is the receive queue
    /// of this queue pair.
    pub unsafe fn store_recv(
        &self,
        ring: &mut AnyRecvRing,
        owner: &impl QpOwner,
        request: &ReceiveRequest<'_>,
    ) -> Posted {
        let state = self.state();
        ring.check(state)?;
        if state == QpState::IB_QPS_ERR {
            self.check_orphan(owner, QueueSide::Receive)?;
        }
        // SAFETY: the contract of this function is that of the callee.
        unsafe { ring.store(request) }
    }

    /// Rings the doorbell for the requests that were stored since the last doorbell.
    ///
    /// Completes the requests if the queue pair is in ERR and the driver does not complete them.
    pub fn ring_recv(
        &self,
        device: &DeviceContext,
        ring: &mut AnyRecvRing,
        owner: &impl QpOwner,
    ) -> Posted {
        ring.ring(device.file(), self.handle)?;
        self.flush_if_error(device, owner)
    }

    /// Posts a request without memory, for a drain marker, to the receive queue of a queue pair in ERR.
    ///
    /// The caller calls [`flush_if_error`](Self::flush_if_error) after it.
    pub fn mark_recv(&self, device: &DeviceContext, ring: &mut AnyRecvRing, wr_id: u64) -> Posted {
        ring.store_nothing(wr_id)?;
        ring.ring(device.file(), self.handle)
    }

    // The state.

    /// Changes the queue pair.
    ///
    /// The device is asked for the options of [`request_ece`](Self::request_ece), until a change with them has
    /// succeeded.
    pub fn modify(
        &self,
        device: &DeviceContext,
        owner: &impl QpOwner,
        change: &QpChange,
    ) -> Result<(), CommandError> {
        let _changing = self.changing();
        let command = || self.issue(device, change);
        match change.state() {
            None => command(),
            Some(QpState::IB_QPS_ERR) => self.move_to_error(owner, command),
            Some(state) => {
                command()?;
                if !self.has_ended(device) {
                    self.set_state(state);
                    if state == QpState::IB_QPS_RESET {
                        device.driver().on_reset(&self.data, owner.cqs());
                    }
                }
                Ok(())
            }
        }
    }

    /// Issues the command of `change`, with the requested ECE options if there are any.
    ///
    /// The caller holds `changing`.
    fn issue(&self, device: &DeviceContext, change: &QpChange) -> Result<(), CommandError> {
        let options = self.ece_request.load(Ordering::Relaxed);
        if options == 0 {
            return change.issue(device);
        }
        let (driver, request) = (device.driver(), change.extended());
        let accepted = driver.modify_qp_with_ece(device.commands(), request, options)?;
        self.ece_request.store(0, Ordering::Relaxed);
        self.ece_options.store(accepted, Ordering::Relaxed);
        Ok(())
    }

    /// Returns the options of enhanced connection establishment (ECE).
    ///
    /// A new queue pair has the options that the device offers. Later it has the options that the device uses.
    pub fn ece_options(&self) -> u32 {
        self.ece_options.load(Ordering::Relaxed)
    }

    /// Requests ECE options for the next modification. 0 means that the device is to use none.
    ///
    /// The queue pair has no options until then.
    pub fn request_ece(&self, options: u32) {
        let _changing = self.changing();
        self.ece_request.store(options, Ordering::Relaxed);
        self.ece_options.store(0, Ordering::Relaxed);
    }

    /// Moves the queue pair to ERR by `command`, so that all posted requests complete.
    ///
    /// The caller holds `changing`.
    fn move_to_error(
        &self,
        owner: &impl QpOwner,
        command: impl FnOnce() -> Result<(), CommandError>,
    ) -> Result<(), CommandError> {
        let before = self.state();
        // The state is set before the kernel flushes. If another thread stores a request meanwhile, either the kernel
        // sees it, or that thread sees the state. In RESET nothing is posted, and the kernel refuses the step to ERR.
        if before != QpState::IB_QPS_RESET {
            self.set_state(QpState::IB_QPS_ERR);
            fence(Ordering::SeqCst);
        }
        let modified = command();
        if modified.is_ok() {
            self.set_state(QpState::IB_QPS_ERR);
            self.complete_orphans(owner);
        } else {
            self.set_state(before);
        }
        modified
    }

    /// Makes the requests that were just stored complete, if the queue pair is in ERR.
    ///
    /// The kernel may not have seen them. Call this after storing, regardless of the state at that time.
    ///
    /// After [`defer_flush`](Self::defer_flush), the call only records that the requests must complete.
    ///
    /// If the command is refused, the requests stay in the queue: [`PostError::Command`].
    #[inline]
    pub fn flush_if_error(&self, device: &DeviceContext, owner: &impl QpOwner) -> Posted {
        if self.flush == FlushMode::Device {
            return Ok(());
        }
        // The request is stored before the state is read: see `move_to_error`.
        fence(Ordering::SeqCst);
        match self.state() {
            QpState::IB_QPS_ERR => self.flush_or_defer(device, owner).map_err(PostError::Command),
            _ => Ok(()),
        }
    }

    /// Leaves the flush of requests that are posted in ERR to the caller.
    ///
    /// A flush issues commands, and waits for changes of the state by other threads. After a post, the caller asks
    /// [`owes_flush`](Self::owes_flush).
    pub fn defer_flush(&self) {
        self.defers_flush.store(true, Ordering::Relaxed);
    }

    /// Returns `true` if requests were posted in ERR since [`flush_deferred`](Self::flush_deferred).
    #[inline(always)]
    pub fn owes_flush(&self) -> bool {
        self.owes_flush.load(Ordering::Relaxed)
    }

    /// Makes the requests complete that were posted in ERR since the last call.
    ///
    /// # Errors
    ///
    /// If the command is refused, the requests stay in the queue.
    pub fn flush_deferred(
        &self,
        device: &DeviceContext,
        owner: &impl QpOwner,
    ) -> Result<(), CommandError> {
        // Cleared first: the command also flushes a request that is posted before it is issued.
        match self.owes_flush.swap(false, Ordering::AcqRel) {
            true => self.flush_in_error(device, owner),
            false => Ok(()),
        }
    }

    #[cold]
    fn flush_or_defer(
        &self,
        device: &DeviceContext,
        owner: &impl QpOwner,
    ) -> Result<(), CommandError> {
        if self.defers_flush.load(Ordering::Relaxed) {
            self.owes_flush.store(true, Ordering::Release);
            return Ok(());
        }
        self.flush_in_error(device, owner)
    }

    fn flush_in_error(
        &self,
        device: &DeviceContext,
        owner: &impl QpOwner,
    ) -> Result<(), CommandError> {
        let _changing = self.changing();
        // The kernel may have refused the step to ERR, or another thread has moved the queue pair on.
        if self.state() != QpState::IB_QPS_ERR {
            return Ok(());
        }
        match self.flush {
            FlushMode::Device => Ok(()),
            FlushMode::OnRequest => self.move_to_error(owner, || self.command_error(device)),
            FlushMode::Library => {
                self.complete_orphans(owner);
                Ok(())
            }
        }
    }

    /// Moves the queue pair to ERR with the kernel's command only.
    ///
    /// Requests that the kernel does not complete stay uncompleted.
    ///
    /// `IB_USER_VERBS_CMD_MODIFY_QP`.
    ///
    /// # Errors
    ///
    /// The errno of the kernel.
    pub fn command_error(&self, device: &DeviceContext) -> Result<(), CommandError> {
        device.file().command(ib_uverbs_modify_qp {
            qp_handle: self.handle,
            attr_mask: ib_qp_attr_mask::IB_QP_STATE,
            qp_state: QpState::IB_QPS_ERR,
            ..ib_uverbs_modify_qp::default()
        })
    }

    /// Completes the requests that the driver never completes.
    ///
    /// The caller holds `changing`, so that they stay in order.
    fn complete_orphans(&self, owner: &impl QpOwner) {
        for (side, orphans) in
            [(QueueSide::Send, &self.send_orphans), (QueueSide::Receive, &self.recv_orphans)]
        {
            if let Some(orphans) = orphans {
                owner.complete_orphans(side, &orphans.take());
            }
        }
    }

    /// Returns an error if there is no room for the completion of a request to the queue pair in ERR.
    ///
    /// Only requests that the library completes need room.
    fn check_orphan(&self, owner: &impl QpOwner, side: QueueSide) -> Posted {
        match self.flush == FlushMode::Library && !owner.can_complete_orphan(side) {
            true => Err(PostError::Unpolled),
            false => Ok(()),
        }
    }

    fn changing(&self) -> MutexGuard<'_, ()> {
        ignore_poison(self.changing.lock())
    }

    /// Returns `true` if the queue pair is in ERR and never leaves it.
    pub fn has_ended(&self, device: &DeviceContext) -> bool {
        device.capabilities().qp_follows_connection && self.state() == QpState::IB_QPS_ERR
    }

    /// Notifies the driver that the kernel has destroyed the queue pair.
    pub fn on_destroyed(&self, device: &DeviceContext, cqs: CqControls<'_, AnyDriver>) {
        device.driver().on_destroyed(&self.data, cqs);
    }
}

#[cfg(test)]
mod tests;
