//! Memory: buffers, messages, who owns them.
//!
//! A device writes into registered memory whenever it likes, so the question of every RDMA program is
//! who may touch a buffer now. Here the answer is a value:
//!
//! - A [`Buffer`](crate::endpoint::Buffer) is the program's: bytes to fill. Posting it gives it to the device;
//!   it comes back to its connection when the message is sent, and the next call of
//!   [`buffer`](crate::endpoint::Connection::buffer) has it. Bytes that are elsewhere need no buffer of the
//!   program's: [`post_bytes`](crate::endpoint::Connection::post_bytes) copies them into one.
//! - A [`Message`](crate::endpoint::Message) is a buffer that the device has filled: bytes to read. Dropping it
//!   gives it back, and it receives again.
//!
//! ```no_run
#![doc = include_str!("snippets/memory.rs")]
//! ```
//!
//! But for `post_bytes` nothing is copied on the way, nothing is allocated for a message, and nothing is registered: a
//! connection registers all of its buffers when it is made. So memory for a thousand connections of the
//! default [`Settings`](crate::endpoint::Settings), 32 buffers of 4 KiB, is 125 MiB, on iWARP (34 of them) 133 MiB, all of it pinned:
//! choose what the program needs.
//!
//! # Flow
//!
//! Who keeps all messages receives no more; who keeps all buffers sends no more. On RoCE and InfiniBand a
//! sender whose peer has no receive posted waits and tries again, by default without end. On iWARP the
//! connection ends, and [`recv`](crate::endpoint::Connection::recv) says after the last message that some may be lost
//! ([`Overrun`](crate::ErrorKind::Overrun)): the programs have to agree on how many messages may be under way, and as
//! many buffers as that have to be there. One message that is answered before it is dropped needs no more; of several, as
//! of threads that each hold one, each but the first needs one more: a peer that has the answer may send again.
//!
//! Two programs that both send, and do not receive meanwhile, stop each other when the buffers of both are full. A
//! client receives while it sends, by a thread or task for each, each with a [clone](crate::endpoint::Connection#clones)
//! of the connection, or has no more questions under way than the server has
//! [`receive_buffers`](crate::endpoint::Settings::receive_buffers).
//!
//! # Memory that the peer reaches
//!
//! | to give the peer | use |
//! |---|---|
//! | all of a memory | [`Connection::export`](crate::endpoint::Connection::export) |
//! | some bytes of it, and no others | [`Connection::export_part`](crate::endpoint::Connection::export_part), which registers these bytes |
//! | memory that the peers of many connections share | [`RegisteredMemory::part`](crate::endpoint::RegisteredMemory::part): registered once, one key |
//! | a key that only this peer has, and may take back | [`Connection::export_window`](crate::endpoint::Connection::export_window) |
//!
//! A peer that is done with memory says so with a message that takes its key back
//! ([`Buffer::set_invalidated`](crate::endpoint::Buffer::set_invalidated)), as a storage target answers a request. The receiver
//! learns the key from the [message](crate::endpoint::Message::invalidated_key).
//!
//! # The level below
//!
//! [`verbs::MemoryRegion`](crate::verbs::MemoryRegion) is registered memory of any kind:
//!
//! - [`alloc`](crate::verbs::MemoryRegion::alloc): memory of its own, accessed by copying.
//! - [`share`](crate::verbs::MemoryRegion::share): the same [`Memory`](crate::verbs::Memory) for several.
//! - [`register`](crate::verbs::MemoryRegion::register): memory that the program vouches for, `unsafe`.
//!
//! and [`verbs::BufferQueues`](crate::verbs::BufferQueues) are queues of a queue pair that take buffers by
//! value, as connections do: safe, without being a connection.
