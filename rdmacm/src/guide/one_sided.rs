//! Accessing memory of the peer.
//!
//! The owner [exports](crate::endpoint::Connection::export) [`DmaMemory`](crate::endpoint::DmaMemory) to the peer, and
//! sends the [descriptor](crate::endpoint::RemoteMemory::to_bytes) of the export: 24 bytes with the location and the
//! access rights. The peer creates a [`RemoteMemory`](crate::endpoint::RemoteMemory) from these bytes. It then reads
//! and writes the memory without participation of the owner's program: no thread of the owner wakes, and no message
//! arrives there. [`DmaMemory::new`](crate::endpoint::DmaMemory::new) allocates such memory.
//!
//! ```no_run
#![doc = include_str!("snippets/one_sided.rs")]
//! ```
//!
//! A call of `Connection` whose name begins with `start_` returns a
//! [`RemoteOperation`](crate::endpoint::RemoteOperation), and [`wait`](crate::endpoint::RemoteOperation::wait) returns
//! its result. To have several operations in flight, start them and wait for each later. Each operation keeps its send
//! buffer, and the buffer of a read stays in use until the program drops it. A thread that starts more operations than
//! there are [send buffers](crate::endpoint::ConnectionConfig::send_buffers), and waits for none, waits forever in
//! [`acquire_buffer`](crate::endpoint::Connection::acquire_buffer). Futures under `join!` whose results are kept
//! also wait forever. Tasks await [`read`](crate::endpoint::task::Connection::read),
//! [`write`](crate::endpoint::task::Connection::write),
//! [`compare_swap`](crate::endpoint::task::Connection::compare_swap) and
//! [`fetch_add`](crate::endpoint::task::Connection::fetch_add), the last two without a buffer. Several calls run at the
//! same time: in one task with `join!`, or in several tasks, each with a clone of the connection.
//!
//! 1. The call checks access rights and bounds, and the device of the owner checks them again. A request that the
//!    device refuses ends the connection.
//! 2. By default an export is for one connection: its key is invalid for other peers. Connections that share a
//!    [protection domain](crate::endpoint::ConnectionConfig::protection_domain) share its keys, except those of windows.
//!    Dropping or [revoking](crate::endpoint::ExportedMemory::revoke) the export ends the access at once. Before that,
//!    the owner waits for a message that the peer has finished, because a later access fails and ends the connection.
//! 3. A read or write uses a send buffer, so it has at most
//!    [`send_buffer_size`](crate::endpoint::ConnectionConfig::send_buffer_size) bytes of the side that reads or writes. A
//!    program with more data sets a larger size, or starts several operations.
//! 4. The owner can use the memory meanwhile, but only by copying: [`read`](crate::endpoint::DmaMemory::read) and
//!    [`write`](crate::endpoint::DmaMemory::write) are not atomic. An export does not borrow the memory. Threads that
//!    share the memory put it in a [`RwLock`](std::sync::RwLock). Tasks that export the memory put it in an
//!    asynchronous lock, such as `tokio::sync::RwLock`. The lock does not stop the peer. Memory that the owner no
//!    longer changes needs an [`Arc`](std::sync::Arc) alone.
//! 5. Several peers can change one number with
//!    [`start_compare_swap`](crate::endpoint::Connection::start_compare_swap) and
//!    [`start_fetch_add`](crate::endpoint::Connection::start_fetch_add). These operations are atomic among all that the
//!    owner's device performs. A number has 8 bytes in the byte order of the owner's machine: the owner uses
//!    [`u64::to_ne_bytes`] and [`u64::from_ne_bytes`], and exports the number with
//!    [`RemoteAccess::ATOMIC`](crate::endpoint::RemoteAccess::ATOMIC).
//! 6. Programs that do not use this library describe memory in other formats, mostly as an address, a key and a length.
//!    [`RemoteMemory::new`](crate::endpoint::RemoteMemory::new) and
//!    [`ExportedMemory::remote_memory`](crate::endpoint::ExportedMemory::remote_memory) convert in both directions.
//!
//! # Data that change while a peer reads them
//!
//! A read that overlaps a concurrent write may return parts of both. The following owner writes a version before and
//! after each change. The reader, which only reads, compares the versions before and after its copy of the data:
//!
//! ```no_run
#![doc = include_str!("snippets/versions.rs")]
//! ```
//!
//! - The fences order the calls of the owner: see [`DmaMemory::write`](crate::endpoint::DmaMemory::write).
//! - The reader waits for each read before it starts the next: see
//!   [`start_read`](crate::endpoint::Connection::start_read).
//! - Data with a checksum need neither the fences nor the order of the reads: see the example `key_value`.
//!
//! # Pitfalls
//!
//! - If the owner writes to a number while peers change it, the write may be lost, or undo a change.
//! - A write does not notify the peer. To notify it, [send](crate::endpoint::Connection::post_send) a message
//!   afterwards, like the example `file_copy`. When the message arrives, the data of the earlier writes has arrived.
//! - iWARP has no atomics.
//! - On siw a peer can read any memory whose key it knows, regardless of the access rights.
//!
//! # See also
//!
//! - [Using memory](super::memory) describes buffers and messages.
//! - [Compile-time checks](super::compile_time_checks) has mistakes that the compiler rejects.
//! - [Improving performance](super::performance) describes the cost of registering memory.
