//! The data of a ping: `rdma-ping-N: ` and letters, with a zero byte at the end.

use std::ffi::CStr;
use std::ops::RangeInclusive;

/// Sizes that both programs accept.
///
/// The minimum has room for the greatest number that C counts to; the maximum is the C program's buffer.
pub(super) const SIZES: RangeInclusive<u16> = 23..=65_535;

/// Returns the data of ping `number`. With each ping, the letters start one letter later.
pub(super) fn data(number: u64, size: usize) -> Vec<u8> {
    let mut letters: Vec<u8> = (b'A'..=b'z').collect();
    letters.rotate_left(usize::try_from(number % 58).expect("the remainder should be below 58"));
    let mut data = format!("rdma-ping-{number}: ").into_bytes();
    while data.len() < size {
        data.extend_from_slice(&letters);
    }
    data.truncate(size - 1);
    data.push(0);
    data
}

/// Returns the text in `data`: the bytes before the first zero byte.
pub(super) fn text(data: &[u8]) -> &[u8] {
    CStr::from_bytes_until_nul(data).map_or(data, CStr::to_bytes)
}

#[cfg(test)]
mod tests;
