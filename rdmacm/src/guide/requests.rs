//! Requests and responses with timeouts, one at a time or several in flight.
//!
//! Messages keep their boundaries, so a request is a message and so is its response. A number relates the two. With it,
//! the client does not take the late response to a request that has timed out for the response to the next request. The
//! complete client and server:
//!
#![cfg_attr(feature = "tokio", doc = "```no_run")]
#![cfg_attr(not(feature = "tokio"), doc = "```text")]
#![doc = include_str!("snippets/requests.rs")]
//! ```
//!
//! When the server stops, the task of each connection answers the request that it has taken, and closes the connection.
//! The call [`recv`] is cancel safe: a request is either answered or was not taken. The client of a request that was not
//! taken gets an error. On RoCE and InfiniBand, [`close`] waits until the client answers, so a client that makes no call
//! delays the end by `grace`. All responses were sent before that.
//!
//! # Several requests in flight
//!
//! A client can have several requests in flight. One task receives, and a map has the waiting callers by the numbers of
//! their requests:
//!
#![cfg_attr(feature = "tokio", doc = "```no_run")]
#![cfg_attr(not(feature = "tokio"), doc = "```text")]
#![doc = include_str!("snippets/in_flight.rs")]
//! ```
//!
//! The [receive buffers](crate::endpoint::ConnectionConfig::receive_buffers) of both sides bound the number of requests
//! in flight. A server that drops each request before it posts the response needs as many as there are requests in
//! flight; otherwise see [flow control](super::memory#flow-control).
//!
//! The end of the connection ends all calls: those that wait for a response get `ConnectionReset`, and later ones the
//! reason of the end. If the server leaves requests without a response, their permits are not released. When the calls of
//! a program only time out, the program [aborts](crate::endpoint::task::Connection::abort) the connection and connects
//! again. The receiving task holds a clone of the connection, so the program closes the client before it drops the client.
//!
//! # See also
//!
//! - [Running services](super::services): stopping a server, and reconnecting.
//! - [Serving many connections](super::concurrency).
//!
//! [`close`]: crate::endpoint::task::Connection::close
//! [`recv`]: crate::endpoint::task::Connection::recv
