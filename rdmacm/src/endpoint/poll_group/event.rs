//! The events of a poll group.

use super::buffer::Message;
use super::member_table::Member;
#[cfg(doc)]
use super::{PollGroup, PollGroupConfig};
use crate::error::Error;
#[cfg(doc)]
use crate::error::ErrorKind;

/// An event of a member, from [`PollGroup::wait`] or [`PollGroup::poll`].
#[derive(Debug)]
#[non_exhaustive]
pub enum Event {
    /// The connection is established: the member can send. No event of the member comes before this one, except
    /// [`Ended`](Self::Ended) if the attempt has failed.
    Established(Member),
    /// A message has arrived. The messages of a member come in the order in which they were sent.
    Message(Member, Message),
    /// [`PollGroup::buffer`] or [`PollGroup::post_bytes`] has returned [`ErrorKind::WouldBlock`] for the member, and is
    /// worth trying again. Comes once for any number of such calls.
    Writable(Member),
    /// All messages that the member had posted have been sent: see [`PollGroup::flush`].
    Sent(Member),
    /// The member has ended. This is its last event, and comes exactly once.
    Ended(Member, End),
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

/// The reason why a member has ended.
#[derive(Debug)]
#[non_exhaustive]
pub enum End {
    /// The peer has ended the connection. All of its messages were reported before. Messages to the peer for which no
    /// [`Event::Sent`] has come may be lost.
    Peer,
    /// The program has ended the member, by [`PollGroup::close`] after all messages were sent, or by [`PollGroup::abort`].
    Local,
    /// The attempt to connect or the connection has failed. The kinds of the error are those of a
    /// [`Connection`](crate::endpoint::Connection): for example [`ErrorKind::Rejected`], [`ErrorKind::Unreachable`] and
    /// [`ErrorKind::TimedOut`] of an attempt; [`ErrorKind::Failed`], [`ErrorKind::UnreportedCause`] and
    /// [`ErrorKind::DeviceGone`] of a connection; [`ErrorKind::Overrun`] if the program held
    /// [`PollGroupConfig::max_held`] messages of the member and another one came, or, on iWARP, if a message may have
    /// found no buffer.
    Failed(Error),
}
