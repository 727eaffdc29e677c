//! Commands of ucma and uverbs: one `write` of a header and a request, and how it
//! fails.
//!
//! # Safety
//!
//! [`write()`] is `unsafe`: a command holds addresses.
#![expect(unsafe_code, reason = "a command holds addresses that the kernel follows")]

use std::os::fd::{AsRawFd, BorrowedFd};

use nix::errno::Errno;
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

use super::ownership::WrongProcess;
#[cfg(debug_assertions)]
use crate::lock;

/// Why a command had no success.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Refused {
    /// The kernel's errno.
    Os(Errno),
    /// An errno for which only the kernel has a name, such as 524, its
    /// ENOTSUPP.
    Unnamed(i32),
    /// The file belongs to another process, or to other credentials.
    WrongProcess(WrongProcess),
}

impl Refused {
    /// Why the system call failed that has just returned `errno`: nothing was called since.
    pub(super) fn just_now(errno: Errno) -> Self {
        match errno {
            Errno::UnknownErrno => Self::Unnamed(Errno::last_raw()),
            errno => Self::Os(errno),
        }
    }
}

/// One behind the other without a gap: a header and a request, of which neither device node takes
/// parts, or two responses.
#[derive(FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C, packed)]
#[expect(
    missing_debug_implementations,
    reason = "its fields cannot be borrowed, and callers take it apart"
)]
pub struct Joined<A, B>(pub A, pub B);

/// Writes a command.
///
/// EACCES is the kernel's word for "other credentials opened this file", but not for that alone
/// (binding a privileged port says it too), so it is asked again in a way that has no other
/// meaning.
///
/// # Safety
///
/// Every address in `command` must be valid for what the kernel does with it while the call lasts:
/// responses for writes of the length that the header gives, data for reads.
#[inline(always)]
pub unsafe fn write(fd: BorrowedFd<'_>, command: &[u8]) -> Result<(), Refused> {
    #[cfg(debug_assertions)]
    assert!(
        is_of_data_path(command) || !lock::forbids_commands(),
        "command {:?} should not be issued under the lock of an endpoint",
        command.first_chunk().copied().map(u32::from_ne_bytes)
    );
    // SAFETY: the contract of this function is that of the callee.
    match usize::try_from(unsafe { write_uncancelled(fd, command) }) {
        Ok(length) if length == command.len() => Ok(()),
        written => Err(refused_just_now(fd, written.is_ok())),
    }
}

/// Returns `true` if `command` posts or polls, which is done under the lock of an endpoint: see [`lock`].
///
/// Both device nodes count commands from zero. A command of uverbs has its length in words behind its number, and one of ucma
/// the length of its request in bytes.
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

/// The system call. Not by the C library's `write`, at which a thread can be cancelled: this one may
/// have a lock.
///
/// # Safety
///
/// That of [`write`].
#[inline(always)]
unsafe fn write_uncancelled(fd: BorrowedFd<'_>, bytes: &[u8]) -> libc::c_long {
    let (number, fd_number) = (libc::SYS_write, libc::c_long::from(fd.as_raw_fd()));
    // SAFETY: these are the arguments of the call: a number, and the pointer and length of a slice. What
    // the addresses in it must satisfy is this function's own contract.
    unsafe { libc::syscall(number, fd_number, bytes.as_ptr(), bytes.len()) }
}

/// Why a write to `fd` failed, or took a part of a command only: nothing was called since.
#[cold]
fn refused_just_now(fd: BorrowedFd<'_>, is_short: bool) -> Refused {
    if is_short {
        // As librdmacm has it. The kernel never should.
        return Refused::Os(Errno::ENODATA);
    }
    match Refused::just_now(Errno::last()) {
        Refused::Os(Errno::EACCES) if !credentials_match(fd) => {
            Refused::WrongProcess(WrongProcess::Credentials)
        }
        refused => refused,
    }
}

/// Returns `true` if the kernel accepts commands on `fd` from this thread's credentials.
///
/// Both nodes look at the credentials first and at the length second, so a write that is too short
/// to be a command tells the one from the other and does nothing.
fn credentials_match(fd: BorrowedFd<'_>) -> bool {
    // SAFETY: the byte holds no address.
    let written = unsafe { write_uncancelled(fd, &[0]) };
    written >= 0 || Errno::last() != Errno::EACCES
}

#[cfg(test)]
mod tests {
    use super::*;

    use std::os::fd::AsFd;

    #[test]
    fn what_is_joined_stands_in_a_row() {
        let joined = Joined([1_u8, 2], Joined((), 0x0605_0403_u32.to_le_bytes()));
        assert_eq!(joined.as_bytes(), [1, 2, 3, 4, 5, 6]);
    }

    #[test]
    fn an_errno_without_a_name_keeps_its_number() {
        for (raw, refused) in [(524, Refused::Unnamed(524)), (22, Refused::Os(Errno::EINVAL))] {
            Errno::set_raw(raw);
            let errno = Errno::result(-1).expect_err("it failed");
            let why = Refused::just_now(errno);
            assert_eq!(why, refused);
        }
    }

    #[test]
    #[cfg(debug_assertions)]
    fn only_data_path_is_allowed_under_lock() {
        // POST_SEND and POLL_CQ of uverbs; RESOLVE_ADDR of ucma has the number of POLL_CQ; MODIFY_QP.
        let header =
            |number: u32, length: u16| [&number.to_ne_bytes()[..], &length.to_ne_bytes()].concat();
        for (number, length, bytes, is_allowed) in
            [(28, 6, 24, true), (21, 6, 24, true), (21, 16, 24, false), (26, 6, 24, false)]
        {
            let mut command = header(number, length);
            command.resize(bytes, 0);
            assert_eq!(is_of_data_path(&command), is_allowed, "{number}");
        }
        assert!(!is_of_data_path(&[]));
    }

    #[test]
    #[cfg(debug_assertions)]
    #[should_panic = "should not be issued under the lock"]
    fn command_under_lock_panics() {
        let _locked = lock::NoCommands::begin();
        let null = std::fs::File::options().write(true).open("/dev/null").expect("open");
        // SAFETY: the command holds no address.
        let _ = unsafe { write(null.as_fd(), &[0; 8]) };
    }

    #[test]
    fn a_short_write_is_enodata() {
        let (reader, writer) = nix::unistd::pipe2(nix::fcntl::OFlag::O_NONBLOCK).expect("pipe");
        let filler = vec![0; 65_536 - 4096];
        nix::unistd::write(&writer, &filler).expect("fill the pipe but for a page");
        // SAFETY: a pipe follows no addresses.
        let written = unsafe { write(writer.as_fd(), &[0; 8192]) };
        assert_eq!(written, Err(Refused::Os(Errno::ENODATA)));
        drop(reader);
    }
}
