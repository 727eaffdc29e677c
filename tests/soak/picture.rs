//! The samples as a picture.

use rdmatools::chart::{self, COLORS, Diagram, Line, Scale};

use crate::census::Sample;

/// Returns a small number exactly, and a large one rounded.
#[expect(clippy::cast_precision_loss, reason = "the last digits are not visible in a picture")]
fn number(value: u64) -> f64 {
    value as f64
}

pub(crate) fn svg(samples: &[Sample]) -> String {
    let minutes = |sample: &Sample| sample.at.as_secs_f64() / 60.0;
    let line = |name, color, value: fn(&Sample) -> u64| Line {
        name,
        color,
        points: samples.iter().map(|sample| [minutes(sample), number(value(sample))]).collect(),
        upper: Vec::new(),
    };
    let end = samples.last().map_or(0.0, minutes);
    let marks =
        || (0..=6).map(|part| end * f64::from(part) / 6.0).map(|at| (at, format!("{at:.1}")));
    let diagram = |heading, lines| Diagram {
        heading,
        across: "minutes",
        scale: Scale::Linear,
        marks: marks().collect(),
        lines,
    };
    let [blue, red, green] = COLORS;
    chart::svg(
        "Connections made and broken at random; sampled while no thread runs",
        &[
            diagram(
                "connections so far",
                vec![
                    line("with data", blue, |sample| sample.done.connected),
                    line("broken off", red, |sample| sample.done.broken_off),
                ],
            ),
            diagram(
                "KiB",
                vec![
                    line("RSS", blue, |sample| sample.resident_kib),
                    line("kernel slab", green, |sample| sample.slab_kib),
                ],
            ),
            diagram(
                "bytes on the heap",
                vec![line("all threads", blue, |sample| sample.heap.bytes)],
            ),
            diagram(
                "left over, between two connections",
                vec![
                    line("descriptors", blue, |sample| sample.descriptors as u64),
                    line("kernel objects", red, |sample| sample.objects),
                ],
            ),
        ],
    )
}
