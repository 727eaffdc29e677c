//! Names and addresses of hosts.

use std::net::{SocketAddr, ToSocketAddrs};

use rdmacm::addr::{AddrInfo, AddrInfoHints};
use rdmacm::cm::getaddrinfo;

use crate::failure::Failure;

/// Resolves `host` and returns its first address.
pub(crate) fn resolve(host: &str, port: u16) -> Result<SocketAddr, Failure> {
    let failed = |why: String| Failure::new(format!("cannot resolve {host}: {why}"));
    let mut addresses =
        (host, port).to_socket_addrs().map_err(|error| failed(error.to_string()))?;
    addresses.next().ok_or_else(|| failed("there is no address".into()))
}

/// Returns the first address that is found for a node and a service.
pub(crate) fn find(
    node: Option<&str>,
    service: Option<&str>,
    hints: &AddrInfoHints,
) -> Result<AddrInfo, Failure> {
    first(getaddrinfo(node, service, Some(hints))?)
}

/// Returns the first address of a list.
pub(crate) fn first(found: Vec<AddrInfo>) -> Result<AddrInfo, Failure> {
    found
        .into_iter()
        .next()
        .ok_or_else(|| Failure::new("cannot resolve the address: there is none"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_and_addresses_are_resolved() {
        assert_eq!(resolve("10.0.0.1", 7174).unwrap(), "10.0.0.1:7174".parse().unwrap());
        assert_eq!(resolve("::0", 1).unwrap(), "[::]:1".parse().unwrap());
        assert!(resolve("localhost", 1).unwrap().ip().is_loopback());
        let Err(Failure::Failed(messages)) = resolve("not a name", 1) else {
            panic!("the name should be rejected")
        };
        assert!(messages[0].starts_with("cannot resolve not a name: "), "{messages:?}");
    }
}
