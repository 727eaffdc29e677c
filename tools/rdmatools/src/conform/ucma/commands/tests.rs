use super::*;

#[test]
fn every_number_up_to_first_unused_is_listed() {
    for number in 0..=25 {
        assert!(COMMANDS.iter().any(|command| command.number == number), "{number}");
    }
}

#[test]
fn every_reserved_field_is_set_once() {
    let mut count = 0;
    for command in COMMANDS {
        let name = format!("rdma_ucm_{}", command.name);
        let structure = LAYOUT.iter().copied().flatten().find(|known| known.name == name);
        for field in structure.map_or(&[][..], |structure| structure.fields) {
            if field.name.starts_with("reserved") {
                let mut set = command.reserved.iter();
                let is_set = set.any(|(name, at, _)| (*name, *at) == (field.name, field.offset));
                assert!(is_set, "{} of {}", field.name, command.name);
                count += 1;
            }
        }
    }
    assert!(count > 8, "{count}");
}

#[test]
fn fields_fit_requests_and_avoid_handles() {
    for command in COMMANDS {
        for (offset, length, value) in command.fields {
            assert!(offset + length <= command.request, "{}", command.name);
            assert!(*length == 8 || value >> (8 * length) == 0, "{}", command.name);
            assert_ne!(command.handle.map(|(handle, _)| handle), Some(*offset));
        }
        for (name, offset, _) in command.reserved {
            assert!(*offset < command.request, "{} of {}", name, command.name);
        }
    }
    assert_eq!(offset_of!(rdma_ucm_query, option), 12);
}
