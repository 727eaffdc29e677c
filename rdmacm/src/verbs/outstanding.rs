//! What belongs to requests that are posted, found by their identifiers.

use std::mem;
use std::sync::atomic::{AtomicU64, Ordering};

/// Bits of an identifier that count, and say the place; those above say which run of numbers it is from.
const RUN_BITS: u32 = 32;

/// The next run of numbers: each is given to one [`Outstanding`], which asks for another when it is used up.
/// There are more than a process of today lives to use.
static NEXT_RUN: AtomicU64 = AtomicU64::new(1);

/// What belongs to requests that are posted, by their identifiers: numbers that no other request of this process
/// gets from here, of this table or of another one. Of one table they ascend.
///
/// There is memory for as many as there ever were at once.
#[derive(Debug)]
pub(super) struct Outstanding<T> {
    /// The next identifier, without its place.
    next: u64,
    /// From one identifier to the next, a power of two: the bits below say the place.
    step: u64,
    /// How many there may be.
    most: usize,
    places: Vec<Place<T>>,
    /// The place that became free last; as many as there are places where none is free.
    free: usize,
    count: usize,
}

#[derive(Debug)]
enum Place<T> {
    /// With the identifier.
    Taken(u64, T),
    /// With the one that became free before, or as many as there are places: none is added while one is free.
    Free(usize),
}

impl<T> Outstanding<T> {
    /// Room for as many requests as `most`, but for no more than 2^23.
    pub(super) fn new(most: u32) -> Self {
        let most = most.min(1 << 23);
        let step = most.max(1).next_power_of_two().into();
        let most = usize::try_from(most).expect("24 bits fit");
        Self { next: run(), step, most, places: Vec::new(), free: 0, count: 0 }
    }

    /// Has memory for as many as `count` at once, where there may be as many.
    pub(super) fn reserve(&mut self, count: usize) {
        self.places.reserve_exact(count.min(self.most).saturating_sub(self.places.len()));
    }

    /// How many there are.
    pub(super) fn len(&self) -> usize {
        self.count
    }

    /// Puts in what belongs to the next request; its identifier. `what` comes back where there is no room.
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
            unreachable!("it is free")
        };
        self.free = before;
        self.count += 1;
        Ok(id)
    }

    /// One more place, if there may be one, where none is free.
    #[cold]
    fn add(&mut self) -> bool {
        let is_there = self.places.len() < self.most;
        if is_there {
            self.places.push(Place::Free(self.places.len() + 1));
        }
        is_there
    }

    /// Takes out what belongs to the request `id`, if that is one of those.
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

    /// Takes out all.
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

/// The first number of a run that nobody else has.
fn run() -> u64 {
    NEXT_RUN.fetch_add(1, Ordering::Relaxed) << RUN_BITS
}

#[cfg(test)]
mod tests {
    use super::*;

    use std::collections::HashSet;

    #[test]
    fn memory_is_had_before_for_as_many_as_there_may_be() {
        for (count, room) in [(0, 0), (2, 2), (3, 3), (usize::MAX, 3)] {
            let mut table = Outstanding::new(3);
            table.reserve(count);
            let before = table.places.capacity();
            assert_eq!(before, room);
            (0..room).for_each(|what| assert!(table.put(what).is_ok()));
            table.reserve(count);
            assert_eq!(table.places.capacity(), room);
        }
    }

    #[test]
    fn each_is_found_by_its_identifier_once() {
        let mut table = Outstanding::new(3);
        let ids = ["a", "b", "c"].map(|what| table.put(what).expect("there is room"));
        assert_eq!((table.take(ids[1]), table.take(ids[1])), (Some("b"), None));
        assert_eq!((table.take(ids[0]), table.len()), (Some("a"), 1));
        assert_eq!(table.take(ids[2] + 8), None, "of the same place, and another");
        assert!(table.drain().eq(["c"]));
        assert_eq!((table.take(ids[2]), table.len()), (None, 0));
    }

    #[test]
    fn one_that_was_given_up_is_not_taken_for_a_later_one() {
        let mut table = Outstanding::new(1);
        let mut gone = HashSet::new();
        for number in 0..100 {
            let id = table.put(number).expect("there is room");
            assert!(gone.iter().all(|gone| table.take(*gone).is_none()));
            assert_eq!(table.take(id), Some(number));
            assert!(gone.insert(id), "{id} was another's");
        }
    }

    #[test]
    fn no_more_go_in_than_there_is_room_for_and_those_find_a_place() {
        for most in [0, 1, 5, 64] {
            let mut table = Outstanding::new(most);
            let mut ids = Vec::new();
            while let Ok(id) = table.put(()) {
                ids.push(id);
            }
            assert_eq!(table.put(()), Err(()));
            assert!(ids.len() == most as usize && ids.len() == table.len());
            // The places that are free are those in between.
            for id in ids.iter().step_by(2) {
                table.take(*id).expect("it is there");
                table.put(()).expect("there is room");
            }
            assert_eq!(table.len(), ids.len());
            assert!(table.places.len() <= ids.len(), "places are used again");
        }
    }

    #[test]
    fn tables_have_no_identifier_in_common() {
        let mut tables = [Outstanding::new(2), Outstanding::new(2)];
        let mut all = HashSet::new();
        for table in &mut tables {
            // To the end of a run and beyond.
            table.next |= (1 << RUN_BITS) - 3 * table.step;
        }
        for _ in 0..8 {
            for table in &mut tables {
                let id = table.put(()).expect("there is room");
                assert!(all.insert(id), "{id} was another's");
                table.take(id).expect("it is there");
            }
        }
        let runs: HashSet<_> = all.iter().map(|id| id >> RUN_BITS).collect();
        assert_eq!(runs.len(), 4);
    }
}
