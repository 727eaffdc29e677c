//! Connections and datagram sockets without `unsafe`: the part of the crate that most programs use.
//!
//! - [`Listener`] waits for connection requests. An [`Incoming`] request is accepted or rejected.
//! - [`Connector`] connects. A [`Connecting`] is an attempt in an event loop.
//! - [`Connection`] carries messages, and reads and writes memory of the peer.
//! - [`DatagramSocket`] exchanges datagrams with any [`DatagramPeer`], and with a [`MulticastGroup`].
//! - [`PollGroup`] has many connections over shared buffers, in one thread or task.
//! - [`task`] has async versions of these types, for Tokio, smol and other runtimes.
//!
//! The types are built on [`cm`](crate::cm) and [`verbs`](crate::verbs). They have no `unsafe` functions.
//!
//! # Examples
//!
//! A client that sends one message and waits for the answer. The [crate](crate#examples) has a server for it.
//!
//! ```no_run
//! use std::time::Duration;
//!
//! use rdmacm::endpoint::Connector;
//!
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let timeout = Duration::from_secs(10);
//! let connection = Connector::new().total_timeout(timeout).connect("10.0.0.1:7471")?;
//! connection.post_bytes(b"hello")?;
//! let answer = connection.recv_timeout(timeout)?.ok_or("the server closed the connection")?;
//! println!("{}", String::from_utf8_lossy(&answer));
//! connection.close(timeout)?;
//! # Ok(())
//! # }
//! ```
//!
//! # Buffers
//!
//! A buffer has one owner at a time: the program, the connection or the device. A [`Buffer`] passes to the device when
//! its message is posted, and returns to the connection when the message is sent. A [`Message`] is a buffer that the
//! device has filled; it is posted again when the program drops it. Messages are not copied, except by
//! [`post_bytes`](Connection::post_bytes), and nothing is allocated.
//!
//! A message occupies one buffer of the receiver and must fit: a longer one ends the connection. If no buffer is posted
//! when a message arrives, the message waits at the sender on InfiniBand and RoCE. On iWARP it ends the connection
//! ([`ErrorKind::ReceiveOverrun`](crate::ErrorKind::ReceiveOverrun)), so the two programs must agree on the number of
//! [messages in flight](ConnectionConfig::receive_buffers).
//!
//! # Memory of the peer
//!
//! [`Connection::export`] lets the peer access a [`DmaMemory`]. The program sends the descriptor of the exported memory
//! in a message, and the peer converts the descriptor into a [`RemoteMemory`]. The peer then reads, writes and
//! atomically changes the memory without a call on this side. A call of `Connection` named `start_` starts a
//! [`RemoteOperation`], whose [`wait`](RemoteOperation::wait) returns the result;
//! [`post_write`](Connection::post_write) writes without a result. The calling side checks bounds and rights as far as
//! the descriptor contains them. The device that owns the memory always checks them.
//!
//! # Datagrams
//!
//! A [`DatagramSocket`] needs no connection. It sends datagrams to any [`DatagramPeer`], which it resolved by address
//! or from which it received a datagram, and to a [`MulticastGroup`]. Its buffers work as those of a connection. A
//! datagram has at most the length of a packet, and is lost if the receiver has posted no buffer.
//!
//! # Closing
//!
//! Dropping the last handle of a [`Connection`] ends it without waiting for posted requests. The peer is notified, the
//! requests are flushed, and the kernel objects are destroyed. [`Connection::close`] waits instead. Memory that the
//! device may still access is never freed before the queue pair is destroyed. This holds for any order in which the
//! values are dropped, and if values are leaked.
//!
//! # Resources of a connection
//!
//! Each connection has its own id, event channel, protection domain, queue pair, and two completion queues with one
//! channel. Its buffers are parts of one region of registered memory. A peer therefore reaches no memory of another
//! connection, whatever key it guesses, and the end of a connection affects no other connection.
//!
//! Connections share no buffers (as a shared receive queue would allow). This is deliberate: a busy peer takes no
//! buffer from another one, and the memory of a connection is released with it. The price is the pinned memory of idle
//! connections. The default [`ConnectionConfig`] has 32 buffers of 4 KiB: 128 KiB for a connection, and 125 MiB for a
//! thousand. This memory counts against `RLIMIT_MEMLOCK` of the user. On iWARP there are two more buffers. A connection
//! that is kept alive has one more small buffer, which may need another page. Fewer or smaller buffers
//! ([`send_buffers`](ConnectionConfig::send_buffers),
//! [`receive_buffers`](ConnectionConfig::receive_buffers), [`send_buffer_size`](ConnectionConfig::send_buffer_size),
//! [`receive_buffer_size`](ConnectionConfig::receive_buffer_size)) need less, down to one page for two of each with 512
//! bytes.
//!
//! A program with thousands of connections, most of which are idle, uses a [poll group](poll_group), whose members
//! share queues and buffers.
//!
//! Each connection has three descriptors: two channels, and the epoll instance on which threads, event loops and tasks
//! wait. A connection that is [kept alive](ConnectionConfig::keep_alive_interval), or that has just connected over
//! iWARP, has a timer too. If a thread waits after a non-blocking call has returned
//! [`WouldBlock`](crate::ErrorKind::WouldBlock), the connection has a second epoll instance. Up to 64 connections share
//! one more descriptor, an eventfd for wakeups.
//!
//! # Statistics and traces
//!
//! [`Connection::stats`] and [`DatagramSocket::stats`] count messages and operations.
//!
//! With the feature `tracing` the crate reports to subscribers at the level `DEBUG` of the target `rdmacm::endpoint`.
//! Each `listener`, `connection` and `socket` has a span with its `id` and its addresses (`local`, `peer`). An `event`
//! with its `kind` and `status` is reported for each event of the kernel, and a `state` for each change:
//!
//! - at the beginning: `listening`; `resolving`, `resolving again` (on another port, with a new `id`), `connecting` or
//!   `accepting`, `connected`;
//! - at the end: `closing`, `disconnected` (by the peer), `failed` (with the `error`), `device removed`, `closed`;
//! - without a connection: `rejected` for a request that this side rejects or drops, and `canceled` for a
//!   [`Connecting`] that is dropped.
//!
//! Messages are not reported. A subscriber may call the connection or socket of the span. A call that waits on the
//! listener of the span fails with [`ErrorKind::WouldDeadlock`](crate::ErrorKind::WouldDeadlock) there.
//!
//! # Calls that take their time
//!
//! Creating a connection registers memory, which pins pages. Ending a connection or an attempt destroys kernel objects.
//! On iWARP the kernel connects TCP within [`Connector::connect`] or [`Connecting::try_wait`], and no deadline
//! interrupts that. Canceling a connection before its peer has answered takes until the driver's own timeout (siw:
//! about 10 s).
#![forbid(unsafe_code)]

// This module uses the following items that the crate does not export, besides the handling of errors, locks and forks:
// - a registration with one more small buffer, and a registration of two lengths of buffers (`Buffer::alloc_groups`),
//   because each would need a separate page otherwise;
// - events that are read sixteen at a time (`CompletionChannel::drop_events`);
// - the queues that members of a poll group share (`OwnedReceives`, `OwnedSends`);
// - a second handle of memory that a thread registers for a task (`DmaMemory::clone_handle`), which would let two
//   owners write to the memory at once if it were public;
// - commands that a `BufferedQueuePair` leaves to its owner (`defer_commands`);
// - Tokio's reactor, which identifies a descriptor by its number.
mod connection_config;
mod core;
mod datagram_config;
mod datagrams;
mod memory;
#[cfg(all(feature = "null", not(loom)))]
mod null_connection;
mod operations;
pub mod poll_group;
mod shared;
#[cfg(feature = "smol")]
pub mod smol;
pub mod task;
mod to_addresses;
#[cfg(feature = "tokio")]
pub mod tokio;
mod wait;

// Not in alphabetical order: rustdoc lists the methods of a type in the order of these modules.
mod connection;

mod connect;

#[cfg(fuzzing)]
pub(crate) use self::core::fuzzing;
pub use self::core::stats::EndpointStats;
pub use connect::connecting::Connecting;
pub use connect::connector::Connector;
pub use connect::incoming::Incoming;
pub use connect::listener::Listener;
pub use connection::handle::Connection;
pub use connection_config::ConnectionConfig;
pub use datagram_config::DatagramConfig;
pub use datagrams::socket::DatagramSocket;
pub use memory::buffer::{Buffer, Message};
pub use memory::exported_memory::{ExportedMemory, RegisteredMemory};
pub use memory::remote_memory::{RemoteAccess, RemoteMemory};
pub use operations::multicast_group::MulticastGroup;
pub use operations::remote_operation::RemoteOperation;
#[doc(inline)]
pub use poll_group::PollGroup;
pub use shared::datagram_peer::DatagramPeer;
pub use to_addresses::ToAddresses;

#[doc(inline)]
pub use crate::cm::{ConnParam, Membership, RejectReason};
pub use crate::error::Rejection;
#[doc(inline)]
pub use crate::verbs::{DmaMemory, ProtectionDomain};
