//! The framing of netlink: total functions from bytes to messages and attributes.
//!
//! Any bytes give values or [`Failure::Malformed`]; no function panics or reads beyond its input. Numbers are in host
//! byte order. Source: `include/uapi/linux/netlink.h`.

use super::failure::Failure;

/// `struct nlmsghdr`: length u32, type u16, flags u16, sequence u32, port u32.
pub(super) const MESSAGE_HEADER: usize = 16;
/// `struct nlattr`: length u16, type u16.
pub(super) const ATTRIBUTE_HEADER: usize = 4;

const NLMSG_NOOP: u16 = 1;
const NLMSG_ERROR: u16 = 2;
const NLMSG_DONE: u16 = 3;
/// Types below are netlink's own.
const NLMSG_MIN_TYPE: u16 = 0x10;

/// An attribute's type without `NLA_F_NESTED` and `NLA_F_NET_BYTEORDER`.
const NLA_TYPE_MASK: u16 = 0x3fff;

/// A message: `struct nlmsghdr` and its payload.
#[derive(Debug)]
pub(super) struct Message<'a> {
    pub(super) sequence: u32,
    kind: u16,
    payload: &'a [u8],
}

/// The meaning of a message to the request that it answers.
#[derive(Debug)]
pub(super) enum Body<'a> {
    Answer(Attributes<'a>),
    Acknowledged,
    Done,
}

/// Returns the messages of a datagram; iteration ends after a malformed one.
pub(super) fn messages(bytes: &[u8]) -> impl Iterator<Item = Result<Message<'_>, Failure>> {
    let mut rest = bytes;
    std::iter::from_fn(move || {
        if rest.is_empty() {
            return None;
        }
        let message = Message::split(rest);
        rest = message.as_ref().map_or(&[], |(_, rest)| rest);
        Some(message.map(|(message, _)| message).ok_or(Failure::Malformed("a bad message length")))
    })
}

impl<'a> Message<'a> {
    fn split(bytes: &'a [u8]) -> Option<(Self, &'a [u8])> {
        let length = usize::try_from(u32::from_ne_bytes(number(bytes, 0)?)).ok()?;
        let kind = u16::from_ne_bytes(number(bytes, 4)?);
        let sequence = u32::from_ne_bytes(number(bytes, 8)?);
        let (payload, rest) = payload(bytes, MESSAGE_HEADER, length)?;
        Some((Self { sequence, kind, payload }, rest))
    }

    /// Returns the content of the message; `None` if it has none.
    pub(super) fn body(&self) -> Result<Option<Body<'a>>, Failure> {
        match self.kind {
            NLMSG_NOOP => Ok(None),
            NLMSG_ERROR => self.status().map(|()| Some(Body::Acknowledged)),
            NLMSG_DONE => self.status().map(|()| Some(Body::Done)),
            ..NLMSG_MIN_TYPE => Err(Failure::Malformed("an unknown control message")),
            _ => Attributes::parse(self.payload).map(|attributes| Some(Body::Answer(attributes))),
        }
    }

    /// Returns the result of the number with which `NLMSG_ERROR` and `NLMSG_DONE` begin.
    ///
    /// The number is 0 or a negative errno.
    fn status(&self) -> Result<(), Failure> {
        match number(self.payload, 0).map(i32::from_ne_bytes) {
            Some(0) => Ok(()),
            Some(status @ -4095..=-1) => Err(Failure::Os(-status)),
            _ => Err(Failure::Malformed("a status that is no errno")),
        }
    }
}

/// The attributes of a message or of a nest.
///
/// An attribute whose length does not fit its type counts as missing.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Attributes<'a> {
    /// Well-formed attributes, one after the other.
    bytes: &'a [u8],
}

impl<'a> Attributes<'a> {
    fn parse(bytes: &'a [u8]) -> Result<Self, Failure> {
        let mut rest = bytes;
        while !rest.is_empty() {
            (_, _, rest) = attribute(rest).ok_or(Failure::Malformed("a bad attribute length"))?;
        }
        Ok(Self { bytes })
    }

    /// Returns an iterator over all attributes: type and value.
    fn iter(self) -> impl Iterator<Item = (u16, &'a [u8])> {
        let mut rest = self.bytes;
        std::iter::from_fn(move || {
            let (kind, value, after) = attribute(rest)?;
            rest = after;
            Some((kind, value))
        })
    }

    fn find(self, kind: u16) -> Option<&'a [u8]> {
        self.iter().find_map(|(found, value)| (found == kind).then_some(value))
    }

    /// Returns the `u8` attribute.
    pub(crate) fn u8(self, kind: u16) -> Option<u8> {
        Some(u8::from_ne_bytes(self.find(kind)?.try_into().ok()?))
    }

    /// Returns the `u32` attribute.
    pub(crate) fn u32(self, kind: u16) -> Option<u32> {
        Some(u32::from_ne_bytes(self.find(kind)?.try_into().ok()?))
    }

    /// Returns the `u64` attribute, which is aligned to 4 bytes only.
    pub(crate) fn u64(self, kind: u16) -> Option<u64> {
        Some(u64::from_ne_bytes(self.find(kind)?.try_into().ok()?))
    }

    /// Returns the string attribute, up to its NUL.
    pub(crate) fn string(self, kind: u16) -> Option<String> {
        let bytes = self.find(kind)?.split(|byte| *byte == 0).next()?;
        Some(String::from_utf8_lossy(bytes).into_owned())
    }

    /// Returns the attributes inside each attribute of this type.
    pub(crate) fn nests(self, kind: u16) -> impl Iterator<Item = Attributes<'a>> {
        self.iter()
            .filter(move |(found, _)| *found == kind)
            .filter_map(|(_, value)| Self::parse(value).ok())
    }
}

/// Splits off the first attribute: type, value, and the remaining bytes.
fn attribute(bytes: &[u8]) -> Option<(u16, &[u8], &[u8])> {
    let length = usize::from(u16::from_ne_bytes(number(bytes, 0)?));
    let kind = u16::from_ne_bytes(number(bytes, 2)?) & NLA_TYPE_MASK;
    let (value, rest) = payload(bytes, ATTRIBUTE_HEADER, length)?;
    Some((kind, value, rest))
}

/// Splits off a record of `length` bytes, including its header.
///
/// Returns the payload, and the bytes after the padding to a multiple of 4. The last record may lack the padding.
fn payload(bytes: &[u8], header: usize, length: usize) -> Option<(&[u8], &[u8])> {
    let payload = bytes.get(header..length)?;
    let rest = bytes.get(length.next_multiple_of(4)..).unwrap_or_default();
    Some((payload, rest))
}

fn number<const N: usize>(bytes: &[u8], at: usize) -> Option<[u8; N]> {
    bytes.get(at..)?.first_chunk().copied()
}

/// Reads all messages and attributes in `bytes`, and returns the number of messages.
#[cfg(any(test, fuzzing))]
pub(crate) fn walk(bytes: &[u8]) -> usize {
    fn read(attributes: Attributes<'_>, depth: u32) {
        for (kind, value) in attributes.iter() {
            assert!(value.len() <= attributes.bytes.len());
            attributes.u8(kind);
            attributes.u32(kind);
            attributes.u64(kind);
            attributes.string(kind);
            if depth > 0 {
                attributes.nests(kind).for_each(|nest| read(nest, depth - 1));
            }
        }
    }
    let mut count = 0;
    for message in messages(bytes) {
        count += 1;
        if let Ok(Some(Body::Answer(answer))) = message.and_then(|message| message.body()) {
            read(answer, 2);
        }
    }
    assert!(count <= bytes.len() / MESSAGE_HEADER + 1);
    count
}

#[cfg(test)]
mod tests;
