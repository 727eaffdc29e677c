//! The service type of an id: connections or datagrams ([`ServiceType`]).

/// The kind of service that an id offers.
///
/// It determines the layout of an event's parameters, which the bytes of the event do not specify.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ServiceType {
    /// Connected queue pairs.
    Connected,
    /// Unreliable datagrams.
    Datagram,
}
