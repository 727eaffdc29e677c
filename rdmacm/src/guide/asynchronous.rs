//! Many connections: threads, event loops, tasks.
//!
//! A connection can be waited for in three ways:
//!
//! | way | calls | example |
//! |---|---|---|
//! | a thread each | those that wait, and those with `_timeout` | `echo` |
//! | an event loop of your own | those with `try_`, and a descriptor ([`AsFd`](std::os::fd::AsFd)) | `epoll` |
//! | tasks | those of [`endpoint::task`](crate::endpoint::task), on Tokio (feature `tokio`), smol (feature `smol`) or another [runtime](crate::endpoint::task::Runtime) | `tokio_echo`, `smol_echo` |
//!
//! # Threads
//!
//! Every call may come from any thread, at any time: a [`Connection`](crate::endpoint::Connection) is `Send + Sync`, and
//! its [clones](crate::endpoint::Connection#clones) are for a thread that sends and one that receives. Deadlines
//! are arguments; a signal ends no wait.
//!
//! # An event loop
//!
//! A call with `try_` in its name that has said [`WouldBlock`](crate::ErrorKind::WouldBlock) is worth trying again
//! when the connection's descriptor is readable. That is all there is to know: arming completion queues, looking
//! again after it, reading both channels and telling one wait from another is done inside. Listeners have a
//! descriptor too, and so has what is [about to connect](crate::endpoint::Connecting). What is written is
//! [posted](crate::endpoint::Connection::post_write) and [flushed](crate::endpoint::Connection::try_flush); a read, and a
//! change of a number, is [started](crate::endpoint::Connection::start_read), and tried until it is
//! [done](crate::endpoint::RemoteOperation::try_wait).
//!
//! # Tasks
//!
#![cfg_attr(feature = "tokio", doc = "```no_run")]
#![cfg_attr(not(feature = "tokio"), doc = "```text")]
#![doc = include_str!("snippets/asynchronous.rs")]
//! ```
//!
//! A call that is dropped before it is ready, by a timeout or a `select!`, loses nothing: no message, no
//! buffer, no memory that a device still uses. Each says what comes of it.
//!
//! # Datagrams
//!
//! A socket for datagrams has no connections to wait for: it finds a peer by its address, once, and answers
//! whoever has sent it something. What was lost is for the program to ask for again. Threads and event loops
//! have [`DatagramSocket`](crate::endpoint::DatagramSocket), tasks
//! [`task::DatagramSocket`](crate::endpoint::task::DatagramSocket):
//!
#![cfg_attr(feature = "tokio", doc = "```no_run")]
#![cfg_attr(not(feature = "tokio"), doc = "```text")]
#![doc = include_str!("snippets/datagrams.rs")]
//! ```
//!
//! # What blocks all the same
//!
//! Registering memory and destroying objects are commands that the kernel takes its time for; on iWARP so is
//! connecting. [Which calls those are](crate::endpoint#calls-that-take-their-time) is said there; tasks leave them to
//! threads that the runtime has for that.
