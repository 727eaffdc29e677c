//! The kernel that this machine runs.
//!
//! # Safety
//!
//! What is written to a device node holds addresses that the kernel follows. All of them are put in here, and lead into
//! an [`Arena`]: memory of its own that is shared with the kernel and with forked children, that nothing else of the
//! program refers to, and that is read and written by copying only. A check may send any bytes otherwise: where the
//! request has no address, the kernel is given none of the program's memory.
//!
//! A child that is forked makes one system call, stores its result in that memory and ends.
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

use super::kernel::{Answer, Call, Caller, File, Kernel, Means, Target};

/// What the memory for the response holds before a call.
const UNTOUCHED: u8 = 0xa5;

/// Bytes in a page. More is no harm: only that what lies behind a page is not there.
const PAGE: usize = 1 << 16;

/// The pages, each in front of one that nobody may touch.
const REQUEST: usize = 0;
const RESPONSE: usize = 2 * PAGE;
const DATA: usize = 4 * PAGE;
const RESULT: usize = 6 * PAGE;
const ALL: usize = 8 * PAGE;

/// Bytes of response that are looked at; more than any response has.
pub(super) const ROOM: usize = 4096;

/// How long an event may take on a loaded machine.
const PATIENCE_MS: u16 = 60_000;

/// Memory that the kernel is told of.
struct Arena(NonNull<u8>);

impl Arena {
    fn new() -> Result<Self, Errno> {
        let length = NonZeroUsize::new(ALL).expect("it is not 0");
        let access = ProtFlags::PROT_READ | ProtFlags::PROT_WRITE;
        // SAFETY: a new mapping where the kernel chooses concerns nobody.
        let start = unsafe { mmap_anonymous(None, length, access, MapFlags::MAP_SHARED) }?;
        let arena = Self(start.cast());
        for page in [REQUEST, RESPONSE, DATA, RESULT] {
            let fence = arena.at(page + PAGE).cast();
            // SAFETY: the page is one of this mapping, which nothing refers to.
            unsafe { mprotect(fence, PAGE, ProtFlags::PROT_NONE) }?;
        }
        Ok(arena)
    }

    /// A place in the mapping.
    fn at(&self, offset: usize) -> NonNull<u8> {
        assert!(offset < ALL, "it is in the mapping");
        // SAFETY: the offset is within the mapping, one allocation.
        unsafe { self.0.add(offset) }
    }

    fn address(&self, offset: usize) -> u64 {
        u64::try_from(self.at(offset).as_ptr().expose_provenance()).expect("64 bits hold it")
    }

    /// Puts `bytes` at the end of `page`, and returns where.
    fn put_at_end(&self, page: usize, bytes: &[u8]) -> usize {
        assert!(bytes.len() < PAGE, "requests are short");
        let offset = page + PAGE - bytes.len();
        let to = self.0.as_ptr().wrapping_add(offset);
        // SAFETY: the source is a slice; the destination is the last bytes of a page of the mapping that may be written, and is
        // nobody's else; bytes have no alignment.
        unsafe { ptr::copy_nonoverlapping(bytes.as_ptr(), to, bytes.len()) };
        offset
    }

    fn forget_response(&self) {
        // SAFETY: so many bytes of the page may be written, and are nobody's else.
        unsafe { ptr::write_bytes(self.at(RESPONSE).as_ptr(), UNTOUCHED, ROOM) };
    }

    fn response(&self) -> Vec<u8> {
        let mut bytes = vec![0; ROOM];
        // SAFETY: so many bytes of the page may be read, and no call that would store there is under way; the destination is a
        // vector of that length.
        unsafe { ptr::copy_nonoverlapping(self.at(RESPONSE).as_ptr(), bytes.as_mut_ptr(), ROOM) };
        let touched = bytes.iter().rposition(|byte| *byte != UNTOUCHED);
        bytes.truncate(touched.map_or(0, |last| last + 1));
        bytes
    }

    fn set_result(&self, result: isize) {
        // SAFETY: the page may be written, begins at a multiple of any alignment, and is nobody's else while a call is under way.
        unsafe { self.at(RESULT).cast().write(result) };
    }

    fn result(&self) -> isize {
        // SAFETY: as in `set_result`; any bytes are a number.
        unsafe { self.at(RESULT).cast().read() }
    }
}

impl Drop for Arena {
    fn drop(&mut self) {
        // SAFETY: the mapping is this object's, of this length, and nothing refers to it any more. That it fails for no such
        // mapping is known.
        let _ = unsafe { munmap(self.0.cast(), ALL) };
    }
}

/// The kernel that this machine runs.
pub(super) struct Real {
    arena: Arena,
    files: Vec<Option<OwnedFd>>,
    /// What came in responses.
    received: Vec<OwnedFd>,
}

impl Real {
    pub(super) fn new() -> Result<Self, Errno> {
        Ok(Self { arena: Arena::new()?, files: Vec::new(), received: Vec::new() })
    }

    fn fd(&self, File(index): File) -> &OwnedFd {
        self.files[index].as_ref().expect("the check has not closed it")
    }

    /// What the system call returns for the request at `address`, or its errno as a negative number.
    fn system_call(fd: RawFd, means: Means, address: u64, count: usize) -> isize {
        let returned = match means {
            // SAFETY: the request and all memory that its addresses lead to are the arena's; a length beyond the page leads
            // to where nothing is.
            Means::Write => unsafe { libc::syscall(libc::SYS_write, fd, address, count) },
            // SAFETY: the same; the request says its length itself.
            Means::Ioctl => unsafe {
                libc::syscall(libc::SYS_ioctl, fd, RDMA_VERBS_IOCTL, address)
            },
        };
        let returned = match returned {
            -1 => -i64::from(Errno::last_raw()),
            done => done,
        };
        isize::try_from(returned).expect("it is a result of a system call")
    }

    /// The same of a thread, with credentials of its own if so wanted.
    fn of_a_thread(other_credentials: bool, call: impl FnOnce() -> isize + Send) -> isize {
        let call = || {
            if other_credentials {
                // SAFETY: the arguments are numbers. The flag is not set anyway: the kernel gives the thread new credentials that
                // are equal to its old ones.
                let set = unsafe { libc::prctl(libc::PR_SET_KEEPCAPS, 0, 0, 0, 0) };
                if set != 0 {
                    return -isize::try_from(Errno::last_raw()).expect("errnos are small");
                }
            }
            call()
        };
        thread::scope(|scope| scope.spawn(call).join().expect("a system call does not panic"))
    }

    /// The same of a forked child.
    fn of_a_child(&self, call: impl FnOnce() -> isize) -> isize {
        // SAFETY: the child makes a system call, stores a number in shared memory and ends: it takes no lock and allocates
        // nothing.
        match unsafe { fork() } {
            Ok(ForkResult::Child) => {
                self.arena.set_result(call());
                // SAFETY: it has no preconditions.
                unsafe { libc::_exit(0) }
            }
            Ok(ForkResult::Parent { child }) => {
                waitpid(child, None).expect("the child is this process's own");
                self.arena.result()
            }
            Err(errno) => -isize::try_from(errno as i32).expect("errnos are small"),
        }
    }

    /// Takes the descriptor that a response has at `offset`.
    fn receive(&mut self, response: &[u8], offset: usize) {
        let number = response.get(offset..offset + size_of::<i32>());
        let Some(number) = number.map(|bytes| bytes.try_into().expect("so many were taken")) else {
            return;
        };
        let number = RawFd::from_ne_bytes(number);
        if number >= 0 {
            // SAFETY: the kernel has just made this descriptor for us, as the call had success: nobody else has it.
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
        u32::try_from(self.fd(file).as_raw_fd()).expect("descriptors are not negative")
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
            // A request that is cut short may lack its address.
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
            Caller::Thread => Self::of_a_thread(false, run),
            Caller::OtherCredentials => Self::of_a_thread(true, run),
            Caller::Child => self.of_a_child(run),
        };
        let returned =
            usize::try_from(result).map_err(|_| i32::try_from(-result).expect("it is an errno"));
        let stored = self.arena.response();
        // What a child was given went with it.
        if let (Ok(_), Some(offset), false) =
            (returned, call.descriptor, call.caller == Caller::Child)
        {
            self.receive(&stored, offset);
        }
        Answer { returned, count: call.expected_return(), stored }
    }

    fn wait(&mut self, file: File) -> bool {
        let mut waiting = [PollFd::new(self.fd(file).as_fd(), PollFlags::POLLIN)];
        poll(&mut waiting, PollTimeout::from(PATIENCE_MS)).is_ok_and(|ready| ready == 1)
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
mod tests {
    use super::*;

    #[test]
    fn a_request_ends_where_memory_ends() {
        let mut kernel = Real::new().unwrap();
        // It copies from the request, as the nodes do.
        let pipe = nix::unistd::pipe2(nix::fcntl::OFlag::O_NONBLOCK).unwrap();
        kernel.files.push(Some(pipe.1));
        let file = File(0);
        let call = Call::write(vec![7; 16]);
        let answer = kernel.call(file, &call);
        assert_eq!((answer.returned, answer.count), (Ok(16), 16));
        let answer = kernel.call(file, &call.clone().cut_off(0));
        assert_eq!(answer.returned, Err(libc::EFAULT));
        for caller in [Caller::Thread, Caller::OtherCredentials, Caller::Child] {
            assert_eq!(kernel.call(file, &call.clone().by(caller)).returned, Ok(16), "{caller:?}");
        }
        kernel.end();
    }

    #[test]
    fn what_is_not_there_cannot_be_opened() {
        let mut kernel = Real::new().unwrap();
        assert_eq!(kernel.open("/dev/infiniband/none"), Err(libc::ENOENT));
        let null = kernel.open("/dev/null").unwrap();
        assert!(kernel.descriptor(null) > 2);
    }

    #[test]
    fn what_is_stored_ends_at_the_last_byte_that_changed() {
        let kernel = Real::new().unwrap();
        kernel.arena.forget_response();
        assert_eq!(kernel.arena.response(), []);
        // SAFETY: the page may be written and is nobody's else.
        unsafe { kernel.arena.at(RESPONSE + 3).write(0) };
        assert_eq!(kernel.arena.response(), [UNTOUCHED, UNTOUCHED, UNTOUCHED, 0]);
    }
}
