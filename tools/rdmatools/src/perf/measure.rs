//! The measured loops, and the loops of the peer.

use std::time::{Duration, Instant};

use super::Operation;
use super::clock::{Clock, ticks, to_f64};
use super::plan::{Plan, Remote, Test};
use super::side::{DataPath, Side};
use crate::failure::Failure;

/// The results for messages of one size.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Sample {
    pub(super) operation: Operation,
    pub(super) size: u32,
    pub(super) figures: Figures,
}

#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) enum Figures {
    /// Times in microseconds.
    Latency { min: f64, median: f64, mean: f64, p99: f64, p999: f64, max: f64 },
    Bandwidth {
        /// Millions of bytes per second.
        megabytes: f64,
        /// Thousands of messages per second.
        messages: f64,
    },
}

/// Executes the plan on the measuring side, and passes each result to `found`.
pub(super) fn measure(
    side: &mut Side,
    plan: &Plan,
    peer: Remote,
    mut found: impl FnMut(Sample) -> Result<(), Failure>,
) -> Result<(), Failure> {
    for operation in plan.operations.iter().copied() {
        for size in plan.sizes() {
            side.synchronize(size)?;
            let mut data_path = side.data_path(operation, size, peer)?;
            let figures = match plan.test {
                Test::Latency => {
                    // A message in one direction takes half of the time of a round trip.
                    let ways = if operation == Operation::Read { 1.0 } else { 2.0 };
                    let clock = Clock::start();
                    let times = ping(&mut data_path, operation, plan)?;
                    latency(&times, clock.tick() / ways)
                }
                Test::Bandwidth => bandwidth(size, plan, stream(&mut data_path, plan)?),
            };
            drop(data_path);
            side.synchronize(size)?;
            found(Sample { operation, size, figures })?;
        }
    }
    Ok(())
}

/// Executes the plan on the other side.
pub(super) fn serve(side: &mut Side, plan: &Plan, peer: Remote) -> Result<(), Failure> {
    for operation in plan.operations.iter().copied() {
        for size in plan.sizes() {
            side.synchronize(size)?;
            let mut data_path = side.data_path(operation, size, peer)?;
            match (plan.test, operation) {
                (Test::Latency, Operation::Send | Operation::Write) => {
                    pong(&mut data_path, operation, plan)?;
                }
                (Test::Bandwidth, Operation::Send) => {
                    let mut left = usize::try_from(plan.iterations).expect("32 bits should fit");
                    while left > 0 {
                        left -= data_path.received(left)?;
                    }
                }
                // The device answers without the program.
                (_, Operation::Read) | (Test::Bandwidth, Operation::Write) => {}
            }
            drop(data_path);
            side.synchronize(size)?;
        }
    }
    Ok(())
}

/// Sends `iterations` messages, each after the answer to the previous one.
///
/// Returns the times of the posts and of the last answer, in counter steps.
fn ping(
    data_path: &mut DataPath<'_>,
    operation: Operation,
    plan: &Plan,
) -> Result<Vec<u64>, Failure> {
    let mut times = Vec::with_capacity(plan.iterations as usize + 1);
    for number in 1..=u64::from(plan.iterations) {
        times.push(ticks());
        post(data_path, operation, plan, number)?;
        if operation != Operation::Read {
            // The completion is polled while the peer answers, as in perftest, not after the answer.
            wait_for_completion(data_path, plan, number)?;
            wait_for_answer(data_path, operation, number)?;
        }
    }
    times.push(ticks());
    Ok(times)
}

/// Answers `iterations` messages.
fn pong(data_path: &mut DataPath<'_>, operation: Operation, plan: &Plan) -> Result<(), Failure> {
    for number in 1..=u64::from(plan.iterations) {
        wait_for_answer(data_path, operation, number)?;
        post(data_path, operation, plan, number)?;
        wait_for_completion(data_path, plan, number)?;
    }
    Ok(())
}

/// Posts message `number`. A read has completed on return.
#[inline(always)]
fn post(
    data_path: &mut DataPath<'_>,
    operation: Operation,
    plan: &Plan,
    number: u64,
) -> Result<(), Failure> {
    if operation == Operation::Write {
        data_path.mark(mark(number))?;
    }
    data_path.push(number, is_signaled(plan, number) || operation == Operation::Read)?;
    data_path.ring_doorbell()?;
    if operation == Operation::Read {
        data_path.sent()?;
    }
    Ok(())
}

/// Polls until the peer's message `number` has arrived.
#[inline(always)]
fn wait_for_answer(
    data_path: &mut DataPath<'_>,
    operation: Operation,
    number: u64,
) -> Result<(), Failure> {
    match operation {
        Operation::Write => data_path.wait_for_mark(mark(number)),
        Operation::Send | Operation::Read => data_path.received(1).map(drop),
    }
}

/// Polls for the completion of message `number`, if it is signaled.
#[inline(always)]
fn wait_for_completion(
    data_path: &mut DataPath<'_>,
    plan: &Plan,
    number: u64,
) -> Result<(), Failure> {
    while is_signaled(plan, number) && data_path.sent()? != number {}
    Ok(())
}

/// Returns the last byte of message `number`.
///
/// It differs from that of the previous message and is not zero.
fn mark(number: u64) -> u8 {
    u8::try_from(number % 255).expect("the remainder should be below 255") + 1
}

fn is_signaled(plan: &Plan, number: u64) -> bool {
    number % u64::from(plan.moderation) == 0 || number == u64::from(plan.iterations)
}

/// Posts `iterations` requests, as many at once as the queue can hold, and waits for the last of them.
///
/// Returns the duration.
fn stream(data_path: &mut DataPath<'_>, plan: &Plan) -> Result<Duration, Failure> {
    let (count, depth) = (u64::from(plan.iterations), u64::from(plan.tx_depth));
    let list = u64::from(plan.list);
    let (mut posted, mut completed) = (0, 0);
    let start = Instant::now();
    while completed < count {
        while posted < count && posted + list.min(count - posted) <= completed + depth {
            for _ in 0..list.min(count - posted) {
                posted += 1;
                data_path.push(posted, is_signaled(plan, posted))?;
            }
            data_path.ring_doorbell()?;
        }
        completed = data_path.sent()?;
    }
    Ok(start.elapsed())
}

/// Computes latencies; `tick` is the number of microseconds per step between two times.
fn latency(times: &[u64], tick: f64) -> Figures {
    // The counters of two processors may differ slightly.
    let micros = |pair: &[u64]| to_f64(pair[1].saturating_sub(pair[0])) * tick;
    let mut each: Vec<f64> = times.windows(2).map(micros).collect();
    each.sort_by(f64::total_cmp);
    // Returns the least value that is not exceeded by this share of the values.
    let rank = |per_mille: usize| each[(each.len() * per_mille).div_ceil(1000).max(1) - 1];
    let count = f64::from(u32::try_from(each.len()).expect("iterations should have 32 bits"));
    Figures::Latency {
        min: each[0],
        median: rank(500),
        mean: each.iter().sum::<f64>() / count,
        p99: rank(990),
        p999: rank(999),
        max: each[each.len() - 1],
    }
}

fn bandwidth(size: u32, plan: &Plan, time: Duration) -> Figures {
    let each_second = f64::from(plan.iterations) / time.as_secs_f64();
    Figures::Bandwidth {
        megabytes: each_second * f64::from(size) / 1e6,
        messages: each_second / 1e3,
    }
}

#[cfg(test)]
mod tests {
    use super::super::plan::tests::plan;
    use super::*;

    #[test]
    fn percentiles_use_sorted_times() {
        // The differences are 1, 2 ... 1000 steps.
        let times: Vec<_> = (0..=1000).map(|number: u64| 7 + number * (number + 1) / 2).collect();
        let Figures::Latency { min, median, mean, p99, p999, max } = latency(&times, 1.0) else {
            panic!("the result should be a latency");
        };
        let round =
            [min, median, mean, p99, p999, max].map(|micros| (micros * 10.0).round() / 10.0);
        assert_eq!(round, [1.0, 500.0, 500.5, 990.0, 999.0, 1000.0]);
        let Figures::Latency { min, p999, .. } = latency(&times[999..], 0.5) else {
            panic!("the result should be a latency");
        };
        assert_eq!([min, p999].map(f64::round), [500.0, 500.0]);
    }

    #[test]
    fn bandwidth_counts_bytes_and_messages() {
        let figures = bandwidth(2000, &plan(), Duration::from_millis(10));
        assert_eq!(figures, Figures::Bandwidth { megabytes: 200.0, messages: 100.0 });
    }

    #[test]
    fn last_and_every_nth_request_are_signaled() {
        let plan = Plan { iterations: 250, ..plan() };
        let signaled: Vec<_> = (1..=250).filter(|number| is_signaled(&plan, *number)).collect();
        assert_eq!(signaled, [100, 200, 250]);
        assert!((1..1000).all(|number| mark(number) != 0 && mark(number) != mark(number + 1)));
    }
}
