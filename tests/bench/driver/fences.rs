//! The fences of a program, by which it orders its accesses to memory for a device.

use std::collections::HashSet;
use std::error::Error;
use std::path::Path;

use crate::profile::{Addresses, Profile};
use crate::run::{self, Program};

/// Returns the addresses of fences in all code that the program of `profile` has executed.
pub(crate) fn find(profile: &Profile) -> Result<Addresses, Box<dyn Error>> {
    let mut found = Addresses::new();
    for object in profile.objects() {
        // Code without a file, such as the vDSO, cannot be disassembled. The counted functions execute no fence there.
        if !found.contains_key(object) && Path::new(object).is_file() {
            let disassembled = Program::new("objdump").args(["-d", "--no-show-raw-insn", object]);
            found.insert(object.to_owned(), fences(&run::output(&disassembled)?));
        }
    }
    Ok(found)
}

/// Returns the addresses of fences in the output of objdump.
fn fences(disassembled: &str) -> HashSet<u64> {
    let fence = |line: &str| {
        let (address, instruction) = line.split_once(":\t")?;
        let name = instruction.split_whitespace().next()?;
        let address = u64::from_str_radix(address.trim_start(), 16).ok()?;
        ["sfence", "lfence", "mfence"].contains(&name).then_some(address)
    };
    disassembled.lines().filter_map(fence).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fences_are_found_by_name() {
        let disassembled = "
0000000000001170 <hot>:
    1170:\ttest   %edi,%edi
    1180:\tsfence
    1184:\tlock cmpxchg %rcx,0xd8(%rbp)
    1191:\tmfence
    1194:\tlfence
    1197:\tret
";
        let mut found = Vec::from_iter(fences(disassembled));
        found.sort_unstable();
        assert_eq!(found, [0x1180, 0x1191, 0x1194]);
    }
}
