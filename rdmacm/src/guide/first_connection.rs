//! A first connection.
//!
//! A server listens, takes a request, accepts it, and has a connection; a client connects, and has
//! the other end of it. What goes over it are messages: one that is sent arrives whole, once, and
//! after those that were sent before.
//!
//! ```no_run
#![doc = include_str!("snippets/first_connection.rs")]
//! ```
//!
//! The steps:
//!
//! - [`Listener::bind`](crate::endpoint::Listener::bind) listens on an address of a network device that
//!   an RDMA device belongs to, or with `0.0.0.0` on all of them.
//! - [`Connector::connect`](crate::endpoint::Connector::connect) resolves the address, then the route,
//!   makes a queue pair with its receives posted, and asks the server.
//! - [`Listener::incoming`](crate::endpoint::Listener::incoming) hands out the request. Nothing is decided
//!   by then: look at [who asks](crate::endpoint::Incoming::peer_addr) and at the [private
//!   data](crate::endpoint::Incoming::private_data) that the client's program sent along, then
//!   [accept](crate::endpoint::Incoming::accept) or [reject](crate::endpoint::Incoming::reject), which carry
//!   private data back.
//! - [`Settings`](crate::endpoint::Settings) say how many buffers this end has and how long they are. The
//!   two ends need not have the same, but a message has to fit into a buffer of its receiver.
//! - [`close`](crate::endpoint::Connection::close) waits until what was posted is sent, tells the peer, and
//!   waits for its answer. Dropping a connection cuts it off instead.
//!
//! # Who sends first
//!
//! On iWARP the side that connected is to send the first message; the examples here do so on every
//! transport. On RoCE and InfiniBand both may.
//!
//! # Looking at it
//!
//! `cargo xtask demo` shows every event of a connection with its time; `rdmatools rping -v` the data of
//! one; the feature `tracing` says for a program of yours what happens to its connections, and
//! [`counters`](crate::endpoint::Connection::counters) what has moved.
