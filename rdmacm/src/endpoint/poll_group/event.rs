//! The events of a poll group.

use std::fmt;

use super::buffer::Message;
use super::member_table::Member;
#[cfg(doc)]
use super::{PollGroup, PollGroupConfig};
use crate::error::Error;
#[cfg(doc)]
use crate::error::ErrorKind;

/// An event of a member, from [`PollGroup::wait`] or [`PollGroup::poll`].
///
/// [`PollGroup`](PollGroup#examples) has an example.
#[derive(Debug)]
#[non_exhaustive]
pub enum Event {
    /// The connection is established: the member can send.
    ///
    /// No event of the member precedes this one, except [`Ended`](Self::Ended) if the attempt has failed.
    Established(Member),
    /// A message has arrived. The messages of a member arrive in the order in which they were sent.
    Message(Member, Message),
    /// A call for the member that has returned [`ErrorKind::WouldBlock`] can be retried.
    ///
    /// The calls are [`PollGroup::acquire_buffer`] and [`PollGroup::post_bytes`]. The event arrives once for any number
    /// of such calls.
    ///
    /// If members wait for buffers of the group, as many of them get the event as there are free buffers. A program
    /// that does not want to send any more acquires a buffer and drops it, so that the next member gets the event.
    Writable(Member),
    /// The posted messages of the member have all been sent: see [`PollGroup::flush`].
    Sent(Member),
    /// The member has ended. This is its last event, and arrives exactly once.
    ///
    /// The member has ended when a call returns this event. Calls for the member that the program makes before it
    /// handles the event return [`ErrorKind::Disconnected`].
    Ended(Member, MemberEnd),
}

impl Event {
    /// Returns the member that the event is about.
    pub fn member(&self) -> Member {
        match self {
            Self::Established(member)
            | Self::Message(member, _)
            | Self::Writable(member)
            | Self::Sent(member)
            | Self::Ended(member, _) => *member,
        }
    }
}

/// The reason why a member has ended. Its [`Display`](fmt::Display) is a sentence for a log.
///
/// [`PollGroup`](PollGroup#examples) has an example.
#[derive(Debug)]
#[non_exhaustive]
pub enum MemberEnd {
    /// The peer has ended the connection.
    ///
    /// All of its messages were reported before. Messages to the peer for which no [`Event::Sent`] has arrived may be
    /// lost.
    Peer,
    /// The program has ended the member.
    ///
    /// It has called [`PollGroup::close`], and all messages were sent, or it has called [`PollGroup::abort`].
    Local,
    /// The attempt to connect or the connection has failed.
    ///
    /// The error has the same kinds as that of a [`Connection`](crate::endpoint::Connection), for example:
    /// - [`ErrorKind::Rejected`], [`ErrorKind::Unreachable`] and [`ErrorKind::TimedOut`] of an attempt.
    /// - [`ErrorKind::WorkRequestFailed`], [`ErrorKind::UnreportedCause`] and [`ErrorKind::DeviceRemoved`] of a
    ///   connection.
    /// - [`ErrorKind::ReceiveOverrun`] if the program held [`PollGroupConfig::max_held`] messages of the member and
    ///   another one arrived. On iWARP also if a message may have found no buffer.
    Failed(Error),
}

impl fmt::Display for MemberEnd {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Peer => f.write_str("the peer has ended the connection"),
            Self::Local => f.write_str("this side has ended the connection"),
            Self::Failed(error) => error.fmt(f),
        }
    }
}
