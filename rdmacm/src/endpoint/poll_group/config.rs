//! The parameters of a poll group.

use std::time::Duration;

use crate::cm::ConnParam;
#[cfg(doc)]
use crate::endpoint::Connector;
use crate::endpoint::core::RESERVED_RECEIVES;
#[cfg(doc)]
use crate::error::ErrorKind;
use crate::error::{Error, Result};
use crate::non_exhaustive::NonExhaustive;

/// The largest number of retries that a connection may have.
const MAX_RETRIES: u8 = 7;

/// The parameters of a [`PollGroup`](super::PollGroup).
///
/// Created from its default: see [Parameters](crate#parameters).
///
/// ```
/// use rdmacm::endpoint::poll_group::PollGroupConfig;
///
/// PollGroupConfig { receives: 4096, sends: 1024, max_held: 16, ..PollGroupConfig::default() };
/// ```
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PollGroupConfig {
    /// The number of buffers for receiving, which all members share: as many messages may arrive, or be held by the
    /// program, at once. A message that finds no buffer waits at the peer on InfiniBand and RoCE; on iWARP it ends its
    /// connection. On iWARP the group has an eighth more, at least two.
    pub receives: u32,
    /// The number of buffers for sending, which all members share: as many messages may be in flight at once.
    pub sends: u32,
    /// Bytes of each buffer for receiving: a longer message ends its connection.
    pub receive_buffer_size: usize,
    /// Bytes of each buffer for sending, and so of the longest message to a peer.
    pub send_buffer_size: usize,
    /// The number of messages that one member may have in flight at once.
    pub sends_per_member: u32,
    /// The number of messages of one member that the program may hold at once, waiting messages included. One more
    /// ends the member ([`ErrorKind::Overrun`]), so that it cannot take the buffers of others.
    pub max_held: u32,
    /// The number of members for which the completion queue has room from the beginning. More are possible if the
    /// driver can resize a completion queue (siw cannot).
    pub members: u32,
    /// The number of times that an unacknowledged packet is sent again, 0 to 7, before the connection fails. On rxe,
    /// 7 is without end.
    pub retry_count: u8,
    /// The number of times that a peer sends a message again for which there is no buffer, 0 to 6; 7 is without end.
    pub rnr_retry_count: u8,
    /// The interval at which the group looks whether the peers of its members are still there, by an RDMA write
    /// without bytes for each of them; `None` for never. It looks while the program waits in
    /// [`wait`](super::PollGroup::wait) or polls.
    pub keep_alive_interval: Option<Duration>,
    #[doc(hidden)]
    pub non_exhaustive: NonExhaustive,
}

impl Default for PollGroupConfig {
    /// 1,024 buffers of 4 KiB for receiving and 512 for sending, 6.5 MiB of locked memory with those that iWARP has more (Linux
    /// allows 8 MiB by default, `ulimit -l`); 4 messages in flight and 64 messages held for each
    /// member, 1,024 members, 6 retries if the peer does not answer and no end of them if it has no buffer, and no
    /// keep-alive writes.
    fn default() -> Self {
        Self {
            receives: 1024,
            sends: 512,
            receive_buffer_size: 4096,
            send_buffer_size: 4096,
            sends_per_member: 4,
            max_held: 64,
            members: 1024,
            retry_count: 6,
            rnr_retry_count: 7,
            keep_alive_interval: None,
            non_exhaustive: NonExhaustive::default(),
        }
    }
}

impl PollGroupConfig {
    /// Checks what no group can have.
    pub(super) fn check(&self) -> Result<()> {
        let refused = |reason| Err(Error::invalid("create", "a poll group", reason));
        let counts = [self.receives, self.sends, self.sends_per_member, self.max_held];
        let sizes = [self.receive_buffer_size, self.send_buffer_size];
        if counts.contains(&0) || sizes.contains(&0) {
            return refused("a count or a size of buffers is 0; the smallest is 1");
        }
        if self.retry_count.max(self.rnr_retry_count) > MAX_RETRIES {
            return refused("a retry count exceeds the maximum of 7");
        }
        if self.keep_alive_interval == Some(Duration::ZERO) {
            return refused("the keep-alive interval is 0; the smallest is 1 ns");
        }
        Ok(())
    }

    /// Returns the number of buffers for receiving on a device that is an iWARP device or not.
    pub(super) fn posted_receives(&self, is_iwarp: bool) -> u32 {
        match is_iwarp {
            true => self.receives.saturating_add(RESERVED_RECEIVES.max(self.receives / 8)),
            false => self.receives,
        }
    }

    /// Returns the number of completions of sends that may wait at once if there are `members` members: each buffer
    /// may be in flight, and each member may have one request without a buffer in flight.
    pub(super) fn send_completions(&self, members: u32) -> u32 {
        self.sends.saturating_add(members)
    }

    /// Returns the number of requests that the send queue of a member holds.
    pub(super) fn send_queue_depth(&self) -> u32 {
        self.sends_per_member.min(self.sends).saturating_add(1)
    }

    /// Returns the parameters with which a member connects or is accepted. A member has no reads and no atomics.
    pub(super) fn param(&self, private_data: &[u8]) -> ConnParam {
        ConnParam {
            private_data: private_data.to_vec(),
            responder_resources: 0,
            initiator_depth: 0,
            retry_count: self.retry_count,
            rnr_retry_count: self.rnr_retry_count,
            ..ConnParam::default()
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn default_fits_linux_limit_of_locked_memory() {
        let config = PollGroupConfig::default();
        let bytes = |count: u32, size: usize| size * usize::try_from(count).expect("32 bits fit");
        let receives = bytes(config.posted_receives(true), config.receive_buffer_size);
        let sends = bytes(config.sends, config.send_buffer_size);
        assert!(receives + sends <= 7 << 20, "{} bytes of the 8 MiB", receives + sends);
    }

    #[test]
    fn impossible_parameters_are_refused() {
        let config = PollGroupConfig::default;
        config().check().expect("the default is possible");
        for refused in [
            PollGroupConfig { receives: 0, ..config() },
            PollGroupConfig { sends: 0, ..config() },
            PollGroupConfig { receive_buffer_size: 0, ..config() },
            PollGroupConfig { send_buffer_size: 0, ..config() },
            PollGroupConfig { sends_per_member: 0, ..config() },
            PollGroupConfig { max_held: 0, ..config() },
            PollGroupConfig { retry_count: 8, ..config() },
            PollGroupConfig { rnr_retry_count: 8, ..config() },
            PollGroupConfig { keep_alive_interval: Some(Duration::ZERO), ..config() },
        ] {
            refused.check().expect_err("no group has this");
        }
    }

    #[test]
    fn iwarp_group_has_reserve() {
        let posted = |receives, is_iwarp| {
            PollGroupConfig { receives, ..PollGroupConfig::default() }.posted_receives(is_iwarp)
        };
        assert_eq!([posted(1, true), posted(80, true), posted(80, false)], [3, 90, 80]);
        assert_eq!(posted(u32::MAX, true), u32::MAX);
    }

    #[test]
    fn completion_queue_has_room_for_all_sends() {
        let config = PollGroupConfig { sends: 10, ..PollGroupConfig::default() };
        assert_eq!([config.send_completions(0), config.send_completions(5)], [10, 15]);
        assert_eq!(config.send_completions(u32::MAX), u32::MAX);
    }
}
