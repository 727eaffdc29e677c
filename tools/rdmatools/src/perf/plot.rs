//! Charts of the results: SVG with two logarithmic axes.

use super::Operation;
use super::measure::{Figures, Sample};
use super::plan::{Plan, Test};
use super::report::title;
use crate::chart::{self, COLORS, Diagram, Line, Scale};

/// The value of a sample that is drawn, and an optional band above it.
struct View {
    heading: &'static str,
    value: fn(&Figures) -> f64,
    upper: Option<fn(&Figures) -> f64>,
}

fn views(test: Test) -> Vec<View> {
    let median = |figures: &Figures| match *figures {
        Figures::Latency { median, .. } => median,
        Figures::Bandwidth { megabytes, .. } => megabytes,
    };
    let most = |figures: &Figures| match *figures {
        Figures::Latency { p99, .. } => p99,
        Figures::Bandwidth { messages, .. } => messages,
    };
    match test {
        Test::Latency => {
            let heading = "microseconds: median, and up to 99 % of the messages";
            vec![View { heading, value: median, upper: Some(most) }]
        }
        Test::Bandwidth => vec![
            View { heading: "MB/s", value: median, upper: None },
            View { heading: "thousands of messages per second", value: most, upper: None },
        ],
    }
}

fn color(operation: Operation) -> &'static str {
    let [send, write, read] = COLORS;
    match operation {
        Operation::Send => send,
        Operation::Write => write,
        Operation::Read => read,
    }
}

fn bytes(size: u32) -> String {
    match size {
        size if size >= 1 << 20 && size % (1 << 20) == 0 => format!("{} Mi", size >> 20),
        size if size >= 1 << 10 && size % (1 << 10) == 0 => format!("{} Ki", size >> 10),
        size => size.to_string(),
    }
}

/// Returns the chart of the results.
pub(super) fn svg(plan: &Plan, device: &str, samples: &[Sample]) -> String {
    let views = views(plan.test);
    let diagrams: Vec<_> = views.iter().map(|view| view.diagram(plan, samples)).collect();
    chart::svg(&title(plan, device), &diagrams)
}

impl View {
    fn diagram(&self, plan: &Plan, samples: &[Sample]) -> Diagram<'static> {
        let line = |operation: &Operation| {
            let mine = || samples.iter().filter(|sample| sample.operation == *operation);
            let point = |s: &Sample| [f64::from(s.size), (self.value)(&s.figures)];
            let upper = |upper: fn(&Figures) -> f64| mine().map(|s| upper(&s.figures)).collect();
            Line {
                name: operation.name(),
                color: color(*operation),
                points: mine().map(point).collect(),
                upper: self.upper.map_or_else(Vec::new, upper),
            }
        };
        Diagram {
            heading: self.heading,
            across: "bytes in a message",
            scale: Scale::Logarithmic,
            marks: plan.sizes().map(|size| (f64::from(size), bytes(size))).collect(),
            lines: plan.operations.iter().map(line).collect(),
        }
    }
}

#[cfg(test)]
mod tests;
