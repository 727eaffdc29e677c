//! Events: GET_EVENT, and WRITE_CM_EVENT, which makes one.

use core::mem::offset_of;

use verbs_abi::{AlignedU64, abi_enum, abi_structs};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

use crate::command::commands;
use crate::{rdma_ucm_conn_param, rdma_ucm_ece, rdma_ucm_ud_param};

abi_enum! {
    table: EVENT_TYPE, header: "rdma/rdma_cm.h";

    /// The type of the event.
    pub struct rdma_cm_event_type: u32 {
        /// RESOLVE_ADDR found a device and an address.
        RDMA_CM_EVENT_ADDR_RESOLVED = 0;
        /// RESOLVE_ADDR failed; the status is a negative errno.
        RDMA_CM_EVENT_ADDR_ERROR = 1;
        /// RESOLVE_ROUTE found a path.
        RDMA_CM_EVENT_ROUTE_RESOLVED = 2;
        /// RESOLVE_ROUTE failed; the status is a negative errno.
        RDMA_CM_EVENT_ROUTE_ERROR = 3;
        /// A peer requests a connection.
        ///
        /// The event belongs to the listener (`uid`) and has the handle of a new id (`id`).
        RDMA_CM_EVENT_CONNECT_REQUEST = 4;
        /// The peer accepted; the queue pair has to be made ready and ACCEPT sent.
        RDMA_CM_EVENT_CONNECT_RESPONSE = 5;
        /// CONNECT or ACCEPT failed; the status is a negative errno.
        RDMA_CM_EVENT_CONNECT_ERROR = 6;
        /// The peer does not answer. For a datagram id the status may be an
        /// [`ib_cm_sidr_status`](crate::ib_cm_sidr_status).
        RDMA_CM_EVENT_UNREACHABLE = 7;
        /// The peer rejected.
        ///
        /// The status is an [`ib_cm_rej_reason`](crate::ib_cm_rej_reason); on iWARP a negative errno.
        RDMA_CM_EVENT_REJECTED = 8;
        /// The connection is up.
        RDMA_CM_EVENT_ESTABLISHED = 9;
        /// The connection is down.
        RDMA_CM_EVENT_DISCONNECTED = 10;
        /// The device is being removed.
        RDMA_CM_EVENT_DEVICE_REMOVAL = 11;
        /// The id joined the multicast group.
        RDMA_CM_EVENT_MULTICAST_JOIN = 12;
        /// The id could not join the multicast group, or lost its membership; the status is a negative errno.
        RDMA_CM_EVENT_MULTICAST_ERROR = 13;
        /// The network device's address changed; the id should be bound again.
        RDMA_CM_EVENT_ADDR_CHANGE = 14;
        /// The queue pair has left the time-wait state and may be used again.
        RDMA_CM_EVENT_TIMEWAIT_EXIT = 15;
        /// RESOLVE_IB_SERVICE found the service.
        #[since("6.18")]
        RDMA_CM_EVENT_ADDRINFO_RESOLVED = 16;
        /// RESOLVE_IB_SERVICE failed; the status is a negative errno.
        #[since("6.18")]
        RDMA_CM_EVENT_ADDRINFO_ERROR = 17;
        /// An event that the caller wrote.
        #[since("6.18")]
        RDMA_CM_EVENT_USER = 18;
        /// An event that the library wrote for its own use.
        #[since("6.18")]
        RDMA_CM_EVENT_INTERNAL = 19;
    }
}

abi_structs! {
    table: EVENT_LAYOUT, header: "rdma/rdma_user_cm.h";

    /// The request of GET_EVENT, which takes the next event of the channel.
    ///
    /// It waits for an event unless the channel is non-blocking.
    #[derive(IntoBytes, Immutable)]
    pub struct rdma_ucm_get_event: size 8, align 8 {
        /// Address of a [`rdma_ucm_event_resp`].
        0 => response: AlignedU64,
    }

    /// An event.
    #[derive(PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout)]
    pub struct rdma_ucm_event_resp: size 336, align 8 {
        /// The caller's value of the id or of the multicast membership.
        ///
        /// For a connection request it is the value of the listener.
        0 => uid: AlignedU64,
        /// Handle of the id or of the membership; of the new id for a connection request.
        8 => id: u32,
        /// The type of the event.
        12 => event: rdma_cm_event_type,
        /// The status: 0, a negative errno, or a reason, depending on the event.
        16 => status: u32,
        /// A union of the parameters.
        ///
        /// [`conn`](Self::conn) is for connected ids, [`ud`](Self::ud) for datagram ids and multicast,
        /// [`arg`](Self::arg) for the value of WRITE_CM_EVENT.
        ///
        /// The event does not specify the member: the kind of the id does.
        20 => param: [u8; 304],
        /// Zero.
        324 => reserved: u32,
        /// ECE options of a connection request or response.
        ///
        /// Since Linux 5.8; earlier kernels end at [`Self::MIN_SIZE`].
        328 => ece: rdma_ucm_ece,
    }

    /// The request of WRITE_CM_EVENT, which puts an event into the channel of the id. Linux 6.18.
    #[derive(IntoBytes, Immutable)]
    #[since("6.18")]
    pub struct rdma_ucm_write_cm_event: size 320, align 8, i386 4 {
        /// The handle.
        0 => id: u32,
        /// Zero.
        4 => reserved: u32,
        /// [`USER`](rdma_cm_event_type::RDMA_CM_EVENT_USER) or
        /// [`INTERNAL`](rdma_cm_event_type::RDMA_CM_EVENT_INTERNAL), else `EINVAL`.
        8 => event: rdma_cm_event_type,
        /// Status of the event.
        12 => status: u32,
        /// A union. The kernel takes its member [`arg`](Self::arg) only.
        16 => param: [u8; 304],
    }
}

impl rdma_ucm_event_resp {
    /// Bytes that every kernel stores, and the least that it accepts as the length of the response.
    pub const MIN_SIZE: usize = offset_of!(Self, reserved);

    /// Returns the parameters of a connected id.
    pub fn conn(&self) -> rdma_ucm_conn_param {
        first(&self.param)
    }

    /// Returns the parameters of a datagram id, or of a multicast membership.
    pub fn ud(&self) -> rdma_ucm_ud_param {
        first(&self.param)
    }

    /// Returns the value of WRITE_CM_EVENT (Linux 6.18).
    pub fn arg(&self) -> u64 {
        first(&self.param)
    }
}

impl rdma_ucm_write_cm_event {
    /// Creates the request for an event with a value of the caller.
    pub fn new(id: u32, event: rdma_cm_event_type, status: u32, arg: u64) -> Self {
        let mut param = [0; 304];
        param[..size_of::<u64>()].copy_from_slice(&arg.to_ne_bytes());
        Self { id, reserved: 0, event, status, param }
    }

    /// Returns the value of the event.
    pub fn arg(&self) -> u64 {
        first(&self.param)
    }
}

/// Returns the member `T` of the union; all members start at its first byte.
fn first<T: FromBytes>(param: &[u8; 304]) -> T {
    const { assert!(size_of::<T>() <= 304) };
    T::read_from_bytes(&param[..size_of::<T>()]).expect("the slice has the size of T")
}

commands! {
    RDMA_USER_CM_CMD_GET_EVENT for rdma_ucm_get_event => rdma_ucm_event_resp;
    RDMA_USER_CM_CMD_WRITE_CM_EVENT for rdma_ucm_write_cm_event;
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Command;

    fn event(param: &[u8]) -> rdma_ucm_event_resp {
        let mut bytes = [0; 336];
        bytes[..8].copy_from_slice(&7_u64.to_ne_bytes());
        bytes[8..12].copy_from_slice(&3_u32.to_ne_bytes());
        bytes[12..16].copy_from_slice(&4_u32.to_ne_bytes());
        bytes[16..20].copy_from_slice(&28_u32.to_ne_bytes());
        bytes[20..20 + param.len()].copy_from_slice(param);
        bytes[328..332].copy_from_slice(&0x15b3_u32.to_ne_bytes());
        rdma_ucm_event_resp::read_from_bytes(&bytes).unwrap()
    }

    #[test]
    fn fields_around_union_are_read() {
        let event = event(&[]);
        assert_eq!(event.uid.get(), 7);
        assert_eq!(event.id, 3);
        assert_eq!(event.event, rdma_cm_event_type::RDMA_CM_EVENT_CONNECT_REQUEST);
        assert_eq!(event.event.name(), Some("RDMA_CM_EVENT_CONNECT_REQUEST"));
        assert_eq!(event.status, 28);
        assert_eq!(event.ece.vendor_id, 0x15b3);
        assert_eq!(rdma_ucm_event_resp::MIN_SIZE, 324);
        assert_eq!(rdma_cm_event_type(20).name(), None);
    }

    #[test]
    fn conn_is_read_from_union() {
        let mut param = [0; 272];
        param[..4].copy_from_slice(&0x11_u32.to_ne_bytes());
        param[8..11].copy_from_slice(b"hey");
        param[264..].copy_from_slice(&[56, 1, 2, 3, 4, 5, 6, 7]);
        let conn = event(&param).conn();
        assert_eq!(conn.qp_num, 0x11);
        assert_eq!(conn.private_data().len(), 56);
        assert_eq!(&conn.private_data()[..4], b"hey\0");
        assert_eq!((conn.srq, conn.responder_resources, conn.initiator_depth), (1, 2, 3));
        assert_eq!((conn.flow_control, conn.retry_count, conn.rnr_retry_count), (4, 5, 6));
        assert_eq!(conn.valid, 7);
    }

    #[test]
    fn ud_is_read_from_union() {
        let mut param = [0; 304];
        param[..4].copy_from_slice(&0x22_u32.to_ne_bytes());
        param[4..8].copy_from_slice(&0x0123_4567_u32.to_ne_bytes());
        param[8] = 0xfe;
        param[8 + 29] = 1;
        param[40] = 0x40;
        param[296] = 1;
        let ud = event(&param).ud();
        assert_eq!((ud.qp_num, ud.qkey), (0x22, 0x0123_4567));
        assert_eq!(ud.ah_attr.grh.dgid[0], 0xfe);
        assert_eq!(ud.ah_attr.is_global, 1);
        assert_eq!(ud.private_data(), [0x40]);
    }

    #[test]
    fn arg_round_trips() {
        let event_type = rdma_cm_event_type::RDMA_CM_EVENT_USER;
        let request = rdma_ucm_write_cm_event::new(3, event_type, 5, 0x0102_0304_0506_0708);
        let mut golden = [0; 320];
        golden[..4].copy_from_slice(&3_u32.to_ne_bytes());
        golden[8..12].copy_from_slice(&18_u32.to_ne_bytes());
        golden[12..16].copy_from_slice(&5_u32.to_ne_bytes());
        golden[16..24].copy_from_slice(&0x0102_0304_0506_0708_u64.to_ne_bytes());
        assert_eq!(request.as_bytes(), golden);
        assert_eq!(request.arg(), 0x0102_0304_0506_0708);
        assert_eq!(event(&golden[16..24]).arg(), 0x0102_0304_0506_0708);
        assert_eq!(rdma_ucm_write_cm_event::NUMBER, 24);
    }
}
