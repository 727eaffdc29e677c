//! [`PollGroupConfig`], the configuration of a poll group.

use std::time::Duration;

use crate::cm::ConnParam;
#[cfg(doc)]
use crate::endpoint::Connector;
use crate::endpoint::core::RESERVED_RECEIVES;
#[cfg(doc)]
use crate::error::ErrorKind;
use crate::error::{Error, Result};

/// The largest number of retries that a connection may have.
const MAX_RETRIES: u8 = 7;

/// The configuration of a [`PollGroup`](super::PollGroup).
///
/// # Examples
///
/// ```
/// use rdmacm::endpoint::poll_group::PollGroupConfig;
///
/// PollGroupConfig::new().receive_buffers(4096).send_buffers(1024).max_held(16);
/// ```
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PollGroupConfig {
    pub(super) receive_buffers: u32,
    pub(super) send_buffers: u32,
    pub(super) receive_buffer_size: usize,
    pub(super) send_buffer_size: usize,
    pub(super) send_buffers_per_member: u32,
    pub(super) max_held: u32,
    pub(super) initial_members: u32,
    pub(super) retry_count: u8,
    pub(super) rnr_retry_count: u8,
    pub(super) keep_alive_interval: Option<Duration>,
}

impl Default for PollGroupConfig {
    fn default() -> Self {
        Self {
            receive_buffers: 1024,
            send_buffers: 512,
            receive_buffer_size: 4096,
            send_buffer_size: 4096,
            send_buffers_per_member: 4,
            max_held: 64,
            initial_members: 1024,
            retry_count: 6,
            rnr_retry_count: MAX_RETRIES,
            keep_alive_interval: None,
        }
    }
}

impl PollGroupConfig {
    /// Returns the default configuration. Each method documents the default of its parameter.
    ///
    /// Its buffers lock 6.5 MiB of memory, with the reserve for iWARP. Linux allows 8 MiB by default (`ulimit -l`).
    pub fn new() -> Self {
        Self::default()
    }

    /// Sets the number of receive buffers, which all members share, at least 1 \[default: 1024\].
    ///
    /// This many messages may arrive, or be held by the program, at once. A message that finds no buffer waits at the
    /// peer on InfiniBand and RoCE; on iWARP it ends its connection. On iWARP the group has an eighth more buffers, at
    /// least two.
    #[must_use]
    pub fn receive_buffers(mut self, count: u32) -> Self {
        self.receive_buffers = count;
        self
    }

    /// Sets the number of send buffers, which all members share, at least 1 \[default: 512\].
    ///
    /// This many messages may be in flight at once.
    #[must_use]
    pub fn send_buffers(mut self, count: u32) -> Self {
        self.send_buffers = count;
        self
    }

    /// Sets the size of each receive buffer in bytes, at least 1 \[default: 4096\].
    ///
    /// A longer message ends its connection.
    #[must_use]
    pub fn receive_buffer_size(mut self, bytes: usize) -> Self {
        self.receive_buffer_size = bytes;
        self
    }

    /// Sets the size of each send buffer in bytes, at least 1 \[default: 4096\].
    ///
    /// It limits the messages to peers.
    #[must_use]
    pub fn send_buffer_size(mut self, bytes: usize) -> Self {
        self.send_buffer_size = bytes;
        self
    }

    /// Sets the number of send buffers that one member may use at once, at least 1 \[default: 4\].
    #[must_use]
    pub fn send_buffers_per_member(mut self, count: u32) -> Self {
        self.send_buffers_per_member = count;
        self
    }

    /// Sets the maximum number of messages of a member that the program may hold \[default: 64\].
    ///
    /// The number is at least 1. Messages that wait for the program count too. One more message ends the member
    /// ([`ErrorKind::ReceiveOverrun`]), so that it cannot take the buffers of others.
    #[must_use]
    pub fn max_held(mut self, count: u32) -> Self {
        self.max_held = count;
        self
    }

    /// Sets the initial number of members for which the completion queue has room \[default: 1024\].
    ///
    /// More members are possible if the driver can resize a completion queue (siw cannot).
    #[must_use]
    pub fn initial_members(mut self, count: u32) -> Self {
        self.initial_members = count;
        self
    }

    /// Sets the number of retransmissions of an unacknowledged packet, 0 to 7 \[default: 6\].
    ///
    /// After them the connection fails.
    ///
    /// On rxe, 7 means unlimited.
    #[must_use]
    pub fn retry_count(mut self, count: u8) -> Self {
        self.retry_count = count;
        self
    }

    /// Sets the number of retries of a peer, 0 to 7, if there is no buffer for a message.
    ///
    /// 7 means unlimited, and is the default.
    #[must_use]
    pub fn rnr_retry_count(mut self, count: u8) -> Self {
        self.rnr_retry_count = count;
        self
    }

    /// Sets the interval of checks for the existence of the members' peers \[default: `None`\].
    ///
    /// Each check is an RDMA write without bytes. `None` disables the checks.
    ///
    /// The check runs while the program waits in [`wait`](super::PollGroup::wait) or polls.
    ///
    /// # Driver notes
    ///
    /// On iWARP, a member of [`connect`](super::PollGroup::connect) without an interval posts up to 8 RDMA writes
    /// without bytes, one every 100 ms. They make the peer's kernel process the first message, and end when a message
    /// of the peer arrives. With an interval there are none, so the first message may wait for the first check.
    #[must_use]
    pub fn keep_alive_interval(mut self, interval: Option<Duration>) -> Self {
        self.keep_alive_interval = interval;
        self
    }

    /// Checks that no number is out of range.
    pub(super) fn check(&self) -> Result<()> {
        let refused = |reason: String| Err(Error::invalid("create", "a poll group", reason));
        for (is_zero, name) in [
            (self.receive_buffers == 0, "receive_buffers"),
            (self.send_buffers == 0, "send_buffers"),
            (self.send_buffers_per_member == 0, "send_buffers_per_member"),
            (self.max_held == 0, "max_held"),
            (self.receive_buffer_size == 0, "receive_buffer_size"),
            (self.send_buffer_size == 0, "send_buffer_size"),
        ] {
            if is_zero {
                return refused(format!("{name} is 0; the smallest is 1"));
            }
        }
        for (count, name) in
            [(self.retry_count, "retry_count"), (self.rnr_retry_count, "rnr_retry_count")]
        {
            if count > MAX_RETRIES {
                return refused(format!("{name} {count} exceeds the maximum of {MAX_RETRIES}"));
            }
        }
        if self.keep_alive_interval == Some(Duration::ZERO) {
            return refused("the keep-alive interval is 0; the smallest is 1 ns".to_owned());
        }
        Ok(())
    }

    /// Returns the number of buffers for receiving on a device that is an iWARP device or not.
    pub(super) fn posted_receives(&self, is_iwarp: bool) -> u32 {
        match is_iwarp {
            true => {
                self.receive_buffers.saturating_add(RESERVED_RECEIVES.max(self.receive_buffers / 8))
            }
            false => self.receive_buffers,
        }
    }

    /// Returns the maximum number of unpolled completions of sends for `members` members.
    ///
    /// Each buffer may be in flight, and each member may have one request without a buffer in flight. In addition, a
    /// queue pair that was destroyed leaves completions whose buffers are free.
    pub(super) fn send_completions(&self, members: u32) -> u32 {
        self.send_buffers.saturating_add(members).saturating_add(self.send_queue_depth())
    }

    /// Returns the number of requests that the send queue of a member holds.
    pub(super) fn send_queue_depth(&self) -> u32 {
        self.send_buffers_per_member.min(self.send_buffers).saturating_add(1)
    }

    /// Returns the parameters with which a member connects or is accepted.
    ///
    /// A member supports no reads and no atomics.
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
mod tests;
