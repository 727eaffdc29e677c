//! Binding and invalidation of memory windows: the segments that change a memory key.

use verbs_abi::ib_mw_type;

use super::memory::{Unit, pair};
use crate::driver::{PostError, Posted};
use crate::work::{AccessFlags, WindowBinding};

/// Flags of the first segment.
mod flags {
    /// The key must not be bound to a window.
    pub(super) const CHECK_FREE: u32 = 1 << 5;
    /// The offset of the translation is given, which is zero.
    pub(super) const TRANSLATION_OFFSET: u32 = 1 << 4;
    /// The key must belong to the queue pair.
    pub(super) const CHECK_QP: u32 = 1 << 3;
    /// The translation is in the entry.
    pub(super) const INLINE: u32 = 1 << 7;
}

/// Bits for the members of the key that change.
mod mask {
    pub(super) const LENGTH: u64 = 1;
    pub(super) const START: u64 = 1 << 6;
    pub(super) const KEY: u64 = 1 << 13;
    pub(super) const QP: u64 = 1 << 14;
    pub(super) const ACCESS: u64 = 15 << 18;
    pub(super) const FREE: u64 = 1 << 29;
}

/// The bit of a key that is not bound.
const FREE: u32 = 1 << 30;

/// The number of a queue pair in a key that any queue pair may use.
const ANY_QP: u32 = 0xff_ffff;

/// Units of a translation of one region, which are padded to 64 bytes, as the device counts them.
const TRANSLATION: u32 = 4;

/// The longest window.
const MAX_LENGTH: u64 = 1 << 31;

/// Returns the access flags of a key.
fn access(flags: AccessFlags) -> u32 {
    let bit = |flag, bit| if flags.contains(flag) { 1_u32 << bit } else { 0 };
    bit(AccessFlags::IB_UVERBS_ACCESS_LOCAL_WRITE, 3)
        | bit(AccessFlags::IB_UVERBS_ACCESS_REMOTE_READ, 4)
        | bit(AccessFlags::IB_UVERBS_ACCESS_REMOTE_WRITE, 5)
        | bit(AccessFlags::IB_UVERBS_ACCESS_REMOTE_ATOMIC, 6)
}

/// Returns the first two words of the first segment, which has six words of zeros behind them.
fn control(flags: u32, translation: u32, mask: u64) -> Unit {
    let always = flags::TRANSLATION_OFFSET | flags::INLINE;
    [pair((flags | always) << 24, translation << 16), (mask::FREE | mask::KEY | mask).to_be()]
}

/// Calls `put` with the units that bind a window for queue pair `qp_num`.
pub(super) fn bind(binding: &WindowBinding, qp_num: u32, mut put: impl FnMut(Unit)) -> Posted {
    if binding.length > MAX_LENGTH {
        return Err(PostError::Unsupported("memory windows of more than 2 GiB by mlx5"));
    }
    let is_type_2 = binding.mw_type == ib_mw_type::IB_MW_TYPE_2;
    let owner = if is_type_2 { mask::QP } else { 0 };
    let key = binding.new_rkey & 0xff;
    if binding.length == 0 {
        // Only a window of type 1 is unbound by a bind.
        put(control(0, 0, owner));
        [[0; 2]; 2].into_iter().for_each(&mut put);
        put_key(FREE, ANY_QP << 8 | key, 0, 0, put);
        return Ok(());
    }
    let check = if is_type_2 { flags::CHECK_FREE } else { 0 };
    let changed = owner | mask::LENGTH | mask::START | mask::ACCESS;
    put(control(check, TRANSLATION, changed));
    [[0; 2]; 2].into_iter().for_each(&mut put);
    let owner = if is_type_2 { qp_num } else { ANY_QP };
    let start = match binding.access.contains(AccessFlags::IB_UVERBS_ACCESS_ZERO_BASED) {
        true => 0,
        false => binding.addr,
    };
    let head = access(binding.access) << 8;
    put_key(head, owner << 8 | key, start, binding.length, &mut put);
    let length = u32::try_from(binding.length).expect("the length is limited");
    put([pair(length, binding.lkey), binding.addr.to_be()]);
    [[0; 2]; 3].into_iter().for_each(put);
    Ok(())
}

/// Calls `put` with the units that invalidate the key of a window of type 2.
pub(super) fn invalidate(mut put: impl FnMut(Unit)) {
    put(control(flags::CHECK_QP, 0, mask::QP));
    [[0; 2]; 2].into_iter().for_each(&mut put);
    put_key(FREE, ANY_QP << 8, 0, 0, put);
}

/// Calls `put` with the units of a key.
fn put_key(head: u32, owner_and_key: u32, start: u64, length: u64, mut put: impl FnMut(Unit)) {
    put([pair(head, owner_and_key), 0]);
    put([start.to_be(), length.to_be()]);
    [[0; 2]; 2].into_iter().for_each(put);
}

#[cfg(test)]
mod tests;
