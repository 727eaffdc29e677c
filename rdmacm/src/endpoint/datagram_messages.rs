//! Sending and receiving datagrams.

use std::time::Duration;

use super::buffer::{Buffer, Message};
use super::core::Outgoing;
#[cfg(doc)]
use super::datagram_settings::DatagramSettings;
use super::datagrams::DatagramSocket;
#[cfg(doc)]
use super::group::Group;
use super::operation::Operation;
use super::peer::Peer;
use super::remote_operation::RemoteOperation;
use super::state::{Arrived, State};
use super::wait::WaitMode;
#[cfg(doc)]
use crate::error::ErrorKind;
use crate::error::Result;

impl DatagramSocket {
    /// A buffer to send; waits until there is one.
    ///
    /// There are [`DatagramSettings::send_buffers`], of [`mtu`](Self::mtu) bytes, which come back
    /// when their datagrams have been sent, and where they are dropped. What is in it is what it had
    /// last, or zero. Where a send has failed, this waits until the socket is set up again.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::Disconnected`] or [`ErrorKind::DeviceGone`] where the socket has ended;
    /// [`ErrorKind::WrongProcess`] after a fork.
    pub fn buffer(&self) -> Result<Buffer> {
        self.shared.take(WaitMode::BLOCKING)
    }

    /// The same, for at most `timeout`.
    ///
    /// # Errors
    ///
    /// As [`buffer`](Self::buffer), and [`ErrorKind::TimedOut`].
    pub fn buffer_timeout(&self, timeout: Duration) -> Result<Buffer> {
        self.shared.take(WaitMode::timeout(timeout))
    }

    /// The same, without waiting.
    ///
    /// # Errors
    ///
    /// As [`buffer`](Self::buffer), and [`ErrorKind::WouldBlock`].
    pub fn try_buffer(&self) -> Result<Buffer> {
        self.shared.take(WaitMode::NonBlocking)
    }

    /// Sends the datagram in `buffer` to `peer`, without waiting until that is done.
    ///
    /// The buffer goes back to the socket when it is. That it could not be sent is what the next
    /// [`flush`](Self::flush) says. There is always room for it, as there are no more buffers than
    /// that.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::Invalid`] for a buffer or a peer of another socket; ENOENT, for a peer that has
    /// sent a datagram, where the port has lost the address that it came to; ENOMEM;
    /// [`ErrorKind::Failed`] where a send has failed since this buffer was taken, and the socket is
    /// not set up again yet;
    /// [`ErrorKind::Disconnected`] or [`ErrorKind::DeviceGone`] where the socket has ended;
    /// [`ErrorKind::WrongProcess`] after a fork. The buffer goes back then.
    pub fn post_to(&self, buffer: Buffer, peer: &Peer) -> Result<()> {
        let operation = self.operation(&buffer, peer)?;
        self.shared.start(Operation::Send, buffer, operation)
    }

    /// Sends `bytes` to `peer` as a datagram, without waiting until that is done: copies them into a
    /// [buffer](Self::buffer), waiting until there is one, and [posts](Self::post_to) that, which is
    /// less work than both calls.
    ///
    /// # Errors
    ///
    /// The errors of [`buffer`](Self::buffer) and [`post_to`](Self::post_to); [`ErrorKind::Invalid`] with
    /// EMSGSIZE for more than [`mtu`](Self::mtu) bytes. Then, and where there is no buffer in time,
    /// nothing is sent.
    pub fn post_bytes_to(&self, bytes: &[u8], peer: &Peer) -> Result<()> {
        self.shared.post_bytes(bytes, self.send_to_peer(peer, None)?, WaitMode::BLOCKING)
    }

    /// Posts `bytes` as a datagram to `peer` if a buffer is free.
    ///
    /// # Errors
    ///
    /// As [`post_bytes_to`](Self::post_bytes_to), and [`ErrorKind::WouldBlock`] as of
    /// [`try_buffer`](Self::try_buffer).
    pub fn try_post_bytes_to(&self, bytes: &[u8], peer: &Peer) -> Result<()> {
        self.shared.post_bytes(bytes, self.send_to_peer(peer, None)?, WaitMode::NonBlocking)
    }

    /// Sends the datagram in `buffer` to `peer`, waits until the device has sent it, and returns the buffer. The datagram
    /// may be lost after that.
    ///
    /// # Errors
    ///
    /// The errors of [`post_to`](Self::post_to) and [`RemoteOperation::wait`].
    pub fn send_to(&self, buffer: Buffer, peer: &Peer) -> Result<Buffer> {
        self.start_send_to(buffer, peer)?.wait()
    }

    /// Posts the datagram in `buffer` to `peer` and returns the operation, which returns the buffer when the device has
    /// sent the datagram.
    ///
    /// # Errors
    ///
    /// The errors of [`post_to`](Self::post_to).
    pub fn start_send_to(&self, buffer: Buffer, peer: &Peer) -> Result<RemoteOperation<Buffer>> {
        let operation = self.operation(&buffer, peer)?;
        let length = buffer.capacity();
        let wanted = self.shared.start_wanted(Operation::Send, buffer, operation)?;
        Ok(RemoteOperation::posted(Operation::Send, wanted, length, |buffer| buffer))
    }

    /// What sends `buffer` to `peer`.
    pub(super) fn operation<'a>(&self, buffer: &Buffer, peer: &'a Peer) -> Result<Outgoing<'a>> {
        self.send_to_peer(peer, buffer.datagram_imm_data()?)
    }

    pub(super) fn send_to_peer<'a>(
        &self,
        peer: &'a Peer,
        imm_data: Option<u32>,
    ) -> Result<Outgoing<'a>> {
        let address = peer.address(Operation::Send.name(), &self.mark)?;
        Ok(Outgoing::Datagram { address, qp_num: peer.qp_num(), qkey: peer.qkey(), imm_data })
    }

    /// Waits until what was posted has been sent.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::Failed`], once, where something that was posted since the last call could not
    /// be sent; [`ErrorKind::Disconnected`] or [`ErrorKind::DeviceGone`] where the socket has ended
    /// before; [`ErrorKind::WrongProcess`] after a fork.
    pub fn flush(&self) -> Result<()> {
        self.shared.flush_with(WaitMode::BLOCKING)
    }

    /// The same, for at most `timeout`.
    ///
    /// # Errors
    ///
    /// As [`flush`](Self::flush), and [`ErrorKind::TimedOut`].
    pub fn flush_timeout(&self, timeout: Duration) -> Result<()> {
        self.shared.flush_with(WaitMode::timeout(timeout))
    }

    /// Whether what was posted has been sent.
    ///
    /// # Errors
    ///
    /// As [`flush`](Self::flush), and [`ErrorKind::WouldBlock`] where it has not.
    pub fn try_flush(&self) -> Result<()> {
        self.shared.flush_with(WaitMode::NonBlocking)
    }

    /// The next datagram, and who has sent it; waits for one. Dropping the message makes its buffer
    /// receive another one.
    ///
    /// The sender can be answered by sending to it, also where the datagram came to a group.
    ///
    /// # Errors
    ///
    /// Once for each [`Group`] that the network has taken the socket out of, what
    /// [`Group::check`] says; [`ErrorKind::Disconnected`] where the socket was
    /// [ended](Self::abort); [`ErrorKind::DeviceGone`]; [`ErrorKind::WrongProcess`] after a fork.
    #[doc(alias = "ibv_create_ah_from_wc")]
    pub fn recv_from(&self) -> Result<(Message, Peer)> {
        self.recv_with(WaitMode::BLOCKING)
    }

    /// The same, for at most `timeout`.
    ///
    /// # Errors
    ///
    /// As [`recv_from`](Self::recv_from), and [`ErrorKind::TimedOut`].
    pub fn recv_from_timeout(&self, timeout: Duration) -> Result<(Message, Peer)> {
        self.recv_with(WaitMode::timeout(timeout))
    }

    /// The same, without waiting.
    ///
    /// # Errors
    ///
    /// As [`recv_from`](Self::recv_from), and [`ErrorKind::WouldBlock`].
    pub fn try_recv_from(&self) -> Result<(Message, Peer)> {
        self.recv_with(WaitMode::NonBlocking)
    }

    fn recv_with(&self, mode: WaitMode) -> Result<(Message, Peer)> {
        let arrived = self.shared.wait_for(Operation::Receive, mode, State::datagram)??;
        Ok(self.received(arrived))
    }

    /// A datagram that has arrived, and who has sent it.
    pub(super) fn received(&self, mut arrived: Arrived) -> (Message, Peer) {
        let sender = arrived.sender.take().expect("a datagram has a sender").peer;
        (Message::new(arrived, &self.shared), sender)
    }
}
