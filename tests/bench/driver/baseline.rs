//! Committed figures of earlier runs, each with the band in which it must stay: `tests/bench/baseline`.
//!
//! A baseline is a text file with a line for each figure. The line has the figure of the row (`ours`, `other` or
//! `ratio`), the two ends of its band, and the name of the row. A row without a recorded figure follows `unmeasured`:
//! it only has to be present. A `#` begins a comment.
//!
//! A new baseline has two figures of a row of exact counts, ours and the one beside it. If the second leaves its band,
//! the C library or the test bed has changed. A row of times has the ratio alone.

use std::collections::BTreeMap;
use std::error::Error;
use std::fmt;

use crate::table::Row;

/// Permitted change of a count of instructions.
const INSTRUCTIONS: f64 = 2.0;
/// Permitted relative change of any other count, at least its rounding.
const COUNT: f64 = 0.02;
/// Distance between each end of a ratio's band and of its measured interval.
const RATIO: f64 = 0.01;

/// The beginning of a line with a row that has no band.
const UNMEASURED: &str = "unmeasured ";

/// One of the figures of a row.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Figure {
    Ours,
    Other,
    Ratio,
}

impl Figure {
    const ALL: [Self; 3] = [Self::Ours, Self::Other, Self::Ratio];

    fn name(self) -> &'static str {
        match self {
            Self::Ours => "ours",
            Self::Other => "other",
            Self::Ratio => "ratio",
        }
    }

    /// Returns the figure of a measured row.
    fn of(self, row: &Row) -> Range {
        match (self, row.interval) {
            (Self::Ours, _) => Range::around(row.ours, 0.0),
            (Self::Other, _) => Range::around(row.c, 0.0),
            (Self::Ratio, None) => Range::around(row.ratio, 0.0),
            (Self::Ratio, Some([low, high])) => Range { low, high },
        }
    }
}

/// A range of values, with both ends.
#[derive(Debug, Clone, Copy, PartialEq)]
struct Range {
    low: f64,
    high: f64,
}

impl Range {
    fn around(value: f64, distance: f64) -> Self {
        Self { low: value, high: value }.widened(distance)
    }

    fn widened(self, distance: f64) -> Self {
        Self { low: self.low - distance, high: self.high + distance }
    }

    /// Returns `true` if both ranges have a value in common.
    fn overlaps(self, other: Self) -> bool {
        self.low <= other.high && other.low <= self.high
    }
}

impl fmt::Display for Range {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.low < self.high {
            write!(f, "{:.3}..{:.3}", self.low, self.high)
        } else {
            write!(f, "{:.3}", self.low)
        }
    }
}

/// The bands of a committed baseline: the figures of each row.
#[derive(Debug)]
pub(crate) struct Baseline(BTreeMap<String, BTreeMap<Figure, Range>>);

impl Baseline {
    /// Parses the text of a baseline file.
    pub(crate) fn parse(text: &str) -> Result<Self, Box<dyn Error>> {
        let mut rows: BTreeMap<String, BTreeMap<Figure, Range>> = BTreeMap::new();
        for line in text.lines().map(str::trim) {
            if line.is_empty() || line.starts_with('#') {
                continue;
            }
            if let Some(row) = line.strip_prefix(UNMEASURED) {
                rows.entry(row.trim_start().to_owned()).or_default();
                continue;
            }
            let parsed = parse_line(line).ok_or_else(|| format!("not a figure: {line:?}"))?;
            let (figure, band, row) = parsed;
            if rows.entry(row.to_owned()).or_default().insert(figure, band).is_some() {
                return Err(format!("{} of {row:?} has two bands", figure.name()).into());
            }
        }
        Ok(Self(rows))
    }

    /// Returns the number of rows without a band.
    pub(crate) fn unmeasured(&self) -> usize {
        self.0.values().filter(|bands| bands.is_empty()).count()
    }

    /// Compares rows with the bands. Returns a line for each figure that left its band, and for each row that was measured
    /// without having a band, or has one and was not measured.
    pub(crate) fn deviations(&self, rows: &[Row]) -> Vec<String> {
        let mut unmeasured = self.0.clone();
        let mut deviations = Vec::new();
        for row in rows {
            let name = row.name.trim();
            let Some(bands) = unmeasured.remove(name) else {
                deviations.push(format!("{name:?} has no band, or was measured twice"));
                continue;
            };
            for (figure, band) in bands {
                let measured = figure.of(row);
                if !measured.overlaps(band) {
                    let figure = figure.name();
                    deviations.push(format!("{figure} of {name:?}: {measured}, not {band}"));
                }
            }
        }
        deviations.extend(unmeasured.into_keys().map(|name| format!("{name:?} was not measured")));
        deviations
    }
}

fn parse_line(line: &str) -> Option<(Figure, Range, &str)> {
    let (figure, rest) = line.split_once(char::is_whitespace)?;
    let figure = Figure::ALL.into_iter().find(|known| known.name() == figure)?;
    let (low, rest) = rest.trim_start().split_once(char::is_whitespace)?;
    let (high, row) = rest.trim_start().split_once(char::is_whitespace)?;
    let band = Range { low: low.parse().ok()?, high: high.parse().ok()? };
    let row = row.trim_start();
    let is_band = band.low.is_finite() && band.high.is_finite() && band.low <= band.high;
    (is_band && !row.is_empty()).then_some((figure, band, row))
}

/// The lines of a baseline in which each row is as measured.
pub(crate) struct Renewed<'a>(pub(crate) &'a [Row]);

impl fmt::Display for Renewed<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for row in self.0 {
            let figures = match row.interval {
                None => &[Figure::Ours, Figure::Other][..],
                Some(_) => &[Figure::Ratio],
            };
            for figure in figures {
                let measured = figure.of(row);
                let band = measured.widened(match (figure, row.spread) {
                    (Figure::Ratio, _) => RATIO,
                    (_, Some(spread)) => spread,
                    _ if row.unit == "instructions" => INSTRUCTIONS,
                    _ => COUNT * measured.high.max(1.0),
                });
                let (figure, row) = (figure.name(), row.name.trim());
                writeln!(f, "{figure:5} {:10.3} {:10.3}  {row}", band.low, band.high)?;
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TEXT: &str = "\
# Measured by a test.

ours     98.000    102.000  a send
other   125.000    129.000  a send
ratio     0.970      1.030  send latency, 2 bytes
";

    fn send(ours: f64) -> Row {
        Row::exact("a send", "instructions", ours, 127.0)
    }

    /// Returns a row with ratios from `low` to `low` + 0.02.
    fn latency(low: f64) -> Row {
        let pairs = [0.0, 0.01, 0.02].map(|more| [low + more, 1.0]);
        Row::of_pairs("send latency, 2 bytes", "us", pairs)
    }

    fn deviations(rows: &[Row]) -> Vec<String> {
        Baseline::parse(TEXT).expect("a valid baseline").deviations(rows)
    }

    #[test]
    fn rows_within_bands_are_not_reported() {
        assert_eq!(deviations(&[send(98.0), latency(1.0)]), [""; 0]);
        assert_eq!(deviations(&[send(102.0), latency(0.96)]), [""; 0], "the interval overlaps");
    }

    #[test]
    fn figure_outside_its_band_is_reported() {
        let found = deviations(&[send(103.0), latency(1.04)]);
        let expected = [
            "ours of \"a send\": 103.000, not 98.000..102.000",
            "ratio of \"send latency, 2 bytes\": 1.040..1.060, not 0.970..1.030",
        ];
        assert_eq!(found, expected);
        let found = deviations(&[send(97.9), latency(0.9)]);
        assert_eq!(found.len(), 2, "a figure better than its band should deviate too: {found:?}");
        let found = deviations(&[Row { c: 120.0, ..send(100.0) }, latency(1.0)]);
        assert_eq!(found, ["other of \"a send\": 120.000, not 125.000..129.000"]);
        let found = deviations(&[send(f64::NAN), latency(1.0)]);
        assert_eq!(found, ["ours of \"a send\": NaN, not 98.000..102.000"]);
    }

    #[test]
    fn missing_and_surplus_rows_are_reported() {
        let found = deviations(&[send(100.0)]);
        assert_eq!(found, ["\"send latency, 2 bytes\" was not measured"]);
        let read = Row { name: "a read".into(), ..send(100.0) };
        let found = deviations(&[send(100.0), latency(1.0), read]);
        assert_eq!(found, ["\"a read\" has no band, or was measured twice"]);
        let found = deviations(&[send(100.0), latency(1.0), latency(1.0)]);
        assert_eq!(found, ["\"send latency, 2 bytes\" has no band, or was measured twice"]);
    }

    #[test]
    fn renewed_baseline_contains_its_own_rows() {
        let calls = Row::exact("  system calls", "", 0.66, 1.0);
        let rows = [send(100.0), latency(1.0), calls];
        let text = Renewed(&rows).to_string();
        assert_eq!(
            Baseline::parse(&text).expect("the renewed baseline should be valid").deviations(&rows),
            [""; 0]
        );
        assert!(text.starts_with("ours      98.000    102.000  a send\n"), "{text}");
        assert!(text.contains("ratio      0.990      1.030  send latency, 2 bytes\n"), "{text}");
        assert!(text.contains("ours       0.640      0.680  system calls\n"), "{text}");
    }

    #[test]
    fn ratio_of_exact_counts_may_have_band() {
        let baseline = Baseline::parse("ratio 0 1 a send").expect("a valid baseline");
        assert_eq!(baseline.deviations(&[send(127.0)]), [""; 0]);
        assert_eq!(baseline.deviations(&[send(128.0)]).len(), 1);
    }

    #[test]
    fn unmeasured_row_must_be_present() {
        let baseline = Baseline::parse("unmeasured  a send").expect("a valid baseline");
        assert_eq!(baseline.unmeasured(), 1);
        assert_eq!(baseline.deviations(&[send(1.0)]), [""; 0]);
        assert_eq!(baseline.deviations(&[]), ["\"a send\" was not measured"]);
        assert_eq!(Baseline::parse(TEXT).expect("a valid baseline").unmeasured(), 0);
    }

    #[test]
    fn committed_baselines_are_valid() {
        let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/bench/baseline");
        let files: Vec<_> = std::fs::read_dir(folder).expect("the folder should exist").collect();
        assert!(!files.is_empty());
        for file in files {
            let path = file.expect("an entry").path();
            let text = std::fs::read_to_string(&path).expect("a file");
            let baseline =
                Baseline::parse(&text).unwrap_or_else(|error| panic!("{path:?}: {error}"));
            assert!(!baseline.0.is_empty(), "{path:?}");
        }
    }

    #[test]
    fn malformed_baseline_lines_are_refused() {
        for line in [
            "theirs 1 2 a send",
            "ours 2 1 a send",
            "ours 1 a send",
            "ours 1 2",
            "ours 1 inf a send",
            "ours",
        ] {
            let error = Baseline::parse(line).expect_err(line).to_string();
            assert!(error.contains(line), "{error}");
        }
        let error = Baseline::parse(&format!("{TEXT}ours 1 2 a send"))
            .expect_err("a repeated row should be refused");
        assert_eq!(error.to_string(), "ours of \"a send\" has two bands");
    }
}
