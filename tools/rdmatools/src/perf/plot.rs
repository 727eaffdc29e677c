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
mod tests {
    use super::super::plan::tests::plan;
    use super::*;

    #[test]
    fn sizes_are_short() {
        assert_eq!(
            [2, 1000, 1024, 65_536, 1 << 20].map(bytes),
            ["2", "1000", "1 Ki", "64 Ki", "1 Mi"]
        );
    }

    #[test]
    fn chart_shows_every_sample() {
        let plan = Plan { test: Test::Latency, ..plan() };
        let sample = |operation, size| {
            let median = 10.0 + f64::from(size) / 1000.0;
            let (min, mean, p99, p999, max) = (1.0, median, 2.0 * median, 99.0, 100.0);
            let figures = Figures::Latency { min, median, mean, p99, p999, max };
            Sample { operation, size, figures }
        };
        let each = |operation| plan.sizes().map(move |size| sample(operation, size));
        let samples: Vec<_> = plan.operations.iter().flat_map(|each_of| each(*each_of)).collect();
        let svg = svg(&plan, "rxe<0>", &samples);
        assert!(svg.starts_with("<svg ") && svg.ends_with("</svg>\n"));
        // The operations differ by their markers and by the dashes of their bands.
        let (circles, markers) =
            (svg.matches("<circle").count(), svg.matches("class=\"m\"").count());
        assert_eq!(circles + markers, samples.len());
        assert_eq!((circles, svg.matches("class=\"e\"").count()), (plan.sizes().count(), 2));
        assert!(
            svg.contains("stroke-dasharray=\"none\"") && svg.contains("stroke-dasharray=\"7 4\"")
        );
        for part in ["rxe&lt;0>", ">send<", ">read<", ">64 Ki<", "microseconds"] {
            assert!(svg.contains(part), "{part}");
        }
        assert!(!svg.contains("NaN") && !svg.contains("inf"));
    }
}
