//! Async versions of the [`endpoint`](super) types, for tasks of any executor.
//!
//! [`Listener`], [`Connection`] and [`DatagramSocket`] are like the types of the [module above](super), but calls that
//! wait are `async` and block no thread. Calls that do not wait for the peer, such as [`Connection::post_send`], are
//! plain functions. A task connects with [`Connection::connect`], because [`Connector::connect`] blocks its thread.
//! Memory windows and shared registrations have no async calls: a thread that may block makes them on a clone
//! ([`into_blocking`](Connection::into_blocking)). A listener returns an [`Incoming`] request, which is accepted or
//! rejected. [`Connector`], [`Buffer`], [`Message`], [`DatagramPeer`] and the configurations are the types of the
//! module above.
//!
//! The examples of [`Connection`](Connection#examples) and [`Listener`](Listener#examples) are a client and a server on
//! Tokio.
//!
//! # Runtimes
//!
//! Objects are created on a [`Runtime`], which watches their descriptors, has timers, and runs work that blocks on
//! other threads:
//!
//! - On Tokio in the context of a Tokio runtime, with the feature `tokio`. The runtime needs I/O and time
//!   (`Builder::enable_all`). The module `endpoint::tokio` has an example.
//! - Otherwise on smol, with the feature `smol`, under any executor, because smol's reactor has a separate thread. The
//!   module `endpoint::smol` has an example.
//! - On the runtime that is passed to [`Connection::connect_with`] or a `from_blocking_with` function.
//!
//! A runtime that has ended watches no descriptor: calls that have to wait fail with ECANCELED. The object itself
//! remains usable, also [for threads](Connection::into_blocking). When Tokio ends, it drops the objects that its tasks
//! own. It waits for the destruction of their kernel objects as long as for its other blocking work.
//!
//! # Waiting
//!
//! Any number of tasks may wait on a connection at once, on threads of one executor or of several. A message wakes one
//! of them. Connecting, accepting and closing have timeouts. For other calls, use a timeout of the executor, which
//! drops the future when it elapses. The section "Cancel safety" of each call describes the effect. In short, no
//! message and no buffer is lost, and posted requests stay in flight. Memory that the device may use is kept until the
//! device has finished.
//!
//! A task whose calls all succeed at once still yields to other tasks. After 128 calls of a thread that all succeed at
//! once, the next call is pending first, and wakes its task again.
//!
//! # Calls that block
//!
//! Threads of the runtime that may block make the calls that [take their time](super#calls-that-take-their-time) in the
//! kernel:
//!
//! - [connecting](Connection::connect), [accepting](Incoming::accept) and [rejecting](Incoming::reject);
//! - [binding a socket](DatagramSocket::bind), creating the address handle of a peer and [leaving a
//!   group](MulticastGroup::leave);
//! - [exporting](Connection::export) and [revoking](ExportedMemory::revoke);
//! - [aborting](Connection::abort), and two steps of [closing](Connection::close): notifying the peer, and destroying
//!   the kernel objects.
//!
//! When a [`Listener`], [`Connection`], [`DatagramSocket`] or [`Incoming`] request is dropped, its kernel objects are
//! destroyed there too. If the runtime has no such thread, the calling thread does the work. On Tokio this happens
//! outside of its context, or if the system refuses a thread. In the latter case Tokio prints the message of a panic;
//! with `panic = "abort"` it ends the program.
//!
//! In the following cases the thread of the task issues commands of the kernel itself:
//!
//! - In calls that are not `async`: [`Listener::bind`], and the calls of the objects that `into_blocking` returns.
//! - When an [`ExportedMemory`] or a [`MulticastGroup`] is dropped, so that the access or the membership has ended
//!   afterwards.
//! - When the last [`Buffer`], [`Message`] or [`DatagramPeer`] of an ended connection or socket is dropped, which
//!   deregisters its memory.
//! - In [`DatagramSocket::resolve_peer`], which creates an id, and destroys it when the answer has arrived or the
//!   future is dropped.
//! - In [`DatagramSocket::join_multicast`], which joins the group, and leaves it if the future is dropped.
//! - When a waiting socket answers peers that resolve it.
//! - In all calls of a [`PollGroup`].
//! - When a request is posted or a [`Message`] is dropped after the queue pair has failed. The request is then flushed.
//!   On siw the library creates a private queue pair for the flush; a later call destroys it.
//! - In the first call after the peer has ended the connection, which sends the disconnect command.
#[cfg(doc)]
use crate::endpoint::{Buffer, Connector, DatagramPeer, Message};

mod blocking_pool;
mod budget;
mod datagrams;
mod deadline;
mod default_runtime;
mod establish;
mod exported_memory;
mod failure;
mod incoming;
mod listener;
mod multicast_group;
mod poll_group;
pub(super) mod runtime;
mod sending;
#[cfg(feature = "futures-core")]
mod stream;
#[cfg(test)]
mod test_executor;
mod waiting;
mod watch;

// Not in alphabetical order: rustdoc lists the methods of a connection in the order of these modules.
mod connect;
mod messages;

mod connection;
mod remote;

pub use connection::Connection;
pub use datagrams::DatagramSocket;
pub use exported_memory::ExportedMemory;
pub use incoming::Incoming;
pub use listener::Listener;
pub use multicast_group::MulticastGroup;
pub use poll_group::PollGroup;
pub use runtime::{BlockingWork, Descriptor, RegisteredFd, Runtime, Sleep};
