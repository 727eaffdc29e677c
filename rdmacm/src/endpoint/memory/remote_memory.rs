//! Memory of the peer: its address, key and length, and the requests that reach it.

use bitflags::bitflags;

#[cfg(doc)]
use super::exported_memory::ExportedMemory;
#[cfg(doc)]
use crate::endpoint::connection::handle::Connection;
use crate::error::{Error, ErrorKind, Result};
use crate::verbs::SendOperation;

/// The length of a number that an atomic operation changes, in bytes.
pub(in crate::endpoint) const WORD: usize = 8;

/// The version of the descriptor of exported memory.
const VERSION: u8 = 1;

bitflags! {
    /// The operations that a peer may perform on [exported](Connection::export) memory.
    ///
    /// # Examples
    ///
    /// ```no_run
    /// use rdmacm::endpoint::{Connection, DmaMemory, RemoteAccess};
    ///
    /// # fn lend(connection: &Connection, memory: &DmaMemory) -> rdmacm::Result<()> {
    /// let _exported = connection.export(memory, .., RemoteAccess::READ | RemoteAccess::WRITE)?;
    /// # Ok(())
    /// # }
    /// ```
    #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
    pub struct RemoteAccess: u8 {
        /// [Read](Connection::start_read) the memory.
        ///
        /// On siw, the peer of the connection can read it without this right.
        const READ = 1;
        /// [Write](Connection::start_write) the memory.
        const WRITE = 1 << 1;
        /// Change numbers in the memory: [`Connection::start_compare_swap`],
        /// [`Connection::start_fetch_add`].
        const ATOMIC = 1 << 2;
    }
}

/// Memory of the peer: its address, length, key and the allowed operations.
///
/// The peer calls [`ExportedMemory::remote_memory`] and sends the [bytes](Self::to_bytes) of the result. This side
/// creates a `RemoteMemory` from those bytes with [`from_bytes`](Self::from_bytes), or with [`new`](Self::new) if the
/// peer uses another library.
///
/// # Examples
///
/// ```
/// use rdmacm::endpoint::{RemoteAccess, RemoteMemory};
///
/// let memory = RemoteMemory::new(0x7f00_0000_1000, 0x102, 4096, RemoteAccess::READ)?;
/// assert_eq!(RemoteMemory::from_bytes(&memory.to_bytes())?, memory);
/// # Ok::<(), rdmacm::Error>(())
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[cfg_attr(feature = "serde", serde(into = "Fields", try_from = "Fields"))]
pub struct RemoteMemory {
    pub(in crate::endpoint) addr: u64,
    pub(in crate::endpoint) rkey: u32,
    pub(in crate::endpoint) length: u64,
    pub(in crate::endpoint) rights: RemoteAccess,
}

impl RemoteMemory {
    /// The length of a descriptor in bytes.
    pub const ENCODED_LEN: usize = 24;

    /// Parses the descriptor that the peer has sent: the bytes of [`to_bytes`](Self::to_bytes).
    ///
    /// Only the peer's device can verify the descriptor. The device refuses an operation that it does not allow, which
    /// ends the connection.
    ///
    /// # Errors
    ///
    /// - [`ErrorKind::InvalidInput`] if `bytes` are not exactly 24 bytes, or no descriptor. Cut the descriptor out of a
    ///   longer message or of padded private data first.
    pub fn from_bytes(bytes: &[u8]) -> Result<Self> {
        let invalid = |reason: String| Error::invalid("read", "a descriptor of memory", reason);
        let Ok(bytes) = <&[u8; Self::ENCODED_LEN]>::try_from(bytes) else {
            let (given, length) = (bytes.len(), Self::ENCODED_LEN);
            return Err(invalid(format!("the descriptor has {given} bytes instead of {length}")));
        };
        let [version, rights, 0, 0, rest @ ..] = bytes else {
            return Err(invalid("bytes 2 and 3 of the descriptor are not 0".to_owned()));
        };
        if *version != VERSION {
            return Err(invalid(format!(
                "the version of the descriptor is {version} instead of {VERSION}"
            )));
        }
        let rights =
            RemoteAccess::from_bits(*rights).ok_or_else(|| invalid(unknown_rights(*rights)))?;
        let (rkey, rest) = rest.split_first_chunk().expect("20 bytes are left");
        let (addr, rest) = rest.split_first_chunk().expect("16 bytes are left");
        let length = rest.first_chunk().expect("8 bytes are left");
        let (addr, length) = (u64::from_be_bytes(*addr), u64::from_be_bytes(*length));
        Self::new(addr, u32::from_be_bytes(*rkey), length, rights)
    }

    /// Returns the bytes that describe the memory: [`from_bytes`](Self::from_bytes) reads them.
    pub fn to_bytes(&self) -> [u8; Self::ENCODED_LEN] {
        let Self { addr, rkey, length, rights } = self;
        let mut bytes = [0; Self::ENCODED_LEN];
        (bytes[0], bytes[1]) = (VERSION, rights.bits());
        bytes[4..8].copy_from_slice(&rkey.to_be_bytes());
        bytes[8..16].copy_from_slice(&addr.to_be_bytes());
        bytes[16..24].copy_from_slice(&length.to_be_bytes());
        bytes
    }

    /// Creates a descriptor of `length` bytes at `addr`, for which the peer's device has the key `rkey`.
    ///
    /// Use it for a peer that uses another library. With [`RemoteAccess::all`] this side refuses no operation, and the
    /// peer's device decides.
    ///
    /// # Errors
    ///
    /// - [`ErrorKind::InvalidInput`] if `length` is 0, or if the addresses wrap around.
    pub fn new(addr: u64, rkey: u32, length: u64, rights: RemoteAccess) -> Result<Self> {
        let invalid = |reason| {
            let subject = format!("{length} bytes at {addr:#x} of the peer's memory");
            Err(Error::invalid("describe", subject, reason))
        };
        if length == 0 {
            return invalid("the length must not be 0");
        }
        if addr.checked_add(length).is_none() {
            return invalid("the addresses wrap around");
        }
        Ok(Self { addr, rkey, length, rights })
    }

    /// Returns the address of the first byte, as the peer's device knows it.
    pub fn addr(&self) -> u64 {
        self.addr
    }

    /// Returns the key by which the peer's device knows the memory.
    pub fn rkey(&self) -> u32 {
        self.rkey
    }

    /// Returns the length in bytes.
    pub fn len(&self) -> u64 {
        self.length
    }

    /// Returns `true` if the length is 0, which never holds.
    pub fn is_empty(&self) -> bool {
        self.length == 0
    }

    /// Returns the operations that this side may perform.
    pub fn access(&self) -> RemoteAccess {
        self.rights
    }

    /// Returns the operation that writes `length` bytes at `offset`.
    pub(in crate::endpoint) fn writing(
        &self,
        offset: u64,
        length: usize,
    ) -> Result<SendOperation<'static>> {
        let (remote_addr, rkey) = self.part("write", RemoteAccess::WRITE, offset, length)?;
        Ok(SendOperation::Write { remote_addr, rkey })
    }

    /// Returns the operation that reads `length` bytes at `offset`.
    pub(in crate::endpoint) fn reading(
        &self,
        offset: u64,
        length: usize,
    ) -> Result<SendOperation<'static>> {
        let (remote_addr, rkey) = self.part("read", RemoteAccess::READ, offset, length)?;
        Ok(SendOperation::Read { remote_addr, rkey })
    }

    /// Returns the operation that changes the number at `offset`.
    pub(in crate::endpoint) fn changing(
        &self,
        offset: u64,
        operation: AtomicOperation,
    ) -> Result<SendOperation<'static>> {
        let (remote_addr, rkey) = self.part("change", RemoteAccess::ATOMIC, offset, WORD)?;
        if remote_addr % 8 != 0 {
            let subject = format!("the number at offset {offset} of the peer's memory");
            let reason = format!("the address {remote_addr:#x} is not a multiple of 8");
            return Err(Error::invalid("change", subject, reason));
        }
        Ok(match operation {
            AtomicOperation::CompareSwap { compare, swap } => {
                SendOperation::CompareSwap { remote_addr, rkey, compare, swap }
            }
            AtomicOperation::FetchAdd { add } => SendOperation::FetchAdd { remote_addr, rkey, add },
        })
    }

    /// Returns the address and the key of `length` bytes at `offset`, for an operation that needs `right`.
    fn part(
        &self,
        what: &'static str,
        right: RemoteAccess,
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
    fn refused(
        &self,
        what: &'static str,
        right: RemoteAccess,
        offset: u64,
        length: usize,
    ) -> Error {
        let (errno, reason) = match self.rights.contains(right) {
            false => {
                let name: String = right.iter_names().map(|(name, _)| name).collect();
                (libc::EACCES, format!("the peer does not grant RemoteAccess::{name}"))
            }
            true => (libc::EINVAL, format!("the memory has {} bytes", self.length)),
        };
        let subject = format!("{length} bytes at offset {offset} of the peer's memory");
        let kind = ErrorKind::InvalidInput { errno, reason: reason.into() };
        Error::new(what, subject, kind)
    }
}

impl TryFrom<&[u8]> for RemoteMemory {
    type Error = Error;

    /// Reads a descriptor: see [`RemoteMemory::from_bytes`].
    fn try_from(bytes: &[u8]) -> Result<Self> {
        Self::from_bytes(bytes)
    }
}

impl From<RemoteMemory> for [u8; RemoteMemory::ENCODED_LEN] {
    fn from(memory: RemoteMemory) -> Self {
        memory.to_bytes()
    }
}

/// The form in which [`RemoteMemory`] is serialized.
#[cfg(feature = "serde")]
#[derive(serde::Serialize, serde::Deserialize)]
struct Fields {
    addr: u64,
    rkey: u32,
    length: u64,
    access: u8,
}

fn unknown_rights(bits: u8) -> String {
    format!("the access rights {bits:#x} contain unknown bits")
}

#[cfg(feature = "serde")]
impl From<RemoteMemory> for Fields {
    fn from(RemoteMemory { addr, rkey, length, rights }: RemoteMemory) -> Self {
        Self { addr, rkey, length, access: rights.bits() }
    }
}

#[cfg(feature = "serde")]
impl TryFrom<Fields> for RemoteMemory {
    type Error = Error;

    fn try_from(Fields { addr, rkey, length, access }: Fields) -> Result<Self> {
        let unknown = || Error::invalid("read", "a descriptor of memory", unknown_rights(access));
        Self::new(addr, rkey, length, RemoteAccess::from_bits(access).ok_or_else(unknown)?)
    }
}

/// An atomic operation on a number in the peer's memory.
#[derive(Debug, Clone, Copy)]
pub(in crate::endpoint) enum AtomicOperation {
    CompareSwap { compare: u64, swap: u64 },
    FetchAdd { add: u64 },
}

#[cfg(test)]
mod tests;
