//! The producer's end of a send queue of siw.
//!
//! # Safety
//!
//! See [`driver`](crate::driver). Storing a request is unsafe, because it gives memory to the device.
#![expect(unsafe_code, reason = "posting gives memory to the device")]

use std::mem::{self, offset_of};

use nix::errno::Errno;
use verbs_abi::AlignedU64;
use verbs_abi::siw::{SIW_MAX_INLINE, siw_opcode, siw_sge, siw_sqe, siw_wqe_flags};

use super::element::{check_state, gather, translated_sge};
use super::queue::{Free, Ring};
use crate::driver::checks::{TOO_LONG, inline};
use crate::driver::{Doorbell, OrphanedRequests, PostError, Posted, SendOps};
use crate::lock::ignore_poison;
use crate::sys::command::CommandError;
use crate::work::{Payload, QpState, SendFlags, SendOperation, SendRequest};

/// The producer's end of a send queue.
#[derive(Debug)]
pub struct SendRing {
    pub(super) ring: Ring<siw_sqe>,
    max_sge: u32,
    /// The smallest length of a scatter/gather entry that the fast path does not store.
    ///
    /// It is 0 if no request may have an entry.
    too_long: u32,
    max_inline: u32,
    /// The flags of every element.
    ///
    /// If all requests of a queue pair are signaled, the kernel expects `SIW_WQE_SIGNALLED` in each element.
    flags: siw_wqe_flags,
    /// `true` if the kernel is known to have moved the queue pair to RTS.
    pub(super) connected: bool,
    /// `true` if a stored element may still need a doorbell.
    owes_doorbell: bool,
    /// Number of elements that were stored since a doorbell was last rung or found not to be needed.
    stored: u32,
}

/// Rings the doorbell.
///
/// While the kernel changes the queue pair, it refuses doorbells with the same errno as without a connection. So the
/// result counts only if no change is in progress.
#[inline(always)]
fn ring(doorbell: Doorbell<'_>) -> Result<(), CommandError> {
    doorbell.command().or_else(|refused| ring_again(doorbell, refused))
}

#[cold]
fn ring_again(doorbell: Doorbell<'_>, refused: CommandError) -> Result<(), CommandError> {
    match refused {
        CommandError::Os(Errno::ENOTCONN) => {
            let _unchanged = ignore_poison(doorbell.changing.lock());
            doorbell.command()
        }
        refused => Err(refused),
    }
}

/// Places between the bits of a request's flags and those of an element.
const COMPLETION_SHIFT: u32 = 1;
const FENCE_SHIFT: u32 = 4;
const _: () = assert!(
    SendFlags::SIGNALED.bits() << COMPLETION_SHIFT
        == siw_wqe_flags::SIW_WQE_SIGNALLED.bits() as u32
        && SendFlags::SOLICITED.bits() << COMPLETION_SHIFT
            == siw_wqe_flags::SIW_WQE_SOLICITED.bits() as u32
        && SendFlags::FENCE.bits() << FENCE_SHIFT
            == siw_wqe_flags::SIW_WQE_READ_FENCE.bits() as u32
);

/// Offset of inline bytes in an element.
const INLINE: usize = offset_of!(siw_sqe, sge) + size_of::<siw_sge>();
const _: () = assert!(INLINE + SIW_MAX_INLINE == size_of::<siw_sqe>());

impl SendRing {
    /// Creates the producer's end of `ring`.
    ///
    /// Its requests have at most `max_sge` scatter/gather entries or `max_inline` bytes.
    pub(super) fn new(
        ring: Ring<siw_sqe>,
        max_sge: u32,
        max_inline: u32,
        signal_all: bool,
    ) -> Self {
        let too_long = if max_sge == 0 { 0 } else { TOO_LONG };
        let signaled = siw_wqe_flags::SIW_WQE_SIGNALLED;
        let flags = if signal_all { signaled } else { siw_wqe_flags::empty() };
        Self {
            ring,
            max_sge,
            too_long,
            max_inline,
            flags,
            connected: false,
            owes_doorbell: false,
            stored: 0,
        }
    }

    /// Stores any request in the ring for the kernel. Returns `true` if the request is stored.
    ///
    /// # Safety
    ///
    /// The caller keeps the contract of [`store`](SendOps::store).
    #[inline(never)]
    unsafe fn try_put(&mut self, request: &SendRequest<'_>) -> bool {
        // SAFETY: the contract of this function is that of the callee.
        unsafe { self.put(request) }.is_ok()
    }

    /// Stores a request in the ring for the kernel.
    ///
    /// # Safety
    ///
    /// The caller keeps the contract of [`store`](SendOps::store).
    #[inline(always)]
    pub(super) unsafe fn put(&mut self, request: &SendRequest<'_>) -> Posted {
        let (opcode, raddr, rkey) = match request.operation {
            SendOperation::Send => (siw_opcode::SIW_OP_SEND, 0, 0),
            SendOperation::SendWithInvalidate { rkey } => {
                (siw_opcode::SIW_OP_SEND_REMOTE_INV, 0, rkey)
            }
            SendOperation::Write { remote_addr, rkey } => {
                (siw_opcode::SIW_OP_WRITE, remote_addr, rkey)
            }
            SendOperation::Read { remote_addr, rkey } => {
                (siw_opcode::SIW_OP_READ, remote_addr, rkey)
            }
            ref other => return unsupported_operation(other),
        };
        let is_read = opcode == siw_opcode::SIW_OP_READ;
        if is_read && request.flags.contains(SendFlags::FENCE) {
            return Err(PostError::Invalid("siw cannot fence a read"));
        }
        let mut flags = flags(self.flags, request.flags);
        let mut element = self.ring.free()?;
        let num_sge = match request.payload {
            Payload::Gather(sges) => {
                let most = if is_read { self.max_sge.min(1) } else { self.max_sge };
                gather(&mut element, offset_of!(siw_sqe, sge), sges, most)?
            }
            Payload::Inline(bytes) => {
                if opcode == siw_opcode::SIW_OP_SEND_REMOTE_INV {
                    return Err(PostError::Unsupported(
                        "inline data in `SendWithInvalidate` by siw",
                    ));
                }
                let length = inline(bytes, self.max_inline)?;
                element.put(offset_of!(siw_sqe, sge), &siw_sge { length, ..siw_sge::default() });
                element.write(INLINE, bytes);
                flags |= siw_wqe_flags::SIW_WQE_INLINE;
                1
            }
        };
        store_operation(&mut element, request.wr_id, opcode, raddr, rkey);
        element.put(offset_of!(siw_sqe, num_sge), &num_sge);
        element.publish(flags);
        self.stored += 1;
        Ok(())
    }

    /// Checks that the kernel takes sends in `state`.
    fn check_connected(&mut self, doorbell: Doorbell<'_>, state: QpState) -> Posted {
        check_state(state)?;
        if self.connected || state == QpState::IB_QPS_ERR {
            return Ok(());
        }
        // Before RTS the kernel refuses a doorbell, and its request stays in the ring. Without a doorbell, nothing
        // happens.
        match ring(doorbell) {
            Ok(()) => {
                self.connected = true;
                Ok(())
            }
            Err(CommandError::Os(Errno::ENOTCONN)) => Err(PostError::Invalid(
                "the queue pair is not connected, and sends need IB_QPS_RTS",
            )),
            Err(refused) => Err(PostError::PartiallyPosted { refused, unposted: 1 }),
        }
    }

    /// Returns the result of posting the last `stored` requests, whose doorbell was refused.
    #[cold]
    fn refused(&mut self, refused: CommandError, stored: u32) -> Posted {
        match refused {
            // The connection is ending, and the kernel or the library flushes when it has ended.
            CommandError::Os(Errno::ENOTCONN) => Ok(()),
            CommandError::Os(Errno::EINVAL) => {
                // The first element that the kernel had not processed has stayed in the ring.
                let back = (0..stored).take_while(|_| self.ring.take_back()).count();
                self.owes_doorbell = false;
                match back {
                    // The threads that flush have the elements, or the kernel has them.
                    0 => Err(PostError::Command(refused)),
                    requests => Err(PostError::TakenBack {
                        requests,
                        reason: "reads need an initiator depth of at least 1",
                    }),
                }
            }
            refused => Err(PostError::Command(refused)),
        }
    }
}

impl SendOps for SendRing {
    /// Stores a request, at which the kernel may look before the doorbell is rung.
    unsafe fn store(
        &mut self,
        at: Doorbell<'_>,
        state: QpState,
        request: &SendRequest<'_>,
    ) -> Posted {
        self.check_connected(at, state)?;
        // SAFETY: the contract of this function is that of the callee.
        unsafe { self.put(request) }
    }

    /// Stores a send, write or read with one scatter/gather entry or short inline data.
    ///
    /// Returns `true` if the request was stored.
    #[inline(always)]
    unsafe fn try_store(&mut self, state: QpState, request: &SendRequest<'_>) -> bool {
        if !self.connected || state == QpState::IB_QPS_RESET {
            return false;
        }
        let (opcode, raddr, rkey) = match request.operation {
            SendOperation::Send => (siw_opcode::SIW_OP_SEND, 0, 0),
            SendOperation::Write { remote_addr, rkey } => {
                (siw_opcode::SIW_OP_WRITE, remote_addr, rkey)
            }
            SendOperation::Read { remote_addr, rkey }
                if !request.flags.contains(SendFlags::FENCE) =>
            {
                (siw_opcode::SIW_OP_READ, remote_addr, rkey)
            }
            // SAFETY: the contract of this function is that of the callee.
            _ => return unsafe { self.try_put(request) },
        };
        let Ok(mut element) = self.ring.free() else { return false };
        // These stores precede the payload, so that no register keeps the values. If the fast path ends below, the
        // other path fills the element again.
        store_operation(&mut element, request.wr_id, opcode, raddr, rkey);
        let mut flags = flags(self.flags, request.flags);
        match request.payload {
            Payload::Gather(&[sge]) if sge.length > 0 && sge.length < self.too_long => {
                element.put(offset_of!(siw_sqe, sge), &translated_sge(&sge));
            }
            Payload::Inline(bytes) => match inline(bytes, self.max_inline) {
                Ok(length) if element.write_if_short(INLINE, bytes) => {
                    element
                        .put(offset_of!(siw_sqe, sge), &siw_sge { length, ..siw_sge::default() });
                    flags |= siw_wqe_flags::SIW_WQE_INLINE;
                }
                // SAFETY: the contract of this function is that of the callee.
                _ => return unsafe { self.try_put(request) },
            },
            // SAFETY: as above.
            Payload::Gather(_) => return unsafe { self.try_put(request) },
        }
        element.put(offset_of!(siw_sqe, num_sge), &1_u8);
        element.publish(flags);
        self.stored += 1;
        true
    }

    /// Makes the kernel process the stored elements, by POST_SEND without requests, if it may be idle.
    #[inline(always)]
    fn ring(&mut self, doorbell: Doorbell<'_>) -> Posted {
        let stored = mem::take(&mut self.stored);
        if self.owes_doorbell || (stored > 0 && self.ring.needs_doorbell(stored)) {
            self.owes_doorbell = true;
            if let Err(refused) = ring(doorbell) {
                return self.refused(refused, stored);
            }
            self.owes_doorbell = false;
        }
        Ok(())
    }

    fn orphans(&self) -> Option<Box<dyn OrphanedRequests>> {
        Some(Box::new(self.ring.orphans()))
    }
}

/// Stores the fields of an element that name the request and the operation.
#[inline(always)]
fn store_operation(
    element: &mut Free<'_, siw_sqe>,
    wr_id: u64,
    opcode: siw_opcode,
    raddr: u64,
    rkey: u32,
) {
    element.put(offset_of!(siw_sqe, id), &AlignedU64::new(wr_id));
    element.put(offset_of!(siw_sqe, opcode), &opcode);
    element.put(offset_of!(siw_sqe, rkey), &rkey);
    element.put(offset_of!(siw_sqe, raddr), &AlignedU64::new(raddr));
}

/// Returns the flags of an element for a request with the flags `requested`.
///
/// All elements of the queue have the flags `common`.
#[inline(always)]
fn flags(common: siw_wqe_flags, requested: SendFlags) -> siw_wqe_flags {
    let completion = requested & (SendFlags::SIGNALED | SendFlags::SOLICITED);
    let fence = requested & SendFlags::FENCE;
    let bits = (completion.bits() << COMPLETION_SHIFT) | (fence.bits() << FENCE_SHIFT);
    #[expect(clippy::cast_possible_truncation, reason = "the flags have 5 bits")]
    let bits = bits as u16;
    common | siw_wqe_flags::from_bits_retain(bits)
}

/// Returns the error that siw does not support `operation`.
fn unsupported_operation(operation: &SendOperation<'_>) -> Posted {
    Err(PostError::Unsupported(match operation {
        SendOperation::Send
        | SendOperation::SendWithInvalidate { .. }
        | SendOperation::Write { .. }
        | SendOperation::Read { .. } => unreachable!("siw supports the operation"),
        SendOperation::SendTo { .. } => "datagrams by siw",
        SendOperation::SendWithImm { .. } | SendOperation::WriteWithImm { .. } => {
            "immediate data by siw"
        }
        SendOperation::CompareSwap { .. }
        | SendOperation::FetchAdd { .. }
        | SendOperation::AtomicWrite { .. } => "atomics by siw",
        SendOperation::Flush { .. } => "flush by siw",
        SendOperation::LocalInvalidate { .. } => {
            "local invalidation by siw, which only the kernel may post"
        }
        SendOperation::BindWindow(_) => "memory windows by siw",
        SendOperation::AtSharedQueue { .. } => "XRC by siw",
    }))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn flags_keep_their_meaning() {
        let none = siw_wqe_flags::empty();
        assert_eq!(flags(none, SendFlags::empty()), none);
        let all = SendFlags::SIGNALED | SendFlags::SOLICITED | SendFlags::FENCE;
        let expected = siw_wqe_flags::SIW_WQE_SIGNALLED
            | siw_wqe_flags::SIW_WQE_SOLICITED
            | siw_wqe_flags::SIW_WQE_READ_FENCE;
        assert_eq!(flags(none, all), expected);
        let signaled = siw_wqe_flags::SIW_WQE_SIGNALLED;
        assert_eq!(flags(signaled, SendFlags::empty()), signaled);
    }
}
