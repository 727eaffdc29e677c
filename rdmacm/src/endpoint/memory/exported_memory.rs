//! Memory of this side that the peer of a connection reads, writes and changes.

use std::ops::{Bound, Range, RangeBounds};
use std::sync::Arc;

use super::buffer::Buffer;
use super::remote_memory::{RemoteAccess, RemoteMemory};
use super::sending::AwaitedSend;
#[cfg(doc)]
use crate::endpoint::connection::handle::Connection;
#[cfg(doc)]
use crate::endpoint::connection_config::ConnectionConfig;
use crate::endpoint::shared::{Operation, Shared};
use crate::endpoint::wait::WaitMode;
use crate::error::{Error, ErrorKind, Result};
use crate::verbs::{
    AccessFlags, BindRequest, DmaMemory, MemoryRegion, MemoryWindow, MemoryWindowType,
    ProtectionDomain, SendFlags,
};

const EXPORT: &str = "export";

/// Memory of this side that the peer of a connection may access.
///
/// Created by [`Connection::export`] and [`Connection::start_export_window`]. The memory stays at its address. The
/// program and the peer may read and write it at any time.
///
/// Dropping an export [revokes](Self::revoke) it. Drop it when the peer does not need it any more: the peer's next
/// access fails, and ends the connection.
///
/// # Examples
///
/// ```no_run
/// use rdmacm::endpoint::{Connection, DmaMemory, ExportedMemory, RemoteAccess};
///
/// /// Lets the peer read `memory` while the returned value exists.
/// fn publish(connection: &Connection, memory: &DmaMemory) -> rdmacm::Result<ExportedMemory> {
///     let exported = connection.export(memory, .., RemoteAccess::READ)?;
///     // The peer creates a `RemoteMemory` from these bytes, and reads.
///     connection.post_bytes(&exported.remote_memory().to_bytes())?;
///     Ok(exported)
/// }
/// ```
#[derive(Debug)]
#[must_use = "dropping it revokes the access of the peer"]
pub struct ExportedMemory {
    key: Key,
    addr: u64,
    length: u64,
    rights: RemoteAccess,
}

/// The object of the kernel whose key the peer has.
#[derive(Debug)]
enum Key {
    Region(MemoryRegion),
    Window(Box<Window>),
}

/// A memory window that is bound for a connection.
#[derive(Debug)]
struct Window {
    // Declared first: the kernel may give the key of a destroyed window to another one, which is watched from then on.
    watched: WatchedKey,
    // Declared before the memory: while the window is bound, the kernel does not deregister the memory.
    window: MemoryWindow,
    _memory: Arc<MemoryRegion>,
}

/// A key of a window, which its connection watches until this is dropped.
#[derive(Debug)]
struct WatchedKey {
    shared: Arc<Shared>,
    rkey: u32,
}

impl WatchedKey {
    fn new(shared: &Arc<Shared>, rkey: u32) -> Self {
        shared.watched_keys(|keys| keys.watch(rkey));
        Self { shared: Arc::clone(shared), rkey }
    }
}

impl Drop for WatchedKey {
    fn drop(&mut self) {
        self.shared.watched_keys(|keys| keys.forget(self.rkey));
    }
}

impl ExportedMemory {
    /// Registers `part` of `memory` for the peer of a connection in `pd`.
    pub(in crate::endpoint) fn new(
        pd: &ProtectionDomain,
        memory: &DmaMemory,
        part: Range<usize>,
        rights: RemoteAccess,
    ) -> Result<Self> {
        let region = MemoryRegion::register_shared_part(pd, memory, part, access(rights))?;
        let (addr, length) = (region.addr(), bytes(region.len()));
        Ok(Self { key: Key::Region(region), addr, length, rights })
    }

    /// Returns the address, length, key and access rights that the peer needs.
    ///
    /// Send the [bytes](RemoteMemory::to_bytes) of the result to the peer.
    ///
    /// A program that has these bytes and the other end of a connection in the same
    /// [protection domain](crate::endpoint::ConnectionConfig::protection_domain) has the rights. By default a connection has its own
    /// domain. The key of a [window](crate::endpoint::Connection::start_export_window) is for one connection only.
    pub fn remote_memory(&self) -> RemoteMemory {
        let rkey = match &self.key {
            Key::Region(region) => region.rkey(),
            Key::Window(window) => window.window.rkey(),
        };
        let Self { addr, length, rights, .. } = *self;
        RemoteMemory { addr, rkey, length, rights }
    }

    /// Returns `true` if the peer has invalidated the key of the export with a message.
    ///
    /// See [`Message::invalidated_key`](crate::endpoint::Message::invalidated_key).
    ///
    /// The result is `true` as soon as the message has arrived in this process, which may be before a call returns the
    /// message. Only the key of a [window](Connection::start_export_window) can be invalidated in this way.
    ///
    /// # Driver notes
    ///
    /// - rxe refuses to invalidate the key of an export that is no window: the connection ends with
    ///   [`ErrorKind::WorkRequestFailed`].
    /// - siw has no windows. It invalidates the key of any export and reports that to no program. The result stays
    ///   `false`, and the peer's next access ends the connection. (Linux 6.1 and 6.12.)
    pub fn is_invalidated(&self) -> bool {
        match &self.key {
            Key::Region(_) => false,
            Key::Window(window) => {
                let WatchedKey { shared, rkey } = &window.watched;
                shared.watched_keys(|keys| keys.is_invalidated(*rkey)).unwrap_or(false)
            }
        }
    }

    /// Takes the right back: an access of the peer fails from then on, and ends the connection.
    ///
    /// Kernel command: `IB_USER_VERBS_CMD_DEREG_MR`, or `IB_USER_VERBS_CMD_DEALLOC_MW` for a window.
    ///
    /// # Errors
    ///
    /// The errors of [`MemoryRegion::destroy`] and [`MemoryWindow::destroy`].
    pub fn revoke(self) -> Result<()> {
        match self.key {
            Key::Region(region) => Ok(region.destroy()?),
            Key::Window(window) => {
                let Window { watched, window, _memory } = *window;
                drop(watched);
                Ok(window.destroy()?)
            }
        }
    }
}

/// Memory that is registered once, for the peers of several connections of one device.
///
/// The connections have the protection domain of the memory: see [`ConnectionConfig::protection_domain`]. A peer gets
/// one of the following:
/// - a [part](Self::part), which costs no command. The peers of all connections of the protection domain can use its
///   key, and reach all of the memory with the rights of the registration.
/// - a [window](Connection::start_export_window), whose key only the peer of one connection can use, with rights of its
///   own.
///
/// # Examples
///
/// ```no_run
/// use rdmacm::endpoint::{Connection, DmaMemory, RegisteredMemory, RemoteAccess};
///
/// /// Registers memory whose two halves the peers of two connections read.
/// fn share(connections: [&Connection; 2], memory: &DmaMemory) -> rdmacm::Result<RegisteredMemory> {
///     let pd = connections[0].protection_domain()?;
///     let registered = RegisteredMemory::new(&pd, memory, RemoteAccess::READ)?;
///     let half = memory.len() / 2;
///     for (connection, part) in connections.into_iter().zip([0..half, half..memory.len()]) {
///         connection.post_bytes(&registered.part(part)?.to_bytes())?;
///     }
///     Ok(registered)
/// }
/// ```
#[derive(Debug)]
pub struct RegisteredMemory {
    region: Arc<MemoryRegion>,
    rights: RemoteAccess,
}

impl RegisteredMemory {
    /// Registers `memory` in `pd`.
    ///
    /// Peers that know its key have `rights`. If `rights` is empty, peers access the memory through windows only.
    ///
    /// Pins the pages, which may take a while. Kernel command: `IB_USER_VERBS_CMD_REG_MR`.
    ///
    /// # Errors
    ///
    /// The errors of [`MemoryRegion::register_shared`].
    #[doc(alias = "rdma_reg_read")]
    #[doc(alias = "rdma_reg_write")]
    pub fn new(pd: &ProtectionDomain, memory: &DmaMemory, rights: RemoteAccess) -> Result<Self> {
        let access = access(rights) | AccessFlags::IB_UVERBS_ACCESS_MW_BIND;
        Ok(Self { region: Arc::new(MemoryRegion::register_shared(pd, memory, access)?), rights })
    }

    /// Returns the descriptor of the bytes in `part`. Send it to a peer with [`RemoteMemory::to_bytes`].
    ///
    /// The part gives the peer the location of the bytes. It does not limit the peer to these bytes.
    ///
    /// # Errors
    ///
    /// - [`ErrorKind::InvalidInput`] if `part` is empty or exceeds the memory.
    pub fn part(&self, part: impl RangeBounds<usize>) -> Result<RemoteMemory> {
        let part = bytes_within(part, self.region.len())?;
        let addr = self.region.addr() + bytes(part.start);
        RemoteMemory::new(addr, self.region.rkey(), bytes(part.len()), self.rights)
    }

    /// Deregisters the memory: an access of a peer fails from then on, and ends its connection.
    ///
    /// Kernel command: `IB_USER_VERBS_CMD_DEREG_MR`.
    ///
    /// # Errors
    ///
    /// - [`ErrorKind::InvalidInput`] with EBUSY if a window of the memory is exported.
    /// - The errors of [`MemoryRegion::destroy`].
    pub fn revoke(self) -> Result<()> {
        match Arc::try_unwrap(self.region) {
            Ok(region) => Ok(region.destroy()?),
            Err(_) => {
                let reason = "windows of the memory are exported; revoke them first".into();
                let kind = ErrorKind::InvalidInput { errno: libc::EBUSY, reason };
                Err(Error::new("revoke", "registered memory", kind))
            }
        }
    }
}

/// A memory window whose bind was posted.
#[derive(Debug)]
pub(in crate::endpoint) struct Exporting {
    awaited_send: AwaitedSend,
    /// Absent after it was returned.
    export: Option<ExportedMemory>,
}

impl Exporting {
    /// Posts a bind, which takes the place of `buffer` in the send queue.
    pub(in crate::endpoint) fn start(
        shared: &Arc<Shared>,
        buffer: Buffer,
        memory: &RegisteredMemory,
        part: impl RangeBounds<usize>,
        rights: RemoteAccess,
    ) -> Result<Self> {
        let RegisteredMemory { region, .. } = memory;
        let part = bytes_within(part, region.len())?;
        let window = MemoryWindow::new(region.pd(), MemoryWindowType::IB_MW_TYPE_2)?;
        let request = BindRequest {
            wr_id: 0,
            window: &window,
            region,
            offset: part.start,
            length: part.len(),
            access: access(rights) & !AccessFlags::IB_UVERBS_ACCESS_LOCAL_WRITE,
            flags: SendFlags::empty(),
        };
        let awaited_send = shared.post_awaited(Operation::Export, buffer, &request)?;
        // The key must be watched before the peer can have it.
        let watched = WatchedKey::new(shared, window.rkey());
        let (addr, length) = (region.addr() + bytes(part.start), bytes(part.len()));
        let window = Window { window, _memory: Arc::clone(region), watched };
        let key = Key::Window(Box::new(window));
        Ok(Self { awaited_send, export: Some(ExportedMemory { key, addr, length, rights }) })
    }

    pub(in crate::endpoint) fn wait(&mut self, mode: WaitMode) -> Result<ExportedMemory> {
        drop(self.awaited_send.wait(mode)?);
        Ok(self.export.take().expect("an operation returns its result once"))
    }
}

/// Returns the access of a registration that grants `rights`.
///
/// A device requires local write access if a peer may write.
fn access(rights: RemoteAccess) -> AccessFlags {
    let mut access = AccessFlags::IB_UVERBS_ACCESS_LOCAL_WRITE;
    for (right, flag) in [
        (RemoteAccess::READ, AccessFlags::IB_UVERBS_ACCESS_REMOTE_READ),
        (RemoteAccess::WRITE, AccessFlags::IB_UVERBS_ACCESS_REMOTE_WRITE),
        (RemoteAccess::ATOMIC, AccessFlags::IB_UVERBS_ACCESS_REMOTE_ATOMIC),
    ] {
        access.set(flag, rights.contains(right));
    }
    access
}

/// Returns `part` as a range, if it has bytes and all of them are within memory of `length` bytes.
pub(in crate::endpoint) fn bytes_within(
    part: impl RangeBounds<usize>,
    length: usize,
) -> Result<Range<usize>> {
    // A bound that has no successor exceeds every memory.
    let start = match part.start_bound() {
        Bound::Included(&start) => start,
        Bound::Excluded(&before) => before.saturating_add(1),
        Bound::Unbounded => 0,
    };
    let end = match part.end_bound() {
        Bound::Included(&last) => last.saturating_add(1),
        Bound::Excluded(&end) => end,
        Bound::Unbounded => length,
    };
    if start < end && end <= length {
        return Ok(start..end);
    }
    let subject = format!("bytes {start} to {end} of memory");
    let reason = match start > length || end > length {
        true => format!("the memory has {length} bytes"),
        false => "the range has no bytes".into(),
    };
    Err(Error::invalid(EXPORT, subject, reason))
}

fn bytes(length: usize) -> u64 {
    u64::try_from(length).expect("a length has at most 64 bits")
}

#[cfg(test)]
mod tests;
