//! Improving performance.
//!
//! The costs, from the highest to the lowest:
//!
//! - **Connecting** takes dozens of commands, messages in both directions, and the registration of all buffers. Keep
//!   connections open.
//! - **Registering memory** pins every page. Register once, and [export](crate::endpoint::Connection::export) memory
//!   that stays the same.
//! - **Sleeping.** A wakeup costs more than the transmission of a short message. Calls that wait poll first, and sleep
//!   only if there is nothing to process. A thread that has a processor to itself can poll longer: see
//!   [`busy_poll`](crate::endpoint::ConnectionConfig::busy_poll), or call functions with `try_` in a loop.
//! - **The doorbell.** On software devices, notifying the device of new requests is a system call. Several requests
//!   need only one: [`verbs::SendQueueGuard`](crate::verbs::SendQueueGuard) takes as many as fit, and then
//!   [rings the doorbell](crate::verbs::SendQueueGuard::ring_doorbell) once.
//! - **Posting and polling** take some dozens to some hundreds of instructions and no allocation. They take no lock if
//!   the thread [holds](crate::verbs::QueuePair::lock_send_queue) the queue.
//!
//! # Remedies
//!
//! - Use [`post_send`](crate::endpoint::Connection::post_send) and
//!   [`post_write`](crate::endpoint::Connection::post_write) instead of
//!   [`start_send`](crate::endpoint::Connection::start_send) and
//!   [`start_write`](crate::endpoint::Connection::start_write), whose completion a caller waits for. Call
//!   [`flush`](crate::endpoint::Connection::flush) once at the end.
//! - Keep several messages in flight. This side needs as many
//!   [`send_buffers`](crate::endpoint::ConnectionConfig::send_buffers), and the peer as many
//!   [`receive_buffers`](crate::endpoint::ConnectionConfig::receive_buffers), as cover the round trip. Do not exceed
//!   the buffers of the receiver: a receiver without a buffer delays the sender by 0.64 ms or longer, each time.
//! - Use [`post_bytes`](crate::endpoint::Connection::post_bytes) for short messages: one call replaces three.
//! - Send large messages, or write large blocks with one-sided operations, because each message has a fixed cost.
//! - Fill and read buffers in place: see [memory](super::memory).
//! - Build a release with `lto = true` and `codegen-units = 1`, which shortens posting and polling.
//!
//! # Many connections
//!
//! Each connection has three descriptors, two completion queues and separate buffers, by default 128 KiB of pinned
//! memory. For thousands of mostly idle connections, a [poll group](crate::endpoint::poll_group) shares all of these.
//! One thread serves the connections, and a message costs about as much as with a few of them. Memory is pinned only
//! for the messages that are in flight at the same time. The price is isolation: the members compete for buffers, and
//! they support only messages.
//!
//! # Measuring
//!
//! `rdmatools lat` and `rdmatools bw` measure latency and bandwidth between two machines, with percentiles, as text,
//! JSON or a plot. `cargo xtask bench connect`, `data` and `endpoint` compare this library with the C library and with
//! itself, in a virtual machine. `docs/benchmarks.md` has the figures.
//!
//! # See also
//!
//! - [Serving many connections](super::concurrency) compares threads, event loops and tasks.
//! - [Using memory](super::memory) describes buffers and their registration.
