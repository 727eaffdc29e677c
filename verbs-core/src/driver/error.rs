//! Errors of drivers. The layers above convert them into texts.

use nix::errno::Errno;

use crate::sys::command::CommandError;
use crate::work::QpState;

/// The reason why a device was not opened, or an object not created.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CreateError {
    /// The command was refused.
    Command(CommandError),
    /// The kernel has created the object, and its memory could not be mapped.
    ///
    /// The object is destroyed again, unless it was resized only.
    Map(Errno),
    /// The requested size of a queue is invalid. No command was issued.
    Size(SizeError),
    /// The device, its driver or the kernel does not support the operation.
    Unsupported(&'static str),
    /// The data path of the device is not known.
    UnknownDriver,
}

impl CreateError {
    /// Converts the reason into the error of a command.
    ///
    /// A function that the driver does not have becomes EOPNOTSUPP.
    pub fn into_refused(self) -> CommandError {
        match self {
            Self::Command(refused) => refused,
            Self::Map(errno) => CommandError::Os(errno),
            // The kernel returns this errno for such a size.
            Self::Size(_) => CommandError::Os(Errno::EINVAL),
            Self::Unsupported(_) | Self::UnknownDriver => CommandError::Os(Errno::EOPNOTSUPP),
        }
    }
}

impl From<CommandError> for CreateError {
    fn from(refused: CommandError) -> Self {
        Self::Command(refused)
    }
}

/// The reason why the requested size of a queue is invalid.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SizeError {
    /// A number that must not be 0 is 0.
    Zero {
        /// The counted objects as a plural noun, for example `receives`.
        what: &'static str,
    },
    /// A number exceeds a limit.
    Exceeds {
        /// The counted objects as a plural noun, for example `receives`.
        what: &'static str,
        /// The requested number.
        given: u32,
        /// The limit.
        most: u32,
    },
}

impl SizeError {
    /// Returns an error if `given` exceeds `most`.
    pub(crate) fn check(what: &'static str, given: u32, most: u32) -> Result<(), Self> {
        if given > most { Err(Self::Exceeds { what, given, most }) } else { Ok(()) }
    }
}

impl From<SizeError> for CreateError {
    fn from(error: SizeError) -> Self {
        Self::Size(error)
    }
}

/// The reason why a request was not stored, or its doorbell not rung.
///
/// No request is posted, except after [`Command`](PostError::Command) and, for the earlier requests of a list, after
/// [`PartiallyPosted`](PostError::PartiallyPosted).
///
/// An error is created on the data path, so it holds only values that take no function call to create.
#[derive(Debug, Clone, Copy)]
pub enum PostError {
    /// The queue holds this many requests already.
    Full(u32),
    /// The queue cannot hold the request.
    Invalid(&'static str),
    /// The request has more scatter/gather entries than the queue takes.
    ManySges {
        /// The number of entries of the request.
        given: usize,
        /// The number of entries that the queue takes.
        most: u32,
    },
    /// The request has more inline data than the queue takes.
    ManyBytes {
        /// The length of the inline data in bytes.
        given: usize,
        /// The number of bytes that the queue takes.
        most: u32,
    },
    /// The message has more bytes than a message may have.
    Long(u64),
    /// The queue pair is in a state in which nothing can be sent.
    Early(QpState),
    /// The driver refuses the first of this many requests, and the library has taken them back.
    TakenBack {
        /// The number of requests, from the one that is refused to the last.
        requests: usize,
        /// The reason of the driver.
        reason: &'static str,
    },
    /// The device or its driver does not support the operation.
    Unsupported(&'static str),
    /// The library has the maximum number of unpolled injected completions.
    Unpolled,
    /// A value in shared memory is not one that the kernel stores there.
    Malformed(&'static str),
    /// The doorbell was refused: the request stays in the ring, and the device may carry it out later.
    Command(CommandError),
    /// The last `unposted` stored requests are not posted.
    ///
    /// The command for the first of them was refused.
    PartiallyPosted {
        /// The reason of the kernel.
        refused: CommandError,
        /// The number of requests.
        unposted: usize,
    },
}

/// The result of posting.
pub type Posted<T = ()> = Result<T, PostError>;

/// The reason why a poll failed.
#[derive(Debug)]
pub enum PollError {
    /// There is no ring to poll.
    Absent(&'static str),
    /// A value that the kernel shares or answers is out of range.
    Malformed(&'static str),
    /// The command was refused.
    Command(CommandError),
}
