//! Descriptors that are read for events, one with each read.

use std::array;
use std::io::IoSliceMut;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::time::Instant;

use nix::errno::Errno;
use nix::sys::uio::readv;
use zerocopy::{FromBytes, IntoBytes};

use crate::error::{Error, IntoError as _, Result, Wait};
use crate::sys::command::Refused;
use crate::sys::poll::Waiting;

/// What is done to such a descriptor.
pub(super) const READ: &str = "read";

/// The owner of the descriptor, which belongs to a process and a device.
pub(super) trait EventOwner {
    /// Refuses `operation` on `what` in a child of the process.
    fn check_process(&self, operation: &'static str, what: &'static str) -> Result<()>;

    /// Returns the error of `operation` on `what`, which the kernel has refused.
    fn refused(&self, operation: &'static str, what: &'static str, refused: Refused) -> Error;
}

/// A descriptor of events `E` of a context.
#[derive(Debug)]
pub(super) struct EventFile {
    fd: OwnedFd,
    waiting: Waiting,
    /// What reading it waits for, and what it is to the program.
    wait: &'static Wait,
}

impl EventFile {
    pub(super) fn new(fd: OwnedFd, wait: &'static Wait) -> Self {
        Self { fd, waiting: Waiting::default(), wait }
    }

    pub(super) fn raw(&self) -> i32 {
        self.fd.as_raw_fd()
    }

    /// The next event that `take` makes the program's; waits for one unless the descriptor is
    /// non-blocking.
    pub(super) fn next<D, E>(
        &self,
        owner: &impl EventOwner,
        take: impl Fn(&D) -> Option<E>,
    ) -> Result<E>
    where
        D: FromBytes + IntoBytes,
    {
        loop {
            owner.check_process(READ, self.wait.subject)?;
            let read = self.waiting.read(self.as_fd(), || self.read());
            if let Some(event) = take(&self.whole(owner, read)?) {
                return Ok(event);
            }
        }
    }

    /// The same, or `None` if none came until `deadline`.
    pub(super) fn next_by<D, E>(
        &self,
        owner: &impl EventOwner,
        deadline: Option<Instant>,
        take: impl Fn(&D) -> Option<E>,
    ) -> Result<Option<E>>
    where
        D: FromBytes + IntoBytes,
    {
        owner.check_process(READ, self.wait.subject)?;
        loop {
            let read = self.waiting.read_by(self.as_fd(), deadline, || self.read());
            let Some(read) = read.transpose() else { return Ok(None) };
            if let Some(event) = take(&self.whole(owner, read)?) {
                return Ok(Some(event));
            }
        }
    }

    /// Has `each` look at the events that have come first, at most `MOST`, and drops them; none is no error. The descriptor is
    /// to be non-blocking.
    pub(super) fn drop_now<D, const MOST: usize>(
        &self,
        owner: &impl EventOwner,
        each: impl FnMut(&D),
    ) -> Result<()>
    where
        D: FromBytes + IntoBytes,
    {
        let mut events: [D; MOST] = array::from_fn(|_| D::new_zeroed());
        // The kernel fills one with each event.
        let mut pieces = events.each_mut().map(|event| IoSliceMut::new(event.as_mut_bytes()));
        let length = match readv(&self.fd, &mut pieces) {
            Err(Errno::EAGAIN) => 0,
            read => {
                let failed = |errno| owner.refused(READ, self.wait.subject, Refused::Os(errno));
                read.map_err(failed)?
            }
        };
        events.iter().take(length / size_of::<D>()).for_each(each);
        Ok(())
    }

    /// Takes the next event from the kernel; how many bytes it has.
    fn read<D: FromBytes + IntoBytes>(&self) -> Result<(D, usize), Refused> {
        let mut event = D::new_zeroed();
        let length = nix::unistd::read(&self.fd, event.as_mut_bytes());
        Ok((event, length.map_err(Refused::Os)?))
    }

    /// What was read, if it is an event.
    fn whole<D>(&self, owner: &impl EventOwner, read: Result<(D, usize), Refused>) -> Result<D> {
        let (event, length) = read.map_err(|refused| match refused {
            Refused::Os(Errno::EAGAIN) => refused.during_wait(self.wait),
            refused => owner.refused(READ, self.wait.subject, refused),
        })?;
        if length != size_of::<D>() {
            let what = format!("{length} bytes where an event has {}", size_of::<D>());
            return Err(Error::malformed(READ, self.wait.subject, what));
        }
        Ok(event)
    }

    /// Makes [`next`](Self::next) say that it would block instead of waiting, or wait again.
    pub(super) fn set_nonblocking(&self, owner: &impl EventOwner, nonblocking: bool) -> Result<()> {
        const OPERATION: &str = "set the blocking mode of";
        owner.check_process(OPERATION, self.wait.subject)?;
        let set = self.waiting.set_nonblocking(self.as_fd(), nonblocking);
        set.map_err(|refused| owner.refused(OPERATION, self.wait.subject, refused))
    }
}

impl AsFd for EventFile {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }
}
