//! Connections: CONNECT, LISTEN, ACCEPT, REJECT, DISCONNECT, INIT_QP_ATTR, NOTIFY.

use verbs_abi::{AlignedU64, abi_constants, abi_structs, ib_uverbs_ah_attr, ib_uverbs_qp_attr};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

use crate::command::commands;

abi_constants! {
    table: CONNECTION_CONSTANTS, header: "rdma/rdma_user_cm.h";

    /// Bytes of the private data fields. Fewer bytes may be sent, depending on message and transport.
    RDMA_MAX_PRIVATE_DATA: usize = 256;
}

abi_structs! {
    table: CONNECTION_LAYOUT, header: "rdma/rdma_user_cm.h";

    /// Parameters of a connection, sent with CONNECT and ACCEPT and received in events.
    #[derive(PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout)]
    pub struct rdma_ucm_conn_param: size 272, align 4 {
        /// Number of the local queue pair; in an event, of the peer's.
        0 => qp_num: u32,
        /// Q_Key.
        4 => qkey: u32,
        /// Private data.
        8 => private_data: [u8; RDMA_MAX_PRIVATE_DATA],
        /// Bytes of private data.
        ///
        /// In an event of InfiniBand or RoCE it is the size of the field, regardless of the length that was sent.
        264 => private_data_len: u8,
        /// 1 if the queue pair has a shared receive queue.
        265 => srq: u8,
        /// RDMA reads and atomics that the peer may have outstanding here.
        ///
        /// In an event, the number is from the local point of view.
        266 => responder_resources: u8,
        /// RDMA reads and atomics that may be outstanding toward the peer.
        ///
        /// In an event, the number is from the local point of view.
        267 => initiator_depth: u8,
        /// 1 if the hardware has end-to-end flow control.
        268 => flow_control: u8,
        /// Retries of an unanswered packet, 0 to 7.
        269 => retry_count: u8,
        /// Retries after an RNR NAK, 0 to 7; 7 means unlimited.
        270 => rnr_retry_count: u8,
        /// 1 if the parameters are valid.
        ///
        /// ACCEPT with 0 completes a connection (RTU); CONNECT with 0 is `EINVAL`.
        271 => valid: u8,
    }

    /// Parameters of a datagram peer, as received in events.
    #[derive(PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout)]
    pub struct rdma_ucm_ud_param: size 304, align 4 {
        /// Number of the peer's queue pair.
        0 => qp_num: u32,
        /// Q_Key to send with.
        4 => qkey: u32,
        /// Address of the peer.
        8 => ah_attr: ib_uverbs_ah_attr,
        /// Private data.
        40 => private_data: [u8; RDMA_MAX_PRIVATE_DATA],
        /// Bytes of private data.
        296 => private_data_len: u8,
        /// Zero.
        297 => reserved: [u8; 7],
    }

    /// Enhanced connection establishment: the options that devices of vendors negotiate (Linux 5.8).
    #[derive(Default, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout)]
    pub struct rdma_ucm_ece: size 8, align 4 {
        /// Vendor, 0 for none.
        0 => vendor_id: u32,
        /// Vendor's attributes.
        4 => attr_mod: u32,
    }

    /// The request of CONNECT, which asks the peer for a connection.
    ///
    /// CONNECT_RESPONSE, ESTABLISHED, REJECTED, UNREACHABLE or CONNECT_ERROR follows.
    #[derive(IntoBytes, Immutable)]
    pub struct rdma_ucm_connect: size 288, align 4 {
        /// Parameters.
        0 => conn_param: rdma_ucm_conn_param,
        /// The handle.
        272 => id: u32,
        /// Zero.
        276 => reserved: u32,
        /// Since Linux 5.8; earlier kernels know 280 bytes.
        280 => ece: rdma_ucm_ece,
    }

    /// The request of LISTEN, which listens for connection requests. CONNECT_REQUEST follows for each.
    #[derive(IntoBytes, Immutable)]
    pub struct rdma_ucm_listen: size 8, align 4 {
        /// The handle.
        0 => id: u32,
        /// Requests that may wait. 0, or more than `net.rdma_ucm.max_backlog`, becomes that maximum.
        4 => backlog: u32,
    }

    /// The request of ACCEPT, which accepts a connection request, or completes a connection.
    ///
    /// ESTABLISHED follows.
    #[derive(IntoBytes, Immutable)]
    pub struct rdma_ucm_accept: size 296, align 8 {
        /// The caller's value, handed back in every event from now on; set only if `conn_param.valid` is 1.
        0 => uid: AlignedU64,
        /// Parameters.
        8 => conn_param: rdma_ucm_conn_param,
        /// The handle.
        280 => id: u32,
        /// Zero.
        284 => reserved: u32,
        /// Since Linux 5.8; earlier kernels know 288 bytes.
        288 => ece: rdma_ucm_ece,
    }

    /// The request of REJECT, which rejects a connection request. The peer gets REJECTED.
    #[derive(IntoBytes, Immutable)]
    pub struct rdma_ucm_reject: size 264, align 4 {
        /// The handle.
        0 => id: u32,
        /// Bytes of private data.
        4 => private_data_len: u8,
        /// The reason: one of two values, otherwise `EINVAL`.
        ///
        /// They are [`IB_CM_REJ_CONSUMER_DEFINED`](crate::ib_cm_rej_reason::IB_CM_REJ_CONSUMER_DEFINED) (0 has the same
        /// meaning) and
        /// [`IB_CM_REJ_VENDOR_OPTION_NOT_SUPPORTED`](crate::ib_cm_rej_reason::IB_CM_REJ_VENDOR_OPTION_NOT_SUPPORTED).
        ///
        /// Since Linux 5.8; earlier kernels ignore it.
        5 => reason: u8,
        /// Zero.
        6 => reserved: [u8; 2],
        /// Private data.
        8 => private_data: [u8; RDMA_MAX_PRIVATE_DATA],
    }

    /// The request of DISCONNECT. DISCONNECTED follows on both sides, later TIMEWAIT_EXIT.
    #[derive(IntoBytes, Immutable)]
    pub struct rdma_ucm_disconnect: size 4, align 4 {
        /// The handle.
        0 => id: u32,
    }

    /// The request of INIT_QP_ATTR, which reads the attributes that a queue pair needs for a state.
    #[derive(IntoBytes, Immutable)]
    pub struct rdma_ucm_init_qp_attr: size 16, align 8 {
        /// Address of an [`ib_uverbs_qp_attr`].
        0 => response: AlignedU64,
        /// The handle.
        8 => id: u32,
        /// The state, an `IB_QPS_*`.
        12 => qp_state: u32,
    }

    /// The request of NOTIFY, which reports an event of the queue pair, such as data before the peer's RTU.
    #[derive(IntoBytes, Immutable)]
    pub struct rdma_ucm_notify: size 8, align 4 {
        /// The handle.
        0 => id: u32,
        /// The event, an `IB_EVENT_*`.
        4 => event: u32,
    }
}

commands! {
    RDMA_USER_CM_CMD_CONNECT for rdma_ucm_connect;
    RDMA_USER_CM_CMD_LISTEN for rdma_ucm_listen;
    RDMA_USER_CM_CMD_ACCEPT for rdma_ucm_accept;
    RDMA_USER_CM_CMD_REJECT for rdma_ucm_reject;
    RDMA_USER_CM_CMD_DISCONNECT for rdma_ucm_disconnect;
    RDMA_USER_CM_CMD_INIT_QP_ATTR for rdma_ucm_init_qp_attr => ib_uverbs_qp_attr;
    RDMA_USER_CM_CMD_NOTIFY for rdma_ucm_notify;
}

impl rdma_ucm_conn_param {
    /// Returns the private data, without the rest of the field.
    pub fn private_data(&self) -> &[u8] {
        &self.private_data[..usize::from(self.private_data_len)]
    }
}

impl rdma_ucm_ud_param {
    /// Returns the private data, without the rest of the field.
    pub fn private_data(&self) -> &[u8] {
        &self.private_data[..usize::from(self.private_data_len)]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn private_data_ends_at_its_length() {
        let mut bytes = [0; 272];
        bytes[8..11].copy_from_slice(b"abc");
        bytes[264] = 2;
        let param = rdma_ucm_conn_param::read_from_bytes(&bytes).unwrap();
        assert_eq!(param.private_data(), b"ab");

        let mut bytes = [0; 304];
        bytes[40..43].copy_from_slice(b"abc");
        bytes[296] = 255;
        let param = rdma_ucm_ud_param::read_from_bytes(&bytes).unwrap();
        assert_eq!(param.private_data().len(), 255);
        assert_eq!(&param.private_data()[..4], b"abc\0");
    }
}
