//! Results as text and as JSON.

use std::io::{self, Write};

use serde_json::{Value, json};

use super::measure::{Figures, Sample};
use super::plan::{Plan, Test};

/// Titles of the columns after operation and size, in text and in JSON.
const LATENCY: [[&str; 2]; 6] = [
    ["min", "min_us"],
    ["median", "median_us"],
    ["mean", "mean_us"],
    ["99 %", "p99_us"],
    ["99.9 %", "p999_us"],
    ["max", "max_us"],
];
const BANDWIDTH: [[&str; 2]; 2] = [["MB/s", "mb_per_s"], ["1000 msg/s", "kmsg_per_s"]];

fn columns(test: Test) -> &'static [[&'static str; 2]] {
    match test {
        Test::Latency => &LATENCY,
        Test::Bandwidth => &BANDWIDTH,
    }
}

impl Figures {
    fn values(&self) -> Vec<f64> {
        match *self {
            Self::Latency { min, median, mean, p99, p999, max } => {
                vec![min, median, mean, p99, p999, max]
            }
            Self::Bandwidth { megabytes, messages } => vec![megabytes, messages],
        }
    }
}

/// Returns a one-line description of the measurement.
pub(super) fn title(plan: &Plan, device: &str) -> String {
    let Plan { iterations, .. } = plan;
    match plan.test {
        Test::Latency => format!("Latency over {device} in us, {iterations} messages of each size"),
        Test::Bandwidth => format!("Bandwidth over {device}, {iterations} messages of each size"),
    }
}

/// Prints the first lines of a table.
pub(super) fn heading(plan: &Plan, device: &str, out: &mut dyn Write) -> io::Result<()> {
    writeln!(out, "{}", title(plan, device))?;
    write!(out, "{:9}{:>8}", "", "bytes")?;
    columns(plan.test).iter().try_for_each(|[name, _]| write!(out, "{name:>12}"))?;
    writeln!(out)
}

/// Prints a line of the table.
pub(super) fn line(sample: &Sample, out: &mut dyn Write) -> io::Result<()> {
    write!(out, "{:9}{:>8}", sample.operation.name(), sample.size)?;
    sample.figures.values().iter().try_for_each(|value| write!(out, "{value:>12.2}"))?;
    writeln!(out)?;
    out.flush()
}

/// Prints all results as one JSON object.
pub(super) fn json(
    plan: &Plan,
    device: &str,
    samples: &[Sample],
    out: &mut dyn Write,
) -> io::Result<()> {
    let test = match plan.test {
        Test::Latency => "lat",
        Test::Bandwidth => "bw",
    };
    let result = |Sample { operation, size, figures }: &Sample| {
        let mut object = json!({ "operation": operation.name(), "size": size });
        for ([_, name], value) in columns(plan.test).iter().zip(figures.values()) {
            object[*name] = Value::from(value);
        }
        object
    };
    let Plan { iterations, tx_depth, rx_depth, moderation, list, inline, .. } = plan;
    let object = json!({
        "test": test,
        "device": device,
        "iterations": iterations,
        "tx_depth": tx_depth,
        "rx_depth": rx_depth,
        "cq_mod": moderation,
        "list": list,
        "inline": inline,
        "results": samples.iter().map(result).collect::<Vec<_>>(),
    });
    writeln!(out, "{object:#}")
}

#[cfg(test)]
mod tests {
    use super::super::Operation;
    use super::super::plan::tests::plan;
    use super::*;

    #[test]
    fn line_has_number_for_each_column() {
        let figures = Figures::Bandwidth { megabytes: 12.345, messages: 1.0 };
        let sample = Sample { operation: Operation::Write, size: 64, figures };
        let mut out = Vec::new();
        heading(&plan(), "rxe0", &mut out).unwrap();
        line(&sample, &mut out).unwrap();
        let text = String::from_utf8(out).unwrap();
        let lines: Vec<_> = text.lines().collect();
        assert_eq!(lines[0], "Bandwidth over rxe0, 1000 messages of each size");
        assert_eq!(lines[1].len(), lines[2].len());
        assert_eq!(
            lines[2].split_whitespace().collect::<Vec<_>>(),
            ["write", "64", "12.35", "1.00"]
        );
        let mut out = Vec::new();
        json(&plan(), "rxe0", &[sample.clone(), sample], &mut out).unwrap();
        let object: Value = serde_json::from_slice(&out).unwrap();
        assert_eq!(
            [&object["test"], &object["device"], &object["iterations"]],
            [&json!("bw"), &json!("rxe0"), &json!(1000)]
        );
        let result =
            json!({ "operation": "write", "size": 64, "mb_per_s": 12.345, "kmsg_per_s": 1.0 });
        assert_eq!(object["results"], json!([result, result]));
    }
}
