//! Running services: stopping a server, and reconnecting.
//!
//! # Stopping a server
//!
//! A signal does not interrupt the calls of [`endpoint`](crate::endpoint), so a program handles signals itself. On
//! Tokio it selects between the next request and the signal:
//!
#![cfg_attr(feature = "tokio", doc = "```no_run")]
#![cfg_attr(not(feature = "tokio"), doc = "```text")]
//! # use rdmacm::endpoint::tokio::Listener;
//! # async fn serve(listener: &Listener) -> Result<(), Box<dyn std::error::Error>> {
//! // After the first round, a signal that arrives while no `ctrl_c` future exists is lost. So one future
//! // serves all rounds.
//! let mut stop = std::pin::pin!(tokio::signal::ctrl_c());
//! loop {
//!     tokio::select! {
//!         incoming = listener.accept() => { /* serve it in a task */ drop(incoming?) }
//!         signal = &mut stop => { signal?; break }
//!     }
//! }
//! # Ok(())
//! # }
//! ```
//!
//! Dropping the listener rejects the clients that were not accepted. Closing a connection with [`close`] sends all
//! posted messages first. On RoCE and InfiniBand it then waits for the next call of the peer, and returns `TimedOut` if
//! there is none. Dropping a connection, also together with its task, ends it at once. The peer is notified in
//! both cases.
//!
//! A thread that accepts wakes from time to time, and checks a flag that a signal handler sets (for example by
//! `signal_hook::flag::register(SIGINT, Arc::clone(&is_stopping))` of the crate `signal-hook`):
//!
//! ```no_run
//! use std::sync::atomic::{AtomicBool, Ordering};
//! use std::time::Duration;
//!
//! use rdmacm::ErrorKind;
//! use rdmacm::endpoint::{Incoming, Listener};
//!
//! /// Returns the next request, or `None` after `is_stopping` was set.
//! fn next(listener: &Listener, is_stopping: &AtomicBool) -> rdmacm::Result<Option<Incoming>> {
//!     while !is_stopping.load(Ordering::Relaxed) {
//!         match listener.accept_timeout(Duration::from_millis(500)) {
//!             Err(error) if *error.kind() == ErrorKind::TimedOut => {}
//!             accepted => return accepted.map(Some),
//!         }
//!     }
//!     Ok(None)
//! }
//! ```
//!
//! The threads that serve connections stop in the same way: they wait with
//! [`recv_timeout`](crate::endpoint::Connection::recv_timeout) and check the flag. Sending waits too, without limit if
//! the peer receives nothing. A thread that must stop acquires buffers with
//! [`acquire_buffer_timeout`](crate::endpoint::Connection::acquire_buffer_timeout) and posts them, instead of calling
//! `post_bytes`. A second way ends every wait: the main thread keeps a clone of each connection, and closes or aborts
//! the clone. The calls of the serving thread then return `Disconnected`, and the library discards requests that
//! the server has not received.
//!
//! An event loop adds a `signalfd` beside the descriptors of its listener and connections.
//!
//! # Reconnecting
//!
//! A connection that has ended cannot be revived: drop it and connect again. If a later attempt to connect may succeed,
//! the [`io_kind`](crate::Error::io_kind) of the error is `ConnectionRefused`, `TimedOut`, `HostUnreachable` or
//! `NetworkUnreachable`. A later attempt may also succeed after [`NameResolution`](crate::ErrorKind::NameResolution)
//! with the code `libc::EAI_AGAIN` (of the crate `libc`): the name server did not answer. Most other errors have a
//! cause in the program or the machine, and a later attempt fails too. The page on [errors](super::errors) lists the
//! errors of connections. A request that the server's program has rejected is `ConnectionRefused` too:
//! [`Rejected`](crate::ErrorKind::Rejected) has the reason.
//!
//! There is no separate call that checks if a connection has ended: each further call returns the reason, and a pending
//! [`recv`] returns when the connection ends. A post that does not wait reads no event, so it may succeed after the
//! peer has ended the connection. The next `recv` or `flush` returns the end.
//!
//! How fast a connection detects the end of its peer depends on the cause:
//!
//! - If the peer's process has ended, the connection detects it at once.
//! - If the peer's machine fails while a request is in flight, the connection detects it after its
//!   [retries](crate::endpoint::ConnectionConfig::retry_count).
//! - While the connection is idle, it detects the failure of a machine only with
//!   [keep-alive](crate::endpoint::ConnectionConfig::keep_alive_interval). In addition, a call such as `recv` must
//!   wait, or an event loop must call `try_recv`.
//!
//! After the end of a connection, a posted message may or may not have arrived. If
//! [`flush`](crate::endpoint::Connection::flush) succeeds, the peer's device has received the message; on iWARP only
//! TCP of this side has accepted it. Only a response shows that the peer's program has handled the message.
//!
//! # See also
//!
//! - [Sending requests](super::requests) has a server that stops and a client that reconnects.
//! - [Handling errors](super::errors) lists the errors of connections.
//! - [Serving many connections](super::concurrency) compares threads, event loops and tasks.
//! - [Running in containers](super::containers) has the permissions that a service needs.
//!
//! [`close`]: crate::endpoint::task::Connection::close
//! [`recv`]: crate::endpoint::task::Connection::recv
