//! RDMA device drivers and verbs, without owners, locks or waiting, on the Linux kernel's ABI.
//!
//! The crate uses write commands on `/dev/infiniband/uverbsN`, and rings in memory that the device or the kernel
//! shares. It is for writers of drivers and of libraries on top of verbs, such as a C ABI. Programs use `rdmacm`, whose
//! `verbs` module adds owners, locks, waiting and error texts. The interface follows the needs of these two, and
//! changes with them.
//!
//! - [`sys`]: commands, mappings and processes. Most `unsafe` code that calls the kernel is here.
//! - [`work`]: work requests and completions, as plain data.
//! - [`driver`]: the traits that a driver implements, its capabilities and errors.
//! - [`drivers`]: the drivers, and [`drivers::any`], which dispatches to them.
//! - [`engine`]: devices, queue pairs, completion queues and shared receive queues, whose rings a caller owns and
//!   passes as `&mut`.
//!
//! No function of this crate formats messages, waits for an event, or counts references to an object.

pub mod driver;
pub mod drivers;
pub mod engine;
// These two modules are public for `rdmacm` only: loom must replace the same types in both crates, and one check of
// locks must see the commands of both. They are no part of the interface.
#[doc(hidden)]
pub mod lock;
#[doc(hidden)]
pub mod sync;
pub mod sys;
#[cfg(fuzzing)]
#[doc(hidden)]
pub mod testing;
pub mod work;
