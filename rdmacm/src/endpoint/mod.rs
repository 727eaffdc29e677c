//! Connections that cannot be misused: the level that most programs are for.
//!
//! A [`Listener`] hands out [`Incoming`] requests, to look at before they are accepted or rejected;
//! a [`Connector`] connects. Both end in a [`Connection`], which carries messages; in an event loop
//! by way of a [`Connecting`]. All of it is written on the items of [`cm`](crate::cm) and
//! [`verbs`](crate::verbs), without `unsafe`, here and in the programs that use it. The module
//! [`task`] has async versions of these types. In its shortest form:
//!
//! ```no_run
#![doc = include_str!("../../examples/echo.rs")]
//! ```
//!
//! # Who owns what
//!
//! A connection has everything of its own: the id and its event channel, a protection domain, one
//! completion queue with its channel, the queue pair, and one region of registered memory, cut into
//! buffers. So a peer reaches no memory but that of its own connection, whatever key it guesses;
//! and ending one connection touches no other.
//!
//! That each has its own buffers, and shares none with others (as through a shared receive queue), is a
//! decision: a busy peer takes no buffer that another one needs, and what a connection pins goes with
//! it. The price is memory that is pinned while it is idle: with the default [`Settings`] 32 buffers of
//! 4 KiB, which are 128 KiB for each connection and 125 MiB for a thousand, against `RLIMIT_MEMLOCK` of
//! the user; on iWARP two buffers more, and a page where it is kept alive. It is less with fewer
//! [`receive_buffers`](Settings::receive_buffers) and [`send_buffers`](Settings::send_buffers), and with
//! smaller ones ([`send_buffer_size`](Settings::send_buffer_size),
//! [`receive_buffer_size`](Settings::receive_buffer_size)), down to one page: 2 of each and 512 bytes are one.
//!
//! A program with thousands of connections, most of which are idle at a time, serves them by a [poll
//! group](poll_group), whose members share queues and buffers.
//!
//! Three descriptors go with each connection: two
//! channels, and the one that wakes; a fourth with one that is [kept
//! alive](Settings::keep_alive), and at first with one that has connected over iWARP; and one more with
//! one on which a thread waits after a call that does not wait has found nothing.
//!
//! # Buffers
//!
//! A buffer has one owner at a time: the program, the connection, or the device. [`Buffer`]s go to
//! the device with the message that is sent, and back to the connection when it was; a [`Message`]
//! is a buffer that the device has filled, and goes back to the device when it is dropped. Nothing
//! is copied on the way, unless [that is wanted](Connection::post_bytes), and nothing allocated.
//!
//! A message takes one buffer of the receiver, and has to fit: one that is too long ends the
//! connection. A message that comes when no buffer is free waits at the sender on InfiniBand and
//! RoCE; on iWARP it ends the connection ([`ErrorKind::Overrun`](crate::ErrorKind::Overrun)), so that
//! the two programs have to agree on how many [messages may be on their
//! way](Settings::receive_buffers).
//!
//! # Memory of the peer
//!
//! [`Connection::export`] lets the peer reach [`Memory`]; the descriptor of that goes there in a
//! message, and makes the [`Remote`] that the peer reads, writes and changes numbers in, without
//! this side's help: each such call waits, or starts a [`RemoteOperation`].
//! Bounds and rights are checked where the call is made, as far as they are known there, and by
//! this side's device in any case.
//!
//! # Datagrams
//!
//! A [`DatagramSocket`] needs no connection: it sends datagrams to any [`Peer`], which it has found
//! by address or heard of, and to a [`Group`] of them. Its buffers are as those of a connection, but
//! a datagram is as long as a packet at most, and one that finds no buffer is lost.
//!
//! # What happens at the end
//!
//! Dropping the last handle of a [`Connection`] ends it at once and waits for nobody: the peer hears of the end, the
//! kernel's objects go, and what was posted is cut off; [`Connection::close`] waits instead. Memory
//! that the device may still use is freed after the queue pair is destroyed, never before, in
//! whatever order things are dropped, and also where they are forgotten.
//!
//! # What can be seen of it
//!
//! [`Connection::counters`] and [`DatagramSocket::counters`] say how much went which way.
//!
//! With the feature `tracing`, programs that subscribe by the crate of that name hear, at the level
//! `DEBUG` of the target `rdmacm::endpoint`, of each `listener`, `connection` and `socket`, in a
//! span with its `id` and its addresses (`local`, `peer`), an `event` with its `kind` and `status`
//! for every one that the kernel reports, and a `state` for what becomes of it: `listening`;
//! `resolving`, `connecting` or `accepting`, `connected`, `closing`, `disconnected` (by the peer),
//! `failed` (with the `error`), `device gone`, `closed`; `rejected` of a request that this side
//! rejects or drops, and `given up` of a [`Connecting`] that is dropped. Nothing is said of
//! messages. A subscriber must not call the connection, socket or listener that it hears of, whose
//! state may be locked.
//!
//! # Calls that take their time
//!
//! Making a connection registers memory, which pins pages; ending one, or an attempt at one,
//! destroys kernel objects. On iWARP the kernel connects TCP in the middle of
//! [`Connector::connect`] or of a [`Connecting::try_wait`], which no deadline ends, and a
//! connection that is given up while its peer has not answered takes until the driver gives up too
//! (siw about 10 s).
#![forbid(unsafe_code)]

// Of what the crate keeps to itself below this, the following is used, besides what keeps errors, locks and forks apart: a
// registration with one small buffer more and one of two lengths of buffers (`Buffer::alloc_groups`), as each would cost a page otherwise; events
// that are read sixteen at a time (`CompletionChannel::drop_events`); the queues that members of a poll group share
// (`OwnedReceives`, `OwnedSends`); memory that a thread registers for a task
// (`Memory::same`), which as a public copy would let two write to it at once; objects of
// which a request had the last handle (`BufferQueues::take_released`); and Tokio's reactor, which
// knows a descriptor by its number.
mod access;
mod attempt;
mod buffer;
mod busy_poll;
mod caller;
mod commands;
mod connect;
mod connect_attempt;
mod connecting;
mod connection;
mod connection_messages;
mod connector;
mod core;
mod counters;
mod datagram_bind;
mod datagram_cm;
mod datagram_messages;
mod datagram_settings;
mod datagrams;
mod deadline;
mod ending;
mod event_loop;
mod export;
mod group;
mod groups;
mod incoming;
mod kernel_objects;
mod listener;
mod operation;
mod peer;
pub mod poll_group;
mod port;
mod readiness;
mod remote;
mod remote_memory;
mod remote_operation;
mod resolving;
mod running_command;
mod sending;
mod settings;
mod shared;
#[cfg(feature = "smol")]
pub mod smol;
mod state;
pub mod task;
mod task_wait;
mod thread_wait;
mod timer;
#[cfg(feature = "tokio")]
pub mod tokio;
mod trace;
mod wait;
mod wait_loop;
mod waker;
mod waking;

#[cfg(fuzzing)]
pub(crate) use self::core::fuzzing;
pub use buffer::{Buffer, Message};
pub use connecting::Connecting;
pub use connection::Connection;
pub use connector::Connector;
pub use counters::Counters;
pub use datagram_settings::DatagramSettings;
pub use datagrams::DatagramSocket;
pub use export::{Export, RegisteredMemory};
pub use group::Group;
pub use incoming::Incoming;
pub use listener::Listener;
pub use peer::Peer;
pub use poll_group::PollGroup;
pub use remote_memory::{Remote, Rights};
pub use remote_operation::RemoteOperation;
pub use settings::Settings;

pub use crate::cm::{ConnParam, Membership, RejectReason};
pub use crate::verbs::{Memory, ProtectionDomain};
