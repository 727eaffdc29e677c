//! How a datagram socket and its peers find each other: by service resolution, and in groups.

use std::time::Duration;

use super::peer::{Home, Peer};
use crate::addr::Address;
use crate::cm::{CmId, ConnParam, Event, EventChannel, EventType, PortSpace};
use crate::error::{Error, ErrorKind, Result};
use crate::registry::Token;

/// How long finding an address may take, and then the route.
const PATIENCE: Duration = Duration::from_secs(2);

/// What a datagram socket has besides what moves data.
#[derive(Debug)]
pub(super) struct Rendezvous {
    /// Where peers ask for the socket's queue pair.
    listener: CmId,
    /// An address for ids that are to have the socket's device.
    source: Address,
    home: Home,
    resolutions: Vec<Resolution>,
    pub(super) groups: Groups,
}

/// A peer that is asked where to send. Its id goes with it, which is to be when nothing is locked.
#[derive(Debug)]
pub(super) struct Resolution {
    id: CmId,
    address: Address,
    /// The last call that asked for the outcome did not wait: the descriptor becomes readable when it is known.
    is_tried: bool,
    outcome: Option<Result<Peer>>,
}

impl Rendezvous {
    pub(super) fn new(listener: CmId, source: Address, home: Home) -> Self {
        Self { listener, source, home, resolutions: Vec::new(), groups: Groups::default() }
    }

    /// Starts to resolve `address`; returns the token of the resolution.
    pub(super) fn resolve(&mut self, channel: &EventChannel, address: Address) -> Result<Token> {
        let id = CmId::new(channel, PortSpace::Udp)?;
        id.resolve_addr(Some(self.source), address, PATIENCE)?;
        let token = id.token();
        self.resolutions.push(Resolution { id, address, is_tried: false, outcome: None });
        Ok(token)
    }

    /// Returns the resolution `token` if its outcome is known. If not, `is_try` says whether the caller does not wait.
    pub(super) fn resolved(&mut self, token: Token, is_try: bool) -> Option<Resolution> {
        let begun = self.resolutions.iter_mut().find(|begun| begun.id.token() == token)?;
        begun.is_tried = is_try;
        self.take(|begun| begun.id.token() == token && begun.outcome.is_some())
    }

    /// Gives up the resolution `token`, if it is not at its end.
    pub(super) fn give_up(&mut self, token: Token) -> Option<Resolution> {
        self.take(|begun| begun.id.token() == token)
    }

    fn take(&mut self, which: impl FnMut(&Resolution) -> bool) -> Option<Resolution> {
        let place = self.resolutions.iter().position(which)?;
        Some(self.resolutions.swap_remove(place))
    }

    /// Returns `true` if an outcome is known for which a call has asked that did not wait.
    pub(super) fn has_answer(&self) -> bool {
        let mut tried = self.resolutions.iter().filter(|begun| begun.is_tried);
        tried.any(|begun| begun.outcome.is_some()) || self.groups.has_answer()
    }

    /// Takes note of `event`, and goes on from there. The socket has the queue pair `qp_num`.
    pub(super) fn happened(&mut self, qp_num: u32, mut event: Event) {
        if let Some(request) = event.take_request() {
            if event.listener() == Some(self.listener.token()) {
                // Where it cannot be answered, the peer asks again.
                let _ = request.accept(&ConnParam { qp_num, ..ConnParam::default() });
            }
        } else if let Some(group) = event.multicast() {
            let outcome = match event.failure(EventType::MulticastJoin) {
                Some(error) => Err(error),
                None => peer_of(&self.home, &event),
            };
            self.groups.happened(group, outcome);
        } else {
            let token = event.token();
            let mut resolutions = self.resolutions.iter_mut();
            if let Some(begun) = resolutions.find(|begun| begun.id.token() == token) {
                begun.go_on(&self.home, &event);
            }
        }
    }
}

impl Resolution {
    /// What has come of it.
    pub(super) fn into_outcome(self) -> Result<Peer> {
        self.outcome.expect("something has come of what is resolved")
    }

    /// Takes the next step.
    fn go_on(&mut self, home: &Home, event: &Event) {
        use EventType as T;
        if self.outcome.is_some() {
            return;
        }
        let started = match (event.event_type(), event.status()) {
            (T::AddrResolved, 0) => self.id.resolve_route(PATIENCE),
            (T::RouteResolved, 0) => self.id.connect(&ConnParam::default()),
            (T::Established, 0) => {
                self.outcome = Some(peer_of(home, event));
                return;
            }
            // The address of a neighbour, or of an interface, has changed.
            (T::AddrChange, _) => return,
            _ => event.failure(T::Established).map_or(Ok(()), Err),
        };
        if let Err(error) = started {
            let subject = self.address.to_string();
            self.outcome = Some(Err(Error::new("resolve", subject, error.kind().clone())));
        }
    }
}

/// To whom `event` says that datagrams go.
fn peer_of(home: &Home, event: &Event) -> Result<Peer> {
    let param = event.datagram().map(|param| Peer::new(home, param));
    param
        .ok_or_else(|| Error::malformed("wait for", "an event", "it says nothing of where to send"))
}

/// The groups that a socket is in, or joins.
#[derive(Debug, Default)]
pub(super) struct Groups {
    joined: Vec<Joined>,
}

#[derive(Debug)]
struct Joined {
    address: Address,
    /// The last call that asked for the answer did not wait: the descriptor becomes readable when it is known.
    is_tried: bool,
    state: Joining,
}

#[derive(Debug)]
enum Joining {
    /// Nothing has come of it yet.
    Begun,
    Answered(Result<Peer>),
    /// Somebody has been told.
    Told,
    /// The network has taken the socket out of the group. A receiving call reports that once, however often the
    /// kernel reports it.
    Lost {
        error: Error,
        is_reported: bool,
    },
}

impl Groups {
    /// Records that the socket joins the group of `address`.
    pub(super) fn begin(&mut self, address: Address) -> Result<()> {
        if self.find(address).is_some() {
            let reason = "the socket is in the group, or joins it".into();
            let kind = ErrorKind::Invalid { errno: libc::EADDRINUSE, reason };
            return Err(Error::new("join the multicast group", address.to_string(), kind));
        }
        self.joined.push(Joined { address, is_tried: false, state: Joining::Begun });
        Ok(())
    }

    /// Returns the outcome of joining `address`, once. If it is not known, `is_try` says whether the caller does not wait.
    pub(super) fn answer(&mut self, address: Address, is_try: bool) -> Option<Result<Peer>> {
        let joined = self.find(address)?;
        joined.is_tried = is_try;
        match std::mem::replace(&mut joined.state, Joining::Told) {
            Joining::Answered(outcome) => Some(outcome),
            state => {
                joined.state = state;
                None
            }
        }
    }

    /// Why the socket is not in the group of `address` any more.
    pub(super) fn check(&self, address: Address) -> Result<()> {
        let joined = self.joined.iter().find(|joined| joined.address == address);
        match joined.map(|joined| &joined.state) {
            Some(Joining::Lost { error, .. }) => Err(error.clone()),
            _ => Ok(()),
        }
    }

    pub(super) fn forget(&mut self, address: Address) {
        self.joined.retain(|joined| joined.address != address);
    }

    /// Returns the loss of a group that no call has reported yet.
    pub(super) fn loss(&mut self) -> Option<Error> {
        self.joined.iter_mut().find_map(|joined| match &mut joined.state {
            Joining::Lost { error, is_reported } if !*is_reported => {
                *is_reported = true;
                Some(error.clone())
            }
            _ => None,
        })
    }

    fn has_answer(&self) -> bool {
        let mut tried = self.joined.iter().filter(|joined| joined.is_tried);
        tried.any(|joined| matches!(joined.state, Joining::Answered(_)))
    }

    pub(super) fn has_loss(&self) -> bool {
        let mut states = self.joined.iter().map(|joined| &joined.state);
        states.any(|state| matches!(state, Joining::Lost { is_reported: false, .. }))
    }

    fn happened(&mut self, address: Address, outcome: Result<Peer>) {
        let Some(joined) = self.find(address) else { return };
        match (&joined.state, outcome) {
            (Joining::Begun | Joining::Answered(_), outcome) => {
                joined.state = Joining::Answered(outcome);
            }
            (Joining::Told | Joining::Lost { .. }, Err(error)) => {
                let subject = address.to_string();
                let error =
                    Error::new("stay in the multicast group", subject, error.kind().clone());
                joined.state = Joining::Lost { error, is_reported: false };
            }
            (Joining::Told | Joining::Lost { .. }, Ok(_)) => {}
        }
    }

    fn find(&mut self, address: Address) -> Option<&mut Joined> {
        self.joined.iter_mut().find(|joined| joined.address == address)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::SocketAddr;

    fn address(number: u8) -> Address {
        SocketAddr::from(([239, 0, 0, number], 0)).into()
    }

    fn error(kind: ErrorKind) -> Error {
        Error::new("wait for", "an event", kind)
    }

    /// Groups of which one is being joined.
    fn joining() -> Groups {
        let mut groups = Groups::default();
        groups.begin(address(1)).expect("the socket should not be in the group");
        groups
    }

    /// Takes note that the network has taken the socket out of the group.
    fn lose(groups: &mut Groups, kind: ErrorKind) {
        groups.happened(address(1), Err(error(kind)));
    }

    #[test]
    fn a_group_that_is_lost_is_told_of_once_and_is_lost_still() {
        let mut groups = joining();
        // Where that fails, who joins is told, and nobody else.
        lose(&mut groups, ErrorKind::TimedOut);
        assert!(groups.loss().is_none());
        let told = groups.answer(address(1), true).expect("an answer").expect_err("a failure");
        assert_eq!(*told.kind(), ErrorKind::TimedOut);
        assert!(groups.answer(address(1), true).is_none(), "once");
        groups.check(address(1)).expect("it is not lost");
        for lost in [ErrorKind::Os(libc::ENETRESET), ErrorKind::Os(libc::EIO)] {
            assert!(!groups.has_loss());
            lose(&mut groups, lost.clone());
            assert!(groups.has_loss());
            let loss = groups.loss().expect("it is lost");
            assert_eq!(*loss.kind(), lost);
            assert!(loss.to_string().contains("stay in the multicast group 239.0.0.1:0"), "{loss}");
            assert!(groups.loss().is_none(), "once");
            assert_eq!(*groups.check(address(1)).expect_err("still").kind(), lost);
        }
        groups.forget(address(1));
        groups.check(address(1)).expect("nobody asks");
        // Of a group that was left nothing is told.
        lose(&mut groups, ErrorKind::TimedOut);
        assert!(groups.loss().is_none());
    }

    #[test]
    fn repeated_group_loss_is_reported_once() {
        let mut groups = joining();
        groups.happened(address(1), Err(error(ErrorKind::TimedOut)));
        groups.answer(address(1), true).expect("an answer").expect_err("a failure");
        for _ in 0..1000 {
            lose(&mut groups, ErrorKind::Os(libc::EIO));
        }
        lose(&mut groups, ErrorKind::Os(libc::ENETRESET));
        let loss = groups.loss().expect("the group is lost");
        assert_eq!(*loss.kind(), ErrorKind::Os(libc::ENETRESET), "the latest reason");
        assert!(groups.loss().is_none() && !groups.has_loss());
    }

    #[test]
    fn group_is_joined_once() {
        let mut groups = joining();
        let again = groups.begin(address(1)).expect_err("the socket should be joining");
        assert_eq!(again.errno(), libc::EADDRINUSE);
        groups.begin(address(2)).expect("another group should be joined");
        groups.forget(address(1));
        groups.begin(address(1)).expect("a group that was left should be joined again");
    }

    #[test]
    fn answer_after_try_makes_readable() {
        for is_try in [false, true] {
            let mut groups = joining();
            assert!(groups.answer(address(1), is_try).is_none());
            assert!(!groups.has_answer());
            lose(&mut groups, ErrorKind::TimedOut);
            assert_eq!(groups.has_answer(), is_try);
            assert!(groups.answer(address(1), is_try).is_some());
            assert!(!groups.has_answer());
        }
    }
}
