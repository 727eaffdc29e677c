//! Compile-time checks: mistakes that the compiler rejects.
//!
//! After each listing that the compiler rejects, there is a similar one that it accepts. The two differ only in the
//! mistake.
//!
//! # The device owns a posted buffer
//!
//! The program cannot access a posted buffer until the buffer returns. None of the following three listings compiles.
//! The first writes to a buffer in flight, the second frees it, and the third keeps a reference into it.
//!
//! ```compile_fail,E0382
//! # use rdmacm::endpoint::Connection;
//! # fn program(connection: &Connection) -> rdmacm::Result<()> {
//! let mut buffer = connection.acquire_buffer()?;
//! connection.post_send(buffer)?;
//! buffer.copy_from(b"too late")?;
//! # Ok(())
//! # }
//! ```
//!
//! ```compile_fail,E0382
//! # use rdmacm::endpoint::Connection;
//! # fn program(connection: &Connection) -> rdmacm::Result<()> {
//! let buffer = connection.acquire_buffer()?;
//! connection.post_send(buffer)?;
//! drop(buffer);
//! # Ok(())
//! # }
//! ```
//!
//! ```compile_fail,E0505
//! # use rdmacm::endpoint::Connection;
//! # fn program(connection: &Connection) -> rdmacm::Result<()> {
//! let mut buffer = connection.acquire_buffer()?;
//! let bytes = &mut buffer[..];
//! connection.post_send(buffer)?;
//! bytes[0] = 1;
//! # Ok(())
//! # }
//! ```
//!
//! This listing compiles:
//!
//! ```no_run
//! # use rdmacm::endpoint::Connection;
//! # fn program(connection: &Connection) -> rdmacm::Result<()> {
//! let mut buffer = connection.acquire_buffer()?;
//! buffer.copy_from(b"in time")?;
//! let bytes = &mut buffer[..];
//! bytes[0] = 1;
//! connection.post_send(buffer)?;
//! # Ok(())
//! # }
//! ```
//!
//! This rule applies on the lower level too, where [`BufferedQueuePair`](crate::verbs::BufferedQueuePair) takes
//! buffers:
//!
//! ```compile_fail,E0382
//! # use rdmacm::verbs::{RegisteredBuffer, BufferedQueuePair, SendOperation};
//! # fn program(queues: &mut BufferedQueuePair, mut buffer: RegisteredBuffer) -> rdmacm::Result<()> {
//! queues.post_send(buffer, 1, SendOperation::Send)?;
//! buffer[0] = 1;
//! # Ok(())
//! # }
//! ```
//!
//! ```no_run
//! # use rdmacm::verbs::{RegisteredBuffer, BufferedQueuePair, SendOperation};
//! # fn program(queues: &mut BufferedQueuePair, mut buffer: RegisteredBuffer) -> rdmacm::Result<()> {
//! buffer[0] = 1;
//! queues.post_send(buffer, 1, SendOperation::Send)?;
//! # Ok(())
//! # }
//! ```
//!
//! # A dropped message cannot be read
//!
//! The memory of a dropped message receives the next message.
//!
//! ```compile_fail,E0505
//! # use rdmacm::endpoint::Connection;
//! # fn program(connection: &Connection) -> rdmacm::Result<usize> {
//! let Some(message) = connection.recv()? else { return Ok(0) };
//! let text = &message[..];
//! drop(message);
//! Ok(text.len())
//! # }
//! ```
//!
//! ```no_run
//! # use rdmacm::endpoint::Connection;
//! # fn program(connection: &Connection) -> rdmacm::Result<usize> {
//! let Some(message) = connection.recv()? else { return Ok(0) };
//! let text = &message[..];
//! Ok(text.len())
//! # }
//! ```
//!
//! # A destroyed object cannot be used
//!
//! The calls `destroy` and `revoke` take the id, queue pair, region or export by value, and return it only if they
//! fail.
//!
//! ```compile_fail,E0382
//! # use rdmacm::cm::{CmId, ConnParam};
//! # fn program(id: CmId) -> rdmacm::Result<()> {
//! id.destroy()?;
//! id.connect(&ConnParam::default())?;
//! # Ok(())
//! # }
//! ```
//!
//! ```no_run
//! # use rdmacm::cm::{CmId, ConnParam};
//! # fn program(id: CmId) -> rdmacm::Result<()> {
//! id.connect(&ConnParam::default())?;
//! id.destroy()?;
//! # Ok(())
//! # }
//! ```
//!
//! ```compile_fail,E0382
//! # use rdmacm::endpoint::{ExportedMemory, RemoteMemory};
//! # fn program(export: ExportedMemory) -> rdmacm::Result<RemoteMemory> {
//! export.revoke()?;
//! Ok(export.remote_memory())
//! # }
//! ```
//!
//! ```no_run
//! # use rdmacm::endpoint::{ExportedMemory, RemoteMemory};
//! # fn program(export: ExportedMemory) -> rdmacm::Result<RemoteMemory> {
//! let remote = export.remote_memory();
//! export.revoke()?;
//! Ok(remote)
//! # }
//! ```
//!
//! # A request cannot outlive the entries to which it refers
//!
//! ```compile_fail,E0597
//! # use rdmacm::verbs::{MemoryRegion, ReceiveRequest};
//! # fn program(region: &MemoryRegion) -> rdmacm::Result<u64> {
//! let request;
//! {
//!     let sges = [region.sge(..)?];
//!     request = ReceiveRequest { wr_id: 1, scatter: &sges };
//! }
//! Ok(request.wr_id)
//! # }
//! ```
//!
//! ```no_run
//! # use rdmacm::verbs::{MemoryRegion, ReceiveRequest};
//! # fn program(region: &MemoryRegion) -> rdmacm::Result<u64> {
//! let request;
//! let sges = [region.sge(..)?];
//! {
//!     request = ReceiveRequest { wr_id: 1, scatter: &sges };
//! }
//! Ok(request.wr_id)
//! # }
//! ```
//!
//! The program could free the memory of a request that it has posted itself. Posting therefore needs an `unsafe` block,
//! in which the program guarantees that the memory stays valid.
//!
//! ```compile_fail,E0133
//! # use rdmacm::verbs::{QueuePair, ReceiveRequest};
//! # fn program(qp: &QueuePair, request: &ReceiveRequest<'_>) -> rdmacm::Result<()> {
//! qp.post_recv(request)
//! # }
//! ```
//!
//! ```no_run
//! # use rdmacm::verbs::{QueuePair, ReceiveRequest};
//! # fn program(qp: &QueuePair, request: &ReceiveRequest<'_>) -> rdmacm::Result<()> {
//! // SAFETY: the program guarantees that the memory stays valid.
//! unsafe { qp.post_recv(request) }
//! # }
//! ```
//!
//! # Memory that a device may change is not a slice
//!
//! A program reads and writes a region that the library has allocated by copying, and cannot get a reference into it.
//!
//! ```compile_fail,E0608
//! # use rdmacm::verbs::MemoryRegion;
//! # fn program(region: &MemoryRegion) -> rdmacm::Result<u8> {
//! Ok(region[0])
//! # }
//! ```
//!
//! ```no_run
//! # use rdmacm::verbs::MemoryRegion;
//! # fn program(region: &MemoryRegion) -> rdmacm::Result<u8> {
//! let mut first = [0];
//! region.read(0, &mut first)?;
//! Ok(first[0])
//! # }
//! ```
//!
//! # A connection that was moved to a thread cannot be used here
//!
//! ```compile_fail,E0382
//! # use rdmacm::endpoint::Connection;
//! # fn program(connection: Connection) -> rdmacm::Result<()> {
//! let _thread = std::thread::spawn(move || connection.recv());
//! connection.flush()?;
//! # Ok(())
//! # }
//! ```
//!
//! ```no_run
//! # use rdmacm::endpoint::Connection;
//! # fn program(connection: Connection) -> rdmacm::Result<()> {
//! connection.flush()?;
//! let _thread = std::thread::spawn(move || connection.recv());
//! # Ok(())
//! # }
//! ```
//!
//! # See also
//!
//! - [Using memory](super::memory) describes buffers and messages, whose owners these checks protect.
//! - [Serving many connections](super::concurrency) describes the use of connections by several threads.
