//! The parser of events: a pure function from the bytes of the kernel to typed values.

use std::fmt;

use ucma_abi::{rdma_cm_event_type, rdma_ucm_event_resp};
use zerocopy::{FromZeros, IntoBytes};

use super::param::{ConnParam, DatagramParam};
use super::service_type::ServiceType;
use crate::error::{Error, Result};
use crate::non_exhaustive::NonExhaustive;
use crate::verbs::Ece;

/// Generates [`EventType`], its names and its conversions from one list.
macro_rules! event_types {
    ($($(#[doc = $doc:literal])* $variant:ident = $name:ident;)*) => {
        /// The type of an event: `enum rdma_cm_event_type` of the C library.
        #[doc(alias = "rdma_cm_event_type")]
        #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
        #[non_exhaustive]
        pub enum EventType {
            $($(#[doc = $doc])* $variant,)*
            /// An event that this version does not know, with its number.
            Unknown(u32),
        }

        impl EventType {
            /// Returns the C library's name, such as `RDMA_CM_EVENT_ESTABLISHED`.
            ///
            /// An unknown number has the name `UNKNOWN EVENT`.
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
    /// The address was resolved, and the id is bound to a device.
    AddrResolved = RDMA_CM_EVENT_ADDR_RESOLVED;
    /// The address could not be resolved; the status is a negative errno.
    AddrError = RDMA_CM_EVENT_ADDR_ERROR;
    /// The route was resolved.
    RouteResolved = RDMA_CM_EVENT_ROUTE_RESOLVED;
    /// The route could not be resolved; the status is a negative errno.
    RouteError = RDMA_CM_EVENT_ROUTE_ERROR;
    /// A peer requests a connection; the event has a new id for it.
    ConnectRequest = RDMA_CM_EVENT_CONNECT_REQUEST;
    /// The peer accepted, on an id without a queue pair.
    ConnectResponse = RDMA_CM_EVENT_CONNECT_RESPONSE;
    /// The connection could not be established; the status is a negative errno.
    ConnectError = RDMA_CM_EVENT_CONNECT_ERROR;
    /// The peer does not answer.
    ///
    /// On an id for datagrams it can also mean that the peer refused; the status is then an `ib_cm_sidr_status`.
    Unreachable = RDMA_CM_EVENT_UNREACHABLE;
    /// The peer or its kernel rejected the request; the status is the reason.
    Rejected = RDMA_CM_EVENT_REJECTED;
    /// The connection was established.
    Established = RDMA_CM_EVENT_ESTABLISHED;
    /// The connection has ended.
    Disconnected = RDMA_CM_EVENT_DISCONNECTED;
    /// The device of the id was removed; the id can only be destroyed.
    ///
    /// The kernel does not finish the removal until the device's context and all objects in the context are dropped.
    ///
    /// # Driver notes
    ///
    /// If `rdma_cm` was loaded before `ib_uverbs`, as `modprobe rdma_ucm` does, the event itself arrives only after
    /// that. It arrives earlier if the driver can revoke a context from its user, but rxe and siw cannot. A program
    /// that waits for the event before it drops the context then waits forever. In this case
    /// [`device::list`](crate::device::list) reports the removal first: it no longer has the device.
    DeviceRemoval = RDMA_CM_EVENT_DEVICE_REMOVAL;
    /// The id has joined the multicast group.
    MulticastJoin = RDMA_CM_EVENT_MULTICAST_JOIN;
    /// The multicast group could not be joined, or the membership was lost.
    MulticastError = RDMA_CM_EVENT_MULTICAST_ERROR;
    /// The network device of the id changed its hardware address.
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

/// The argument of an `Internal` event that represents `AddrinfoResolved`.
const ADDRINFO_RESOLVED: u64 = rdma_cm_event_type::RDMA_CM_EVENT_ADDRINFO_RESOLVED.0 as u64;

/// An event as the kernel stored it, before its id is looked up.
#[derive(Debug, Clone, Copy)]
pub struct RawEvent {
    response: rdma_ucm_event_resp,
}

/// The parameters of an event.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum EventData {
    /// The event has no parameters.
    None,
    /// Parameters of a connection.
    Connection(ConnParam),
    /// Parameters of a datagram service, or of a multicast group.
    Datagram(DatagramParam),
    /// The number that a program wrote with the event.
    Argument(u64),
}

impl RawEvent {
    /// Length of the shortest response, in bytes.
    ///
    /// Kernels before 5.8 store it; it ends after the parameters.
    pub const MIN_SIZE: usize = rdma_ucm_event_resp::MIN_SIZE;

    /// Parses the kernel's response to GET_EVENT.
    ///
    /// If the response is longer than the structure that this version knows, the rest is ignored. If it ends before the
    /// newer fields, they are zero.
    ///
    /// # Errors
    ///
    /// - [`ErrorKind::MalformedResponse`](crate::ErrorKind::MalformedResponse) if the bytes are fewer than any kernel
    ///   stores.
    pub fn from_bytes(bytes: &[u8]) -> Result<Self> {
        if bytes.len() < Self::MIN_SIZE {
            let what = format!(
                "the event has {} bytes instead of at least {}",
                bytes.len(),
                Self::MIN_SIZE
            );
            return Err(Error::malformed("read an event", "", what));
        }
        let mut event = Self::blank();
        let known = bytes.len().min(size_of::<rdma_ucm_event_resp>());
        event.response.as_mut_bytes()[..known].copy_from_slice(&bytes[..known]);
        Ok(event)
    }

    /// Returns an event without content, into which the kernel stores one.
    pub(crate) fn blank() -> Self {
        Self { response: rdma_ucm_event_resp::new_zeroed() }
    }

    /// Returns the buffer into which the kernel stores the event.
    pub(crate) fn response_mut(&mut self) -> &mut rdma_ucm_event_resp {
        &mut self.response
    }

    #[cfg(test)]
    pub(crate) fn new(response: rdma_ucm_event_resp) -> Self {
        Self { response }
    }

    /// Returns the number that the program gave the id, or 0 if it has none.
    ///
    /// With CONNECT_REQUEST it is the number of the listening id.
    pub fn uid(&self) -> u64 {
        self.response.uid.get()
    }

    /// Returns the kernel's handle of the id; with CONNECT_REQUEST that of the new id.
    pub fn handle(&self) -> u32 {
        self.response.id
    }

    /// Returns the type of the event.
    ///
    /// An `Internal` event whose argument is the number of `AddrinfoResolved` has the type `AddrinfoResolved`.
    /// librdmacm and this library write it when a lookup has a result.
    pub fn event_type(&self) -> EventType {
        match EventType::from(self.response.event.0) {
            EventType::Internal if self.response.arg() == ADDRINFO_RESOLVED => {
                EventType::AddrinfoResolved
            }
            event_type => event_type,
        }
    }

    /// Returns the status: 0, a negative errno, or with REJECTED the reason.
    pub fn status(&self) -> i32 {
        // The header declares the field as unsigned, but the kernel stores signed numbers in it.
        self.response.status as i32
    }

    /// Returns the ECE options of the peer's queue pair (Linux 5.8).
    ///
    /// Only CONNECT_REQUEST and CONNECT_RESPONSE have them.
    pub fn ece(&self) -> Ece {
        self.response.ece.into()
    }

    /// Returns the parameters, for an id that offers `service`.
    pub fn data(&self, service: ServiceType) -> EventData {
        use EventType as T;
        match (self.event_type(), service) {
            (T::User | T::Internal, _) => EventData::Argument(self.response.arg()),
            (T::MulticastJoin, _)
            | (T::ConnectRequest | T::Established | T::Unreachable, ServiceType::Datagram) => {
                EventData::Datagram(self.datagram())
            }
            (
                T::ConnectRequest | T::ConnectResponse | T::Established | T::Rejected,
                ServiceType::Connected,
            ) => EventData::Connection(self.connection()),
            _ => EventData::None,
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
            non_exhaustive: NonExhaustive::default(),
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

#[cfg(test)]
mod tests;
