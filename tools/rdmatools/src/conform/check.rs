//! What a check is: an entry of the catalogue, and what the kernel is expected to answer.

use std::fmt;
use std::str::FromStr;

use super::bench::Bench;
use super::kernel::{Answer, Outcome};

/// A kernel version, 6.12.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Version(pub(super) u16, pub(super) u16);

impl FromStr for Version {
    type Err = String;

    /// Takes a whole release, `6.12.117-amd64`, too.
    fn from_str(text: &str) -> Result<Self, String> {
        let mut numbers = text.split(|c: char| !c.is_ascii_digit());
        let mut number = || numbers.next().and_then(|digits| digits.parse().ok());
        let version = number().and_then(|major| Some(Self(major, number()?)));
        version.ok_or_else(|| format!("{text} is no version of Linux, such as 6.12"))
    }
}

impl fmt::Display for Version {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{}", self.0, self.1)
    }
}

/// The drivers whose answers differ in a way that is known.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Driver {
    Rxe,
    Siw,
    Other,
}

impl fmt::Display for Driver {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Rxe => "rxe",
            Self::Siw => "siw",
            Self::Other => "other drivers",
        })
    }
}

/// What the expectations depend on.
#[derive(Debug, Clone, Copy)]
pub(super) struct Machine {
    pub(super) version: Version,
    pub(super) driver: Driver,
}

/// What is expected, and where.
#[derive(Debug, Clone)]
struct Case {
    since: Option<Version>,
    driver: Option<Driver>,
    /// One of these.
    outcomes: Vec<Outcome>,
    why: &'static str,
}

impl Case {
    fn holds(&self, machine: &Machine) -> bool {
        self.since.is_none_or(|since| machine.version >= since)
            && self.driver.is_none_or(|driver| machine.driver == driver)
    }
}

/// What a kernel is expected to answer.
#[derive(Debug, Clone)]
pub(super) struct Expectation(Vec<Case>);

impl Expectation {
    /// The same everywhere.
    pub(super) fn of(outcome: Outcome) -> Self {
        Self(vec![Case { since: None, driver: None, outcomes: vec![outcome], why: "" }])
    }

    /// But another one since a version.
    pub(super) fn since(mut self, since: Version, outcome: Outcome, why: &'static str) -> Self {
        self.0.push(Case { since: Some(since), driver: None, outcomes: vec![outcome], why });
        self
    }

    /// But others with a driver, and there since a version if one is given.
    pub(super) fn on(
        mut self,
        driver: Driver,
        since: Option<Version>,
        outcomes: &[Outcome],
        why: &'static str,
    ) -> Self {
        let outcomes = outcomes.to_vec();
        self.0.push(Case { since, driver: Some(driver), outcomes, why });
        self
    }

    /// What is expected of `machine`: the last that holds.
    pub(super) fn for_machine(&self, machine: &Machine) -> &[Outcome] {
        let case = self.0.iter().rfind(|case| case.holds(machine));
        &case.expect("the first holds everywhere").outcomes
    }
}

impl fmt::Display for Expectation {
    /// `EINVAL; since 6.18: ENOENT (the command is there)`
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (number, case) in self.0.iter().enumerate() {
            f.write_str(if number == 0 { "" } else { "; " })?;
            if let Some(driver) = case.driver {
                write!(f, "{driver}{}", if case.since.is_some() { " " } else { ": " })?;
            }
            if let Some(since) = case.since {
                write!(f, "since {since}: ")?;
            }
            f.write_str(&one_of(&case.outcomes))?;
            if !case.why.is_empty() {
                write!(f, " ({})", case.why)?;
            }
        }
        Ok(())
    }
}

/// `ENOENT or EOPNOTSUPP`
pub(super) fn one_of(outcomes: &[Outcome]) -> String {
    outcomes.iter().map(Outcome::to_string).collect::<Vec<_>>().join(" or ")
}

/// What a check needs besides `rdma_cm`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Needs {
    Nothing,
    /// A verbs node.
    Verbs,
    /// An address of a device: `--all`.
    Device,
}

/// Why a check has no result, or a bad one.
#[derive(Debug)]
pub(super) enum Trouble {
    /// The kernel is not as it should be.
    Violation(String),
    /// It cannot be told here.
    Skip(String),
}

/// What brings about the one answer of a row.
pub(super) type Asking = dyn Fn(&mut Bench<'_>) -> Result<Answer, Trouble>;

/// How a check finds out.
pub(super) enum Run {
    /// One answer, compared with the expectation.
    Row(Expectation, Box<Asking>),
    /// Several steps, of which each has its own.
    Scenario(fn(&mut Bench<'_>) -> Result<(), Trouble>),
}

/// An entry of the catalogue.
pub(super) struct Check {
    /// `ucma.bind.size.short`
    pub(super) id: String,
    /// What it shows, in a sentence.
    pub(super) shows: String,
    /// Where the kernel has it.
    pub(super) source: String,
    /// The first kernel that has what is checked, where it is known that earlier ones have not.
    pub(super) since: Option<Version>,
    pub(super) needs: Needs,
    pub(super) run: Run,
}

/// How a check ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Verdict {
    /// As expected: what was seen, where that can be one thing or another.
    Pass(Option<Outcome>),
    /// Why not.
    Fail(String),
    /// Why it did not run.
    Skip(String),
}

impl Check {
    /// Runs it, and closes what it opened.
    pub(super) fn verdict(&self, bench: &mut Bench<'_>) -> Verdict {
        let verdict = match &self.run {
            Run::Row(expectation, run) => run(bench).and_then(|answer| {
                let expected = expectation.for_machine(&bench.machine);
                match answer.outcome() {
                    Ok(outcome) if expected.contains(&outcome) => Ok(Some(outcome)),
                    Ok(outcome) => Err(format!("{outcome}, expected {}", one_of(expected))),
                    Err(odd) => Err(format!("{odd}, expected {}", one_of(expected))),
                }
                .map_err(Trouble::Violation)
            }),
            Run::Scenario(run) => run(bench).map(|()| None),
        };
        bench.end();
        match verdict {
            Ok(seen) => Verdict::Pass(seen),
            Err(Trouble::Violation(why)) => Verdict::Fail(why),
            Err(Trouble::Skip(why)) => Verdict::Skip(why),
        }
    }

    /// What is expected, in words.
    pub(super) fn expected(&self) -> String {
        match &self.run {
            Run::Row(expectation, _) => expectation.to_string(),
            Run::Scenario(_) => "every step of it".to_owned(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    use nix::libc::{EINVAL, ENOENT, EOPNOTSUPP};

    #[test]
    fn a_release_is_a_version() {
        assert_eq!("6.12.117+deb-amd64".parse(), Ok(Version(6, 12)));
        assert_eq!("6.1".parse(), Ok(Version(6, 1)));
        assert!(Version(6, 1) < Version(6, 12));
        assert!("six".parse::<Version>().is_err() && "6".parse::<Version>().is_err());
    }

    #[test]
    fn the_last_case_that_holds_counts() {
        let expectation = Expectation::of(Outcome::Errno(EINVAL))
            .since(Version(6, 18), Outcome::Errno(ENOENT), "it is there")
            .on(Driver::Siw, None, &[Outcome::Errno(EOPNOTSUPP), Outcome::Done(0)], "");
        let expected =
            |version, driver| one_of(expectation.for_machine(&Machine { version, driver }));
        assert_eq!(expected(Version(6, 12), Driver::Rxe), "EINVAL");
        assert_eq!(expected(Version(7, 0), Driver::Rxe), "ENOENT");
        assert_eq!(expected(Version(7, 0), Driver::Siw), "EOPNOTSUPP or success");
        let words = "EINVAL; since 6.18: ENOENT (it is there); siw: EOPNOTSUPP or success";
        assert_eq!(expectation.to_string(), words);
    }
}
