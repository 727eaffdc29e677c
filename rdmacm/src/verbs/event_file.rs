//! Event descriptors ([`EventFile`]). Each read returns one event.

use std::array;
use std::io::IoSliceMut;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::time::Instant;

use nix::errno::Errno;
use nix::sys::uio::readv;
use zerocopy::{FromBytes, IntoBytes};

use crate::error::{Error, IntoError as _, Result, Wait};
use crate::sys::command::CommandError;
use crate::sys::poll::Waiting;

/// Name of the operation in errors.
pub(super) const READ: &str = "read";

/// The owner of the descriptor, which belongs to a process and a device.
pub(super) trait EventOwner {
    /// Returns an error for `operation` on `what` in a forked child.
    fn check_process(&self, operation: &'static str, what: &'static str) -> Result<()>;

    /// Builds the error of `operation` on `what`, which the kernel has refused.
    fn refused(&self, operation: &'static str, what: &'static str, refused: CommandError) -> Error;
}

/// A descriptor from which events of a context are read.
#[derive(Debug)]
pub(super) struct EventFile {
    fd: OwnedFd,
    waiting: Waiting,
    /// The operation and the subject for errors of reads that would block.
    wait: &'static Wait,
}

impl EventFile {
    pub(super) fn new(fd: OwnedFd, wait: &'static Wait) -> Self {
        Self { fd, waiting: Waiting::default(), wait }
    }

    pub(super) fn raw(&self) -> i32 {
        self.fd.as_raw_fd()
    }

    /// Returns the next event that `take` accepts, and waits for one unless the descriptor is
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
            if let Some(event) = take(&self.checked_event(owner, read)?) {
                return Ok(event);
            }
        }
    }

    /// Returns the next event that `take` accepts, or `None` if there is none until `deadline`.
    pub(super) fn next_before<D, E>(
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
            if let Some(event) = take(&self.checked_event(owner, read)?) {
                return Ok(Some(event));
            }
        }
    }

    /// Reads the oldest events, at most `MOST`, passes them to `each` and discards them.
    ///
    /// It is not an error if there is no event. The descriptor must be non-blocking.
    pub(super) fn drop_now<D, const MOST: usize>(
        &self,
        owner: &impl EventOwner,
        each: impl FnMut(&D),
    ) -> Result<()>
    where
        D: FromBytes + IntoBytes,
    {
        let mut events: [D; MOST] = array::from_fn(|_| D::new_zeroed());
        // The kernel fills one buffer with each event.
        let mut pieces = events.each_mut().map(|event| IoSliceMut::new(event.as_mut_bytes()));
        let length = match readv(&self.fd, &mut pieces) {
            Err(Errno::EAGAIN) => 0,
            read => {
                let failed =
                    |errno| owner.refused(READ, self.wait.subject, CommandError::Os(errno));
                read.map_err(failed)?
            }
        };
        events.iter().take(length / size_of::<D>()).for_each(each);
        Ok(())
    }

    /// Reads the next event from the kernel, and returns it with its length in bytes.
    fn read<D: FromBytes + IntoBytes>(&self) -> Result<(D, usize), CommandError> {
        let mut event = D::new_zeroed();
        let length = nix::unistd::read(&self.fd, event.as_mut_bytes());
        Ok((event, length.map_err(CommandError::Os)?))
    }

    /// Returns the event that was read, or an error if its length is wrong.
    fn checked_event<D>(
        &self,
        owner: &impl EventOwner,
        read: Result<(D, usize), CommandError>,
    ) -> Result<D> {
        let (event, length) = read.map_err(|refused| match refused {
            CommandError::Os(Errno::EAGAIN) => refused.during_wait(self.wait),
            refused => owner.refused(READ, self.wait.subject, refused),
        })?;
        if length != size_of::<D>() {
            let what = format!("the event has {length} bytes instead of {}", size_of::<D>());
            return Err(Error::malformed(READ, self.wait.subject, what));
        }
        Ok(event)
    }

    /// Enables or disables non-blocking mode of [`next`](Self::next).
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
