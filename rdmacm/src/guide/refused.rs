//! Mistakes that the compiler refuses.
//!
//! Each listing that is refused stands beside the one that is not; nothing else is between them.
//!
//! # A buffer that is posted is the device's
//!
//! A buffer that is handed over cannot be accessed until it comes back. None of these compiles: the first writes to a
//! buffer that is being sent, the second frees it, the third keeps a reference into it.
//!
//! ```compile_fail,E0382
//! # use rdmacm::endpoint::Connection;
//! # fn program(connection: &Connection) -> rdmacm::Result<()> {
//! let mut buffer = connection.buffer()?;
//! connection.post(buffer)?;
//! buffer.copy_from(b"too late")?;
//! # Ok(())
//! # }
//! ```
//!
//! ```compile_fail,E0382
//! # use rdmacm::endpoint::Connection;
//! # fn program(connection: &Connection) -> rdmacm::Result<()> {
//! let buffer = connection.buffer()?;
//! connection.post(buffer)?;
//! drop(buffer);
//! # Ok(())
//! # }
//! ```
//!
//! ```compile_fail,E0505
//! # use rdmacm::endpoint::Connection;
//! # fn program(connection: &Connection) -> rdmacm::Result<()> {
//! let mut buffer = connection.buffer()?;
//! let bytes = &mut buffer[..];
//! connection.post(buffer)?;
//! bytes[0] = 1;
//! # Ok(())
//! # }
//! ```
//!
//! This one does:
//!
//! ```no_run
//! # use rdmacm::endpoint::Connection;
//! # fn program(connection: &Connection) -> rdmacm::Result<()> {
//! let mut buffer = connection.buffer()?;
//! buffer.copy_from(b"in time")?;
//! let bytes = &mut buffer[..];
//! bytes[0] = 1;
//! connection.post(buffer)?;
//! # Ok(())
//! # }
//! ```
//!
//! This holds on the low level too, where [`BufferQueues`](crate::verbs::BufferQueues) takes buffers:
//!
//! ```compile_fail,E0382
//! # use rdmacm::verbs::{Buffer, BufferQueues, SendOperation};
//! # fn program(queues: &mut BufferQueues, mut buffer: Buffer) -> rdmacm::Result<()> {
//! queues.send(buffer, 1, SendOperation::Send)?;
//! buffer[0] = 1;
//! # Ok(())
//! # }
//! ```
//!
//! ```no_run
//! # use rdmacm::verbs::{Buffer, BufferQueues, SendOperation};
//! # fn program(queues: &mut BufferQueues, mut buffer: Buffer) -> rdmacm::Result<()> {
//! buffer[0] = 1;
//! queues.send(buffer, 1, SendOperation::Send)?;
//! # Ok(())
//! # }
//! ```
//!
//! # A message that was given back is read no more
//!
//! Its memory receives the next one.
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
//! # What is destroyed is used no more
//!
//! An id, a queue pair, a region, an export: `destroy` and `revoke` take what they destroy, and give it back
//! only where that fails.
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
//! # use rdmacm::endpoint::{Export, Remote};
//! # fn program(export: Export) -> rdmacm::Result<Remote> {
//! export.revoke()?;
//! Ok(export.remote())
//! # }
//! ```
//!
//! ```no_run
//! # use rdmacm::endpoint::{Export, Remote};
//! # fn program(export: Export) -> rdmacm::Result<Remote> {
//! let remote = export.remote();
//! export.revoke()?;
//! Ok(remote)
//! # }
//! ```
//!
//! # What a request names is there when it is posted
//!
//! ```compile_fail,E0597
//! # use rdmacm::verbs::{MemoryRegion, ReceiveRequest};
//! # fn program(region: &MemoryRegion) -> rdmacm::Result<u64> {
//! let request;
//! {
//!     let pieces = [region.sge(..)?];
//!     request = ReceiveRequest { wr_id: 1, scatter: &pieces };
//! }
//! Ok(request.wr_id)
//! # }
//! ```
//!
//! ```no_run
//! # use rdmacm::verbs::{MemoryRegion, ReceiveRequest};
//! # fn program(region: &MemoryRegion) -> rdmacm::Result<u64> {
//! let request;
//! let pieces = [region.sge(..)?];
//! {
//!     request = ReceiveRequest { wr_id: 1, scatter: &pieces };
//! }
//! Ok(request.wr_id)
//! # }
//! ```
//!
//! The memory of a request may be freed while the request is posted by hand: that is why this takes an `unsafe` block, in
//! which the program answers for it.
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
//! // SAFETY: of the program's own.
//! unsafe { qp.post_recv(request) }
//! # }
//! ```
//!
//! # Memory that a device may write to is no slice
//!
//! A region of the library's is read and written by copying; no reference into it can be had.
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
//! # A connection that was moved away is used no more
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
