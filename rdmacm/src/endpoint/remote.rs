//! Memory that one side gives and the other one reads and writes, without the first one's help.

use std::time::Duration;

use bitflags::bitflags;

use super::buffer::Buffer;
use super::connection::Connection;
#[cfg(doc)]
use super::settings::Settings;
use super::shared::{Operation, Patience};
use crate::error::{Error, ErrorKind, Result};
use crate::verbs::{AccessFlags, Memory, MemoryRegion, ProtectionDomain, SendOperation};

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

/// That the peer of a connection reaches [memory](Memory) of this side.
///
/// Of [`Connection::export`]. The memory stays where it is, and the program goes on reading and
/// writing it; so may the peer, at any time. Dropping this [revokes](Self::revoke) it: not before
/// the peer is known to be done, or its next access ends the connection.
#[derive(Debug)]
pub struct Export {
    region: MemoryRegion,
    rights: Rights,
}

impl Export {
    pub(super) fn new(pd: &ProtectionDomain, memory: &Memory, rights: Rights) -> Result<Self> {
        let mut access = AccessFlags::IB_UVERBS_ACCESS_LOCAL_WRITE;
        for (right, flag) in [
            (Rights::READ, AccessFlags::IB_UVERBS_ACCESS_REMOTE_READ),
            (Rights::WRITE, AccessFlags::IB_UVERBS_ACCESS_REMOTE_WRITE),
            (Rights::ATOMIC, AccessFlags::IB_UVERBS_ACCESS_REMOTE_ATOMIC),
        ] {
            access.set(flag, rights.contains(right));
        }
        Ok(Self { region: MemoryRegion::share(pd, memory, access)?, rights })
    }

    /// What the peer may do, and where: what it makes of the [descriptor](Self::descriptor).
    pub fn remote(&self) -> Remote {
        let length = u64::try_from(self.region.len()).expect("a length has at most 64 bits");
        Remote { addr: self.region.addr(), rkey: self.region.rkey(), length, rights: self.rights }
    }

    /// What the peer needs to know, as bytes to send to it: it makes a [`Remote`] of them. Who has
    /// them, and a connection to this side's end of the same connection, has the rights.
    pub fn descriptor(&self) -> [u8; Remote::BYTES] {
        let Remote { addr, rkey, length, rights } = self.remote();
        let mut bytes = [0; Remote::BYTES];
        (bytes[0], bytes[1]) = (VERSION, rights.bits());
        bytes[4..8].copy_from_slice(&rkey.to_be_bytes());
        bytes[8..16].copy_from_slice(&addr.to_be_bytes());
        bytes[16..24].copy_from_slice(&length.to_be_bytes());
        bytes
    }

    /// Takes the right back: what the peer does with the memory from then on fails, and ends the
    /// connection.
    ///
    /// `IB_USER_VERBS_CMD_DEREG_MR`.
    ///
    /// # Errors
    ///
    /// Those of [`MemoryRegion::destroy`].
    pub fn revoke(self) -> Result<()> {
        Ok(self.region.destroy()?)
    }
}

/// Memory of the peer: of the bytes with which it has [described](Export::descriptor) it, or
/// [`new`](Self::new) where a program says it in other ways.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Remote {
    addr: u64,
    rkey: u32,
    length: u64,
    rights: Rights,
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

    /// Whether there is nothing in it, which cannot be.
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

impl Connection {
    /// Lets the peer reach `memory`, as far as `rights` go. That lasts as long as the [`Export`],
    /// and is of no use to anybody when the connection has ended. The same memory may be exported to
    /// many peers.
    ///
    /// `IB_USER_VERBS_CMD_REG_MR`. Pins the pages, which may take a while.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::Disconnected`] where this side has ended the connection; those of
    /// [`MemoryRegion::share`]. That iWARP has no atomics the peer hears that tries.
    #[doc(alias = "rdma_reg_read")]
    #[doc(alias = "rdma_reg_write")]
    pub fn export(&self, memory: &Memory, rights: Rights) -> Result<Export> {
        Export::new(&self.shared.pd()?, memory, rights)
    }

    /// Writes what is in `buffer` to the peer's memory, waits until that is done, and gives the
    /// buffer back. The peer does not hear of it. On InfiniBand and RoCE it is in the peer's memory
    /// then; on iWARP it is before any message that is sent later.
    ///
    /// # Errors
    ///
    /// Those of [`send`](Self::send); [`ErrorKind::Invalid`] where it is not within `to`, and with
    /// EACCES where `to` has not [`Rights::WRITE`]; [`ErrorKind::Failed`] where the peer's device
    /// refuses it. siw does not say so: there that is the end of the connection, and no error of what was
    /// written before it is heard of.
    #[doc(alias = "rdma_post_write")]
    pub fn write(&self, buffer: Buffer, to: &Remote, offset: u64) -> Result<Buffer> {
        self.write_with(buffer, to, offset, Patience::FOREVER)
    }

    /// The same, for at most `timeout`. After that it is on its way still.
    ///
    /// # Errors
    ///
    /// As [`write`](Self::write), and [`ErrorKind::TimedOut`].
    pub fn write_timeout(
        &self,
        buffer: Buffer,
        to: &Remote,
        offset: u64,
        timeout: Duration,
    ) -> Result<Buffer> {
        self.write_with(buffer, to, offset, Patience::within(timeout))
    }

    fn write_with(
        &self,
        buffer: Buffer,
        to: &Remote,
        offset: u64,
        patience: Patience,
    ) -> Result<Buffer> {
        let operation = to.writing(offset, buffer.len())?;
        self.shared.carry_out(Operation::Write, buffer, operation, patience)
    }

    /// Writes what is in `buffer` to the peer's memory, without waiting until that is done: as
    /// [`post`](Self::post), and before any message that is posted later.
    ///
    /// # Errors
    ///
    /// Those of [`post`](Self::post); [`ErrorKind::Invalid`] as with [`write`](Self::write).
    pub fn post_write(&self, buffer: Buffer, to: &Remote, offset: u64) -> Result<()> {
        let operation = to.writing(offset, buffer.len())?;
        self.shared.start(Operation::Write, buffer, operation)
    }

    /// Fills `buffer`, as long as it is, from the peer's memory, and waits until that is done.
    ///
    /// # Errors
    ///
    /// Those of [`send`](Self::send); [`ErrorKind::Invalid`] where it is not within `from`, with
    /// EACCES where `from` has not [`Rights::READ`], and where the two sides have settled on no reads
    /// ([`Settings::initiator_depth`]); [`ErrorKind::Failed`] where the peer's device refuses it, on siw
    /// [`ErrorKind::Disconnected`].
    #[doc(alias = "rdma_post_read")]
    pub fn read(&self, buffer: Buffer, from: &Remote, offset: u64) -> Result<Buffer> {
        self.read_with(buffer, from, offset, Patience::FOREVER)
    }

    /// The same, for at most `timeout`. After that the buffer comes back to the connection when it
    /// is done.
    ///
    /// # Errors
    ///
    /// As [`read`](Self::read), and [`ErrorKind::TimedOut`].
    pub fn read_timeout(
        &self,
        buffer: Buffer,
        from: &Remote,
        offset: u64,
        timeout: Duration,
    ) -> Result<Buffer> {
        self.read_with(buffer, from, offset, Patience::within(timeout))
    }

    fn read_with(
        &self,
        buffer: Buffer,
        from: &Remote,
        offset: u64,
        patience: Patience,
    ) -> Result<Buffer> {
        let length = buffer.len();
        self.check_depth(Operation::Read)?;
        let operation = from.reading(offset, length)?;
        let mut buffer = self.shared.carry_out(Operation::Read, buffer, operation, patience)?;
        buffer.set_len(length)?;
        Ok(buffer)
    }

    /// Compares the number at `offset` of the peer's memory with `compare`, and stores `swap` there
    /// if they are equal, at once; what was there before. Numbers have 8 bytes, at multiples of 8,
    /// in the order of the machine that they are on.
    ///
    /// Takes a [`buffer`](Self::buffer) for the answer.
    ///
    /// # Errors
    ///
    /// Those of [`buffer`](Self::buffer) and [`send`](Self::send); [`ErrorKind::Invalid`] where the
    /// number is not within `at` or not aligned, with EACCES where `at` has not [`Rights::ATOMIC`], and
    /// where the two sides have settled on no atomics ([`Settings::initiator_depth`]);
    /// [`ErrorKind::Unsupported`] where the device has none (siw); [`ErrorKind::Failed`] where the peer's
    /// device refuses it.
    #[doc(alias = "IBV_WR_ATOMIC_CMP_AND_SWP")]
    pub fn compare_swap(&self, at: &Remote, offset: u64, compare: u64, swap: u64) -> Result<u64> {
        self.change(at, offset, Change::CompareSwap { compare, swap }, Patience::FOREVER)
    }

    /// The same, for at most `timeout`. Nobody knows after that whether it was done.
    ///
    /// # Errors
    ///
    /// As [`compare_swap`](Self::compare_swap), and [`ErrorKind::TimedOut`].
    pub fn compare_swap_timeout(
        &self,
        at: &Remote,
        offset: u64,
        compare: u64,
        swap: u64,
        timeout: Duration,
    ) -> Result<u64> {
        let change = Change::CompareSwap { compare, swap };
        self.change(at, offset, change, Patience::within(timeout))
    }

    /// Adds `add` to the number at `offset` of the peer's memory, which wraps around, at once; what
    /// was there before. As [`compare_swap`](Self::compare_swap) in all else.
    ///
    /// # Errors
    ///
    /// Those of [`compare_swap`](Self::compare_swap).
    #[doc(alias = "IBV_WR_ATOMIC_FETCH_AND_ADD")]
    pub fn fetch_add(&self, at: &Remote, offset: u64, add: u64) -> Result<u64> {
        self.change(at, offset, Change::FetchAdd { add }, Patience::FOREVER)
    }

    /// The same, for at most `timeout`. Nobody knows after that whether it was done.
    ///
    /// # Errors
    ///
    /// As [`fetch_add`](Self::fetch_add), and [`ErrorKind::TimedOut`].
    pub fn fetch_add_timeout(
        &self,
        at: &Remote,
        offset: u64,
        add: u64,
        timeout: Duration,
    ) -> Result<u64> {
        self.change(at, offset, Change::FetchAdd { add }, Patience::within(timeout))
    }

    fn change(&self, at: &Remote, offset: u64, change: Change, patience: Patience) -> Result<u64> {
        self.check_depth(Operation::Change)?;
        let operation = at.changing(offset, change)?;
        let mut buffer = self.shared.take(patience)?;
        buffer.set_len(WORD)?;
        let buffer = self.shared.carry_out(Operation::Change, buffer, operation, patience)?;
        Ok(number(&buffer))
    }

    /// That this side may have reads and atomics outstanding.
    pub(super) fn check_depth(&self, what: Operation) -> Result<()> {
        if self.may_read {
            return Ok(());
        }
        let reason = "reads and atomics need an initiator depth of the connection";
        Err(Error::invalid(what.name(), self.shared.name.clone(), reason))
    }
}

/// What was in the peer's memory before it was changed.
pub(super) fn number(answer: &[u8]) -> u64 {
    u64::from_ne_bytes(*answer.first_chunk().expect("it was long enough before"))
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
