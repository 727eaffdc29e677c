//! RDMA connections in pure Rust: librdmacm and libibverbs on the ABI of the Linux kernel.
//!
//! The crate needs no rdma-core, no C library for RDMA and no bindgen. It issues the kernel's commands itself, on
//! `/dev/infiniband/rdma_cm` and `/dev/infiniband/uverbsN`.
//!
//! Data moves on software RoCE (rxe), software iWARP (siw) and mlx5 (tested on an emulated card only). It also moves on
//! devices whose queues are in the kernel (hfi1 and qib, untested). [`Context::open`](verbs::Context::open) describes
//! other devices.
//!
//! Begin with the [`guide`]. A program that needs messages without `unsafe` uses only [`endpoint`].
//!
//! | Module | Contents |
//! |---|---|
//! | [`endpoint`] | connections and datagram sockets without `unsafe`, for threads, event loops and tasks |
//! | [`cm`] | the connection manager: event channels, ids and events |
//! | [`verbs`] | data transfer: memory regions, completion queues, queue pairs |
//! | [`device`] | devices, their ports and links |
//! | [`addr`] | addresses, and the lookup of names |
//!
//! | Feature | Adds (none is on by default) |
//! |---|---|
//! | `tokio`, `smol` | the default runtime of [`endpoint::task`] |
//! | `tracing` | spans and events of connections: see [`endpoint`](endpoint#statistics-and-traces) |
//! | `futures-core` | streams of connection requests and messages |
//! | `bytes` | a conversion of a received message to `Bytes` without a copy |
//! | `serde` | serialization of addresses, GIDs, descriptors of memory and statistics |
//!
//! # Examples
//!
//! An echo server and its client, without `unsafe`:
//!
//! ```no_run
#![doc = include_str!("../examples/echo.rs")]
//! ```
//!
//! The [connection manager](cm#examples) has a client and a server on the level of librdmacm.
//!
//! # Objects
//!
//! Objects are owned, and may be dropped in any order and from any thread. Each object keeps the objects alive from
//! which it was created. A posted request keeps nothing alive: see [`verbs`]. Dropping an event acknowledges it.
//!
//! Dropping an object waits for no other thread of the program. The method `destroy` waits until the events of the
//! object are acknowledged, if the C function does. The kernel may block while it destroys the id of an iWARP
//! connection that is not established yet: see [`cm::CmId`].
//!
//! # Memory
//!
//! A device writes to registered memory without the compiler's knowledge, so posting a request is `unsafe` and has a
//! contract. Posting a [buffer](verbs::BufferedQueuePair) that the program hands over is safe, and [`endpoint`] does
//! so. [`MemoryRegion::alloc`](verbs::MemoryRegion::alloc) owns its memory, which the program accesses by copying.
//!
//! # Errors
//!
//! An [`Error`] names the operation, its object and the errno of the kernel. A program branches on its [`ErrorKind`].
//!
//! Any call that issues a command or posts a request may return two further kinds of errors, which its own
//! documentation may not repeat. [`ErrorKind::NotOwner`] is described in [processes](#processes).
//! [`ErrorKind::DeviceRemoved`] is returned after the removal of the device of the object.
//!
//! # Parameters
//!
//! A call with many parameters takes a struct with a default, or with a `new` if a parameter is mandatory. A struct
//! expression ends with `..Default::default()`; otherwise the compiler reports the missing field `non_exhaustive`,
//! which programs must not name. In this way fields can be added later. Work requests, addresses, paths and other
//! formats of the kernel or of the wire are complete: a program names all of their fields. The types of [`endpoint`]
//! have setters instead.
//!
//! # Kernels
//!
//! The commands are those of Linux 3.11 and later. A newer command is documented as such, and returns
//! [`ErrorKind::Unsupported`] on an older kernel, except for data that an older kernel ignores ([ECE](cm::Ece)). The
//! commands that Linux 3.11 replaced (`BIND_IP`, `RESOLVE_IP`, `QUERY_ROUTE`, `JOIN_IP_MCAST`) are in [`ucma_abi`]
//! only.
//!
//! # Processes
//!
//! After a fork all objects belong to the parent. After a change of credentials (setuid, dropped capabilities, a new
//! user namespace) a thread cannot use an event channel that it opened before. Before Linux 5.0, and on devices of a
//! driver that the crate does not support, the thread cannot use its verbs objects either. These cases return
//! [`ErrorKind::NotOwner`]. Open channels after dropping privileges.
//!
//! # Names
//!
//! Functions and types have the C name as an alias: search these docs for `rdma_resolve_addr`. Structures of the kernel
//! that appear in signatures are those of [`verbs_abi`], which is re-exported together with [`ucma_abi`].
#![cfg_attr(docsrs, feature(doc_cfg))]
#![warn(clippy::print_stdout)]

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
use verbs_core::{driver, drivers, engine, lock, sync, work};

pub use error::{DestroyError, Error, ErrorKind, NotOwner, Rejection, Result, UnreachableReason};
pub use registry::Token;
pub use {ucma_abi, verbs_abi};
