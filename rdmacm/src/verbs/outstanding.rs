//! [`InFlightTable`]: data of posted requests, found by the identifiers of the requests.

use std::mem;
use std::sync::atomic::{AtomicU64, Ordering};

/// Number of low bits of an identifier that hold its slot and a counter.
///
/// The bits above identify the run.
const RUN_BITS: u32 = 32;

/// The next run of identifiers.
///
/// Each run belongs to one [`InFlightTable`], which requests another when the run is used up. There
/// are more runs than a process can use in its lifetime.
static NEXT_RUN: AtomicU64 = AtomicU64::new(1);

/// A table of the data of posted requests, found by their identifiers.
///
/// No other request of this process gets the same identifier, neither from this table nor from
/// another one. The identifiers of one table ascend. The table allocates memory for the largest
/// number of requests that were posted at once.
#[derive(Debug)]
pub(super) struct InFlightTable<T> {
    /// The next identifier, without its slot.
    next: u64,
    /// Distance from one identifier to the next, a power of two.
    ///
    /// The bits below hold the slot.
    step: u64,
    /// Maximum number of entries.
    most: usize,
    places: Vec<Place<T>>,
    /// The slot that was freed last, or the number of slots if none is free.
    free: usize,
    count: usize,
}

#[derive(Debug)]
enum Place<T> {
    /// A used slot, with the identifier.
    Taken(u64, T),
    /// A free slot, with the slot that was freed before it, or the number of slots if there is
    /// none.
    ///
    /// No slot is added while one is free.
    Free(usize),
}

impl<T> InFlightTable<T> {
    /// Creates a table for at most `most` requests, limited to 2^23.
    pub(super) fn new(most: u32) -> Self {
        let most = most.min(1 << 23);
        let step = most.max(1).next_power_of_two().into();
        let most = usize::try_from(most).expect("24 bits fit");
        Self { next: run(), step, most, places: Vec::new(), free: 0, count: 0 }
    }

    /// Allocates memory for `count` requests at once, up to the maximum of the table.
    pub(super) fn reserve(&mut self, count: usize) {
        self.places.reserve_exact(count.min(self.most).saturating_sub(self.places.len()));
    }

    /// Returns the number of entries.
    pub(super) fn len(&self) -> usize {
        self.count
    }

    /// Inserts the data of the next request and returns its identifier.
    ///
    /// Returns `what` if the table is full.
    #[inline(always)]
    pub(super) fn put(&mut self, what: T) -> Result<u64, T> {
        let index = self.free;
        if index == self.places.len() && !self.add() {
            return Err(what);
        }
        let id = self.next | u64::try_from(index).expect("24 bits fit");
        let next = self.next + self.step;
        self.next = if next % (1 << RUN_BITS) == 0 { run() } else { next };
        let Place::Free(before) = mem::replace(&mut self.places[index], Place::Taken(id, what))
        else {
            unreachable!("the place is free")
        };
        self.free = before;
        self.count += 1;
        Ok(id)
    }

    /// Adds a slot when none is free.
    ///
    /// Returns `false` if the table has its maximum size.
    #[cold]
    fn add(&mut self) -> bool {
        let is_there = self.places.len() < self.most;
        if is_there {
            self.places.push(Place::Free(self.places.len() + 1));
        }
        is_there
    }

    /// Removes the data of request `id`, or returns `None` if the table does not contain the
    /// request.
    #[inline]
    pub(super) fn take(&mut self, id: u64) -> Option<T> {
        let index = self.place(id);
        let place = self.places.get_mut(index)?;
        if !matches!(place, Place::Taken(taken, _) if *taken == id) {
            return None;
        }
        let Place::Taken(_, what) = mem::replace(place, Place::Free(self.free)) else {
            return None;
        };
        self.free = index;
        self.count -= 1;
        Some(what)
    }

    /// Removes all entries.
    pub(super) fn drain(&mut self) -> impl Iterator<Item = T> + '_ {
        (self.count, self.free) = (0, 0);
        self.places.drain(..).filter_map(|place| match place {
            Place::Taken(_, what) => Some(what),
            Place::Free(_) => None,
        })
    }

    fn place(&self, id: u64) -> usize {
        usize::try_from(id & (self.step - 1)).expect("24 bits fit")
    }
}

/// Returns the first identifier of a run that no other table has.
fn run() -> u64 {
    NEXT_RUN.fetch_add(1, Ordering::Relaxed) << RUN_BITS
}

#[cfg(test)]
mod tests;
