//! A registry of objects by the numbers in `uid` and `user_handle`, which replace pointers.

use std::fmt;
use std::num::NonZeroU64;
use std::sync::{Arc, RwLock, Weak};

use crate::lock::ignore_poison;

/// A number that names one object for the life of the process.
///
/// A token is never zero and never reused. A forked child has no use for the objects of its parent, and starts with a
/// new set of tokens.
///
/// An event carries the token of its id or completion queue. A program that keeps its objects in a map looks up the
/// object with it.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Token(NonZeroU64);

impl Token {
    /// Returns the token as the number that the kernel stores.
    pub fn get(self) -> u64 {
        self.0.get()
    }

    fn new(index: u32, generation: u32) -> Self {
        let number = (u64::from(generation) << 32) | (u64::from(index) + 1);
        Self(NonZeroU64::new(number).expect("the low half is at least 1"))
    }

    fn index(number: u64) -> Option<usize> {
        usize::try_from(number & 0xffff_ffff).ok()?.checked_sub(1)
    }
}

impl fmt::Debug for Token {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Token({self})")
    }
}

impl fmt::Display for Token {
    /// Writes `7`, or `7.2` if the slot is used for the third time.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.0.get() & 0xffff_ffff)?;
        match (self.0.get() >> 32) - 1 {
            0 => Ok(()),
            before => write!(f, ".{before}"),
        }
    }
}

/// The living objects of one kind, by token. A late event for a dead object finds no entry.
pub(crate) struct Registry<T> {
    slots: RwLock<Slots<T>>,
}

struct Slots<T> {
    slots: Vec<Slot<T>>,
    free: Vec<u32>,
}

struct Slot<T> {
    /// Number of uses of the slot, from 1.
    ///
    /// So a token never fits into 32 bits. An event of an unknown type may carry a number of 32 bits in place of a
    /// token, such as a port number.
    generation: u32,
    object: Weak<T>,
}

impl<T> Slots<T> {
    /// Adds a slot. Returns its index.
    fn add(&mut self) -> u32 {
        let count = self.slots.len();
        if count == self.slots.capacity() {
            // The capacity grows by an eighth and is not doubled: the table keeps its memory as long as the process
            // lives.
            self.slots.reserve_exact(count / 8 + 16);
        }
        self.slots.push(Slot { generation: 1, object: Weak::new() });
        u32::try_from(count).expect("fewer than 2^32 objects")
    }
}

impl<T> Default for Registry<T> {
    fn default() -> Self {
        Self { slots: RwLock::new(Slots { slots: Vec::new(), free: Vec::new() }) }
    }
}

impl<T> Registry<T> {
    /// Reserves a token for an object that does not exist yet.
    pub(crate) fn reserve(&self) -> Token {
        let mut slots = ignore_poison(self.slots.write());
        let index = slots.free.pop().unwrap_or_else(|| slots.add());
        Token::new(index, slots.slots[index as usize].generation)
    }

    /// Records `object` under `token`, which was reserved before.
    pub(crate) fn set(&self, token: Token, object: &Arc<T>) {
        let mut slots = ignore_poison(self.slots.write());
        let index = Token::index(token.get()).expect("a token has an index");
        slots.slots[index].object = Arc::downgrade(object);
    }

    /// Returns the object with the kernel's `number`, if it lives.
    pub(crate) fn get(&self, number: u64) -> Option<Arc<T>> {
        let slots = ignore_poison(self.slots.read());
        let slot = slots.slots.get(Token::index(number)?)?;
        if u64::from(slot.generation) != number >> 32 {
            return None;
        }
        slot.object.upgrade()
    }

    /// Returns the object whose token has this `number`, and the token.
    pub(crate) fn get_with_token(&self, number: u64) -> Option<(Token, Arc<T>)> {
        let object = self.get(number)?;
        Some((Token(NonZeroU64::new(number)?), object))
    }

    /// Returns the first living object that `wanted` accepts.
    pub(crate) fn find(&self, mut wanted: impl FnMut(&T) -> bool) -> Option<Arc<T>> {
        let slots = ignore_poison(self.slots.read());
        slots.slots.iter().filter_map(|slot| slot.object.upgrade()).find(|object| wanted(object))
    }

    /// Invalidates `token` permanently.
    pub(crate) fn remove(&self, token: Token) {
        let mut slots = ignore_poison(self.slots.write());
        let index = Token::index(token.get()).expect("a token has an index");
        let slot = &mut slots.slots[index];
        slot.object = Weak::new();
        // A slot whose generations are used up is retired, so that no token is reused.
        if let Some(next) = slot.generation.checked_add(1) {
            slot.generation = next;
            slots.free.push(u32::try_from(index).expect("indices are 32 bits"));
        }
    }
}

#[cfg(test)]
mod tests;
