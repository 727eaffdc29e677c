//! Comparison of two journals, and the differences that it permits.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;

use super::entry::Entry;

/// A field whose value differs between this library and rdma-core, with the reason.
#[derive(Debug, Clone, Copy)]
pub(super) struct OtherValue {
    kind: &'static str,
    field: &'static str,
    /// Another field that the entry must have, and a value that this field must not have.
    unless: Option<(&'static str, &'static str)>,
    /// The value, or [`ANY`].
    c: &'static str,
    ours: &'static str,
    reason: &'static str,
}

/// The placeholder for any value.
const ANY: &str = "*";

pub(super) const OTHER_VALUES: &[OtherValue] = &[
    OtherValue {
        kind: "alloc_ucontext",
        field: "flags",
        unless: None,
        c: "0x1",
        ours: "0x0",
        reason: "DEVX: this library creates no objects by commands of the firmware",
    },
    OtherValue {
        kind: "qp",
        field: "receives",
        unless: Some(("srqn", "none")),
        c: ANY,
        ours: "0",
        reason: SHARED,
    },
    OtherValue {
        kind: "qp",
        field: "recv_sge",
        unless: Some(("srqn", "none")),
        c: ANY,
        ours: "0",
        reason: SHARED,
    },
];

const SHARED: &str = "a queue pair with a shared receive queue has no capacities for receives";

/// The reason for mappings of the clock, which rdma-core makes when it opens the device. This library has no function
/// that reads it.
const CLOCK: &str = "the clock of the device is not read";

/// The reason for different arm words of a queue that was armed for all completions and then for solicited ones.
///
/// rdma-core arms for solicited ones from then on. The first thread then waits for an event that is not raised.
const NARROWER: &str = "a queue that is armed for all completions is not armed for fewer";

/// Number of entries that are shown before a difference.
const SHOWN_BEFORE: usize = 4;

/// Compares two journals. Returns the reasons of the permitted differences, or a description of the first other one.
pub(super) fn compare(c: &[Entry], ours: &[Entry]) -> Result<BTreeSet<&'static str>, String> {
    let mut reasons = BTreeSet::new();
    let (mut at, mut our_at) = (0, 0);
    while at < c.len() || our_at < ours.len() {
        let (entry, our_entry) = (c.get(at), ours.get(our_at));
        let differing = match (entry, our_entry) {
            (Some(c), Some(ours)) if c.kind == ours.kind => fields(c, ours, &mut reasons),
            _ => vec!["the kind".to_owned()],
        };
        if differing.is_empty() {
            (at, our_at) = (at + 1, our_at + 1);
        } else if entry.is_some_and(|entry| narrows(entry, &c[..at])) {
            reasons.insert(NARROWER);
            at += 1;
        } else if entry.is_some_and(maps_clock) && opens_device(&c[..at]) {
            reasons.insert(CLOCK);
            at += 1;
        } else {
            return Err(describe(&differing, (c, at), (ours, our_at)));
        }
    }
    Ok(reasons)
}

/// Compares the entries of each send and receive queue, and nothing else. Returns a description of the first difference.
///
/// The order of entries in different queues, the kinds of doorbells and the indices that the device sees depend on the time
/// if the device runs freely.
pub(super) fn compare_posted(c: &[Entry], ours: &[Entry]) -> Result<(), String> {
    let (c, ours) = (posted(c), posted(ours));
    let queues = |of: &BTreeMap<_, _>| format!("{:?}", of.keys());
    if queues(&c) != queues(&ours) {
        return Err(format!("queues with entries: {}, ours {}", queues(&c), queues(&ours)));
    }
    for (c, ours) in c.values().zip(ours.values()) {
        compare(c, ours)?;
    }
    Ok(())
}

/// Returns the entries of each queue: its kind and the name of the queue pair.
fn posted(entries: &[Entry]) -> BTreeMap<(&str, &str), Vec<Entry>> {
    let mut queues = BTreeMap::<_, Vec<Entry>>::new();
    for entry in entries.iter().filter(|entry| matches!(&*entry.kind, "send" | "receive")) {
        let queue = entry.value("qpn").expect("entry should have a queue pair");
        queues.entry((&*entry.kind, queue)).or_default().push(entry.clone());
    }
    queues
}

/// Returns `true` if the entry arms a queue for solicited completions that is armed for all.
fn narrows(entry: &Entry, before: &[Entry]) -> bool {
    let is_last =
        |earlier: &&Entry| earlier.kind == "cq_arm" && earlier.value("cqn") == entry.value("cqn");
    let all = entry.value("word").filter(|_| entry.kind == "cq_arm");
    let all = all.map(|word| word.replace("command:1", "command:0"));
    let last = before.iter().rfind(is_last).and_then(|last| last.value("word"));
    all.is_some() && all.as_deref() == last && last != entry.value("word")
}

/// Returns `true` if the entry maps a page of the clock: `MLX5_IB_MMAP_CORE_CLOCK` or `MLX5_IB_MMAP_CLOCK_INFO`.
fn maps_clock(entry: &Entry) -> bool {
    entry.kind == "mmap" && (entry.has("command=5") || entry.has("command=7"))
}

/// Returns `true` if a program has done no more than open the device since it began to open it.
fn opens_device(before: &[Entry]) -> bool {
    let mut since_opening = before.iter().rev().take_while(|entry| entry.kind != "alloc_ucontext");
    since_opening.all(|entry| matches!(&*entry.kind, "mmap" | "uar_alloc"))
}

/// Returns the names of the fields with a difference that is not permitted.
fn fields(c: &Entry, ours: &Entry, reasons: &mut BTreeSet<&'static str>) -> Vec<String> {
    let mut differing = Vec::new();
    for place in 0..c.fields.len().max(ours.fields.len()) {
        let (c_field, our_field) = (c.fields.get(place), ours.fields.get(place));
        if c_field == our_field {
            continue;
        }
        let permits = |other: &&OtherValue| {
            let has = |field: Option<&(String, String)>, due: &str| {
                field.is_some_and(|(name, value)| {
                    name == other.field && (due == ANY || value == due)
                })
            };
            let applies = other.unless.is_none_or(|(name, value)| {
                c.fields.iter().any(|(of, is)| of == name && is != value)
            });
            other.kind == c.kind && applies && has(c_field, other.c) && has(our_field, other.ours)
        };
        match OTHER_VALUES.iter().find(permits) {
            Some(other) => drop(reasons.insert(other.reason)),
            None => {
                let name = c_field.or(our_field).map(|(name, _)| name.clone());
                differing.push(name.unwrap_or_default());
            }
        }
    }
    differing
}

/// Describes the difference of the entries at these places, after some entries before them.
fn describe(differing: &[String], c: (&[Entry], usize), ours: (&[Entry], usize)) -> String {
    let mut text = format!("entry {} differs in {}\n", c.1, differing.join(", "));
    for (name, (entries, place)) in [("rdma-core", c), ("ours", ours)] {
        writeln!(text, "{name}:").expect("a string");
        for at in place.saturating_sub(SHOWN_BEFORE)..=place {
            let mark = if at == place { ">" } else { " " };
            let entry = entries.get(at).map_or_else(|| "(end)".to_owned(), ToString::to_string);
            writeln!(text, "{mark} {entry}").expect("a string");
        }
    }
    text
}

/// Returns the reasons of all permitted differences.
pub(super) fn reasons() -> BTreeSet<&'static str> {
    OTHER_VALUES.iter().map(|other| other.reason).chain([CLOCK, NARROWER]).collect()
}
