use super::super::plan::tests::plan;
use super::*;

#[test]
fn sizes_are_short() {
    assert_eq!([2, 1000, 1024, 65_536, 1 << 20].map(bytes), ["2", "1000", "1 Ki", "64 Ki", "1 Mi"]);
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
    let (circles, markers) = (svg.matches("<circle").count(), svg.matches("class=\"m\"").count());
    assert_eq!(circles + markers, samples.len());
    assert_eq!((circles, svg.matches("class=\"e\"").count()), (plan.sizes().count(), 2));
    assert!(svg.contains("stroke-dasharray=\"none\"") && svg.contains("stroke-dasharray=\"7 4\""));
    for part in ["rxe&lt;0>", ">send<", ">read<", ">64 Ki<", "microseconds"] {
        assert!(svg.contains(part), "{part}");
    }
    assert!(!svg.contains("NaN") && !svg.contains("inf"));
}
