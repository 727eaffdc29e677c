//! The output of `rdmatools lat` and `rdmatools bw`. Their speed is not tested.

use std::env;
use std::fs;

use rdmacm_tests::Ended;
use rdmacm_tests::roce::{roce_ip, roce_name};
use serde_json::Value;

use crate::SIW;
use crate::rping::{Program, port};

#[test]
#[ignore = "needs the test bed: cargo xtask test"]
fn perf_programs_print_results() {
    measure(roce_ip(), roce_name());
}

#[test]
#[ignore = "needs the test bed: cargo xtask test"]
fn siw_perf_programs_print_results() {
    measure(SIW, "siw0");
}

const OPERATIONS: [&str; 3] = ["send", "write", "read"];

/// Measures inline data, several packets and lists, with output as text, JSON and a picture.
fn measure(address: &str, device: &str) {
    let lat = format!("Latency over {device} in us, 5 messages of each size");
    let columns = ["bytes", "min", "median", "mean", "99 %", "99.9 %", "max"];
    let lines = run("lat", address, "-n 5 -s 64 -o read,send,write");
    for times in rows(&lines, &lat, &columns, 64) {
        let [min, median, mean, p99, p999, max] = times[..] else { panic!("{times:?}") };
        assert!(0.0 < min && min <= median && median <= p99 && p99 <= p999 && p999 <= max);
        assert!(min <= mean && mean <= max, "{times:?}");
    }
    let bw = format!("Bandwidth over {device}, 40 messages of each size");
    let options = "-n 40 -s 9000 -t 8 -Q 3 -l 4 -o send,write,read";
    let lines = run("bw", address, options);
    for rates in rows(&lines, &bw, &["bytes", "MB/s", "1000 msg/s"], 9000) {
        assert!(rates.len() == 2 && rates.iter().all(|rate| *rate > 0.0), "{rates:?}");
    }
    let picture = env::temp_dir().join(format!("rdmatools-{device}.svg"));
    let options = format!("-n 8 -s 8 -t 4 -Q 4 -o send,read --json --plot {}", picture.display());
    let json = run("bw", address, &options);
    let object: Value = serde_json::from_str(&json.join("\n")).expect("valid JSON");
    assert_eq!((&object["test"], &object["device"]), (&Value::from("bw"), &Value::from(device)));
    for (result, operation) in [(&object["results"][0], "send"), (&object["results"][1], "read")] {
        assert_eq!((&result["operation"], &result["size"]), (&operation.into(), &8.into()));
        assert!(result["mb_per_s"].as_f64() > Some(0.0), "{result}");
    }
    let svg = fs::read_to_string(&picture).expect("a picture");
    assert!(svg.starts_with("<svg ") && svg.ends_with("</svg>\n"), "{svg}");
    assert_eq!(svg.matches("<circle").count() + svg.matches("class=\"m\"").count(), 4, "{svg}");
    fs::remove_file(picture).expect("remove");
    // With `-`, only the chart is printed, on standard output.
    let chart = run("lat", address, "-n 5 -s 64 -o send --plot -").join("\n");
    assert!(chart.starts_with("<svg ") && chart.ends_with("</svg>"), "{chart}");
}

/// Returns the output of the client; both sides must succeed.
fn run(tool: &str, address: &str, options: &str) -> Vec<String> {
    let port = port();
    let mut server = Program::Ours.run(tool, &["-p", &port]);
    let listening = format!("listening on 0.0.0.0:{port}");
    assert_eq!(server.next_line(), Some(listening.as_str()));
    let mut arguments = vec![address, "-p", &port];
    arguments.extend(options.split(' '));
    let client = Program::Ours.run(tool, &arguments).finish();
    let ends = |Ended { status, stderr, .. }: &Ended| {
        assert!(status.success(), "{tool} {options}: {status}: {stderr}");
    };
    ends(&client);
    ends(&server.finish());
    client.stdout
}

/// Returns the numbers in the line of each operation.
fn rows(lines: &[String], title: &str, columns: &[&str], size: usize) -> Vec<Vec<f64>> {
    assert_eq!(lines.len(), 2 + OPERATIONS.len(), "{lines:?}");
    assert_eq!(lines[0], title);
    let heading: Vec<_> = lines[1].split("  ").map(str::trim).filter(|s| !s.is_empty()).collect();
    assert_eq!(heading, columns);
    let numbers = |(line, operation): (&String, _)| {
        let mut words = line.split_whitespace();
        assert_eq!(words.next(), Some(operation), "{line}");
        assert_eq!(words.next(), Some(size.to_string().as_str()), "{line}");
        words.map(|word| word.parse().expect("a number")).collect()
    };
    lines[2..].iter().zip(OPERATIONS).map(numbers).collect()
}
