//! Socket addresses as a kernel or a name service gives them.

use super::address::Address;
use super::encoding::{decode, encode};

/// Parses a socket address, writes it and parses it again.
pub fn address(bytes: &[u8]) {
    let Some(address) = decode(bytes) else { return };
    let text = address.to_string();
    assert!(!text.is_empty());
    let encoded = encode(&address);
    assert_eq!(decode(&encoded.slot), Some(address));
    assert_eq!(decode(&encoded.slot[..usize::from(encoded.length)]), Some(address));
    match address {
        Address::Ip(ip) => assert_eq!(address.port(), ip.port()),
        Address::Ib(ib) => assert_eq!(address.port(), ib.port()),
    }
}
