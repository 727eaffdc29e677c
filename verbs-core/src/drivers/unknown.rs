//! Devices whose queues this crate does not know: the connection manager alone uses them.
//!
//! # Safety
//!
//! [`Driver`] is an unsafe trait because a completion must mean that the device has given the memory of its
//! request back. This driver has no queue, so there are neither requests nor completions.
#![expect(unsafe_code, reason = "a driver promises what its completions mean")]

use nix::errno::Errno;
use verbs_abi::{
    ib_uverbs_create_ah, ib_uverbs_create_ah_resp, ib_uverbs_create_cq, ib_uverbs_ex_create_qp,
};

use crate::driver::commands::get_context;
use crate::driver::{
    Arm, BuiltIn, Capabilities, CommandContext, CqControlOps, CqControls, CqOps, CreateError,
    CreateSrq, CreatedCq, CreatedQp, CreatedSrq, DeviceInfo, Doorbell, Driver, Opened, PollError,
    Posted, RecvOps, SendOps,
};
use crate::sys::command::CommandError;
use crate::sys::uverbs::UverbsFile;
use crate::work::{AddressVector, Completion, PdNumber, QpState, ReceiveRequest, SendRequest};

/// The driver of devices without a data path here.
#[derive(Debug)]
pub struct Unknown;

impl BuiltIn for Unknown {
    fn supports(_: &DeviceInfo, _: &UverbsFile) -> bool {
        true
    }

    fn open(_: &DeviceInfo, file: &mut UverbsFile) -> Result<(Self, Opened), CreateError> {
        match get_context::<()>(file) {
            Ok(opened) => Ok((Self, opened)),
            // The driver expects its own part of the request or the response.
            Err(CreateError::Command(CommandError::Os(Errno::EINVAL | Errno::EFAULT))) => {
                Err(CreateError::UnknownDriver)
            }
            Err(error) => Err(error),
        }
    }
}

// SAFETY: there is no ring, and so no completion.
unsafe impl Driver for Unknown {
    type CqRing = NoCqRing;
    type CqControl = NoCqControl;
    type SendRing = NoSendRing;
    type RecvRing = NoRecvRing;
    type QpData = ();

    fn capabilities(&self) -> Capabilities {
        Capabilities::default()
    }

    fn create_cq(
        &self,
        _: CommandContext<'_>,
        _: ib_uverbs_create_cq,
    ) -> Result<CreatedCq<Self>, CreateError> {
        Err(CreateError::UnknownDriver)
    }

    fn create_qp(
        &self,
        _: CommandContext<'_>,
        _: ib_uverbs_ex_create_qp,
        _: CqControls<'_, Self>,
    ) -> Result<CreatedQp<Self>, CreateError> {
        Err(CreateError::UnknownDriver)
    }

    fn create_srq(
        &self,
        _: CommandContext<'_>,
        _: CreateSrq,
        _: Option<&Self::CqControl>,
    ) -> Result<CreatedSrq<Self>, CreateError> {
        Err(CreateError::UnknownDriver)
    }

    fn create_ah(
        &self,
        _: CommandContext<'_>,
        _: PdNumber,
        _: ib_uverbs_create_ah,
    ) -> Result<(ib_uverbs_create_ah_resp, AddressVector), CreateError> {
        Err(CreateError::UnknownDriver)
    }
}

#[derive(Debug)]
pub enum NoCqRing {}

impl CqOps for NoCqRing {
    fn poll(&mut self, _: &UverbsFile, _: &mut [Completion]) -> Result<usize, PollError> {
        match *self {}
    }
}

#[derive(Debug)]
pub enum NoCqControl {}

impl CqControlOps for NoCqControl {
    fn arm(&self, _: CommandContext<'_>, _: &Arm<'_>) -> Result<(), CommandError> {
        match *self {}
    }
}

#[derive(Debug)]
pub enum NoSendRing {}

impl SendOps for NoSendRing {
    unsafe fn store(&mut self, _: Doorbell<'_>, _: QpState, _: &SendRequest<'_>) -> Posted {
        match *self {}
    }

    fn ring(&mut self, _: Doorbell<'_>) -> Posted {
        match *self {}
    }
}

#[derive(Debug)]
pub enum NoRecvRing {}

impl RecvOps for NoRecvRing {
    unsafe fn store(&mut self, _: &ReceiveRequest<'_>) -> Posted {
        match *self {}
    }
}
