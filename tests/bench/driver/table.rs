//! What was measured, and whether it is what was aimed at.

use std::fmt;

/// One measure of ours and the C program's.
#[derive(Debug, Clone)]
pub(crate) struct Row {
    pub(crate) name: String,
    pub(crate) unit: &'static str,
    pub(crate) ours: f64,
    pub(crate) c: f64,
    /// Ours by the C program's.
    pub(crate) ratio: f64,
    /// The quartiles of the ratio, where it varies.
    pub(crate) spread: Option<[f64; 2]>,
    /// The ratio that must not be exceeded.
    pub(crate) goal: Option<f64>,
}

impl Row {
    /// Of numbers that do not vary.
    pub(crate) fn exact(name: impl Into<String>, unit: &'static str, ours: f64, c: f64) -> Self {
        Self { name: name.into(), unit, ours, c, ratio: ours / c, spread: None, goal: None }
    }

    /// Of pairs of runs, one of each program: medians. The ratio is the median of the pairs' ratios,
    /// so that what slows the machine for a while slows both.
    pub(crate) fn of_pairs(
        name: impl Into<String>,
        unit: &'static str,
        pairs: impl IntoIterator<Item = [f64; 2]>,
    ) -> Self {
        let pairs: Vec<[f64; 2]> = pairs.into_iter().collect();
        let median = |each: fn(&[f64; 2]) -> f64| quartile(2, pairs.iter().map(each));
        let ratio = |which| quartile(which, pairs.iter().map(|[ours, c]| ours / c));
        Self {
            name: name.into(),
            unit,
            ours: median(|pair| pair[0]),
            c: median(|pair| pair[1]),
            ratio: ratio(2),
            spread: Some([ratio(1), ratio(3)]),
            goal: None,
        }
    }

    pub(crate) fn goal(self, goal: f64) -> Self {
        Self { goal: Some(goal), ..self }
    }

    fn verdict(&self) -> &'static str {
        match self.goal {
            None => "",
            Some(goal) if self.ratio <= goal => "reached",
            Some(_) => "NOT reached",
        }
    }
}

/// The value below which a quarter (1), a half (2) or three quarters (3) of the values lie, between
/// two of them in proportion.
fn quartile(which: usize, values: impl IntoIterator<Item = f64>) -> f64 {
    let mut values: Vec<f64> = values.into_iter().collect();
    values.sort_by(f64::total_cmp);
    let Some(last) = values.len().checked_sub(1) else { return f64::NAN };
    let (place, quarters) = (last * which / 4, last * which % 4);
    let next = values[last.min(place + 1)];
    values[place] + (next - values[place]) * [0.0, 0.25, 0.5, 0.75][quarters]
}

/// The rows for people, then the same for programs: tab-separated lines that begin with `bench`.
pub(crate) struct Table<'a>(pub(crate) &'a [Row]);

impl fmt::Display for Table<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let head = ["ours", "C", "ratio", "quartiles", "goal"];
        let [ours, c, ratio, quartiles, goal] = head;
        writeln!(f, "{:56}{ours:>10}{c:>10}{ratio:>8}{quartiles:>13}{goal:>8}", "")?;
        for row in self.0 {
            let separator = if row.unit.is_empty() { "" } else { ", " };
            let name = format!("{}{separator}{}", row.name, row.unit);
            let spread = row.spread.map(|[low, high]| format!("{low:.2}..{high:.2}"));
            let goal = row.goal.map(|goal| format!("{goal:.2}"));
            writeln!(
                f,
                "{name:56}{:10.1}{:10.1}{:8.2}{:>13}{:>8}  {}",
                row.ours,
                row.c,
                row.ratio,
                spread.unwrap_or_default(),
                goal.unwrap_or_default(),
                row.verdict(),
            )?;
        }
        for row in self.0 {
            let [low, high] = row.spread.unwrap_or([row.ratio; 2]);
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
    fn quartiles_lie_between_values() {
        let values = [4.0, 1.0, 3.0, 2.0];
        assert_eq!([1, 2, 3].map(|which| quartile(which, values)), [1.75, 2.5, 3.25]);
        assert_eq!([1, 2, 3].map(|which| quartile(which, [7.0])), [7.0; 3]);
        assert_eq!(quartile(1, [1.0, 2.0, 3.0, 4.0, 5.0]), 2.0);
        assert!(quartile(2, []).is_nan());
    }

    #[test]
    fn a_slow_while_does_not_change_the_ratio_of_pairs() {
        let row = Row::of_pairs("time", "ms", [[1.0, 2.0], [10.0, 20.0], [100.0, 200.0]]);
        assert_eq!((row.ours, row.c, row.ratio), (10.0, 20.0, 0.5));
        assert_eq!(row.spread, Some([0.5, 0.5]));
    }

    #[test]
    fn what_is_above_the_goal_is_not_reached() {
        let row = |ours| Row::exact("calls", "", ours, 400.0).goal(0.25);
        assert_eq!(row(100.0).verdict(), "reached");
        assert_eq!(row(101.0).verdict(), "NOT reached");
        assert_eq!(Row::exact("calls", "", 1.0, 400.0).verdict(), "");
        let text = Table(&[row(101.0)]).to_string();
        assert!(text.contains("NOT reached"), "{text}");
        assert!(
            text.contains("bench\tcalls\t\t101\t400\t0.2525\t0.2525\t0.2525\t0.25\tNOT reached\n")
        );
    }
}
