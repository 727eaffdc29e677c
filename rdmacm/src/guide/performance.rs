//! Performance.
//!
//! Costs, from the highest to the lowest:
//!
//! - **Connecting**: dozens of commands, messages there and back, and the registration of all buffers.
//!   Keep connections.
//! - **Registering memory**: pins every page. Register once; [export](crate::endpoint::Connection::export) what stays.
//! - **Sleeping**: a wake-up costs more than a short message takes. Calls that wait look first, and sleep only
//!   where there is nothing; a thread with a processor to spare looks for longer, as
//!   [`busy_poll`](crate::endpoint::Settings::busy_poll) says, or calls those with `try_` in a loop.
//! - **The doorbell**: telling the device of new requests is a system call on software devices. Several requests
//!   need one: [`verbs::SendQueue`](crate::verbs::SendQueue) takes as many as fit, then [rings](crate::verbs::SendQueue::ring)
//!   once.
//! - **Posting and polling**: some dozens to some hundreds of instructions, no allocation, and no lock on queues that
//!   a thread [keeps](crate::verbs::QueuePair::send_queue) for itself.
//!
//! Remedies:
//!
//! - [`post`](crate::endpoint::Connection::post) rather than [`send`](crate::endpoint::Connection::send), and
//!   [`post_write`](crate::endpoint::Connection::post_write) rather than [`write`](crate::endpoint::Connection::write): they do not
//!   wait for the completion. [`flush`](crate::endpoint::Connection::flush) once at the end.
//! - Several messages under way: as many [`send_buffers`](crate::endpoint::Settings::send_buffers) here and
//!   [`receive_buffers`](crate::endpoint::Settings::receive_buffers) there as cover the way there and back. A receiver
//!   without a buffer stops the sender for 0.64 ms or longer, each time: have no more under way than it has buffers.
//! - [`post_bytes`](crate::endpoint::Connection::post_bytes) for short messages: one call in place of three.
//! - Large messages, or one-sided writes of large pieces: the cost is by message.
//! - Buffers filled and read in place: [memory](super::memory).
//! - Release builds with `lto = true` and `codegen-units = 1`: posting and polling are shorter then.
//!
//! # Many connections
//!
//! Each connection has three descriptors, two completion queues and buffers of its own, which is 128 KiB of pinned memory by
//! default. For thousands of connections that are mostly idle, a [poll group](crate::endpoint::poll_group) shares all of
//! these: one thread serves the connections, a message costs about as much as with a few of them, and memory is pinned for the
//! messages that are in flight at once. The price is isolation: members compete for buffers, and only messages are offered.
//!
//! # Measuring
//!
//! `rdmatools lat` and `rdmatools bw` measure latency and bandwidth between two machines, with their percentiles, as text,
//! JSON or a plot; `cargo xtask bench connect`, `data` and `endpoint` compare this library with the C one and with itself, in a
//! virtual machine. `docs/benchmarks.md` has the figures.
