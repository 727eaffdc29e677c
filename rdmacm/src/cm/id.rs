//! [`CmId`]: creating, naming and destroying ids.

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
use crate::sys::command::Refused;
use crate::verbs::{Context, QpType};

/// A communication id: what a socket is to TCP.
///
/// The id owns the kernel's object. Dropping it destroys that object and waits for nobody in this
/// process; [`destroy`](Self::destroy) waits for the events that are still out. Calls may come from
/// several threads; the kernel takes them one after the other.
///
/// On iWARP the kernel itself may wait: destroying or dropping an id whose peer has not answered
/// [`connect`](Self::connect) yet takes until the driver gives up (siw about 10 s).
///
/// After a fork the id belongs to the parent, see [`EventChannel`].
#[doc(alias = "rdma_cm_id")]
#[derive(Debug)]
pub struct CmId {
    pub(super) inner: Arc<Inner>,
}

impl CmId {
    /// Makes an id whose events arrive on `channel`: for datagrams in the port spaces UDP and IPoIB,
    /// for reliable connections in the others.
    ///
    /// `RDMA_USER_CM_CMD_CREATE_ID`.
    ///
    /// # Errors
    ///
    /// ENOMEM; [`ErrorKind::WrongProcess`].
    #[doc(alias = "rdma_create_id")]
    pub fn new(channel: &EventChannel, port_space: PortSpace) -> Result<Self> {
        Self::with_qp_type(channel, port_space, port_space.qp_types()[0])
    }

    /// Makes an id for queue pairs of `qp_type`: RC, UC, UD, XRC_INI or XRC_TGT in the port space
    /// [`Ib`](PortSpace::Ib), while each of the others has only the one type of
    /// [`new`](Self::new).
    ///
    /// `RDMA_USER_CM_CMD_CREATE_ID`.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::Invalid`] for a type that the port space does not have; ENOMEM;
    /// [`ErrorKind::WrongProcess`].
    #[doc(alias = "rdma_create_ep")]
    pub fn with_qp_type(
        channel: &EventChannel,
        port_space: PortSpace,
        qp_type: QpType,
    ) -> Result<Self> {
        if !port_space.qp_types().contains(&qp_type) {
            let reason = format!("port space {port_space:?} has no queue pairs of {qp_type}");
            return Err(Error::invalid("create", "an id", reason));
        }
        let refused = |refused: Refused| refused.during("create", "an id");
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

    /// A number that means something to the program: 0, or a request's listener's, until it is
    /// [set](Self::set_user_data).
    #[doc(alias = "rdma_cm_id::context")]
    pub fn user_data(&self) -> u64 {
        self.inner.user_data.load(Ordering::Relaxed)
    }

    /// Sets a number that every later [event](super::Event::user_data) of this id brings along: a
    /// place in a table, which the program need not search for the event's
    /// [token](super::Event::token) then. Sends nothing.
    pub fn set_user_data(&self, user_data: u64) {
        self.inner.user_data.store(user_data, Ordering::Relaxed);
    }

    /// The port space that the id was made for; a request's is its listener's.
    pub fn port_space(&self) -> PortSpace {
        self.inner.port_space
    }

    /// The type of the queue pairs that go with the id; a request's is its listener's.
    pub fn qp_type(&self) -> QpType {
        self.inner.qp_type
    }

    /// Returns the service type: connections or datagrams.
    pub fn service(&self) -> ServiceType {
        self.inner.service()
    }

    /// The verbs context of the device that the id is bound to: the `verbs` of the C library's id.
    ///
    /// An id is bound to a device by `AddrResolved`, by `ConnectRequest`, or by
    /// [`bind`](Self::bind) to an address of a device's port; not by binding to a wildcard or
    /// loopback address. Ids of one device share one context. The first call for an id sends
    /// `RDMA_USER_CM_CMD_QUERY` (ADDR); the first for a device opens it.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::Invalid`] where the id has no device yet; those of [`Context::open`].
    pub fn context(&self) -> Result<Context> {
        self.inner.context()
    }

    /// Destroys the id and waits until its events are acknowledged.
    ///
    /// `RDMA_USER_CM_CMD_DESTROY_ID`. The kernel drops the events that were not read yet, and the
    /// requests among them; on a connected id it disconnects. The id leaves its multicast
    /// groups. Its queue pair and shared receive queue go, unless the program holds them too, or a
    /// [memory window](crate::verbs::MemoryWindow) of type 2 the queue pair. On iWARP the command takes
    /// until the peer answers or the driver gives up, while the id connects.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::WouldDeadlock`] where an event that this thread received from the channel is
    /// still out: it would wait for itself. (An event that was passed on to another thread
    /// counts for the one that received it.) [`ErrorKind::WrongProcess`]. The id comes back
    /// with the error; an event of it that another thread reads while the kernel refuses the command
    /// is dropped.
    #[doc(alias = "rdma_destroy_id")]
    #[doc(alias = "rdma_destroy_ep")]
    pub fn destroy(self) -> Result<(), DestroyError<Self>> {
        const OPERATION: &str = "destroy";
        if let Err(error) = self.inner.check_process(OPERATION) {
            return Err(DestroyError::new(self, error));
        }
        if self.inner.acks.held_by_this_thread() {
            let kind = ErrorKind::WouldDeadlock("it holds an event of the id; drop it first");
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
                let error = refused.during(OPERATION, self.inner.to_string());
                Err(DestroyError::new(self, error))
            }
        }
    }
}

impl Drop for CmId {
    fn drop(&mut self) {
        // Before any lock: a child has inherited those that were held in its parent, and nobody to unlock
        // them.
        if self.inner.is_destroyed() || !self.inner.process.is_current() {
            return;
        }
        IDS.remove(self.inner.token);
        if let Err(Refused::WrongProcess(_)) = self.inner.end() {
            self.inner.binding().channel.abandon(self.inner.handle);
        }
        group::forget(&self.inner.release_resources());
    }
}

impl Inner {
    /// Destroys the kernel's object; the kernel's count of the events that it reported for it.
    fn end(&self) -> Result<u32, Refused> {
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

    /// The numbers of the commands that arrive at `kernel`, until the other end is closed.
    pub(in crate::cm) fn commands(mut kernel: UnixStream) -> Vec<u32> {
        let mut bytes = Vec::new();
        kernel.read_to_end(&mut bytes).expect("read what was sent");
        let mut numbers = Vec::new();
        let mut rest = bytes.as_slice();
        while let Some((header, more)) = rest.split_first_chunk::<8>() {
            let number = u32::from_ne_bytes(*header.first_chunk().expect("8 bytes"));
            let length = usize::from(u16::from_ne_bytes([header[4], header[5]]));
            numbers.push(number);
            rest = &more[length..];
        }
        numbers
    }

    /// A channel that no kernel knows, and what stands for the kernel.
    pub(in crate::cm) fn fake_channel() -> (EventChannel, UnixStream) {
        let (fake, kernel) = UnixStream::pair().expect("a pair of sockets");
        let inner = ChannelInner::new(UcmaFile::new(OwnedFd::from(fake)));
        (EventChannel { inner }, kernel)
    }

    /// An id on it.
    pub(in crate::cm) fn fake_id(channel: &EventChannel, port_space: PortSpace) -> Arc<Inner> {
        fake_id_called(7, channel, port_space)
    }

    /// Creates a fake id with the handle that the kernel gave it.
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
    fn nothing_is_sent_for_an_id_that_is_destroyed() {
        let (channel, kernel) = fake_channel();
        let inner = fake_id(&channel, PortSpace::Tcp);
        drop(channel);
        let listen = rdma_ucm_listen { id: 7, backlog: 1 };
        inner.send(listen).expect("the id lives");
        // As of another thread, which has found the id before and comes late: the kernel may have
        // given the handle to another id meanwhile.
        let late = Arc::clone(&inner);
        CmId::from_inner(inner).destroy().expect("destroyed");
        assert_eq!(late.send(listen), Err(Refused::Os(Errno::ENOENT)));
        drop(late);
        assert_eq!(commands(kernel), [7, 1], "LISTEN, DESTROY_ID");
    }

    #[test]
    fn who_reads_an_event_does_not_wait_until_its_id_is_destroyed() {
        let (channel, _kernel) = fake_channel();
        let inner = fake_id(&channel, PortSpace::Tcp);
        // As while the kernel takes its time with DESTROY_ID.
        let binding = inner.binding_mut();
        inner.destroyed.store(true, Ordering::Release);
        let (says, hears) = mpsc::channel();
        let read = Arc::clone(&inner);
        thread::spawn(move || {
            assert!(read.is_destroyed());
            read.discard_event(&channel.inner);
            says.send(())
        });
        hears.recv_timeout(Duration::from_secs(10)).expect("it does not wait");
        drop(binding);
        inner.acks.wait(1);
    }
}
