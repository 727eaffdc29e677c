//! The parsing core: the kernel's event bytes to typed values, as a pure function.

use std::fmt;

use ucma_abi::{rdma_cm_event_type, rdma_ucm_event_resp};
use zerocopy::{FromZeros, IntoBytes};

use super::param::{ConnParam, DatagramParam};
use crate::error::{Error, Result};

/// Fills [`EventType`], its names and its conversions from one list.
macro_rules! event_types {
    ($($(#[doc = $doc:literal])* $variant:ident = $name:ident;)*) => {
        /// What happened. `enum rdma_cm_event_type` of the C library.
        #[doc(alias = "rdma_cm_event_type")]
        #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
        #[non_exhaustive]
        pub enum EventType {
            $($(#[doc = $doc])* $variant,)*
            /// An event that this version does not know, by its number.
            Unknown(u32),
        }

        impl EventType {
            /// The C library's name, such as `RDMA_CM_EVENT_ESTABLISHED`; `UNKNOWN EVENT` for a number without one.
            #[doc(alias = "rdma_event_str")]
            pub fn name(self) -> &'static str {
                match self {
                    $(Self::$variant => stringify!($name),)*
                    Self::Unknown(_) => "UNKNOWN EVENT",
                }
            }
        }

        impl From<u32> for EventType {
            fn from(number: u32) -> Self {
                match rdma_cm_event_type(number) {
                    $(rdma_cm_event_type::$name => Self::$variant,)*
                    rdma_cm_event_type(number) => Self::Unknown(number),
                }
            }
        }

        impl From<EventType> for u32 {
            fn from(event: EventType) -> Self {
                match event {
                    $(EventType::$variant => rdma_cm_event_type::$name.0,)*
                    EventType::Unknown(number) => number,
                }
            }
        }
    };
}

event_types! {
    /// The address is resolved, and the id bound to a device.
    AddrResolved = RDMA_CM_EVENT_ADDR_RESOLVED;
    /// The address could not be resolved; the status is a negative errno.
    AddrError = RDMA_CM_EVENT_ADDR_ERROR;
    /// The route is resolved.
    RouteResolved = RDMA_CM_EVENT_ROUTE_RESOLVED;
    /// The route could not be resolved; the status is a negative errno.
    RouteError = RDMA_CM_EVENT_ROUTE_ERROR;
    /// A peer wants to connect: the event holds a new id for it.
    ConnectRequest = RDMA_CM_EVENT_CONNECT_REQUEST;
    /// The peer accepted, on an id without a queue pair of its own.
    ConnectResponse = RDMA_CM_EVENT_CONNECT_RESPONSE;
    /// The connection could not be established; the status is a negative errno.
    ConnectError = RDMA_CM_EVENT_CONNECT_ERROR;
    /// The peer does not answer.
    Unreachable = RDMA_CM_EVENT_UNREACHABLE;
    /// The peer, or its kernel, rejected: the status is the reason.
    Rejected = RDMA_CM_EVENT_REJECTED;
    /// The connection stands.
    Established = RDMA_CM_EVENT_ESTABLISHED;
    /// The connection is over.
    Disconnected = RDMA_CM_EVENT_DISCONNECTED;
    /// The device of the id was removed: only destroying the id is left.
    DeviceRemoval = RDMA_CM_EVENT_DEVICE_REMOVAL;
    /// The multicast group is joined.
    MulticastJoin = RDMA_CM_EVENT_MULTICAST_JOIN;
    /// The multicast group could not be joined, or is lost.
    MulticastError = RDMA_CM_EVENT_MULTICAST_ERROR;
    /// The network device under the id changed its hardware address.
    AddrChange = RDMA_CM_EVENT_ADDR_CHANGE;
    /// The queue pair has left its timewait state and may be used again.
    TimewaitExit = RDMA_CM_EVENT_TIMEWAIT_EXIT;
    /// A service was resolved (Linux 6.18).
    AddrinfoResolved = RDMA_CM_EVENT_ADDRINFO_RESOLVED;
    /// A service could not be resolved (Linux 6.18).
    AddrinfoError = RDMA_CM_EVENT_ADDRINFO_ERROR;
    /// An event that a program wrote (Linux 6.18).
    User = RDMA_CM_EVENT_USER;
    /// An event between parts of a library (Linux 6.18).
    Internal = RDMA_CM_EVENT_INTERNAL;
}

impl fmt::Display for EventType {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Unknown(number) => write!(f, "event {number}"),
            known => f.write_str(known.name()),
        }
    }
}

/// What kind of service an id offers. The bytes of an event do not say which of the two layouts its parameters have.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Service {
    /// Connected queue pairs.
    Connected,
    /// Unreliable datagrams.
    Datagram,
}

/// An event as the kernel stored it, before anybody asked which id it belongs to.
#[derive(Debug, Clone, Copy)]
pub struct RawEvent {
    response: rdma_ucm_event_resp,
}

/// The parameters of an event.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum EventData {
    /// The event has none.
    None,
    /// Of a connected service.
    Connection(ConnParam),
    /// Of a datagram service, or of a multicast group.
    Datagram(DatagramParam),
    /// A number that somebody wrote with the event.
    Argument(u64),
}

impl RawEvent {
    /// The length of the response that kernels before 5.8 store: without what comes after the parameters.
    pub const SHORTEST: usize = rdma_ucm_event_resp::MIN_SIZE;

    /// The event in `bytes`, the kernel's response to GET_EVENT.
    ///
    /// A response that is longer than this version knows is read as far as it is known; one that ends in the fields that
    /// came later reads as zeros there.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::Malformed`](crate::ErrorKind::Malformed) where the bytes are fewer than any kernel stores.
    pub fn from_bytes(bytes: &[u8]) -> Result<Self> {
        if bytes.len() < Self::SHORTEST {
            let what = format!("{} bytes where {} are the least", bytes.len(), Self::SHORTEST);
            return Err(Error::malformed("read an event", "", what));
        }
        let mut response = rdma_ucm_event_resp::new_zeroed();
        let known = bytes.len().min(size_of::<rdma_ucm_event_resp>());
        response.as_mut_bytes()[..known].copy_from_slice(&bytes[..known]);
        Ok(Self { response })
    }

    pub(crate) fn new(response: rdma_ucm_event_resp) -> Self {
        Self { response }
    }

    /// The number that the program gave the id (or, with CONNECT_REQUEST, the listening id), 0 if none.
    pub fn uid(&self) -> u64 {
        self.response.uid.get()
    }

    /// The kernel's handle of the id: with CONNECT_REQUEST of the new one.
    pub fn handle(&self) -> u32 {
        self.response.id
    }

    /// What happened.
    pub fn event_type(&self) -> EventType {
        EventType::from(self.response.event.0)
    }

    /// 0, a negative errno, or with REJECTED the reason.
    pub fn status(&self) -> i32 {
        // The header's field is unsigned; what the kernel puts in it is not.
        self.response.status as i32
    }

    /// The parameters, for an id that offers `service`.
    pub fn data(&self, service: Service) -> EventData {
        use EventType as T;
        match (self.event_type(), service) {
            (T::User | T::Internal, _) => EventData::Argument(self.response.arg()),
            (
                T::AddrResolved
                | T::AddrError
                | T::RouteResolved
                | T::RouteError
                | T::AddrinfoResolved
                | T::AddrinfoError
                | T::AddrChange
                | T::DeviceRemoval
                | T::TimewaitExit
                | T::MulticastError,
                _,
            ) => EventData::None,
            (T::MulticastJoin, _) | (_, Service::Datagram) => EventData::Datagram(self.datagram()),
            (_, Service::Connected) => EventData::Connection(self.connection()),
        }
    }

    fn connection(&self) -> ConnParam {
        let param = self.response.conn();
        ConnParam {
            private_data: param.private_data().to_vec(),
            responder_resources: param.responder_resources,
            initiator_depth: param.initiator_depth,
            flow_control: param.flow_control,
            retry_count: param.retry_count,
            rnr_retry_count: param.rnr_retry_count,
            srq: param.srq != 0,
            qp_num: param.qp_num,
        }
    }

    fn datagram(&self) -> DatagramParam {
        let param = self.response.ud();
        DatagramParam {
            private_data: param.private_data().to_vec(),
            ah_attr: param.ah_attr,
            qp_num: param.qp_num,
            qkey: param.qkey,
        }
    }
}
