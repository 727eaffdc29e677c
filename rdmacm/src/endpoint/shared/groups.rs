//! The multicast groups of a datagram socket.

use super::datagram_peer::DatagramPeer;
use crate::addr::Address;
use crate::error::{Error, ErrorKind, Result};

/// The groups that a socket is in, joins or leaves.
#[derive(Debug, Default)]
pub(in crate::endpoint) struct Groups {
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
    Delivered,
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
    pub(in crate::endpoint) fn begin(&mut self, address: Address) -> Result<u64> {
        if self.find(address).is_some() {
            let reason = "the socket is in the group already, or is joining the group".into();
            let kind = ErrorKind::InvalidInput { errno: libc::EADDRINUSE, reason };
            return Err(Error::new("join the multicast group", address.to_string(), kind));
        }
        let number = self.next;
        self.next += 1;
        self.entries.push(GroupEntry { address, number, state: JoinState::Begun });
        Ok(number)
    }

    /// Takes the outcome of joining `address`, if it is known and was not taken before.
    pub(in crate::endpoint) fn answer(&mut self, address: Address) -> Option<Result<DatagramPeer>> {
        let entry = self.find(address)?;
        match std::mem::replace(&mut entry.state, JoinState::Delivered) {
            JoinState::Answered(outcome) => Some(outcome),
            state => {
                entry.state = state;
                None
            }
        }
    }

    /// Returns `true` if the outcome of the joining with this number is known, and no caller has it.
    pub(in crate::endpoint) fn is_answered(&self, number: u64) -> bool {
        let mut entries = self.entries.iter().filter(|entry| entry.number == number);
        entries.any(|entry| matches!(entry.state, JoinState::Answered(_)))
    }

    /// Returns the error that removed the socket from the group of `address`, if there was one.
    pub(in crate::endpoint) fn check(&self, address: Address) -> Result<()> {
        let entry = self.entries.iter().find(|entry| entry.address == address);
        match entry.map(|entry| &entry.state) {
            Some(JoinState::Lost { error, .. }) => Err(error.clone()),
            _ => Ok(()),
        }
    }

    /// Records that a caller leaves the group of `address`.
    ///
    /// The group cannot be joined again until it is [forgotten](Self::forget), and no event of it is reported.
    pub(in crate::endpoint) fn leave(&mut self, address: Address) {
        if let Some(entry) = self.find(address) {
            entry.state = JoinState::Leaving;
        }
    }

    pub(in crate::endpoint) fn forget(&mut self, address: Address) {
        self.entries.retain(|entry| entry.address != address);
    }

    /// Returns the loss of a group that no call has reported yet.
    pub(in crate::endpoint) fn loss(&mut self) -> Option<Error> {
        self.entries.iter_mut().find_map(|entry| match &mut entry.state {
            JoinState::Lost { error, is_reported } if !*is_reported => {
                *is_reported = true;
                Some(error.clone())
            }
            _ => None,
        })
    }

    pub(in crate::endpoint) fn has_loss(&self) -> bool {
        let mut states = self.entries.iter().map(|entry| &entry.state);
        states.any(|state| matches!(state, JoinState::Lost { is_reported: false, .. }))
    }

    pub(in crate::endpoint) fn handle_event(
        &mut self,
        address: Address,
        outcome: Result<DatagramPeer>,
    ) {
        let Some(entry) = self.find(address) else { return };
        match (&entry.state, outcome) {
            (JoinState::Begun | JoinState::Answered(_), outcome) => {
                entry.state = JoinState::Answered(outcome);
            }
            (state @ (JoinState::Delivered | JoinState::Lost { .. }), Err(error)) => {
                let is_reported = matches!(state, JoinState::Lost { is_reported: true, .. });
                let subject = address.to_string();
                let error =
                    Error::new("stay in the multicast group", subject, error.kind().clone());
                entry.state = JoinState::Lost { error, is_reported };
            }
            (JoinState::Delivered | JoinState::Lost { .. }, Ok(_)) | (JoinState::Leaving, _) => {}
        }
    }

    fn find(&mut self, address: Address) -> Option<&mut GroupEntry> {
        self.entries.iter_mut().find(|entry| entry.address == address)
    }
}

#[cfg(test)]
mod tests;
