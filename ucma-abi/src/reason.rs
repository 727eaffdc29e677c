//! The reasons of failed connection requests: the values of an event's status.

use verbs_abi::abi_enum;

abi_enum! {
    table: REJ_REASON, header: "rdma/ib_cm.h";

    /// The reason of a rejection: the status of a REJECTED event on InfiniBand and RoCE.
    ///
    /// On iWARP the status is a negative errno instead.
    pub struct ib_cm_rej_reason: u32 {
        /// The peer has no queue pair available.
        IB_CM_REJ_NO_QP = 1;
        /// The peer has no end-to-end context available.
        IB_CM_REJ_NO_EEC = 2;
        /// The peer has no resources.
        IB_CM_REJ_NO_RESOURCES = 3;
        /// A message of the connection manager did not arrive in time.
        IB_CM_REJ_TIMEOUT = 4;
        /// The request is not supported.
        IB_CM_REJ_UNSUPPORTED = 5;
        /// Unknown local communication id.
        IB_CM_REJ_INVALID_COMM_ID = 6;
        /// Unknown pair of communication ids, service id and sender.
        IB_CM_REJ_INVALID_COMM_INSTANCE = 7;
        /// No program listens on this service id.
        IB_CM_REJ_INVALID_SERVICE_ID = 8;
        /// The transport type is not supported.
        IB_CM_REJ_INVALID_TRANSPORT_TYPE = 9;
        /// The peer still has an earlier connection with this queue pair.
        IB_CM_REJ_STALE_CONN = 10;
        /// The reliable datagram channel does not exist.
        IB_CM_REJ_RDC_NOT_EXIST = 11;
        /// The primary path's GID is not acceptable.
        IB_CM_REJ_INVALID_GID = 12;
        /// The primary path's LID is not acceptable.
        IB_CM_REJ_INVALID_LID = 13;
        /// The primary path's service level is not acceptable.
        IB_CM_REJ_INVALID_SL = 14;
        /// The primary path's traffic class is not acceptable.
        IB_CM_REJ_INVALID_TRAFFIC_CLASS = 15;
        /// The primary path's hop limit is not acceptable.
        IB_CM_REJ_INVALID_HOP_LIMIT = 16;
        /// The primary path's packet rate is not acceptable.
        IB_CM_REJ_INVALID_PACKET_RATE = 17;
        /// The alternate path's GID is not acceptable.
        IB_CM_REJ_INVALID_ALT_GID = 18;
        /// The alternate path's LID is not acceptable.
        IB_CM_REJ_INVALID_ALT_LID = 19;
        /// The alternate path's service level is not acceptable.
        IB_CM_REJ_INVALID_ALT_SL = 20;
        /// The alternate path's traffic class is not acceptable.
        IB_CM_REJ_INVALID_ALT_TRAFFIC_CLASS = 21;
        /// The alternate path's hop limit is not acceptable.
        IB_CM_REJ_INVALID_ALT_HOP_LIMIT = 22;
        /// The alternate path's packet rate is not acceptable.
        IB_CM_REJ_INVALID_ALT_PACKET_RATE = 23;
        /// The connection manager has moved; the data has the new location.
        IB_CM_REJ_PORT_CM_REDIRECT = 24;
        /// The service has moved; the data has the new location.
        IB_CM_REJ_PORT_REDIRECT = 25;
        /// The path MTU is not acceptable.
        IB_CM_REJ_INVALID_MTU = 26;
        /// Too few responder resources.
        IB_CM_REJ_INSUFFICIENT_RESP_RESOURCES = 27;
        /// The application rejected; its private data has the reason.
        IB_CM_REJ_CONSUMER_DEFINED = 28;
        /// The RNR retry count is not acceptable.
        IB_CM_REJ_INVALID_RNR_RETRY = 29;
        /// The local communication id is in use already.
        IB_CM_REJ_DUPLICATE_LOCAL_COMM_ID = 30;
        /// The version of the management class is not supported.
        IB_CM_REJ_INVALID_CLASS_VERSION = 31;
        /// The primary path's flow label is not acceptable.
        IB_CM_REJ_INVALID_FLOW_LABEL = 32;
        /// The alternate path's flow label is not acceptable.
        IB_CM_REJ_INVALID_ALT_FLOW_LABEL = 33;
        /// The vendor's option (ECE) is not supported.
        IB_CM_REJ_VENDOR_OPTION_NOT_SUPPORTED = 35;
    }
}

abi_enum! {
    table: SIDR_STATUS, header: "rdma/ib_cm.h";

    /// The result of resolving a datagram peer: the status of an UNREACHABLE event of such an id.
    pub struct ib_cm_sidr_status: u32 {
        /// Resolved.
        IB_SIDR_SUCCESS = 0;
        /// The service id is not supported.
        IB_SIDR_UNSUPPORTED = 1;
        /// The application rejected.
        IB_SIDR_REJECT = 2;
        /// The peer has no queue pair available.
        IB_SIDR_NO_QP = 3;
        /// The service has moved.
        IB_SIDR_REDIRECT = 4;
        /// The version is not supported.
        IB_SIDR_UNSUPPORTED_VERSION = 5;
    }
}
