//! The stores to doorbell registers that a program executes.

use std::env;
use std::error::Error;
use std::fs;
use std::io::ErrorKind;
use std::path::Path;

use crate::profile::Addresses;
use crate::run::{self, Program, progress};

/// The library that finds the instructions: `register_stores.c`.
const FINDER: &str = "libregister_stores.so";

/// Finds the instructions that store into registers in a run of the program `name` in `directory`.
pub(crate) fn find(
    directory: &Path,
    name: &str,
    arguments: &[&str],
) -> Result<Addresses, Box<dyn Error>> {
    let file = env::temp_dir().join("register-stores");
    progress(&format!("finding the stores to registers of {name}"));
    // The library appends to the file.
    match fs::remove_file(&file) {
        Err(error) if error.kind() != ErrorKind::NotFound => return Err(error.into()),
        _ => {}
    }
    let preload = format!("LD_PRELOAD={}", directory.join(FINDER).display());
    let output = format!("REGISTER_STORES={}", file.display());
    let program = Program::new("env").args([preload, output]).arg(directory.join(name));
    run::output(&program.args(arguments))?;
    let stores = parse(&fs::read_to_string(&file)?)?;
    fs::remove_file(&file)?;
    Ok(stores)
}

/// Reads the lines `OBJECT ADDRESS` of the library.
fn parse(lines: &str) -> Result<Addresses, Box<dyn Error>> {
    let mut stores = Addresses::new();
    for line in lines.lines() {
        let (object, address) = line.rsplit_once(' ').ok_or("a line without an address")?;
        let digits = address.strip_prefix("0x").ok_or("an address that is not hexadecimal")?;
        // The profiler names a file by its path without links.
        let object = fs::canonicalize(object).unwrap_or_else(|_| object.into());
        let object = object.into_os_string().into_string().map_err(|_| "a path is not UTF-8")?;
        stores.entry(object).or_default().insert(u64::from_str_radix(digits, 16)?);
    }
    if stores.is_empty() {
        return Err("the program has stored into no register".into());
    }
    Ok(stores)
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use super::*;

    #[test]
    fn addresses_are_sorted_by_object() {
        let found = parse("/x/a 0x10\n/x/b 0x20\n/x/a 0x18\n").expect("two objects");
        assert_eq!(found["/x/a"], HashSet::from([0x10, 0x18]));
        assert_eq!(found["/x/b"], HashSet::from([0x20]));
        assert!(parse("").is_err() && parse("/x/a 16\n").is_err() && parse("/x/a\n").is_err());
    }
}
