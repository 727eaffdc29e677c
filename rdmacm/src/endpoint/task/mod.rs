//! Async versions of the [`endpoint`](super) types, for tasks of any executor.
//!
//! A [`Listener`], a [`Connection`] and a [`DatagramSocket`] are those of the [module above](super), with calls that are
//! awaited: no thread waits. A listener returns an [`Incoming`] request, which is accepted or rejected. [`Connector`],
//! [`Buffer`], [`Message`], [`Peer`] and the settings are those of the module above.
//!
//! # Runtimes
//!
//! Objects are created on a [`Runtime`], which watches their descriptors, has timers, and runs work that blocks on other
//! threads:
//!
//! - On Tokio in the context of a Tokio runtime, with the feature `tokio`. It needs I/O and time
//!   (`Builder::enable_all`). The module `endpoint::tokio` has an example.
//! - Otherwise on smol, with the feature `smol`: under any executor, as smol's reactor has a thread of its own. The module
//!   `endpoint::smol` has an example.
//! - On the runtime that is passed to [`Connection::connect_with`] or a `from_blocking_with` function.
//!
//! A runtime that has ended watches no descriptor: calls that have to wait fail with ECANCELED. The object itself is still
//! there, also [for threads](Connection::into_blocking). Tokio drops the objects that its tasks own when it ends, and waits
//! for the destruction of their kernel objects as long as for its other blocking work.
//!
//! # Waiting
//!
//! Any number of tasks may wait on a connection at once, on threads of one executor or of several. A message wakes one of
//! them. There are no calls with a timeout: a timeout of the executor drops the call when the time is over. Each call
//! documents what happens then. In short, nothing is lost, neither messages nor buffers; what was posted is in flight; and
//! memory that the device may use is kept until it is done.
//!
//! A call that succeeds at once lets other tasks run now and then, however many messages there are: one call in 128 is
//! pending first and wakes its task again.
//!
//! # Calls that block
//!
//! Calls that [take their time](super#calls-that-take-their-time) in the kernel are made on threads of the runtime that may
//! block: [connecting](Connection::connect), [accepting](Incoming::accept) and [rejecting](Incoming::reject);
//! [binding a socket](DatagramSocket::bind), creating the address handle of a peer and [leaving a group](Group::leave);
//! [exporting](Connection::export) and [revoking](Export::revoke); [aborting](Connection::abort), and in
//! [closing](Connection::close) the message to the peer and the end. When a [`Listener`], [`Connection`],
//! [`DatagramSocket`] or [`Incoming`] request is dropped, its kernel objects are destroyed there too. If the runtime has no
//! such thread, the calling thread does the work: on Tokio outside of its context, or if the system refuses a thread, which
//! Tokio reports with the message of a panic (with `panic = "abort"` it ends the program).
//!
//! The thread of the task creates and destroys kernel objects itself:
//!
//! - In calls that are not `async`: [`Listener::bind`], and those of the objects that `into_blocking` returns.
//! - When an [`Export`] or a [`Group`] is dropped, so that the access or the membership has ended afterwards.
//! - When the last [`Buffer`], [`Message`] or [`Peer`] of an ended connection or socket is dropped, which deregisters its
//!   memory.
//! - In [`DatagramSocket::resolve_peer`], which creates an id and destroys it with the answer or the future; in
//!   [`DatagramSocket::join_multicast`], which asks for the group, and leaves it if the future is dropped; and when a
//!   waiting socket answers peers that resolve it.
//!
//! While a peer is told of the end, or a group is left, other calls of the same connection or socket wait for that.
#[cfg(doc)]
use super::{Buffer, Connector, Message, Peer};

mod blocking_pool;
mod connection;
mod datagrams;
mod deadline;
mod default_runtime;
mod establish;
mod export;
mod failure;
mod group;
mod incoming;
mod listener;
mod messages;
mod remote;
pub(super) mod runtime;
mod turn;
mod waiting;
mod watch;

pub use connection::Connection;
pub use datagrams::DatagramSocket;
pub use export::Export;
pub use group::Group;
pub use incoming::Incoming;
pub use listener::Listener;
pub use runtime::{BlockingWork, Descriptor, RegisteredFd, Runtime, Sleep};
