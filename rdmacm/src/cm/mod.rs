//! The connection manager: channels, ids, events, and how connections come about.
//!
//! An [`EventChannel`] is one open file of the kernel's connection manager; a [`CmId`] is what a
//! socket is to TCP. Calls on an id start something; an [`Event`] on its channel says how it went:
//!
//! | step | client | event that follows | server |
//! |---|---|---|---|
//! | 1 | | | [`CmId::bind`], [`CmId::listen`] |
//! | 2 | [`CmId::resolve_addr`] | `AddrResolved` or `AddrError` | |
//! | 3 | [`CmId::resolve_route`] | `RouteResolved` or `RouteError` | |
//! | 4 | [`CmId::create_qp`], [`CmId::connect`] | on the server `ConnectRequest`, which brings a new id | |
//! | 5 | | on both `Established`, or on the client `Rejected`, `Unreachable` | [`CmId::create_qp`], the first receives, [`CmId::accept`]; or [`CmId::reject`] |
//! | 6 | [`CmId::disconnect`] | on the server `Disconnected` | |
//! | 7 | | on the client `Disconnected` | [`CmId::disconnect`] |
//!
//! Either side may be the first to disconnect. The [front page](crate) has a client and a server that take
//! these steps.
//!
//! Ids for datagrams ([`PortSpace::Udp`]) go through steps 1 to 4 to learn where to send; there is
//! no connection, and on the server no event follows its [`CmId::accept`]. They join multicast
//! groups: [`CmId::join_multicast`].
//!
//! A [synchronous](CmId#synchronous-ids) id has no channel of the program's: its calls return when
//! the event has come. [`CmId::create_ep`] makes one in one call. [`CmId::migrate`] moves an id from
//! channel to channel, or out of the synchronous mode.
//!
//! # What is asked for when it is needed
//!
//! Where the C library queries an id at each step, here a command is sent when somebody wants the
//! answer. [`CmId::local_addr`], [`CmId::peer_addr`] and [`CmId::route`], with GIDs and paths, ask the
//! kernel each time. The device of an id is found and opened by the first call that needs it
//! ([`CmId::context`], [`CmId::create_qp`]) and remembered, as are its limits for depths, which
//! connecting and accepting need. A device's default protection domain ([`CmId::default_pd`]) and the
//! queues that [`CmId::create_ep_qp`] adds are made for the first who asks.
//!
//! # What nobody hears of
//!
//! An idle connection is silent: nothing keeps it alive, and when its wire is cut or the peer's
//! machine is gone, no event needs to tell of it, however long that lasts. What is posted then
//! completes with an error once the queue pair has used up its [retries](ConnParam::retry_count), and
//! [`CmId::disconnect`] ends the connection. A program that has to know sooner sends something now and then.
//!
//! # The helpers of C
//!
//! The functions of `rdma_verbs.h` on an id are methods of the object that does the work: [`CmId::qp`] is the id's queue
//! pair, [`QueuePair::pd`](crate::verbs::QueuePair::pd),
//! [`send_cq`](crate::verbs::QueuePair::send_cq) and [`recv_cq`](crate::verbs::QueuePair::recv_cq)
//! what goes with it.
//!
//! | C | here |
//! |---|---|
//! | `rdma_create_qp_ex` | [`CmId::create_qp`] or [`CmId::create_ep_qp`], with `create_flags` |
//! | `rdma_reg_msgs`, `rdma_reg_read`, `rdma_reg_write` | [`MemoryRegion::register`](crate::verbs::MemoryRegion::register), or [`alloc`](crate::verbs::MemoryRegion::alloc), with `IB_UVERBS_ACCESS_LOCAL_WRITE`, for the last two with `IB_UVERBS_ACCESS_REMOTE_READ` or `IB_UVERBS_ACCESS_REMOTE_WRITE` |
//! | `rdma_dereg_mr` | dropping the [`MemoryRegion`](crate::verbs::MemoryRegion) |
//! | `rdma_post_recv`, `rdma_post_recvv` | [`QueuePair::post_recv`](crate::verbs::QueuePair::post_recv), on an id without a queue pair [`SharedReceiveQueue::post_recv`](crate::verbs::SharedReceiveQueue::post_recv) |
//! | `rdma_post_send`, `rdma_post_read`, `rdma_post_write`, their forms with `v`, `rdma_post_ud_send` | [`QueuePair::post_send`](crate::verbs::QueuePair::post_send) with the [`SendOperation`](crate::verbs::SendOperation) |
//! | `rdma_get_send_comp`, `rdma_get_recv_comp` | [`CompletionQueue::wait`](crate::verbs::CompletionQueue::wait) |

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

pub use crate::addr::port_space::PortSpace;
pub use crate::error::{RejectReason, Rejection};
pub use channel::EventChannel;
pub use ece::Ece;
pub use endpoint_qp::EndpointQpInit;
pub use event::Event;
pub use group::Membership;
pub use id::CmId;
pub use lookup::getaddrinfo;
pub use param::{ConnParam, DatagramParam};
pub use parse::{EventData, EventType, RawEvent};
pub use route::{PathRecord, Route};
pub use service_type::ServiceType;
