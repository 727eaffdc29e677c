//! A driver for fuzz targets and tests, which choose its completions.
//!
//! # Safety
//!
//! [`Driver`] is an unsafe trait because a completion must prove that the device does not use the memory of its
//! request any more. This device keeps the identifiers of requests and never uses their memory, so even a false
//! completion breaks no promise.
#![expect(unsafe_code, reason = "a driver promises the meaning of its completions")]

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, MutexGuard};

use verbs_abi::{
    ib_uverbs_create_ah, ib_uverbs_create_ah_resp, ib_uverbs_create_cq, ib_uverbs_create_cq_resp,
    ib_uverbs_create_qp_resp, ib_uverbs_create_srq_resp, ib_uverbs_ex_create_qp,
};

use crate::driver::{
    Arm, Capabilities, CommandContext, CqControlOps, CqControls, CqOps, CreateError, CreateSrq,
    CreatedCq, CreatedQp, CreatedSrq, Doorbell, Driver, PollError, PostError, Posted, RecvOps,
    SendOps,
};
use crate::lock::ignore_poison;
use crate::sys::command::CommandError;
use crate::sys::uverbs::UverbsFile;
use crate::work::{
    AddressVector, Completion, PdNumber, QpState, ReceiveRequest, SendFlags, SendRequest,
};

/// The device and its driver. A clone is the same device.
#[derive(Debug, Clone)]
pub struct Forged {
    capabilities: Capabilities,
    device: Arc<Mutex<Device>>,
}

/// A posted request that has not completed.
#[derive(Debug, Clone, Copy)]
pub struct Request {
    /// The identifier that the caller gave to the request.
    pub wr_id: u64,
    /// The number of its queue pair, or `None` for a receive.
    pub qp_num: Option<u32>,
    /// `true` if a completion reports that a send has succeeded; `false` for a receive.
    pub is_signaled: bool,
}

/// The state of the device.
#[derive(Debug, Default)]
pub struct Device {
    /// The number of the next queue pair. Several queue pairs may have one number.
    pub next_number: u32,
    /// The completions that wait to be polled, for each completion queue in the order of creation.
    pub completions: Vec<VecDeque<Completion>>,
    /// The outstanding requests, in the order in which they were posted.
    pub requests: Vec<Request>,
    /// The treatment of requests.
    ///
    /// 0 accepts, 1 refuses as invalid, 2 fails after the device has the request.
    pub refuses: u8,
    /// `true` if the next poll finds a malformed completion.
    pub is_malformed: bool,
    /// The index of a completion queue. Each poll of it is refused with ENOMEM.
    pub failing_queue: Option<usize>,
    /// The index of a completion queue, and a completion that the next poll of another queue adds to it.
    ///
    /// So the completion arrives after a poll of its queue has found nothing.
    pub arrives_meanwhile: Option<(usize, Completion)>,
}

impl Forged {
    /// Creates a device whose driver has `capabilities`.
    pub fn new(capabilities: Capabilities) -> Self {
        Self { capabilities, device: Arc::default() }
    }

    /// Locks the state of the device.
    ///
    /// No call of the library that uses the device may be made while the guard exists.
    pub fn device(&self) -> MutexGuard<'_, Device> {
        ignore_poison(self.device.lock())
    }

    fn post(&self, request: Request) -> Posted {
        let mut device = self.device();
        match device.refuses {
            0 => device.requests.push(request),
            1 => return Err(PostError::Invalid("a request that the device is to refuse")),
            _ => {
                device.requests.push(request);
                return Err(PostError::Command(CommandError::Os(nix::errno::Errno::EIO)));
            }
        }
        Ok(())
    }
}

/// The polled end of the completion queue with this index.
#[derive(Debug)]
pub struct ForgedCqRing(Forged, usize);

/// The shared part of a completion queue.
#[derive(Debug)]
pub struct ForgedCqControl;

/// The send queue of the queue pair with this number.
#[derive(Debug)]
pub struct ForgedSendRing(Forged, u32);

/// A shared receive queue.
#[derive(Debug)]
pub struct ForgedRecvRing(Forged);

// SAFETY: no device uses the memory of a request, so it is free at any time.
unsafe impl Driver for Forged {
    type CqRing = ForgedCqRing;
    type CqControl = ForgedCqControl;
    type SendRing = ForgedSendRing;
    type RecvRing = ForgedRecvRing;
    type QpData = ();

    fn capabilities(&self) -> Capabilities {
        self.capabilities
    }

    fn create_cq(
        &self,
        _: CommandContext<'_>,
        request: ib_uverbs_create_cq,
    ) -> Result<CreatedCq<Self>, CreateError> {
        let response = ib_uverbs_create_cq_resp { cqe: request.cqe, ..Default::default() };
        let mut device = self.device();
        device.completions.push(VecDeque::new());
        let ring = ForgedCqRing(self.clone(), device.completions.len() - 1);
        Ok(CreatedCq { response, ring, control: ForgedCqControl, memory: None })
    }

    fn create_qp(
        &self,
        _: CommandContext<'_>,
        request: ib_uverbs_ex_create_qp,
        _: CqControls<'_, Self>,
    ) -> Result<CreatedQp<Self>, CreateError> {
        let qpn = self.device().next_number;
        let response = ib_uverbs_create_qp_resp {
            qpn,
            max_send_wr: request.max_send_wr,
            max_send_sge: request.max_send_sge,
            ..Default::default()
        };
        let send = ForgedSendRing(self.clone(), qpn);
        Ok(CreatedQp { response, send, recv: None, data: (), ece_options: 0, memory: None })
    }

    fn create_srq(
        &self,
        _: CommandContext<'_>,
        mut request: CreateSrq,
        _: Option<&Self::CqControl>,
    ) -> Result<CreatedSrq<Self>, CreateError> {
        let (max_wr, max_sge) = request.capacity();
        let response =
            ib_uverbs_create_srq_resp { max_wr: *max_wr, max_sge: *max_sge, ..Default::default() };
        let ring = ForgedRecvRing(self.clone());
        Ok(CreatedSrq { response, ring, on_destroyed: None, memory: None })
    }

    fn create_ah(
        &self,
        _: CommandContext<'_>,
        _: PdNumber,
        _: ib_uverbs_create_ah,
    ) -> Result<(ib_uverbs_create_ah_resp, AddressVector), CreateError> {
        Err(CreateError::Unsupported("datagrams"))
    }
}

impl CqOps for ForgedCqRing {
    fn poll(&mut self, _: &UverbsFile, into: &mut [Completion]) -> Result<usize, PollError> {
        let mut device = self.0.device();
        if std::mem::take(&mut device.is_malformed) {
            return Err(PollError::Malformed("a completion that the device has to forge"));
        }
        if device.failing_queue == Some(self.1) {
            return Err(PollError::Command(CommandError::Os(nix::errno::Errno::ENOMEM)));
        }
        if let Some((queue, completion)) = device.arrives_meanwhile.take_if(|(to, _)| *to != self.1)
        {
            device.completions[queue].push_back(completion);
        }
        let waiting = &mut device.completions[self.1];
        let count = into.len().min(waiting.len());
        into.iter_mut().zip(waiting.drain(..count)).for_each(|(slot, done)| *slot = done);
        Ok(count)
    }
}

impl CqControlOps for ForgedCqControl {
    fn arm(&self, _: CommandContext<'_>, _: &Arm<'_>) -> Result<(), CommandError> {
        Ok(())
    }
}

impl SendOps for ForgedSendRing {
    unsafe fn store(&mut self, _: Doorbell<'_>, _: QpState, request: &SendRequest<'_>) -> Posted {
        let is_signaled = request.flags.contains(SendFlags::SIGNALED);
        self.0.post(Request { wr_id: request.wr_id, qp_num: Some(self.1), is_signaled })
    }

    fn ring(&mut self, _: Doorbell<'_>) -> Posted {
        Ok(())
    }
}

impl RecvOps for ForgedRecvRing {
    unsafe fn store(&mut self, request: &ReceiveRequest<'_>) -> Posted {
        self.0.post(Request { wr_id: request.wr_id, qp_num: None, is_signaled: false })
    }
}
