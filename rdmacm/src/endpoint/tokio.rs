//! The same for tasks of a tokio runtime: with the feature `tokio`.
//!
//! A [`Listener`], a [`Connection`] and a [`DatagramSocket`] as those of the [module above](super),
//! whose calls are `async`: no thread waits. [`Connector`], [`Incoming`], [`Buffer`], [`Message`],
//! [`Peer`], [`Group`] and the others are the ones of there. All is written on the calls there that do
//! not wait.
//!
//! ```no_run
#![doc = include_str!("../../examples/tokio_echo.rs")]
//! ```
//!
//! # Waiting
//!
//! As many tasks as wanted may wait on a connection at once, for different things or the same, on
//! threads of one runtime or of several. There are no calls with a timeout: give them to
//! `tokio::time::timeout`, which drops them when it is over.
//!
//! What comes of a call that is dropped before it is ready, each says. In short: nothing is lost,
//! neither messages nor buffers; what was posted is on its way; and memory that the device may
//! still use is kept until it does not.
//!
//! # The runtime
//!
//! A listener, a connection and a socket belong to the runtime in which they are made, which must have
//! I/O and time enabled; making one elsewhere panics, as with everything of tokio. When that runtime
//! has ended, calls that would have to wait fail with ECANCELED, wherever they are awaited; the
//! connection itself is there, [for threads](Connection::into_blocking) too. Connections that the
//! runtime's tasks have are dropped with it, and their ends are not waited for longer than
//! dropping the runtime waits for its other blocking work.
//!
//! # Calls that take their time
//!
//! What [takes its time](super#calls-that-take-their-time) in the kernel does so on the threads of
//! the runtime for blocking work (`spawn_blocking`), of which it starts as many as there are such
//! calls at once, up to `max_blocking_threads`: [connecting](Connection::connect),
//! [accepting](Connection::accept) and [rejecting](Connection::reject); [binding a
//! socket](DatagramSocket::bind), making the address handle of a peer, and [leaving a
//! group](DatagramSocket::leave); [exporting](Connection::export) and
//! [revoking](Connection::revoke); [aborting](Connection::abort), and of
//! [closing](Connection::close) telling the peer and the last part; and the end of a listener, a
//! connection or a socket that is dropped within a runtime. Where there is none the thread
//! does it that drops it, and so does a thread of tasks where the system has no other one, of which
//! tokio tells by the message of a panic (and with `panic = "abort"` by ending the program).
//!
//! On the spot, by the thread of the task, the kernel makes and destroys objects:
//!
//! - Where a call does so that is not `async`: in [`Listener::bind`], and in what is done with the
//!   things of the [module above](super), as [`Export::revoke`], [`Incoming::reject`] and
//!   [`Group::leave`].
//! - Where these are dropped: an [`Incoming`], which rejects it; an [`Export`], which revokes it; a
//!   [`Group`], which leaves it; the future of a call that has not been polled and has one of them;
//!   and the last [`Buffer`], [`Message`] or [`Peer`] of a connection or socket that has ended, with
//!   which its memory is deregistered.
//! - In [`DatagramSocket::resolve_peer`], which makes an id to ask by, that goes with the answer or the
//!   future; in [`DatagramSocket::join_multicast`], which asks for the group, and leaves it where the future is
//!   dropped; and where a socket that waits answers peers that ask for it.
//!
//! While a peer is told of the end, or a group is left, other calls of the same connection or socket
//! wait for that on the spot.
#[cfg(doc)]
use super::{Buffer, Connector, Export, Group, Incoming, Message, Peer};

pub use super::task::{Connection, DatagramSocket, Listener};
