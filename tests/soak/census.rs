//! Objects of the process and the kernel while no connection is active, and a check for growth.

use std::fs;
use std::time::{Duration, Instant};

use rdmacm::device::{Device, ResourceCounts};
use rdmacm_tests::heap::{Live, live};

use crate::Outcome;
use crate::load::Done;

/// Time within which the kernel releases closed objects: siw does so asynchronously.
const SETTLING: Duration = Duration::from_secs(30);

/// Counts that must return to their earlier values.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Held {
    descriptors: usize,
    /// Mappings of device files.
    rings: usize,
    /// Objects of each device.
    objects: Vec<ResourceCounts>,
}

impl Held {
    pub(crate) fn now(devices: &[Device]) -> Outcome<Self> {
        let objects = devices.iter().map(Device::resources).collect::<Result<_, _>>()?;
        let maps = fs::read_to_string("/proc/self/maps")?;
        let rings = maps.lines().filter(|line| line.contains("infiniband")).count();
        Ok(Self { descriptors: fs::read_dir("/proc/self/fd")?.count(), rings, objects })
    }

    /// Returns the number of all objects on all devices.
    fn count(&self) -> u64 {
        self.objects.iter().flat_map(ResourceCounts::iter).map(|(_, count)| count).sum()
    }
}

/// One sample. Without a fault it allocates nothing that the next sample would count.
#[derive(Debug, Clone, Default)]
pub(crate) struct Sample {
    pub(crate) at: Duration,
    pub(crate) done: Done,
    pub(crate) descriptors: usize,
    pub(crate) objects: u64,
    /// Current counts, if they differ from the earlier ones.
    left: Option<Held>,
    /// Heap that the process has allocated and not freed.
    pub(crate) heap: Live,
    /// The address space of the process, and its resident part, in KiB.
    pub(crate) mapped_kib: u64,
    pub(crate) resident_kib: u64,
    /// Memory that the kernel uses itself and cannot reclaim.
    pub(crate) slab_kib: u64,
}

impl Sample {
    /// Takes a sample when the counts are as `before`, or after the time limit for that.
    pub(crate) fn take(
        at: Duration,
        done: Done,
        devices: &[Device],
        before: &Held,
    ) -> Outcome<Self> {
        let deadline = Instant::now() + SETTLING;
        let mut held = Held::now(devices)?;
        while held != *before && Instant::now() < deadline {
            std::thread::sleep(Duration::from_millis(5));
            held = Held::now(devices)?;
        }
        let (descriptors, objects) = (held.descriptors, held.count());
        let left = Some(held).filter(|held| held != before);
        let mapped_kib = kib("/proc/self/status", "VmSize:")?;
        // The kernel counts each page for this file. The sum in `status` is inexact by some hundred KiB.
        let resident_kib = kib("/proc/self/smaps_rollup", "Rss:")?;
        let slab_kib = kib("/proc/meminfo", "SUnreclaim:")?;
        let heap = live();
        Ok(Self { at, done, descriptors, objects, left, heap, mapped_kib, resident_kib, slab_kib })
    }
}

/// Returns the number in the line `NAME NUMBER kB` of a file.
fn kib(file: &str, name: &str) -> Outcome<u64> {
    let text = fs::read_to_string(file)?;
    let value = text.lines().find_map(|line| line.strip_prefix(name));
    let number = value.and_then(|value| value.trim().strip_suffix(" kB"));
    Ok(number.ok_or_else(|| format!("{file} has no {name}"))?.parse()?)
}

/// A count that must not grow.
struct Flat {
    name: &'static str,
    value: fn(&Sample) -> u64,
    /// Permitted excess of the second half of the time over the maximum of the first.
    leeway: u64,
}

const FLAT: [Flat; 4] = [
    // The last blocks of a thread are freed when it was joined.
    Flat { name: "blocks on its heap", value: |sample| sample.heap.blocks, leeway: 8 },
    // Tables have room for the largest number of objects at a time.
    Flat { name: "bytes on its heap", value: |sample| sample.heap.bytes, leeway: 8 << 10 },
    // Up to two more threads may exist at a time, with stacks of 2 MiB each.
    Flat { name: "KiB of address space", value: |sample| sample.mapped_kib, leeway: 5 << 10 },
    // The heap has unused space between its blocks, and 25 stacks are used to different depths. In the first minutes the
    // memory still grows, ever more slowly. A leak of a page for each connection is several times as much after a minute.
    Flat { name: "KiB of resident memory", value: |sample| sample.resident_kib, leeway: 512 },
];

/// Returns the faults of the samples; none if the counts are flat. The first sample was taken before any connection.
pub(crate) fn faults(samples: &[Sample], before: &Held) -> Vec<String> {
    let mut faults = Vec::new();
    for Sample { at, left, .. } in samples {
        if let Some(left) = left {
            faults.push(format!("after {} s: {left:?}; before: {before:?}", at.as_secs()));
        }
    }
    let samples = samples.get(1..).unwrap_or_default();
    let (first, second) = samples.split_at(samples.len().div_ceil(2));
    for Flat { name, value, leeway } in FLAT {
        let most = |samples: &[Sample]| samples.iter().map(value).max();
        match (most(first), most(second)) {
            (Some(first), Some(second)) if second > first + leeway => faults.push(format!(
                "the process has {second} {name} in the second half of the time, {first} in the first"
            )),
            (Some(_), Some(_)) => {}
            _ => return vec!["too few samples".to_owned()],
        }
    }
    faults
}

#[cfg(test)]
mod tests {
    use super::*;

    fn before() -> Held {
        Held { descriptors: 5, rings: 0, objects: Vec::new() }
    }

    fn faults_of<T: Copy>(values: &[T], set: impl Fn(&mut Sample, T)) -> usize {
        let sample = |value: &T| {
            let mut sample = Sample::default();
            set(&mut sample, *value);
            sample
        };
        faults(&values.iter().map(sample).collect::<Vec<_>>(), &before()).len()
    }

    #[test]
    fn growing_count_is_fault() {
        let resident = |sample: &mut Sample, value| sample.resident_kib = value;
        assert_eq!(faults_of(&[1000, 5000, 5200, 5100], resident), 0);
        assert_eq!(
            faults_of(&[1000, 5000, 5100], resident),
            0,
            "the sample before any connection does not count"
        );
        assert_eq!(faults_of(&[1000, 5000, 5000, 5600], resident), 1);
        assert_eq!(faults_of(&[1000, 5000], resident), 1, "one sample should not count");
        let blocks = |sample: &mut Sample, value| sample.heap.blocks = value;
        assert_eq!(faults_of(&[50, 80, 81, 80], blocks), 0);
        assert_eq!(faults_of(&[50, 80, 80, 100], blocks), 1);
        let bytes = |sample: &mut Sample, value| sample.heap.bytes = value;
        assert_eq!(faults_of(&[4000, 11_000, 13_000, 12_000], bytes), 0);
        assert_eq!(faults_of(&[4000, 11_000, 12_000, 30_000], bytes), 1);
        let mapped = |sample: &mut Sample, value| sample.mapped_kib = value;
        assert_eq!(faults_of(&[4000, 60_000, 62_048, 62_048], mapped), 0);
        assert_eq!(faults_of(&[4000, 60_000, 60_000, 68_000], mapped), 1);
    }

    #[test]
    fn leftover_object_is_fault() {
        let left = |sample: &mut Sample, is_left: bool| {
            sample.left = is_left.then(|| Held { rings: 1, ..before() });
        };
        assert_eq!(faults_of(&[false; 3], left), 0);
        assert_eq!(faults_of(&[false, true, false], left), 1);
    }
}
