//! The parameters and private data of outgoing messages: checks and encoding.

use ucma_abi::{RDMA_MAX_PRIVATE_DATA, rdma_ucm_conn_param};

use super::own_qp::OwnQp;
use super::param::ConnParam;
use super::record::Inner;
use super::service_type::ServiceType;
use crate::addr::AddressFamily;
use crate::device::Transport;
use crate::error::{Error, ErrorKind, Result};
use crate::verbs::Depths;

/// The highest queue pair number.
const MAX_QP_NUM: u32 = 0xff_ffff;

/// Bytes that the kernel puts before the private data of a request to an IP address.
const IP_HEADER: usize = 36;

/// A message that carries private data.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Message {
    Request,
    Reply,
    Reject,
}

/// Returns the maximum length of the private data of `message`.
///
/// On InfiniBand it is the size of the field of the management datagram. The kernel's header is
/// subtracted for a request to an IP address (`include/rdma/ib_cm.h`, `cma_user_data_offset`). On
/// iWARP it is the maximum of the length byte, less the four bytes that siw adds.
fn private_data_limit(
    message: Message,
    service: ServiceType,
    transport: Transport,
    peer_is_ib: bool,
) -> usize {
    let header = if peer_is_ib { 0 } else { IP_HEADER };
    match (transport, service, message) {
        (Transport::Iwarp, _, _) => 251,
        (_, ServiceType::Connected, Message::Request) => 92 - header,
        (_, ServiceType::Connected, Message::Reply) => 196,
        (_, ServiceType::Connected, Message::Reject) => 148,
        (_, ServiceType::Datagram, Message::Request) => 216 - header,
        (_, ServiceType::Datagram, Message::Reply | Message::Reject) => 136,
    }
}

impl Inner {
    /// Returns `param` with the connect header before the program's private data.
    pub(super) fn with_header(&self, param: &ConnParam) -> ConnParam {
        let mut param = param.clone();
        param.private_data.splice(..0, self.state().connect_header.iter().copied());
        param
    }

    /// Checks `param` before the command is sent.
    pub(super) fn check(
        &self,
        operation: &'static str,
        param: &ConnParam,
        message: Message,
        transport: Transport,
        limits: Depths,
        qp: Option<&OwnQp>,
    ) -> Result<()> {
        let invalid = |reason: String| Err(Error::invalid(operation, self.to_string(), reason));
        let connected = self.service() == ServiceType::Connected;
        if !connected && transport == Transport::Iwarp {
            // The kernel would continue to connect by TCP.
            let kind = ErrorKind::Unsupported("datagrams on iWARP".into());
            return Err(Error::new(operation, self.to_string(), kind));
        }
        self.check_private_data(operation, &param.private_data, message, transport)?;
        for (name, wanted, most) in [
            ("responder_resources", param.responder_resources, limits.responder_resources),
            ("initiator_depth", param.initiator_depth, limits.initiator_depth),
        ] {
            if connected && wanted != ConnParam::DEVICE_MAX && wanted > most {
                return invalid(format!("{name} {wanted} exceeds the device's maximum of {most}"));
            }
        }
        // A request for the address of a datagram service needs no queue pair yet.
        let needs_qp = connected || message == Message::Reply;
        match (qp, param.qp_num) {
            (None, 0) if needs_qp => {
                invalid("the id has no queue pair; create one, or set `qp_num`".into())
            }
            (None, number) if number > MAX_QP_NUM => invalid(format!(
                "queue pair number {number:#x} exceeds the maximum of {MAX_QP_NUM:#x}"
            )),
            _ => Ok(()),
        }
    }

    /// Checks that the initiator depth of an answer is within the offer of the request (`offers`).
    pub(super) fn check_offer(
        &self,
        operation: &'static str,
        param: &ConnParam,
        offers: Option<Depths>,
        transport: Transport,
    ) -> Result<()> {
        // The first version of MPA (iWARP) has no fields for depths. An XRC target initiates nothing, and the kernel
        // sends no depth for it.
        let has_depths = transport != Transport::Iwarp && !self.is_for_targets();
        let offers = offers.filter(|_| has_depths);
        match (param.initiator_depth, offers.map(|offers| offers.initiator_depth)) {
            (ConnParam::DEVICE_MAX, _) | (_, None) => Ok(()),
            (wanted, Some(offered)) if wanted <= offered => Ok(()),
            (wanted, Some(offered)) => {
                let reason = format!(
                    "initiator_depth {wanted} exceeds the {offered} that the request offers"
                );
                Err(Error::invalid(operation, self.to_string(), reason))
            }
        }
    }

    pub(super) fn check_private_data(
        &self,
        operation: &'static str,
        private_data: &[u8],
        message: Message,
        transport: Transport,
    ) -> Result<()> {
        let peer_is_ib = self.state().peer.is_some_and(|peer| peer.family() == AddressFamily::Ib);
        let limit = private_data_limit(message, self.service(), transport, peer_is_ib);
        if private_data.len() <= limit {
            return Ok(());
        }
        let reason =
            format!("{} bytes of private data exceed the maximum of {limit}", private_data.len());
        Err(Error::invalid(operation, self.to_string(), reason))
    }
}

/// Returns the depths of `param`, with `most` in place of [`ConnParam::DEVICE_MAX`].
pub(super) fn effective_depths(param: &ConnParam, most: Depths) -> Depths {
    let pick = |wanted, most| if wanted == ConnParam::DEVICE_MAX { most } else { wanted };
    Depths {
        responder_resources: pick(param.responder_resources, most.responder_resources),
        initiator_depth: pick(param.initiator_depth, most.initiator_depth),
    }
}

/// Encodes `param` for the kernel, with the effective depths and the id's own queue pair.
pub(super) fn encode(param: &ConnParam, depths: Depths, qp: Option<&OwnQp>) -> rdma_ucm_conn_param {
    let (private_data, private_data_len) = private_data_field(&param.private_data);
    rdma_ucm_conn_param {
        qp_num: qp.map_or(param.qp_num, OwnQp::number),
        qkey: 0,
        private_data,
        private_data_len,
        srq: u8::from(qp.map_or(param.srq, OwnQp::has_srq)),
        responder_resources: depths.responder_resources,
        initiator_depth: depths.initiator_depth,
        flow_control: param.flow_control,
        retry_count: param.retry_count,
        rnr_retry_count: param.rnr_retry_count,
        valid: 1,
    }
}

/// Returns `data`, whose length was checked, as the field of a command.
pub(super) fn private_data_field(data: &[u8]) -> ([u8; RDMA_MAX_PRIVATE_DATA], u8) {
    let mut field = [0; RDMA_MAX_PRIVATE_DATA];
    field[..data.len()].copy_from_slice(data);
    (field, u8::try_from(data.len()).expect("no limit is above 251"))
}

#[cfg(test)]
mod tests;
