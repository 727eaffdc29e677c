//! The record of an id: what the library knows of it, and the table in which events find it.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, RwLock, RwLockReadGuard, RwLockWriteGuard};
use std::time::Duration;

use super::channel::ChannelInner;
use super::ece::Ece;
use super::endpoint_qp::EndpointQpInit;
use super::group::Joined;
use super::mode::SyncMode;
use super::parse::EventData;
use super::resolution::Resolution;
use super::service_type::ServiceType;
use crate::acks::{Acks, Counted, Unacknowledged};
use crate::addr::Address;
use crate::addr::port_space::PortSpace;
use crate::error::{Error, IntoError as _, Result};
use crate::lock::unpoisoned;
use crate::registry::{Registry, Token};
use crate::sys::command::Refused;
use crate::sys::per_process::PerProcess;
use crate::sys::process::Process;
use crate::verbs::{Context, Depths, QpType, QueuePair, SharedReceiveQueue};

/// Every living id of the process, by the number that the kernel knows it by.
pub(super) static IDS: PerProcess<Registry<Inner>> = PerProcess::new();

/// The record of an id, which is found by its token when an event comes.
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
    binding: RwLock<ChannelBinding>,
    /// It is destroyed, or being destroyed: set while `binding` is held for writing, which may be for
    /// long, as who reads events must not wait for that.
    pub(super) destroyed: AtomicBool,
    /// The process that the id belongs to.
    pub(super) process: Process,
    /// LISTEN had success. Set while `binding` is held for reading.
    pub(super) listens: AtomicBool,
    /// Held while the id migrates, until the events of the old channel are acknowledged: an event
    /// must not find the id back where it was.
    pub(super) migration: Mutex<()>,
    /// The multicast groups that it has joined, in this order. Locked before `state` and `binding`.
    pub(super) groups: Mutex<Vec<Joined>>,
    state: Mutex<State>,
}

/// Where the kernel's object is.
pub(super) struct ChannelBinding {
    /// The channel that owns the id: a command on any other fails.
    pub(super) channel: Arc<ChannelInner>,
    /// Of a listener, the channels that it was on: the kernel leaves the ids of unread requests
    /// there.
    pub(super) former_channels: Vec<Arc<ChannelInner>>,
    /// The channel is the id's own, and calls wait for their events.
    pub(super) sync: Option<Arc<SyncMode>>,
}

/// The part of an id's record that changes.
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
    pub(super) request_qp: Option<Box<EndpointQpInit>>,
    /// Of an endpoint, what goes before the program's private data.
    pub(super) connect_header: Box<[u8]>,
    /// The depths of the connection request, from the local point of view.
    pub(super) asked: Option<Depths>,
    /// The ECE options that the peer gets for a queue pair of the program, and those that it has sent.
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

    pub(super) fn service(&self) -> ServiceType {
        match self.qp_type {
            QpType::IB_UVERBS_QPT_UD => ServiceType::Datagram,
            _ => ServiceType::Connected,
        }
    }

    /// Returns `true` if the kernel's object is destroyed. The program gets no more events then.
    pub(super) fn is_destroyed(&self) -> bool {
        self.destroyed.load(Ordering::Acquire)
    }

    /// Counts an event that came from `channel` as handed to this thread.
    pub(super) fn received(self: &Arc<Self>, channel: &Arc<ChannelInner>) -> Unacknowledged {
        // What is destroyed does not move any more, so nobody asks for events of before.
        if self.is_destroyed() {
            return self.hand_out(true);
        }
        let binding = self.binding();
        self.hand_out(Arc::ptr_eq(&binding.channel, channel))
    }

    /// Counts an event that came from `channel`, and that the program never saw.
    pub(super) fn discard_event(self: &Arc<Self>, channel: &Arc<ChannelInner>) {
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

    pub(super) fn binding(&self) -> RwLockReadGuard<'_, ChannelBinding> {
        unpoisoned(self.binding.read())
    }

    pub(super) fn binding_mut(&self) -> RwLockWriteGuard<'_, ChannelBinding> {
        unpoisoned(self.binding.write())
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
