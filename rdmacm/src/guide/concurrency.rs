//! Serving many connections: threads, event loops, tasks.
//!
//! A program can wait for its connections in three ways:
//!
//! | way | calls | example |
//! |---|---|---|
//! | one thread for each connection | calls that wait, also with `_timeout` | `echo` |
//! | an event loop of the program | calls with `try_`, and a descriptor ([`AsFd`](std::os::fd::AsFd)) | `epoll` |
//! | tasks | calls of [`endpoint::task`](crate::endpoint::task), on Tokio (feature `tokio`), smol (feature `smol`) or another [runtime](crate::endpoint::task::Runtime) | `tokio_echo`, `smol_echo` |
//!
//! The modules `endpoint::tokio` and `endpoint::smol` export the types of `endpoint::task` again: both paths name one
//! type.
//!
//! # Threads
//!
//! Any thread may make any call at any time, because a [`Connection`](crate::endpoint::Connection) is `Send + Sync`. It
//! can be [cloned](crate::endpoint::Connection#clones), for example for one thread that sends and one that receives.
//! A call that takes a `timeout` waits at most that long. A signal does not interrupt a wait.
//!
//! # Event loops
//!
//! A call with `try_` in its name does not wait for the peer or for a buffer; some [calls take their
//! time](crate::endpoint#calls-that-take-their-time) nevertheless. If it returns
//! [`WouldBlock`](crate::ErrorKind::WouldBlock), wait until the descriptor of the connection is readable, and then try
//! again. The library arms the completion queues, polls them again and reads both event channels itself.
//!
//! - A listener has a descriptor too, and so has a connection [attempt](crate::endpoint::Connecting).
//! - A write is [posted](crate::endpoint::Connection::post_write) and later
//!   [flushed](crate::endpoint::Connection::try_flush).
//! - A read or an atomic operation is [started](crate::endpoint::Connection::start_read), and tried until it has
//!   [finished](crate::endpoint::RemoteOperation::try_wait).
//!
//! # Tasks
#![cfg_attr(feature = "tokio", doc = "```no_run")]
#![cfg_attr(not(feature = "tokio"), doc = "```text")]
#![doc = include_str!("snippets/asynchronous.rs")]
//! ```
//!
//! A call that a timeout or a `select!` drops before it is ready loses nothing: no message, no buffer, and no memory
//! that a device still uses. The documentation of each call describes the effect.
//!
//! # Datagrams
//!
//! A datagram socket has no connections. It resolves the address of a peer once, and can reply to the sender of each
//! datagram that it receives. Datagrams may be lost, and the program must repeat them. Threads and event loops use
//! [`DatagramSocket`](crate::endpoint::DatagramSocket), tasks use
//! [`task::DatagramSocket`](crate::endpoint::task::DatagramSocket):
#![cfg_attr(feature = "tokio", doc = "```no_run")]
#![cfg_attr(not(feature = "tokio"), doc = "```text")]
#![doc = include_str!("snippets/datagrams.rs")]
//! ```
//!
//! # Calls that block anyway
//!
//! Registering memory and destroying objects are commands that take the kernel some time, and so is connecting on
//! iWARP. [These calls](crate::endpoint#calls-that-take-their-time) may block an event loop. Tasks run them on threads
//! of the runtime that may block.
//!
//! # See also
//!
//! - [Running services](super::services) describes how to stop a server and how to reconnect.
//! - [Poll groups](crate::endpoint::poll_group) serve thousands of connections in one thread or task.
//! - [Improving performance](super::performance) lists the costs of waiting.
