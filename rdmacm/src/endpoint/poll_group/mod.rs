//! Poll groups: many connections that one thread or task serves over shared queues and buffers.
//!
//! A [`Connection`](crate::endpoint::Connection) shares no queues and no buffers with other connections. It has three
//! descriptors, two completion queues and, by default, 128 KiB of pinned buffers. Separate resources are the right
//! choice for nearly all programs. A peer cannot affect another connection, and a busy connection takes no buffer that
//! another connection needs. For thousands of mostly idle connections, separate resources cost too much.
//!
//! The members of a [`PollGroup`] share one shared receive queue, two completion queues, one protection domain and one
//! registered region. They also share one completion channel, one event channel and one epoll instance. Regardless of
//! the number of its members, a group has four descriptors, two more for the device, and a timer while members connect.
//! A group whose members are [kept alive](PollGroupConfig::keep_alive_interval) has another timer. Each member has its
//! queue pair, its id and about 2 KiB of memory.
//!
//! ```no_run
//! use rdmacm::endpoint::Listener;
//! use rdmacm::endpoint::poll_group::{Event, PollGroup, PollGroupConfig};
//! use std::time::Duration;
//!
//! let listener = Listener::bind("0.0.0.0:7471")?;
//! let first = listener.accept()?;
//! let mut group = PollGroup::new(&first.device()?, &PollGroupConfig::default())?;
//! group.add(first, &[], Duration::from_secs(5))?;
//! let mut events = Vec::new();
//! while !group.is_empty() {
//!     group.wait(&mut events, None)?;
//!     for event in events.drain(..) {
//!         match event {
//!             Event::Message(member, message) => group.post_bytes(member, &message)?,
//!             Event::Ended(member, end) => println!("{member} has ended: {end}"),
//!             _ => {}
//!         }
//!     }
//! }
//! # Ok::<(), rdmacm::Error>(())
//! ```
//!
//! A task converts the group with [`task::PollGroup::from_blocking`](crate::endpoint::task::PollGroup::from_blocking),
//! awaits [`wait`](crate::endpoint::task::PollGroup::wait), and makes all other calls on
//! [`get_mut`](crate::endpoint::task::PollGroup::get_mut).
//!
//! In the program above, an error of one member ends all members. The example `poll_group` accepts further clients in
//! the same loop. There, a client that has ended or that has no free buffer does not affect the others:
//!
//! ```no_run
#![doc = include_str!("../../../examples/poll_group.rs")]
//! ```
//!
//! # Ownership
//!
//! The group belongs to one thread or task at a time: all calls take `&mut self`, and there is no lock around the
//! group. A program with several processors has one group for each. [`Message`] and [`SendBuffer`] are `Send`: other
//! threads may fill, read and drop them. They return to the group through a list, whose lock is held for a few
//! instructions. Buffers of dropped messages are posted again when the group makes progress: in [`PollGroup::wait`] and
//! [`PollGroup::poll`]. Between those calls nothing is answered; a call that adds or ends a member may poll and repost.
//!
//! # Buffers and fairness
//!
//! Any member may use any receive buffer. The program may hold at most [`max_held`](PollGroupConfig::max_held) messages
//! of a member. Messages that have arrived and were not returned yet count too. If another message arrives then, the
//! member ends
//! ([`ErrorKind::ReceiveOverrun`](crate::ErrorKind::ReceiveOverrun)). So one peer cannot take all buffers while the
//! program is slow with its messages. Several peers together still can: choose `receive_buffers` for the messages of
//! all members that may be in flight or held.
//!
//! - On InfiniBand and RoCE a message that finds no buffer waits at its peer, which retries after 0.64 ms, as often as
//!   [`rnr_retry_count`](PollGroupConfig::rnr_retry_count) permits.
//! - On iWARP such a message ends its connection. So the group has a reserve of an eighth of `receive_buffers`, at
//!   least two buffers. The protocol of the program must limit the number of messages that the peers send. If the
//!   receive queue may have been empty before a member ends, the member ends with
//!   [`ErrorKind::ReceiveOverrun`](crate::ErrorKind::ReceiveOverrun), even if no message was lost.
//!
//! Sending is bounded twice: by [`send_buffers_per_member`](PollGroupConfig::send_buffers_per_member) for each member
//! and by [`send_buffers`](PollGroupConfig::send_buffers) for all. A call that finds no room fails with
//! [`ErrorKind::WouldBlock`](crate::ErrorKind::WouldBlock), and [`Event::Writable`] follows. Members that wait for a
//! buffer get this event in the order of their calls.
//!
//! # Admission
//!
//! The completion queue for receives has room for all receives. The completion queue for sends has room for
//! `send_buffers` requests, one more for each of [`initial_members`](PollGroupConfig::initial_members), and the
//! requests of one member that has ended. A further member makes the queue grow; if the driver cannot resize it (siw),
//! [`PollGroup::add`] and [`PollGroup::connect`] fail, and nothing is left of the attempt.
//!
//! # When a member ends
//!
//! Each member ends with exactly one [`Event::Ended`], whatever ends it: the peer, its kernel, this program, a failure,
//! or the removal of the device. The reason is the one that a `Connection` would give; a flushed request is no reason.
//! When the event is returned, the kernel objects of the member are destroyed. A later member may get the same queue
//! pair number. Therefore all remaining completions of the old queue pair are polled first, and no message is delivered
//! to the wrong member.
//!
//! # Costs
//!
//! - All members have one protection domain. The peers of all members could access memory that is exported in that
//!   domain. So a group exports no memory.
//! - A member has no reads, writes, atomics, exports or memory windows, and no SEND with invalidate: use a `Connection`
//!   for them.
//! - The thread of the group waits while the kernel destroys the queue pair and the id of a member. On iWARP,
//!   connecting TCP delays all members, by minutes if the peer's machine does not answer. So does canceling an attempt
//!   (siw: up to about 10 s).
//!
//! # Driver notes
//!
//! If a connection ends in the middle of a message of several packets, rxe (Linux 6.12) loses the receive. Its buffer
//! stays unused until the group is dropped.
//!
//! The kernel reports the removal of an rxe or siw device to connections only. A group without members is not notified,
//! and the removal waits until the program drops the group.

mod buffer;
mod completions;
mod config;
mod descriptor;
mod event;
#[cfg(any(fuzzing, all(test, feature = "null", not(loom))))]
mod forged;
#[cfg(fuzzing)]
pub(crate) mod fuzzing;
mod link;
mod member_table;
mod resources;
mod return_list;
mod starvation;
#[cfg(all(test, feature = "null", not(loom)))]
mod tests;

// Not in alphabetical order: rustdoc lists the methods of a group in the order of these modules.
mod group;

mod establish;
mod progress;
mod sending;

mod ending;

pub use self::buffer::{Message, SendBuffer};
pub use self::config::PollGroupConfig;
pub use self::event::{Event, MemberEnd};
pub use self::group::PollGroup;
pub use self::member_table::Member;
