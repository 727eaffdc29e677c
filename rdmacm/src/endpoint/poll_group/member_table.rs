//! The members of a group, found by their handles and by the numbers of their queue pairs.

use std::collections::HashMap;
use std::fmt;
use std::sync::atomic::{AtomicU64, Ordering};

/// The handle of a connection in a [`PollGroup`](super::PollGroup).
///
/// No other member, of this group or another one, has an equal handle, also after the member has ended. A call with the
/// handle of a member that has ended fails and affects no other member.
///
/// [`PollGroup`](super::PollGroup#examples) has an example.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Member {
    serial: u64,
    index: u32,
}

impl Member {
    /// Returns the position of the member in its group, for tables of the program.
    ///
    /// It is below the largest number of members that the group has had at once. A later member may have the position
    /// of one that has ended.
    pub fn index(self) -> usize {
        usize::try_from(self.index).expect("32 bits fit")
    }
}

impl fmt::Debug for Member {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Member({})", self.serial)
    }
}

impl fmt::Display for Member {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "member {}", self.serial)
    }
}

/// The serial number of the next member of any group.
static NEXT_SERIAL: AtomicU64 = AtomicU64::new(1);

/// The members of a group, each with a `T`.
#[derive(Debug)]
pub(super) struct MemberTable<T> {
    /// The values are boxed, so that free slots and the growth of the table take little memory.
    slots: Vec<Option<(Member, Box<T>)>>,
    free: Vec<u32>,
    /// The index of the member that has a queue pair.
    by_qp: HashMap<u32, u32>,
}

impl<T> Default for MemberTable<T> {
    fn default() -> Self {
        Self { slots: Vec::new(), free: Vec::new(), by_qp: HashMap::new() }
    }
}

impl<T> MemberTable<T> {
    /// Returns the number of members.
    pub(super) fn len(&self) -> usize {
        self.slots.len() - self.free.len()
    }

    /// Adds a member.
    pub(super) fn insert(&mut self, value: T) -> Member {
        let index = self.free.pop().unwrap_or_else(|| {
            self.slots.push(None);
            u32::try_from(self.slots.len() - 1).expect("a device has fewer queue pairs")
        });
        let member = Member { serial: NEXT_SERIAL.fetch_add(1, Ordering::Relaxed), index };
        self.slots[member.index()] = Some((member, Box::new(value)));
        member
    }

    pub(super) fn get(&self, member: Member) -> Option<&T> {
        let (found, value) = self.slots.get(member.index())?.as_ref()?;
        (*found == member).then_some(&**value)
    }

    #[inline]
    pub(super) fn get_mut(&mut self, member: Member) -> Option<&mut T> {
        let (found, value) = self.slots.get_mut(member.index())?.as_mut()?;
        (*found == member).then_some(&mut **value)
    }

    /// Removes a member. Its queue pair, if it has one, is no longer found.
    pub(super) fn remove(&mut self, member: Member, qp_num: Option<u32>) -> Option<T> {
        self.get(member)?;
        let (_, value) = self.slots[member.index()].take()?;
        self.free.push(member.index);
        self.forget_qp(member, qp_num);
        Some(*value)
    }

    /// Removes the queue pair of `member`, which is no longer found by its number.
    pub(super) fn forget_qp(&mut self, member: Member, qp_num: Option<u32>) {
        let is_its = |number: &u32| self.by_qp.get(number) == Some(&member.index);
        if let Some(number) = qp_num.filter(is_its) {
            self.by_qp.remove(&number);
        }
    }

    /// Records that `member` has the queue pair `qp_num`.
    pub(super) fn set_qp(&mut self, member: Member, qp_num: u32) {
        self.by_qp.insert(qp_num, member.index);
    }

    /// Returns the member that has the queue pair `qp_num`.
    #[inline]
    pub(super) fn by_qp(&mut self, qp_num: u32) -> Option<(Member, &mut T)> {
        let index = usize::try_from(*self.by_qp.get(&qp_num)?).ok()?;
        let (member, value) = self.slots.get_mut(index)?.as_mut()?;
        Some((*member, &mut **value))
    }

    /// Returns the member at `index`, if there is one.
    pub(super) fn at(&self, index: u64) -> Option<Member> {
        let slot = self.slots.get(usize::try_from(index).ok()?)?;
        slot.as_ref().map(|(member, _)| *member)
    }

    pub(super) fn iter_mut(&mut self) -> impl Iterator<Item = (Member, &mut T)> {
        self.slots.iter_mut().flatten().map(|(member, value)| (*member, &mut **value))
    }
}

#[cfg(test)]
mod tests;
