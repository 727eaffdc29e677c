//! [`ServiceType`]: whether an id is for connections or for datagrams.

/// The kind of service that an id offers. The bytes of an event do not say which of the two layouts the
/// parameters of the event have.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ServiceType {
    /// Connected queue pairs.
    Connected,
    /// Unreliable datagrams.
    Datagram,
}
