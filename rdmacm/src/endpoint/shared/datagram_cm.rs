//! The connection manager part of a datagram socket.
//!
//! It handles resolutions of peers, requests of peers, and multicast groups.
//!
//! This module issues no command. [`DatagramCm::handle_event`] returns the command that follows an event, and the
//! caller issues it while the state is unlocked. A resolution is recorded before its first command, so that none of its
//! events arrives too early. It stays recorded until its outcome is taken or it is canceled. If it is canceled while a
//! command of it runs, the thread that runs the command destroys its id.

use std::sync::Arc;
use std::time::Duration;

use super::datagram_peer::{DatagramPeer, PeerContext};
use super::groups::Groups;
use crate::addr::Address;
use crate::cm::{CmId, ConnParam, Event, EventType};
use crate::error::{Error, Result};
use crate::registry::Token;

/// Maximum time for resolving an address, and again for resolving a route.
pub(in crate::endpoint) const RESOLVE_TIMEOUT: Duration = Duration::from_secs(2);

/// The state of a datagram socket besides its work queues.
#[derive(Debug)]
pub(in crate::endpoint) struct DatagramCm {
    /// The id that receives the requests of peers for the socket's queue pair.
    listener: CmId,
    /// An address for ids on the socket's device.
    source: Address,
    context: PeerContext,
    resolutions: Vec<Resolution>,
    pub(in crate::endpoint) groups: Groups,
}

/// The resolution of a peer. Drop it while the state is unlocked: that destroys its id.
#[derive(Debug)]
pub(in crate::endpoint) struct Resolution {
    id: Arc<CmId>,
    address: Address,
    outcome: Option<Result<DatagramPeer>>,
}

/// A command that follows an event. It is issued while the state is unlocked.
#[derive(Debug)]
pub(in crate::endpoint) enum CmCommand {
    /// Answers a request of a peer with the queue pair of this socket.
    Answer {
        request: CmId,
        qp_num: u32,
    },
    /// Destroys a request that is not for this socket.
    Discard(CmId),
    ResolveRoute(Arc<CmId>),
    Connect(Arc<CmId>),
}

impl CmCommand {
    /// Issues the command. If that fails a resolution, returns its token and the error.
    ///
    /// A failed answer is ignored.
    pub(in crate::endpoint) fn issue(self) -> Option<(Token, Error)> {
        let (id, issued) = match self {
            Self::Answer { request, qp_num } => {
                // The peer repeats a request that is not answered.
                let _ = request.accept(&ConnParam { qp_num, ..ConnParam::default() });
                return None;
            }
            Self::Discard(request) => {
                drop(request);
                return None;
            }
            Self::ResolveRoute(id) => {
                let issued = id.resolve_route(RESOLVE_TIMEOUT);
                (id, issued)
            }
            Self::Connect(id) => {
                let issued = id.connect(&ConnParam::default());
                (id, issued)
            }
        };
        issued.err().map(|error| (id.token(), error))
    }
}

impl DatagramCm {
    pub(in crate::endpoint) fn new(listener: CmId, source: Address, context: PeerContext) -> Self {
        Self { listener, source, context, resolutions: Vec::new(), groups: Groups::default() }
    }

    /// Returns the address that ids of resolutions are bound to.
    pub(in crate::endpoint) fn source(&self) -> Address {
        self.source
    }

    /// Adds the resolution of `address` by `id`, whose first command follows.
    pub(in crate::endpoint) fn add(&mut self, id: &Arc<CmId>, address: Address) {
        self.resolutions.push(Resolution { id: Arc::clone(id), address, outcome: None });
    }

    /// Takes the resolution `token` if its outcome is known.
    pub(in crate::endpoint) fn resolved(&mut self, token: Token) -> Option<Resolution> {
        self.take(|begun| begun.id.token() == token && begun.outcome.is_some())
    }

    /// Returns `true` if the outcome of the resolution that has the number `token` is known.
    pub(in crate::endpoint) fn is_resolved(&self, token: u64) -> bool {
        let mut begun = self.resolutions.iter().filter(|begun| begun.id.token().get() == token);
        begun.any(|begun| begun.outcome.is_some())
    }

    /// Takes the resolution `token`, which is canceled, unless its outcome was taken.
    pub(in crate::endpoint) fn cancel(&mut self, token: Token) -> Option<Resolution> {
        self.take(|begun| begun.id.token() == token)
    }

    fn take(&mut self, filter: impl FnMut(&Resolution) -> bool) -> Option<Resolution> {
        let place = self.resolutions.iter().position(filter)?;
        Some(self.resolutions.swap_remove(place))
    }

    /// Handles `event` of a socket that has the queue pair `qp_num`. Returns the next command, if any.
    pub(in crate::endpoint) fn handle_event(
        &mut self,
        qp_num: u32,
        event: &mut Event,
    ) -> Option<CmCommand> {
        if let Some(request) = event.take_request() {
            return Some(match event.listener() == Some(self.listener.token()) {
                true => CmCommand::Answer { request, qp_num },
                false => CmCommand::Discard(request),
            });
        }
        if let Some(group) = event.multicast() {
            let outcome = match event.error_for(EventType::MulticastJoin) {
                Some(error) => Err(error),
                None => peer_from_event(&self.context, event),
            };
            self.groups.handle_event(group, outcome);
            return None;
        }
        let token = event.token();
        let begun = self.resolutions.iter_mut().find(|begun| begun.id.token() == token)?;
        begun.handle_event(&self.context, event)
    }

    /// Records that the resolution `token` has failed.
    pub(in crate::endpoint) fn on_failed(&mut self, token: Token, error: &Error) {
        let mut resolutions = self.resolutions.iter_mut();
        if let Some(begun) = resolutions.find(|begun| begun.id.token() == token) {
            begun.record_failure(error);
        }
    }
}

impl Resolution {
    /// Returns the outcome of a resolution that has one.
    pub(in crate::endpoint) fn into_outcome(self) -> Result<DatagramPeer> {
        self.outcome.expect("a resolution is returned with its outcome")
    }

    /// Handles an event of the id. Returns the next command, if any.
    fn handle_event(&mut self, context: &PeerContext, event: &Event) -> Option<CmCommand> {
        use EventType as T;
        if self.outcome.is_some() {
            return None;
        }
        match (event.event_type(), event.status()) {
            (T::AddrResolved, 0) => return Some(CmCommand::ResolveRoute(Arc::clone(&self.id))),
            (T::RouteResolved, 0) => return Some(CmCommand::Connect(Arc::clone(&self.id))),
            (T::Established, 0) => self.outcome = Some(peer_from_event(context, event)),
            // The address of a neighbor, or of an interface, has changed.
            (T::AddrChange, _) => {}
            _ => {
                if let Some(error) = event.error_for(T::Established) {
                    self.record_failure(&error);
                }
            }
        }
        None
    }

    fn record_failure(&mut self, error: &Error) {
        self.outcome = Some(Err(error.clone().of("resolve", self.address.to_string())));
    }
}

/// Returns the peer that `event` describes.
fn peer_from_event(context: &PeerContext, event: &Event) -> Result<DatagramPeer> {
    let param = event.datagram().map(|param| DatagramPeer::new(context, param));
    param.ok_or_else(|| {
        Error::malformed("wait for", "an event", "the event has no destination for datagrams")
    })
}

#[cfg(all(test, feature = "null", not(loom)))]
mod tests;
