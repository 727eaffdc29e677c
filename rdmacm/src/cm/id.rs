//! Communication ids: their life, their commands, their device.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, RwLock, RwLockReadGuard, RwLockWriteGuard};
use std::time::Duration;

use nix::errno::Errno;
use ucma_abi::{Command, rdma_ucm_create_id, rdma_ucm_query_addr, rdma_ucm_query_addr_resp};
use verbs_abi::AlignedU64;
use zerocopy::FromZeros;

use super::bound::BoundDevice;
use super::channel::{ChannelInner, EventChannel, destroy_id};
use super::create_ep::EndpointQueuePair;
use super::external::Ece;
use super::multicast::{self, Joined};
use super::parse::{EventData, Service};
use super::port_space::PortSpace;
use super::service::Resolution;
use super::sync::Synchronous;
use crate::acks::{Acks, Counted, Unacknowledged};
use crate::addr::Address;
use crate::device::{self, Guid};
use crate::error::{DestroyError, Error, ErrorKind, Result};
use crate::lock::unpoisoned;
use crate::registry::{Registry, Token};
use crate::sys::command::Refused;
use crate::sys::per_process::PerProcess;
use crate::sys::process::Process;
use crate::sys::ucma::UcmaFile;
use crate::verbs::{Context, Depths, QpType, QueuePair, SharedReceiveQueue};

/// Every living id of the process, by the number that the kernel knows it by.
pub(super) static IDS: PerProcess<Registry<Inner>> = PerProcess::new();

/// In place of a device's index where the kernel, before Linux 5.8, stores none.
const NO_INDEX: u32 = u32::MAX;

const FIND_DEVICE: &str = "find the device of";

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

/// What an id is to the library: found by token when an event comes.
pub(super) struct Inner {
    pub(super) token: Token,
    /// The kernel's name of the id.
    pub(super) handle: u32,
    pub(super) port_space: PortSpace,
    pub(super) qp_type: QpType,
    /// The program's own number.
    pub(super) user_data: AtomicU64,
    pub(super) acks: Acks,
    /// Held for reading across each command and for writing while the id is destroyed: the kernel
    /// gives a free handle to the next id at once, and a late command must not go to that.
    home: RwLock<Home>,
    /// It is destroyed, or being destroyed: set while `home` is held for writing, which may be for
    /// long, as who reads events must not wait for that.
    gone: AtomicBool,
    /// The process that the id belongs to.
    pub(super) process: Process,
    /// LISTEN had success. Set while `home` is held for reading.
    pub(super) listens: AtomicBool,
    /// Held while the id migrates, until the events of the old channel are acknowledged: an event
    /// must not find the id back where it was.
    pub(super) migration: Mutex<()>,
    /// The multicast groups that it has joined, in this order. Locked before `state` and `home`.
    pub(super) groups: Mutex<Vec<Joined>>,
    state: Mutex<State>,
}

/// Where the kernel's object is.
pub(super) struct Home {
    /// The channel that owns the id: a command on any other fails.
    pub(super) channel: Arc<ChannelInner>,
    /// Of a listener, the channels that it was on: the kernel leaves the ids of unread requests
    /// there.
    pub(super) former: Vec<Arc<ChannelInner>>,
    /// The channel is the id's own, and calls wait for their events.
    pub(super) sync: Option<Arc<Synchronous>>,
}

/// What changes in the life of an id.
#[derive(Default)]
pub(super) struct State {
    /// The device that the id is bound to, once somebody asked.
    pub(super) context: Option<Context>,
    pub(super) qp: Option<QueuePair>,
    pub(super) srq: Option<SharedReceiveQueue>,
    /// A request brought the id, and it is not accepted yet.
    pub(super) acceptable: bool,
    /// How long calls wait for events, where the id is synchronous.
    pub(super) timeout: Option<Duration>,
    /// Of an endpoint that listens, the queue pair that each request gets.
    pub(super) request_qp: Option<Box<EndpointQueuePair>>,
    /// Of an endpoint, what goes before the program's private data.
    pub(super) connect_header: Box<[u8]>,
    /// What the request for a connection asked for, from the local point of view.
    pub(super) asked: Option<Depths>,
    /// What the peer is told of the program's own queue pair, and what it told.
    pub(super) local_ece: Ece,
    pub(super) remote_ece: Ece,
    pub(super) resolution: Resolution,
    /// The peer's address, where this side named it.
    pub(super) peer: Option<Address>,
    /// The queue pair that the peer was last told of, by its number.
    pub(super) named_qp: u32,
    /// The connection stands: when it is ended, an event says so.
    pub(super) established: bool,
    /// The peer's answer could not be carried out, and `ConnectError` reported: what the kernel
    /// says of this connection later is no news.
    pub(super) connect_failed: bool,
    /// An event said that the device is gone.
    pub(super) removed: bool,
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

    /// What names this id in [events](super::Event::token).
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

    /// Whether the id is for connections or for datagrams.
    pub fn service(&self) -> Service {
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
                let groups = self.inner.let_go();
                self.inner.acks.wait(reported);
                IDS.remove(self.inner.token);
                multicast::forget(&groups);
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
        if self.inner.is_gone() || !self.inner.process.is_current() {
            return;
        }
        IDS.remove(self.inner.token);
        if let Err(Refused::WrongProcess(_)) = self.inner.end() {
            self.inner.home().channel.abandon(self.inner.handle);
        }
        multicast::forget(&self.inner.let_go());
    }
}

impl Inner {
    fn new(
        token: Token,
        handle: u32,
        (port_space, qp_type): (PortSpace, QpType),
        channel: Arc<ChannelInner>,
    ) -> Arc<Self> {
        let inner = Arc::new(Self {
            token,
            handle,
            port_space,
            qp_type,
            user_data: AtomicU64::new(0),
            acks: Acks::default(),
            home: RwLock::new(Home { channel, former: Vec::new(), sync: None }),
            gone: AtomicBool::new(false),
            process: Process::current(),
            listens: AtomicBool::new(false),
            migration: Mutex::default(),
            groups: Mutex::default(),
            state: Mutex::default(),
        });
        IDS.set(token, &inner);
        inner
    }

    /// The id that a request to `listener` brought.
    pub(super) fn requested(
        listener: &Self,
        channel: Arc<ChannelInner>,
        handle: u32,
        data: &EventData,
    ) -> Arc<Self> {
        let service = (listener.port_space, listener.qp_type);
        let inner = Self::new(IDS.reserve(), handle, service, channel);
        inner.user_data.store(listener.user_data.load(Ordering::Relaxed), Ordering::Relaxed);
        let mut state = inner.state();
        state.acceptable = true;
        if let EventData::Connection(asked) = data {
            state.asked = Some(Depths {
                responder_resources: asked.responder_resources,
                initiator_depth: asked.initiator_depth,
            });
        }
        drop(state);
        inner
    }

    pub(super) fn service(&self) -> Service {
        match self.qp_type {
            QpType::IB_UVERBS_QPT_UD => Service::Datagram,
            _ => Service::Connected,
        }
    }

    /// Whether the kernel's object is destroyed. The program gets no more events then.
    pub(super) fn is_gone(&self) -> bool {
        self.gone.load(Ordering::Acquire)
    }

    /// Counts an event that came from `channel` as handed to this thread.
    pub(super) fn received(self: &Arc<Self>, channel: &Arc<ChannelInner>) -> Unacknowledged {
        // What is destroyed does not move any more, so nobody asks for events of before.
        if self.is_gone() {
            return self.hand_out(true);
        }
        let home = self.home();
        self.hand_out(Arc::ptr_eq(&home.channel, channel))
    }

    /// Counts an event that came from `channel`, and that the program never saw.
    pub(super) fn swallow(self: &Arc<Self>, channel: &Arc<ChannelInner>) {
        drop(self.received(channel));
    }

    pub(super) fn state(&self) -> MutexGuard<'_, State> {
        unpoisoned(self.state.lock())
    }

    /// How errors name the id where the peer's part in them matters.
    pub(super) fn with_peer(&self) -> String {
        let peer = self.state().peer;
        peer.map_or_else(|| self.to_string(), |peer| format!("{self} to {peer}"))
    }

    pub(super) fn home(&self) -> RwLockReadGuard<'_, Home> {
        unpoisoned(self.home.read())
    }

    pub(super) fn home_mut(&self) -> RwLockWriteGuard<'_, Home> {
        unpoisoned(self.home.write())
    }

    /// Refuses `operation` in a child of the process that made the id. First in all that takes a lock:
    /// one that another thread held while the process forked stays locked in the child.
    #[inline]
    pub(super) fn check_process(&self, operation: &'static str) -> Result<()> {
        match self.process.check() {
            Ok(()) => Ok(()),
            Err(refused) => Err(self.foreign(operation, refused)),
        }
    }

    #[cold]
    fn foreign(&self, operation: &'static str, refused: Refused) -> Error {
        refused.during(operation, self.to_string())
    }

    /// Sends a command to the channel that owns the id.
    pub(super) fn send<C: Command>(&self, request: C) -> Result<C::Response, Refused> {
        self.run(|file| file.command(request))
    }

    /// The same with what sends a command.
    pub(super) fn run<T>(
        &self,
        command: impl FnOnce(&UcmaFile) -> Result<T, Refused>,
    ) -> Result<T, Refused> {
        self.process.check()?;
        let home = self.home();
        // What the kernel would say.
        if self.is_gone() { Err(Refused::Os(Errno::ENOENT)) } else { home.channel.run(command) }
    }

    /// The same, for `operation` on `subject`.
    pub(super) fn command<C: Command>(
        &self,
        operation: &'static str,
        subject: impl FnOnce() -> String,
        request: C,
    ) -> Result<C::Response> {
        self.send(request).map_err(|refused| self.not_done(operation, subject(), refused))
    }

    /// The error of `operation` on `subject`, which may have been refused for the state that the id is in:
    /// where its device is on its way out, that is another one than the program knows of.
    #[cold]
    pub(super) fn not_done(
        &self,
        operation: &'static str,
        subject: String,
        refused: Refused,
    ) -> Error {
        let device_goes = || match self.bound_to() {
            Ok((guid, index)) => device::goes(guid, index),
            Err(error) => matches!(error.kind(), ErrorKind::DeviceGone(_)),
        };
        let refused = match refused {
            Refused::Os(Errno::EINVAL) if device_goes() => Refused::Os(Errno::ENXIO),
            refused => refused,
        };
        Self::refused(operation, subject, refused)
    }

    /// The error of `operation` on `subject`, an id.
    pub(super) fn refused(operation: &'static str, subject: String, refused: Refused) -> Error {
        match refused {
            // The kernel closed the id when its device went.
            Refused::Os(Errno::ENXIO) => {
                Error::new(operation, subject, ErrorKind::DeviceGone(Errno::ENXIO as i32))
            }
            refused => refused.during(operation, subject),
        }
    }

    /// Destroys the kernel's object; the kernel's count of the events that it reported for it.
    fn end(&self) -> Result<u32, Refused> {
        let home = self.home_mut();
        self.gone.store(true, Ordering::Release);
        let ended = home.channel.command(destroy_id(self.handle));
        if ended.is_err() {
            self.gone.store(false, Ordering::Release);
        }
        ended.map(|response| response.events_reported)
    }

    pub(super) fn query_addr(&self) -> Result<rdma_ucm_query_addr_resp> {
        let request = rdma_ucm_query_addr::new(self.handle);
        let mut addresses = rdma_ucm_query_addr_resp::new_zeroed();
        addresses.ibdev_index = NO_INDEX;
        self.run(|file| file.command_over(request, &mut addresses)).map_err(|refused| {
            Self::refused("query the addresses of", self.to_string(), refused)
        })?;
        Ok(addresses)
    }

    /// The context of the id's device, asked for once.
    pub(super) fn context(&self) -> Result<Context> {
        self.check_process(FIND_DEVICE)?;
        let mut state = self.state();
        if let Some(context) = &state.context {
            return Ok(context.clone());
        }
        let (guid, index) = self.bound_to()?;
        let context = Context::shared_by(guid, index).map_err(|error| {
            let gone = ErrorKind::DeviceGone(Errno::ENXIO as i32);
            match error.kind() {
                // Wherever it is: who can do without it asks each time.
                ErrorKind::Unsupported(_) => error,
                _ if device::goes(guid, index) => Error::new(FIND_DEVICE, self.to_string(), gone),
                _ => error,
            }
        })?;
        state.context = Some(context.clone());
        Ok(context)
    }

    /// The device that the id is bound to, open if it can be.
    pub(super) fn device(&self) -> Result<BoundDevice> {
        match self.context() {
            Ok(context) => Ok(BoundDevice::Open(context)),
            Err(error) if matches!(error.kind(), ErrorKind::Unsupported(_)) => {
                let (guid, index) = self.bound_to()?;
                device::find(guid, index)?.map(BoundDevice::Closed).ok_or(error)
            }
            Err(error) => Err(error),
        }
    }

    /// The GUID of the device that the id is bound to, and its index where the kernel tells that.
    fn bound_to(&self) -> Result<(Guid, Option<u32>)> {
        let answer = self.query_addr()?;
        let guid = Guid::new(u64::from_be(answer.node_guid.get()));
        if guid == Guid::default() {
            let reason = "the id is not bound to a device: resolve an address first";
            return Err(Error::invalid(FIND_DEVICE, self.to_string(), reason));
        }
        Ok((guid, Some(answer.ibdev_index).filter(|index| *index != NO_INDEX)))
    }
}

impl Counted for Inner {
    fn acks(&self) -> &Acks {
        &self.acks
    }
}

impl std::fmt::Debug for Inner {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Id")
            .field("token", &self.token)
            .field("handle", &self.handle)
            .field("port_space", &self.port_space)
            .field("qp_type", &self.qp_type)
            .finish_non_exhaustive()
    }
}

impl std::fmt::Display for Inner {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "id {}", self.token)
    }
}

#[cfg(test)]
pub(super) mod tests {
    use std::io::Read;
    use std::os::fd::OwnedFd;
    use std::os::unix::net::UnixStream;
    use std::sync::mpsc;
    use std::thread;

    use ucma_abi::rdma_ucm_listen;

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

    /// The same with the handle that the kernel gave it.
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
    fn an_index_that_the_kernel_does_not_tell_is_none() {
        let (channel, kernel) = fake_channel();
        let inner = fake_id(&channel, PortSpace::Tcp);
        // This kernel stores nothing at all.
        assert_eq!(inner.query_addr().expect("an answer").ibdev_index, NO_INDEX);
        drop((channel, inner));
        assert_eq!(commands(kernel), [19], "QUERY");
    }

    #[test]
    fn who_reads_an_event_does_not_wait_until_its_id_is_destroyed() {
        let (channel, _kernel) = fake_channel();
        let inner = fake_id(&channel, PortSpace::Tcp);
        // As while the kernel takes its time with DESTROY_ID.
        let home = inner.home_mut();
        inner.gone.store(true, Ordering::Release);
        let (says, hears) = mpsc::channel();
        let read = Arc::clone(&inner);
        thread::spawn(move || {
            assert!(read.is_gone());
            read.swallow(&channel.inner);
            says.send(())
        });
        hears.recv_timeout(Duration::from_secs(10)).expect("it does not wait");
        drop(home);
        inner.acks.wait(1);
    }
}
