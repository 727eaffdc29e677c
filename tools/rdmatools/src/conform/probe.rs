//! The running kernel.
//!
//! # Safety
//!
//! A request to a device node contains addresses that the kernel follows. All of them are inserted in this file, and
//! point into an [`Arena`]: a separate mapping that is shared with the kernel and with forked children. No reference to
//! this memory exists, and the program accesses it only by copying. All other bytes of a check are arbitrary: a request
//! without an address gives the kernel no access to the program's memory.
//!
//! A forked child makes one system call, stores its result in that memory and exits.
#![expect(unsafe_code, reason = "requests hold addresses, and a child is forked")]

use std::fs::OpenOptions;
use std::num::NonZeroUsize;
use std::os::fd::{AsFd, AsRawFd, FromRawFd, OwnedFd, RawFd};
use std::os::unix::fs::OpenOptionsExt;
use std::ptr::{self, NonNull};
use std::thread;

use nix::errno::Errno;
use nix::libc;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::mman::{MapFlags, ProtFlags, mmap_anonymous, mprotect, munmap};
use nix::sys::wait::waitpid;
use nix::unistd::{ForkResult, fork};
use verbs_abi::ioctl::RDMA_VERBS_IOCTL;

use super::kernel::{Answer, Call, Caller, File, Kernel, SystemCall, Target};

/// Initial value of the response memory before a call.
const UNTOUCHED: u8 = 0xa5;

/// Distance of the arena's pages in bytes.
///
/// It may exceed the kernel's page size: only the inaccessible page after each one matters.
const PAGE: usize = 1 << 16;

/// Offsets of the pages, each of which is followed by an inaccessible page.
const REQUEST: usize = 0;
const RESPONSE: usize = 2 * PAGE;
const DATA: usize = 4 * PAGE;
const RESULT: usize = 6 * PAGE;
const ARENA_LENGTH: usize = 8 * PAGE;

/// Bytes of the response memory that are checked; more than any response has.
pub(super) const ROOM: usize = 4096;

/// Time limit for an event on a loaded machine, in milliseconds.
const EVENT_TIMEOUT_MS: u16 = 60_000;

/// Memory whose addresses are passed to the kernel.
struct Arena(NonNull<u8>);

impl Arena {
    fn new() -> Result<Self, Errno> {
        let length = NonZeroUsize::new(ARENA_LENGTH).expect("the length should not be 0");
        let access = ProtFlags::PROT_READ | ProtFlags::PROT_WRITE;
        // SAFETY: a new mapping at an address chosen by the kernel affects no other memory.
        let start = unsafe { mmap_anonymous(None, length, access, MapFlags::MAP_SHARED) }?;
        let arena = Self(start.cast());
        for page in [REQUEST, RESPONSE, DATA, RESULT] {
            let fence = arena.at(page + PAGE).cast();
            // SAFETY: the page is part of this mapping, and no reference to it exists.
            unsafe { mprotect(fence, PAGE, ProtFlags::PROT_NONE) }?;
        }
        Ok(arena)
    }

    /// Returns a pointer into the mapping.
    fn at(&self, offset: usize) -> NonNull<u8> {
        assert!(offset < ARENA_LENGTH, "the offset should be in the mapping");
        // SAFETY: the offset is within the mapping, which is a single allocation.
        unsafe { self.0.add(offset) }
    }

    fn address(&self, offset: usize) -> u64 {
        u64::try_from(self.at(offset).as_ptr().expose_provenance())
            .expect("an address should fit in 64 bits")
    }

    /// Copies `bytes` to the end of `page`, and returns their offset.
    fn put_at_end(&self, page: usize, bytes: &[u8]) -> usize {
        assert!(bytes.len() < PAGE, "requests are short");
        let offset = page + PAGE - bytes.len();
        let to = self.0.as_ptr().wrapping_add(offset);
        // SAFETY: the source is a slice; the destination is the end of a writable page of the mapping, to which no
        // reference exists; bytes have no alignment.
        unsafe { ptr::copy_nonoverlapping(bytes.as_ptr(), to, bytes.len()) };
        offset
    }

    fn forget_response(&self) {
        // SAFETY: these bytes of the page are writable, and no reference to them exists.
        unsafe { ptr::write_bytes(self.at(RESPONSE).as_ptr(), UNTOUCHED, ROOM) };
    }

    fn response(&self) -> Vec<u8> {
        let mut bytes = vec![0; ROOM];
        // SAFETY: these bytes of the page are readable, and no call that could write them is in progress; the
        // destination is a vector of that length.
        unsafe { ptr::copy_nonoverlapping(self.at(RESPONSE).as_ptr(), bytes.as_mut_ptr(), ROOM) };
        let touched = bytes.iter().rposition(|byte| *byte != UNTOUCHED);
        bytes.truncate(touched.map_or(0, |last| last + 1));
        bytes
    }

    fn set_result(&self, result: isize) {
        // SAFETY: the page is writable and aligned for any type, and no reference to it exists while a call is in
        // progress.
        unsafe { self.at(RESULT).cast().write(result) };
    }

    fn result(&self) -> isize {
        // SAFETY: as in `set_result`; any bytes are a valid number.
        unsafe { self.at(RESULT).cast().read() }
    }
}

impl Drop for Arena {
    fn drop(&mut self) {
        // SAFETY: the mapping is owned by this object, has this length, and no reference to it exists any more. The
        // only error is that there is no such mapping, which is impossible.
        let _ = unsafe { munmap(self.0.cast(), ARENA_LENGTH) };
    }
}

/// The running kernel.
pub(super) struct Real {
    arena: Arena,
    files: Vec<Option<OwnedFd>>,
    /// Descriptors that were received in responses.
    received: Vec<OwnedFd>,
}

impl Real {
    pub(super) fn new() -> Result<Self, Errno> {
        Ok(Self { arena: Arena::new()?, files: Vec::new(), received: Vec::new() })
    }

    fn fd(&self, File(index): File) -> &OwnedFd {
        self.files[index].as_ref().expect("the file should be open")
    }

    /// Makes a system call with the request at `address`.
    ///
    /// Returns its result, or its errno as a negative number.
    fn system_call(fd: RawFd, means: SystemCall, address: u64, count: usize) -> isize {
        let returned = match means {
            // SAFETY: the request and all memory at its addresses are in the arena; a length beyond the page ends in
            // the inaccessible page.
            SystemCall::Write => unsafe { libc::syscall(libc::SYS_write, fd, address, count) },
            // SAFETY: as above; the request contains its own length.
            SystemCall::Ioctl => unsafe {
                libc::syscall(libc::SYS_ioctl, fd, RDMA_VERBS_IOCTL, address)
            },
        };
        let returned = match returned {
            -1 => -i64::from(Errno::last_raw()),
            done => done,
        };
        isize::try_from(returned).expect("the result of a system call should fit")
    }

    /// Makes a system call in another thread, with its own credentials if requested.
    fn call_in_thread(other_credentials: bool, call: impl FnOnce() -> isize + Send) -> isize {
        let call = || {
            if other_credentials {
                // SAFETY: the arguments are numbers. The flag is already clear: the call only makes the kernel give the
                // thread new credentials that are equal to its old ones.
                let set = unsafe { libc::prctl(libc::PR_SET_KEEPCAPS, 0, 0, 0, 0) };
                if set != 0 {
                    return -isize::try_from(Errno::last_raw()).expect("errnos should be small");
                }
            }
            call()
        };
        thread::scope(|scope| scope.spawn(call).join().expect("a system call should not panic"))
    }

    /// Makes a system call in a forked child.
    fn call_in_child(&self, call: impl FnOnce() -> isize) -> isize {
        // SAFETY: the child makes a system call, stores a number in shared memory and exits: it takes no lock and
        // allocates no memory.
        match unsafe { fork() } {
            Ok(ForkResult::Child) => {
                self.arena.set_result(call());
                // SAFETY: the function has no preconditions.
                unsafe { libc::_exit(0) }
            }
            Ok(ForkResult::Parent { child }) => {
                waitpid(child, None).expect("the child should be waitable");
                self.arena.result()
            }
            Err(errno) => -isize::try_from(errno as i32).expect("errnos should be small"),
        }
    }

    /// Takes ownership of the descriptor at `offset` of a response.
    fn receive(&mut self, response: &[u8], offset: usize) {
        let number = response.get(offset..offset + size_of::<i32>());
        let Some(number) =
            number.map(|bytes| bytes.try_into().expect("the slice should have 4 bytes"))
        else {
            return;
        };
        let number = RawFd::from_ne_bytes(number);
        if number >= 0 {
            // SAFETY: the successful call has just created this descriptor: it has no other owner.
            self.received.push(unsafe { OwnedFd::from_raw_fd(number) });
        }
    }
}

impl Kernel for Real {
    fn open(&mut self, node: &str) -> Result<File, i32> {
        let mut options = OpenOptions::new();
        options.read(true).write(true).custom_flags(libc::O_NONBLOCK | libc::O_CLOEXEC);
        let opened = options.open(node);
        let file = opened.map_err(|error| error.raw_os_error().unwrap_or(libc::EIO))?;
        self.files.push(Some(file.into()));
        Ok(File(self.files.len() - 1))
    }

    fn descriptor(&self, file: File) -> u32 {
        u32::try_from(self.fd(file).as_raw_fd()).expect("descriptors should not be negative")
    }

    fn call(&mut self, file: File, call: &Call) -> Answer {
        self.arena.forget_response();
        let data = self.arena.put_at_end(DATA, &call.data);
        let mut bytes = call.bytes.clone();
        for (offset, target) in &call.pointers {
            let address = self.arena.address(match target {
                Target::Response => RESPONSE,
                Target::Data => data,
                Target::Nowhere => RESPONSE + PAGE,
            });
            // A truncated request may lack its address.
            if let Some(place) = bytes.get_mut(*offset..offset + size_of::<u64>()) {
                place.copy_from_slice(&address.to_ne_bytes());
            }
        }
        let request = self.arena.put_at_end(REQUEST, &bytes);
        let (fd, address) = (self.fd(file).as_raw_fd(), self.arena.address(request));
        let (means, count) = (call.means, call.count());
        let run = || Self::system_call(fd, means, address, count);
        let result = match call.caller {
            Caller::Opener => run(),
            Caller::Thread => Self::call_in_thread(false, run),
            Caller::OtherCredentials => Self::call_in_thread(true, run),
            Caller::Child => self.call_in_child(run),
        };
        let returned = usize::try_from(result)
            .map_err(|_| i32::try_from(-result).expect("a negative result should be an errno"));
        let stored = self.arena.response();
        // A descriptor that a child received was closed when the child exited.
        if let (Ok(_), Some(offset), false) =
            (returned, call.descriptor, call.caller == Caller::Child)
        {
            self.receive(&stored, offset);
        }
        Answer { returned, count: call.expected_return(), stored }
    }

    fn wait(&mut self, file: File) -> bool {
        let mut waiting = [PollFd::new(self.fd(file).as_fd(), PollFlags::POLLIN)];
        poll(&mut waiting, PollTimeout::from(EVENT_TIMEOUT_MS)).is_ok_and(|ready| ready == 1)
    }

    fn close(&mut self, File(index): File) {
        self.files[index] = None;
    }

    fn end(&mut self) {
        self.received.clear();
        self.files.clear();
    }
}

#[cfg(test)]
mod tests;
