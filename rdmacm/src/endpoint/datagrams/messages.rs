//! Resolving peers, and sending and receiving datagrams.

use std::net::SocketAddr;
use std::time::Duration;

use super::socket::DatagramSocket;
use crate::addr::Address;
#[cfg(doc)]
use crate::cm::CmId;
use crate::endpoint::core::Outgoing;
use crate::endpoint::core::operation::Operation;
#[cfg(doc)]
use crate::endpoint::datagram_config::DatagramConfig;
use crate::endpoint::memory::buffer::{Buffer, Message};
#[cfg(doc)]
use crate::endpoint::operations::multicast_group::MulticastGroup;
use crate::endpoint::operations::remote_operation::RemoteOperation;
use crate::endpoint::operations::resolving::Resolving;
use crate::endpoint::shared::datagram_peer::DatagramPeer;
use crate::endpoint::shared::state::{BufferedMessage, State};
use crate::endpoint::to_addresses::ToAddresses;
use crate::endpoint::wait::WaitMode;
#[cfg(doc)]
use crate::error::ErrorKind;
use crate::error::Result;

/// Resolving peers, and sending and receiving datagrams.
impl DatagramSocket {
    /// Starts to ask the program that listens at `address` for its queue pair.
    ///
    /// One answer is enough for any number of datagrams.
    ///
    /// If `address` names several addresses, the first of the socket's family is used. A name is looked up before this
    /// returns, which blocks. Resolve a peer again if it may have been restarted. Dropping the operation cancels it.
    ///
    /// Calls [`CmId::resolve_addr`], [`CmId::resolve_route`] and [`CmId::connect`] in the port space UDP, as
    /// `rdma_connect` in C does for datagrams.
    ///
    /// # Errors
    ///
    /// - [`ErrorKind::InvalidInput`] if `address` is of another family than the socket's.
    /// - [`ErrorKind::NameResolution`] if a name is not found.
    /// - [`ErrorKind::Disconnected`] or [`ErrorKind::DeviceRemoved`] if the socket has ended.
    /// - [`ErrorKind::NotOwner`] after a fork.
    ///
    /// Errors of the operation:
    /// - [`ErrorKind::Unreachable`] if no program listens at `address`, or if the peer refuses or does not answer
    ///   within a minute.
    /// - [`ErrorKind::TimedOut`] if the address or the route is not resolved within two seconds.
    ///
    /// # Examples
    ///
    /// ```no_run
    /// # fn f(socket: &rdmacm::endpoint::DatagramSocket) -> rdmacm::Result<()> {
    /// let peer = socket.start_resolve_peer("10.0.0.7:7174")?.wait()?;
    /// for text in ["first", "second"] {
    ///     socket.post_bytes_to(text.as_bytes(), &peer)?;
    /// }
    /// # Ok(())
    /// # }
    /// ```
    #[doc(alias = "rdma_connect")]
    pub fn start_resolve_peer(
        &self,
        address: impl ToAddresses,
    ) -> Result<RemoteOperation<DatagramPeer>> {
        Ok(Resolving::start(&self.shared, self.choose(&address.to_target().resolve()?))?.into())
    }

    /// Returns the first address of the family of the socket, or the first address if there is none.
    pub(in crate::endpoint) fn choose(&self, addresses: &[Address]) -> Address {
        let is_ipv4 = |address: Option<SocketAddr>| address.map(|address| address.is_ipv4());
        let has_same_family = |address: &&Address| is_ipv4(address.ip()) == is_ipv4(self.address);
        *addresses.iter().find(has_same_family).unwrap_or(&addresses[0])
    }

    /// Posts a copy of `bytes` as a datagram to `peer`, waiting until a buffer is free.
    ///
    /// This is less work than [`acquire_buffer`](Self::acquire_buffer) followed by
    /// [`post_send_to`](Self::post_send_to).
    ///
    /// # Errors
    ///
    /// If the call fails, nothing was sent. In addition to the errors of [`acquire_buffer`](Self::acquire_buffer) and
    /// [`post_send_to`](Self::post_send_to):
    /// - [`ErrorKind::InvalidInput`] with EMSGSIZE if `bytes` exceed [`mtu`](Self::mtu).
    ///
    /// # Examples
    ///
    /// ```no_run
    /// use rdmacm::endpoint::{DatagramPeer, DatagramSocket};
    ///
    /// # fn f(socket: &DatagramSocket, peers: &[DatagramPeer]) -> rdmacm::Result<()> {
    /// for peer in peers {
    ///     socket.post_bytes_to(b"hello", peer)?;
    /// }
    /// // Waits until all are sent. They may be lost after that.
    /// socket.flush()?;
    /// # Ok(())
    /// # }
    /// ```
    pub fn post_bytes_to(&self, bytes: &[u8], peer: &DatagramPeer) -> Result<()> {
        self.shared.post_bytes(bytes, self.send_to_peer(peer, None)?, WaitMode::BLOCKING)
    }

    /// Posts `bytes` as a datagram to `peer` if a buffer is free.
    ///
    /// # Errors
    ///
    /// In addition to the errors of [`post_bytes_to`](Self::post_bytes_to):
    /// - [`ErrorKind::WouldBlock`] if no buffer is free.
    pub fn try_post_bytes_to(&self, bytes: &[u8], peer: &DatagramPeer) -> Result<()> {
        self.shared.post_bytes(bytes, self.send_to_peer(peer, None)?, WaitMode::NonBlocking)
    }

    /// Waits for the next datagram, and returns it with its sender.
    ///
    /// Dropping the message posts its buffer again. A datagram to the sender reaches that socket alone, even if the
    /// received datagram was sent to a group.
    ///
    /// # Errors
    ///
    /// - The error of [`MulticastGroup::check_membership`], once for each group from which the network has removed the
    ///   socket.
    /// - [`ErrorKind::Disconnected`] if this side has [ended](Self::abort) the socket.
    /// - [`ErrorKind::DeviceRemoved`] if the device was removed.
    /// - [`ErrorKind::NotOwner`] after a fork.
    ///
    /// # Examples
    ///
    /// ```no_run
    /// # fn f(socket: &rdmacm::endpoint::DatagramSocket) -> rdmacm::Result<()> {
    /// let (message, sender) = socket.recv_from()?;
    /// println!("{} bytes of {sender:?}", message.len());
    /// socket.post_bytes_to(b"received", &sender)?;
    /// # Ok(())
    /// # }
    /// ```
    #[doc(alias = "ibv_create_ah_from_wc")]
    pub fn recv_from(&self) -> Result<(Message, DatagramPeer)> {
        self.recv_with(WaitMode::BLOCKING)
    }

    /// Waits at most `timeout` for the next datagram.
    ///
    /// # Errors
    ///
    /// In addition to the errors of [`recv_from`](Self::recv_from):
    /// - [`ErrorKind::TimedOut`] if `timeout` elapses.
    ///
    /// # Examples
    ///
    /// ```no_run
    /// use std::time::Duration;
    ///
    /// use rdmacm::ErrorKind;
    /// use rdmacm::endpoint::{DatagramPeer, DatagramSocket, Message};
    ///
    /// /// Asks `server` up to three times, because a question or an answer may be lost.
    /// fn ask(socket: &DatagramSocket, server: &DatagramPeer) -> rdmacm::Result<Option<Message>> {
    ///     for _ in 0..3 {
    ///         socket.post_bytes_to(b"what time is it?", server)?;
    ///         match socket.recv_from_timeout(Duration::from_secs(1)) {
    ///             Ok((answer, sender)) if sender == *server => return Ok(Some(answer)),
    ///             Ok(_) => {}
    ///             Err(error) if *error.kind() == ErrorKind::TimedOut => {}
    ///             Err(error) => return Err(error),
    ///         }
    ///     }
    ///     Ok(None)
    /// }
    /// ```
    pub fn recv_from_timeout(&self, timeout: Duration) -> Result<(Message, DatagramPeer)> {
        self.recv_with(WaitMode::timeout(timeout))
    }

    /// Returns the next datagram if one has arrived.
    ///
    /// # Errors
    ///
    /// In addition to the errors of [`recv_from`](Self::recv_from):
    /// - [`ErrorKind::WouldBlock`] if no datagram has arrived.
    pub fn try_recv_from(&self) -> Result<(Message, DatagramPeer)> {
        self.recv_with(WaitMode::NonBlocking)
    }

    fn recv_with(&self, mode: WaitMode) -> Result<(Message, DatagramPeer)> {
        let arrived = self.shared.wait_for(Operation::Receive, mode, State::datagram)??;
        Ok(self.received(arrived))
    }

    /// Returns a datagram that has arrived, and its sender.
    pub(in crate::endpoint) fn received(
        &self,
        mut arrived: BufferedMessage,
    ) -> (Message, DatagramPeer) {
        let sender = arrived.sender.take().expect("a datagram has a sender").peer;
        (Message::new(arrived, &self.shared), sender)
    }

    /// Takes a send buffer, waiting until one is free.
    ///
    /// There are [`DatagramConfig::send_buffers`] of them, of [`mtu`](Self::mtu) bytes. A buffer is free again when its
    /// datagram is sent, or when it is dropped. The result of a [`RemoteOperation`] that sends is its buffer, which
    /// stays in use until it is dropped or posted. A buffer holds the bytes of its last use, or zeros. After a failed
    /// send this waits until the queue pair is reset.
    ///
    /// # Errors
    ///
    /// - [`ErrorKind::Disconnected`] or [`ErrorKind::DeviceRemoved`] if the socket has ended.
    /// - [`ErrorKind::NotOwner`] after a fork.
    ///
    /// # Examples
    ///
    /// ```no_run
    /// use rdmacm::endpoint::{DatagramPeer, DatagramSocket};
    ///
    /// # fn f(socket: &DatagramSocket, peer: &DatagramPeer) -> rdmacm::Result<()> {
    /// let mut buffer = socket.acquire_buffer()?;
    /// buffer.set_len(8)?;
    /// buffer.copy_from_slice(&7_u64.to_be_bytes());
    /// socket.post_send_to(buffer, peer)?;
    /// # Ok(())
    /// # }
    /// ```
    pub fn acquire_buffer(&self) -> Result<Buffer> {
        self.shared.take(WaitMode::BLOCKING)
    }

    /// Takes a send buffer, waiting at most `timeout` until one is free.
    ///
    /// # Errors
    ///
    /// In addition to the errors of [`acquire_buffer`](Self::acquire_buffer):
    /// - [`ErrorKind::TimedOut`] if `timeout` elapses.
    pub fn acquire_buffer_timeout(&self, timeout: Duration) -> Result<Buffer> {
        self.shared.take(WaitMode::timeout(timeout))
    }

    /// Takes a send buffer if one is free.
    ///
    /// # Errors
    ///
    /// In addition to the errors of [`acquire_buffer`](Self::acquire_buffer):
    /// - [`ErrorKind::WouldBlock`] if no buffer is free.
    pub fn try_acquire_buffer(&self) -> Result<Buffer> {
        self.shared.take(WaitMode::NonBlocking)
    }

    /// Posts the datagram in `buffer` to `peer` without waiting until it is sent.
    ///
    /// The buffer returns to the socket when the datagram is sent. There is always room for the datagram, because the
    /// socket has no more buffers than its send queue has entries. If the datagram cannot be sent, the next
    /// [`flush`](Self::flush) returns the error.
    ///
    /// # Errors
    ///
    /// If the call fails, the buffer returns to the socket too.
    /// - [`ErrorKind::InvalidInput`] if `buffer` or `peer` belongs to another socket.
    /// - ENOENT if `peer` has sent a datagram to an address that the port no longer has.
    /// - ENOMEM if the kernel cannot create the address handle.
    /// - [`ErrorKind::WorkRequestFailed`] if a send has failed since the buffer was taken, and the queue pair is not
    ///   reset yet.
    /// - [`ErrorKind::Disconnected`] or [`ErrorKind::DeviceRemoved`] if the socket has ended.
    /// - [`ErrorKind::NotOwner`] after a fork.
    pub fn post_send_to(&self, buffer: Buffer, peer: &DatagramPeer) -> Result<()> {
        let operation = self.operation(&buffer, peer)?;
        self.shared.start(Operation::Send, buffer, operation)
    }

    /// Starts to send the datagram in `buffer` to `peer`; the operation returns the buffer when it is sent.
    ///
    /// The datagram may be lost after that.
    ///
    /// # Errors
    ///
    /// The errors of [`post_send_to`](Self::post_send_to).
    pub fn start_send_to(
        &self,
        buffer: Buffer,
        peer: &DatagramPeer,
    ) -> Result<RemoteOperation<Buffer>> {
        let operation = self.operation(&buffer, peer)?;
        let length = buffer.capacity();
        let awaited_send = self.shared.post_awaited(Operation::Send, buffer, operation)?;
        Ok(RemoteOperation::posted(Operation::Send, awaited_send, length, |buffer| buffer))
    }

    /// Returns the operation that sends `buffer` to `peer`.
    pub(in crate::endpoint) fn operation<'a>(
        &self,
        buffer: &Buffer,
        peer: &'a DatagramPeer,
    ) -> Result<Outgoing<'a>> {
        self.send_to_peer(peer, buffer.datagram_imm_data()?)
    }

    pub(in crate::endpoint) fn send_to_peer<'a>(
        &self,
        peer: &'a DatagramPeer,
        imm_data: Option<u32>,
    ) -> Result<Outgoing<'a>> {
        let address = peer.address(Operation::Send.name(), &self.socket_id)?;
        Ok(Outgoing::Datagram { address, qp_num: peer.qp_num(), qkey: peer.qkey(), imm_data })
    }

    /// Waits until every posted datagram is sent.
    ///
    /// # Errors
    ///
    /// - [`ErrorKind::WorkRequestFailed`], once, if a datagram that was posted since the last call was not sent.
    /// - [`ErrorKind::Disconnected`] or [`ErrorKind::DeviceRemoved`] if the socket ended before.
    /// - [`ErrorKind::NotOwner`] after a fork.
    pub fn flush(&self) -> Result<()> {
        self.shared.flush_with(WaitMode::BLOCKING)
    }

    /// Waits at most `timeout` until every posted datagram is sent.
    ///
    /// # Errors
    ///
    /// In addition to the errors of [`flush`](Self::flush):
    /// - [`ErrorKind::TimedOut`] if `timeout` elapses.
    pub fn flush_timeout(&self, timeout: Duration) -> Result<()> {
        self.shared.flush_with(WaitMode::timeout(timeout))
    }

    /// Returns `Ok` if every posted datagram is sent.
    ///
    /// # Errors
    ///
    /// In addition to the errors of [`flush`](Self::flush):
    /// - [`ErrorKind::WouldBlock`] if a datagram is in flight.
    pub fn try_flush(&self) -> Result<()> {
        self.shared.flush_with(WaitMode::NonBlocking)
    }
}
