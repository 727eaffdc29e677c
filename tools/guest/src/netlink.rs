//! Netlink requests: a message with nested attributes, sent to the kernel, and its acknowledgment.

use std::os::fd::{AsRawFd, OwnedFd};

use nix::errno::Errno;
use nix::sys::socket::{
    AddressFamily, MsgFlags, NetlinkAddr, SockFlag, SockProtocol, SockType, connect, recv, send,
    socket,
};

const HEADER: usize = 16;
const ALIGNMENT: usize = 4;

/// A socket that is connected to the kernel.
pub(crate) struct Socket(OwnedFd);

impl Socket {
    pub(crate) fn open(protocol: SockProtocol) -> nix::Result<Self> {
        let flags = SockFlag::SOCK_CLOEXEC;
        let fd = socket(AddressFamily::Netlink, SockType::Raw, flags, protocol)?;
        connect(fd.as_raw_fd(), &NetlinkAddr::new(0, 0))?;
        Ok(Self(fd))
    }

    /// Sends the request and waits for the kernel's answer.
    pub(crate) fn request(&self, request: Request) -> nix::Result<()> {
        let message = request.finish();
        send(self.0.as_raw_fd(), &message, MsgFlags::empty())?;
        let mut answer = [0; 8192];
        let length = recv(self.0.as_raw_fd(), &mut answer, MsgFlags::empty())?;
        acknowledgment(&answer[..length])
    }
}

/// Parses an answer, which must be an NLMSG_ERROR message: its errno is 0 for success.
fn acknowledgment(answer: &[u8]) -> nix::Result<()> {
    let error = i32::from(u8::try_from(libc::NLMSG_ERROR).map_err(|_| Errno::EPROTO)?);
    let kind = answer.get(4..6).and_then(|bytes| bytes.try_into().ok()).map(u16::from_le_bytes);
    let errno = answer.get(16..20).and_then(|bytes| bytes.try_into().ok()).map(i32::from_le_bytes);
    match (kind, errno) {
        (Some(kind), Some(0)) if i32::from(kind) == error => Ok(()),
        (Some(kind), Some(errno)) if i32::from(kind) == error => Err(Errno::from_raw(-errno)),
        _ => Err(Errno::EPROTO),
    }
}

/// A request under construction.
pub(crate) struct Request(Vec<u8>);

impl Request {
    /// Creates a request of the protocol's type `kind` that asks for an acknowledgment.
    pub(crate) fn new(kind: u16, flags: i32) -> Self {
        let flags = flags | libc::NLM_F_REQUEST | libc::NLM_F_ACK;
        let flags = u16::try_from(flags).expect("netlink flags should have 16 bits");
        let mut message = vec![0; HEADER];
        message[4..6].copy_from_slice(&kind.to_le_bytes());
        message[6..8].copy_from_slice(&flags.to_le_bytes());
        Self(message)
    }

    /// Appends the protocol's own header, or a header inside an attribute.
    pub(crate) fn body(mut self, bytes: &[u8]) -> Self {
        self.0.extend_from_slice(bytes);
        self.align();
        self
    }

    /// Appends an attribute.
    pub(crate) fn attribute(mut self, kind: u16, value: &[u8]) -> Self {
        let start = self.open(kind);
        self.0.extend_from_slice(value);
        self.close(start);
        self
    }

    /// Appends an attribute that holds a NUL-terminated string.
    pub(crate) fn string(self, kind: u16, value: &str) -> Self {
        self.attribute(kind, &[value.as_bytes(), &[0]].concat())
    }

    /// Appends an attribute that holds what `fill` appends.
    pub(crate) fn nested(mut self, kind: u16, fill: impl FnOnce(Self) -> Self) -> Self {
        let start = self.open(kind);
        self = fill(self);
        self.close(start);
        self
    }

    fn open(&mut self, kind: u16) -> usize {
        let start = self.0.len();
        self.0.extend_from_slice(&[0, 0]);
        self.0.extend_from_slice(&kind.to_le_bytes());
        start
    }

    fn close(&mut self, start: usize) {
        let length = u16::try_from(self.0.len() - start).expect("an attribute should be small");
        self.0[start..start + 2].copy_from_slice(&length.to_le_bytes());
        self.align();
    }

    fn align(&mut self) {
        self.0.resize(self.0.len().next_multiple_of(ALIGNMENT), 0);
    }

    fn finish(mut self) -> Vec<u8> {
        let length = u32::try_from(self.0.len()).expect("a request should be small");
        self.0[..4].copy_from_slice(&length.to_le_bytes());
        self.0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn attribute_length_excludes_padding() {
        let message =
            Request::new(16, 0).nested(18, |r| r.string(1, "veth").attribute(2, &[7])).finish();
        let inner = [9, 0, 1, 0, b'v', b'e', b't', b'h', 0, 0, 0, 0, 5, 0, 2, 0, 7, 0, 0, 0];
        assert_eq!(message[..8], [40, 0, 0, 0, 16, 0, 5, 0]);
        assert_eq!(message[16..20], [24, 0, 18, 0]);
        assert_eq!(message[20..], inner);
    }

    #[test]
    fn answer_has_errno_or_is_invalid() {
        let answer = |kind: u8, errno: i32| {
            let mut bytes = vec![36, 0, 0, 0, kind, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0];
            bytes.extend_from_slice(&errno.to_le_bytes());
            bytes
        };
        assert_eq!(acknowledgment(&answer(2, 0)), Ok(()));
        assert_eq!(acknowledgment(&answer(2, -17)), Err(Errno::EEXIST));
        assert_eq!(acknowledgment(&answer(3, 0)), Err(Errno::EPROTO));
        assert_eq!(acknowledgment(&[]), Err(Errno::EPROTO));
    }
}
