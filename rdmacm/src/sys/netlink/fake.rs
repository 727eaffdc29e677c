//! A kernel that gives prepared answers, for tests.
#![cfg_attr(fuzzing, expect(dead_code, reason = "fuzzing has its own answers"))]

use std::os::fd::{AsRawFd, OwnedFd};

use nix::sys::socket::{AddressFamily, MsgFlags, SockFlag, SockType, recv, send, socketpair};

use super::Socket;
use super::message::MESSAGE_HEADER;

/// The other end of a [`Socket`].
#[derive(Debug)]
pub(crate) struct Kernel {
    fd: OwnedFd,
}

/// Returns a socket with these datagrams as responses.
///
/// Its requests have the sequence numbers 1, 2, 3 ...
pub(crate) fn kernel(datagrams: &[Vec<u8>]) -> (Socket, Kernel) {
    let (ours, theirs) =
        socketpair(AddressFamily::Unix, SockType::SeqPacket, None, SockFlag::SOCK_CLOEXEC)
            .expect("a pair of sockets");
    for datagram in datagrams {
        let sent =
            send(theirs.as_raw_fd(), datagram, MsgFlags::MSG_DONTWAIT).expect("there is room");
        assert_eq!(sent, datagram.len());
    }
    (Socket::over(ours), Kernel { fd: theirs })
}

impl Kernel {
    /// Returns the requests that arrived.
    pub(crate) fn requests(&self) -> Vec<Vec<u8>> {
        let mut requests = Vec::new();
        let mut buffer = [0; 4096];
        while let Ok(length) = recv(self.fd.as_raw_fd(), &mut buffer, MsgFlags::MSG_DONTWAIT) {
            requests.push(buffer[..length].to_vec());
        }
        requests
    }
}

/// Returns a message of the kernel.
pub(crate) fn message(kind: u16, sequence: u32, payload: &[u8]) -> Vec<u8> {
    let length = u32::try_from(MESSAGE_HEADER + payload.len()).expect("short");
    let mut message = length.to_ne_bytes().to_vec();
    message.extend(kind.to_ne_bytes());
    message.extend([0; 2]);
    message.extend(sequence.to_ne_bytes());
    message.extend([0; 4]);
    message.extend(payload);
    message.resize(message.len().next_multiple_of(4), 0);
    message
}

/// Returns NLMSG_ERROR with a status and the header of the failed request.
pub(crate) fn error(sequence: u32, status: i32) -> Vec<u8> {
    message(2, sequence, &[&status.to_ne_bytes()[..], &[0; MESSAGE_HEADER]].concat())
}

/// Returns an NLMSG_ERROR that reports success.
pub(crate) fn acknowledgment(sequence: u32) -> Vec<u8> {
    error(sequence, 0)
}

/// Returns NLMSG_DONE with a status.
pub(crate) fn done(sequence: u32, status: i32) -> Vec<u8> {
    message(3, sequence, &status.to_ne_bytes())
}

/// Returns the bytes of a commented dump: hexadecimal digits up to a `|` on each line.
pub(crate) fn hex(text: &str) -> Vec<u8> {
    let digits: Vec<u32> = text
        .lines()
        .flat_map(|line| line.split('|').next().expect("a first part").chars())
        .filter(|digit| !digit.is_whitespace())
        .map(|digit| digit.to_digit(16).expect("a digit"))
        .collect();
    digits.chunks(2).map(|pair| u8::try_from(pair[0] * 16 + pair[1]).expect("two digits")).collect()
}
