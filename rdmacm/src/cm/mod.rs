//! The connection manager: channels, ids, events, and connection setup.
//!
//! An [`EventChannel`] is one open file of the kernel's connection manager; a [`CmId`] is the counterpart of a socket.
//! Calls on an id start an operation; an [`Event`] on its channel reports the outcome. The table names events by their
//! [`EventType`]. [From librdmacm](crate::guide::from_librdmacm) lists the counterpart of each C function.
//!
//! | step | client | event that follows | server |
//! |---|---|---|---|
//! | 1 | | | [`CmId::bind`], [`CmId::listen`] |
//! | 2 | [`CmId::resolve_addr`] | `AddrResolved` or `AddrError` | |
//! | 3 | [`CmId::resolve_route`] | `RouteResolved` or `RouteError` | |
//! | 4 | [`CmId::create_qp`], [`CmId::connect`] | on the server `ConnectRequest`, which has a new id | |
//! | 5 | | on both `Established`, or on the client `Rejected`, `Unreachable` | [`CmId::create_qp`], the first receives, [`CmId::accept`]; or [`CmId::reject`] |
//! | 6 | [`CmId::disconnect`] | on the server `Disconnected` | |
//! | 7 | | on the client `Disconnected` | [`CmId::disconnect`] |
//!
//! Either side may be the first to disconnect. The [examples](#examples) are a client and a server that take these
//! steps.
//!
//! Ids for datagrams ([`PortSpace::Udp`]) take steps 1 to 4 to learn the address of the peer. There is no connection,
//! and on the server no event follows [`CmId::accept`]. Such ids join multicast groups with [`CmId::join_multicast`].
//!
//! A [synchronous](CmId#synchronous-ids) id has a private channel: its calls return when the event has arrived.
//! [`CmId::create_ep`] creates such an id in one call. [`CmId::migrate`] moves an id from channel to channel, or out of
//! the synchronous mode.
//!
//! A depth is a number of RDMA reads and atomics in flight ([`ConnParam::initiator_depth`],
//! [`ConnParam::responder_resources`]). An id has a queue pair of its own if [`CmId::create_qp`] or
//! [`CmId::create_ep_qp`] created it. Otherwise the program manages one, and names it in [`ConnParam::qp_num`].
//!
//! In lists of errors, an errno alone (EINVAL) means [`ErrorKind::Os`](crate::ErrorKind::Os) with that errno.
//!
//! # Queries on demand
//!
//! The C library queries an id at each step. This library sends a command when a caller needs the result:
//!
//! - [`CmId::local_addr`], [`CmId::peer_addr`] and [`CmId::route`], which has GIDs and paths, query the kernel in each
//!   call.
//! - The first call that needs the device of an id ([`CmId::context`], [`CmId::create_qp`]) finds and opens it. The id
//!   remembers the device, and the limits of depths that connecting and accepting need.
//! - The first call that needs the default protection domain of a device ([`CmId::default_pd`]) creates it. The same
//!   holds for the queues that [`CmId::create_ep_qp`] adds.
//!
//! # Detecting dead peers
//!
//! An idle connection sends no packets, and has no keep-alive. If its wire is cut or the peer's machine fails, possibly
//! no event ever reports it. A work request that is posted then completes with an error after the
//! [retries](ConnParam::retry_count) of the queue pair, and [`CmId::disconnect`] ends the connection. A program that
//! must detect this sooner sends a message from time to time.
//!
//! # Helper functions of C
//!
//! The functions of `rdma_verbs.h` on an id are methods of the object that does the work. [`CmId::qp`] is the queue
//! pair of the id; [`QueuePair::pd`](crate::verbs::QueuePair::pd), [`send_cq`](crate::verbs::QueuePair::send_cq) and
//! [`recv_cq`](crate::verbs::QueuePair::recv_cq) are the objects that it uses.
//!
//! | C | here |
//! |---|---|
//! | `rdma_create_qp_ex` | [`CmId::create_qp`] or [`CmId::create_ep_qp`], with `create_flags`; [`CmId::create_xrc_target`] |
//! | `rdma_reg_msgs`, `rdma_reg_read`, `rdma_reg_write` | [`MemoryRegion::register`](crate::verbs::MemoryRegion::register), or [`alloc`](crate::verbs::MemoryRegion::alloc), with `IB_UVERBS_ACCESS_LOCAL_WRITE`, for the last two with `IB_UVERBS_ACCESS_REMOTE_READ` or `IB_UVERBS_ACCESS_REMOTE_WRITE` |
//! | `rdma_dereg_mr` | dropping the [`MemoryRegion`](crate::verbs::MemoryRegion) |
//! | `rdma_post_recv`, `rdma_post_recvv` | [`QueuePair::post_recv`](crate::verbs::QueuePair::post_recv), on an id without a queue pair, or with an XRC target, [`SharedReceiveQueue::post_recv`](crate::verbs::SharedReceiveQueue::post_recv) |
//! | `rdma_post_send`, `rdma_post_read`, `rdma_post_write`, their forms with `v`, `rdma_post_ud_send` | [`QueuePair::post_send`](crate::verbs::QueuePair::post_send) with the [`SendOperation`](crate::verbs::SendOperation) |
//! | `rdma_get_send_comp`, `rdma_get_recv_comp` | [`CompletionQueue::wait`](crate::verbs::CompletionQueue::wait); receives of an [XRC](CmId#xrc) queue complete on [`SharedReceiveQueue::cq`](crate::verbs::SharedReceiveQueue::cq) |
//!
//! # Examples
//!
//! A client that sends one message:
//!
//! ```no_run
#![doc = include_str!("../../examples/client.rs")]
//! ```
//!
//! The server that receives it:
//!
//! ```no_run
#![doc = include_str!("../../examples/server.rs")]
//! ```

mod address;
mod bound;
mod channel;
mod channel_waker;
#[cfg(test)]
mod child;
mod command;
mod connection;
mod create_ep;
mod delivery;
mod ece;
mod endpoint_qp;
mod event;
mod event_facts;
mod external;
#[cfg(any(fuzzing, all(feature = "null", not(loom))))]
pub(crate) mod forged;
#[cfg(fuzzing)]
pub(crate) mod fuzzing;
mod group;
mod id;
mod lookup;
mod migrate;
mod mode;
mod multicast;
mod names;
mod option;
mod outgoing;
mod own_qp;
mod param;
mod parse;
mod reaction;
mod record;
mod resolution;
mod route;
mod service;
mod service_type;
mod srq;
mod sync;
mod transition;
mod xrc;

pub use crate::addr::port_space::PortSpace;
pub use crate::error::{RejectReason, Rejection};
pub use crate::verbs::Ece;
pub use channel::EventChannel;
pub(crate) use connection::{ACCEPT, ASK_FOR_ATTRIBUTES};
pub use endpoint_qp::EndpointQpInit;
pub use event::Event;
pub use group::Membership;
pub use id::CmId;
pub use lookup::getaddrinfo;
pub use param::{ConnParam, DatagramParam};
pub use parse::{EventData, EventType, RawEvent};
pub use route::{PathRecord, Route};
pub use service_type::ServiceType;
