//! The library's record of an id, and the table in which events look it up.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, RwLock, RwLockReadGuard, RwLockWriteGuard};
use std::time::Duration;

use super::channel::ChannelInner;
use super::endpoint_qp::EndpointQpInit;
use super::group::GroupEntry;
use super::mode::SyncMode;
use super::own_qp::OwnQp;
use super::parse::EventData;
use super::resolution::Resolution;
use super::service_type::ServiceType;
use crate::acks::{Acks, Counted, Unacknowledged};
use crate::addr::Address;
use crate::addr::port_space::PortSpace;
use crate::error::{Error, IntoError as _, Result};
use crate::lock::ignore_poison;
use crate::registry::{Registry, Token};
use crate::sys::command::CommandError;
use crate::sys::per_process::PerProcess;
use crate::sys::process::Process;
use crate::verbs::{Context, Depths, Ece, QpType, QueuePair, SharedReceiveQueue};

/// The living ids of the process, by the number that the kernel stores for the program.
pub(super) static IDS: PerProcess<Registry<Inner>> = PerProcess::new();

/// The record of an id.
///
/// An event finds it by its token.
pub(super) struct Inner {
    pub(super) token: Token,
    /// The kernel's handle of the id.
    pub(super) handle: u32,
    pub(super) port_space: PortSpace,
    pub(super) qp_type: QpType,
    /// The number that the program attached.
    pub(super) user_data: AtomicU64,
    pub(super) acks: Acks,
    /// The channel of the id.
    ///
    /// It is held for reading across each command, and for writing while the id is destroyed. The kernel reuses the
    /// handle of a destroyed id at once, and a late command must not reach the next id.
    binding: RwLock<ChannelBinding>,
    /// `true` if the id is destroyed, or is being destroyed.
    ///
    /// It is set while `binding` is held for writing. A thread that reads events must not wait for that lock, which may
    /// be held for long.
    pub(super) destroyed: AtomicBool,
    /// The process that owns the id.
    pub(super) process: Process,
    /// `true` if LISTEN succeeded.
    ///
    /// Set while `binding` is held for reading.
    pub(super) listens: AtomicBool,
    /// Held while the id migrates, until the events of the old channel are acknowledged.
    ///
    /// An event must not find that the id has returned to its former channel.
    pub(super) migration: Mutex<()>,
    /// The multicast groups that the id has joined, in this order.
    ///
    /// Locked before `state` and `binding`.
    pub(super) groups: Mutex<Vec<GroupEntry>>,
    state: Mutex<State>,
}

/// The location of the kernel's object.
pub(super) struct ChannelBinding {
    /// The channel that owns the id.
    ///
    /// A command on any other channel fails.
    pub(super) channel: Arc<ChannelInner>,
    /// The former channels of a listener: the kernel leaves the ids of unread requests on them.
    pub(super) former_channels: Vec<Arc<ChannelInner>>,
    /// The additional state of a synchronous id, whose channel is private.
    pub(super) sync: Option<Arc<SyncMode>>,
}

/// The mutable part of an id's record.
#[derive(Default)]
pub(super) struct State {
    /// The device to which the id is bound, after a caller has needed it.
    pub(super) context: Option<Context>,
    pub(super) qp: Option<OwnQp>,
    pub(super) srq: Option<SharedReceiveQueue>,
    /// `true` if a request created the id, and the id is not accepted yet.
    pub(super) acceptable: bool,
    /// Maximum wait of the calls of a synchronous id.
    pub(super) timeout: Option<Duration>,
    /// Attributes of the queue pair that each request to a listening endpoint gets.
    pub(super) request_qp: Option<Box<EndpointQpInit>>,
    /// Bytes that an endpoint sends before the program's private data.
    pub(super) connect_header: Box<[u8]>,
    /// The depths of the connection request, from the local point of view.
    pub(super) requested_depths: Option<Depths>,
    /// The ECE options that the peer gets for a queue pair of the program.
    ///
    /// `remote_ece` has the options that the peer has sent.
    pub(super) local_ece: Ece,
    pub(super) remote_ece: Ece,
    pub(super) resolution: Resolution,
    /// The peer's address, if this side specified it.
    pub(super) peer: Option<Address>,
    /// Number of the queue pair that was last sent to the peer.
    pub(super) named_qp: u32,
    /// `true` if the connection is established.
    ///
    /// An event then reports its end.
    pub(super) established: bool,
    /// `true` if the reaction to the peer's answer failed, and `ConnectError` was reported.
    ///
    /// Later events of the kernel about this connection are then not reported.
    pub(super) connect_failed: bool,
    /// `true` if an event reported that the device was removed.
    pub(super) removed: bool,
}

impl Inner {
    pub(super) fn new(
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
            binding: RwLock::new(ChannelBinding {
                channel,
                former_channels: Vec::new(),
                sync: None,
            }),
            destroyed: AtomicBool::new(false),
            process: Process::current(),
            listens: AtomicBool::new(false),
            migration: Mutex::default(),
            groups: Mutex::default(),
            state: Mutex::default(),
        });
        IDS.set(token, &inner);
        inner
    }

    /// Returns the record of an id that a request to `listener` created.
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
        if let EventData::Connection(request) = data {
            state.requested_depths = Some(Depths {
                responder_resources: request.responder_resources,
                initiator_depth: request.initiator_depth,
            });
        }
        drop(state);
        inner
    }

    pub(super) fn service(&self) -> ServiceType {
        match self.qp_type {
            QpType::IB_UVERBS_QPT_UD => ServiceType::Datagram,
            _ => ServiceType::Connected,
        }
    }

    /// Returns `true` if the kernel's object is destroyed.
    ///
    /// The program then gets no more events of the id.
    pub(super) fn is_destroyed(&self) -> bool {
        self.destroyed.load(Ordering::Acquire)
    }

    /// Counts an event that came from `channel` as handed to this thread.
    pub(super) fn received(self: &Arc<Self>, channel: &Arc<ChannelInner>) -> Unacknowledged {
        // A destroyed id does not migrate any more, so its earlier events are not waited for.
        if self.is_destroyed() {
            return self.track(true);
        }
        let binding = self.binding();
        self.track(Arc::ptr_eq(&binding.channel, channel))
    }

    /// Counts an event from `channel` that the program does not get.
    pub(super) fn discard_event(self: &Arc<Self>, channel: &Arc<ChannelInner>) {
        drop(self.received(channel));
    }

    pub(super) fn state(&self) -> MutexGuard<'_, State> {
        ignore_poison(self.state.lock())
    }

    /// Returns the id's queue pair if it has queues.
    pub(super) fn queue_pair(&self) -> Option<QueuePair> {
        self.state().qp.as_ref().and_then(OwnQp::queue_pair).cloned()
    }

    /// Returns the text that names the id and its peer in errors.
    pub(super) fn with_peer(&self) -> String {
        let peer = self.state().peer;
        peer.map_or_else(|| self.to_string(), |peer| format!("{self} to {peer}"))
    }

    pub(super) fn binding(&self) -> RwLockReadGuard<'_, ChannelBinding> {
        ignore_poison(self.binding.read())
    }

    pub(super) fn binding_mut(&self) -> RwLockWriteGuard<'_, ChannelBinding> {
        ignore_poison(self.binding.write())
    }

    /// Refuses `operation` in a child of the process that created the id.
    ///
    /// This is called before any lock is taken: a lock that another thread held during the fork stays locked in the
    /// child.
    #[inline]
    pub(super) fn check_process(&self, operation: &'static str) -> Result<()> {
        match self.process.check() {
            Ok(()) => Ok(()),
            Err(refused) => Err(self.process_error(operation, refused)),
        }
    }

    #[cold]
    fn process_error(&self, operation: &'static str, refused: CommandError) -> Error {
        refused.into_error(operation, self.to_string())
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
