//! Statements of a table about C: expressions and the values that they must have.

use verbs_abi::layout::{Constant, Struct};

use crate::table::{Table, c_member, c_name, members};

/// An expression of C and its value.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Fact {
    /// Subject of the fact: `rdma_ucm_bind.addr: offset`.
    pub(crate) what: String,
    /// The expression, an integer constant.
    pub(crate) expression: String,
    /// The value that the table has.
    pub(crate) value: u64,
}

impl Fact {
    fn new(what: String, expression: String, value: usize) -> Self {
        Self { what, expression, value: value as u64 }
    }
}

/// Architecture of a layout.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Target {
    /// The machine that the tests run on.
    Host,
    /// 32-bit x86.
    I386,
}

/// Returns the facts of a table.
pub(crate) fn facts(table: &Table, target: Target) -> Vec<Fact> {
    let structs = table.structs.iter().flat_map(|row| of_struct(row, target));
    structs.chain(table.constants.iter().map(of_constant)).collect()
}

fn of_struct(row: &Struct, target: Target) -> Vec<Fact> {
    let (name, outer, member) = (row.name, c_name(row), c_member(row));
    let (c_type, base, prefix) = if member.is_empty() {
        (format!("struct {outer}"), String::new(), String::new())
    } else {
        (
            format!("__typeof__(((struct {outer} *)0)->{member})"),
            format!(" - offsetof(struct {outer}, {member})"),
            format!("{member}."),
        )
    };
    let align = if target == Target::I386 { row.align_i386 } else { row.align };
    let mut facts = vec![
        Fact::new(format!("{name}: size"), format!("sizeof({c_type})"), row.size),
        Fact::new(format!("{name}: alignment"), format!("_Alignof({c_type})"), align),
    ];
    for (field, designator) in members(row) {
        let offset = format!("offsetof(struct {outer}, {prefix}{designator}){base}");
        let size = format!("sizeof(((struct {outer} *)0)->{prefix}{designator})");
        let what = format!("{name}.{}", field.name);
        facts.push(Fact::new(format!("{what}: offset"), offset.clone(), field.offset));
        facts.push(Fact::new(format!("{what}: size"), size.clone(), field.size));
        let end = field.offset + field.size;
        facts.push(Fact::new(format!("{what}: end"), format!("{offset} + {size}"), end));
    }
    facts
}

fn of_constant(row: &Constant) -> Fact {
    let expression = format!("(unsigned long long)({})", row.name);
    Fact { what: row.name.to_owned(), expression, value: row.value }
}
