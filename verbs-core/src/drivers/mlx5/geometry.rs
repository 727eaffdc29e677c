//! Sizes of queues, as the kernel driver and the device compute them.

use super::memory::UNIT;
use crate::driver::SizeError;
use crate::work::QpType;

/// Bytes of a block: entries of a send queue begin at blocks.
pub(super) const BLOCK: u32 = 64;

/// The largest number of units of an entry: the control segment has six bits for it.
const MOST_UNITS: u32 = 63;

/// Bytes of the word with the length of inline data.
pub(super) const INLINE_HEADER: u32 = 4;

/// The largest number of blocks of a send queue, or of entries of a receive queue.
///
/// It is half of the range of the device's counters, which have 16 bits.
const MAX_ENTRIES: u32 = 1 << 15;

/// Bytes of the largest entry of a send queue of any device.
const MAX_SEND_ENTRY: u32 = 1024;

/// Bytes of the largest entry of a receive queue, so that the bytes of the queue fit in 32 bits.
const MAX_RECEIVE_ENTRY: u32 = 1 << 15;

/// The largest number of entries of a completion queue.
const MAX_COMPLETIONS: u32 = 1 << 22;

const COMPLETIONS: &str = "completions";
const RECEIVE_SGES: &str = "scatter/gather entries of a receive";

/// The limits of a device.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Limits {
    /// The largest entry of a send queue in bytes.
    pub(super) send_entry: u32,
    /// The largest entry of a receive queue in bytes.
    pub(super) receive_entry: u32,
    /// The largest number of blocks of a send queue.
    pub(super) send_blocks: u32,
    /// The largest number of entries of a receive queue.
    pub(super) receives: u32,
    /// The largest number of entries of a shared receive queue.
    pub(super) shared_receives: u32,
}

impl Limits {
    /// Returns these limits, reduced to values that the driver supports.
    ///
    /// A 16-bit counter of the device identifies each entry of a queue, and all sizes fit in 32 bits.
    pub(super) fn clamped(self) -> Self {
        Self {
            send_entry: self.send_entry.min(MAX_SEND_ENTRY),
            receive_entry: self.receive_entry.min(MAX_RECEIVE_ENTRY),
            send_blocks: self.send_blocks.min(MAX_ENTRIES),
            receives: self.receives.min(MAX_ENTRIES),
            shared_receives: self.shared_receives.min(MAX_ENTRIES),
        }
    }
}

/// The size of a send queue.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(super) struct SendSize {
    /// The number of blocks: a power of two, or 0.
    pub(super) blocks: u32,
    /// The number of requests.
    pub(super) requests: u32,
    /// Bytes of inline data.
    pub(super) max_inline: u32,
}

impl SendSize {
    /// Returns the size of a send queue for `requests` with up to `max_sge` entries or `max_inline` bytes.
    ///
    /// Fails if a number exceeds a limit.
    pub(super) fn new(
        limits: &Limits,
        qp_type: QpType,
        requests: u32,
        max_sge: u32,
        max_inline: u32,
    ) -> Result<Self, SizeError> {
        if requests == 0 {
            return Ok(Self::default());
        }
        let overhead = overhead(qp_type);
        // A datagram's segments can use every unit of an entry, and the control segment counts at most 63 units.
        let is_filled = qp_type == QpType::IB_UVERBS_QPT_UD;
        let longest =
            if is_filled { limits.send_entry.min(MOST_UNITS * 16) } else { limits.send_entry };
        SizeError::check("bytes of an entry for sends", overhead, longest)?;
        let units = (longest - overhead) / 16;
        SizeError::check("scatter/gather entries of a send", max_sge, units)?;
        let most_inline = (units * 16).saturating_sub(INLINE_HEADER);
        SizeError::check("bytes of inline data", max_inline, most_inline)?;
        let inline = match max_inline {
            0 => 0,
            bytes => (bytes + INLINE_HEADER).next_multiple_of(16),
        };
        let entry = (overhead + inline.max(max_sge * 16)).next_multiple_of(BLOCK);
        let most = largest_power_of_two(limits.send_blocks) / (entry / BLOCK);
        SizeError::check("sends with entries of this size", requests, most)?;
        let bytes = (requests * entry).next_power_of_two();
        Ok(Self {
            blocks: bytes / BLOCK,
            requests: bytes / entry,
            // An entry for requests without data has no room for the word with its length.
            max_inline: entry.min(longest).saturating_sub(overhead + INLINE_HEADER),
        })
    }

    pub(super) fn bytes(&self) -> usize {
        self.blocks as usize * BLOCK as usize
    }
}

/// Returns the bytes of an entry besides its data: control, and the largest segments of the type's operations.
fn overhead(qp_type: QpType) -> u32 {
    match qp_type {
        // The address of a datagram.
        QpType::IB_UVERBS_QPT_UD => 64,
        // The bind of a memory window, and the segment with the number of a shared receive queue.
        QpType::IB_UVERBS_QPT_XRC_INI | QpType::IB_UVERBS_QPT_XRC_TGT => 208,
        // The bind of a memory window.
        _ => 192,
    }
}

/// The size of a receive queue.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(super) struct ReceiveSize {
    /// The number of entries: a power of two, or 0.
    pub(super) entries: u32,
    /// The logarithm of the bytes of an entry.
    pub(super) shift: u32,
    /// Scatter/gather entries of an entry.
    pub(super) max_sge: u32,
}

impl ReceiveSize {
    /// Returns the size of a receive queue for `requests` with up to `max_sge` entries.
    ///
    /// Fails if a number exceeds a limit.
    pub(super) fn new(limits: &Limits, requests: u32, max_sge: u32) -> Result<Self, SizeError> {
        if requests == 0 {
            return Ok(Self::default());
        }
        SizeError::check(RECEIVE_SGES, max_sge.max(1), limits.receive_entry / 16)?;
        SizeError::check("receives", requests, limits.receives)?;
        let entry = (max_sge.max(1) * 16).next_power_of_two();
        let bytes = (requests.next_power_of_two() * entry).max(BLOCK);
        Ok(Self { entries: bytes / entry, shift: entry.ilog2(), max_sge: entry / 16 })
    }

    /// Returns the size of a shared receive queue, and the number of entries in its first list.
    ///
    /// The queue is for `requests` requests with up to `max_sge` entries.
    ///
    /// Fails if `requests` is 0 or a number exceeds a limit.
    ///
    /// A request uses an entry of the first list. The second half is for receives that wait for a page of memory on
    /// demand: it is absent if the limit has no room for it.
    pub(super) fn shared(
        limits: &Limits,
        requests: u32,
        max_sge: u32,
    ) -> Result<(Self, u32), SizeError> {
        let unit = u32::try_from(UNIT).expect("16 fits");
        if requests == 0 {
            return Err(SizeError::Zero { what: "receives" });
        }
        let most_sge = limits.receive_entry.saturating_sub(unit) / 16;
        SizeError::check(RECEIVE_SGES, max_sge.max(1), most_sge)?;
        // The kernel refuses a number that is not below its limit.
        let most = largest_power_of_two(limits.shared_receives).saturating_sub(1);
        SizeError::check("receives", requests, most)?;
        let entry = (max_sge.max(1) * 16 + unit).next_power_of_two();
        let listed = (requests + 1).next_power_of_two();
        let doubled = (requests * 2 + 1).next_power_of_two();
        let entries = match doubled - 1 <= limits.shared_receives {
            true => doubled,
            false => listed,
        };
        let size = Self { entries, shift: entry.ilog2(), max_sge: entry / 16 - 1 };
        Ok((size, listed))
    }

    pub(super) fn bytes(&self) -> usize {
        (self.entries as usize) << self.shift
    }
}

/// Returns the number of entries of a completion queue for `completions`.
///
/// Fails if the number is 0 or exceeds the limit.
pub(super) fn completions(completions: u32) -> Result<u32, SizeError> {
    if completions == 0 {
        return Err(SizeError::Zero { what: COMPLETIONS });
    }
    SizeError::check(COMPLETIONS, completions, MAX_COMPLETIONS - 1)?;
    Ok((completions + 1).next_power_of_two())
}

/// Returns the largest power of two that does not exceed `number`, or 0.
fn largest_power_of_two(number: u32) -> u32 {
    number.checked_ilog2().map_or(0, |shift| 1 << shift)
}

#[cfg(test)]
mod tests;
