use super::*;

#[test]
fn ended_member_is_not_found() {
    let mut table = MemberTable::default();
    let old = table.insert("old");
    table.set_qp(old, 17);
    assert_eq!(table.by_qp(17), Some((old, &mut "old")));
    assert_eq!(table.remove(old, Some(17)), Some("old"));
    assert_eq!((table.remove(old, Some(17)), table.by_qp(17)), (None, None));
    assert_eq!(table.len(), 0);
    let new = table.insert("new");
    assert_eq!((new.index(), table.at(0)), (old.index(), Some(new)));
    assert!(new != old && table.get(old).is_none() && table.get_mut(old).is_none());
    assert_eq!(table.get(new), Some(&"new"));
    assert_eq!(table.by_qp(17), None, "the number is that of the removed member");
}

#[test]
fn reused_number_finds_new_member() {
    let mut table = MemberTable::default();
    let [old, new] = ["old", "new"].map(|value| table.insert(value));
    table.set_qp(old, 17);
    table.set_qp(new, 17);
    assert_eq!(table.remove(old, Some(17)), Some("old"));
    assert_eq!(table.by_qp(17), Some((new, &mut "new")));
}

#[test]
fn members_of_two_groups_differ() {
    let (mut one, mut other) = (MemberTable::default(), MemberTable::default());
    let (member, stranger) = (one.insert(1), other.insert(2));
    assert_eq!(member.index(), stranger.index());
    assert!(one.get(stranger).is_none() && other.get(member).is_none());
}

#[test]
fn positions_are_used_again() {
    let mut table = MemberTable::default();
    for _ in 0..3 {
        let members: Vec<_> = (0..5).map(|number| table.insert(number)).collect();
        assert_eq!((table.len(), table.slots.len()), (5, 5));
        assert_eq!(table.iter_mut().count(), 5);
        for member in members {
            table.remove(member, None).expect("the member is there");
        }
    }
}
