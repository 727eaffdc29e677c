//! Results as a picture: SVG with two logarithmic axes.

use std::fmt::Write;

use super::Operation;
use super::measure::{Figures, Sample};
use super::plan::{Plan, Test};
use super::report::title;

const WIDTH: f64 = 860.0;
/// Of one diagram, and where in it the axes are.
const HEIGHT: f64 = 430.0;
const LEFT: f64 = 78.0;
const RIGHT: f64 = 110.0;
const TOP: f64 = 34.0;
const BOTTOM: f64 = 56.0;
/// Above the first diagram.
const HEAD: f64 = 44.0;

const STYLE: &str = "text{font:13px system-ui,sans-serif;fill:#333}\
    .t{font-size:18px;font-weight:600}.y{font-weight:600}.n{font-weight:600}\
    .g{stroke:#e4e4e4}.a{stroke:#666}.l{fill:none;stroke-width:2.2;stroke-linejoin:round}";

/// What is drawn of a sample, and a band above it if there is one.
struct Diagram {
    heading: &'static str,
    value: fn(&Figures) -> f64,
    upper: Option<fn(&Figures) -> f64>,
}

fn diagrams(test: Test) -> Vec<Diagram> {
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
            vec![Diagram { heading, value: median, upper: Some(most) }]
        }
        Test::Bandwidth => vec![
            Diagram { heading: "MB/s", value: median, upper: None },
            Diagram { heading: "thousands of messages per second", value: most, upper: None },
        ],
    }
}

fn color(operation: Operation) -> &'static str {
    match operation {
        Operation::Send => "#1b6ca8",
        Operation::Write => "#d1603d",
        Operation::Read => "#3f8f5a",
    }
}

/// A logarithmic axis, from the lower end to the upper one.
struct Axis {
    values: [f64; 2],
    places: [f64; 2],
}

impl Axis {
    fn place(&self, value: f64) -> f64 {
        let [low, high] = self.values.map(f64::ln);
        let part =
            if high > low { (value.max(self.values[0]).ln() - low) / (high - low) } else { 0.5 };
        self.places[0] + part * (self.places[1] - self.places[0])
    }
}

/// 1, 2 and 5 times the powers of ten, with one below `low` and one above `high` at the ends.
fn ticks(low: f64, high: f64) -> Vec<f64> {
    let decades = (-3..12).map(|power| 10_f64.powi(power));
    let all: Vec<f64> = decades.flat_map(|ten| [1.0, 2.0, 5.0].map(|digit| digit * ten)).collect();
    let first = all.iter().rposition(|tick| *tick <= low).unwrap_or(0);
    let last = all.iter().position(|tick| *tick >= high).unwrap_or(all.len() - 1);
    all[first..=last.max(first + 1)].to_vec()
}

/// A number as short as it can be.
fn short(value: f64) -> String {
    match value {
        value if value >= 1e6 => format!("{}M", value / 1e6),
        value if value >= 1e4 => format!("{}k", value / 1e3),
        // What multiples of 1, 2 and 5 are off by.
        value => format!("{}", (value * 1e6).round() / 1e6),
    }
}

fn bytes(size: u32) -> String {
    match size {
        size if size >= 1 << 20 && size % (1 << 20) == 0 => format!("{} Mi", size >> 20),
        size if size >= 1 << 10 && size % (1 << 10) == 0 => format!("{} Ki", size >> 10),
        size => size.to_string(),
    }
}

/// The picture of what was measured.
pub(super) fn svg(plan: &Plan, device: &str, samples: &[Sample]) -> String {
    let diagrams = diagrams(plan.test);
    let height = HEAD + HEIGHT * f64::from(u32::try_from(diagrams.len()).expect("two at most"));
    let title = title(plan, device).replace('&', "&amp;").replace('<', "&lt;");
    let mut svg = format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {WIDTH} {height}\" \
         width=\"{WIDTH}\" height=\"{height}\">\n<style>{STYLE}</style>\n\
         <rect width=\"100%\" height=\"100%\" fill=\"#fff\"/>\n\
         <text class=\"t\" x=\"{LEFT}\" y=\"30\">{title}</text>\n"
    );
    let mut top = HEAD;
    for diagram in &diagrams {
        diagram.draw(plan, samples, top, &mut svg);
        top += HEIGHT;
    }
    svg + "</svg>\n"
}

impl Diagram {
    fn draw(&self, plan: &Plan, samples: &[Sample], top: f64, svg: &mut String) {
        let upper = self.upper.unwrap_or(self.value);
        let low = samples.iter().map(|s| (self.value)(&s.figures)).fold(f64::INFINITY, f64::min);
        let high = samples.iter().map(|s| upper(&s.figures)).fold(0.0, f64::max);
        let ticks = ticks(low, high);
        let (left, right) = (LEFT, WIDTH - RIGHT);
        let (ceiling, floor) = (top + TOP, top + HEIGHT - BOTTOM);
        let sizes: Vec<u32> = plan.sizes().collect();
        let ends = [sizes[0], sizes[sizes.len() - 1]].map(f64::from);
        let x = Axis { values: ends, places: [left, right] };
        let y = Axis { values: [ticks[0], ticks[ticks.len() - 1]], places: [floor, ceiling] };
        let mut put = |text: String| svg.push_str(&text);
        put(format!(
            "<text class=\"y\" x=\"{left}\" y=\"{:.1}\">{}</text>\n",
            ceiling - 12.0,
            self.heading
        ));
        for tick in &ticks {
            let at = y.place(*tick);
            put(format!("<path class=\"g\" d=\"M{left} {at:.1}H{right}\"/>"));
            put(format!(
                "<text x=\"{}\" y=\"{:.1}\" text-anchor=\"end\">{}</text>\n",
                left - 9.0,
                at + 4.5,
                short(*tick)
            ));
        }
        for size in &sizes {
            let at = x.place(f64::from(*size));
            put(format!("<path class=\"a\" d=\"M{at:.1} {floor}v5\"/>"));
            put(format!(
                "<text x=\"{at:.1}\" y=\"{}\" text-anchor=\"middle\">{}</text>\n",
                floor + 21.0,
                bytes(*size)
            ));
        }
        put(format!("<path class=\"a\" d=\"M{left} {floor}H{right}\"/>\n"));
        put(format!(
            "<text x=\"{}\" y=\"{}\" text-anchor=\"middle\">bytes in a message</text>\n",
            f64::midpoint(left, right),
            floor + 42.0
        ));
        let mut names = Vec::new();
        for operation in &plan.operations {
            let of = |value: fn(&Figures) -> f64| -> Vec<[f64; 2]> {
                let mine = samples.iter().filter(|sample| sample.operation == *operation);
                mine.map(|s| [x.place(f64::from(s.size)), y.place(value(&s.figures))]).collect()
            };
            let (points, color) = (of(self.value), color(*operation));
            let Some([end, height]) = points.last().copied() else { continue };
            if let Some(upper) = self.upper {
                let mut outline = of(upper);
                outline.extend(points.iter().rev());
                put(format!(
                    "<path fill=\"{color}\" opacity=\".13\" d=\"M{}Z\"/>\n",
                    path(&outline)
                ));
            }
            put(format!("<path class=\"l\" stroke=\"{color}\" d=\"M{}\"/>\n", path(&points)));
            for [x, y] in points {
                put(format!("<circle cx=\"{x:.1}\" cy=\"{y:.1}\" r=\"3\" fill=\"{color}\"/>"));
            }
            names.push((height, end, color, operation.name()));
        }
        // A name at the end of each line, none over another.
        names.sort_by(|one, other| one.0.total_cmp(&other.0));
        let mut free = ceiling;
        for (height, end, color, name) in names {
            let at = height.max(free);
            free = at + 16.0;
            put(format!(
                "\n<text class=\"n\" x=\"{:.1}\" y=\"{:.1}\" style=\"fill:{color}\">{name}</text>",
                end + 11.0,
                at + 4.5
            ));
        }
        put("\n".into());
    }
}

fn path(points: &[[f64; 2]]) -> String {
    points.iter().fold(String::new(), |mut path, [x, y]| {
        let line = if path.is_empty() { "" } else { "L" };
        write!(path, "{line}{x:.1} {y:.1}").expect("a string takes everything");
        path
    })
}

#[cfg(test)]
mod tests {
    use super::super::plan::tests::plan;
    use super::*;

    #[test]
    fn ticks_enclose_what_there_is() {
        assert_eq!(ticks(3.0, 48.0), [2.0, 5.0, 10.0, 20.0, 50.0]);
        assert_eq!(ticks(5.0, 5.0), [5.0, 10.0]);
        assert_eq!([0.2, 5.0, 2e4, 5e6].map(short), ["0.2", "5", "20k", "5M"]);
        assert_eq!(
            [2, 1000, 1024, 65_536, 1 << 20].map(bytes),
            ["2", "1000", "1 Ki", "64 Ki", "1 Mi"]
        );
    }

    #[test]
    fn a_picture_shows_every_sample() {
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
        assert_eq!(svg.matches("<circle").count(), samples.len());
        for part in ["rxe&lt;0>", ">send<", ">read<", ">64 Ki<", "microseconds"] {
            assert!(svg.contains(part), "{part}");
        }
        assert!(!svg.contains("NaN") && !svg.contains("inf"));
    }
}
