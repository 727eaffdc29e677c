//! The device that an id is bound to, as far as connections depend on it.

use super::param::ConnParam;
use super::parse::Service;
use crate::device::{Device, Transport};
use crate::error::{Error, ErrorKind, Result};
use crate::verbs::{Context, Depths};

/// The device that an id is bound to.
#[derive(Debug)]
pub(super) enum BoundDevice {
    Open(Context),
    /// Its driver wants to be asked in a way that this crate does not know. The kernel's connection manager serves it all
    /// the same, for queue pairs that somebody else has made.
    Closed(Device),
}

impl BoundDevice {
    pub(super) fn transport(&self) -> Transport {
        match self {
            Self::Open(context) => context.transport(),
            Self::Closed(device) => device.transport_of_verbs(),
        }
    }

    /// How deep the device goes, for what `param` says of it. Nobody can ask one that is closed, so that `param` has to be
    /// what its user knows; but of datagrams nothing is outstanding.
    pub(super) fn depth_limits(
        &self,
        operation: &'static str,
        service: Service,
        param: &ConnParam,
    ) -> Result<Depths> {
        let is_named =
            ![param.responder_resources, param.initiator_depth].contains(&ConnParam::MAX);
        match self {
            Self::Open(context) => context.depth_limits(),
            Self::Closed(_) if is_named || service == Service::Datagram => Ok(Depths::MOST),
            Self::Closed(device) => {
                let what = "the most that a device can that this crate cannot open: the depths have to be named";
                let kind = ErrorKind::Unsupported(what.into());
                Err(Error::new(operation, format!("on {}", device.name()), kind))
            }
        }
    }
}
