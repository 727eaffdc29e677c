//! The verbs under a connection: devices' contexts, memory, queues, and the work that goes through
//! them.
//!
//! Objects are handles: a clone is the same kernel object, which is destroyed when the last handle
//! goes. Children hold what they were made from, so that it is there in whatever order handles are
//! dropped. A memory region that a window is bound to stays registered until the window lets go of it.
//! What a posted request names is not held by it: its memory region and its address handle must live
//! until it has completed. [`BufferQueues`] hold both of what is posted to them, without `unsafe`.
//!
//! # After a fork
//!
//! Objects belong to the process that made them, with the descriptors and rings that a forked child
//! inherits. In the child
//! - every call that would reach the kernel or a ring is an error,
//!   [`ErrorKind::WrongProcess`](crate::ErrorKind::WrongProcess): making, changing, querying and
//!   destroying objects, posting, polling, arming, reading events. Nothing is stored to a ring that
//!   the parent posts to;
//! - dropping an object or an event does nothing, to the parent's neither;
//! - what an object only remembers can be asked for: tokens, numbers, sizes, the device;
//! - a context that the child opens itself is its own, with all that is made in it.
//!
//! What the device does goes on for the parent. See [`MemoryRegion`] for memory that is registered
//! while a process forks.

mod address_handle;
mod async_event;
mod attributes;
mod buffer;
mod buffer_queues;
mod completion;
mod completion_channel;
mod context;
mod copied_memory;
mod drain;
mod error_text;
mod event_file;
#[cfg(fuzzing)]
pub(crate) mod fuzzing;
mod global_route;
mod membership;
mod memory;
mod memory_window;
mod moment;
mod multicast;
#[cfg(test)]
mod null_device;
mod object;
mod outstanding;
mod pd;
mod post;
mod queue_pair;
mod registration;
mod reporter;
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
pub use buffer::Buffer;
pub(crate) use buffer_queues::Released;
pub use buffer_queues::{BufferQueues, BufferRefused};
pub use completion::{CompletionQueue, Poller};
pub use completion_channel::{CompletionChannel, CompletionEvent};
pub use context::Context;
pub(crate) use context::Depths;
pub use copied_memory::Memory;
pub use global_route::{DatagramSource, GRH_LENGTH};
pub use memory::{MemoryRegion, Reregistration};
pub use memory_window::{BindRequest, MemoryWindow};
pub use pd::ProtectionDomain;
pub use post::{ReceiveQueue, SendQueue, SharedReceives};
pub use queue_pair::{QueuePair, QueuePairCaps, QueuePairInit};
pub(crate) use shared_buffer_queues::{Batch, OwnedReceives, OwnedSends, Polled};
pub use srq::{SharedReceiveQueue, SharedReceiveQueueAttributes};
pub use verbs_abi::{
    ib_event_type as AsyncEventType, ib_mtu as Mtu, ib_mw_type as MemoryWindowType,
    ib_uverbs_qp_create_flags as QpCreateFlags,
};
pub use xrc::XrcTarget;
pub use xrc_domain::{XrcDomain, XrcDomainSharing};
