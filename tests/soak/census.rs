//! What the process and the kernel hold while nobody plays, and whether that grows.

use std::fs;
use std::time::{Duration, Instant};

use rdmacm::device::{Device, Resources};

use crate::Outcome;
use crate::load::Done;

/// How long the kernel may take to let go of what was closed: siw does so behind the program's back.
const SETTLING: Duration = Duration::from_secs(30);

/// What there is of everything that must not become more.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Held {
    pub(crate) descriptors: usize,
    /// Of each device.
    pub(crate) objects: Vec<Resources>,
}

impl Held {
    pub(crate) fn now(devices: &[Device]) -> Outcome<Self> {
        let objects = devices.iter().map(Device::resources).collect::<Result<_, _>>()?;
        Ok(Self { descriptors: fs::read_dir("/proc/self/fd")?.count(), objects })
    }

    /// The number of all objects on all devices.
    pub(crate) fn count(&self) -> u64 {
        self.objects.iter().flat_map(Resources::iter).map(|(_, count)| count).sum()
    }
}

/// One look.
#[derive(Debug, Clone)]
pub(crate) struct Sample {
    pub(crate) at: Duration,
    pub(crate) done: Done,
    pub(crate) held: Held,
    /// Resident memory of the process.
    pub(crate) resident_kib: u64,
    /// Memory of the kernel's own that it cannot reclaim.
    pub(crate) slab_kib: u64,
}

impl Sample {
    /// Looks, when everything is as it was `before`, or does not become so.
    pub(crate) fn take(
        at: Duration,
        done: Done,
        devices: &[Device],
        before: &Held,
    ) -> Outcome<Self> {
        let patience = Instant::now() + SETTLING;
        let mut held = Held::now(devices)?;
        while held != *before && Instant::now() < patience {
            std::thread::sleep(Duration::from_millis(5));
            held = Held::now(devices)?;
        }
        let resident_kib = kib("/proc/self/status", "VmRSS:")?;
        let slab_kib = kib("/proc/meminfo", "SUnreclaim:")?;
        Ok(Self { at, done, held, resident_kib, slab_kib })
    }
}

/// A line `NAME NUMBER kB` of a file.
fn kib(file: &str, name: &str) -> Outcome<u64> {
    let text = fs::read_to_string(file)?;
    let value = text.lines().find_map(|line| line.strip_prefix(name));
    let number = value.and_then(|value| value.trim().strip_suffix(" kB"));
    Ok(number.ok_or_else(|| format!("{file} has no {name}"))?.parse()?)
}

/// How much more the process may have in the second half of the time than it had at most in the first: its
/// allocator has some 20 threads to serve, and their stacks are used to different depths.
const LEEWAY_KIB: u64 = 1024;

/// What is wrong with the samples; nothing where they are flat. The first of them was taken before anything was done.
pub(crate) fn faults(samples: &[Sample], before: &Held) -> Vec<String> {
    let mut faults = Vec::new();
    for sample in samples {
        let Sample { at, held, .. } = sample;
        if held != before {
            faults.push(format!("after {} s: {held:?}; before: {before:?}", at.as_secs()));
        }
    }
    let (first, second) = samples.split_at(samples.len().div_ceil(2));
    let most = |samples: &[Sample]| samples.iter().map(|sample| sample.resident_kib).max();
    match (most(first), most(second)) {
        (Some(first), Some(second)) if second > first + LEEWAY_KIB => faults.push(format!(
            "the process has {second} KiB in the second half of the time, {first} KiB in the first"
        )),
        (Some(_), Some(_)) => {}
        _ => faults.push("too few samples".to_owned()),
    }
    faults
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sample(resident_kib: u64, descriptors: usize) -> Sample {
        let held = Held { descriptors, objects: Vec::new() };
        Sample { at: Duration::ZERO, done: Done::default(), held, resident_kib, slab_kib: 0 }
    }

    fn faults_of(samples: &[(u64, usize)]) -> usize {
        let samples: Vec<_> = samples.iter().map(|(kib, fds)| sample(*kib, *fds)).collect();
        faults(&samples, &samples[0].held).len()
    }

    #[test]
    fn what_grows_is_a_fault() {
        assert_eq!(faults_of(&[(1000, 5), (5000, 5), (5500, 5), (5100, 5)]), 0);
        assert_eq!(faults_of(&[(1000, 5), (5000, 5), (5500, 5), (6100, 5)]), 1);
        assert_eq!(faults_of(&[(1000, 5), (5000, 6), (5500, 5), (5100, 5)]), 1);
        assert_eq!(faults_of(&[(1000, 5)]), 1, "one sample says nothing");
    }
}
