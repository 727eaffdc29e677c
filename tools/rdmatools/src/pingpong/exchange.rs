//! Exchange of the addresses of queue pairs, over TCP, as text.

use std::fmt;
use std::io::{self, Read, Write};
use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr, TcpListener, TcpStream};

use rdmacm::device::Gid;

use crate::failure::Failure;

/// The address of a queue pair, and its first packet sequence number.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(super) struct Address {
    pub(super) lid: u16,
    pub(super) qp_num: u32,
    pub(super) psn: u32,
    /// Zero if no GID was selected.
    pub(super) gid: Gid,
}

impl Address {
    /// Length of the text: `0000:000000:000000:`, 32 digits of the GID, and a zero byte.
    const LENGTH: usize = 52;

    fn to_bytes(self) -> [u8; Self::LENGTH] {
        let Self { lid, qp_num, psn, gid } = self;
        let gid = u128::from_be_bytes(gid.0);
        let text = format!("{lid:04x}:{qp_num:06x}:{psn:06x}:{gid:032x}\0");
        text.into_bytes().try_into().expect("numbers of 24 bits should have six digits")
    }

    fn from_bytes(bytes: [u8; Self::LENGTH]) -> Option<Self> {
        let text = std::str::from_utf8(&bytes).ok()?.strip_suffix('\0')?;
        let mut parts = text.split(':');
        let mut next = || u128::from_str_radix(parts.next()?, 16).ok();
        Some(Self {
            lid: next()?.try_into().ok()?,
            qp_num: next()?.try_into().ok()?,
            psn: next()?.try_into().ok()?,
            gid: Gid(next()?.to_be_bytes()),
        })
    }
}

impl fmt::Display for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { lid, qp_num, psn, gid } = self;
        let gid = Ipv6Addr::from(*gid);
        write!(f, "LID 0x{lid:04x}, QPN 0x{qp_num:06x}, PSN 0x{psn:06x}, GID {gid}")
    }
}

/// Message of the client after it has received the server's addresses.
const DONE: &[u8; 5] = b"done\0";

/// Sends the addresses `ours` to `server`, and returns the server's addresses.
pub(super) fn ask(server: &str, port: u16, ours: &[Address]) -> Result<Vec<Address>, Failure> {
    let failed = |what: &str, error: io::Error| {
        Failure::new(format!("cannot {what} {server}:{port}: {error}"))
    };
    let stream = TcpStream::connect((server, port));
    let mut stream = stream.map_err(|error| failed("connect to", error))?;
    let exchanged = send(&mut stream, ours)
        .and_then(|()| receive(&mut stream, ours.len()))
        .and_then(|theirs| stream.write_all(DONE).map(|()| theirs));
    exchanged.map_err(|error| failed("exchange addresses with", error))
}

/// Waits for a client, passes its addresses to `connect`, and sends `ours` to the client.
///
/// The client sends messages as soon as it has received the addresses, so `connect` must prepare for them.
pub(super) fn answer(
    port: u16,
    ours: &[Address],
    connect: impl FnOnce(&[Address]) -> Result<(), Failure>,
) -> Result<Vec<Address>, Failure> {
    let failed =
        |what: &str, error: io::Error| Failure::new(format!("cannot {what} {port}: {error}"));
    // Listens on every address of both families, or of IPv4 only if there is no IPv6.
    let any =
        [SocketAddr::from((Ipv6Addr::UNSPECIFIED, port)), (Ipv4Addr::UNSPECIFIED, port).into()];
    let listener = TcpListener::bind(&any[..]);
    let accepted = listener.and_then(|listener| listener.accept());
    let (mut stream, _) = accepted.map_err(|error| failed("listen on port", error))?;
    let exchange = |error| failed("exchange addresses with the client on port", error);
    let theirs = receive(&mut stream, ours.len()).map_err(exchange)?;
    connect(&theirs)?;
    let answered = send(&mut stream, ours).and_then(|()| stream.read_exact(&mut [0; DONE.len()]));
    answered.map_err(exchange)?;
    Ok(theirs)
}

fn send(stream: &mut TcpStream, addresses: &[Address]) -> io::Result<()> {
    let bytes: Vec<u8> = addresses.iter().flat_map(|address| address.to_bytes()).collect();
    stream.write_all(&bytes)
}

fn receive(stream: &mut TcpStream, count: usize) -> io::Result<Vec<Address>> {
    let mut receive = || {
        let mut bytes = [0; Address::LENGTH];
        stream.read_exact(&mut bytes)?;
        let address = Address::from_bytes(bytes);
        address.ok_or_else(|| io::Error::new(io::ErrorKind::InvalidData, "not an address"))
    };
    (0..count).map(|_| receive()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_are_hexadecimal_text() {
        let gid = Gid::from(Ipv4Addr::new(10, 0, 0, 1).to_ipv6_mapped());
        let address = Address { lid: 0xa1, qp_num: 0x11, psn: 0xab_cdef, gid };
        let text = b"00a1:000011:abcdef:00000000000000000000ffff0a000001\0";
        assert_eq!(&address.to_bytes(), text);
        assert_eq!(Address::from_bytes(*text), Some(address));
        assert_eq!(
            address.to_string(),
            "LID 0x00a1, QPN 0x000011, PSN 0xabcdef, GID ::ffff:10.0.0.1"
        );
        let mut wrong = *text;
        wrong[51] = b'1';
        assert_eq!(Address::from_bytes(wrong), None);
        wrong = *text;
        wrong[4] = b'-';
        assert_eq!(Address::from_bytes(wrong), None);
    }
}
