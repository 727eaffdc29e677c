//! RDMA device drivers and verbs on the Linux kernel's ABI, without owners or waiting.
//!
//! The crate issues commands on `/dev/infiniband/uverbsN`, and accesses rings that the device or the kernel shares. It
//! has drivers for mlx5 (tested on an emulated card only), software RoCE (rxe), software iWARP (siw), and for devices
//! whose queues are in the kernel.
//!
//! It is for writers of drivers, and of libraries on top of verbs, such as a C ABI. Programs use `rdmacm`, whose
//! `verbs` module adds owners, locks around rings, waiting and error texts. The interface is not stable: it changes
//! with the needs of drivers and of `rdmacm`.
//!
//! - [`sys`]: commands, mappings and processes. Most `unsafe` code that calls the kernel is here.
//! - [`work`]: work requests and completions, as plain data.
//! - [`driver`]: the traits that a driver implements, its capabilities and errors.
//! - [`drivers`]: the drivers, and [`drivers::any`], which dispatches to them.
//! - [`engine`]: devices, queue pairs, completion queues and shared receive queues, whose rings a caller owns and
//!   passes as `&mut`.
//!
//! No function of the public modules builds error texts, waits for an event, or counts references to a kernel object.
//!
//! # Examples
//!
//! A completion queue, which is polled once:
//!
//! ```no_run
//! use verbs_abi::{ib_uverbs_create_cq, rdma_driver_id};
//! use verbs_core::driver::DeviceInfo;
//! use verbs_core::engine::{Cq, DeviceContext, NewCq};
//! use verbs_core::sys::uverbs::UverbsFile;
//! use verbs_core::work::Completion;
//!
//! let driver = rdma_driver_id::RDMA_DRIVER_RXE;
//! let file = UverbsFile::open("/dev/infiniband/uverbs0", None, driver).expect("opens the node");
//! let info = DeviceInfo { driver: Some(driver), abi_version: None };
//! let (device, _opened) = DeviceContext::open(file, &info).expect("opens the device");
//! let request = ib_uverbs_create_cq { cqe: 16, comp_channel: -1, ..Default::default() };
//! let created = Cq::create(&device, request).expect("creates a completion queue");
//! let NewCq { cq, mut ring, memory } = created;
//! let mut done = [Completion::default(); 16];
//! let count = cq.poll(&device, &mut ring, &mut done).expect("polls the ring");
//! println!("{count} completions");
//! // Closing the file destroys the queue, which may use its memory until then.
//! drop(device);
//! drop(memory);
//! ```
#![warn(clippy::print_stdout)]

pub mod driver;
pub mod drivers;
pub mod engine;
// These two modules are public for `rdmacm` only: loom must replace the same types in both crates, and one check of
// locks must see the commands of both. They are not part of the interface.
#[doc(hidden)]
pub mod lock;
#[doc(hidden)]
pub mod sync;
pub mod sys;
#[cfg(fuzzing)]
#[doc(hidden)]
pub mod testing;
pub mod work;
