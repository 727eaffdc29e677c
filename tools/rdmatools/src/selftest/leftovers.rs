//! The last check: no object of this program is left, and the device has no more objects than before.

use std::fs;
use std::io;
use std::thread;
use std::time::Instant;

use rdmacm::device::{Device, ResourceCounts};

use super::TIMEOUT;
use super::report::{Problem, ensure};

/// The objects before the checks.
pub(super) struct Before {
    counts: ResourceCounts,
    handles: Vec<String>,
}

impl Before {
    pub(super) fn take(device: &Device) -> Result<Self, Problem> {
        Ok(Self { counts: device.resources()?, handles: handles()? })
    }

    /// Waits until no more objects exist than before, for at most [`TIMEOUT`].
    ///
    /// The kernel destroys all objects of a program that has closed its device files, so open files are a failure. The
    /// counts of the device include the objects of other programs, so a higher count is reported as skipped.
    pub(super) fn compare(&self, device: &Device) -> Result<String, Problem> {
        let start = Instant::now();
        loop {
            let (counts, handles) = (device.resources()?, handles()?);
            let has_more_handles = handles.len() > self.handles.len();
            let is_more = |(name, count)| count > self.counts.count(name).unwrap_or(0);
            if !has_more_handles && !counts.iter().any(is_more) {
                return Ok(counts.to_string());
            }
            // The kernel may destroy objects of connections a moment after their end.
            if start.elapsed() < TIMEOUT {
                thread::sleep(TIMEOUT / 600);
                continue;
            }
            let text = format!("not closed: {}", handles.join(", "));
            ensure(!has_more_handles, text)?;
            return Err(Problem::Missing(format!(
                "this program has closed its files, but the device has more objects than before: {}, and now {counts}; \
                 other programs may use it",
                self.counts
            )));
        }
    }
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

/// Returns `true` for the target of a descriptor or the line of a mapping that belongs to an RDMA device.
fn is_of_devices(text: &str) -> bool {
    text.contains("/dev/infiniband/") || text.contains("[infiniband")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_files_of_devices_are_counted() {
        for text in [
            "/dev/infiniband/uverbs0",
            "/dev/infiniband/rdma_cm (deleted)",
            "anon_inode:[infinibandevent]",
            "7f00-8f00 rw-s 00001000 00:05 12 /dev/infiniband/uverbs0",
        ] {
            assert!(is_of_devices(text), "{text}");
        }
        for text in ["/dev/null", "anon_inode:[eventpoll]", "socket:[12]", "/sys/class/infiniband"]
        {
            assert!(!is_of_devices(text), "{text}");
        }
    }
}
