//! [`DatagramSocket`], which sends and receives datagrams, for tasks.

use std::net::SocketAddr;
use std::sync::Arc;

use super::blocking_pool::{DropOnBlockingPool, run_blocking};
use super::default_runtime::default_runtime;
use super::failure::{canceled, refused};
use super::multicast_group::MulticastGroup;
use super::runtime::{ProcessRuntime, Runtime};
use super::sending::{complete, post_bytes};
use super::waiting::wait_for;
use super::watch::Watch;
use crate::addr::Address;
#[cfg(doc)]
use crate::cm::CmId;
use crate::cm::Membership;
use crate::endpoint::core::EndReason;
use crate::endpoint::memory::buffer::{Buffer, Message};
use crate::endpoint::operations::multicast_group::Joining;
use crate::endpoint::operations::resolving::Resolving;
use crate::endpoint::shared::state::State;
use crate::endpoint::shared::{Operation, Shared};
use crate::endpoint::to_addresses::ToAddresses;
use crate::endpoint::{self, DatagramConfig, DatagramPeer, EndpointStats};
#[cfg(doc)]
use crate::error::ErrorKind;
use crate::error::Result;

/// A socket for datagrams, which are messages without a connection, for tasks.
///
/// Datagrams may be lost or reordered, and can be [multicast](Self::join_multicast). As with a `UdpSocket`, one socket
/// communicates with many others. Its datagrams go to a [`DatagramPeer`], which is [resolved](Self::resolve_peer) once
/// or [received](Self::recv_from), instead of an address.
///
/// Created by [`bind`](Self::bind). All methods take `&self` and may be called by any task at any time, so an [`Arc`]
/// shares the socket. If several tasks receive, each datagram is delivered to one of them. Apart from waiting, it
/// behaves as an [`endpoint::DatagramSocket`], which is documented in more detail:
/// [peers](endpoint::DatagramSocket#peers) and [loss](endpoint::DatagramSocket#loss).
///
/// # Examples
///
/// A server that sends every datagram back, on Tokio (feature `tokio`):
///
#[cfg_attr(feature = "tokio", doc = "```no_run")]
#[cfg_attr(not(feature = "tokio"), doc = "```text")]
/// use rdmacm::endpoint::{DatagramConfig, task::DatagramSocket};
///
/// #[tokio::main(flavor = "current_thread")]
/// async fn main() -> rdmacm::Result<()> {
///     let socket = DatagramSocket::bind("10.0.0.7:7174", &DatagramConfig::default()).await?;
///     loop {
///         let (message, sender) = socket.recv_from().await?;
///         socket.post_bytes_to(&message, &sender).await?;
///     }
/// }
/// ```
///
/// A client. An answer may be lost, so it waits with a timeout:
///
#[cfg_attr(feature = "tokio", doc = "```no_run")]
#[cfg_attr(not(feature = "tokio"), doc = "```text")]
/// use std::{error::Error, time::Duration};
///
/// use rdmacm::endpoint::{DatagramConfig, task::DatagramSocket};
/// use tokio::time;
///
/// async fn ask() -> Result<(), Box<dyn Error>> {
///     let socket = DatagramSocket::bind("10.0.0.1:0", &DatagramConfig::default()).await?;
///     let server = socket.resolve_peer("10.0.0.7:7174").await?;
///     socket.post_bytes_to(b"who is there?", &server).await?;
///     let (answer, sender) = time::timeout(Duration::from_secs(1), socket.recv_from()).await??;
///     println!("{sender:?} sent {:?}", &*answer);
///     Ok(())
/// }
/// ```
///
/// # Waiting
///
/// Dropping the future of a call ends its wait; the section "Cancel safety" of each call describes the effect. Peers
/// that resolve the socket are answered while a task waits in one of its calls, for example in
/// [`recv_from`](Self::recv_from).
///
/// # Closing
///
/// Dropping the socket is [`abort`](Self::abort) without waiting for it. Posted datagrams that are not sent yet are
/// lost, unless the program awaits [`flush`](Self::flush) before.
#[derive(Debug)]
pub struct DatagramSocket {
    // Declared first: the runtime forgets the descriptor before it is closed.
    watch: Watch,
    socket: DropOnBlockingPool<endpoint::DatagramSocket>,
}

impl DatagramSocket {
    /// Binds a socket to a local address, on the [default runtime](super#runtimes).
    ///
    /// The address selects the device, so it cannot be the unspecified one. With port 0 the kernel chooses a port,
    /// which [`local_addr`](Self::local_addr) returns. If `address` names several addresses, the first that the socket
    /// can be bound to is used. The socket answers peers that [resolve](Self::resolve_peer) its address.
    ///
    /// # Errors
    ///
    /// - [`ErrorKind::Unsupported`] on iWARP, which has no datagrams, and if there is no default runtime.
    /// - [`ErrorKind::InvalidInput`] for the unspecified address, and if `config` has no buffer.
    /// - ENODEV if no device has the address, EADDRNOTAVAIL if this machine does not have it.
    /// - EADDRINUSE if the port is in use.
    /// - EINVAL or ENOMEM if `config` exceeds the limits of the device.
    /// - The errors of [`from_blocking_with`](Self::from_blocking_with), and ECANCELED if the runtime ends.
    ///
    /// # Cancel safety
    ///
    /// If the future is dropped, the socket is destroyed.
    #[doc(alias = "rdma_bind_addr")]
    pub async fn bind(address: impl ToAddresses, config: &DatagramConfig) -> Result<Self> {
        let runtime = ProcessRuntime::new(default_runtime()?);
        let (target, config) = (address.to_target(), config.clone());
        let subject = target.to_string();
        let owner = runtime.clone();
        let bind = move || {
            let bound = endpoint::DatagramSocket::bind_to(target, &config);
            bound.map(|socket| DropOnBlockingPool::new(socket, &owner))
        };
        let ended = || canceled("bind a datagram socket to", subject);
        Self::of(run_blocking(&runtime, bind).await.ok_or_else(ended)??)
    }

    /// Asks the program that listens at `address` for its queue pair, and waits for the answer.
    ///
    /// One answer is enough for any number of datagrams. Resolve a peer again if it may have been restarted. If
    /// `address` names several addresses, the first of the socket's family is used. A name is looked up on a thread
    /// that may block.
    ///
    /// # Errors
    ///
    /// - [`ErrorKind::Unreachable`] if no program listens at `address`, or if the peer refuses or does not answer
    ///   within a minute.
    /// - [`ErrorKind::TimedOut`] if the address or the route is not resolved within two seconds.
    /// - [`ErrorKind::InvalidInput`] if `address` is of another family than the socket's.
    /// - [`ErrorKind::NameResolution`] if a name is not found.
    /// - The other errors of [`endpoint::DatagramSocket::start_resolve_peer`].
    ///
    /// # Cancel safety
    ///
    /// If the future is dropped, the resolution is canceled.
    ///
    /// # Examples
    ///
    /// ```no_run
    /// # async fn f(socket: &rdmacm::endpoint::task::DatagramSocket) -> rdmacm::Result<()> {
    /// let peer = socket.resolve_peer("10.0.0.7:7174").await?;
    /// for text in ["first", "second"] {
    ///     socket.post_bytes_to(text.as_bytes(), &peer).await?;
    /// }
    /// # Ok(())
    /// # }
    /// ```
    #[doc(alias = "rdma_connect")]
    pub async fn resolve_peer(&self, address: impl ToAddresses) -> Result<DatagramPeer> {
        let target = address.to_target();
        let addresses = match target.is_resolved() {
            true => target.resolve()?,
            false => {
                let subject = target.to_string();
                let found = run_blocking(self.socket.runtime(), move || target.resolve()).await;
                found.ok_or_else(|| canceled("resolve the name", subject))??
            }
        };
        let resolving = Resolving::start(self.shared(), self.socket.choose(&addresses))?;
        let outcome = |state: &mut State| resolving.outcome(state);
        self.wait_for(Operation::Resolve, outcome).await?.into_outcome()
    }

    /// Posts a copy of `bytes` to `peer` as a datagram, waiting until a buffer is free.
    ///
    /// The call does not wait until the datagram is sent: [`flush`](Self::flush) does. For the first datagram to a peer
    /// it waits until the kernel has created an address handle, as [`post_send_to`](Self::post_send_to) does.
    ///
    /// # Errors
    ///
    /// If the call fails, nothing was sent. In addition to the errors of [`acquire_buffer`](Self::acquire_buffer) and
    /// [`post_send_to`](Self::post_send_to):
    /// - [`ErrorKind::InvalidInput`] with EMSGSIZE if `bytes` exceed [`mtu`](Self::mtu).
    ///
    /// # Cancel safety
    ///
    /// Cancel safe: if the future is dropped, nothing was posted.
    ///
    /// # Examples
    ///
    /// ```no_run
    /// use rdmacm::endpoint::task::DatagramSocket;
    ///
    /// # async fn f(socket: &DatagramSocket) -> rdmacm::Result<()> {
    /// let peer = socket.resolve_peer("10.0.0.1:7471").await?;
    /// socket.post_bytes_to(b"hello", &peer).await?;
    /// # Ok(())
    /// # }
    /// ```
    pub async fn post_bytes_to(&self, bytes: &[u8], peer: &DatagramPeer) -> Result<()> {
        self.shared().check_length(bytes.len())?;
        self.prepare(peer).await?;
        let outgoing = self.socket.send_to_peer(peer, None)?;
        post_bytes(self.shared(), &self.watch, bytes, outgoing).await
    }

    /// Waits for the next datagram and returns it with its sender.
    ///
    /// Dropping the message posts its buffer again; a datagram that finds no posted buffer is lost. A datagram to the
    /// sender reaches that socket alone, even if the received datagram was sent to a group.
    ///
    /// # Errors
    ///
    /// - [`ErrorKind::Disconnected`] if this side has [ended](Self::abort) the socket.
    /// - [`ErrorKind::DeviceRemoved`] if the device was removed.
    /// - The error of [`MulticastGroup::check_membership`](endpoint::MulticastGroup::check_membership), once for each
    ///   group from which the network has removed the socket.
    /// - [`ErrorKind::NotOwner`] after a fork.
    ///
    /// # Cancel safety
    ///
    /// Cancel safe: if the future is dropped, no datagram was taken.
    ///
    /// # Examples
    ///
    /// ```no_run
    /// # async fn f(socket: &rdmacm::endpoint::task::DatagramSocket) -> rdmacm::Result<()> {
    /// let (message, sender) = socket.recv_from().await?;
    /// println!("{} bytes of {sender:?}", message.len());
    /// socket.post_bytes_to(b"received", &sender).await?;
    /// # Ok(())
    /// # }
    /// ```
    #[doc(alias = "ibv_create_ah_from_wc")]
    pub async fn recv_from(&self) -> Result<(Message, DatagramPeer)> {
        let arrived = self.wait_for(Operation::Receive, State::datagram).await??;
        Ok(self.socket.received(arrived))
    }

    /// Takes a send buffer, waiting until one is free.
    ///
    /// There are [`DatagramConfig::send_buffers`] of them, each of [`mtu`](Self::mtu) bytes. A buffer is free again
    /// when its datagram is sent, or when it is dropped. It holds the bytes of its last use, or zeros, and its length
    /// is its capacity until [`Buffer::set_len`] or [`Buffer::copy_from`] changes it. After a failed send the call
    /// waits until the queue pair is reset.
    ///
    /// # Errors
    ///
    /// - [`ErrorKind::Disconnected`] or [`ErrorKind::DeviceRemoved`] if the socket has ended.
    /// - [`ErrorKind::NotOwner`] after a fork.
    ///
    /// # Cancel safety
    ///
    /// Cancel safe: if the future is dropped, no buffer was taken.
    ///
    /// # Examples
    ///
    /// ```no_run
    /// use rdmacm::endpoint::{DatagramPeer, task::DatagramSocket};
    ///
    /// # async fn f(socket: &DatagramSocket, peer: &DatagramPeer) -> rdmacm::Result<()> {
    /// let mut buffer = socket.acquire_buffer().await?;
    /// buffer.set_len(8)?;
    /// buffer.copy_from_slice(&7_u64.to_be_bytes());
    /// socket.post_send_to(buffer, peer).await?;
    /// # Ok(())
    /// # }
    /// ```
    pub async fn acquire_buffer(&self) -> Result<Buffer> {
        let memory = self.wait_for(Operation::AcquireBuffer, State::buffer).await?;
        Ok(Buffer::new(memory, self.shared()))
    }

    /// Posts the datagram in `buffer` to `peer` without waiting until it is sent.
    ///
    /// It waits only for the first datagram to a peer, for which the kernel creates an address handle and, on RoCE,
    /// resolves the route. The buffer returns to the socket when the datagram is sent. If the datagram cannot be sent,
    /// the next [`flush`](Self::flush) returns the error.
    ///
    /// # Errors
    ///
    /// If the call fails, the buffer returns to the socket too.
    /// - [`ErrorKind::InvalidInput`] if `buffer` or `peer` belongs to another socket.
    /// - [`ErrorKind::WorkRequestFailed`] if a send has failed since the buffer was taken, and the queue pair is not
    ///   reset yet.
    /// - [`ErrorKind::Disconnected`] or [`ErrorKind::DeviceRemoved`] if the socket has ended.
    /// - The other errors of [`endpoint::DatagramSocket::post_send_to`], for the address handle.
    /// - ECANCELED if the runtime ends.
    ///
    /// # Cancel safety
    ///
    /// If the future is dropped, nothing is sent, and the buffer returns to the socket.
    ///
    /// # Examples
    ///
    /// ```no_run
    /// use rdmacm::endpoint::DatagramPeer;
    /// use rdmacm::endpoint::task::DatagramSocket;
    ///
    /// /// Answers with the number of the request.
    /// async fn answer(socket: &DatagramSocket, peer: &DatagramPeer, number: u32) -> rdmacm::Result<()> {
    ///     let mut buffer = socket.acquire_buffer().await?;
    ///     buffer.copy_from(&number.to_be_bytes())?;
    ///     socket.post_send_to(buffer, peer).await
    /// }
    /// ```
    pub async fn post_send_to(&self, buffer: Buffer, peer: &DatagramPeer) -> Result<()> {
        self.prepare(peer).await?;
        self.socket.post_send_to(buffer, peer)
    }

    /// Sends the datagram in `buffer` to `peer`, and returns the buffer when it is sent.
    ///
    /// The call waits until the device has sent the datagram, which may be lost after that. The buffer has its full
    /// length again.
    ///
    /// # Errors
    ///
    /// In addition to the errors of [`post_send_to`](Self::post_send_to):
    /// - [`ErrorKind::WorkRequestFailed`] if the device cannot send the datagram. The socket does not end.
    ///
    /// # Cancel safety
    ///
    /// If the future is dropped before it is polled, or before the kernel has created the address handle for a first
    /// datagram, nothing is sent. If it is dropped later, the datagram is in flight, as one that was
    /// [posted](Self::post_send_to). The buffer returns to the socket in all cases.
    ///
    /// # Examples
    ///
    /// ```no_run
    /// use rdmacm::endpoint::DatagramPeer;
    /// use rdmacm::endpoint::task::DatagramSocket;
    ///
    /// /// Sends two datagrams from one buffer, the second one when the device has sent the first one.
    /// async fn send_two(socket: &DatagramSocket, peer: &DatagramPeer) -> rdmacm::Result<()> {
    ///     let mut buffer = socket.acquire_buffer().await?;
    ///     for part in ["one", "two"] {
    ///         buffer.copy_from(part.as_bytes())?;
    ///         buffer = socket.send_to(buffer, peer).await?;
    ///     }
    ///     Ok(())
    /// }
    /// ```
    pub async fn send_to(&self, buffer: Buffer, peer: &DatagramPeer) -> Result<Buffer> {
        self.prepare(peer).await?;
        let operation = self.socket.start_send_to(buffer, peer)?;
        complete(self.shared(), &self.watch, operation).await
    }

    /// Creates the address handle of `peer`, unless it has one.
    async fn prepare(&self, peer: &DatagramPeer) -> Result<()> {
        const OPERATION: &str = Operation::Send.name();
        if peer.is_ready() {
            return Ok(());
        }
        let (peer, socket_id) = (peer.clone(), Arc::clone(&self.socket.socket_id));
        let create = move || peer.address(OPERATION, &socket_id).map(drop);
        let created = run_blocking(self.socket.runtime(), create).await;
        created.ok_or_else(|| canceled(OPERATION, self.shared().name.clone()))?
    }

    /// Waits until every posted datagram is sent.
    ///
    /// A datagram that the device has sent may still be lost.
    ///
    /// # Errors
    ///
    /// - [`ErrorKind::WorkRequestFailed`], once, if a datagram that was posted since the last call was not sent.
    /// - [`ErrorKind::Disconnected`] or [`ErrorKind::DeviceRemoved`] if the socket ended before.
    /// - [`ErrorKind::NotOwner`] after a fork.
    ///
    /// # Cancel safety
    ///
    /// Cancel safe: the next call reports the result that the future would have reported.
    ///
    /// # Examples
    ///
    /// ```no_run
    /// use rdmacm::endpoint::DatagramPeer;
    /// use rdmacm::endpoint::task::DatagramSocket;
    ///
    /// # async fn f(socket: &DatagramSocket, peer: &DatagramPeer) -> rdmacm::Result<()> {
    /// socket.post_bytes_to(b"the last one", peer).await?;
    /// if let Err(error) = socket.flush().await {
    ///     eprintln!("{error}");
    /// }
    /// # Ok(())
    /// # }
    /// ```
    pub async fn flush(&self) -> Result<()> {
        self.wait_for(Operation::Flush, State::flushed).await
    }

    /// Joins a multicast group, and waits until the socket is a member.
    ///
    /// The socket is a member until the [`MulticastGroup`] is dropped. See
    /// [`CmId::join_multicast`] for memberships.
    ///
    /// # Errors
    ///
    /// - [`ErrorKind::InvalidInput`] with EADDRINUSE if the socket is in the group already, or joins it.
    /// - [`ErrorKind::Disconnected`] or [`ErrorKind::DeviceRemoved`] if the socket has ended.
    /// - The errors of [`CmId::join_multicast`] and of its event.
    ///
    /// # Cancel safety
    ///
    /// If the future is dropped, the group is left if it was joined.
    ///
    /// # Examples
    ///
    /// ```no_run
    /// use std::net::{Ipv4Addr, SocketAddrV4};
    ///
    /// use rdmacm::endpoint::{Membership, task::DatagramSocket};
    ///
    /// # async fn f(socket: &DatagramSocket) -> rdmacm::Result<()> {
    /// let address = SocketAddrV4::new(Ipv4Addr::new(239, 1, 1, 1), 0);
    /// let group = socket.join_multicast(address, Membership::Full).await?;
    /// socket.post_bytes_to(b"hello, all", group.peer()).await?;
    /// # Ok(())
    /// # }
    /// ```
    #[doc(alias = "rdma_join_multicast")]
    pub async fn join_multicast(
        &self,
        group: impl Into<Address>,
        membership: Membership,
    ) -> Result<MulticastGroup> {
        let mut joining = Joining::start(self.shared(), group.into(), membership)?;
        let answer = |state: &mut State| joining.answer(state);
        let peer = self.wait_for(Operation::Join, answer).await??;
        Ok(MulticastGroup::new(joining.joined(peer), self.socket.runtime().clone()))
    }

    /// Ends the socket at once and waits until its kernel objects are destroyed.
    ///
    /// Posted datagrams that are not sent yet and datagrams that were not received are discarded, and the socket leaves
    /// its groups. Other calls that wait return [`ErrorKind::Disconnected`]. Objects that buffers, messages and peers
    /// of the program use remain.
    ///
    /// # Cancel safety
    ///
    /// If the future is dropped before it is polled, nothing happens. If it is dropped later, the end continues.
    pub async fn abort(&self) {
        let shared = Arc::clone(self.shared());
        if run_blocking(self.socket.runtime(), move || shared.abort()).await.is_none() {
            self.socket.abort();
        }
    }

    /// Returns the local address, or `None` for an InfiniBand address.
    pub fn local_addr(&self) -> Option<SocketAddr> {
        self.socket.local_addr()
    }

    /// Returns the number of the queue pair of the socket, by which its peers know it.
    pub fn qp_num(&self) -> u32 {
        self.socket.qp_num()
    }

    /// Returns the maximum length of a datagram, in bytes.
    ///
    /// It is the MTU of the port when the socket was bound, from 256 to 4096. See [`endpoint::DatagramSocket::mtu`] for
    /// RoCE.
    pub fn mtu(&self) -> usize {
        self.socket.mtu()
    }

    /// Returns the numbers of datagrams so far.
    ///
    /// # Errors
    ///
    /// - [`ErrorKind::NotOwner`] after a fork.
    pub fn stats(&self) -> Result<EndpointStats> {
        self.socket.stats()
    }

    /// Converts a blocking socket into one for tasks of the [default runtime](super#runtimes).
    ///
    /// # Errors
    ///
    /// In addition to the errors of [`from_blocking_with`](Self::from_blocking_with):
    /// - [`ErrorKind::Unsupported`] if there is no default runtime.
    pub fn from_blocking(socket: endpoint::DatagramSocket) -> Result<Self> {
        Self::from_blocking_with(socket, default_runtime()?)
    }

    /// Converts an [`endpoint::DatagramSocket`] into one for tasks of `runtime`.
    ///
    /// # Errors
    ///
    /// The errors of [`Runtime::register`]. Tokio and smol return:
    /// - ENOMEM, ENOSPC or EINVAL if the runtime cannot watch as many descriptors.
    /// - [`ErrorKind::Unsupported`] if the Tokio runtime has no I/O or no time.
    pub fn from_blocking_with(
        socket: endpoint::DatagramSocket,
        runtime: Arc<dyn Runtime>,
    ) -> Result<Self> {
        Self::of(DropOnBlockingPool::new(socket, &ProcessRuntime::new(runtime)))
    }

    fn of(socket: DropOnBlockingPool<endpoint::DatagramSocket>) -> Result<Self> {
        let shared = &socket.shared;
        let watch = Watch::new(socket.runtime(), Arc::clone(&shared.readiness.epoll));
        let watch = watch.map_err(|error| refused("watch", shared.name.clone(), &error))?;
        Ok(Self { watch, socket })
    }

    /// Converts this into an [`endpoint::DatagramSocket`].
    pub fn into_blocking(self) -> endpoint::DatagramSocket {
        self.socket.into_inner()
    }

    fn shared(&self) -> &Arc<Shared> {
        &self.socket.shared
    }

    async fn wait_for<T>(
        &self,
        operation: Operation,
        done: impl FnMut(&mut State) -> Option<Result<T, EndReason>>,
    ) -> Result<T> {
        wait_for(self.shared(), &self.watch, operation, done).await
    }
}
