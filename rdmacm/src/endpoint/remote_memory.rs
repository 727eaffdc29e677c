//! Memory of the peer: its address, key and length, and the requests that reach it.

use bitflags::bitflags;

#[cfg(doc)]
use super::connection::Connection;
#[cfg(doc)]
use super::export::Export;
use crate::error::{Error, ErrorKind, Result};
use crate::verbs::SendOperation;

/// Bytes of a number that is changed at once.
pub(super) const WORD: usize = 8;

/// The form of the bytes that describe exported memory.
const VERSION: u8 = 1;

bitflags! {
    /// What a peer may do with [exported](Connection::export) memory.
    #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
    pub struct Rights: u8 {
        /// [Read](Connection::read) it. (siw lets the peer of the connection read it in any case.)
        const READ = 1;
        /// [Write](Connection::write) it.
        const WRITE = 1 << 1;
        /// Change numbers in it: [`Connection::compare_swap`], [`Connection::fetch_add`].
        const ATOMIC = 1 << 2;
    }
}

/// Memory of the peer: of the bytes with which it has [described](Export::descriptor) it, or
/// [`new`](Self::new) where a program says it in other ways.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Remote {
    pub(super) addr: u64,
    pub(super) rkey: u32,
    pub(super) length: u64,
    pub(super) rights: Rights,
}

impl Remote {
    /// How many bytes describe it.
    pub const BYTES: usize = 24;

    /// What the bytes of an [`Export::descriptor`] describe. That they are the peer's only the
    /// peer's device can tell: it refuses what is not, and that ends the connection.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::Invalid`] for bytes that are none of a descriptor.
    pub fn from_bytes(bytes: &[u8]) -> Result<Self> {
        let invalid = |reason| Error::invalid("read", "a descriptor of memory", reason);
        let Ok(bytes) = <&[u8; Self::BYTES]>::try_from(bytes) else {
            let subject = format!("a descriptor of memory of {} bytes", bytes.len());
            return Err(Error::invalid("read", subject, format!("it has {}", Self::BYTES)));
        };
        let [version, rights, 0, 0, rest @ ..] = bytes else {
            return Err(invalid("it has bits that are not known"));
        };
        if *version != VERSION {
            return Err(invalid("it is of another version"));
        }
        let rights = Rights::from_bits(*rights).ok_or_else(|| invalid("unknown rights"))?;
        let (rkey, rest) = rest.split_first_chunk().expect("20 bytes are left");
        let (addr, rest) = rest.split_first_chunk().expect("16 bytes are left");
        let length = rest.first_chunk().expect("8 bytes are left");
        let (addr, length) = (u64::from_be_bytes(*addr), u64::from_be_bytes(*length));
        Self::new(addr, u32::from_be_bytes(*rkey), length, rights)
    }

    /// Returns the bytes that describe the memory: [`from_bytes`](Self::from_bytes) reads them.
    pub fn to_bytes(&self) -> [u8; Self::BYTES] {
        let Self { addr, rkey, length, rights } = self;
        let mut bytes = [0; Self::BYTES];
        (bytes[0], bytes[1]) = (VERSION, rights.bits());
        bytes[4..8].copy_from_slice(&rkey.to_be_bytes());
        bytes[8..16].copy_from_slice(&addr.to_be_bytes());
        bytes[16..24].copy_from_slice(&length.to_be_bytes());
        bytes
    }

    /// `length` bytes from `addr` on that the peer names by `rkey`, as one says that does not use
    /// this library. What it allows is for its device to know: with [`Rights::all`] nothing is
    /// refused here for want of a right.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::Invalid`] where there are no bytes, or the addresses wrap around.
    pub fn new(addr: u64, rkey: u32, length: u64, rights: Rights) -> Result<Self> {
        if length == 0 || addr.checked_add(length).is_none() {
            let subject = format!("{length} bytes at {addr:#x} of the peer's memory");
            return Err(Error::invalid("name", subject, "there is no such memory"));
        }
        Ok(Self { addr, rkey, length, rights })
    }

    /// The address of its first byte, as the peer's device knows it.
    pub fn addr(&self) -> u64 {
        self.addr
    }

    /// The key that the peer's device knows it by.
    pub fn rkey(&self) -> u32 {
        self.rkey
    }

    /// Its length in bytes.
    pub fn len(&self) -> u64 {
        self.length
    }

    /// Returns `true` if there is nothing in it, which cannot be.
    pub fn is_empty(&self) -> bool {
        self.length == 0
    }

    /// What this side may do with it.
    pub fn rights(&self) -> Rights {
        self.rights
    }

    /// What writes `length` bytes at `offset`.
    pub(super) fn writing(&self, offset: u64, length: usize) -> Result<SendOperation<'static>> {
        let (remote_addr, rkey) = self.part("write", Rights::WRITE, offset, length)?;
        Ok(SendOperation::Write { remote_addr, rkey })
    }

    /// What reads as many from there.
    pub(super) fn reading(&self, offset: u64, length: usize) -> Result<SendOperation<'static>> {
        let (remote_addr, rkey) = self.part("read", Rights::READ, offset, length)?;
        Ok(SendOperation::Read { remote_addr, rkey })
    }

    /// What changes the number there.
    pub(super) fn changing(&self, offset: u64, change: Change) -> Result<SendOperation<'static>> {
        let (remote_addr, rkey) = self.part("change", Rights::ATOMIC, offset, WORD)?;
        Ok(match change {
            Change::CompareSwap { compare, swap } => {
                SendOperation::CompareSwap { remote_addr, rkey, compare, swap }
            }
            Change::FetchAdd { add } => SendOperation::FetchAdd { remote_addr, rkey, add },
        })
    }

    /// The address and the key of `length` bytes at `offset`, for what needs `right`.
    fn part(
        &self,
        what: &'static str,
        right: Rights,
        offset: u64,
        length: usize,
    ) -> Result<(u64, u32)> {
        let end = u64::try_from(length).ok().and_then(|length| offset.checked_add(length));
        match end {
            Some(end) if end <= self.length && self.rights.contains(right) => {
                Ok((self.addr + offset, self.rkey))
            }
            _ => Err(self.refused(what, right, offset, length)),
        }
    }

    #[cold]
    fn refused(&self, what: &'static str, right: Rights, offset: u64, length: usize) -> Error {
        let (errno, reason) = match self.rights.contains(right) {
            false => (libc::EACCES, format!("the peer has given {:?}", self.rights)),
            true => (libc::EINVAL, format!("it has {} bytes", self.length)),
        };
        let subject = format!("{length} bytes at offset {offset} of the peer's memory");
        let kind = ErrorKind::Invalid { errno, reason: reason.into() };
        Error::new(what, subject, kind)
    }
}

/// How a number of the peer's memory is changed.
#[derive(Debug, Clone, Copy)]
pub(super) enum Change {
    CompareSwap { compare: u64, swap: u64 },
    FetchAdd { add: u64 },
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A descriptor as another machine would send it.
    fn descriptor() -> [u8; Remote::BYTES] {
        let mut bytes = [0; Remote::BYTES];
        (bytes[0], bytes[1]) = (1, 0b011);
        bytes[4..8].copy_from_slice(&[0, 0, 1, 2]);
        bytes[8..16].copy_from_slice(&[0, 0, 0x7f, 0, 0, 0, 0x10, 0]);
        bytes[16..24].copy_from_slice(&[0, 0, 0, 0, 0, 0, 0, 100]);
        bytes
    }

    #[test]
    fn a_descriptor_is_read() {
        let remote = Remote::from_bytes(&descriptor()).expect("it is one");
        assert_eq!((remote.len(), remote.rights()), (100, Rights::READ | Rights::WRITE));
        let part = |offset, length| remote.part("read", Rights::READ, offset, length);
        assert_eq!(part(0, 100).expect("all of it"), (0x7f00_0000_1000, 0x102));
        assert_eq!(part(100, 0).expect("its end"), (0x7f00_0000_1064, 0x102));
    }

    #[test]
    fn what_is_not_within_it_or_not_given_is_refused_here() {
        let remote = Remote::from_bytes(&descriptor()).expect("it is one");
        for (offset, length) in [(0, 101), (100, 1), (u64::MAX, 1), (u64::MAX, 0), (1, usize::MAX)]
        {
            let error = remote.part("write", Rights::WRITE, offset, length);
            assert_eq!(error.expect_err("outside").errno(), libc::EINVAL, "{offset}, {length}");
        }
        let error = remote.part("change", Rights::ATOMIC, 0, 8).expect_err("not given");
        assert_eq!(error.errno(), libc::EACCES);
        assert!(error.to_string().contains("READ | WRITE"), "{error}");
    }

    #[test]
    fn memory_that_is_named_otherwise_is_named_in_full() {
        let remote = Remote::new(0x1000, 7, 16, Rights::all()).expect("it may be there");
        assert_eq!((remote.addr(), remote.rkey(), remote.len()), (0x1000, 7, 16));
        assert_eq!(remote.part("change", Rights::ATOMIC, 8, 8).ok(), Some((0x1008, 7)));
        for (addr, length) in [(0, 0), (u64::MAX, 1), (1, u64::MAX)] {
            let error = Remote::new(addr, 7, length, Rights::READ).expect_err("no such memory");
            assert_eq!(error.errno(), libc::EINVAL);
        }
    }

    #[test]
    fn other_bytes_are_no_descriptor() {
        let whole = descriptor();
        for length in 0..whole.len() {
            Remote::from_bytes(&whole[..length]).expect_err("truncated");
        }
        Remote::from_bytes(&[&whole[..], &[0]].concat()).expect_err("too long");
        for (place, byte) in [(0, 0), (0, 2), (1, 8), (1, 0xff), (2, 1), (3, 1), (23, 0), (8, 0xff)]
        {
            let mut forged = whole;
            forged[place] = byte;
            if place == 8 {
                forged[9..24].fill(0xff);
            }
            Remote::from_bytes(&forged).expect_err("forged");
        }
    }
}
