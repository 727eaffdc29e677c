//! Commands of ucma and uverbs: one `write` of a header and a request, and its errors.
//!
//! # Safety
//!
//! [`write()`] is `unsafe`: a command holds addresses.
#![expect(unsafe_code, reason = "a command holds addresses that the kernel follows")]

use std::os::fd::{AsRawFd, BorrowedFd};

use nix::errno::Errno;
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

use super::ownership::NotOwner;
#[cfg(debug_assertions)]
use crate::lock;

/// The reason why a command failed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CommandError {
    /// The kernel's errno.
    Os(Errno),
    /// An errno for which only the kernel has a name, such as 524, its
    /// ENOTSUPP.
    Unnamed(i32),
    /// The file belongs to another process, or to other credentials.
    NotOwner(NotOwner),
}

impl CommandError {
    /// Returns the reason why the last system call failed, with its `errno`.
    ///
    /// No other call may have been made since.
    pub(super) fn last_os_error(errno: Errno) -> Self {
        match errno {
            Errno::UnknownErrno => Self::Unnamed(Errno::last_raw()),
            errno => Self::Os(errno),
        }
    }
}

/// Two values without a gap between them.
///
/// They are a header and a request, which a device node takes as a whole only, or two responses.
#[derive(FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C, packed)]
#[expect(
    missing_debug_implementations,
    reason = "its fields cannot be borrowed, and callers take it apart"
)]
pub struct Joined<A, B>(pub A, pub B);

/// Returns an address in the form of the kernel ABI.
pub(super) fn address<T>(pointer: *mut T) -> u64 {
    u64::try_from(pointer.expose_provenance()).expect("an address has at most 64 bits")
}

/// Writes a command.
///
/// The kernel returns EACCES if other credentials opened the file, but also for other reasons, such as binding a
/// privileged port. So the function repeats the check in a way that has no other meaning.
///
/// # Safety
///
/// Every address in `command` must be valid for the kernel's accesses while the call lasts: responses for writes of the
/// length that the header gives, data for reads.
#[inline(always)]
pub unsafe fn write(fd: BorrowedFd<'_>, command: &[u8]) -> Result<(), CommandError> {
    #[cfg(debug_assertions)]
    assert!(
        is_of_data_path(command) || !lock::forbids_commands(),
        "command {:?} should not be issued under the lock of an endpoint",
        command.first_chunk().copied().map(u32::from_ne_bytes)
    );
    // SAFETY: the contract of this function is that of the callee.
    match usize::try_from(unsafe { write_uncanceled(fd, command) }) {
        Ok(length) if length == command.len() => Ok(()),
        written => Err(last_command_error(fd, written.is_ok())),
    }
}

/// Returns `true` if `command` posts or polls, which may happen under the lock of an endpoint.
///
/// See [`lock`].
///
/// Both device nodes count commands from zero. In a command of uverbs, the length in words follows the number. In a
/// command of ucma, the length of the request in bytes does.
#[cfg(debug_assertions)]
fn is_of_data_path(command: &[u8]) -> bool {
    use verbs_abi::{
        IB_USER_VERBS_CMD_POLL_CQ, IB_USER_VERBS_CMD_POST_RECV, IB_USER_VERBS_CMD_POST_SEND,
        IB_USER_VERBS_CMD_POST_SRQ_RECV,
    };

    const DATA_PATH: [u32; 4] = [
        IB_USER_VERBS_CMD_POLL_CQ,
        IB_USER_VERBS_CMD_POST_RECV,
        IB_USER_VERBS_CMD_POST_SEND,
        IB_USER_VERBS_CMD_POST_SRQ_RECV,
    ];
    let Some([a, b, c, d, e, f]) = command.first_chunk().copied() else { return false };
    let words = usize::from(u16::from_ne_bytes([e, f]));
    words * 4 == command.len() && DATA_PATH.contains(&u32::from_ne_bytes([a, b, c, d]))
}

/// Makes the system call.
///
/// The C library's `write` is not used, because a thread can be canceled in it, and this thread may hold a lock.
///
/// # Safety
///
/// The contract is that of [`write()`].
#[inline(always)]
unsafe fn write_uncanceled(fd: BorrowedFd<'_>, bytes: &[u8]) -> libc::c_long {
    let (number, fd_number) = (libc::SYS_write, libc::c_long::from(fd.as_raw_fd()));
    // SAFETY: these are the arguments of the call: a number, and the pointer and length of a slice. This function's own
    // contract covers the addresses in the slice.
    unsafe { libc::syscall(number, fd_number, bytes.as_ptr(), bytes.len()) }
}

/// Returns the reason why the last write to `fd` failed, or took only a part of a command.
///
/// No other call may have been made since.
#[cold]
fn last_command_error(fd: BorrowedFd<'_>, is_short: bool) -> CommandError {
    if is_short {
        // librdmacm uses this errno too. The kernel should never take only a part of a command.
        return CommandError::Os(Errno::ENODATA);
    }
    match CommandError::last_os_error(Errno::last()) {
        CommandError::Os(Errno::EACCES) if !credentials_match(fd) => {
            CommandError::NotOwner(NotOwner::Credentials)
        }
        refused => refused,
    }
}

/// Returns `true` if the kernel accepts commands on `fd` from this thread's credentials.
///
/// Both nodes check the credentials first and the length second. So a write that is too short for a command
/// distinguishes the two errors and has no effect.
fn credentials_match(fd: BorrowedFd<'_>) -> bool {
    // SAFETY: the byte holds no address.
    let written = unsafe { write_uncanceled(fd, &[0]) };
    written >= 0 || Errno::last() != Errno::EACCES
}

#[cfg(test)]
mod tests;
