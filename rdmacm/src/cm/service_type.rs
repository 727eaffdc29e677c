//! The service type of an id: connections or datagrams ([`ServiceType`]).

use std::fmt;

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

impl fmt::Display for ServiceType {
    /// Writes `connected` or `datagram`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Self::Connected => "connected",
            Self::Datagram => "datagram",
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn service_type_prints_name() {
        let texts = [ServiceType::Connected, ServiceType::Datagram].map(|value| value.to_string());
        assert_eq!(texts, ["connected", "datagram"]);
    }
}
