//! Measured figures, and the check against their goals.

use std::fmt;

/// A figure of our program and of the one that it is compared with, mostly the C program.
#[derive(Debug, Clone)]
pub(crate) struct Row {
    pub(crate) name: String,
    pub(crate) unit: &'static str,
    pub(crate) ours: f64,
    pub(crate) c: f64,
    /// The ratio of our figure to that of the C program.
    pub(crate) ratio: f64,
    /// Interval of the ratio with a confidence of at least 95 %, if it varies.
    pub(crate) interval: Option<[f64; 2]>,
    pub(crate) goal: Option<Goal>,
    /// Permitted change of counts from one run to the next, if it is not the usual one.
    pub(crate) spread: Option<f64>,
}

/// Bound of the ratio and of its whole interval, or of our figure alone.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) enum Goal {
    AtMost(f64),
    AtLeast(f64),
    OursBelow(f64),
}

impl fmt::Display for Goal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (sign, limit) = match self {
            Self::AtMost(limit) => ("<=", limit),
            Self::AtLeast(limit) => (">=", limit),
            Self::OursBelow(limit) => ("<", limit),
        };
        write!(f, "{sign} ")?;
        // The requested number of digits is kept.
        fmt::Display::fmt(limit, f)
    }
}

impl Row {
    /// Makes a row of numbers that do not vary. Equal numbers have the ratio 1, even if they are 0.
    pub(crate) fn exact(name: impl Into<String>, unit: &'static str, ours: f64, c: f64) -> Self {
        let (name, ratio) = (name.into(), if ours == c { 1.0 } else { ours / c });
        Self { name, unit, ours, c, ratio, interval: None, goal: None, spread: None }
    }

    /// Makes a row of the medians of pairs of runs, one of each program.
    ///
    /// The ratio is the median of the pairs' ratios, so that a slow phase of the machine slows both.
    pub(crate) fn of_pairs(
        name: impl Into<String>,
        unit: &'static str,
        pairs: impl IntoIterator<Item = [f64; 2]>,
    ) -> Self {
        let pairs: Vec<[f64; 2]> = pairs.into_iter().collect();
        let median = |each: fn(&[f64; 2]) -> f64| sorted(pairs.iter().map(each)).median();
        let ratios = sorted(pairs.iter().map(|[ours, c]| ours / c));
        Self {
            name: name.into(),
            unit,
            ours: median(|pair| pair[0]),
            c: median(|pair| pair[1]),
            ratio: ratios.median(),
            interval: Some(ratios.median_interval()),
            goal: None,
            spread: None,
        }
    }

    pub(crate) fn at_most(self, limit: f64) -> Self {
        Self { goal: Some(Goal::AtMost(limit)), ..self }
    }

    pub(crate) fn at_least(self, limit: f64) -> Self {
        Self { goal: Some(Goal::AtLeast(limit)), ..self }
    }

    /// Adds the goal that our figure, which does not vary, is below `limit`.
    pub(crate) fn below(self, limit: f64) -> Self {
        Self { goal: Some(Goal::OursBelow(limit)), ..self }
    }

    /// Returns the ends of the interval.
    fn ends(&self) -> [f64; 2] {
        self.interval.unwrap_or([self.ratio; 2])
    }

    /// Returns `true` if there is no goal that was missed.
    pub(crate) fn is_reached(&self) -> bool {
        let [low, high] = self.ends();
        match self.goal {
            None => true,
            Some(Goal::AtMost(limit)) => high <= limit,
            Some(Goal::AtLeast(limit)) => low >= limit,
            Some(Goal::OursBelow(limit)) => self.ours < limit,
        }
    }

    fn verdict(&self) -> &'static str {
        match (self.goal, self.is_reached()) {
            (None, _) => "",
            (Some(_), true) => "reached",
            (Some(_), false) => "NOT reached",
        }
    }
}

/// Prints the row as a line of the readable table.
impl fmt::Display for Row {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let separator = if self.unit.is_empty() { "" } else { ", " };
        let name = format!("{}{separator}{}", self.name, self.unit);
        let interval = self.interval.map(|[low, high]| format!("{low:.2}..{high:.2}"));
        let goal = self.goal.map(|goal| match goal {
            Goal::OursBelow(_) => format!("{goal:.0}"),
            _ => format!("{goal:.2}"),
        });
        write!(
            f,
            "{name:56}{:10.1}{:10.1}{:8.2}{:>13}{:>9}  {}",
            self.ours,
            self.c,
            self.ratio,
            interval.unwrap_or_default(),
            goal.unwrap_or_default(),
            self.verdict(),
        )
    }
}

/// Values in ascending order.
struct Sorted(Vec<f64>);

fn sorted(values: impl IntoIterator<Item = f64>) -> Sorted {
    let mut values: Vec<f64> = values.into_iter().collect();
    values.sort_by(f64::total_cmp);
    Sorted(values)
}

impl Sorted {
    /// Returns the middle value, or the mean of the two middle values.
    fn median(&self) -> f64 {
        let values = &self.0;
        match values.len() {
            0 => f64::NAN,
            length => f64::midpoint(values[(length - 1) / 2], values[length / 2]),
        }
    }

    /// Returns the interval of the median of the population, with a confidence of at least 95 %.
    ///
    /// Its ends are two of the values. At each end as many values are left out as fair coins allow. If there are fewer
    /// than six values, none is left out.
    fn median_interval(&self) -> [f64; 2] {
        let values = &self.0;
        let Some(last) = values.len().checked_sub(1) else { return [f64::NAN; 2] };
        // `chance` is that of exactly `left_out` heads, and `at_most` that of at most `left_out` heads.
        let mut chance = 0.5_f64.powf(count(values.len()));
        let mut at_most = chance;
        let mut left_out = 0;
        while at_most <= 0.025 {
            left_out += 1;
            chance *= count(values.len() - left_out + 1) / count(left_out);
            at_most += chance;
        }
        let first = left_out.saturating_sub(1);
        [values[first], values[last - first]]
    }
}

fn count(values: usize) -> f64 {
    u32::try_from(values).map_or(f64::INFINITY, f64::from)
}

/// The rows as a table, and again as tab-separated lines that begin with `bench`, for programs.
pub(crate) struct Table<'a> {
    /// Names of the measured program and of the one beside it.
    pub(crate) names: [&'static str; 2],
    pub(crate) rows: &'a [Row],
}

impl fmt::Display for Table<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let [ours, c] = self.names;
        let [ratio, interval, goal] = ["ratio", "95 %", "goal"];
        writeln!(f, "{:56}{ours:>10}{c:>10}{ratio:>8}{interval:>13}{goal:>9}", "")?;
        for row in self.rows {
            writeln!(f, "{row}")?;
        }
        for row in self.rows {
            let [low, high] = row.ends();
            let goal = row.goal.map(|goal| goal.to_string()).unwrap_or_default();
            let Row { name, unit, ours, c, ratio, .. } = row;
            let verdict = row.verdict();
            writeln!(
                f,
                "bench\t{name}\t{unit}\t{ours}\t{c}\t{ratio}\t{low}\t{high}\t{goal}\t{verdict}"
            )?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn median_is_middle_value() {
        assert_eq!(sorted([4.0, 1.0, 3.0, 2.0]).median(), 2.5);
        assert_eq!(sorted([5.0, 1.0, 3.0]).median(), 3.0);
        assert!(sorted([]).median().is_nan());
    }

    #[test]
    fn interval_matches_sign_test() {
        let interval = |length: u32| sorted((1..=length).map(f64::from)).median_interval();
        // Printed tables of this interval have the smallest and the largest of up to eight values,
        assert_eq!(interval(5), [1.0, 5.0]);
        assert_eq!(interval(6), [1.0, 6.0]);
        assert_eq!(interval(8), [1.0, 8.0]);
        // and values closer to the middle if there are more.
        assert_eq!(interval(9), [2.0, 8.0]);
        assert_eq!(interval(15), [4.0, 12.0]);
        assert_eq!(interval(25), [8.0, 18.0]);
        assert!(sorted([]).median_interval()[0].is_nan());
    }

    #[test]
    fn goal_needs_whole_interval() {
        let pairs = (0..15).map(|round| [1.0 + f64::from(round) / 100.0, 1.0]);
        let row = Row::of_pairs("time", "us", pairs);
        assert_eq!((row.ratio, row.interval), (1.07, Some([1.03, 1.11])));
        assert_eq!(row.clone().at_most(1.11).verdict(), "reached");
        assert_eq!(row.clone().at_most(1.1).verdict(), "NOT reached");
        assert_eq!(row.clone().at_least(1.03).verdict(), "reached");
        assert_eq!(row.at_least(1.04).verdict(), "NOT reached");
    }

    #[test]
    fn slow_phase_leaves_pair_ratio_unchanged() {
        let row = Row::of_pairs("time", "ms", [[1.0, 2.0], [10.0, 20.0], [100.0, 200.0]]);
        assert_eq!((row.ours, row.c, row.ratio), (10.0, 20.0, 0.5));
        assert_eq!(row.interval, Some([0.5, 0.5]));
    }

    fn table(rows: &[Row]) -> String {
        Table { names: ["ours", "C"], rows }.to_string()
    }

    #[test]
    fn value_above_goal_misses_goal() {
        let row = |ours| Row::exact("calls", "", ours, 400.0).at_most(0.25);
        assert_eq!(row(100.0).verdict(), "reached");
        assert_eq!(row(101.0).verdict(), "NOT reached");
        assert_eq!(Row::exact("calls", "", 1.0, 400.0).verdict(), "");
        let text = table(&[row(101.0)]);
        assert!(text.contains("NOT reached"), "{text}");
        assert!(
            text.contains(
                "bench\tcalls\t\t101\t400\t0.2525\t0.2525\t0.2525\t<= 0.25\tNOT reached\n"
            )
        );
        let size = Row::exact("size", "kB", 100.0, 10.0);
        assert_eq!(size.clone().below(100.1).verdict(), "reached");
        assert_eq!(size.below(100.0).verdict(), "NOT reached");
        let rate = Row::exact("rate", "1/s", 19.0, 20.0);
        assert_eq!(rate.clone().at_least(0.95).verdict(), "reached");
        let text = table(&[rate.at_least(0.96)]);
        assert!(text.contains(" >= 0.96  NOT reached\n"), "{text}");
        assert!(text.contains("\t>= 0.96\tNOT reached\n"), "{text}");
    }
}
