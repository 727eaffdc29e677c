//! Comparison of the tables of the two ABI crates with the kernel's own headers.
//!
//! A kernel's headers are read in two ways. As text, they show which structures, members and constants exist. gcc
//! reports each offset and value. A C program made from the tables prints the numbers of this architecture. For 32-bit
//! x86, the compiler checks assertions.
//!
//! `RDMACM_UAPI_HEADERS` has the directory of the headers: see [`kernel::Kernel::from_environment`].

mod check;
mod fact;
mod gcc;
mod header;
mod kernel;
mod table;

use std::collections::BTreeMap;
use std::fmt::Display;

use header::Header;
use kernel::Kernel;
use table::Table;

/// The header whose contents must all be in the tables.
const COMPLETE: &str = "rdma/rdma_user_cm.h";

fn tables() -> Table {
    Table::new(&[ucma_abi::LAYOUT, verbs_abi::LAYOUT], &[ucma_abi::CONSTANTS, verbs_abi::CONSTANTS])
}

/// Fails with every difference, one on a line.
#[track_caller]
fn assert_none<T: Display>(differences: &[T]) {
    let lines: Vec<String> = differences.iter().map(|d| format!("  {d}\n")).collect();
    assert!(lines.is_empty(), "{} differences:\n{}", lines.len(), lines.concat());
}

fn for_each_header(mut visit: impl FnMut(&Kernel, &Table, &Header)) {
    let tables = tables();
    for kernel in Kernel::from_environment() {
        for name in tables.headers() {
            visit(&kernel, &tables.of_header(name), &kernel.header(name));
        }
    }
}

#[test]
#[ignore = "needs gcc and kernel headers: cargo xtask test"]
fn layout_matches_kernel_headers() {
    let mut differences = Vec::new();
    let mut counts: BTreeMap<String, [usize; 3]> = BTreeMap::new();
    let mut compared: BTreeMap<String, Vec<&str>> = BTreeMap::new();
    for_each_header(|kernel, table, header| {
        let table = table.present(kernel, header);
        let measured = gcc::measure(kernel, header, &table);
        differences.extend(
            check::layout(&table, &measured).iter().map(|d| format!("{}: {d}", kernel.name)),
        );
        let count = counts.entry(kernel.name.clone()).or_default();
        count[0] += table.structs.len();
        count[1] += table.structs.iter().map(|s| table::members(s).count()).sum::<usize>();
        count[2] += table.constants.len();
        if header.name == COMPLETE {
            let names = header.structs.keys().map(String::as_str);
            let missing = names.filter(|name| !table.structs.iter().any(|s| s.name == *name));
            assert_eq!(missing.collect::<Vec<_>>(), Vec::<&str>::new(), "{}", kernel.name);
            compared
                .entry(kernel.name.clone())
                .or_default()
                .extend(table.structs.iter().map(|s| s.name));
        }
    });
    assert_none(&differences);
    for (kernel, [structs, fields, constants]) in counts {
        let complete = compared[&kernel].len();
        println!(
            "Linux {kernel}: compared {structs} structures ({complete} of {COMPLETE}), {fields} fields, {constants} constants"
        );
        assert!(complete >= 31, "Linux 6.1 has 31 structures in {COMPLETE}, found {complete}");
    }
}

#[test]
#[ignore = "needs gcc and kernel headers: cargo xtask test"]
fn layout_matches_kernel_headers_on_32_bit_x86() {
    for_each_header(|kernel, table, header| {
        gcc::assert_on_i386(kernel, header, &table.present(kernel, header)).unwrap_or_else(
            |error| panic!("{}, {}, 32-bit x86:\n{error}", kernel.name, header.name),
        );
    });
}

#[test]
#[ignore = "needs gcc and kernel headers: cargo xtask test"]
fn absent_entries_name_first_kernel() {
    let mut differences = Vec::new();
    for_each_header(|kernel, table, header| {
        differences.extend(check::presence(kernel, table, header));
    });
    assert_none(&differences);
}

#[test]
#[ignore = "needs gcc and kernel headers: cargo xtask test"]
fn tables_list_every_member() {
    let mut differences = Vec::new();
    for_each_header(|kernel, table, header| {
        differences.extend(check::uncovered(&table.present(kernel, header), header));
        if header.name == COMPLETE {
            differences.extend(check::unlisted(table, header));
        }
    });
    assert_none(&differences);
}

#[test]
#[ignore = "needs gcc and kernel headers: cargo xtask test"]
fn aligned_u64_is_never_bare() {
    let mut differences = Vec::new();
    for_each_header(|kernel, table, header| {
        differences.extend(check::aligned(&table.present(kernel, header), header));
    });
    assert_none(&differences);
}

#[test]
#[ignore = "needs gcc and kernel headers: cargo xtask test"]
fn compiler_refuses_wrong_table() {
    let mut refused = 0;
    for_each_header(|kernel, table, header| {
        let mut table = table.present(kernel, header);
        let Some(first) = table.structs.first_mut() else { return };
        first.size += 4;
        first.align_i386 *= 2;
        let name = first.name;
        let error = gcc::assert_on_i386(kernel, header, &table).unwrap_err();
        assert!(error.contains(&format!("\"{name}: size\"")), "{error}");
        assert!(error.contains(&format!("\"{name}: alignment\"")), "{error}");
        let measured = gcc::measure(kernel, header, &table);
        let differences = check::layout(&table, &measured);
        let wrong = format!("{name}: size: ");
        assert!(differences.iter().any(|d| d.to_string().starts_with(&wrong)), "{differences:?}");
        refused += 1;
    });
    assert!(refused > 0);
}

#[test]
fn fields_leave_no_gap() {
    let mut differences = Vec::new();
    for s in tables().structs {
        let mut end = 0;
        for field in s.fields {
            if field.offset != end {
                differences.push(format!("{}.{}: gap after byte {end}", s.name, field.name));
            }
            end = field.offset + field.size;
        }
        if end != s.size {
            differences.push(format!("{}: gap at its end, after byte {end}", s.name));
        }
    }
    assert_none(&differences);
}
