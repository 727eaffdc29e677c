//! Queue pair states: the steps of a connection as a pure plan, and the function that executes it.
//!
//! A plan names the states in order, and the source of the attributes of each. It does not depend on the kernel and can
//! be tested alone.

use verbs_abi::{ib_qp_attr_mask, ib_uverbs_qp_attr};

use super::own_qp::OwnQp;
use super::service_type::ServiceType;
use crate::error::Result;
use crate::verbs::{Depths, QpState, QueuePairAttributes};

/// One step of a plan.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Step {
    /// The target state.
    pub(crate) state: QpState,
    /// The source of the attributes.
    pub(crate) attributes: Attributes,
}

/// The source of a step's attributes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Attributes {
    /// Attributes from the connection manager, with some values replaced.
    ///
    /// The connection manager knows the path, the sequence numbers and the peer.
    FromCm {
        /// Maximum number of the peer's RDMA reads and atomics in flight.
        responder_resources: Option<u8>,
        /// Maximum number of the local side's RDMA reads and atomics in flight.
        initiator_depth: Option<u8>,
        /// `true` if the peer's access rights and the partition are taken from a new query for INIT.
        queries_init: bool,
    },
    /// Only the state.
    StateOnly,
    /// The state, and zero as the first packet sequence number to send.
    PacketsFromZero,
}

impl Attributes {
    const FROM_CM: Self =
        Self::FromCm { responder_resources: None, initiator_depth: None, queries_init: false };
}

/// Returns the steps of a new queue pair.
///
/// A connected queue pair moves to INIT, so that receives can be posted. A queue pair for datagrams needs no peer
/// and moves to RTS at once.
pub(crate) fn created(service: ServiceType) -> &'static [Step] {
    const INIT: Step = Step { state: QpState::IB_QPS_INIT, attributes: Attributes::FROM_CM };
    match service {
        ServiceType::Connected => &[INIT],
        ServiceType::Datagram => &[
            INIT,
            Step { state: QpState::IB_QPS_RTR, attributes: Attributes::StateOnly },
            Step { state: QpState::IB_QPS_RTS, attributes: Attributes::PacketsFromZero },
        ],
    }
}

/// Returns the steps to RTR and RTS of a queue pair whose peer is known.
///
/// Only now does the connection manager know the access rights of the peer. They were empty when the queue pair went to
/// INIT. The C library repeats the step to INIT for them, but RTR can set them as well.
///
/// On iWARP the connection manager leaves the state out of the attributes of RTS. The kernel changes the state itself
/// when the connection is established.
pub(crate) fn connected(depths: Option<Depths>) -> [Step; 2] {
    let responder_resources = depths.map(|depths| depths.responder_resources);
    let initiator_depth = depths.map(|depths| depths.initiator_depth);
    let receive =
        Attributes::FromCm { responder_resources, initiator_depth: None, queries_init: true };
    let send =
        Attributes::FromCm { responder_resources: None, initiator_depth, queries_init: false };
    [
        Step { state: QpState::IB_QPS_RTR, attributes: receive },
        Step { state: QpState::IB_QPS_RTS, attributes: send },
    ]
}

/// Returns the step to ERR of a queue pair whose connection ends or cannot be established.
///
/// Posted work requests complete with a flush error. On iWARP the step closes the connection. The C library goes to SQD
/// on iWARP. That closes the connection in the same way and interrupts sends in flight, but siw then forgets the reads
/// without a response.
pub(crate) fn ended() -> [Step; 1] {
    [Step { state: QpState::IB_QPS_ERR, attributes: Attributes::StateOnly }]
}

/// Takes `qp` through `steps`; `query_attr` sends the connection manager's INIT_QP_ATTR.
pub(super) fn apply_steps(
    steps: &[Step],
    qp: &OwnQp,
    query_attr: impl Fn(QpState) -> Result<ib_uverbs_qp_attr>,
) -> Result<()> {
    for step in steps {
        let attributes = match step.attributes {
            Attributes::StateOnly => *QueuePairAttributes::to(step.state),
            Attributes::PacketsFromZero => *QueuePairAttributes::to(step.state).sq_psn(0),
            Attributes::FromCm { responder_resources, initiator_depth, queries_init } => {
                let init =
                    if queries_init { Some(query_attr(QpState::IB_QPS_INIT)?) } else { None };
                let mut attributes = query_attr(step.state)?;
                if let Some(init) = init {
                    copy_init_attributes(&mut attributes, &init);
                }
                if let Some(depth) = responder_resources {
                    attributes.max_dest_rd_atomic = depth;
                }
                if let Some(depth) = initiator_depth {
                    attributes.max_rd_atomic = depth;
                }
                attributes
            }
        };
        qp.modify(&attributes.into())?;
    }
    Ok(())
}

/// Copies the attributes that RTR may also set from the attributes for INIT.
fn copy_init_attributes(attributes: &mut ib_uverbs_qp_attr, init: &ib_uverbs_qp_attr) {
    let common = ib_qp_attr_mask::IB_QP_ACCESS_FLAGS | ib_qp_attr_mask::IB_QP_PKEY_INDEX;
    attributes.qp_attr_mask |= init.qp_attr_mask & common.bits();
    attributes.qp_access_flags = init.qp_access_flags;
    attributes.pkey_index = init.pkey_index;
}

#[cfg(test)]
mod tests;
