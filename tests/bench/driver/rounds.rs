//! Runs of programs against servers. The programs take turns, so that a slow phase of the machine slows all programs.

use std::error::Error;

use rdmacm::device::Device;

use crate::peer::Peer;
use crate::run::{self, Program};
use crate::trace::Counts;

/// Number of traces. A figure is their median, or the shortest.
const TRACES: usize = 3;

/// Runs a client against a server of its own.
pub(crate) fn served<T>(
    device: &Device,
    server: &Program,
    run: impl FnOnce() -> Result<T, Box<dyn Error>>,
) -> Result<T, Box<dyn Error>> {
    let server = Peer::start(device, server)?;
    let result = run()?;
    server.finish()?;
    Ok(result)
}

/// Measures the subjects, such as programs, which take turns.
///
/// Each round begins with another subject. The first round is not counted, because it reads files and fills caches.
pub(crate) fn by_turns<S, T: Copy, const N: usize>(
    count: usize,
    subjects: [&S; N],
    measure: impl Fn(&S) -> Result<T, Box<dyn Error>>,
) -> Result<Vec<[T; N]>, Box<dyn Error>> {
    let round = |number: usize| {
        let mut measured = [None; N];
        for turn in 0..N {
            let place = (number + turn) % N;
            measured[place] = Some(run::repeated(|| measure(subjects[place]))?);
        }
        Ok(measured.map(|value| value.expect("every subject should have been measured")))
    };
    round(0)?;
    (0..count).map(round).collect()
}

/// Returns the trace in the middle of several.
pub(crate) fn median_trace(
    mut take: impl FnMut() -> Result<Counts, Box<dyn Error>>,
) -> Result<Counts, Box<dyn Error>> {
    let mut traces =
        (0..TRACES).map(|_| run::repeated(&mut take)).collect::<Result<Vec<_>, _>>()?;
    traces.sort_by_key(|counts| counts.all);
    Ok(traces[TRACES / 2])
}

/// Returns the number of calls besides reads of the time, in the shortest of several traces.
///
/// Other traces have more calls because the program waited longer for the peer before or after the measurement.
pub(crate) fn fewest_calls(
    mut take: impl FnMut() -> Result<Counts, Box<dyn Error>>,
) -> Result<u32, Box<dyn Error>> {
    let mut fewest = u32::MAX;
    for _ in 0..TRACES {
        fewest = fewest.min(run::repeated(&mut take)?.but_time());
    }
    Ok(fewest)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_program_is_first_in_its_turn() {
        let programs = ["a", "b", "c"].map(Program::new);
        let order = std::cell::RefCell::new(String::new());
        let rounds = by_turns(3, programs.each_ref(), |program| {
            *order.borrow_mut() += &program.to_string();
            Ok(order.borrow().len())
        });
        assert_eq!(order.into_inner(), "abcabcbcacab");
        assert_eq!(rounds.expect("no round should fail"), [[4, 5, 6], [9, 7, 8], [11, 12, 10]]);
    }
}
