//! The stores to doorbell registers that a program executes.

use std::collections::{BTreeMap, HashSet};
use std::env;
use std::error::Error;
use std::fs;
use std::io::ErrorKind;
use std::path::Path;

use crate::fences::count_chosen;
use crate::run::{self, Program, progress};

/// The library that finds the instructions: `register_stores.c`.
const FINDER: &str = "libregister_stores.so";

/// The instructions of a program that store into registers, by the file of the code.
#[derive(Debug)]
pub(crate) struct Stores(BTreeMap<String, HashSet<u64>>);

impl Stores {
    /// Finds the instructions in a run of the program `name` in `directory`.
    pub(crate) fn find(
        directory: &Path,
        name: &str,
        arguments: &[&str],
    ) -> Result<Self, Box<dyn Error>> {
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

    /// Returns how many of the stores a run of the program executes in `functions` and their callees.
    pub(crate) fn count(
        &self,
        program: &Path,
        arguments: &[&str],
        functions: &[String],
    ) -> Result<u64, Box<dyn Error>> {
        progress(&format!("counting the stores to registers of {}", program.display()));
        let total = count_chosen(program, arguments, functions, |object| {
            Ok(self.0.get(object).cloned().unwrap_or_default())
        })?;
        if total == 0 {
            return Err("the functions execute none of the stores that were found".into());
        }
        Ok(total)
    }
}

/// Reads the lines `OBJECT ADDRESS` of the library.
fn parse(lines: &str) -> Result<Stores, Box<dyn Error>> {
    let mut stores = BTreeMap::<String, HashSet<u64>>::new();
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
    Ok(Stores(stores))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_are_sorted_by_object() {
        let Stores(found) = parse("/x/a 0x10\n/x/b 0x20\n/x/a 0x18\n").expect("two objects");
        assert_eq!(found["/x/a"], HashSet::from([0x10, 0x18]));
        assert_eq!(found["/x/b"], HashSet::from([0x20]));
        assert!(parse("").is_err() && parse("/x/a 16\n").is_err() && parse("/x/a\n").is_err());
    }
}
