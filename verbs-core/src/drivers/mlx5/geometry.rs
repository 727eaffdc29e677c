//! Sizes of queues, as the kernel driver and the device compute them.

use nix::errno::Errno;

use super::memory::UNIT;
use crate::driver::CreateError;
use crate::sys::command::CommandError;
use crate::work::QpType;

/// The error for a queue whose size the device does not support: the errno that the kernel returns for it.
pub(super) const WRONG_SIZE: CreateError = CreateError::Command(CommandError::Os(Errno::EINVAL));

/// Bytes of a block: entries of a send queue begin at blocks.
pub(super) const BLOCK: u32 = 64;

/// The largest number of units of an entry, which its control segment has in six bits.
const MOST_UNITS: u32 = 63;

/// Bytes of the word with the length of inline data.
pub(super) const INLINE_HEADER: u32 = 4;

/// The largest number of blocks of a send queue, or of entries of a receive queue.
///
/// It is half of the range of the device's counters, which have 16 bits.
const MAX_ENTRIES: u32 = 1 << 15;

/// Bytes of the largest entry of a send queue of any device.
const MAX_SEND_ENTRY: u32 = 1024;

/// The largest number of entries of a completion queue.
const MAX_COMPLETIONS: u32 = 1 << 22;

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
    /// Returns these limits, reduced so that a 16-bit counter of the device identifies each entry of a queue.
    pub(super) fn clamped(self) -> Self {
        Self {
            send_entry: self.send_entry.min(MAX_SEND_ENTRY),
            receive_entry: self.receive_entry,
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
    /// Returns the size of a send queue for `requests` with up to `max_sge` entries or `max_inline` bytes. Returns `None` if
    /// it exceeds a limit.
    pub(super) fn new(
        limits: &Limits,
        qp_type: QpType,
        requests: u32,
        max_sge: u32,
        max_inline: u32,
    ) -> Option<Self> {
        if requests == 0 {
            return Some(Self::default());
        }
        let overhead = overhead(qp_type);
        let gathered = max_sge.checked_mul(16)?.checked_add(overhead)?;
        let inline = match max_inline {
            0 => 0,
            bytes => overhead
                .checked_add(bytes.checked_add(INLINE_HEADER)?.checked_next_multiple_of(16)?)?,
        };
        let entry = gathered.max(inline);
        // A datagram's segments can use every unit of an entry, and the control segment counts at most 63 units.
        let is_filled = qp_type == QpType::IB_UVERBS_QPT_UD;
        let longest =
            if is_filled { limits.send_entry.min(MOST_UNITS * 16) } else { limits.send_entry };
        if entry > longest {
            return None;
        }
        let entry = entry.checked_next_multiple_of(BLOCK)?;
        let bytes = requests.checked_mul(entry)?.checked_next_power_of_two()?;
        let size = Self {
            blocks: bytes / BLOCK,
            requests: bytes / entry,
            // An entry for requests without data has no room for the word with its length.
            max_inline: entry.min(longest).saturating_sub(overhead + INLINE_HEADER),
        };
        (size.blocks <= limits.send_blocks).then_some(size)
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
    /// Returns the size of a receive queue for `requests` with up to `max_sge` entries. Returns `None` if it exceeds a limit.
    pub(super) fn new(limits: &Limits, requests: u32, max_sge: u32) -> Option<Self> {
        if requests == 0 {
            return Some(Self::default());
        }
        let entry = max_sge.max(1).checked_mul(16)?;
        if entry > limits.receive_entry || requests > limits.receives {
            return None;
        }
        let entry = entry.checked_next_power_of_two()?;
        let bytes = requests.checked_next_power_of_two()?.checked_mul(entry)?.max(BLOCK);
        Some(Self { entries: bytes / entry, shift: entry.ilog2(), max_sge: entry / 16 })
    }

    /// Returns the size of a shared receive queue for `requests` with up to `max_sge` entries, and the number of entries in
    /// its first list. Returns `None` if it is zero or exceeds a limit.
    ///
    /// A request uses an entry of the first list. The second half is for receives that wait for a page of memory on demand:
    /// it is absent if the limit has no room for it.
    pub(super) fn shared(limits: &Limits, requests: u32, max_sge: u32) -> Option<(Self, u32)> {
        let unit = u32::try_from(UNIT).expect("16 fits");
        let entry = max_sge.max(1).checked_mul(16)?.checked_add(unit)?;
        if requests == 0 || entry > limits.receive_entry || requests > limits.shared_receives {
            return None;
        }
        let entry = entry.checked_next_power_of_two()?;
        let listed = requests.checked_add(1)?.checked_next_power_of_two()?;
        let doubled = requests.checked_mul(2)?.checked_add(1)?.checked_next_power_of_two()?;
        let entries = match doubled - 1 <= limits.shared_receives {
            true => doubled,
            false => listed,
        };
        let size = Self { entries, shift: entry.ilog2(), max_sge: entry / 16 - 1 };
        (entries <= 1 << 16).then_some((size, listed))
    }

    pub(super) fn bytes(&self) -> usize {
        (self.entries as usize) << self.shift
    }
}

/// Returns the number of entries of a completion queue for `completions`. Returns `None` if it is zero or exceeds the limit.
pub(super) fn completions(completions: u32) -> Option<u32> {
    let entries = completions.checked_add(1)?.checked_next_power_of_two()?;
    (completions > 0 && entries <= MAX_COMPLETIONS).then_some(entries)
}

#[cfg(test)]
mod tests;
