//! librdmacm and the verbs under it in pure Rust, straight on the kernel's ABI: write commands on
//! `/dev/infiniband/rdma_cm` and `/dev/infiniband/uverbsN`, and shared-memory rings for the data.
//!
//! [`guide`] is where to begin, and who wants messages without `unsafe` needs [`endpoint`] alone. The features
//! `smol`, `tokio` and `tracing` are not on by default.
//!
//! - [`device`]: which devices there are, their ports and links.
//! - [`addr`]: addresses, and finding them by name.
//! - [`cm`]: the connection manager: channels, ids, events.
//! - [`verbs`]: what moves data: memory regions, completion queues, queue pairs.
//! - [`endpoint`]: connections without `unsafe`, on top of all that.
//!
//! A server that sends back what comes, and a client of it, without `unsafe`:
//!
//! ```no_run
#![doc = include_str!("../examples/echo.rs")]
//! ```
//!
//! The level below, which most of librdmacm's functions are: a client that sends one message, by the
//! [steps](cm) of the connection manager,
//!
//! ```no_run
#![doc = include_str!("../examples/client.rs")]
//! ```
//!
//! and the server that receives it:
//!
//! ```no_run
#![doc = include_str!("../examples/server.rs")]
//! ```
//!
//! # Objects
//!
//! Everything is owned and may be dropped in any order, from any thread: an object holds what it
//! was made from. (A request that is posted holds nothing, see [`verbs`].) Dropping never waits for
//! the program; where the C library waits for acknowledgements, `destroy` does. (The kernel may
//! take its time with the id of an iWARP connection in the making, see [`cm::CmId`].) An event
//! acknowledges itself when it is dropped.
//!
//! # Memory
//!
//! A device writes to registered memory behind the compiler's back, so posting a request is
//! `unsafe`, with a contract; not so for [buffers](verbs::BufferQueues) that are handed over, as [`endpoint`]
//! does. [`MemoryRegion::alloc`](verbs::MemoryRegion::alloc) owns its memory
//! and is accessed by copying.
//!
//! # Errors
//!
//! An [`Error`] says the operation, what it was applied to, and the errno as the kernel gave it; an
//! [`ErrorKind`] is what a program would branch on.
//!
//! Two of them may come of any call that asks the kernel or posts, whether its own documentation repeats
//! them or not: [`ErrorKind::WrongProcess`], see [Processes](#processes), and where a device was removed,
//! of what is on it, [`ErrorKind::DeviceGone`].
//!
//! # Parameters
//!
//! A call with many parameters takes a struct of them, which has a default, or a `new` where something has
//! to be named. A struct expression names those that are to be otherwise and ends with
//! `..Default::default()`: one that does not is refused for the lack of a field `non_exhaustive`, which is
//! not for programs to name. So fields can be added. A work request, and what has the format of a wire or
//! of the kernel, as an address or a path, is complete: all of its fields are named.
//!
//! # Kernels
//!
//! The commands are those of Linux 3.11 and later; what came later still says so, and is
//! [`ErrorKind::Unsupported`] on an older kernel, but for what such a kernel ignores
//! ([ECE](cm::Ece)). The commands that were there before 3.11
//! (`BIND_IP`, `RESOLVE_IP`, `QUERY_ROUTE`, `JOIN_IP_MCAST`) are in [`ucma_abi`] only.
//!
//! # Processes
//!
//! The kernel takes commands on an open file only from the credentials that opened it. After a fork
//! every object belongs to the parent, and after a change of credentials (setuid, dropped
//! capabilities, a new user namespace) a channel is of no use to the thread that changed: both are
//! [`ErrorKind::WrongProcess`]. Open channels after dropping privileges.
//!
//! # Names
//!
//! Functions and types have the C name as an alias: search these docs for `rdma_resolve_addr`.
//! Structures of the kernel that appear in signatures are those of [`verbs_abi`], which is
//! re-exported, as is [`ucma_abi`].

mod acks;
pub mod addr;
pub mod cm;
pub mod device;
pub mod endpoint;
mod error;
#[cfg(fuzzing)]
#[doc(hidden)]
pub mod fuzzing;
pub mod guide;
mod non_exhaustive;
mod registry;
mod sys;
pub mod verbs;

#[cfg(fuzzing)]
use verbs_core::testing;
use verbs_core::{concurrent, driver, drivers, engine, lock, work};

pub use error::{DestroyError, Error, ErrorKind, Result, WrongProcess};
pub use registry::Token;
pub use {ucma_abi, verbs_abi};
