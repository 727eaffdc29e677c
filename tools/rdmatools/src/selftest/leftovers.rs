//! The last check: no object of this program is left, and the device has no more objects than before.

use std::fmt;
use std::fs;
use std::io;
use std::thread;
use std::time::Instant;

use rdmacm::device::Device;

use super::TIMEOUT;
use super::report::{Problem, ensure};

/// The objects of the device and of this program at one time.
pub(super) struct Snapshot {
    /// Number of the objects of each type on the device.
    counts: Vec<(String, u64)>,
    /// Device files that this process has open or has mapped.
    handles: Vec<String>,
}

impl Snapshot {
    pub(super) fn take(device: &Device) -> Result<Self, Problem> {
        let counts = device.resources()?;
        let counts = counts.iter().map(|(name, count)| (name.to_owned(), count)).collect();
        Ok(Self { counts, handles: handles()? })
    }

    /// Waits until no more objects exist than in this snapshot, for at most [`TIMEOUT`].
    pub(super) fn wait_until_nothing_is_left(&self, device: &Device) -> Result<String, Problem> {
        let start = Instant::now();
        loop {
            let compared = compare(self, &Self::take(device)?);
            // The kernel may destroy objects of connections a moment after their end.
            if compared.is_ok() || start.elapsed() >= TIMEOUT {
                return compared;
            }
            thread::sleep(TIMEOUT / 600);
        }
    }

    /// Returns the number of objects of a type.
    fn count(&self, name: &str) -> u64 {
        self.counts.iter().find(|(known, _)| known == name).map_or(0, |(_, count)| *count)
    }
}

impl fmt::Display for Snapshot {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let counts = self.counts.iter().map(|(name, count)| format!("{name} {count}"));
        f.write_str(&counts.collect::<Vec<_>>().join(", "))
    }
}

/// Returns the counts of `after`, or the problem of objects that are left since `before`.
///
/// The kernel destroys all objects of a program that has closed its device files, so open files are a failure. The counts
/// of the device include the objects of other programs, so a higher count is reported as skipped.
fn compare(before: &Snapshot, after: &Snapshot) -> Result<String, Problem> {
    let text = format!("not closed: {}", after.handles.join(", "));
    ensure(after.handles.len() <= before.handles.len(), text)?;
    if after.counts.iter().any(|(name, count)| *count > before.count(name)) {
        return Err(Problem::Missing(format!(
            "this program has closed its files, but the device has more objects than before: {before}, and now {after}; \
             other programs may use it"
        )));
    }
    Ok(after.to_string())
}

/// Returns the device files that this process has open or has mapped.
fn handles() -> Result<Vec<String>, Problem> {
    let missing = |error: io::Error| Problem::Missing(format!("cannot read /proc/self: {error}"));
    let mut found = Vec::new();
    for entry in fs::read_dir("/proc/self/fd").map_err(missing)? {
        // A descriptor that another thread has closed since the listing has no link.
        let target = entry.and_then(|entry| fs::read_link(entry.path()));
        found.extend(target.map(|target| target.display().to_string()));
    }
    let maps = fs::read_to_string("/proc/self/maps").map_err(missing)?;
    found.extend(maps.lines().map(str::to_owned));
    found.retain(|text| is_of_devices(text));
    Ok(found)
}

/// Returns `true` if `text` names an RDMA device: the target of a descriptor, or the line of a mapping.
fn is_of_devices(text: &str) -> bool {
    text.contains("/dev/infiniband/") || text.contains("[infiniband")
}

#[cfg(test)]
mod tests;
