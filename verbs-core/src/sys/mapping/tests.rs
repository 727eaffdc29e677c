use super::*;

use std::ffi::CStr;
use std::fs;
use std::mem::ManuallyDrop;
use std::os::fd::OwnedFd;

use nix::sys::memfd::{MFdFlags, memfd_create};
use nix::unistd::ftruncate;

use crate::sys::process::in_child;

/// Returns a file to map.
fn file(name: &CStr) -> OwnedFd {
    let file = memfd_create(name, MFdFlags::MFD_CLOEXEC).expect("a file in memory");
    ftruncate(&file, 1 << 20).expect("as long as it must be");
    file
}

/// Returns the number of mappings of the file in the process.
fn mapped(name: &CStr) -> usize {
    let name = format!("memfd:{} ", name.to_str().expect("text"));
    let maps = fs::read_to_string("/proc/self/maps").expect("the process's mappings");
    maps.lines().filter(|line| line.contains(&name)).count()
}

/// Returns two neighboring mappings. The first one has the higher address.
///
/// The kernel may put the mapping at a place without room below. Such mappings are kept meanwhile, so that it
/// chooses another place for the next.
fn neighbors(file: &OwnedFd) -> [Mapping; 2] {
    let mut separate_pairs = Vec::new();
    for _ in 0..100 {
        let mut upper = Mapping::shared(file, 0, 100, None).expect("map the file");
        let lower = Mapping::shared(file, 1 << 16, 5000, Some(&mut upper));
        let lower = lower.expect("map the file");
        if Arc::ptr_eq(&upper.range, &lower.range) {
            return [upper, lower];
        }
        separate_pairs.push([upper, lower]);
    }
    panic!("there is room below one of {}", separate_pairs.len());
}

#[test]
fn neighbors_are_unmapped_together() {
    for place in 0..2 {
        let name = [c"upper-goes-first", c"lower-goes-first"][place];
        let file = file(name);
        let [upper, lower] = neighbors(&file);
        assert!(lower.start() < upper.start());
        assert_eq!((upper.len(), lower.len()), (100, 5000));
        assert_eq!(mapped(name), 2);
        let (goes, stays) = if place == 0 { (upper, lower) } else { (lower, upper) };
        drop(goes);
        assert_eq!(mapped(name), 2, "one of them is left");
        drop(stays);
        assert_eq!(mapped(name), 0);
    }
}

#[test]
fn mapping_has_at_most_one_neighbor() {
    let name = c"no-third";
    let file = file(name);
    let [mut upper, lower] = neighbors(&file);
    let third = Mapping::shared(&file, 1 << 17, 100, Some(&mut upper)).expect("map the file");
    assert_eq!(mapped(name), 3);
    drop((upper, lower));
    assert_eq!(mapped(name), 1);
    drop(third);
    assert_eq!(mapped(name), 0);
}

#[test]
fn only_mapping_ending_in_previous_page_is_adjacent() {
    for (start, length, next, adjacent) in [
        (0x1000, 1, 0x2000, true),
        (0x1000, 0x1000, 0x2000, true),
        (0x1000, 0x1001, 0x3000, true),
        (0x1000, 0x1000, 0x3000, false),
        (0x1000, 0x1001, 0x2000, false),
        (0x2000, 1, 0x1000, false),
        (0x1000, usize::MAX, 0x2000, false),
    ] {
        assert_eq!(
            are_adjacent(start, length, next),
            adjacent,
            "{length:#x} from {start:#x}, {next:#x}"
        );
    }
}

#[test]
fn failed_mapping_is_error() {
    let file = file(c"nothing");
    let map = |offset, length| Mapping::shared(&file, offset, length, None).expect_err("wrong");
    assert_eq!(map(0, 0), Errno::EINVAL);
    assert_eq!(map(u64::MAX, 1), Errno::EOVERFLOW);
    assert_eq!(map(1, 1), Errno::EINVAL, "not at a page");
}

/// Returns the flags of the memory at `address`, as the kernel lists them.
fn flags(address: usize) -> String {
    let maps = fs::read_to_string("/proc/self/smaps").expect("the process's mappings");
    let mut is_here = false;
    for line in maps.lines() {
        let range = line.split(' ').next().and_then(|range| range.split_once('-'));
        let number = |text: &str| usize::from_str_radix(text, 16).ok();
        if let Some((start, end)) = range.and_then(|(start, end)| number(start).zip(number(end))) {
            is_here = (start..end).contains(&address);
        }
        if let Some(flags) = line.strip_prefix("VmFlags:").filter(|_| is_here) {
            return flags.to_owned();
        }
    }
    panic!("memory is mapped at {address:#x}");
}

#[test]
fn queue_memory_is_not_copied_by_fork() {
    let is_marked = |mapping: &Mapping| {
        let flags = flags(mapping.start().addr().get());
        flags.split(' ').any(|flag| flag == "dc")
    };
    assert!(is_marked(&Mapping::queue(5000).expect("memory")));
    assert!(!is_marked(&Mapping::private(5000).expect("memory")));
}

#[test]
fn forked_child_keeps_memory_at_queue_address() {
    let mut queue = Some(Mapping::queue(5000).expect("memory"));
    assert!(in_child(|| {
        let queue = queue.take().expect("there is one");
        let (wish, length) = (NonZeroUsize::new(queue.start().addr().get()), queue.length);
        let flags = MapFlags::MAP_PRIVATE | MapFlags::MAP_FIXED_NOREPLACE;
        // SAFETY: the flags let the mapping replace nothing.
        let mapped = unsafe { mmap_anonymous(wish, length, READ_WRITE, flags) };
        let own = mapped.expect("the child should not have the memory").cast::<u8>();
        drop(queue);
        // SAFETY: the byte is in the child's own mapping, which no code unmaps. Otherwise, a signal ends the child.
        unsafe { own.write_volatile(7) };
        true
    }));
    let queue = queue.expect("the parent should have the memory");
    // SAFETY: the byte is in the mapping.
    assert_eq!(unsafe { queue.start().read_volatile() }, 0);
}

/// A mapping that a forked child does not have is unmapped by its process alone.
#[test]
fn only_adjacent_ranges_of_all_processes_join() {
    let number_of = |bytes: usize| bytes / PAGE.get();
    let range = |number: usize, is_own: bool| {
        let number = NonZeroUsize::new(number).expect("not the first page");
        let only_in = is_own.then(|| Box::new(Process::current()));
        let start = Place(NonNull::dangling().with_addr(PAGE.checked_mul(number).expect("small")));
        // Not dropped: a range unmaps its addresses, which this test has not mapped.
        ManuallyDrop::new(Range { start, length: PAGE, only_in })
    };
    for (number, [is_own, below_is_own], joins) in [
        (4, [false, false], true),
        (3, [false, false], false),
        (6, [false, false], false),
        (4, [true, false], false),
        (4, [false, true], false),
        (4, [true, true], false),
    ] {
        let (mut upper, lower) = (range(5, is_own), range(number, below_is_own));
        assert_eq!(upper.join(&lower), joins, "{number}, {is_own}, {below_is_own}");
        let expected = if joins { (4, 2) } else { (5, 1) };
        let [start, length] =
            [upper.start.0.addr(), upper.length].map(|bytes| number_of(bytes.get()));
        assert_eq!((start, length), expected);
    }
}
