//! Sending requests: responses, timeouts, and several requests in flight.
//!
//! Messages keep their boundaries, so a request is a message and so is its response. A number relates the two. With it,
//! the client does not take the late response to a request that has timed out for the response to the next request. The
//! client and the server, without `main`:
//!
#![cfg_attr(feature = "tokio", doc = "```no_run")]
#![cfg_attr(not(feature = "tokio"), doc = "```text")]
#![doc = include_str!("snippets/requests.rs")]
//! ```
//!
//! The first call connects, within its timeout, and so does a call after the end of the connection. A call that times
//! out drops its attempt to connect. So `timeout` must be longer than connecting takes, which can be
//! seconds. To connect with a longer timeout, await `connected` before the first call.
//!
//! To stop on Ctrl-C, pass `async { let _ = tokio::signal::ctrl_c().await; }` as `stop`.
//!
//! When the server stops, the task of each connection answers the request that it has taken, and closes the connection.
//! The call [`recv`] is cancel safe: a request is either answered or was not taken. A client whose request was not
//! taken gets an error. On RoCE and InfiniBand, [`close`] waits until the client confirms the end, which the library
//! does in the client's next call. A client that makes no call delays the end by `grace`, but all responses were sent
//! before.
//!
//! # Several requests in flight
//!
//! A client can have several requests in flight. One task receives. A map finds the caller of a response by
//! the number of the request:
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
//! When the connection ends, calls that wait for a response fail with `ConnectionReset`, or with `InvalidData` if the
//! server has sent a message that answers no request. Later calls fail with the error of these calls, or with the
//! error of the connection. A request that the server never answers keeps its permit. If every call times out, the
//! program closes the client and connects again. The receiving task holds a clone of the connection, so dropping the
//! client does not end the connection: call `Client::close` first.
//!
//! To reconnect, keep the client in a `tokio::sync::Mutex<Option<Arc<Client>>>`. Each call takes a clone of the `Arc`,
//! and first replaces a client for which `has_ended` returns `true`. The kind `TimedOut` of [`std::io::ErrorKind`] does
//! not show whether the connection has ended: it also reports a peer that does not answer any more.
//!
//! # See also
//!
//! - [Running services](super::services): stopping a server, and reconnecting.
//! - [Serving many connections](super::concurrency).
//!
//! [`close`]: crate::endpoint::task::Connection::close
//! [`recv`]: crate::endpoint::task::Connection::recv
