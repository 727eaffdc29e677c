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
/// An attribute of another length than its type has is like one that is not there.
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
mod tests {
    use super::super::fake::{done, message};
    use super::*;

    /// xorshift64*: the same bytes in every run.
    struct Random(u64);

    impl Random {
        fn next(&mut self) -> u64 {
            self.0 ^= self.0 >> 12;
            self.0 ^= self.0 << 25;
            self.0 ^= self.0 >> 27;
            self.0.wrapping_mul(0x2545_f491_4f6c_dd1d)
        }

        fn below(&mut self, bound: usize) -> usize {
            usize::try_from(self.next() >> 33).unwrap() % bound
        }

        fn byte(&mut self) -> u8 {
            self.next().to_be_bytes()[0]
        }
    }

    fn attribute_bytes(kind: u16, value: &[u8]) -> Vec<u8> {
        let length = u16::try_from(ATTRIBUTE_HEADER + value.len()).unwrap();
        let mut bytes = [&length.to_ne_bytes(), &kind.to_ne_bytes(), value].concat();
        bytes.resize(bytes.len().next_multiple_of(4), 0xee);
        bytes
    }

    fn sample() -> Vec<u8> {
        let inner = [attribute_bytes(17, b"qp\0"), attribute_bytes(18, &[7; 8])].concat();
        let nest = attribute_bytes(15 | 0x8000, &attribute_bytes(16, &inner));
        let payload = [attribute_bytes(1, &[1, 0, 0, 0]), attribute_bytes(2, b"rxe0\0"), nest];
        [message(0x1409, 1, &payload.concat()), message(0x1409, 1, &[]), done(1, 0)].concat()
    }

    #[test]
    fn any_bytes_are_read_without_panic() {
        let mut random = Random(0x9e37_79b9_7f4a_7c15);
        for _ in 0..20_000 {
            let length = random.below(200);
            let mut bytes: Vec<u8> = (0..length).map(|_| random.byte()).collect();
            walk(&bytes);
            // Lengths that are plausible let more of the rest be reached.
            for position in (0..length.saturating_sub(4)).step_by(4) {
                if random.below(2) == 0 {
                    let plausible = u32::try_from(random.below(64)).unwrap();
                    bytes[position..position + 4].copy_from_slice(&plausible.to_ne_bytes());
                }
            }
            walk(&bytes);
        }
    }

    #[test]
    fn damaged_answer_is_read_without_panic() {
        let mut random = Random(1);
        let sample = sample();
        assert_eq!(walk(&sample), 3);
        for length in 0..sample.len() {
            walk(&sample[..length]);
        }
        for _ in 0..50_000 {
            let mut bytes = sample.clone();
            for _ in 0..=random.below(4) {
                let position = random.below(bytes.len());
                bytes[position] = random.byte();
            }
            walk(&bytes);
        }
    }

    #[test]
    fn reads_attributes_of_every_type() {
        let sample = sample();
        let first = messages(&sample).next().unwrap().unwrap();
        let Ok(Some(Body::Answer(answer))) = first.body() else { panic!("{first:?}") };
        assert_eq!(answer.u32(1), Some(u32::from_ne_bytes([1, 0, 0, 0])));
        assert_eq!(answer.string(2).as_deref(), Some("rxe0"));
        let entry = answer.nests(15).next().unwrap().nests(16).next().unwrap();
        assert_eq!(entry.string(17).as_deref(), Some("qp"));
        assert_eq!(entry.u64(18), Some(0x0707_0707_0707_0707));
        assert_eq!((answer.u8(1), answer.u64(1), answer.u32(99)), (None, None, None));
    }

    #[test]
    fn wrong_lengths_are_malformed() {
        for bytes in [vec![0; 3], vec![0; 15], vec![0; 16], vec![0xff; 16], vec![0xff; 400]] {
            let all: Vec<_> = messages(&bytes).collect();
            assert!(matches!(all[..], [Err(Failure::Malformed(_))]), "{bytes:?}");
        }
        for length in [0u16, 1, 3, 9, 0xffff] {
            let attribute = [&length.to_ne_bytes()[..], &[1, 0, 0, 0, 0, 0]].concat();
            assert!(Attributes::parse(&attribute).is_err(), "{length}");
        }
        assert!(Attributes::parse(&[4, 0]).is_err());
    }

    #[test]
    fn last_record_may_lack_padding() {
        let padded = attribute_bytes(2, b"x\0");
        for bytes in [&padded[..], &padded[..6]] {
            assert_eq!(Attributes::parse(bytes).unwrap().string(2).as_deref(), Some("x"));
        }
    }

    #[test]
    fn string_ends_at_nul_or_with_attribute() {
        for (value, text) in
            [(&b"v0\0junk"[..], "v0"), (b"v0", "v0"), (b"", ""), (b"\xff\0", "\u{fffd}")]
        {
            let bytes = attribute_bytes(51, value);
            assert_eq!(Attributes::parse(&bytes).unwrap().string(51).as_deref(), Some(text));
        }
    }
}
