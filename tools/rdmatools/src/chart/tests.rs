use super::*;

#[test]
fn ticks_enclose_values() {
    assert_eq!(ticks(Scale::Logarithmic, 3.0, 48.0), [2.0, 5.0, 10.0, 20.0, 50.0]);
    assert_eq!(ticks(Scale::Logarithmic, 5.0, 5.0), [5.0, 10.0]);
    assert_eq!(ticks(Scale::Linear, 3.0, 48.0), [0.0, 10.0, 20.0, 30.0, 40.0, 50.0]);
    assert_eq!(ticks(Scale::Linear, 0.0, 0.0), [0.0, 0.001]);
    assert_eq!([0.2, 5.0, 2e4, 5e6].map(short), ["0.2", "5", "20k", "5M"]);
}

#[test]
fn linear_diagram_starts_at_zero() {
    let line = |name, height| Line {
        name,
        color: COLORS[0],
        points: vec![[0.0, height], [10.0, height]],
        upper: Vec::new(),
    };
    let svg = svg(
        "a < b",
        &[Diagram {
            heading: "KiB",
            across: "seconds",
            scale: Scale::Linear,
            marks: [0.0, 5.0, 10.0].map(|at| (at, at.to_string())).to_vec(),
            lines: vec![line("low", 0.0), line("high", 50.0)],
        }],
    );
    assert!(svg.starts_with("<svg ") && svg.ends_with("</svg>\n"));
    assert!(svg.contains("a &lt; b") && svg.contains(">high<") && svg.contains(">seconds<"));
    // The lines go from the left end to the right end, at the bottom and at the top.
    assert!(svg.contains("d=\"M78.0 418.0L750.0 418.0\""), "{svg}");
    assert!(svg.contains("d=\"M78.0 78.0L750.0 78.0\""), "{svg}");
    assert!(!svg.contains("NaN") && !svg.contains("inf"));
}
