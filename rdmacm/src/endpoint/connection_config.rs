//! [`ConnectionConfig`], the configuration of one side of a connection.

use std::time::Duration;

use crate::cm::ConnParam;
#[cfg(doc)]
use crate::endpoint::{Connector, Incoming, RegisteredMemory};
#[cfg(doc)]
use crate::error::ErrorKind;
use crate::error::{Error, Result};
use crate::verbs::{Context, ProtectionDomain, QueuePairCaps};

/// The largest number of retries, which three bits of a connection request hold.
const MAX_RETRIES: u8 = 7;

/// The configuration of one side of a connection, for [`Connector::config`] and [`Incoming::accept`].
///
/// # Examples
///
/// ```
/// use std::time::Duration;
///
/// use rdmacm::endpoint::{ConnectionConfig, Connector};
///
/// let config = ConnectionConfig::new()
///     .receive_buffers(64)
///     .receive_buffer_size(64 * 1024)
///     .keep_alive_interval(Some(Duration::from_secs(10)));
/// let connector = Connector::new().config(config);
/// ```
///
/// A value out of range is reported when a connection is created: connecting or accepting fails with
/// [`ErrorKind::InvalidInput`].
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ConnectionConfig {
    pub(super) send_buffers: u32,
    pub(super) receive_buffers: u32,
    pub(super) send_buffer_size: usize,
    pub(super) receive_buffer_size: usize,
    pub(super) responder_resources: u8,
    pub(super) initiator_depth: u8,
    pub(super) retry_count: u8,
    pub(super) rnr_retry_count: u8,
    pub(super) keep_alive_interval: Option<Duration>,
    pub(super) busy_poll: Duration,
    pub(super) protection_domain: Option<ProtectionDomain>,
}

impl Default for ConnectionConfig {
    fn default() -> Self {
        Self {
            send_buffers: 16,
            receive_buffers: 16,
            send_buffer_size: 4096,
            receive_buffer_size: 4096,
            responder_resources: ConnParam::DEVICE_MAX,
            initiator_depth: ConnParam::DEVICE_MAX,
            retry_count: 6,
            rnr_retry_count: MAX_RETRIES,
            keep_alive_interval: None,
            busy_poll: Duration::ZERO,
            protection_domain: None,
        }
    }
}

impl ConnectionConfig {
    /// Returns the default configuration. Each method documents the default of its parameter.
    pub fn new() -> Self {
        Self::default()
    }

    /// Sets the number of send buffers, at least 1 \[default: 16\].
    ///
    /// A buffer is in use from [`acquire_buffer`](crate::endpoint::Connection::acquire_buffer) until its message is
    /// sent, or until the buffer is dropped. The buffer of a [`RemoteOperation`](crate::endpoint::RemoteOperation) is
    /// in use at least until the operation has completed; the result of a send, a write or a read is the buffer. So
    /// this many messages may be in flight or held by the program.
    ///
    /// # Examples
    ///
    /// ```
    /// use rdmacm::endpoint::ConnectionConfig;
    ///
    /// // A client with up to 128 requests in flight.
    /// let config = ConnectionConfig::new().send_buffers(128);
    /// ```
    #[must_use]
    pub fn send_buffers(mut self, count: u32) -> Self {
        self.send_buffers = count;
        self
    }

    /// Sets the number of receive buffers, at least 1 \[default: 16\].
    ///
    /// This many messages may arrive before the program takes them. On InfiniBand and RoCE a message that finds no
    /// buffer waits at the peer, which sends it again: see [`rnr_retry_count`](Self::rnr_retry_count).
    ///
    /// # Examples
    ///
    /// ```
    /// use rdmacm::endpoint::ConnectionConfig;
    ///
    /// // A server whose clients have up to 128 requests in flight each.
    /// let config = ConnectionConfig::new().receive_buffers(128);
    /// ```
    ///
    /// # Driver notes
    ///
    /// On iWARP, a message that finds no buffer ends the connection, and the kernel does not report the reason. The two
    /// programs have to agree on the number of messages that may be in flight. The connection has two more buffers than
    /// `count`. One is for the next message of a peer whose previous message the program has answered but still holds.
    /// With the other one, a peer that respects the limit never uses all buffers. If a peer may have used all of them
    /// when it ended the connection, receiving fails with [`ErrorKind::ReceiveOverrun`] after the last message. In this
    /// case possibly no message was lost.
    #[must_use]
    pub fn receive_buffers(mut self, count: u32) -> Self {
        self.receive_buffers = count;
        self
    }

    /// Sets the size of each send buffer in bytes, at least 1 \[default: 4096\].
    ///
    /// It limits the messages, reads and writes of this side. A message must also fit into the peer's
    /// [`receive_buffer_size`](Self::receive_buffer_size). An atomic operation needs 8 bytes for its result.
    ///
    /// # Examples
    ///
    /// ```
    /// use rdmacm::endpoint::ConnectionConfig;
    ///
    /// // Short requests, and long answers.
    /// let config = ConnectionConfig::new().send_buffer_size(256).receive_buffer_size(64 * 1024);
    /// ```
    #[must_use]
    pub fn send_buffer_size(mut self, bytes: usize) -> Self {
        self.send_buffer_size = bytes;
        self
    }

    /// Sets the size of each receive buffer in bytes, at least 1 \[default: 4096\].
    ///
    /// A longer message of the peer ends the connection.
    ///
    /// # Examples
    ///
    /// ```
    /// use rdmacm::endpoint::ConnectionConfig;
    ///
    /// // A server that receives short requests, and sends long answers.
    /// let config = ConnectionConfig::new().receive_buffer_size(256).send_buffer_size(64 * 1024);
    /// ```
    #[must_use]
    pub fn receive_buffer_size(mut self, bytes: usize) -> Self {
        self.receive_buffer_size = bytes;
        self
    }

    /// Sets the number of RDMA reads and atomics of the peer that this side serves at once.
    ///
    /// \[default: [`ConnParam::DEVICE_MAX`], the maximum of the device\]
    ///
    /// # Examples
    ///
    /// ```
    /// use rdmacm::endpoint::ConnectionConfig;
    ///
    /// // The peer may neither read memory of this side nor use atomic operations.
    /// let config = ConnectionConfig::new().responder_resources(0);
    /// ```
    #[must_use]
    pub fn responder_resources(mut self, count: u8) -> Self {
        self.responder_resources = count;
        self
    }

    /// Sets the number of RDMA reads and atomics that this side has in flight at once.
    ///
    /// \[default: [`ConnParam::DEVICE_MAX`], the maximum of the device that the peer also offers\]
    ///
    /// With 0, or if the peer offers none, this side cannot read or use atomic operations. An accept with another
    /// number fails if the peer offers less: see [`Incoming::conn_param`].
    ///
    /// # Examples
    ///
    /// ```
    /// use rdmacm::endpoint::ConnectionConfig;
    ///
    /// // A server that never reads from its clients accepts any offer.
    /// let config = ConnectionConfig::new().initiator_depth(0);
    /// ```
    #[must_use]
    pub fn initiator_depth(mut self, count: u8) -> Self {
        self.initiator_depth = count;
        self
    }

    /// Sets the number of retransmissions of an unacknowledged packet, 0 to 7 \[default: 6\].
    ///
    /// After them the connection fails.
    ///
    /// The number of the connecting side counts for both. On rxe, 7 means unlimited: requests then never fail, even if
    /// the peer no longer exists.
    ///
    /// # Examples
    ///
    /// ```
    /// use rdmacm::endpoint::ConnectionConfig;
    ///
    /// // Detects sooner that the peer no longer answers.
    /// let config = ConnectionConfig::new().retry_count(3);
    /// ```
    #[must_use]
    pub fn retry_count(mut self, count: u8) -> Self {
        self.retry_count = count;
        self
    }

    /// Sets the number of retries of the peer, 0 to 7, if this side has no buffer \[default: 7\].
    ///
    /// 7 means unlimited.
    ///
    /// # Examples
    ///
    /// ```
    /// use rdmacm::endpoint::ConnectionConfig;
    ///
    /// // A message that finds no buffer is sent again at most three times.
    /// let config = ConnectionConfig::new().rnr_retry_count(3);
    /// ```
    #[must_use]
    pub fn rnr_retry_count(mut self, count: u8) -> Self {
        self.rnr_retry_count = count;
        self
    }

    /// Sets the interval of checks for the existence of an idle peer \[default: `None`\].
    ///
    /// `None` disables the check.
    ///
    /// The check is an RDMA write without bytes, which the peer's program does not notice. Without it this side does
    /// not detect that an idle peer has died, except after [`Connector::connect`] on iWARP.
    ///
    /// The library has no background thread. The check runs while a thread or a task waits in a call of the connection,
    /// and in `try_` calls: the [descriptor](crate::endpoint::Connection#waiting) becomes readable when a check is due.
    /// If the peer does not answer, the connection ends as it would after a message. On InfiniBand and RoCE it ends
    /// with [`ErrorKind::WorkRequestFailed`] after [`retry_count`](Self::retry_count). On iWARP it ends as if the peer
    /// had closed it, when TCP gives up after about 15 minutes (`net.ipv4.tcp_retries2`).
    ///
    /// The send queue has one more entry for the check, so that messages lose none.
    ///
    /// # Examples
    ///
    /// ```
    /// use std::time::Duration;
    ///
    /// use rdmacm::endpoint::ConnectionConfig;
    ///
    /// let config = ConnectionConfig::new().keep_alive_interval(Some(Duration::from_secs(10)));
    /// ```
    ///
    /// # Driver notes
    ///
    /// On iWARP, a connection of [`Connector::connect`] without an interval posts up to 8 RDMA writes without bytes,
    /// one every 100 ms. They make the peer's kernel process the first message, and end when a message of the peer
    /// arrives. With an interval there are none, so the first message may wait for the first check.
    #[must_use]
    pub fn keep_alive_interval(mut self, interval: Option<Duration>) -> Self {
        self.keep_alive_interval = interval;
        self
    }

    /// Sets how long a call polls before it sleeps \[default: 0\].
    ///
    /// Polling saves the system calls of sleeping and waking if a completion arrives within this time, and occupies a
    /// processor meanwhile: choose some microseconds. About every thousandth poll also checks the events of the
    /// connection. `try_` calls do not poll longer.
    ///
    /// # Examples
    ///
    /// ```
    /// use std::time::Duration;
    ///
    /// use rdmacm::endpoint::ConnectionConfig;
    ///
    /// // For a thread with a processor of its own.
    /// let config = ConnectionConfig::new().busy_poll(Duration::from_micros(50));
    /// ```
    #[doc(alias = "SO_BUSY_POLL")]
    #[must_use]
    pub fn busy_poll(mut self, time: Duration) -> Self {
        self.busy_poll = time;
        self
    }

    /// Sets the protection domain of the connection \[default: `None`\].
    ///
    /// Connections of one protection domain can share memory ([`RegisteredMemory`]). `None` creates a separate
    /// protection domain.
    ///
    /// A connection over a device other than that of the protection domain fails with [`ErrorKind::InvalidInput`]. A
    /// peer that knows or guesses a key can access memory that was exported to the peer of any connection of the
    /// protection domain.
    ///
    /// # Examples
    ///
    /// ```no_run
    /// use rdmacm::endpoint::{Connection, ConnectionConfig, Connector};
    ///
    /// /// Connects to a second server, over the device and the protection domain of `first`.
    /// fn connect_second(first: &Connection, server: &str) -> rdmacm::Result<Connection> {
    ///     let pd = first.protection_domain()?;
    ///     let config = ConnectionConfig::new().protection_domain(Some(pd));
    ///     Connector::new().config(config).connect(server)
    /// }
    /// ```
    #[must_use]
    pub fn protection_domain(mut self, pd: Option<ProtectionDomain>) -> Self {
        self.protection_domain = pd;
        self
    }

    /// Checks that there is a buffer for each direction and that no number is out of range.
    pub(super) fn check(&self) -> Result<()> {
        let refused = |reason: String| Err(Error::invalid("create", "a connection", reason));
        for (count, name) in [(self.send_buffers, "send"), (self.receive_buffers, "receive")] {
            if count == 0 {
                return refused(format!("the number of {name} buffers is 0; the smallest is 1"));
            }
        }
        let (send, receive) = (self.send_buffer_size, self.receive_buffer_size);
        for (size, name) in [(send, "send"), (receive, "receive")] {
            if size == 0 {
                return refused(format!(
                    "the size of a {name} buffer is 0; the smallest is 1 byte"
                ));
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

    /// Returns the protection domain of a connection over the device of `context`.
    pub(super) fn pd(&self, context: &Context) -> Result<ProtectionDomain> {
        match &self.protection_domain {
            None => ProtectionDomain::new(context),
            Some(pd) if pd.context() == context => Ok(pd.clone()),
            Some(pd) => {
                let name = |context: &Context| context.device().name().to_owned();
                let reason = format!("the protection domain is of {}", name(pd.context()));
                Err(Error::invalid(
                    "create",
                    format!("a connection over {}", name(context)),
                    reason,
                ))
            }
        }
    }

    /// Returns the number of entries of the send queue.
    pub(super) fn sends(&self) -> u32 {
        self.send_buffers.saturating_add(u32::from(self.keep_alive_interval.is_some()))
    }

    /// Returns the capacities of a queue pair whose receive queue has `receives` entries.
    pub(super) fn caps(&self, receives: u32) -> QueuePairCaps {
        QueuePairCaps {
            max_send_wr: self.sends(),
            max_recv_wr: receives,
            ..QueuePairCaps::default()
        }
    }

    /// Returns the parameters with which this side connects or accepts.
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
mod tests;
