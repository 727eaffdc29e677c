use super::*;

use std::collections::HashSet;

#[test]
fn reserve_allocates_at_most_capacity() {
    for (count, room) in [(0, 0), (2, 2), (3, 3), (usize::MAX, 3)] {
        let mut table = InFlightTable::new(3);
        table.reserve(count);
        let before = table.places.capacity();
        assert_eq!(before, room);
        (0..room).for_each(|what| assert!(table.put(what).is_ok()));
        table.reserve(count);
        assert_eq!(table.places.capacity(), room);
    }
}

#[test]
fn request_is_found_once_by_its_identifier() {
    let mut table = InFlightTable::new(3);
    let ids = ["a", "b", "c"].map(|what| table.put(what).expect("there is room"));
    assert_eq!((table.take(ids[1]), table.take(ids[1])), (Some("b"), None));
    assert_eq!((table.take(ids[0]), table.len()), (Some("a"), 1));
    assert_eq!(
        table.take(ids[2] + 8),
        None,
        "an unused identifier of the same slot should be unknown"
    );
    assert!(table.drain().eq(["c"]));
    assert_eq!((table.take(ids[2]), table.len()), (None, 0));
}

#[test]
fn stale_id_never_matches_later_request() {
    let mut table = InFlightTable::new(1);
    let mut used_ids = HashSet::new();
    for number in 0..100 {
        let id = table.put(number).expect("there is room");
        assert!(used_ids.iter().all(|id| table.take(*id).is_none()));
        assert_eq!(table.take(id), Some(number));
        assert!(used_ids.insert(id), "identifier {id} was used before");
    }
}

#[test]
fn table_holds_exactly_its_capacity() {
    for most in [0, 1, 5, 64] {
        let mut table = InFlightTable::new(most);
        let mut ids = Vec::new();
        while let Ok(id) = table.put(()) {
            ids.push(id);
        }
        assert_eq!(table.put(()), Err(()));
        assert!(ids.len() == most as usize && ids.len() == table.len());
        // The free slots are those in between.
        for id in ids.iter().step_by(2) {
            table.take(*id).expect("the request is outstanding");
            table.put(()).expect("there is room");
        }
        assert_eq!(table.len(), ids.len());
        assert!(table.places.len() <= ids.len(), "slots should be reused");
    }
}

#[test]
fn tables_have_no_identifier_in_common() {
    let mut tables = [InFlightTable::new(2), InFlightTable::new(2)];
    let mut all = HashSet::new();
    for table in &mut tables {
        // To the end of a run and beyond.
        table.next |= (1 << RUN_BITS) - 3 * table.step;
    }
    for _ in 0..8 {
        for table in &mut tables {
            let id = table.put(()).expect("there is room");
            assert!(all.insert(id), "identifier {id} was used before");
            table.take(id).expect("the request is outstanding");
        }
    }
    let runs: HashSet<_> = all.iter().map(|id| id >> RUN_BITS).collect();
    assert_eq!(runs.len(), 4);
}
