//! The instructions that a program executes in each of its functions and their callees, by address.

use std::collections::{BTreeMap, HashSet};
use std::error::Error;
use std::fs;
use std::path::Path;

use crate::posts::callgrind;

/// Addresses of instructions, by the file of the code.
pub(crate) type Addresses = BTreeMap<String, HashSet<u64>>;

/// The number of callers by which the profiler distinguishes calls of a function.
///
/// A counted function and the deepest function that it calls have fewer functions between them.
const CALLERS: u32 = 24;

/// The number of executions of each instruction in a run of a program, for each chain of callers.
#[derive(Debug)]
pub(crate) struct Profile {
    program: String,
    counts: Vec<Counts>,
}

/// The number of executions of each instruction of a function, for one chain of its callers.
#[derive(Debug, Default, PartialEq)]
struct Counts {
    /// The file of the code.
    object: String,
    /// The function and its callers, each behind the function that it calls.
    functions: Vec<String>,
    executed: BTreeMap<u64, u64>,
}

impl Profile {
    /// Runs `program` under the profiler.
    pub(crate) fn of_run(program: &Path, arguments: &[&str]) -> Result<Self, Box<dyn Error>> {
        let callers = format!("--separate-callers={CALLERS}");
        let options = ["--dump-instr=yes".to_owned(), "--dump-line=no".to_owned(), callers];
        let file = callgrind(&[], &options, program, arguments)?;
        let counts = parse(&fs::read_to_string(file)?)?;
        Ok(Self { program: program.display().to_string(), counts })
    }

    /// Returns the files with code that was executed.
    pub(crate) fn objects(&self) -> impl Iterator<Item = &str> {
        self.counts.iter().map(|counts| &*counts.object)
    }

    /// Returns how many of the instructions at `addresses` were executed in `function` and its callees.
    pub(crate) fn count(
        &self,
        function: &str,
        addresses: &Addresses,
    ) -> Result<u64, Box<dyn Error>> {
        let (mut total, mut is_known) = (0, false);
        for Counts { object, functions, executed } in &self.counts {
            if !functions.iter().any(|name| name == function) {
                continue;
            }
            is_known = true;
            let Some(addresses) = addresses.get(object) else { continue };
            let chosen = executed.iter().filter(|(address, _)| addresses.contains(address));
            total += chosen.map(|(_, count)| count).sum::<u64>();
        }
        match is_known {
            true => Ok(total),
            false => Err(format!("the profile of {} lacks {function}", self.program).into()),
        }
    }
}

/// Reads a profile of callgrind. The positions of its lines are addresses, or decimal distances from
/// the line before.
fn parse(profile: &str) -> Result<Vec<Counts>, Box<dyn Error>> {
    let (mut objects, mut functions) = (Names::default(), Names::default());
    let mut object = String::new();
    let mut all: Vec<Counts> = Vec::new();
    let (mut at, mut is_call) = (0_u64, false);
    for line in profile.lines() {
        if let Some(named) = line.strip_prefix("ob=") {
            object = objects.name(named)?.to_owned();
        } else if let Some(named) = line.strip_prefix("cob=") {
            objects.name(named)?;
        } else if let Some(named) = line.strip_prefix("cfn=") {
            functions.name(named)?;
        } else if let Some(named) = line.strip_prefix("fn=") {
            let functions = functions.name(named)?.split('\'').map(str::to_owned).collect();
            all.push(Counts { object: object.clone(), functions, ..Counts::default() });
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
                let counts = all.last_mut().ok_or("a count before the first function")?;
                *counts.executed.entry(at).or_default() += count.trim().parse::<u64>()?;
            }
        }
    }
    all.retain(|counts| !counts.executed.is_empty());
    Ok(all)
}

/// The names of a profile. A name is given once, `(3) /path`, and is `(3)` from then on.
#[derive(Debug, Default)]
struct Names(BTreeMap<String, String>);

impl Names {
    fn name(&mut self, named: &str) -> Result<&str, Box<dyn Error>> {
        let (id, name) = named.split_once(')').ok_or("a name without a number")?;
        if !name.is_empty() {
            self.0.insert(id.to_owned(), name.trim_start().to_owned());
        }
        Ok(self.0.get(id).ok_or("a number without a name")?)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const PROFILE: &str = "\
positions: instr
events: Ir
ob=(5) /x/program
fl=(139)
fn=(536) send'main
0x1050 2
cob=(3) /x/library
cfn=(538) inner'send'main
calls=1 0x1170
0x1059 45
+3 7

ob=(3)
fn=(538)
0x1170 2
+10 13
* 1
-8 4
fn=(540) inner'poll'main
0x1170 9
ob=(5)
fn=(536)
0x1050 3
";

    fn addresses(object: &str, addresses: &[u64]) -> Addresses {
        Addresses::from([(object.to_owned(), addresses.iter().copied().collect())])
    }

    #[test]
    fn instructions_have_their_own_counts() {
        let counts = parse(PROFILE).expect("a profile");
        let of = |counts: &Counts| counts.executed.iter().map(|(at, n)| (*at, *n)).collect();
        let of: Vec<Vec<_>> = counts.iter().map(of).collect();
        let inner = vec![(0x1170, 2), (0x1172, 4), (0x117a, 14)];
        assert_eq!(
            of,
            [vec![(0x1050, 2), (0x105c, 7)], inner, vec![(0x1170, 9)], vec![(0x1050, 3)]]
        );
        assert_eq!(counts[1].functions, ["inner", "send", "main"]);
        assert!(parse("fn=(1)\n").is_err() && parse("0x10 1\n").is_err());
    }

    #[test]
    fn count_belongs_to_calling_function() {
        let counts = parse(PROFILE).expect("a profile");
        let profile = Profile { program: "/x/program".to_owned(), counts };
        let count = |function, at: &Addresses| profile.count(function, at).ok();
        let shared = addresses("/x/library", &[0x1170]);
        assert_eq!(["send", "poll"].map(|of| count(of, &shared)), [Some(2), Some(9)]);
        let own = addresses("/x/program", &[0x1050, 0x1170]);
        assert_eq!(["send", "poll"].map(|of| count(of, &own)), [Some(5), Some(0)]);
        assert_eq!(count("sen", &own), None);
    }
}
