//! The parameters that two sides exchange when they connect.

use verbs_abi::ib_uverbs_ah_attr;

use crate::non_exhaustive::NonExhaustive;

/// Parameters of a connection, as proposed with [`CmId::connect`](super::CmId::connect), answered
/// with [`CmId::accept`](super::CmId::accept) and reported by events. `struct rdma_conn_param` of
/// the C library.
///
/// In an event the depths are from the local point of view already: what the peer offers to
/// initiate is what the local side may have to respond to.
///
/// Made from its default: see [Parameters](crate#parameters).
#[doc(alias = "rdma_conn_param")]
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ConnParam {
    /// Bytes for the peer's program. Received, on InfiniBand and RoCE, with the zero padding of
    /// the message's fixed field: the length sent is not known there.
    pub private_data: Vec<u8>,
    /// RDMA reads and atomics from the peer that the local side holds at once; [`ConnParam::MAX`]
    /// for what the device can (and, accepting, what the request asks).
    pub responder_resources: u8,
    /// RDMA reads and atomics that the local side has outstanding; [`ConnParam::MAX`] as above.
    /// Accepting, no more than the request offers: see [`CmId::accept`](super::CmId::accept). With 0, and where the
    /// peer holds none, siw refuses a read that is posted, and rxe never comes to it, nor to what is posted behind it.
    pub initiator_depth: u8,
    /// Hardware flow control is available. Exchanged, not used.
    pub flow_control: u8,
    /// How often an unacknowledged packet is sent again, 0 to 7. Proposed by the active side only.
    /// To rxe, 7 means without end: posted work then never fails where the wire is cut.
    pub retry_count: u8,
    /// How often the peer sends again after "receiver not ready", 0 to 6; 7 is without end.
    pub rnr_retry_count: u8,
    /// The queue pair has a shared receive queue. Where the id has a queue pair of its own, that
    /// decides; in an event the peer's has one, which iWARP does not say.
    pub srq: bool,
    /// Number of the queue pair, 24 bits. Ignored where the id has a queue pair of its own; in an
    /// event the peer's.
    pub qp_num: u32,
    #[doc(hidden)]
    pub non_exhaustive: NonExhaustive,
}

impl ConnParam {
    /// As many as the device can: `RDMA_MAX_RESP_RES`, `RDMA_MAX_INIT_DEPTH`.
    #[doc(alias = "RDMA_MAX_RESP_RES")]
    #[doc(alias = "RDMA_MAX_INIT_DEPTH")]
    pub const MAX: u8 = 0xff;
}

impl Default for ConnParam {
    /// The parameters that librdmacm takes for NULL: all the depth there is, and 7 retries of both
    /// kinds.
    fn default() -> Self {
        Self {
            private_data: Vec::new(),
            responder_resources: Self::MAX,
            initiator_depth: Self::MAX,
            flow_control: 0,
            retry_count: 7,
            rnr_retry_count: 7,
            srq: false,
            qp_num: 0,
            non_exhaustive: NonExhaustive::default(),
        }
    }
}

/// Where and how to send datagrams to a peer or a multicast group. `struct rdma_ud_param` of the C
/// library.
#[doc(alias = "rdma_ud_param")]
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct DatagramParam {
    /// Bytes of the peer's program, zero-padded to the message's field.
    pub private_data: Vec<u8>,
    /// The address for an address handle.
    pub ah_attr: ib_uverbs_ah_attr,
    /// Number of the peer's queue pair, 24 bits.
    pub qp_num: u32,
    /// Q_Key that the peer takes.
    pub qkey: u32,
}
