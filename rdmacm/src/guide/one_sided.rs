//! One-sided: memory of the peer.
//!
//! One end [exports](crate::endpoint::Connection::export) [`Memory`](crate::verbs::Memory) to the other one, and
//! sends it the [descriptor](crate::endpoint::Export::descriptor): 24 bytes that say where the memory is and
//! what is allowed. The other end makes a [`Remote`](crate::endpoint::Remote) of them, and reads and writes
//! without the first one's help: no thread wakes there, and no message comes.
//!
//! ```no_run
#![doc = include_str!("snippets/one_sided.rs")]
//! ```
//!
//! Each of these calls waits until it is done. Several are under way at once where they are only
//! [begun](crate::endpoint::Connection::start_read), and waited for later: [`RemoteOperation`](crate::endpoint::RemoteOperation).
//!
//! # What holds
//!
//! - Rights and bounds are checked where the call is made, and again by the peer's device. What that
//!   refuses ends the connection.
//! - An export is for one connection: the key in its descriptor is of no use to anybody else. Dropping or
//!   [revoking](crate::endpoint::Export::revoke) it takes the memory back, at once.
//! - The owner goes on using its memory, by copying alone: [`read`](crate::verbs::Memory::read) and
//!   [`write`](crate::verbs::Memory::write), which are not atomic. Numbers that several change are for
//!   the peers, by [`compare_swap`](crate::endpoint::Connection::compare_swap) and
//!   [`fetch_add`](crate::endpoint::Connection::fetch_add), which change the memory of the other end, each at
//!   once among those that the owner's device carries out; what the owner writes to such a number
//!   meanwhile may be lost, or undo a change.
//! - A read that meets a write may see parts of both. Where that matters, put a checksum or a counter on
//!   both sides of it, as the example `key_value` does.
//! - A write is not heard of. To tell the peer, [send](crate::endpoint::Connection::post) it a message afterwards:
//!   what was written before it is there when it arrives. The example `file_copy` does so.
//!
//! Programs that do not use this library describe memory in ways of their own, mostly as an address, a key
//! and a length: [`Remote::new`](crate::endpoint::Remote::new), and [`Export::remote`](crate::endpoint::Export::remote) for
//! the way back.
//!
//! iWARP has no atomics. And siw lets the peer read what it knows the key of, whatever rights that has.
