//! The loops that are measured, and what the peer does meanwhile.

use std::time::{Duration, Instant};

use super::Operation;
use super::clock::{Clock, ticks, wide};
use super::plan::{Plan, Remote, Test};
use super::side::{Hands, Side};
use crate::failure::Failure;

/// What was measured with messages of one size.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Sample {
    pub(super) operation: Operation,
    pub(super) size: u32,
    pub(super) figures: Figures,
}

#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) enum Figures {
    /// Microseconds.
    Latency { min: f64, median: f64, mean: f64, p99: f64, p999: f64, max: f64 },
    Bandwidth {
        /// Millions of bytes in a second.
        megabytes: f64,
        /// Thousands of messages in a second.
        messages: f64,
    },
}

/// Goes through the plan as the side that measures, and hands each result to `found`.
pub(super) fn measure(
    side: &mut Side,
    plan: &Plan,
    peer: Remote,
    mut found: impl FnMut(Sample) -> Result<(), Failure>,
) -> Result<(), Failure> {
    for operation in plan.operations.iter().copied() {
        for size in plan.sizes() {
            side.meet(size)?;
            let mut hands = side.hands(operation, size, peer)?;
            let figures = match plan.test {
                Test::Latency => {
                    // A message goes one way in half the time in which one goes and one comes back.
                    let ways = if operation == Operation::Read { 1.0 } else { 2.0 };
                    let clock = Clock::start();
                    let times = ping(&mut hands, operation, plan)?;
                    latency(&times, clock.tick() / ways)
                }
                Test::Bandwidth => bandwidth(size, plan, stream(&mut hands, plan)?),
            };
            drop(hands);
            side.meet(size)?;
            found(Sample { operation, size, figures })?;
        }
    }
    Ok(())
}

/// Goes through the plan as the other side.
pub(super) fn serve(side: &mut Side, plan: &Plan, peer: Remote) -> Result<(), Failure> {
    for operation in plan.operations.iter().copied() {
        for size in plan.sizes() {
            side.meet(size)?;
            let mut hands = side.hands(operation, size, peer)?;
            match (plan.test, operation) {
                (Test::Latency, Operation::Send | Operation::Write) => {
                    pong(&mut hands, operation, plan)?;
                }
                (Test::Bandwidth, Operation::Send) => {
                    let mut left = usize::try_from(plan.iterations).expect("32 bits fit");
                    while left > 0 {
                        left -= hands.received(left)?;
                    }
                }
                // The device answers.
                (_, Operation::Read) | (Test::Bandwidth, Operation::Write) => {}
            }
            drop(hands);
            side.meet(size)?;
        }
    }
    Ok(())
}

/// Sends `iterations` messages, each after the answer to the one before; when each was posted, and
/// when the last answer was there, as the processor counts.
fn ping(hands: &mut Hands<'_>, operation: Operation, plan: &Plan) -> Result<Vec<u64>, Failure> {
    let mut times = Vec::with_capacity(plan.iterations as usize + 1);
    for number in 1..=u64::from(plan.iterations) {
        times.push(ticks());
        post(hands, operation, plan, number)?;
        if operation != Operation::Read {
            // While the peer answers, as perftest does, and not when it has.
            settle(hands, plan, number)?;
            answered(hands, operation, number)?;
        }
    }
    times.push(ticks());
    Ok(times)
}

/// Answers `iterations` messages.
fn pong(hands: &mut Hands<'_>, operation: Operation, plan: &Plan) -> Result<(), Failure> {
    for number in 1..=u64::from(plan.iterations) {
        answered(hands, operation, number)?;
        post(hands, operation, plan, number)?;
        settle(hands, plan, number)?;
    }
    Ok(())
}

/// Posts message `number`. A read is over when this returns.
#[inline(always)]
fn post(
    hands: &mut Hands<'_>,
    operation: Operation,
    plan: &Plan,
    number: u64,
) -> Result<(), Failure> {
    if operation == Operation::Write {
        hands.mark(mark(number))?;
    }
    hands.push(number, is_signaled(plan, number) || operation == Operation::Read)?;
    hands.ring()?;
    if operation == Operation::Read {
        hands.sent()?;
    }
    Ok(())
}

/// Polls until the peer's message `number` is there.
#[inline(always)]
fn answered(hands: &mut Hands<'_>, operation: Operation, number: u64) -> Result<(), Failure> {
    match operation {
        Operation::Write => hands.written(mark(number)),
        Operation::Send | Operation::Read => hands.received(1).map(drop),
    }
}

/// Polls for the completion of message `number`, if it asked for one.
#[inline(always)]
fn settle(hands: &mut Hands<'_>, plan: &Plan, number: u64) -> Result<(), Failure> {
    while is_signaled(plan, number) && hands.sent()? != number {}
    Ok(())
}

/// What the last byte of message `number` is: never what it was before, and never zero.
fn mark(number: u64) -> u8 {
    u8::try_from(number % 255).expect("less than 255") + 1
}

fn is_signaled(plan: &Plan, number: u64) -> bool {
    number % u64::from(plan.moderation) == 0 || number == u64::from(plan.iterations)
}

/// Posts `iterations` requests, as many at once as there is room for, and waits for the last of
/// them; how long it takes.
fn stream(hands: &mut Hands<'_>, plan: &Plan) -> Result<Duration, Failure> {
    let (count, depth) = (u64::from(plan.iterations), u64::from(plan.tx_depth));
    let list = u64::from(plan.list);
    let (mut posted, mut completed) = (0, 0);
    let start = Instant::now();
    while completed < count {
        while posted < count && posted + list.min(count - posted) <= completed + depth {
            for _ in 0..list.min(count - posted) {
                posted += 1;
                hands.push(posted, is_signaled(plan, posted))?;
            }
            hands.ring()?;
        }
        completed = hands.sent()?;
    }
    Ok(start.elapsed())
}

/// `tick` is how many microseconds a step between two times is to count for.
fn latency(times: &[u64], tick: f64) -> Figures {
    // The counters of two processors may differ a little.
    let micros = |pair: &[u64]| wide(pair[1].saturating_sub(pair[0])) * tick;
    let mut each: Vec<f64> = times.windows(2).map(micros).collect();
    each.sort_by(f64::total_cmp);
    // The least that so many of a thousand do not exceed.
    let rank = |per_mille: usize| each[(each.len() * per_mille).div_ceil(1000).max(1) - 1];
    let count = f64::from(u32::try_from(each.len()).expect("iterations have 32 bits"));
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
    fn percentiles_are_of_the_sorted_times() {
        // 1, 2 ... 1000 steps, one after the other.
        let times: Vec<_> = (0..=1000).map(|number: u64| 7 + number * (number + 1) / 2).collect();
        let Figures::Latency { min, median, mean, p99, p999, max } = latency(&times, 1.0) else {
            panic!("it is a latency");
        };
        let round =
            [min, median, mean, p99, p999, max].map(|micros| (micros * 10.0).round() / 10.0);
        assert_eq!(round, [1.0, 500.0, 500.5, 990.0, 999.0, 1000.0]);
        let Figures::Latency { min, p999, .. } = latency(&times[999..], 0.5) else {
            panic!("it is a latency");
        };
        assert_eq!([min, p999].map(f64::round), [500.0, 500.0]);
    }

    #[test]
    fn bandwidth_counts_bytes_and_messages() {
        let figures = bandwidth(2000, &plan(), Duration::from_millis(10));
        assert_eq!(figures, Figures::Bandwidth { megabytes: 200.0, messages: 100.0 });
    }

    #[test]
    fn the_last_request_and_every_so_many_are_signaled() {
        let plan = Plan { iterations: 250, ..plan() };
        let signaled: Vec<_> = (1..=250).filter(|number| is_signaled(&plan, *number)).collect();
        assert_eq!(signaled, [100, 200, 250]);
        assert!((1..1000).all(|number| mark(number) != 0 && mark(number) != mark(number + 1)));
    }
}
