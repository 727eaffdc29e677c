//! Diagrams in SVG: lines with a horizontal and a vertical axis.
//!
//! The module replaces the crate `plotters`, which would add 90 KB to a static program of 1.4 MB.

use std::fmt::Write;

const WIDTH: f64 = 860.0;
/// Height of one diagram, and below it the positions of its axes.
const HEIGHT: f64 = 430.0;
const LEFT: f64 = 78.0;
const RIGHT: f64 = 110.0;
const TOP: f64 = 34.0;
const BOTTOM: f64 = 56.0;
/// Height of the title above the first diagram.
const HEAD: f64 = 44.0;

const STYLE: &str = "text{font:13px system-ui,sans-serif;fill:#333}\
    .t{font-size:18px;font-weight:600}.y{font-weight:600}.n{font-weight:600}\
    .g{stroke:#e4e4e4}.a{stroke:#666}.l{fill:none;stroke-width:2.2;stroke-linejoin:round}.e{fill:none;stroke-width:1}";

/// Blue, red and green.
///
/// Lines also differ by their markers and dashes, for readers and printers without color.
pub const COLORS: [&str; 3] = ["#1b6ca8", "#d1603d", "#3f8f5a"];

/// Dashes of the upper edge of a band, by the number of its line.
const DASHES: [&str; 3] = ["none", "7 4", "2 3"];
/// Distance of the names of lines.
const NAME_HEIGHT: f64 = 16.0;

/// The scale of an axis.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Scale {
    /// Proportional to the values. The vertical axis starts at zero.
    Linear,
    /// Proportional to the logarithms of the values.
    Logarithmic,
}

/// One diagram.
#[derive(Debug)]
pub struct Diagram<'a> {
    /// Title of the vertical axis.
    pub heading: &'a str,
    /// Title of the horizontal axis.
    pub across: &'a str,
    /// Scale of both axes.
    pub scale: Scale,
    /// Labels of the horizontal axis with their positions, from one end to the other.
    pub marks: Vec<(f64, String)>,
    /// The lines of the diagram.
    pub lines: Vec<Line<'a>>,
}

/// A line through points from left to right.
#[derive(Debug)]
pub struct Line<'a> {
    /// Label at the end of the line.
    pub name: &'a str,
    /// One of [`COLORS`].
    pub color: &'a str,
    /// Points of the line.
    pub points: Vec<[f64; 2]>,
    /// Upper edge of the band above the line, for each point; empty without a band.
    pub upper: Vec<f64>,
}

/// Returns an SVG image of the diagrams, one below the other.
#[must_use]
pub fn svg(title: &str, diagrams: &[Diagram<'_>]) -> String {
    let height = diagrams.iter().fold(HEAD, |height, _| height + HEIGHT);
    let title = title.replace('&', "&amp;").replace('<', "&lt;");
    let mut svg = format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {WIDTH} {height}\" \
         width=\"{WIDTH}\" height=\"{height}\">\n<style>{STYLE}</style>\n\
         <rect width=\"100%\" height=\"100%\" fill=\"#fff\"/>\n\
         <text class=\"t\" x=\"{LEFT}\" y=\"30\">{title}</text>\n"
    );
    let mut top = HEAD;
    for diagram in diagrams {
        diagram.draw(top, &mut svg);
        top += HEIGHT;
    }
    svg + "</svg>\n"
}

/// An axis, from the lower end to the upper one.
struct Axis {
    scale: Scale,
    values: [f64; 2],
    places: [f64; 2],
}

impl Axis {
    fn place(&self, value: f64) -> f64 {
        let scaled = |value: f64| match self.scale {
            Scale::Linear => value,
            Scale::Logarithmic => value.ln(),
        };
        let [low, high] = self.values.map(scaled);
        let part =
            if high > low { (scaled(value.max(self.values[0])) - low) / (high - low) } else { 0.5 };
        self.places[0] + part * (self.places[1] - self.places[0])
    }
}

/// Returns 1, 2 and 5 times the powers of ten.
fn round_numbers() -> Vec<f64> {
    let decades = (-3..12).map(|power| 10_f64.powi(power));
    decades.flat_map(|ten| [1.0, 2.0, 5.0].map(|digit| digit * ten)).collect()
}

/// Returns the labels of a vertical axis, such that all values are between two labels.
///
/// The values range from `low` to `high`.
fn ticks(scale: Scale, low: f64, high: f64) -> Vec<f64> {
    let all = round_numbers();
    match scale {
        Scale::Logarithmic => {
            let first = all.iter().rposition(|tick| *tick <= low).unwrap_or(0);
            let last = all.iter().position(|tick| *tick >= high).unwrap_or(all.len() - 1);
            all[first..=last.max(first + 1)].to_vec()
        }
        Scale::Linear => {
            let step = all.into_iter().find(|step| step * 6.0 >= high).unwrap_or(high);
            let mut ticks = vec![0.0, step];
            while ticks[ticks.len() - 1] < high {
                ticks.push(ticks[ticks.len() - 1] + step);
            }
            ticks
        }
    }
}

/// Formats a number as briefly as possible.
fn short(value: f64) -> String {
    match value {
        value if value >= 1e6 => format!("{}M", value / 1e6),
        value if value >= 1e4 => format!("{}k", value / 1e3),
        // Rounding removes the error of multiples of 1, 2 and 5.
        value => format!("{}", (value * 1e6).round() / 1e6),
    }
}

impl Diagram<'_> {
    fn draw(&self, top: f64, svg: &mut String) {
        let heights = || self.lines.iter().flat_map(|line| line.points.iter().map(|[_, y]| *y));
        let upper = self.lines.iter().flat_map(|line| line.upper.iter().copied());
        let low = heights().fold(f64::INFINITY, f64::min);
        let high = heights().chain(upper).fold(0.0, f64::max);
        let ticks = ticks(self.scale, low, high);
        let (left, right) = (LEFT, WIDTH - RIGHT);
        let (ceiling, floor) = (top + TOP, top + HEIGHT - BOTTOM);
        let (Some(first), Some(last)) = (self.marks.first(), self.marks.last()) else { return };
        let scale = self.scale;
        let x = Axis { scale, values: [first.0, last.0], places: [left, right] };
        let ends = [ticks[0], ticks[ticks.len() - 1]];
        let y = Axis { scale, values: ends, places: [floor, ceiling] };
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
        for (value, text) in &self.marks {
            let at = x.place(*value);
            put(format!("<path class=\"a\" d=\"M{at:.1} {floor}v5\"/>"));
            put(format!(
                "<text x=\"{at:.1}\" y=\"{}\" text-anchor=\"middle\">{text}</text>\n",
                floor + 21.0
            ));
        }
        put(format!("<path class=\"a\" d=\"M{left} {floor}H{right}\"/>\n"));
        put(format!(
            "<text x=\"{}\" y=\"{}\" text-anchor=\"middle\">{}</text>\n",
            f64::midpoint(left, right),
            floor + 42.0,
            self.across
        ));
        let mut names = Vec::new();
        for (number, line) in self.lines.iter().enumerate() {
            let (marker, dashes) = (Marker::of(number), DASHES[number % DASHES.len()]);
            let placed = |[across, up]: [f64; 2]| [x.place(across), y.place(up)];
            let points: Vec<_> = line.points.iter().copied().map(placed).collect();
            let color = line.color;
            let Some([end, height]) = points.last().copied() else { continue };
            if !line.upper.is_empty() {
                let over = line.points.iter().zip(&line.upper);
                let mut outline: Vec<_> = over.map(|([x, _], y)| placed([*x, *y])).collect();
                outline.extend(points.iter().rev());
                put(format!(
                    "<path fill=\"{color}\" opacity=\".13\" d=\"M{}Z\"/>\n",
                    path(&outline)
                ));
                let edge = &outline[..line.upper.len().min(outline.len())];
                put(format!(
                    "<path class=\"e\" stroke=\"{color}\" stroke-dasharray=\"{dashes}\" d=\"M{}\"/>\n",
                    path(edge)
                ));
            }
            put(format!("<path class=\"l\" stroke=\"{color}\" d=\"M{}\"/>\n", path(&points)));
            for point in points {
                put(marker.at(point, color));
            }
            names.push((height, end, color, line.name));
        }
        // Each line has its name at its end; names must not overlap.
        names.sort_by(|one, other| one.0.total_cmp(&other.0));
        let below =
            |index: usize| f64::from(u32::try_from(index).unwrap_or(u32::MAX)) * NAME_HEIGHT;
        let count = names.len();
        let mut free = ceiling;
        for (index, (height, end, color, name)) in names.into_iter().enumerate() {
            // The names that follow fit above the axis.
            let at = height.max(free).min(floor - below(count - 1 - index));
            free = at + NAME_HEIGHT;
            put(format!(
                "\n<text class=\"n\" x=\"{:.1}\" y=\"{:.1}\" style=\"fill:{color}\">{name}</text>",
                end + 11.0,
                at + 4.5
            ));
        }
        put("\n".into());
    }
}

/// The shape of the points of a line.
#[derive(Debug, Clone, Copy)]
enum Marker {
    Circle,
    Square,
    Triangle,
}

impl Marker {
    fn of(line: usize) -> Self {
        [Self::Circle, Self::Square, Self::Triangle][line % 3]
    }

    fn at(self, [x, y]: [f64; 2], color: &str) -> String {
        match self {
            Self::Circle => {
                format!("<circle cx=\"{x:.1}\" cy=\"{y:.1}\" r=\"3.5\" fill=\"{color}\"/>")
            }
            Self::Square => format!(
                "<path class=\"m\" fill=\"{color}\" d=\"M{:.1} {:.1}h7v7h-7Z\"/>",
                x - 3.5,
                y - 3.5
            ),
            Self::Triangle => format!(
                "<path class=\"m\" fill=\"{color}\" d=\"M{x:.1} {:.1}l4.5 8h-9Z\"/>",
                y - 5.0
            ),
        }
    }
}

fn path(points: &[[f64; 2]]) -> String {
    points.iter().fold(String::new(), |mut path, [x, y]| {
        let line = if path.is_empty() { "" } else { "L" };
        write!(path, "{line}{x:.1} {y:.1}").expect("writing to a string should succeed");
        path
    })
}

#[cfg(test)]
mod tests;
