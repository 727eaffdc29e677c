//! The words of a script: numbers, rights and flags.

use rdmacm::verbs::{AccessFlags, SendFlags};

pub(super) fn number<T: TryFrom<u64>>(text: &str) -> T {
    let number = match text.strip_prefix("0x") {
        Some(digits) => u64::from_str_radix(digits, 16),
        None => text.parse(),
    };
    T::try_from(number.expect("a number")).ok().expect("number should fit")
}

/// Returns the access rights that `letters` name.
pub(super) fn rights(letters: &str) -> AccessFlags {
    [
        ('l', AccessFlags::IB_UVERBS_ACCESS_LOCAL_WRITE),
        ('w', AccessFlags::IB_UVERBS_ACCESS_REMOTE_WRITE),
        ('r', AccessFlags::IB_UVERBS_ACCESS_REMOTE_READ),
        ('a', AccessFlags::IB_UVERBS_ACCESS_REMOTE_ATOMIC),
        ('b', AccessFlags::IB_UVERBS_ACCESS_MW_BIND),
    ]
    .into_iter()
    .filter_map(|(letter, right)| letters.contains(letter).then_some(right))
    .collect()
}

/// Returns the flags of a send that `letters` name.
pub(super) fn send_flags(letters: &str) -> SendFlags {
    [('s', SendFlags::SIGNALED), ('e', SendFlags::SOLICITED), ('f', SendFlags::FENCE)]
        .into_iter()
        .filter_map(|(letter, flag)| letters.contains(letter).then_some(flag))
        .collect()
}
