use verbs_abi::{LAYOUT, layout};

use super::super::command::Support;
use super::*;
use crate::conform::kernel::Outcome::Done;

#[test]
fn every_number_up_to_first_unused_is_listed() {
    let has = |number| commands().any(|all| all.number == number && !all.is_extended);
    (0..=41).for_each(|number| assert!(has(number), "{number}"));
}

#[test]
fn sizes_are_whole_words() {
    for command in commands() {
        let word = if command.is_extended { 8 } else { 4 };
        let Command { request, floor, response, least, .. } = *command;
        for size in [request, floor, response, least] {
            assert_eq!(size % word, 0, "{}", command.name);
        }
        assert!(floor <= request && least <= response, "{}", command.name);
        for (offset, length, _) in command.fields {
            assert!(offset + length <= request, "{}", command.name);
        }
    }
}

/// Returns the structure of a command's request.
fn structure(command: &Command) -> Option<&'static layout::Struct> {
    let name = format!("ib_uverbs_{}", command.name);
    LAYOUT.iter().copied().flatten().find(|structure| structure.name == name)
}

#[test]
fn every_reserved_field_is_set_once() {
    let mut count = 0;
    for command in commands() {
        let fields = structure(command).map_or(&[][..], |structure| structure.fields);
        for field in fields {
            if field.name.starts_with("reserved") || field.name == "comp_mask" {
                let mut set = command.reserved.iter();
                let is_set = set.any(|(name, at, _)| (*name, *at) == (field.name, field.offset));
                assert!(is_set, "{} of {}", field.name, command.name);
                count += 1;
            }
        }
    }
    assert!(count > 15, "{count}");
}

/// Checks that each command of a known driver has a successful use, with its response.
#[test]
fn every_supported_command_has_success() {
    for command in commands() {
        // OPEN_QP names the queue pair by its number, and the table passes only handles from one command to another.
        let is_opening = command.name == "open_qp";
        let has_it = !matches!(command.support, Support::Others | Support::None) && !is_opening;
        let has_success = command.own.is_some() || matches!(command.unknown, Done(_));
        assert_eq!(has_success, has_it, "{}", command.name);
        for (offset, _) in command.own.iter().flat_map(|own| own.objects) {
            assert!(offset + 4 <= command.request, "{}", command.name);
        }
    }
}
