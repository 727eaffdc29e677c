//! What a connection is to have.

use std::time::Duration;

#[cfg(doc)]
use super::{Connector, Incoming, RegisteredMemory};
use crate::cm::ConnParam;
#[cfg(doc)]
use crate::error::ErrorKind;
use crate::error::{Error, Result};
use crate::non_exhaustive::NonExhaustive;
use crate::verbs::{Context, ProtectionDomain, QueuePairCaps};

/// What the three bits for a number of retries hold.
const MOST_RETRIES: u8 = 7;

/// What this side of a connection is to have: for [`Connector::settings`] and [`Incoming::accept`].
///
/// Made from its default: see [Parameters](crate#parameters).
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Settings {
    /// Buffers for sending: as many messages may be under way, or in the program's hands.
    pub send_buffers: u32,
    /// Buffers for receiving: as many messages may arrive before the program looks at them. A
    /// message that finds none waits at the peer, which tries again
    /// ([`rnr_retry_count`](Self::rnr_retry_count)).
    ///
    /// On iWARP it ends the connection, and the kernel does not say that this was why. The two programs
    /// have to agree there on how many messages may be under way, and there are two buffers more than
    /// this number: one for the message of a peer that has been answered while the program still holds
    /// what it has answered, and one so that a peer which keeps to the number never has all. Where it
    /// may have had all of them when it ended the connection, receiving fails with [`ErrorKind::Overrun`]
    /// after the last message: what is lost for want of a buffer does not go unnoticed, but there may
    /// have been no loss. Of the requests that a receive queue of the device holds two are for these.
    pub receive_buffers: u32,
    /// Bytes of each buffer for sending, and so of the longest message, read or write of this side. The peer's
    /// [`receive_buffer_size`](Self::receive_buffer_size) has to be at least as long as what is sent. An atomic operation
    /// needs 8 bytes for its answer.
    pub send_buffer_size: usize,
    /// Bytes of each buffer for receiving, and so of the longest message that the peer may send: a longer one ends the
    /// connection.
    pub receive_buffer_size: usize,
    /// RDMA reads and atomics from the peer that this side holds at once; [`ConnParam::MAX`] for
    /// what the device can.
    pub responder_resources: u8,
    /// RDMA reads and atomics that this side has outstanding; [`ConnParam::MAX`] for what the
    /// device can and the peer offers. Where the peer holds none, or this is 0, there are none at all. Who
    /// accepts with another number than that is refused where the peer offers less:
    /// [`Incoming::param`].
    pub initiator_depth: u8,
    /// How often an unacknowledged packet is sent again, 0 to 7, before the connection fails. What
    /// the side that connects says holds for both. 7 is without end on rxe: what is posted then
    /// never fails where the peer is gone.
    pub retry_count: u8,
    /// How often the peer sends again a message for which there is no buffer here, 0 to 6; 7 is
    /// without end.
    pub rnr_retry_count: u8,
    /// How often this side looks whether an idle peer is there still, with an RDMA write without
    /// bytes, which the peer's program does not notice; `None` for not at all, as it is without
    /// this: that an idle peer has died is not heard of. (But see [`Connector::connect`] of iWARP.)
    ///
    /// Nobody does it in the background: it is done while a thread waits in a call of the
    /// connection, and by the calls that do not wait, when an event loop tries again because the
    /// [descriptor](super::Connection#waiting) became readable, as it does for this too. A peer
    /// that does not answer ends the connection as a message to it would: on InfiniBand and RoCE
    /// with [`ErrorKind::Failed`] after [`retry_count`](Self::retry_count); on iWARP when TCP gives
    /// up, after about 15 minutes (`net.ipv4.tcp_retries2`), as if the peer had ended it.
    ///
    /// Takes nothing from messages: there is a place more in the send queue for it.
    pub keep_alive: Option<Duration>,
    /// How long a call that waits polls before it sleeps: saves the sleep, and what it takes to
    /// wake, where something comes within that time, for a processor that has nothing else to do
    /// meanwhile: this is for microseconds. Of the end of the connection it hears, and it keeps alive,
    /// every thousandth time that it polls or so. Calls with `try_` in their names do not wait, and do
    /// not poll longer.
    #[doc(alias = "SO_BUSY_POLL")]
    pub busy_poll: Duration,
    /// The protection domain of the connection, for memory that several connections share
    /// ([`RegisteredMemory`]); `None` for one of its own.
    ///
    /// It belongs to the device of the connection. A connection over another device fails with
    /// [`ErrorKind::Invalid`]. A peer that knows or guesses a key can reach memory that was exported to the peer of any
    /// connection of the protection domain.
    pub protection_domain: Option<ProtectionDomain>,
    #[doc(hidden)]
    pub non_exhaustive: NonExhaustive,
}

impl Default for Settings {
    /// Sixteen buffers each way, of 4 KiB; all the depth there is; 6 retries where nobody answers,
    /// and no end of them where the peer has no buffer; nothing that keeps it alive, and no polling
    /// before sleeping.
    fn default() -> Self {
        Self {
            send_buffers: 16,
            receive_buffers: 16,
            send_buffer_size: 4096,
            receive_buffer_size: 4096,
            responder_resources: ConnParam::MAX,
            initiator_depth: ConnParam::MAX,
            retry_count: 6,
            rnr_retry_count: 7,
            keep_alive: None,
            busy_poll: Duration::ZERO,
            protection_domain: None,
            non_exhaustive: NonExhaustive::default(),
        }
    }
}

impl Settings {
    /// That there is something of everything.
    pub(super) fn check(&self) -> Result<()> {
        let sizes = [self.send_buffer_size, self.receive_buffer_size];
        if self.send_buffers == 0 || self.receive_buffers == 0 || sizes.contains(&0) {
            let reason = "there must be a buffer for each direction, and a byte in it";
            return Err(Error::invalid("make", "a connection", reason));
        }
        if self.retry_count.max(self.rnr_retry_count) > MOST_RETRIES {
            let reason = "it tries again at most 7 times, which is without end";
            return Err(Error::invalid("make", "a connection", reason));
        }
        if self.keep_alive == Some(Duration::ZERO) {
            let reason = "what keeps it alive takes some time in between";
            return Err(Error::invalid("make", "a connection", reason));
        }
        Ok(())
    }

    /// Returns the protection domain of a connection over the device of `context`.
    pub(super) fn pd(&self, context: &Context) -> Result<ProtectionDomain> {
        match &self.protection_domain {
            None => ProtectionDomain::new(context),
            Some(pd) if pd.context() == context => Ok(pd.clone()),
            Some(pd) => {
                let name = |context: &Context| context.device().name().to_owned();
                let reason = format!("the protection domain is of {}", name(pd.context()));
                Err(Error::invalid("make", format!("a connection over {}", name(context)), reason))
            }
        }
    }

    /// How many requests may be in the send queue.
    pub(super) fn sends(&self) -> u32 {
        self.send_buffers.saturating_add(u32::from(self.keep_alive.is_some()))
    }

    /// With so many requests in the receive queue.
    pub(super) fn caps(&self, receives: u32) -> QueuePairCaps {
        QueuePairCaps {
            max_send_wr: self.sends(),
            max_recv_wr: receives,
            ..QueuePairCaps::default()
        }
    }

    pub(super) fn param(&self, private_data: &[u8]) -> ConnParam {
        ConnParam {
            private_data: private_data.to_vec(),
            responder_resources: self.responder_resources,
            initiator_depth: self.initiator_depth,
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
    fn what_cannot_be_is_refused() {
        let settings = Settings::default;
        settings().check().expect("the default can be");
        for none in [
            Settings { send_buffers: 0, ..settings() },
            Settings { receive_buffers: 0, ..settings() },
            Settings { send_buffer_size: 0, ..settings() },
            Settings { receive_buffer_size: 0, ..settings() },
        ] {
            none.check().expect_err("there should be a buffer with a byte");
        }
        for retries in [7, 8, u8::MAX] {
            for with in [
                Settings { retry_count: retries, ..settings() },
                Settings { rnr_retry_count: retries, ..settings() },
            ] {
                assert_eq!(with.check().is_ok(), retries == 7, "{with:?}");
            }
        }
    }
}
