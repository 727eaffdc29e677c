//! Copies of short inline data, in few instructions and without a call.
//!
//! # Safety
//!
//! The caller passes a place that has room for the bytes. Copies of a part write within that room.
#![expect(unsafe_code, reason = "writes to memory that a device shares")]

use std::ptr::NonNull;

/// Copies `bytes` to `place`, without a call if they are short, as most inline messages are.
///
/// # Safety
///
/// The memory at `place` has room for the bytes. It does not overlap them, and no reference to it exists.
#[inline(always)]
pub(crate) unsafe fn copy(place: NonNull<u8>, bytes: &[u8]) {
    // SAFETY: the contract of this function is that of the callee.
    if unsafe { copy_if_short(place, bytes) } {
        return;
    }
    // SAFETY: the memory has room for the bytes and does not overlap them, and an address is aligned for bytes
    // anywhere.
    unsafe { place.copy_from_nonoverlapping(NonNull::from(bytes).cast(), bytes.len()) }
}

/// Copies `bytes` to `place` without a call if there are 8 to 64.
///
/// Returns `false`, and copies nothing, otherwise.
///
/// # Safety
///
/// The caller keeps the contract of [`copy`].
#[inline(always)]
pub(crate) unsafe fn copy_if_short(place: NonNull<u8>, bytes: &[u8]) -> bool {
    // SAFETY: the contract of this function is that of the callee.
    let is_copied = |copy: unsafe fn(NonNull<u8>, &[u8]) -> bool| unsafe { copy(place, bytes) };
    is_copied(copy_ends::<16>) || is_copied(copy_ends::<32>) || is_copied(copy_ends::<8>)
}

/// Copies from `N` to `2 * N` bytes as their first `N` and their last `N`.
///
/// Returns `false` if there are fewer or more.
///
/// # Safety
///
/// The caller keeps the contract of [`copy`].
#[inline(always)]
unsafe fn copy_ends<const N: usize>(place: NonNull<u8>, bytes: &[u8]) -> bool {
    let (Some(first), Some(last)) = (bytes.first_chunk::<N>(), bytes.last_chunk::<N>()) else {
        return false;
    };
    if bytes.len() > 2 * N {
        return false;
    }
    // SAFETY: the memory has room for at least `N` bytes, and an array of bytes is aligned anywhere.
    unsafe { place.cast::<[u8; N]>().write(*first) };
    // SAFETY: the last `N` bytes begin within the room for all.
    let place = unsafe { place.add(bytes.len() - N) };
    // SAFETY: as for the first ones.
    unsafe { place.cast::<[u8; N]>().write(*last) };
    true
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn copies_write_exactly_their_bytes() {
        let bytes: Vec<u8> = (1..=100).collect();
        for length in 0..=bytes.len() {
            for only_if_short in [false, true] {
                let mut into = [0; 102];
                let place = NonNull::from(&mut into).cast::<u8>();
                // SAFETY: the place is within the array, before which and behind which a byte stays.
                let place = unsafe { place.add(1) };
                let bytes = &bytes[..length];
                let is_copied = match only_if_short {
                    // SAFETY: the array has room for 100 bytes behind its first, and is another one than that of the
                    // bytes.
                    true => unsafe { copy_if_short(place, bytes) },
                    false => {
                        // SAFETY: as above.
                        unsafe { copy(place, bytes) };
                        true
                    }
                };
                assert_eq!(is_copied, !only_if_short || (8..=64).contains(&length), "{length}");
                let copied = if is_copied { length } else { 0 };
                assert_eq!(into[1..=copied], bytes[..copied], "{length}");
                assert!(into[0] == 0 && into[copied + 1..].iter().all(|byte| *byte == 0));
            }
        }
    }
}
