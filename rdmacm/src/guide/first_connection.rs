//! Opening a first connection.
//!
//! A server listens, takes a connection request and accepts it. A client connects. Both then have one end of the
//! connection, and exchange messages. A message arrives complete, exactly once, and in the order of sending.
//!
//! ```no_run
#![doc = include_str!("snippets/first_connection.rs")]
//! ```
//!
//! 1. [`Listener::bind`](crate::endpoint::Listener::bind) listens on an address of a network device that belongs to an
//!    RDMA device, or with `0.0.0.0` on all of them.
//! 2. [`Connector::connect`](crate::endpoint::Connector::connect) resolves the address and the route, creates a queue
//!    pair with posted receives, and sends the request.
//! 3. [`Listener::accept`](crate::endpoint::Listener::accept) returns the request, which is not answered yet. The
//!    server can look at the [address](crate::endpoint::Incoming::peer_addr) of the client and at the [private
//!    data](crate::endpoint::Incoming::private_data) that the client's program has sent. It then
//!    [accepts](crate::endpoint::Incoming::accept) or [rejects](crate::endpoint::Incoming::reject) the request; both
//!    calls can send private data to the client. On InfiniBand and RoCE, received private data is padded with zeros: a
//!    program that sends private data puts its length into the data.
//! 4. [`ConnectionConfig`](crate::endpoint::ConnectionConfig) sets the number and the length of the buffers of this
//!    side. A server passes it to `accept`, a client to [`Connector::config`](crate::endpoint::Connector::config). The
//!    two sides may differ, but a message must fit into a buffer of its receiver.
//! 5. [`recv`](crate::endpoint::Connection::recv) returns `None` after the last message if the peer has ended the
//!    connection: it has closed or dropped it, or its process has died. So `None` does not prove that the peer has
//!    handled all messages.
//! 6. [`close`](crate::endpoint::Connection::close) waits until all posted messages are sent, disconnects, and waits
//!    for the answer of the peer. Dropping a connection ends it at once instead.
//!
//! A connector without [`total_timeout`](crate::endpoint::Connector::total_timeout) waits at most 2 s for the address,
//! 2 s for the route and 30 s for the answer.
//!
//! # Pitfalls
//!
//! On iWARP the side that connects must send the first message, and the server must neither send nor close before it
//! has received a message. Otherwise [`connect`](crate::endpoint::Connector::connect) may fail at the client with
//! EINVAL. The programs in `rdmacm/examples` and the listings of this guide obey this rule, except that a stopping
//! server may close a connection before the first message. Examples of single calls omit this order; a program must add
//! it. On RoCE and InfiniBand either side may send first.
//!
//! # See also
//!
//! - [Using memory](super::memory) describes buffers, messages and their owners.
//! - [Handling errors](super::errors) lists the errors of connections.
//! - `cargo xtask demo` shows every event of a connection with its time.
//! - `rdmatools rping -v` shows the data of a connection.
//! - The feature `tracing` reports the events of the connections of a program.
//! - [`stats`](crate::endpoint::Connection::stats) counts the messages and bytes of a connection.
