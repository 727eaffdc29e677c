//! The device that an id is bound to: finding it, opening it, and its limits for connections.

use nix::errno::Errno;
use ucma_abi::{rdma_ucm_query_addr, rdma_ucm_query_addr_resp};
use zerocopy::FromZeros;

use super::param::ConnParam;
use super::record::Inner;
use super::service_type::ServiceType;
use crate::device::{self, Device, Guid, Transport};
use crate::error::{Error, ErrorKind, Result};
use crate::verbs::{Context, Depths};

/// The value of a missing index: the kernel stores no index before Linux 5.8.
const NO_INDEX: u32 = u32::MAX;

const FIND_DEVICE: &str = "find the device of";

/// The device that an id is bound to.
#[derive(Debug)]
pub(super) enum BoundDevice {
    Open(Context),
    /// This crate does not support the command interface of the device's driver.
    ///
    /// The kernel's connection manager still serves the device, for queue pairs that were created by other means.
    Closed(Device),
}

impl BoundDevice {
    pub(super) fn transport(&self) -> Transport {
        match self {
            Self::Open(context) => context.transport(),
            Self::Closed(device) => device.transport_of_verbs(),
        }
    }

    /// Returns the limits of the device for the depths in `param`.
    ///
    /// The limits of a closed device are unknown, so `param` has to name its depths. Datagrams need
    /// none, because they have no outstanding operations.
    pub(super) fn depth_limits(
        &self,
        operation: &'static str,
        service: ServiceType,
        param: &ConnParam,
    ) -> Result<Depths> {
        let is_named =
            ![param.responder_resources, param.initiator_depth].contains(&ConnParam::DEVICE_MAX);
        match self {
            Self::Open(context) => context.depth_limits(),
            Self::Closed(_) if is_named || service == ServiceType::Datagram => Ok(Depths::MOST),
            Self::Closed(device) => {
                let what = "`DEVICE_MAX` on a device that this library cannot open; set the depths to numbers";
                let kind = ErrorKind::Unsupported(what.into());
                Err(Error::new(operation, format!("on {}", device.name()), kind))
            }
        }
    }
}

impl Inner {
    pub(super) fn query_addr(&self) -> Result<rdma_ucm_query_addr_resp> {
        let request = rdma_ucm_query_addr::new(self.handle);
        let mut addresses = rdma_ucm_query_addr_resp::new_zeroed();
        addresses.ibdev_index = NO_INDEX;
        self.run(|file| file.command_over(request, &mut addresses)).map_err(|refused| {
            Self::refused("query the addresses of", self.to_string(), refused)
        })?;
        Ok(addresses)
    }

    /// Returns the context of the id's device, which is looked up once.
    pub(super) fn context(&self) -> Result<Context> {
        self.check_process(FIND_DEVICE)?;
        let mut state = self.state();
        if let Some(context) = &state.context {
            return Ok(context.clone());
        }
        let (guid, index) = self.bound_to()?;
        let context = Context::shared_by(guid, index).map_err(|error| {
            let removed = ErrorKind::DeviceRemoved(Errno::ENXIO as i32);
            match error.kind() {
                // Returned unchanged, regardless of the state of the device: `device` retries with a closed device.
                ErrorKind::Unsupported(_) => error,
                _ if device::is_being_removed(guid, index) => {
                    Error::new(FIND_DEVICE, self.to_string(), removed)
                }
                _ => error,
            }
        })?;
        state.context = Some(context.clone());
        Ok(context)
    }

    /// Returns the device that the id is bound to, opened if possible.
    pub(super) fn device(&self) -> Result<BoundDevice> {
        match self.context() {
            Ok(context) => Ok(BoundDevice::Open(context)),
            Err(error) if matches!(error.kind(), ErrorKind::Unsupported(_)) => {
                let (guid, index) = self.bound_to()?;
                device::find(guid, index)?.map(BoundDevice::Closed).ok_or(error)
            }
            Err(error) => Err(error),
        }
    }

    /// Returns the GUID of the device that the id is bound to, and its index if the kernel reports
    /// one.
    pub(super) fn bound_to(&self) -> Result<(Guid, Option<u32>)> {
        let answer = self.query_addr()?;
        let guid = Guid::new(u64::from_be(answer.node_guid.get()));
        if guid == Guid::default() {
            let reason = "the id is not bound to a device: resolve an address first";
            return Err(Error::invalid(FIND_DEVICE, self.to_string(), reason));
        }
        Ok((guid, Some(answer.ibdev_index).filter(|index| *index != NO_INDEX)))
    }
}

#[cfg(test)]
mod tests;
