//! Copying to and from memory that a region owns.

use rdmacm::verbs::{AccessFlags, Context, MemoryRegion, ProtectionDomain};

use crate::fixtures::{device, roce_name};

const LENGTH: usize = 64;

/// Copies begin at each offset in a word, and are shorter and longer than words.
#[test]
#[ignore = "needs the test bed: cargo xtask test"]
fn copies_change_only_their_range() {
    let context = Context::open(&device(roce_name())).expect("open");
    let pd = ProtectionDomain::new(&context).expect("protection domain");
    let mut region = MemoryRegion::alloc(&pd, LENGTH, AccessFlags::empty()).expect("memory region");
    let mut model = [0; LENGTH];
    let mut numbers = (1..=u8::MAX).cycle();
    for offset in 0..=LENGTH {
        for length in 0..=LENGTH - offset {
            let bytes: Vec<u8> = numbers.by_ref().take(length).collect();
            region.write(offset, &bytes).expect("write");
            model[offset..offset + length].copy_from_slice(&bytes);
            let mut whole = [0; LENGTH];
            region.read(0, &mut whole).expect("read");
            assert_eq!(whole, model, "{length} bytes at {offset}");
            let mut part = vec![0; length];
            region.read(offset, &mut part).expect("read");
            assert_eq!(part, bytes, "{length} bytes at {offset}");
        }
    }
}
