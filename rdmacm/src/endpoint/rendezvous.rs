//! How a datagram socket and its peers find each other: by service resolution, and in groups.

use std::time::Duration;

use super::peer::{Home, Peer};
use crate::addr::Address;
use crate::cm::{CmId, ConnParam, Event, EventChannel, EventType, Membership, PortSpace};
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
    /// A call waits for it, and no other is to have what comes of it.
    is_claimed: bool,
    outcome: Option<Result<Peer>>,
}

impl Rendezvous {
    pub(super) fn new(listener: CmId, source: Address, home: Home) -> Self {
        Self { listener, source, home, resolutions: Vec::new(), groups: Groups::default() }
    }

    /// Begins to resolve `address`, or goes on with what nobody has claimed; the name of that.
    pub(super) fn resolve(
        &mut self,
        channel: &EventChannel,
        address: Address,
        is_claimed: bool,
    ) -> Result<Token> {
        let mut unclaimed = self.resolutions.iter_mut().filter(|begun| !begun.is_claimed);
        if let Some(begun) = unclaimed.find(|begun| begun.address == address) {
            begun.is_claimed = is_claimed;
            return Ok(begun.id.token());
        }
        let id = CmId::new(channel, PortSpace::Udp)?;
        id.resolve_addr(Some(self.source), address, PATIENCE)?;
        let token = id.token();
        self.resolutions.push(Resolution { id, address, is_claimed, outcome: None });
        Ok(token)
    }

    /// The resolution `token`, if something has come of it.
    pub(super) fn resolved(&mut self, token: Token) -> Option<Resolution> {
        self.take(|begun| begun.id.token() == token && begun.outcome.is_some())
    }

    /// Gives up the resolution `token`, if it is not at its end.
    pub(super) fn give_up(&mut self, token: Token) -> Option<Resolution> {
        self.take(|begun| begun.id.token() == token)
    }

    /// An answer that nobody has fetched whose address this is.
    pub(super) fn unfetched(&mut self, address: Address) -> Option<Resolution> {
        self.take(|begun| !begun.is_claimed && begun.address == address && begun.outcome.is_some())
    }

    fn take(&mut self, which: impl FnMut(&Resolution) -> bool) -> Option<Resolution> {
        let place = self.resolutions.iter().position(which)?;
        Some(self.resolutions.swap_remove(place))
    }

    /// Whether something has come of what nobody waits for.
    pub(super) fn has_answer(&self) -> bool {
        let mut unclaimed = self.resolutions.iter().filter(|begun| !begun.is_claimed);
        unclaimed.any(|begun| begun.outcome.is_some()) || self.groups.has_answer()
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
    /// Why the socket is not in groups any more that it was in.
    lost: Vec<Error>,
}

#[derive(Debug)]
struct Joined {
    address: Address,
    membership: Membership,
    is_claimed: bool,
    state: Joining,
}

#[derive(Debug)]
enum Joining {
    /// Nothing has come of it yet.
    Begun,
    Answered(Result<Peer>),
    /// Somebody has been told.
    Told,
    /// It was left by the network.
    Lost(Error),
}

impl Groups {
    /// Whether the socket is to begin to join `address`, which is noted then.
    pub(super) fn begin(
        &mut self,
        address: Address,
        membership: Membership,
        is_claimed: bool,
    ) -> Result<bool> {
        let place = self.joined.iter_mut().find(|joined| joined.address == address);
        match place {
            None => {
                let state = Joining::Begun;
                self.joined.push(Joined { address, membership, is_claimed, state });
                Ok(true)
            }
            Some(joined) if !joined.is_claimed && joined.membership == membership => {
                joined.is_claimed = is_claimed;
                Ok(false)
            }
            Some(_) => {
                let reason = "the socket is in the group, or joins it".into();
                let kind = ErrorKind::Invalid { errno: libc::EADDRINUSE, reason };
                Err(Error::new("join the multicast group", address.to_string(), kind))
            }
        }
    }

    /// What has come of joining `address`, for who waits for it, or for who does not.
    pub(super) fn answer(&mut self, address: Address, waits: bool) -> Option<Result<Peer>> {
        let joined = self.find(address).filter(|joined| joined.is_claimed == waits)?;
        match std::mem::replace(&mut joined.state, Joining::Told) {
            Joining::Answered(outcome) => {
                joined.is_claimed = true;
                Some(outcome)
            }
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
            Some(Joining::Lost(error)) => Err(error.clone()),
            _ => Ok(()),
        }
    }

    pub(super) fn forget(&mut self, address: Address) {
        self.joined.retain(|joined| joined.address != address);
    }

    /// A loss that nobody was told of.
    pub(super) fn loss(&mut self) -> Option<Error> {
        self.lost.pop()
    }

    fn has_answer(&self) -> bool {
        let mut unclaimed = self.joined.iter().filter(|joined| !joined.is_claimed);
        unclaimed.any(|joined| matches!(joined.state, Joining::Answered(_)))
    }

    pub(super) fn has_loss(&self) -> bool {
        !self.lost.is_empty()
    }

    fn happened(&mut self, address: Address, outcome: Result<Peer>) {
        let Some(joined) = self.find(address) else { return };
        match (&joined.state, outcome) {
            (Joining::Begun | Joining::Answered(_), outcome) => {
                joined.state = Joining::Answered(outcome);
            }
            (Joining::Told | Joining::Lost(_), Err(error)) => {
                let subject = address.to_string();
                let error =
                    Error::new("stay in the multicast group", subject, error.kind().clone());
                joined.state = Joining::Lost(error.clone());
                self.lost.push(error);
            }
            (Joining::Told | Joining::Lost(_), Ok(_)) => {}
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
    fn joining(is_claimed: bool) -> Groups {
        let mut groups = Groups::default();
        let begins = groups.begin(address(1), Membership::Full, is_claimed).expect("not joined");
        assert!(begins);
        groups
    }

    /// Takes note that the network has taken the socket out of the group.
    fn lose(groups: &mut Groups, kind: ErrorKind) {
        groups.happened(address(1), Err(error(kind)));
    }

    #[test]
    fn a_group_that_is_lost_is_told_of_once_and_is_lost_still() {
        let mut groups = joining(true);
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
    fn a_group_is_joined_once() {
        let mut groups = joining(false);
        let begin = |groups: &mut Groups, membership, is_claimed| {
            let begun = groups.begin(address(1), membership, is_claimed);
            begun.map_err(|error| error.errno())
        };
        assert_eq!(begin(&mut groups, Membership::SendOnly, false), Err(libc::EADDRINUSE));
        assert_eq!(begin(&mut groups, Membership::Full, false), Ok(false), "it goes on");
        assert_eq!(begin(&mut groups, Membership::Full, true), Ok(false), "and is taken over");
        assert_eq!(begin(&mut groups, Membership::Full, false), Err(libc::EADDRINUSE));
        assert_eq!(begin(&mut groups, Membership::Full, true), Err(libc::EADDRINUSE));
        groups.forget(address(1));
        assert_eq!(begin(&mut groups, Membership::SendOnly, true), Ok(true));
    }

    #[test]
    fn what_nobody_waits_for_is_an_answer() {
        for is_claimed in [false, true] {
            let mut groups = joining(is_claimed);
            assert!(!groups.has_answer());
            lose(&mut groups, ErrorKind::TimedOut);
            assert_eq!(groups.has_answer(), !is_claimed);
            assert!(groups.answer(address(1), !is_claimed).is_none(), "it is another's");
            assert!(groups.answer(address(1), is_claimed).is_some());
            assert!(!groups.has_answer());
        }
    }
}
