//! The fences that a program executes, by which it orders its accesses to memory for a device.

use std::collections::{BTreeMap, HashSet};
use std::error::Error;
use std::fs;
use std::path::Path;

use crate::posts::callgrind;
use crate::run::{self, Program, progress};

/// How often each instruction was executed, by the file of its code and its address there.
type Executed = BTreeMap<String, BTreeMap<u64, u64>>;

/// Returns how many fences a run of `program` executes in `functions` and their callees.
pub(crate) fn count(
    program: &Path,
    arguments: &[&str],
    functions: &[String],
) -> Result<u64, Box<dyn Error>> {
    progress(&format!("counting the fences of {}", program.display()));
    count_chosen(program, arguments, functions, |object| {
        // Code without a file, such as the vDSO, cannot be disassembled. The counted functions execute no fence there.
        if !Path::new(object).is_file() {
            return Ok(HashSet::new());
        }
        let disassembled = Program::new("objdump").args(["-d", "--no-show-raw-insn", object]);
        Ok(fences(&run::output(&disassembled)?))
    })
}

/// Returns how many instructions a run of `program` executes in `functions` and their callees, of those whose addresses
/// `choose` returns for the file of the code.
pub(crate) fn count_chosen(
    program: &Path,
    arguments: &[&str],
    functions: &[String],
    choose: impl Fn(&str) -> Result<HashSet<u64>, Box<dyn Error>>,
) -> Result<u64, Box<dyn Error>> {
    let mut options = vec!["--dump-instr=yes".to_owned(), "--dump-line=no".to_owned()];
    options.extend(functions.iter().map(|function| format!("--toggle-collect={function}")));
    let file = callgrind(&[], &options, program, arguments)?;
    let executed = executed(&fs::read_to_string(file)?)?;
    if executed.is_empty() {
        return Err(format!("the profiler does not know {}", functions.join(", ")).into());
    }
    let mut total = 0;
    for (object, counts) in executed {
        let chosen = choose(&object)?;
        total += counts.iter().filter(|(at, _)| chosen.contains(at)).map(|(_, n)| n).sum::<u64>();
    }
    Ok(total)
}

/// Reads a profile of callgrind. The positions of its lines are addresses, or decimal distances from
/// the line before.
fn executed(profile: &str) -> Result<Executed, Box<dyn Error>> {
    let mut names = BTreeMap::new();
    let mut object = String::new();
    let mut executed = Executed::new();
    let (mut at, mut is_call) = (0_u64, false);
    for line in profile.lines() {
        if let Some(named) = line.strip_prefix("ob=").or_else(|| line.strip_prefix("cob=")) {
            // The name is given once: `ob=(3) /path`, and later `ob=(3)`.
            let (id, name) = named.split_once(')').ok_or("an object without a number")?;
            if !name.is_empty() {
                names.insert(id.to_owned(), name.trim_start().to_owned());
            }
            if line.starts_with("ob=") {
                object.clone_from(names.get(id).ok_or("an object without a name")?);
            }
        } else if line.starts_with("calls=") {
            is_call = true;
        } else if line.starts_with(|first: char| first.is_ascii_digit() || "+-*".contains(first)) {
            let (position, count) = line.split_once(' ').ok_or("a line without a count")?;
            at = match position.split_at(1) {
                ("*", _) => at,
                ("+", offset) => at.wrapping_add(offset.parse()?),
                ("-", offset) => at.wrapping_sub(offset.parse()?),
                _ => u64::from_str_radix(position.strip_prefix("0x").ok_or("no address")?, 16)?,
            };
            // The line behind a call has the cost of the callee, whose own lines have it too.
            if !std::mem::take(&mut is_call) {
                *executed.entry(object.clone()).or_default().entry(at).or_default() +=
                    count.trim().parse::<u64>()?;
            }
        }
    }
    Ok(executed)
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
    fn instructions_have_their_own_counts() {
        let profile = "\
positions: instr
events: Ir
ob=(5) /x/program
fl=(139)
fn=(536) main
0x1050 2
cob=(3) /x/library
cfn=(538) hot
calls=1 0x1170
0x1059 45
+3 7

ob=(3)
fn=(538)
0x1170 2
+10 13
* 1
-8 4
ob=(5)
fn=(536)
0x1050 3
";
        let executed = executed(profile).expect("a profile");
        let of =
            |object: &str| executed[object].iter().map(|(at, n)| (*at, *n)).collect::<Vec<_>>();
        assert_eq!(of("/x/program"), [(0x1050, 5), (0x105c, 7)]);
        assert_eq!(of("/x/library"), [(0x1170, 2), (0x1172, 4), (0x117a, 14)]);
        assert!(super::executed("ob=(1)\n").is_err());
    }

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
