//! Verbs: device contexts, memory, queues and work requests.
//!
//! A program opens a [`Context`], creates a [`ProtectionDomain`], a [`CompletionQueue`] and a [`QueuePair`], registers a
//! [`MemoryRegion`], posts requests and polls their [`Completion`]s. The [examples of `cm`](crate::cm#examples) take
//! these steps. [From libibverbs](crate::guide::from_libibverbs) lists the counterpart of each C function.
//!
//! Objects are handles. A clone refers to the same kernel object, which is destroyed when its last
//! handle is dropped. An object holds the objects from which it was created, so handles may be
//! dropped in any order. A memory region to which a window is bound stays registered until the
//! window is unbound.
//!
//! A posted work request does not hold the objects that it names. Its memory region and its address
//! handle must live until the request has completed. [`BufferedQueuePair`] holds both for
//! everything that is posted to it, without `unsafe`.
//!
//! # Errors
//!
//! In lists of errors, an errno alone (EINVAL) means [`ErrorKind::Os`](crate::ErrorKind::Os) with that errno. Any call
//! may also fail with the kinds that [the crate](crate#errors) names. Creating an object fails with EAGAIN at the limit
//! of the process's rdma cgroup. Creating a queue also fails with the errno of `mmap` if its ring cannot be mapped, and
//! with [`ErrorKind::MalformedResponse`](crate::ErrorKind::MalformedResponse) if the driver's answer is invalid.
//!
//! # After a fork
//!
//! Objects belong to the process that created them, together with the descriptors and rings that a
//! forked child inherits. In the child, the following rules hold:
//! - Every call that would reach the kernel or a ring fails with
//!   [`ErrorKind::NotOwner`](crate::ErrorKind::NotOwner). These calls create, change, query and
//!   destroy objects, post, poll, arm and read events. They write nothing to the rings of the
//!   parent.
//! - Dropping an object or an event has no effect, neither in the child nor in the parent.
//! - Properties that an object stores are available: tokens, numbers, sizes, the device.
//! - A context that the child opens itself belongs to the child, with all objects that are created
//!   in it.
//!
//! The device continues to serve the parent. See [`MemoryRegion`] for memory that is registered
//! while a process forks.

mod address_handle;
mod async_event;
mod attributes;
mod buffer;
mod buffer_queues;
mod companion;
mod completion;
mod completion_channel;
mod context;
mod copied_memory;
mod creation_order;
mod depths;
mod drain;
mod ece;
mod error_text;
mod event_file;
mod event_source;
#[cfg(fuzzing)]
pub(crate) mod fuzzing;
mod global_route;
mod membership;
mod memory;
mod memory_window;
mod multicast;
#[cfg(test)]
mod null_device;
mod object;
mod outstanding;
mod pd;
mod post;
mod queue_pair;
mod read_ahead;
mod registration;
mod same;
mod shared_buffer_queues;
mod srq;
mod wakeup_qp;
mod xrc;
mod xrc_domain;

pub use crate::work::{
    AccessFlags, AddressVector, Completion, Destination, FlushPlacement, Payload, QpState, QpType,
    ReceiveRequest, SendFlags, SendOperation, SendRequest, Sge, WcOpcode, WcStatus,
};
pub use address_handle::AddressHandle;
pub use async_event::{AsyncElement, AsyncEvent, AsyncEventChannel};
pub use attributes::QueuePairAttributes;
pub use buffer::RegisteredBuffer;
pub use buffer_queues::{BufferedQueuePair, PostBufferError};
pub(crate) use companion::Released;
pub use completion::{CompletionQueue, Poller};
pub use completion_channel::{CompletionChannel, CompletionEvent};
pub use context::Context;
pub use copied_memory::DmaMemory;
pub(crate) use depths::Depths;
pub use ece::Ece;
pub use global_route::{DatagramSource, GRH_LENGTH};
pub use memory::{MemoryRegion, ReregisterOptions};
pub use memory_window::{BindRequest, MemoryWindow};
pub use pd::ProtectionDomain;
pub use post::{ReceiveQueueGuard, SendQueueGuard, SharedReceiveQueueGuard};
pub use queue_pair::{QueuePair, QueuePairCaps, QueuePairInit};
pub(crate) use shared_buffer_queues::{Batch, OwnedReceives, OwnedSends, Polled};
pub use srq::{SharedReceiveQueue, SharedReceiveQueueAttributes};
pub use verbs_abi::{
    ib_event_type as AsyncEventType, ib_mtu as Mtu, ib_mw_type as MemoryWindowType,
    ib_uverbs_qp_create_flags as QpCreateFlags,
};
pub use xrc::XrcTarget;
pub use xrc_domain::{XrcDomain, XrcOpenMode};
