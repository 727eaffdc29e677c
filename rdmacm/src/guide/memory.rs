//! Using memory: buffers, messages and their owners.
//!
//! A device may write to registered memory at any time. Every RDMA program must therefore know whether the program or
//! the device owns a buffer at the moment. Here a value represents the ownership:
//!
//! - The program owns a [`Buffer`](crate::endpoint::Buffer) and fills it. Posting the buffer passes it to the device.
//!   When the message is sent, the buffer returns to its connection, and
//!   [`acquire_buffer`](crate::endpoint::Connection::acquire_buffer) can return it again.
//!   [`post_bytes`](crate::endpoint::Connection::post_bytes) copies bytes into a buffer and posts it.
//! - A [`Message`](crate::endpoint::Message) is a buffer that the device has filled, and the program reads it. Dropping
//!   the message returns the buffer, which then receives another message.
//!
//! ```no_run
#![doc = include_str!("snippets/memory.rs")]
//! ```
//!
//! Only `post_bytes` copies. No message is allocated or registered: a connection registers all of its buffers when it
//! is created. The default [`ConnectionConfig`](crate::endpoint::ConnectionConfig) has 16 buffers for sending and 16
//! for receiving, of 4 KiB each, and on iWARP two more for receiving. A thousand connections therefore pin 125 MiB, and
//! on iWARP 133 MiB. Choose the numbers that the program needs.
//!
//! # Flow control
//!
//! A program that keeps all messages receives no more. A program that keeps all buffers sends no more.
//!
//! - On RoCE and InfiniBand a sender whose peer has no posted receive waits and retries, by default without limit.
//! - On iWARP the connection ends. After the last message, [`recv`](crate::endpoint::Connection::recv) reports that
//!   some messages may be lost ([`ReceiveOverrun`](crate::ErrorKind::ReceiveOverrun)).
//!
//! On iWARP the two programs must therefore agree on a maximum number of messages in flight, and the receiver must
//! have as many buffers. If the receiver answers each message before it drops the message, one message at a time
//! needs no further buffer. If the receiver holds several messages at once, for example in several threads, each
//! message except the first needs one more buffer. A server that holds up to 8 requests therefore needs 15 buffers,
//! because a peer that has the response may send again. A server that drops each request before it posts the response
//! needs only 8.
//!
//! If two programs only send and do not receive, both block when the buffers of both are full. To avoid this, a client
//! can receive while it sends, in another thread or task with a [clone](crate::endpoint::Connection#clones) of the
//! connection. Or it limits its requests in flight to the
//! [`receive_buffers`](crate::endpoint::ConnectionConfig::receive_buffers) of the server.
//!
//! # Memory that the peer accesses
//!
//! | memory that the peer may access | call |
//! |---|---|
//! | all or some bytes of a `DmaMemory` | [`Connection::export`](crate::endpoint::Connection::export), which registers these bytes |
//! | memory that the peers of many connections share | [`RegisteredMemory::part`](crate::endpoint::RegisteredMemory::part): registered once, one key |
//! | memory with a key that only this peer has, and may invalidate | [`Connection::start_export_window`](crate::endpoint::Connection::start_export_window) |
//!
//! A peer that no longer needs the memory can send a message that invalidates its key
//! ([`Buffer::set_invalidated`](crate::endpoint::Buffer::set_invalidated)), as a storage target does with its response.
//! The receiver gets the key from the [message](crate::endpoint::Message::invalidated_key), but not on siw.
//!
//! # The lower level
//!
//! [`verbs::MemoryRegion`](crate::verbs::MemoryRegion) is registered memory of any kind:
//!
//! - [`alloc`](crate::verbs::MemoryRegion::alloc) allocates memory that is accessed by copying.
//! - [`register_shared`](crate::verbs::MemoryRegion::register_shared) registers the same
//!   [`DmaMemory`](crate::verbs::DmaMemory) several times.
//! - [`register`](crate::verbs::MemoryRegion::register) registers memory for which the program is responsible, and is
//!   `unsafe`.
//!
//! [`verbs::BufferedQueuePair`](crate::verbs::BufferedQueuePair) has the queues of a queue pair that take buffers by
//! value, as a connection does. It is safe without a connection.
//!
//! # See also
//!
//! - [Accessing memory of the peer](super::one_sided) is the counterpart without messages.
//! - [Compile-time checks](super::compile_time_checks) has the mistakes with buffers that the compiler rejects.
//! - [Improving performance](super::performance) describes the cost of registering memory.
