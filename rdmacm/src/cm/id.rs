//! Creation, identification and destruction of ids ([`CmId`]).

use std::sync::Arc;
use std::sync::atomic::Ordering;

use ucma_abi::rdma_ucm_create_id;
use verbs_abi::AlignedU64;

use super::channel::{EventChannel, destroy_id};
use super::group;
use super::record::{IDS, Inner};
use super::service_type::ServiceType;
use crate::addr::port_space::PortSpace;
use crate::error::{DestroyError, Error, ErrorKind, IntoError as _, Result};
use crate::registry::Token;
use crate::sys::command::CommandError;
use crate::verbs::{Context, QpType};

/// A communication id: the counterpart of a socket.
///
/// The id owns the kernel's object. Dropping the id destroys that object without waiting for other threads;
/// [`destroy`](Self::destroy) waits until the events of the id are acknowledged. Several threads may use an id; the
/// kernel serializes their calls.
///
/// After a fork the id belongs to the parent; see [`EventChannel`].
///
/// # Examples
///
/// A client with a [synchronous](#synchronous-ids) id, whose calls return when the event has arrived:
///
/// ```no_run
/// use std::net::SocketAddr;
/// use std::time::Duration;
///
/// use rdmacm::cm::{CmId, ConnParam, EndpointQpInit, PortSpace};
///
/// fn connect(server: SocketAddr) -> rdmacm::Result<CmId> {
///     let id = CmId::new_sync(PortSpace::Tcp)?;
///     id.set_timeout(Some(Duration::from_secs(10)));
///     id.resolve_addr(None, server, Duration::from_secs(2))?;
///     id.resolve_route(Duration::from_secs(2))?;
///     // The program posts its first receives to this queue pair.
///     let _qp = id.create_ep_qp(&EndpointQpInit::default())?;
///     id.connect(&ConnParam::default())?;
///     Ok(id)
/// }
/// ```
///
/// # Driver notes
///
/// On iWARP the kernel itself may wait. Destroying or dropping an id takes until the driver gives up (siw: about 10 s)
/// if the peer has not answered [`connect`](Self::connect) yet.
#[doc(alias = "rdma_cm_id")]
#[derive(Debug)]
pub struct CmId {
    pub(super) inner: Arc<Inner>,
}

impl CmId {
    /// Creates an id whose events arrive on `channel`.
    ///
    /// The id is for datagrams in the port spaces UDP and IPoIB, and for reliable connections in the others.
    ///
    /// # Errors
    ///
    /// - ENOMEM if the kernel is out of memory.
    /// - [`ErrorKind::NotOwner`] if the process forked or changed its credentials.
    ///
    /// Kernel command: `RDMA_USER_CM_CMD_CREATE_ID`.
    #[doc(alias = "rdma_create_id")]
    pub fn new(channel: &EventChannel, port_space: PortSpace) -> Result<Self> {
        Self::with_qp_type(channel, port_space, port_space.qp_types()[0])
    }

    /// Creates an id for queue pairs of `qp_type`.
    ///
    /// The port space [`Ib`](PortSpace::Ib) supports RC, UC, UD, XRC_INI and XRC_TGT. Each other port space supports
    /// only the type that [`new`](Self::new) uses.
    ///
    /// # Errors
    ///
    /// - [`ErrorKind::InvalidInput`] if the port space does not support the type.
    /// - ENOMEM if the kernel is out of memory.
    /// - [`ErrorKind::NotOwner`] if the process forked or changed its credentials.
    ///
    /// Kernel command: `RDMA_USER_CM_CMD_CREATE_ID`.
    #[doc(alias = "rdma_create_ep")]
    pub fn with_qp_type(
        channel: &EventChannel,
        port_space: PortSpace,
        qp_type: QpType,
    ) -> Result<Self> {
        if !port_space.qp_types().contains(&qp_type) {
            let reason =
                format!("the port space {port_space} has no queue pairs of type {qp_type}");
            return Err(Error::invalid("create", "an id", reason));
        }
        let refused = |refused: CommandError| refused.into_error("create", "an id");
        channel.inner.file.check_process().map_err(refused)?;
        let token = IDS.reserve();
        let created = channel.inner.command(rdma_ucm_create_id {
            uid: token.get().into(),
            response: AlignedU64::default(),
            ps: port_space.number(),
            qp_type: qp_type.0,
            reserved: [0; 5],
        });
        let handle = match created {
            Ok(response) => response.id,
            Err(error) => {
                IDS.remove(token);
                return Err(refused(error));
            }
        };
        let channel = Arc::clone(&channel.inner);
        let service = (port_space, qp_type);
        Ok(Self::from_inner(Inner::new(token, handle, service, channel)))
    }

    pub(super) fn from_inner(inner: Arc<Inner>) -> Self {
        Self { inner }
    }

    /// Returns the token that names this id in [events](super::Event::token).
    pub fn token(&self) -> Token {
        self.inner.token
    }

    /// Returns the number that the program has attached to the id.
    ///
    /// Until it is [set](Self::set_user_data), the number is 0, or for the id of a request the number of the listener.
    #[doc(alias = "rdma_cm_id::context")]
    pub fn user_data(&self) -> u64 {
        self.inner.user_data.load(Ordering::Relaxed)
    }

    /// Attaches a number to the id, which every later [event](super::Event::user_data) of the id carries.
    ///
    /// The number can be an index into a table of the program, which then need not search for the
    /// [token](super::Event::token) of the event. The call sends no command.
    pub fn set_user_data(&self, user_data: u64) {
        self.inner.user_data.store(user_data, Ordering::Relaxed);
    }

    /// Returns the port space of the id; the id of a request has that of its listener.
    pub fn port_space(&self) -> PortSpace {
        self.inner.port_space
    }

    /// Returns the type of the id's queue pairs; the id of a request has that of its listener.
    pub fn qp_type(&self) -> QpType {
        self.inner.qp_type
    }

    /// Returns the service type: connections or datagrams.
    pub fn service(&self) -> ServiceType {
        self.inner.service()
    }

    /// Returns the verbs context of the device to which the id is bound.
    ///
    /// This is the `verbs` field of the C library's id. An id is bound to a device by `AddrResolved`, by
    /// `ConnectRequest`, or by [`bind`](Self::bind) to the address of a port. Binding to a wildcard or loopback address
    /// does not bind it to a device. All ids of a device share one context. The first call for a device opens the
    /// device.
    ///
    /// # Errors
    ///
    /// In addition to the errors of [`Context::open`]:
    ///
    /// - [`ErrorKind::InvalidInput`] if the id has no device yet.
    ///
    /// Kernel command: `RDMA_USER_CM_CMD_QUERY` (ADDR), in the first call for an id.
    pub fn context(&self) -> Result<Context> {
        self.inner.context()
    }

    /// Destroys the id and waits until its events are acknowledged.
    ///
    /// The kernel discards the unread events of the id, and the requests among them. A connected id is disconnected.
    /// The id leaves its multicast groups. Its queue pair and shared receive queue are destroyed unless the program
    /// holds them too. A [memory window](crate::verbs::MemoryWindow) of type 2 may also hold the queue pair.
    ///
    /// # Errors
    ///
    /// The id is returned with the error. If the kernel refuses the command, an event of the id that another thread
    /// reads meanwhile is discarded.
    ///
    /// - [`ErrorKind::WouldDeadlock`] if an event that this thread received from the channel is not acknowledged yet.
    ///   The thread would wait for itself. An event that was passed to another thread counts for the thread that
    ///   received it.
    /// - [`ErrorKind::NotOwner`] if the process forked or changed its credentials.
    ///
    /// # Driver notes
    ///
    /// On iWARP, while the id connects, the command takes until the peer answers or the driver gives up.
    ///
    /// Kernel command: `RDMA_USER_CM_CMD_DESTROY_ID`.
    #[doc(alias = "rdma_destroy_id")]
    #[doc(alias = "rdma_destroy_ep")]
    pub fn destroy(self) -> Result<(), DestroyError<Self>> {
        const OPERATION: &str = "destroy";
        if let Err(error) = self.inner.check_process(OPERATION) {
            return Err(DestroyError::new(self, error));
        }
        if self.inner.acks.held_by_this_thread() {
            let kind = ErrorKind::WouldDeadlock(
                "this thread holds an event of the id; drop the event first",
            );
            let error = Error::new(OPERATION, self.inner.to_string(), kind);
            return Err(DestroyError::new(self, error));
        }
        match self.inner.end() {
            Ok(reported) => {
                let groups = self.inner.release_resources();
                self.inner.acks.wait(reported);
                IDS.remove(self.inner.token);
                group::forget(&groups);
                Ok(())
            }
            Err(refused) => {
                let error = refused.into_error(OPERATION, self.inner.to_string());
                Err(DestroyError::new(self, error))
            }
        }
    }
}

impl Drop for CmId {
    fn drop(&mut self) {
        // Checked before any lock is taken: a child inherits the locks that were held in its parent, and no thread of
        // the child unlocks them.
        if self.inner.is_destroyed() || !self.inner.process.is_current() {
            return;
        }
        IDS.remove(self.inner.token);
        if let Err(CommandError::NotOwner(_)) = self.inner.end() {
            self.inner.binding().channel.abandon(self.inner.handle);
        }
        group::forget(&self.inner.release_resources());
    }
}

impl Inner {
    /// Destroys the kernel's object and returns the number of events that the kernel reported for it.
    fn end(&self) -> Result<u32, CommandError> {
        let binding = self.binding_mut();
        self.destroyed.store(true, Ordering::Release);
        let ended = binding.channel.command(destroy_id(self.handle));
        if ended.is_err() {
            self.destroyed.store(false, Ordering::Release);
        }
        ended.map(|response| response.events_reported)
    }
}

#[cfg(test)]
pub(super) mod tests {
    use std::io::Read;
    use std::os::fd::OwnedFd;
    use std::os::unix::net::UnixStream;
    use std::sync::mpsc;
    use std::thread;
    use std::time::Duration;

    use nix::errno::Errno;
    use ucma_abi::rdma_ucm_listen;

    use super::super::channel::ChannelInner;
    use super::*;
    use crate::sys::ucma::UcmaFile;

    /// Returns the numbers of the commands that arrive at `kernel`, until the other end is closed.
    pub(in crate::cm) fn commands(mut kernel: UnixStream) -> Vec<u32> {
        let mut bytes = Vec::new();
        kernel.read_to_end(&mut bytes).expect("read what was sent");
        let mut numbers = Vec::new();
        let mut rest = bytes.as_slice();
        while let Some((header, more)) = rest.split_first_chunk::<8>() {
            let number =
                u32::from_ne_bytes(*header.first_chunk().expect("a header should have 8 bytes"));
            let length = usize::from(u16::from_ne_bytes([header[4], header[5]]));
            numbers.push(number);
            rest = &more[length..];
        }
        numbers
    }

    /// Returns a channel without a kernel, and the socket that replaces the kernel.
    pub(in crate::cm) fn fake_channel() -> (EventChannel, UnixStream) {
        let (fake, kernel) = UnixStream::pair().expect("the sockets should be created");
        let inner = ChannelInner::new(UcmaFile::new(OwnedFd::from(fake)));
        (EventChannel { inner }, kernel)
    }

    /// Returns the id of a fake connection, its channel, and the socket that replaces the kernel.
    #[cfg(all(test, feature = "null", not(loom)))]
    pub(in crate::cm) fn fake_connection() -> (CmId, EventChannel, UnixStream) {
        let (channel, kernel) = fake_channel();
        let id = CmId::from_inner(fake_id(&channel, PortSpace::Tcp));
        (id, channel, kernel)
    }

    /// Returns a fake id on `channel`.
    pub(in crate::cm) fn fake_id(channel: &EventChannel, port_space: PortSpace) -> Arc<Inner> {
        fake_id_called(7, channel, port_space)
    }

    /// Returns a fake id with the kernel's `handle`.
    pub(in crate::cm) fn fake_id_called(
        handle: u32,
        channel: &EventChannel,
        port_space: PortSpace,
    ) -> Arc<Inner> {
        let service = (port_space, port_space.qp_types()[0]);
        let channel = Arc::clone(&channel.inner);
        Inner::new(IDS.reserve(), handle, service, channel)
    }

    #[test]
    fn destroyed_id_sends_no_command() {
        let (channel, kernel) = fake_channel();
        let inner = fake_id(&channel, PortSpace::Tcp);
        drop(channel);
        let listen = rdma_ucm_listen { id: 7, backlog: 1 };
        inner.send(listen).expect("the id should exist");
        // This imitates another thread that has looked up the id before. The kernel may have given the handle to
        // another id meanwhile.
        let late = Arc::clone(&inner);
        CmId::from_inner(inner).destroy().expect("the id should be destroyed");
        assert_eq!(late.send(listen), Err(CommandError::Os(Errno::ENOENT)));
        drop(late);
        assert_eq!(commands(kernel), [7, 1], "LISTEN, DESTROY_ID");
    }

    #[test]
    fn event_read_does_not_wait_for_id_destroy() {
        let (channel, _kernel) = fake_channel();
        let inner = fake_id(&channel, PortSpace::Tcp);
        // This is the state while the kernel executes DESTROY_ID.
        let binding = inner.binding_mut();
        inner.destroyed.store(true, Ordering::Release);
        let (tx, rx) = mpsc::channel();
        let read = Arc::clone(&inner);
        thread::spawn(move || {
            assert!(read.is_destroyed());
            read.discard_event(&channel.inner);
            tx.send(())
        });
        rx.recv_timeout(Duration::from_secs(10)).expect("discarding the event should not wait");
        drop(binding);
        inner.acks.wait(1);
    }
}
