//! Many threads create and end connections at random.
//!
//! They use both levels of the library and every device, and their data is checked. From time to time all threads stop,
//! and the remaining objects are counted: see the [usage](USAGE).

mod census;
mod load;
mod low;
mod picture;
mod round;
mod safe;

use std::env;
use std::error::Error;
use std::io::{self, Write};
use std::net::IpAddr;
use std::process::ExitCode;
use std::sync::mpsc;
use std::thread;
use std::time::{Duration, Instant};

use nix::libc;
use rdmacm::{ErrorKind, endpoint};
use rdmacm_tests::heap::Counting;
use rdmacm_tests::roce::roce_ip;
use rdmacm_tests::{promised, promised_device};

use crate::census::{Held, Sample};
use crate::load::Load;

#[global_allocator]
static ALLOCATOR: Counting = Counting;

pub(crate) type Outcome<T = ()> = Result<T, Box<dyn Error + Send + Sync>>;

const USAGE: &str = "usage: soak SECONDS
Prints a table, a verdict and, as the last thing, a picture: SVG.";

/// Threads of each level on each device; each has one more while it makes a connection.
const THREADS: usize = 3;
/// Number of samples, and the minimum time between two of them. All rounds end before each sample.
const PARTS: u32 = 30;
const PART: Duration = Duration::from_secs(2);

fn main() -> Outcome<ExitCode> {
    let arguments: Vec<String> = env::args().skip(1).collect();
    let [seconds] = &arguments[..] else { return Err(USAGE.into()) };
    let time = Duration::from_secs(seconds.parse()?);
    let names = promised("RDMACM_TEST_DEVICES");
    let names: Vec<&str> = names.split(',').collect();
    let devices: Vec<_> = names.iter().map(|name| promised_device(name)).collect();
    let before = Held::now(&devices)?;
    let mut out = io::stdout();
    writeln!(
        out,
        "seconds  connected  broken off      MB  VM KiB  RSS KiB  heap bytes  blocks  fds  objects  kernel slab KiB"
    )?;
    let load = Load::default();
    let (failures, failed) = mpsc::channel();
    // The samples have their full size from the beginning, because they are on the measured heap.
    let mut samples = Vec::with_capacity(PARTS as usize + 2);
    let mut faults = thread::scope(|scope| -> Outcome<Vec<String>> {
        let start = Instant::now();
        let mut look = |load: &Load| -> Outcome {
            let still = load.still();
            let sample = Sample::take(start.elapsed(), load.done(), &devices, &before)?;
            drop(still);
            show(&sample, &mut out)?;
            samples.push(sample);
            Ok(())
        };
        look(&load)?;
        let mut seed = 0x9e37_79b9_7f4a_7c15_u64;
        for name in &names {
            let address: IpAddr = match *name {
                "siw0" => [10, 0, 0, 2].into(),
                _ => roce_ip().parse()?,
            };
            for play in [Load::play::<low::Listener>, Load::play::<endpoint::Listener>] {
                for _ in 0..THREADS {
                    seed = seed.rotate_left(7) ^ 0x2545_f491_4f6c_dd1d;
                    let (load, failures) = (&load, failures.clone());
                    scope.spawn(move || {
                        if let Err(error) = play(load, address, seed) {
                            // The receiver exists until all threads have ended.
                            let _ = failures.send(error.to_string());
                        }
                    });
                }
            }
        }
        drop(failures);
        let mut faults = Vec::new();
        let mut looked = Ok(());
        while looked.is_ok() && start.elapsed() < time {
            if let Ok(failure) = failed.recv_timeout(PART.max(time / PARTS)) {
                faults.push(failure);
                break;
            }
            looked = look(&load);
        }
        load.end();
        faults.extend(failed.iter());
        looked.map(|()| faults)
    })?;
    faults.extend(census::faults(&samples, &before));
    let done = load.done();
    if done.late > 2 + done.connected / 20 {
        faults.push(format!("siw has given up {} connections", done.late));
    }
    for fault in &faults {
        writeln!(out, "FAULT: {fault}")?;
    }
    writeln!(
        out,
        "soak {}: {} connections with {} MB of data, {} broken off, {} too late, {} looks in {} s on {}",
        if faults.is_empty() { "passed" } else { "FAILED" },
        done.connected,
        done.bytes / 1_000_000,
        done.broken_off,
        done.late,
        samples.len(),
        time.as_secs(),
        names.join(" and "),
    )?;
    write!(out, "{}", picture::svg(&samples))?;
    Ok(if faults.is_empty() { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

fn show(sample: &Sample, out: &mut dyn Write) -> io::Result<()> {
    writeln!(
        out,
        "{:7}  {:9}  {:10}  {:6}  {:6}  {:7}  {:10}  {:6}  {:3}  {:7}  {:15}",
        sample.at.as_secs(),
        sample.done.connected,
        sample.done.broken_off,
        sample.done.bytes / 1_000_000,
        sample.mapped_kib,
        sample.resident_kib,
        sample.heap.bytes,
        sample.heap.blocks,
        sample.descriptors,
        sample.objects,
        sample.slab_kib,
    )
}

/// Returns `true` if the kernel of a client gave up. siw waits ten seconds for an answer, and a loaded machine may need
/// longer.
pub(crate) fn is_late(error: &(dyn Error + Send + Sync + 'static)) -> bool {
    error.downcast_ref::<rdmacm::Error>().is_some_and(|error| {
        matches!(error.kind(), ErrorKind::Unreachable(_)) && error.errno() == libc::ETIMEDOUT
    })
}

/// Combines the outcomes of two ends: success if both succeeded, otherwise their errors.
pub(crate) fn joined(client: Outcome, server: thread::Result<Outcome>) -> Outcome {
    let server = server.unwrap_or_else(|_| Err("the server thread panicked".into()));
    match (client, server) {
        (Ok(()), Ok(())) => Ok(()),
        // The server gets the end of the client.
        (Err(error), _) if is_late(&*error) => Err(error),
        (client, server) => Err(format!("client: {client:?}; server: {server:?}").into()),
    }
}
