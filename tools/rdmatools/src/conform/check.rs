//! A check: an entry of the catalog, with the expected answers of the kernel.

use std::fmt;
use std::str::FromStr;

use super::bench::Bench;
use super::kernel::{Answer, Outcome};

/// A kernel version, such as 6.12.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Version(pub(super) u16, pub(super) u16);

impl FromStr for Version {
    type Err = String;

    /// Parses a version, or the version at the start of a release such as `6.12.117-amd64`.
    fn from_str(text: &str) -> Result<Self, String> {
        let mut numbers = text.split(|c: char| !c.is_ascii_digit());
        let mut number = || numbers.next().and_then(|digits| digits.parse().ok());
        let version = number().and_then(|major| Some(Self(major, number()?)));
        version.ok_or_else(|| format!("{text} is not a version of Linux, such as 6.12"))
    }
}

impl fmt::Display for Version {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{}", self.0, self.1)
    }
}

/// Drivers with known differences in their answers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Driver {
    Rxe,
    Siw,
    Mlx5,
    Other,
}

impl fmt::Display for Driver {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Rxe => "rxe",
            Self::Siw => "siw",
            Self::Mlx5 => "mlx5",
            Self::Other => "other drivers",
        })
    }
}

/// The properties of a machine that expectations depend on.
#[derive(Debug, Clone, Copy)]
pub(super) struct Machine {
    pub(super) version: Version,
    pub(super) driver: Driver,
}

/// The expected outcomes on some machines.
#[derive(Debug, Clone)]
struct Case {
    since: Option<Version>,
    driver: Option<Driver>,
    /// The expected outcomes, any of which may occur.
    outcomes: Vec<Outcome>,
    why: &'static str,
}

impl Case {
    fn holds(&self, machine: &Machine) -> bool {
        self.since.is_none_or(|since| machine.version >= since)
            && self.driver.is_none_or(|driver| machine.driver == driver)
    }
}

/// The expected answer of a kernel.
#[derive(Debug, Clone)]
pub(super) struct Expectation(Vec<Case>);

impl Expectation {
    /// Creates an expectation of the same outcome on all machines.
    pub(super) fn of(outcome: Outcome) -> Self {
        Self(vec![Case { since: None, driver: None, outcomes: vec![outcome], why: "" }])
    }

    /// Adds an outcome since a version.
    pub(super) fn since(mut self, since: Version, outcome: Outcome, why: &'static str) -> Self {
        self.0.push(Case { since: Some(since), driver: None, outcomes: vec![outcome], why });
        self
    }

    /// Adds outcomes of a driver, since a version if one is given.
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

    /// Returns the expected outcomes of `machine`: those of the last case that applies.
    pub(super) fn for_machine(&self, machine: &Machine) -> &[Outcome] {
        let case = self.0.iter().rfind(|case| case.holds(machine));
        &case.expect("the first case should always apply").outcomes
    }
}

impl fmt::Display for Expectation {
    /// Formats an expectation: `EINVAL; since 6.18: ENOENT (the command exists)`.
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

/// Formats alternatives: `ENOENT or EOPNOTSUPP`.
pub(super) fn one_of(outcomes: &[Outcome]) -> String {
    outcomes.iter().map(Outcome::to_string).collect::<Vec<_>>().join(" or ")
}

/// A requirement of a check in addition to `rdma_cm`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Needs {
    Nothing,
    /// A verbs node.
    Verbs,
    /// An address of a device: `--all`.
    Device,
}

/// The reason why a check did not pass.
#[derive(Debug)]
pub(super) enum CheckError {
    /// The kernel violates the expectation.
    Violation(String),
    /// The check is not possible on this machine.
    Skip(String),
}

/// A function that produces the single answer of a row.
pub(super) type RowFunction = dyn Fn(&mut Bench<'_>) -> Result<Answer, CheckError>;

/// The procedure of a check.
pub(super) enum Run {
    /// One answer, compared with the expectation.
    Row(Expectation, Box<RowFunction>),
    /// Several steps, each with its own expectation.
    Scenario(fn(&mut Bench<'_>) -> Result<(), CheckError>),
}

/// An entry of the catalog.
pub(super) struct Check {
    /// Name of the check, such as `ucma.bind.size.short`.
    pub(super) id: String,
    /// The checked behavior, in a sentence.
    pub(super) shows: String,
    /// The kernel function that implements it.
    pub(super) source: String,
    /// The first kernel version with this behavior, if earlier ones are known to lack it.
    pub(super) since: Option<Version>,
    pub(super) needs: Needs,
    pub(super) run: Run,
}

/// The result of a check.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Verdict {
    /// The behavior is as expected. Contains the outcome of a row.
    Pass(Option<Outcome>),
    /// The behavior is not as expected, for this reason.
    Fail(String),
    /// The check did not run, for this reason.
    Skip(String),
}

impl Check {
    /// Runs the check, and closes the files that it opened.
    pub(super) fn verdict(&self, bench: &mut Bench<'_>) -> Verdict {
        let verdict = match &self.run {
            Run::Row(expectation, run) => run(bench).and_then(|answer| {
                let expected = expectation.for_machine(&bench.machine);
                match answer.outcome() {
                    Ok(outcome) if expected.contains(&outcome) => Ok(Some(outcome)),
                    Ok(outcome) => Err(format!("{outcome}, expected {}", one_of(expected))),
                    Err(odd) => Err(format!("{odd}, expected {}", one_of(expected))),
                }
                .map_err(CheckError::Violation)
            }),
            Run::Scenario(run) => run(bench).map(|()| None),
        };
        bench.end();
        match verdict {
            Ok(seen) => Verdict::Pass(seen),
            Err(CheckError::Violation(why)) => Verdict::Fail(why),
            Err(CheckError::Skip(why)) => Verdict::Skip(why),
        }
    }

    /// Returns a description of the expectation.
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
    fn release_parses_as_version() {
        assert_eq!("6.12.117+deb-amd64".parse(), Ok(Version(6, 12)));
        assert_eq!("6.1".parse(), Ok(Version(6, 1)));
        assert!(Version(6, 1) < Version(6, 12));
        assert!("six".parse::<Version>().is_err() && "6".parse::<Version>().is_err());
    }

    #[test]
    fn last_applicable_case_wins() {
        let expectation = Expectation::of(Outcome::Errno(EINVAL))
            .since(Version(6, 18), Outcome::Errno(ENOENT), "the command exists")
            .on(Driver::Siw, None, &[Outcome::Errno(EOPNOTSUPP), Outcome::Done(0)], "");
        let expected =
            |version, driver| one_of(expectation.for_machine(&Machine { version, driver }));
        assert_eq!(expected(Version(6, 12), Driver::Rxe), "EINVAL");
        assert_eq!(expected(Version(7, 0), Driver::Rxe), "ENOENT");
        assert_eq!(expected(Version(7, 0), Driver::Siw), "EOPNOTSUPP or success");
        let words = "EINVAL; since 6.18: ENOENT (the command exists); siw: EOPNOTSUPP or success";
        assert_eq!(expectation.to_string(), words);
    }
}
