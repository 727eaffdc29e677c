//! The multicast groups of a datagram socket.

use super::datagram_peer::DatagramPeer;
use crate::addr::Address;
use crate::error::{Error, ErrorKind, Result};

/// The groups that a socket is in, joins or leaves.
#[derive(Debug, Default)]
pub(super) struct Groups {
    entries: Vec<GroupEntry>,
    /// The number of the next entry.
    next: u64,
}

#[derive(Debug)]
struct GroupEntry {
    address: Address,
    /// The number of the joining, unique within the socket.
    number: u64,
    state: JoinState,
}

#[derive(Debug)]
enum JoinState {
    /// The kernel has not answered.
    Begun,
    Answered(Result<DatagramPeer>),
    /// A caller has the answer.
    Told,
    /// The network has removed the socket from the group.
    ///
    /// A receiving call reports that once, even if the kernel reports it several times.
    Lost {
        error: Error,
        is_reported: bool,
    },
    /// A caller leaves the group.
    Leaving,
}

impl Groups {
    /// Records that the socket joins the group of `address`. Returns the number of the joining.
    pub(super) fn begin(&mut self, address: Address) -> Result<u64> {
        if self.find(address).is_some() {
            let reason = "the socket is in the group, or joins it".into();
            let kind = ErrorKind::InvalidInput { errno: libc::EADDRINUSE, reason };
            return Err(Error::new("join the multicast group", address.to_string(), kind));
        }
        let number = self.next;
        self.next += 1;
        self.entries.push(GroupEntry { address, number, state: JoinState::Begun });
        Ok(number)
    }

    /// Returns the outcome of joining `address`, once it is known, once.
    pub(super) fn answer(&mut self, address: Address) -> Option<Result<DatagramPeer>> {
        let entry = self.find(address)?;
        match std::mem::replace(&mut entry.state, JoinState::Told) {
            JoinState::Answered(outcome) => Some(outcome),
            state => {
                entry.state = state;
                None
            }
        }
    }

    /// Returns `true` if the outcome of the joining with this number is known, and no caller has it.
    pub(super) fn is_answered(&self, number: u64) -> bool {
        let mut entries = self.entries.iter().filter(|entry| entry.number == number);
        entries.any(|entry| matches!(entry.state, JoinState::Answered(_)))
    }

    /// Returns the error because of which the socket is not in the group of `address` any more.
    pub(super) fn check(&self, address: Address) -> Result<()> {
        let entry = self.entries.iter().find(|entry| entry.address == address);
        match entry.map(|entry| &entry.state) {
            Some(JoinState::Lost { error, .. }) => Err(error.clone()),
            _ => Ok(()),
        }
    }

    /// Records that a caller leaves the group of `address`.
    ///
    /// The group cannot be joined again until it is [forgotten](Self::forget), and no event of it is reported.
    pub(super) fn leave(&mut self, address: Address) {
        if let Some(entry) = self.find(address) {
            entry.state = JoinState::Leaving;
        }
    }

    pub(super) fn forget(&mut self, address: Address) {
        self.entries.retain(|entry| entry.address != address);
    }

    /// Returns the loss of a group that no call has reported yet.
    pub(super) fn loss(&mut self) -> Option<Error> {
        self.entries.iter_mut().find_map(|entry| match &mut entry.state {
            JoinState::Lost { error, is_reported } if !*is_reported => {
                *is_reported = true;
                Some(error.clone())
            }
            _ => None,
        })
    }

    pub(super) fn has_loss(&self) -> bool {
        let mut states = self.entries.iter().map(|entry| &entry.state);
        states.any(|state| matches!(state, JoinState::Lost { is_reported: false, .. }))
    }

    pub(super) fn handle_event(&mut self, address: Address, outcome: Result<DatagramPeer>) {
        let Some(entry) = self.find(address) else { return };
        match (&entry.state, outcome) {
            (JoinState::Begun | JoinState::Answered(_), outcome) => {
                entry.state = JoinState::Answered(outcome);
            }
            (JoinState::Told | JoinState::Lost { .. }, Err(error)) => {
                let subject = address.to_string();
                let error =
                    Error::new("stay in the multicast group", subject, error.kind().clone());
                entry.state = JoinState::Lost { error, is_reported: false };
            }
            (JoinState::Told | JoinState::Lost { .. }, Ok(_)) | (JoinState::Leaving, _) => {}
        }
    }

    fn find(&mut self, address: Address) -> Option<&mut GroupEntry> {
        self.entries.iter_mut().find(|entry| entry.address == address)
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
        groups.handle_event(address(1), Err(error(kind)));
    }

    #[test]
    fn lost_group_is_reported_once() {
        let mut groups = joining();
        // If the joining fails, only its caller gets the error.
        lose(&mut groups, ErrorKind::TimedOut);
        assert!(groups.loss().is_none());
        let error = groups.answer(address(1)).expect("an answer").expect_err("a failure");
        assert_eq!(*error.kind(), ErrorKind::TimedOut);
        assert!(groups.answer(address(1)).is_none(), "once");
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
        groups.check(address(1)).expect("the group should have been left");
        // No event of a group that was left is reported.
        lose(&mut groups, ErrorKind::TimedOut);
        assert!(groups.loss().is_none());
    }

    #[test]
    fn repeated_group_loss_is_reported_once() {
        let mut groups = joining();
        groups.handle_event(address(1), Err(error(ErrorKind::TimedOut)));
        groups.answer(address(1)).expect("an answer").expect_err("a failure");
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
    fn answer_is_known_by_number() {
        let mut groups = Groups::default();
        let first = groups.begin(address(1)).expect("the socket should not be in the group");
        let second = groups.begin(address(2)).expect("the socket should not be in the group");
        lose(&mut groups, ErrorKind::TimedOut);
        assert!(groups.is_answered(first) && !groups.is_answered(second));
        assert!(groups.answer(address(1)).is_some());
        assert!(!groups.is_answered(first), "it was taken");
    }

    #[test]
    fn left_group_is_joined_again_after_command() {
        let mut groups = joining();
        lose(&mut groups, ErrorKind::TimedOut);
        groups.answer(address(1)).expect("an answer").expect_err("a failure");
        groups.leave(address(1));
        lose(&mut groups, ErrorKind::TimedOut);
        assert!(!groups.has_loss(), "the socket leaves it");
        groups.begin(address(1)).expect_err("the command to leave runs");
        groups.forget(address(1));
        groups.begin(address(1)).expect("a group that was left should be joined again");
    }
}
