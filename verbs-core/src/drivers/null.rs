//! A driver without a device, for tests without a kernel.
//!
//! Its queues are memory of this process. The doorbell executes requests at once: a send completes, and uses the next
//! receive of the same queue pair. The structure is that of drivers of hardware. Completions name a queue pair by its
//! number and a request by its position, and a table maps them to the identifiers.
//!
//! # Safety
//!
//! [`Driver`] is an unsafe trait because a completion must mean that the device has given the memory of its
//! request back. Requests carry no memory to this device: it reads lengths and identifiers only.
#![expect(unsafe_code, reason = "a driver promises what its completions mean")]

use std::collections::{BTreeMap, VecDeque};
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::{Arc, Mutex};

use verbs_abi::{
    ib_uverbs_create_ah, ib_uverbs_create_ah_resp, ib_uverbs_create_cq, ib_uverbs_create_cq_resp,
    ib_uverbs_create_qp_resp, ib_uverbs_ex_create_qp, ib_uverbs_ex_modify_qp, ib_uverbs_wc,
};

use crate::driver::checks::{self, check_send, count};
use crate::driver::{
    Arm, Capabilities, CommandContext, CqControlOps, CqControls, CqOps, CreateError, CreateSrq,
    CreatedCq, CreatedQp, CreatedSrq, Doorbell, Driver, FlushMode, OrphanedRequests, PollError,
    PostError, Posted, RecvOps, SendOps,
};
use crate::lock::ignore_poison;
use crate::sys::command::CommandError;
use crate::sys::mapping::Mapping;
use crate::sys::uverbs::UverbsFile;
use crate::work::{
    AddressVector, Completion, Payload, PdNumber, QpState, ReceiveRequest, SendOperation,
    SendRequest, Sge, WcOpcode, WcStatus,
};

/// The driver.
#[derive(Debug)]
pub struct Null {
    last_number: AtomicU32,
    /// Number of times that a doorbell was rung.
    ///
    /// As with a doorbell page, the queue pairs of the device share it.
    doorbells: Arc<Mutex<u64>>,
    flush: FlushMode,
}

impl Null {
    /// Creates a driver of a device that flushes receives according to `flush`.
    ///
    /// With [`FlushMode::OnRequest`], as on rxe, a command flushes the receives that are posted in ERR. With
    /// [`FlushMode::Library`], as on siw, the device completes a receive without scatter entries at once: only the library
    /// posts such receives.
    pub fn with_flush(flush: FlushMode) -> Self {
        Self { last_number: AtomicU32::new(0), doorbells: Arc::default(), flush }
    }

    /// Returns the number of times that a doorbell of the device was rung, which each doorbell changes.
    pub fn doorbells(&self) -> Arc<Mutex<u64>> {
        Arc::clone(&self.doorbells)
    }
}

impl Default for Null {
    /// Creates a driver of a device that flushes without a command.
    fn default() -> Self {
        Self::with_flush(FlushMode::Device)
    }
}

/// A completion as the device writes it.
#[derive(Debug, Clone, Copy)]
struct Entry {
    qp_num: u32,
    place: usize,
    is_receive: bool,
    byte_len: u32,
}

/// A completion queue, as the device has it.
#[derive(Debug, Default)]
struct DeviceCq {
    entries: Mutex<VecDeque<Entry>>,
    /// The completions of flushed receives, which only a poll on the slow path finds.
    flushed: Mutex<VecDeque<Completion>>,
    qps: Mutex<BTreeMap<u32, Arc<Identifiers>>>,
}

/// The identifiers of the requests of a queue pair, by place: posts write them, and polls read them.
#[derive(Debug)]
struct Identifiers {
    sends: Mutex<Box<[u64]>>,
    receives: Mutex<Box<[u64]>>,
}

impl Identifiers {
    /// Makes places for as many requests as the queue pair holds.
    fn new(max_send_wr: u32, max_recv_wr: u32) -> Self {
        let places = |max: u32| Mutex::new(vec![0; max as usize].into());
        Self { sends: places(max_send_wr), receives: places(max_recv_wr) }
    }
}

/// A queue pair, as the device has it.
#[derive(Debug)]
struct DeviceQp {
    number: u32,
    identifiers: Arc<Identifiers>,
    send_cq: Arc<DeviceCq>,
    recv_cq: Arc<DeviceCq>,
    /// The places of the receives that no message has taken.
    receives: Mutex<VecDeque<usize>>,
}

/// The polled end of a completion queue.
#[derive(Debug)]
pub struct NullCqRing(Arc<DeviceCq>);

/// The shared part of a completion queue.
#[derive(Debug)]
pub struct NullCqControl {
    cq: Arc<DeviceCq>,
    /// The doorbell record: the number of events that were read when the queue was last armed.
    arm_record: AtomicU32,
    was_armed: AtomicBool,
}

/// A send queue.
#[derive(Debug)]
pub struct NullSendRing {
    qp: Arc<DeviceQp>,
    doorbells: Arc<Mutex<u64>>,
    max: u32,
    /// The place of the next request.
    next: usize,
    /// The places and lengths of the requests for which the doorbell was not rung.
    stored: Vec<(usize, u32)>,
}

/// A receive queue.
#[derive(Debug)]
pub struct NullRecvRing {
    qp: Arc<DeviceQp>,
    max: u32,
    /// The place of the next request.
    next: usize,
    flush: FlushMode,
}

/// The posted receives of a queue pair, which the library flushes.
#[derive(Debug)]
struct Orphans(Arc<DeviceQp>);

/// The vendor of the options of enhanced connection establishment (ECE) that queue pairs have.
///
/// The vendor does not exist.
const ECE_VENDOR: u32 = 7;
const ECE_OPTIONS: u32 = 0b11;

/// Returns the number of bytes of an entry. As on some hardware, a length of 0 means 2 GiB.
fn bytes_of(sge: &Sge) -> u64 {
    if sge.length == 0 { 1 << 31 } else { sge.length.into() }
}

/// Returns the place after `place` in a queue of `max` places.
fn behind(place: usize, max: u32) -> usize {
    if place + 1 < max as usize { place + 1 } else { 0 }
}

// SAFETY: no device uses the memory of a request. A completion is taken from its queue once, and has the
// number of the queue pair that the request was posted to.
unsafe impl Driver for Null {
    type CqRing = NullCqRing;
    type CqControl = NullCqControl;
    type SendRing = NullSendRing;
    type RecvRing = NullRecvRing;
    type QpData = u32;

    fn capabilities(&self) -> Capabilities {
        Capabilities { flush: self.flush, ece_vendor: Some(ECE_VENDOR), ..Capabilities::default() }
    }

    fn create_cq(
        &self,
        _: CommandContext<'_>,
        request: ib_uverbs_create_cq,
    ) -> Result<CreatedCq<Self>, CreateError> {
        let response = ib_uverbs_create_cq_resp { cqe: request.cqe, ..Default::default() };
        let entries = Mutex::new(VecDeque::with_capacity(request.cqe as usize));
        let cq = Arc::new(DeviceCq { entries, ..DeviceCq::default() });
        let (arm_record, was_armed) = (AtomicU32::new(0), AtomicBool::new(false));
        let control = NullCqControl { cq: Arc::clone(&cq), arm_record, was_armed };
        let memory = Some(Arc::new(Mapping::private(4096).map_err(CreateError::Map)?));
        Ok(CreatedCq { response, ring: NullCqRing(cq), control, memory })
    }

    fn create_qp(
        &self,
        _: CommandContext<'_>,
        request: ib_uverbs_ex_create_qp,
        cqs: CqControls<'_, Self>,
    ) -> Result<CreatedQp<Self>, CreateError> {
        let number = self.last_number.fetch_add(1, Ordering::Relaxed) + 1;
        let response = ib_uverbs_create_qp_resp {
            qpn: number,
            max_send_wr: request.max_send_wr,
            max_recv_wr: request.max_recv_wr,
            max_send_sge: request.max_send_sge,
            max_recv_sge: request.max_recv_sge,
            ..Default::default()
        };
        let identifiers = Arc::new(Identifiers::new(request.max_send_wr, request.max_recv_wr));
        for control in [cqs.send, cqs.recv] {
            ignore_poison(control.cq.qps.lock()).insert(number, Arc::clone(&identifiers));
        }
        let qp = Arc::new(DeviceQp {
            number,
            identifiers,
            send_cq: Arc::clone(&cqs.send.cq),
            recv_cq: Arc::clone(&cqs.recv.cq),
            receives: Mutex::new(VecDeque::with_capacity(request.max_recv_wr as usize)),
        });
        let (doorbells, max) = (Arc::clone(&self.doorbells), request.max_send_wr);
        let send =
            NullSendRing { qp: Arc::clone(&qp), doorbells, max, next: 0, stored: Vec::new() };
        let recv = Some(NullRecvRing { qp, max: request.max_recv_wr, next: 0, flush: self.flush });
        let memory = Some(Arc::new(Mapping::private(4096).map_err(CreateError::Map)?));
        Ok(CreatedQp { response, send, recv, data: number, ece_options: ECE_OPTIONS, memory })
    }

    fn modify_qp_with_ece(
        &self,
        cx: CommandContext<'_>,
        request: ib_uverbs_ex_modify_qp,
        options: u32,
    ) -> Result<u32, CommandError> {
        cx.file().command(request)?;
        Ok(options & ECE_OPTIONS)
    }

    fn create_srq(
        &self,
        _: CommandContext<'_>,
        _: CreateSrq,
        _: Option<&Self::CqControl>,
    ) -> Result<CreatedSrq<Self>, CreateError> {
        Err(CreateError::Unsupported("shared receive queues"))
    }

    fn create_ah(
        &self,
        _: CommandContext<'_>,
        pd: PdNumber,
        request: ib_uverbs_create_ah,
    ) -> Result<(ib_uverbs_create_ah_resp, AddressVector), CreateError> {
        Ok((ib_uverbs_create_ah_resp::default(), AddressVector::new(pd, &request.attr.grh.dgid)))
    }

    fn on_reset(&self, number: &u32, cqs: CqControls<'_, Self>) {
        for control in [cqs.send, cqs.recv] {
            ignore_poison(control.cq.entries.lock()).retain(|entry| entry.qp_num != *number);
            ignore_poison(control.cq.flushed.lock()).retain(|flushed| flushed.qp_num() != *number);
        }
    }

    fn on_destroyed(&self, number: &u32, cqs: CqControls<'_, Self>) {
        for control in [cqs.send, cqs.recv] {
            ignore_poison(control.cq.qps.lock()).remove(number);
        }
    }
}

impl CqOps for NullCqRing {
    fn poll(&mut self, _: &UverbsFile, into: &mut [Completion]) -> Result<usize, PollError> {
        let count = self.take(into);
        Ok(count + self.take_flushed(&mut into[count..]))
    }

    #[inline(always)]
    fn try_poll(&mut self, into: &mut [Completion]) -> Option<usize> {
        Some(self.take(into))
    }
}

impl NullCqRing {
    /// Takes completions off the queue. Not inlined, so that a profiler distinguishes it from its callers.
    #[inline(never)]
    fn take(&mut self, into: &mut [Completion]) -> usize {
        let mut polled = 0;
        while polled < into.len() {
            let Some(entry) = ignore_poison(self.0.entries.lock()).pop_front() else { break };
            // A completion of a destroyed queue pair is skipped.
            let Some(qp) = ignore_poison(self.0.qps.lock()).get(&entry.qp_num).cloned() else {
                continue;
            };
            let (identifiers, opcode) = match entry.is_receive {
                true => (&qp.receives, WcOpcode::IB_WC_RECV),
                false => (&qp.sends, WcOpcode::IB_UVERBS_WC_SEND),
            };
            let wr_id = ignore_poison(identifiers.lock())[entry.place].into();
            let (qp_num, byte_len) = (entry.qp_num, entry.byte_len);
            into[polled] =
                Completion(ib_uverbs_wc { wr_id, opcode, qp_num, byte_len, ..Default::default() });
            polled += 1;
        }
        polled
    }

    fn take_flushed(&mut self, into: &mut [Completion]) -> usize {
        let mut flushed = ignore_poison(self.0.flushed.lock());
        let count = flushed.len().min(into.len());
        into.iter_mut().zip(flushed.drain(..count)).for_each(|(place, flushed)| *place = flushed);
        count
    }
}

impl CqControlOps for NullCqControl {
    fn arm(&self, _: CommandContext<'_>, arm: &Arm<'_>) -> Result<(), CommandError> {
        self.arm_record.store(arm.events_read.load(Ordering::Relaxed), Ordering::Relaxed);
        self.was_armed.store(true, Ordering::Relaxed);
        Ok(())
    }

    fn is_armed(&self) -> bool {
        self.was_armed.load(Ordering::Relaxed)
    }
}

impl NullCqControl {
    /// Returns the number of events that were read when the queue was last armed.
    pub fn events_read(&self) -> u32 {
        self.arm_record.load(Ordering::Relaxed)
    }
}

impl SendOps for NullSendRing {
    unsafe fn store(
        &mut self,
        _: Doorbell<'_>,
        state: QpState,
        request: &SendRequest<'_>,
    ) -> Posted {
        self.put(state, request)
    }

    #[inline(always)]
    unsafe fn try_store(&mut self, state: QpState, request: &SendRequest<'_>) -> bool {
        self.put(state, request).is_ok()
    }

    fn ring(&mut self, _: Doorbell<'_>) -> Posted {
        self.ring_doorbell();
        Ok(())
    }
}

impl NullSendRing {
    /// Stores a request, which has no memory for a device.
    ///
    /// Not inlined, so that a profiler distinguishes it from its callers.
    #[inline(never)]
    fn put(&mut self, state: QpState, request: &SendRequest<'_>) -> Posted {
        check_send(state)?;
        match request.operation {
            SendOperation::Send => {}
            SendOperation::SendTo { destination, .. } => {
                if destination.address.get::<[u8; 16]>() == [0; 16] {
                    return Err(PostError::Invalid("an address of zero"));
                }
            }
            _ => return Err(PostError::Unsupported("operations other than sends")),
        }
        if self.stored.len() >= self.max as usize {
            return Err(PostError::Full(self.max));
        }
        let bytes = match request.payload {
            Payload::Gather(sges) => sges.iter().map(bytes_of).sum(),
            Payload::Inline(bytes) => bytes.len() as u64,
        };
        let length = checks::length(bytes)?;
        let place = self.next;
        self.next = behind(place, self.max);
        self.stored.push((place, length));
        ignore_poison(self.qp.identifiers.sends.lock())[place] = request.wr_id;
        Ok(())
    }

    /// Executes the stored requests.
    ///
    /// Not inlined, so that a profiler distinguishes it from its callers.
    #[inline(never)]
    fn ring_doorbell(&mut self) {
        let DeviceQp { number: qp_num, send_cq, recv_cq, receives, .. } = &*self.qp;
        *ignore_poison(self.doorbells.lock()) += 1;
        for (place, byte_len) in self.stored.drain(..) {
            let sent = Entry { qp_num: *qp_num, place, is_receive: false, byte_len };
            ignore_poison(send_cq.entries.lock()).push_back(sent);
            if let Some(place) = ignore_poison(receives.lock()).pop_front() {
                let received = Entry { place, is_receive: true, ..sent };
                ignore_poison(recv_cq.entries.lock()).push_back(received);
            }
        }
    }
}

impl RecvOps for NullRecvRing {
    unsafe fn store(&mut self, request: &ReceiveRequest<'_>) -> Posted {
        count(request.scatter, 1)?;
        if self.flush == FlushMode::Library && request.scatter.is_empty() {
            self.flush_at_once(request.wr_id);
            return Ok(());
        }
        self.put(request.wr_id)
    }

    #[inline(always)]
    unsafe fn try_store(&mut self, wr_id: u64, _: Sge) -> bool {
        self.put(wr_id).is_ok()
    }

    fn orphans(&self) -> Option<Box<dyn OrphanedRequests>> {
        match self.flush {
            FlushMode::Library => Some(Box::new(Orphans(Arc::clone(&self.qp)))),
            FlushMode::Device | FlushMode::OnRequest => None,
        }
    }
}

impl OrphanedRequests for Orphans {
    fn take(&self) -> Vec<u64> {
        // A post takes the locks in this order. While both are held, no post reuses a place before its identifier is
        // read.
        let mut waiting = ignore_poison(self.0.receives.lock());
        let identifiers = ignore_poison(self.0.identifiers.receives.lock());
        waiting.drain(..).map(|place| identifiers[place]).collect()
    }
}

impl NullRecvRing {
    /// Stores a request. Not inlined, so that a profiler distinguishes it from its callers.
    #[inline(never)]
    fn put(&mut self, wr_id: u64) -> Posted {
        let mut waiting = ignore_poison(self.qp.receives.lock());
        if waiting.len() >= self.max as usize {
            return Err(PostError::Full(self.max));
        }
        let place = self.next;
        self.next = behind(place, self.max);
        waiting.push_back(place);
        ignore_poison(self.qp.identifiers.receives.lock())[place] = wr_id;
        Ok(())
    }

    /// Completes a request with a flush error.
    fn flush_at_once(&self, wr_id: u64) {
        let (wr_id, status) = (wr_id.into(), WcStatus::IB_WC_WR_FLUSH_ERR);
        let (opcode, qp_num) = (WcOpcode::IB_WC_RECV, self.qp.number);
        let flushed =
            Completion(ib_uverbs_wc { wr_id, status, opcode, qp_num, ..Default::default() });
        ignore_poison(self.qp.recv_cq.flushed.lock()).push_back(flushed);
    }
}
