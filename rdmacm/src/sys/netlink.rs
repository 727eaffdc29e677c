//! A client of the kernel's RDMA netlink: `NETLINK_RDMA`, subsystem nldev.
//!
//! The kernel handles a request inside the `send` that submits it. It creates the next part of a dump inside the `recv`
//! that takes the previous part. A response is available at once or never arrives, so no send and no receive waits.
//!
//! Source: `include/uapi/rdma/rdma_netlink.h`, `drivers/infiniband/core/{netlink,nldev}.c`.

mod failure;
#[cfg(any(test, fuzzing))]
pub(crate) mod fake;
mod message;

use std::io::IoSliceMut;
use std::os::fd::{AsRawFd, OwnedFd};

use nix::errno::Errno;
use nix::sys::socket::{
    AddressFamily, MsgFlags, MultiHeaders, SockFlag, SockProtocol, SockType, recv, recvmmsg, send,
    socket,
};
use verbs_abi::netlink as nl;

use message::{ATTRIBUTE_HEADER, Body, MESSAGE_HEADER, messages};

pub(crate) use failure::Failure;
pub(crate) use message::Attributes;
#[cfg(fuzzing)]
pub(crate) use message::walk;

const NLM_F_REQUEST: u16 = 0x1;
const NLM_F_ACK: u16 = 0x4;
const NLM_F_DUMP: u16 = 0x300;

/// The kernel never makes a part of a dump longer than this.
const BUFFER: usize = 32 * 1024;

/// Maximum number of members of a list; no kernel has more devices or other objects.
const MOST: usize = if cfg!(test) { 100 } else { 1 << 16 };

/// A request: an nldev command and its attributes.
#[derive(Debug, Clone)]
pub(crate) struct Request {
    /// The whole message; length, flags and sequence number are filled in when it is sent.
    bytes: Vec<u8>,
}

impl Request {
    /// Creates a request for the `RDMA_NLDEV_CMD_*` command, without attributes.
    pub(crate) fn new(command: u16) -> Self {
        let mut bytes = vec![0; MESSAGE_HEADER];
        let kind = nl::rdma_nl_get_type(nl::RDMA_NL_NLDEV, command);
        bytes[4..6].copy_from_slice(&kind.to_ne_bytes());
        Self { bytes }
    }

    /// Adds a number.
    pub(crate) fn u32(self, kind: u16, value: u32) -> Self {
        self.attribute(kind, &value.to_ne_bytes())
    }

    /// Adds a string of at most a few hundred bytes, and the NUL that the kernel requires at its end.
    pub(crate) fn string(self, kind: u16, value: &str) -> Self {
        self.attribute(kind, &[value.as_bytes(), &[0]].concat())
    }

    fn attribute(mut self, kind: u16, value: &[u8]) -> Self {
        let length = u16::try_from(ATTRIBUTE_HEADER + value.len())
            .expect("callers bound the length of strings before they ask");
        self.bytes.extend_from_slice(&length.to_ne_bytes());
        self.bytes.extend_from_slice(&kind.to_ne_bytes());
        self.bytes.extend_from_slice(value);
        self.bytes.resize(self.bytes.len().next_multiple_of(4), 0);
        self
    }

    fn finish(mut self, flags: u16, sequence: u32) -> Vec<u8> {
        let length = u32::try_from(self.bytes.len()).expect("a request is a few hundred bytes");
        self.bytes[0..4].copy_from_slice(&length.to_ne_bytes());
        self.bytes[6..8].copy_from_slice(&(NLM_F_REQUEST | flags).to_ne_bytes());
        self.bytes[8..12].copy_from_slice(&sequence.to_ne_bytes());
        self.bytes
    }
}

/// A socket to the kernel's RDMA netlink.
#[derive(Debug)]
pub(crate) struct Socket {
    fd: OwnedFd,
    sequence: u32,
    buffer: Vec<u8>,
}

impl Socket {
    /// Opens a socket.
    ///
    /// The kernel loads ib_core for it. The call fails with EPROTONOSUPPORT if there is no ib_core.
    pub(crate) fn open() -> Result<Self, Failure> {
        let fd = socket(
            AddressFamily::Netlink,
            SockType::Raw,
            SockFlag::SOCK_CLOEXEC,
            SockProtocol::NetlinkRDMA,
        )?;
        Ok(Self::over(fd))
    }

    fn over(fd: OwnedFd) -> Self {
        Self { fd, sequence: 0, buffer: vec![0; BUFFER] }
    }

    /// Sends a request and returns its response.
    ///
    /// `read` makes the result from the attributes, or returns `None` if an attribute is missing.
    pub(crate) fn get<T>(
        &mut self,
        request: Request,
        read: impl Fn(Attributes<'_>) -> Option<T>,
    ) -> Result<T, Failure> {
        self.exchange(request, 0, |body| only_answer(body, &read).map(Some))
    }

    /// Sends two requests in one call, and receives both responses in another.
    ///
    /// Each `read` is as for [`get`](Self::get).
    pub(crate) fn get_both<A, B>(
        &mut self,
        (first, read_first): (Request, impl Fn(Attributes<'_>) -> Option<A>),
        (second, read_second): (Request, impl Fn(Attributes<'_>) -> Option<B>),
    ) -> (Result<A, Failure>, Result<B, Failure>) {
        let sequences = [self.sequence.wrapping_add(1), self.sequence.wrapping_add(2)];
        self.sequence = sequences[1];
        let requests = [first.finish(0, sequences[0]), second.finish(0, sequences[1])].concat();
        match self.send(&requests).and_then(|()| self.receive_both()) {
            Ok(datagrams) => (
                answer(&datagrams, sequences[0], read_first),
                answer(&datagrams, sequences[1], read_second),
            ),
            Err(failure) => (Err(failure), Err(failure)),
        }
    }

    /// Requests a list, which the kernel sends in parts.
    ///
    /// `read` is called for each member, as in [`get`](Self::get).
    pub(crate) fn dump<T>(
        &mut self,
        request: Request,
        read: impl Fn(Attributes<'_>) -> Option<T>,
    ) -> Result<Vec<T>, Failure> {
        let mut list = Vec::new();
        self.exchange(request, NLM_F_DUMP, |body| match body {
            Body::Answer(_) if list.len() == MOST => Err(UNTERMINATED_LIST),
            Body::Answer(attributes) => {
                list.push(read(attributes).ok_or(ATTRIBUTE_MISSING)?);
                Ok(None)
            }
            Body::Done => Ok(Some(())),
            Body::Acknowledged => Err(Failure::Malformed("an acknowledgment within a list")),
        })?;
        Ok(list)
    }

    /// Sends a request whose only response is an acknowledgment.
    pub(crate) fn command(&mut self, request: Request) -> Result<(), Failure> {
        self.exchange(request, NLM_F_ACK, |body| match body {
            Body::Acknowledged => Ok(Some(())),
            Body::Answer(_) | Body::Done => Err(Failure::Malformed("no acknowledgment")),
        })
    }

    /// Sends a request and passes each part of its response to `each`, until that returns a value.
    fn exchange<T>(
        &mut self,
        request: Request,
        flags: u16,
        mut each: impl FnMut(Body<'_>) -> Result<Option<T>, Failure>,
    ) -> Result<T, Failure> {
        self.sequence = self.sequence.wrapping_add(1);
        let bytes = request.finish(flags, self.sequence);
        self.send(&bytes)?;
        loop {
            let length = self.receive()?;
            for message in messages(&self.buffer[..length]) {
                let message = message?;
                // This message remains from an exchange that failed before its end.
                if message.sequence != self.sequence {
                    continue;
                }
                let Some(body) = message.body()? else { continue };
                if let Some(value) = each(body)? {
                    return Ok(value);
                }
            }
        }
    }

    fn send(&self, requests: &[u8]) -> Result<(), Failure> {
        retry(|| send(self.fd.as_raw_fd(), requests, MsgFlags::MSG_DONTWAIT))?;
        Ok(())
    }

    /// Receives one datagram into the buffer.
    ///
    /// Only the kernel and privileged processes can send to such a socket.
    fn receive(&mut self) -> Result<usize, Failure> {
        // With MSG_TRUNC the length is that of the datagram even if the buffer is shorter.
        let flags = MsgFlags::MSG_DONTWAIT | MsgFlags::MSG_TRUNC;
        match retry(|| recv(self.fd.as_raw_fd(), &mut self.buffer, flags)) {
            Ok(0) => Err(Failure::Malformed("the answer is empty")),
            Ok(length) if length > self.buffer.len() => Err(RESPONSE_TOO_LONG),
            Ok(length) => Ok(length),
            Err(Errno::EAGAIN) => Err(NO_RESPONSE),
            Err(errno) => Err(errno.into()),
        }
    }

    /// Receives two datagrams, or one if there is no second.
    ///
    /// They must not be parts of dumps. The kernel makes such datagrams at most 8 kB long.
    fn receive_both(&mut self) -> Result<Vec<&[u8]>, Failure> {
        let (one, other) = self.buffer.split_at_mut(BUFFER / 2);
        let mut buffers = [one, other];
        let mut headers = MultiHeaders::<()>::preallocate(buffers.len(), None);
        let received = retry(|| {
            let mut slices = buffers.each_mut().map(|buffer| [IoSliceMut::new(buffer)]);
            let flags = MsgFlags::MSG_DONTWAIT | MsgFlags::MSG_TRUNC;
            let fd = self.fd.as_raw_fd();
            let datagrams = recvmmsg(fd, &mut headers, &mut slices, flags, None)?;
            Ok(datagrams.map(|datagram| datagram.bytes).collect::<Vec<_>>())
        });
        let lengths = match received {
            Err(Errno::EAGAIN) => return Err(NO_RESPONSE),
            received => received?,
        };
        let datagrams = buffers.into_iter().zip(lengths);
        datagrams.map(|(buffer, length)| buffer.get(..length).ok_or(RESPONSE_TOO_LONG)).collect()
    }
}

/// Returns the response to the request with this sequence number, among the received datagrams.
fn answer<T>(
    datagrams: &[&[u8]],
    sequence: u32,
    read: impl Fn(Attributes<'_>) -> Option<T>,
) -> Result<T, Failure> {
    for message in datagrams.iter().flat_map(|datagram| messages(datagram)) {
        let message = message?;
        if message.sequence != sequence {
            continue;
        }
        if let Some(body) = message.body()? {
            return only_answer(body, read);
        }
    }
    Err(NO_RESPONSE)
}

/// Returns the result of the answer to a request that has no other part.
fn only_answer<T>(
    body: Body<'_>,
    read: impl Fn(Attributes<'_>) -> Option<T>,
) -> Result<T, Failure> {
    match body {
        Body::Answer(attributes) => read(attributes).ok_or(ATTRIBUTE_MISSING),
        Body::Acknowledged | Body::Done => Err(Failure::Malformed("an end without an answer")),
    }
}

const NO_RESPONSE: Failure = Failure::Malformed("there is no answer");
const RESPONSE_TOO_LONG: Failure = Failure::Malformed("the answer is longer than the buffer");
const UNTERMINATED_LIST: Failure = Failure::Malformed("the list does not end");
const ATTRIBUTE_MISSING: Failure = Failure::Malformed("an attribute is missing from the answer");

fn retry<T>(mut call: impl FnMut() -> nix::Result<T>) -> nix::Result<T> {
    loop {
        match call() {
            Err(Errno::EINTR) => {}
            result => return result,
        }
    }
}

#[cfg(test)]
mod tests;
