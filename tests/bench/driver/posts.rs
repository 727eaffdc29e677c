//! Cost of posting and polling for a program, in its own instructions.
//!
//! The instructions of the kernel and all other work of the machine are not counted.

use std::env;
use std::error::Error;
use std::ffi::OsString;
use std::path::{Path, PathBuf};

use rdmacm::device::{Device, DriverId};

use crate::profile::Profile;
use crate::run::{self, Program, progress};
use crate::table::Row;
use crate::{fences, stores};

/// Number of requests of each kind.
const COUNT: u32 = 320;

/// Permitted instructions of a call beyond one on a kept queue.
///
/// The call takes the lock, and checks whether the process has forked.
const LOCK_GOAL: f64 = 20.0;

/// Permitted ratio of the instructions on a kept queue to those of C, for each kind on mlx5.
const MLX5_GOAL: f64 = 0.9;

/// Permitted geometric mean of these ratios.
const MLX5_MEAN_GOAL: f64 = 0.8;

/// Permitted ratio of instructions for a message on mlx5: the safe tier to kept queues.
const SAFE_GOAL: f64 = 1.2;

/// Functions that transfer a message together, by `BufferedQueuePair` and on the low level.
const SAFE: [&str; 4] =
    ["receive_buffers", "send_buffers", "poll_received_buffers", "poll_sent_buffers"];
const LOW: [&str; 4] = ["receive_kept", "send_kept", "poll_kept", "poll_sends_kept"];

/// Compared functions: row name, our function, and that of C with its calls per `COUNT`.
///
/// Ours with the suffix `_kept` does the same on a [`Kept`] queue.
const KINDS: [(&str, Kept, &str, (&str, u32)); 10] = [
    (RECEIVE, Kept::Queue, "receive", ("receive", 2)),
    ("a send", Kept::Queue, "send", ("send_", 1)),
    ("a send of 32 bytes inline", Kept::Queue, "send_inline", ("send_inline", 1)),
    ("a write", Kept::Queue, "write", ("write_", 1)),
    ("a write of 32 bytes inline", Kept::Queue, "write_inline", ("write_inline", 1)),
    ("an inline write in a list of 16", Kept::Queue, "write_list", ("write_list", 1)),
    ("a poll that finds a send", Kept::Poller, "poll_sends", ("poll_sends", 1)),
    ("a poll that finds a receive", Kept::Poller, "poll", ("poll_", 1)),
    ("a completion of 16 in one poll", Kept::Poller, "poll_list", ("poll_list", 1)),
    ("a poll that finds nothing", Kept::Poller, "poll_empty", ("poll_empty", 1)),
];

/// Name of the row of posts to a receive queue.
const RECEIVE: &str = "a receive";

/// The end of a queue that one thread keeps.
#[derive(Debug, Clone, Copy)]
enum Kept {
    Queue,
    Poller,
}

impl Kept {
    /// Returns the end of a row's name.
    fn suffix(self) -> &'static str {
        match self {
            Self::Queue => ", of a kept queue",
            Self::Poller => ", of a kept poller",
        }
    }
}

/// Beginnings of the names of posts to a send queue.
const POSTS: [&str; 3] = ["a send", "a write", "an inline write"];

/// Argument of the programs that makes them wait after each post to a send queue.
///
/// The names of the functions that do so end with it.
///
/// siw rings the doorbell only if the kernel may be idle, which depends on timing. If the kernel is idle at each post,
/// the numbers of instructions are the same in each run.
const IDLE: &str = "idle";

/// Function of both programs that waits, whose instructions are not counted.
const WAITING: &str = "*wait_until_idle*";

/// Variable that makes the C library omit its locks on mlx5. Its rows are for information and have no goal.
const UNLOCKED: &str = "MLX5_SINGLE_THREADED=1";

/// Permitted change of the numbers of fences and stores to registers of an operation.
const ACCESSES_SPREAD: f64 = 0.01;

/// Counts on the device, with the programs of the directory.
pub(crate) fn rows(
    device: &Device,
    address: &str,
    directory: &Path,
) -> Result<Vec<Row>, Box<dyn Error>> {
    let waits = device.driver() == Some(DriverId::RDMA_DRIVER_SIW);
    let ours = profile(address, &directory.join("bench-posts"), waits)?;
    let c = profile(address, &directory.join("bench-posts-c"), waits)?;
    let each = |profile: &str, function: &str, times| -> Result<f64, Box<dyn Error>> {
        let total = instructions(profile, function);
        let total = total.ok_or_else(|| format!("the profiler does not know {function}"))?;
        Ok(total / f64::from(COUNT * times))
    };
    let is_mlx5 = device.driver() == Some(DriverId::RDMA_DRIVER_MLX5);
    let mut rows = Vec::new();
    for (name, kept, our, (its, times)) in KINDS {
        let (mut our, mut its) = (our.to_owned(), its.to_owned());
        if waits && is_post(name) {
            (our, its) = (format!("{our}_{IDLE}"), format!("{}_{IDLE}", its.trim_end_matches('_')));
        }
        let of_c = each(&c, &its, times)?;
        let row = |name: String, suffix| -> Result<Row, Box<dyn Error>> {
            let of_ours = each(&ours, &format!("bench_posts::{our}{suffix}"), 1)?;
            Ok(Row::exact(name, "instructions", of_ours, of_c))
        };
        let plain = row(name.to_owned(), "")?;
        let kept = row(format!("{name}{}", kept.suffix()), "_kept")?;
        rows.extend(if is_mlx5 {
            [plain.at_most(1.0), kept.at_most(MLX5_GOAL)]
        } else {
            let limit = kept.ours + LOCK_GOAL;
            [plain.below(limit), kept.at_most(1.0)]
        });
    }
    if is_mlx5 {
        rows.push(mean_of_kept(&rows).at_most(MLX5_MEAN_GOAL));
        let sum = |functions: [&str; 4]| -> Result<f64, Box<dyn Error>> {
            let of = |function| each(&ours, &format!("bench_posts::{function}"), 1);
            functions.into_iter().map(of).sum()
        };
        let name = "a message by BufferedQueuePair, beside the low level on kept queues".to_owned();
        let row = Row::exact(name, "instructions", sum(SAFE)?, sum(LOW)?);
        rows.push(row.at_most(SAFE_GOAL));
        let connection = profile(address, &directory.join("bench-connection"), false)?;
        let of = |function| each(&connection, &format!("bench_connection::{function}"), 1);
        let name = "a message by Connection, beside the low level on kept queues";
        let safe = of("send_messages")? + of("receive_messages")?;
        let row = Row::exact(name, "instructions", safe, sum(LOW)?);
        rows.push(row.at_most(SAFE_GOAL));
        let program = directory.join("bench-posts-c");
        let unlocked = profile_with(&[UNLOCKED], &[], &program, &[address, &COUNT.to_string()])?;
        for (name, kept, our, (its, times)) in KINDS {
            let ours = each(&ours, &format!("bench_posts::{our}_kept"), 1)?;
            let name = format!("{name}{}, beside {UNLOCKED}", kept.suffix());
            rows.push(Row::exact(name, "instructions", ours, each(&unlocked, its, times)?));
        }
        rows.extend(rows_of_device_accesses(address, directory)?);
    }
    Ok(rows)
}

/// Returns `true` if the row `name` is about posts to a send queue.
fn is_post(name: &str) -> bool {
    POSTS.iter().any(|start| name.starts_with(start))
}

/// Returns rows with the fences of each kind, and the stores to registers of each posted send.
fn rows_of_device_accesses(address: &str, directory: &Path) -> Result<Vec<Row>, Box<dyn Error>> {
    let arguments = [address, &COUNT.to_string()];
    let name_of = |our: &str, suffix| format!("bench_posts::{our}{suffix}");
    let [ours, c] = ["bench-posts", "bench-posts-c"].map(|program| {
        progress(&format!("counting the fences and stores to registers of {program}"));
        let profile = Profile::of_run(&directory.join(program), &arguments)?;
        let stores = stores::find(directory, program, &arguments)?;
        Ok::<_, Box<dyn Error>>((fences::find(&profile)?, stores, profile))
    });
    let ((our_fences, our_stores, ours), (c_fences, c_stores, c)) = (ours?, c?);
    let mut rows = Vec::new();
    for (what, of_ours, of_c, has_kind) in [
        ("fences of ", our_fences, c_fences, (|_| true) as fn(&str) -> bool),
        ("stores to registers of ", our_stores, c_stores, is_post),
    ] {
        for (name, kept, our, (its, times)) in KINDS.iter().filter(|kind| has_kind(kind.0)) {
            let each = |total, times| total as f64 / f64::from(COUNT * times);
            let of_c = each(c.count(its, &of_c)?, *times);
            let must_execute = is_post(name);
            for (suffix, of_row) in [("", ""), ("_kept", kept.suffix())] {
                let of_ours = each(ours.count(&name_of(our, suffix), &of_ours)?, 1);
                let name = format!("{what}{name}{of_row}");
                if must_execute && (of_ours == 0.0 || of_c == 0.0) {
                    return Err(format!("no {name} were counted").into());
                }
                let row = Row::exact(name, "instructions", of_ours, of_c);
                rows.push(Row { spread: Some(ACCESSES_SPREAD), ..row }.at_most(1.0));
            }
        }
    }
    Ok(rows)
}

/// Returns a row with the geometric means of all rows of kept queues and pollers.
fn mean_of_kept(rows: &[Row]) -> Row {
    let kept = || rows.iter().skip(1).step_by(2);
    let mean = |figure: fn(&Row) -> f64| {
        let product: f64 = kept().map(figure).product();
        product.powf(1.0 / KINDS.len() as f64)
    };
    Row::exact("geometric mean, kept", "instructions", mean(|row| row.ours), mean(|row| row.c))
}

/// Returns the profiler's report on the program's functions, including their callees.
///
/// If it `waits`, it does so after each post to a send queue.
fn profile(address: &str, program: &Path, waits: bool) -> Result<String, Box<dyn Error>> {
    let count = COUNT.to_string();
    if !waits {
        return profile_with(&[], &[], program, &[address, &count]);
    }
    // The first option alone would make the profiler count nothing before the function is called.
    let options = [format!("--toggle-collect={WAITING}"), "--collect-atstart=yes".to_owned()];
    profile_with(&[], &options, program, &[address, &count, IDLE])
}

/// Returns the profile of a run of `program` with these profiler options and environment variables.
pub(crate) fn profile_with(
    variables: &[&str],
    options: &[String],
    program: &Path,
    arguments: &[&str],
) -> Result<String, Box<dyn Error>> {
    progress(&format!("counting the instructions of {}", program.display()));
    let file = callgrind(variables, options, program, arguments)?;
    let shown = Program::new("callgrind_annotate").args(["--inclusive=yes", "--threshold=100"]);
    run::output(&shown.arg(&file))
}

/// Runs `program` under the profiler with these options, and returns the file of the profile.
///
/// The program has the environment `variables`, each with its value.
pub(crate) fn callgrind(
    variables: &[&str],
    options: &[String],
    program: &Path,
    arguments: &[&str],
) -> Result<PathBuf, Box<dyn Error>> {
    let file = env::temp_dir().join("callgrind");
    let mut option = OsString::from("--callgrind-out-file=");
    option.push(&file);
    let counted = Program::new("env").args(variables).arg("valgrind");
    let counted = counted.args(["--quiet", "--tool=callgrind"]).arg(option);
    run::output(&counted.args(options).arg(program).args(arguments))?;
    Ok(file)
}

/// Returns the instructions of the function from its line in the profile.
///
/// The line is `1,234 (5.6%)  FILE:FUNCTION [OBJECT]`.
pub(crate) fn instructions(profile: &str, function: &str) -> Option<f64> {
    profile.lines().find_map(|line| {
        let (number, rest) = line.trim_start().split_once(' ')?;
        let (_, place) = rest.split_once(')')?;
        let (_, named) = place.trim_start().split_once(':')?;
        let name = named.split_once(" [").map_or(named, |(name, _)| name);
        (name == function).then(|| number.replace(',', "").parse().ok())?
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn function_is_found_by_whole_name() {
        let profile = "\
--------------------------------------------------------------------------------
Ir
--------------------------------------------------------------------------------
4,262,514 (100.0%)  PROGRAM TOTALS

3,908,923 (91.70%)  ???:bench_posts::main [/x/bench-posts]
  329,668 ( 7.73%)  ???:bench_posts::receive [/x/bench-posts]
   65,990 ( 1.55%)  ./string/memset.S:__memset_avx2 [/usr/lib/libc.so.6]
   12,800 ( 0.30%)  posts.c:receive [/x/bench-posts-c]
";
        assert_eq!(instructions(profile, "bench_posts::receive"), Some(329_668.0));
        assert_eq!(instructions(profile, "receive"), Some(12_800.0));
        assert_eq!(instructions(profile, "bench_posts::rec"), None);
    }
}
