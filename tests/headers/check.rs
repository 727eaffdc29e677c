//! Compares a table with a header: each check returns the differences that it found.

use std::collections::BTreeMap;
use std::fmt;

use verbs_abi::layout::Struct;

use crate::fact::{Target, facts};
use crate::header::{Body, Header};
use crate::kernel::Kernel;
use crate::table::{Table, c_member, c_name, members};

/// A difference between a table and a header.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Difference {
    what: String,
    expected: String,
    found: String,
}

impl Difference {
    fn new(what: &str, expected: impl ToString, found: impl ToString) -> Self {
        let (expected, found) = (expected.to_string(), found.to_string());
        Self { what: what.to_owned(), expected, found }
    }
}

impl fmt::Display for Difference {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: the table has {}, the header {}", self.what, self.expected, self.found)
    }
}

/// Returns the sizes, alignments, offsets and values that differ from the measured ones.
pub(crate) fn layout(table: &Table, measured: &BTreeMap<String, u64>) -> Vec<Difference> {
    facts(table, Target::Host)
        .into_iter()
        .filter_map(|fact| match measured.get(&fact.what) {
            Some(value) if *value == fact.value => None,
            Some(value) => Some(Difference::new(&fact.what, fact.value, value)),
            None => Some(Difference::new(&fact.what, fact.value, "nothing")),
        })
        .collect()
}

/// Returns the structures, fields and constants that a kernel lacks or has contrary to the table.
pub(crate) fn presence(kernel: &Kernel, table: &Table, header: &Header) -> Vec<Difference> {
    let mut differences = Vec::new();
    let mut compare = |what: String, since: Option<&str>, found: bool| {
        if kernel.has(since) != found {
            let expected =
                since.map_or_else(|| "it in every kernel".to_owned(), |v| format!("it since {v}"));
            let found = if found { "has it" } else { "lacks it" };
            differences.push(Difference::new(
                &what,
                expected,
                format!("of {} {found}", kernel.name),
            ));
        }
    };
    for row in &table.structs {
        let body = header.body_at(c_name(row), c_member(row));
        compare(row.name.to_owned(), row.since, body.is_some());
        if body.is_some() {
            for (field, designator) in members(row) {
                let place = place_of(header, row, designator);
                let found = place.is_some_and(|(body, name)| body.find(name).is_some());
                compare(format!("{}.{}", row.name, field.name), field.since, found);
            }
        }
    }
    for row in &table.constants {
        compare(row.name.to_owned(), row.since, header.has_constant(row.name));
    }
    differences
}

/// Returns the members of the header's structures that the table leaves out.
///
/// The table needs only one member of a union. A field of bytes may stand for a member that has members itself.
pub(crate) fn uncovered(table: &Table, header: &Header) -> Vec<Difference> {
    table
        .structs
        .iter()
        .flat_map(|row| {
            let body = header
                .body_at(c_name(row), c_member(row))
                .expect("the row should be in the header");
            let designators: Vec<&str> = members(row).map(|(_, designator)| designator).collect();
            left_out(body, "", &designators)
                .into_iter()
                .map(|path| Difference::new(&format!("{}.{path}", row.name), "nothing", "it"))
        })
        .collect()
}

/// Returns the structures and constants of the header that the table leaves out.
pub(crate) fn unlisted(table: &Table, header: &Header) -> Vec<Difference> {
    let structs = header.structs.keys().map(String::as_str);
    let constants = header.constants();
    structs
        .filter(|name| !table.structs.iter().any(|row| row.name == *name))
        .chain(constants.filter(|name| !table.constants.iter().any(|row| row.name == *name)))
        .map(|name| Difference::new(name, "nothing", "it"))
        .collect()
}

/// Returns the fields that are not `AlignedU64` although they are `__aligned_u64` in the header.
///
/// In a union they may be bytes.
pub(crate) fn aligned(table: &Table, header: &Header) -> Vec<Difference> {
    let mut differences = Vec::new();
    for row in &table.structs {
        for (field, designator) in members(row) {
            let Some((body, name)) = place_of(header, row, designator) else { continue };
            let c_type = body.find(name).map_or("", |member| member.c_type.as_str());
            let bare = field.rust_type.split(|c: char| !c.is_alphanumeric()).any(|w| w == "u64");
            let aligned = field.rust_type.contains("AlignedU64");
            let bytes = field.rust_type.starts_with("[u8;") && body.shares(name);
            if c_type == "__aligned_u64" && (bare || !(aligned || bytes)) {
                let what = format!("{}.{}", row.name, field.name);
                differences.push(Difference::new(&what, field.rust_type, c_type));
            }
        }
    }
    differences
}

/// Returns the innermost body and the member's name to which a field's designator points.
fn place_of<'a, 'b>(
    header: &'a Header,
    row: &Struct,
    designator: &'b str,
) -> Option<(&'a Body, &'b str)> {
    let (path, name) = designator.rsplit_once('.').unwrap_or(("", designator));
    let body = header.body_at(c_name(row), &format!("{}.{path}", c_member(row)))?;
    Some((body, name))
}

fn left_out(body: &Body, prefix: &str, designators: &[&str]) -> Vec<String> {
    let mut missing: Vec<Vec<String>> = Vec::new();
    for member in body.members.iter().filter(|member| !member.flexible) {
        let path = format!("{prefix}{}", member.name.as_deref().unwrap_or(""));
        let inside = format!("{path}.");
        missing.push(match (&member.name, &member.body) {
            (None, Some(body)) => left_out(body, prefix, designators),
            (Some(_), _) if designators.contains(&path.as_str()) => Vec::new(),
            (Some(_), Some(body)) if designators.iter().any(|d| d.starts_with(&inside)) => {
                left_out(body, &inside, designators)
            }
            (Some(_), None) if designators.iter().any(|d| d.starts_with(&inside)) => Vec::new(),
            _ => vec![path],
        });
    }
    if body.union && missing.iter().any(Vec::is_empty) {
        return Vec::new();
    }
    missing.concat()
}

#[cfg(test)]
mod tests {
    use std::path::PathBuf;

    use super::*;

    const TEXT: &str = "
        #define EXAMPLE_SIZE 16
        struct example {
            __aligned_u64 response;
            __u32 handle;
            union { struct { __u16 a; __u16 b; } pair; __u32 whole; } u;
            __u8 data[];
        };
    ";

    mod right {
        verbs_abi::abi_structs! {
            table: STRUCTS, header: "example.h";
            #[derive()]
            pub(super) struct example: size 16, align 8 {
                0 => response: verbs_abi::AlignedU64,
                8 => handle: u32,
                12 => u: [u8; 4],
            }
        }
        verbs_abi::abi_constants! {
            table: CONSTANTS, header: "example.h";
            EXAMPLE_SIZE: u32 = 16;
        }
    }
    mod wrong {
        verbs_abi::abi_structs! {
            table: STRUCTS, header: "example.h";
            #[derive()]
            pub(super) struct example: size 16, align 8 {
                0 => response: u64,
                #[place("u.pair.a")]
                8 => a: u16,
                10 => other: u16,
                12 => handle: u32,
            }
            #[derive()]
            #[since("6.1")]
            pub(super) struct missing: size 4, align 4 {
                0 => id: u32,
            }
        }
        verbs_abi::abi_constants! {
            table: CONSTANTS, header: "example.h";
            #[since("6.12")]
            EXAMPLE_SIZE: u32 = 17;
            EXAMPLE_OTHER: u32 = 1;
        }
    }

    fn header() -> Header {
        Header::parse("example.h", TEXT)
    }

    fn right() -> Table {
        Table::new(&[&[right::STRUCTS]], &[&[right::CONSTANTS]])
    }

    fn wrong() -> Table {
        Table::new(&[&[wrong::STRUCTS]], &[&[wrong::CONSTANTS]])
    }

    fn kernel() -> Kernel {
        Kernel { name: "6.1".to_owned(), uapi: PathBuf::new() }
    }

    fn whats(differences: &[Difference]) -> Vec<&str> {
        differences.iter().map(|difference| difference.what.as_str()).collect()
    }

    #[test]
    fn correct_table_has_no_difference() {
        let measured =
            facts(&right(), Target::Host).into_iter().map(|fact| (fact.what, fact.value)).collect();
        assert_eq!(layout(&right(), &measured), []);
        assert_eq!(presence(&kernel(), &right(), &header()), []);
        assert_eq!(uncovered(&right(), &header()), []);
        assert_eq!(unlisted(&right(), &header()), []);
        assert_eq!(aligned(&right(), &header()), []);
    }

    #[test]
    fn wrong_or_missing_entries_are_reported() {
        let measured =
            facts(&right(), Target::Host).into_iter().map(|fact| (fact.what, fact.value)).collect();
        let mut table = wrong();
        table.structs.truncate(1);
        table.constants.truncate(1);
        let differences = layout(&table, &measured);
        assert!(differences.contains(&Difference::new("example.handle: offset", 12, 8)));
        assert!(differences.contains(&Difference::new("example.handle: end", 16, 12)));
        assert!(differences.contains(&Difference::new("example.other: offset", 10, "nothing")));
        assert!(differences.contains(&Difference::new("EXAMPLE_SIZE", 17, 16)));
        assert!(!whats(&differences).contains(&"example: size"));
        assert_eq!(
            differences[0].to_string(),
            "example.a: offset: the table has 8, the header nothing"
        );
    }

    #[test]
    fn absent_and_early_entries_are_reported() {
        let differences = presence(&kernel(), &wrong(), &header());
        assert_eq!(
            whats(&differences),
            ["example.other", "missing", "EXAMPLE_SIZE", "EXAMPLE_OTHER"]
        );
    }

    #[test]
    fn omitted_members_are_reported() {
        let mut table = wrong();
        table.structs.truncate(1);
        assert_eq!(whats(&uncovered(&table, &header())), ["example.u.pair.b", "example.u.whole"]);
        table.structs[0].fields = &wrong::STRUCTS[0].fields[..1];
        assert_eq!(whats(&uncovered(&table, &header())), ["example.handle", "example.u"]);
    }

    #[test]
    fn unlisted_entries_are_reported() {
        let empty = Table::default();
        assert_eq!(whats(&unlisted(&empty, &header())), ["example", "EXAMPLE_SIZE"]);
    }

    #[test]
    fn bare_u64_is_reported() {
        let mut table = wrong();
        table.structs.truncate(1);
        assert_eq!(whats(&aligned(&table, &header())), ["example.response"]);
    }
}
