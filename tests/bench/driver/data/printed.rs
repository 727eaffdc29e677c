//! The numbers that the programs print.

use std::error::Error;

use serde_json::Value;

use super::load::{Load, Maker, Test};
use crate::run::Useless;

/// Returns the figure that a program prints for a load.
///
/// For a latency it is the mean in microseconds, each of `cycles` processor cycles; for a bandwidth it is thousands of
/// messages per second.
///
/// The mean is used because processors that take turns make messages take one of a few times, and the median jumps
/// between them.
pub(super) fn figure(
    maker: Maker,
    load: &Load,
    cycles: f64,
    text: &str,
) -> Result<f64, Box<dyn Error>> {
    let figure = match (maker, load.test) {
        (Maker::Ours, _) => ours(load, text),
        (Maker::C, Test::Latency) => perftest(load, text).map(|mean| mean / cycles),
        (Maker::C, Test::Bandwidth) => perftest(load, text),
    };
    let figure = figure.ok_or_else(|| format!("no result for {load:?} in:\n{text}"))?;
    // perftest measures the processor's clock in each run. If the clock is not steady, perftest computes with
    // 0 MHz.
    if figure.is_finite() && figure > 0.0 {
        Ok(figure)
    } else {
        Err(Useless(format!("{load} of {} bytes printed {figure}", load.size)).into())
    }
}

/// Returns the cycles of the processor in a microsecond, from `/proc/cpuinfo`.
///
/// perftest takes them from there if it does not measure another value.
pub(super) fn cycles(cpuinfo: &str) -> Option<f64> {
    let value = cpuinfo.lines().find_map(|line| line.strip_prefix("cpu MHz"))?;
    value.trim_start().strip_prefix(':')?.trim().parse().ok()
}

/// Returns the figure from the one result in JSON: `{"results": [{"operation": "send", "size": 2, "kmsg_per_s": 50.0}]}`.
fn ours(load: &Load, text: &str) -> Option<f64> {
    let name = match load.test {
        Test::Latency => "mean_us",
        Test::Bandwidth => "kmsg_per_s",
    };
    let report: Value = serde_json::from_str(text).ok()?;
    report["results"][0][name].as_f64()
}

/// Returns the figure from the line that begins with size and count.
///
/// ` 2  1000  60100  91000  61250  61310  62  71000  91000` has cycles, and the fourth of these is the mean. ` 65536
/// 1000  0.00  31.24  0.000500` has the mean bandwidth in units of 2^20 bytes as its second number, and millions of
/// messages in a second as its third.
fn perftest(load: &Load, text: &str) -> Option<f64> {
    let begin = [load.size, load.messages].map(|number| number.to_string());
    let lines = text.lines().map(|line| line.split_whitespace().collect::<Vec<_>>());
    let line = lines.into_iter().find(|words| words.len() > 2 && words[..2] == begin)?;
    let numbers: Option<Vec<f64>> = line[2..].iter().map(|word| word.parse().ok()).collect();
    match (load.test, &numbers?[..]) {
        (Test::Latency, [_, _, _, mean, _, _, _]) => Some(*mean),
        // The rate has six digits after the point, and the bandwidth has two. The more exact one of them is used.
        (Test::Bandwidth, [_, mean, millions]) if mean * 1e2 > millions * 1e6 => {
            Some(mean * 1_048_576.0 / f64::from(load.size) / 1e3)
        }
        (Test::Bandwidth, [_, _, millions]) => Some(millions * 1e3),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn load(test: Test, size: u32) -> Load {
        Load { test, operation: "send", size, messages: 1000, list: 1, asleep: false }
    }

    const CYCLES: f64 = 2500.0;

    const LATENCY: &str = "\
 remote address: LID 0000 QPN 0x0019 PSN 0xbb1b5e
---------------------------------------------------------------------------------------
 #bytes #iterations    t_min[usec]    t_max[usec]  t_typical[usec]    t_avg[usec]    t_stdev[usec]   99% percentile[usec]   99.9% percentile[usec]
 2       1000          28350.00        227500.00      30625.00  \t       30775.00     \t0.62   \t\t35500.00   \t\t227500.00
---------------------------------------------------------------------------------------
";

    #[test]
    fn mean_is_average_of_perftest() {
        let read = |text: &str| figure(Maker::C, &load(Test::Latency, 2), CYCLES, text);
        assert_eq!(read(LATENCY).expect("a mean"), 12.31);
        for other in ["inf", "0.00", "-nan"] {
            let error = read(&LATENCY.replace("30775.00", other)).expect_err(other);
            assert!(error.is::<Useless>(), "{other}: {error}");
        }
        let error =
            read(&LATENCY.replace(" 1000 ", " 999 ")).expect_err("another count should be refused");
        assert!(!error.is::<Useless>() && error.to_string().contains("no result"), "{error}");
        assert!(read("").is_err());
    }

    #[test]
    fn cycles_come_from_kernel() {
        assert_eq!(cycles("processor\t: 0\ncpu MHz\t\t: 2442.813\nflags\t: fpu\n"), Some(2442.813));
        assert_eq!(cycles("processor\t: 0\n"), None);
    }

    #[test]
    fn rate_comes_from_column_with_more_digits() {
        let read = |size, line: &str| figure(Maker::C, &load(Test::Bandwidth, size), CYCLES, line);
        let rate =
            read(2, " 2          1000             0.00               0.09   		   0.048123\n");
        assert_eq!(rate.expect("a rate"), 48.123);
        let rate =
            read(65_536, " 65536      1000             0.00               31.25 		   0.000500\n");
        assert_eq!(rate.expect("a rate"), 0.5);
        let nothing = " 2          1000             0.00               0.00   		   0.000000\n";
        assert!(read(2, nothing).expect_err("a missing rate should be refused").is::<Useless>());
    }

    #[test]
    fn own_results_are_read_from_json() {
        let read = |test, result: &str| {
            let text =
                format!("{{\n  \"test\": \"any\",\n  \"results\": [\n    {result}\n  ]\n}}\n");
            figure(Maker::Ours, &load(test, 2), CYCLES, &text).ok()
        };
        let latency = "{\n \"operation\": \"send\", \"median_us\": 12.000, \"mean_us\": 12.500\n }";
        assert_eq!(read(Test::Latency, latency), Some(12.5));
        assert_eq!(read(Test::Bandwidth, latency), None);
        let rate = "{\n \"operation\": \"send\", \"mb_per_s\": 0.100, \"kmsg_per_s\": 50.125\n }";
        assert_eq!(read(Test::Bandwidth, rate), Some(50.125));
    }
}
