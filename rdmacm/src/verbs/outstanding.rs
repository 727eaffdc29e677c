//! What belongs to requests that are posted, found by their identifiers.

use std::sync::atomic::{AtomicU64, Ordering};

/// Bits of an identifier that count; those above say which run of numbers it is from.
const RUN_BITS: u32 = 24;

/// The next run of numbers: each is given to one [`Outstanding`], which asks for another when it is used up.
/// There are more than a process of today lives to use.
static NEXT_RUN: AtomicU64 = AtomicU64::new(1);

/// What belongs to requests that are posted, by their identifiers: numbers that no other request of this process
/// gets from here, of this table or of another one.
#[derive(Debug)]
pub(super) struct Outstanding<T> {
    /// The next identifier.
    next: u64,
    /// Each with its identifier, at the place that the lowest bits of that say. At most every second place is
    /// taken, so that a free one is near.
    places: Vec<Option<(u64, T)>>,
    count: usize,
}

impl<T> Outstanding<T> {
    /// Room for as many requests as `most`, and for 2^23 at most.
    pub(super) fn new(most: u32) -> Self {
        Self { next: run(), places: (0..places(most)).map(|_| None).collect(), count: 0 }
    }

    /// How many there are.
    pub(super) fn len(&self) -> usize {
        self.count
    }

    /// Puts in what belongs to the next request; its identifier. `what` comes back where there is no room.
    #[inline]
    pub(super) fn put(&mut self, what: T) -> Result<u64, T> {
        if self.count >= self.places.len() / 2 {
            return Err(what);
        }
        let id = loop {
            let id = self.next;
            self.next = if (id + 1) % (1 << RUN_BITS) == 0 { run() } else { id + 1 };
            if self.places[self.place(id)].is_none() {
                break id;
            }
        };
        let place = self.place(id);
        self.places[place] = Some((id, what));
        self.count += 1;
        Ok(id)
    }

    /// Takes out what belongs to the request `id`, if that is one of those.
    #[inline]
    pub(super) fn take(&mut self, id: u64) -> Option<T> {
        let place = self.place(id);
        let (_, what) = self.places[place].take_if(|(taken, _)| *taken == id)?;
        self.count -= 1;
        Some(what)
    }

    /// Takes out all.
    pub(super) fn drain(&mut self) -> impl Iterator<Item = T> + '_ {
        self.count = 0;
        self.places.iter_mut().filter_map(Option::take).map(|(_, what)| what)
    }

    fn place(&self, id: u64) -> usize {
        let place = id % (1 << RUN_BITS);
        usize::try_from(place).expect("24 bits fit") & (self.places.len() - 1)
    }
}

/// How many places `most` requests need.
fn places(most: u32) -> usize {
    let places = most.clamp(1, 1 << (RUN_BITS - 1)).next_power_of_two() * 2;
    usize::try_from(places).expect("25 bits fit")
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
            assert!(ids.len() >= most as usize && ids.len() == table.len());
            // The places that are free are those in between.
            for id in ids.iter().step_by(2) {
                table.take(*id).expect("it is there");
                table.put(()).expect("there is room");
            }
            assert_eq!(table.len(), ids.len());
        }
        assert_eq!([3, 4, u32::MAX].map(places), [8, 8, 1 << RUN_BITS]);
    }

    #[test]
    fn tables_have_no_identifier_in_common() {
        let mut tables = [Outstanding::new(2), Outstanding::new(2)];
        let mut all = HashSet::new();
        for table in &mut tables {
            // To the end of a run and beyond.
            table.next |= (1 << RUN_BITS) - 3;
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
