//! The parameters that the two sides of a connection exchange.

use verbs_abi::ib_uverbs_ah_attr;

use crate::non_exhaustive::NonExhaustive;

/// Parameters of a connection: `struct rdma_conn_param` of the C library.
///
/// [`CmId::connect`](super::CmId::connect) proposes them, [`CmId::accept`](super::CmId::accept) answers with them, and
/// events report them. In an event the depths are already from the local point of view: the local side may have to
/// respond to the reads that the peer offers to initiate.
///
/// Create them from their default: see [Parameters](crate#parameters). The default has
/// [`DEVICE_MAX`](Self::DEVICE_MAX) for both depths and 7 for both retry counts. All other fields are 0, `false` or
/// empty.
#[doc(alias = "rdma_conn_param")]
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ConnParam {
    /// Bytes for the peer's program.
    ///
    /// On InfiniBand and RoCE, received private data includes the zero padding of the message's fixed field. The length
    /// that was sent is not known there.
    pub private_data: Vec<u8>,
    /// Maximum number of RDMA reads and atomics of the peer that the local side holds at once.
    ///
    /// [`ConnParam::DEVICE_MAX`] means the maximum of the device, and in an accept at most the number in the request.
    pub responder_resources: u8,
    /// Maximum number of RDMA reads and atomics that the local side has in flight.
    ///
    /// [`ConnParam::DEVICE_MAX`] means the maximum of the device. In an accept, it is at most the number that the
    /// request offers: see [`CmId::accept`](super::CmId::accept).
    ///
    /// If it is 0, or the peer holds none, siw refuses a posted read. rxe never processes such a read, nor the requests
    /// that are posted after it.
    pub initiator_depth: u8,
    /// Availability of hardware flow control; exchanged, but not used.
    pub flow_control: u8,
    /// Number of retransmissions of an unacknowledged packet, 0 to 7.
    ///
    /// Only the active side proposes it. On rxe, 7 means unlimited: posted work requests then never fail if the wire is
    /// cut.
    pub retry_count: u8,
    /// Number of retries of the peer after "receiver not ready", 0 to 6; 7 means unlimited.
    pub rnr_retry_count: u8,
    /// `true` if the queue pair has a shared receive queue.
    ///
    /// If the id has a queue pair, that queue pair determines the value. In an event it describes the queue pair of the
    /// peer; iWARP does not transmit it.
    pub srq: bool,
    /// Number of the queue pair, 24 bits.
    ///
    /// Ignored if the id has a queue pair. In an event it is the number of the peer's queue pair.
    pub qp_num: u32,
    #[doc(hidden)]
    pub non_exhaustive: NonExhaustive,
}

impl ConnParam {
    /// The maximum of the device: `RDMA_MAX_RESP_RES`, `RDMA_MAX_INIT_DEPTH`.
    #[doc(alias = "RDMA_MAX_RESP_RES")]
    #[doc(alias = "RDMA_MAX_INIT_DEPTH")]
    pub const DEVICE_MAX: u8 = 0xff;
}

impl Default for ConnParam {
    /// Returns the parameters that librdmacm uses for NULL.
    ///
    /// They have the maximum depths, and 7 retries of both kinds.
    fn default() -> Self {
        Self {
            private_data: Vec::new(),
            responder_resources: Self::DEVICE_MAX,
            initiator_depth: Self::DEVICE_MAX,
            flow_control: 0,
            retry_count: 7,
            rnr_retry_count: 7,
            srq: false,
            qp_num: 0,
            non_exhaustive: NonExhaustive::default(),
        }
    }
}

/// The destination of datagrams to a peer or a multicast group.
///
/// This is `struct rdma_ud_param` of the C library.
#[doc(alias = "rdma_ud_param")]
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct DatagramParam {
    /// Bytes of the peer's program, zero-padded to the length of the message's field.
    pub private_data: Vec<u8>,
    /// The attributes of an address handle.
    pub ah_attr: ib_uverbs_ah_attr,
    /// Number of the peer's queue pair, 24 bits.
    pub qp_num: u32,
    /// Q_Key that the peer accepts.
    pub qkey: u32,
}
