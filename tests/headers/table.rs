//! The rows of the layout tables that one check works on.

use std::collections::BTreeSet;

use verbs_abi::layout::{Constant, Field, Place, Struct};

use crate::header::Header;
use crate::kernel::Kernel;

/// Rows of the layout tables.
#[derive(Debug, Clone, Default)]
pub(crate) struct Table {
    /// The structures.
    pub(crate) structs: Vec<Struct>,
    /// The constants.
    pub(crate) constants: Vec<Constant>,
}

impl Table {
    /// Makes a table of all rows of some crates.
    pub(crate) fn new(layouts: &[&[&[Struct]]], constants: &[&[&[Constant]]]) -> Self {
        Self { structs: layouts.concat().concat(), constants: constants.concat().concat() }
    }

    /// Returns the headers that the rows name.
    pub(crate) fn headers(&self) -> BTreeSet<&'static str> {
        let structs = self.structs.iter().map(|row| row.header);
        structs.chain(self.constants.iter().map(|row| row.header)).collect()
    }

    /// Returns the rows of one header.
    pub(crate) fn of_header(&self, name: &str) -> Self {
        self.filter(|row| row.header == name, |row| row.header == name)
    }

    /// Returns the rows that a kernel should have and that its header has.
    ///
    /// [`check::presence`](crate::check::presence) verifies that both are the same.
    pub(crate) fn present(&self, kernel: &Kernel, header: &Header) -> Self {
        self.filter(
            |row| kernel.has(row.since) && header.structs.contains_key(c_name(row)),
            |row| kernel.has(row.since) && header.has_constant(row.name),
        )
    }

    fn filter(
        &self,
        structs: impl Fn(&Struct) -> bool,
        constants: impl Fn(&Constant) -> bool,
    ) -> Self {
        Self {
            structs: self.structs.iter().copied().filter(|row| structs(row)).collect(),
            constants: self.constants.iter().copied().filter(|row| constants(row)).collect(),
        }
    }
}

/// Returns the name of the structure in the header, or of the structure that has it as a member.
pub(crate) fn c_name(row: &Struct) -> &'static str {
    row.member.map_or(row.name, |(outer, _)| outer)
}

/// Returns the member of [`c_name`] that the structure is, or an empty text if it has a name itself.
pub(crate) fn c_member(row: &Struct) -> &'static str {
    row.member.map_or("", |(_, member)| member)
}

/// Returns the fields that are members in C, with their designators.
pub(crate) fn members(row: &Struct) -> impl Iterator<Item = (&'static Field, &'static str)> {
    row.fields.iter().filter_map(|field| match field.place {
        Place::Member => Some((field, field.name)),
        Place::Named(designator) => Some((field, designator)),
        Place::Padding => None,
    })
}
