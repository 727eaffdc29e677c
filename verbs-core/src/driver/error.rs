//! Errors of drivers. The layers above put them into words.

use nix::errno::Errno;

use crate::sys::command::Refused;
use crate::work::QpState;

/// Why opening a device, or creating an object, failed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CreateError {
    /// The command was refused.
    Command(Refused),
    /// The kernel has created the object, and its memory could not be mapped. The object is destroyed
    /// again, unless it was resized only.
    Map(Errno),
    /// The device, its driver or the kernel does not do it.
    Unsupported(&'static str),
    /// The data path of the device is not known.
    UnknownDriver,
}

impl CreateError {
    /// The reason as that of a command: EOPNOTSUPP for a function that the driver does not have.
    pub fn into_refused(self) -> Refused {
        match self {
            Self::Command(refused) => refused,
            Self::Map(errno) => Refused::Os(errno),
            Self::Unsupported(_) | Self::UnknownDriver => Refused::Os(Errno::EOPNOTSUPP),
        }
    }
}

impl From<Refused> for CreateError {
    fn from(refused: Refused) -> Self {
        Self::Command(refused)
    }
}

/// Why storing a request, or ringing its doorbell, failed. No request is posted, except after
/// [`Refused`](PostError::Refused).
///
/// It is made on the data path, and so of values that take no call.
#[derive(Debug, Clone, Copy)]
pub enum PostError {
    /// The queue holds this many requests already.
    Full(u32),
    /// The queue cannot hold the request.
    Invalid(&'static str),
    /// The request has more scatter/gather entries than the queue takes.
    ManyPieces {
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
    /// The device or its driver does not do it.
    Unsupported(&'static str),
    /// The library has made so many completions that are not polled that it makes no more.
    Unpolled,
    /// A value in shared memory is not what the kernel stores there.
    Malformed(&'static str),
    /// The doorbell was refused: the request stays in the ring, and the device may carry it out later.
    Refused(Refused),
    /// The last `unposted` requests that were stored are not posted: the command for the first of them
    /// was refused.
    Unposted {
        /// The reason of the kernel.
        refused: Refused,
        /// The number of requests.
        unposted: usize,
    },
}

/// The result of posting.
pub type Posted<T = ()> = Result<T, PostError>;

/// Why polling failed.
#[derive(Debug)]
pub enum PollError {
    /// There is no ring to poll.
    Absent(&'static str),
    /// A value that the kernel shares or answers is out of range.
    Malformed(&'static str),
    /// The command was refused.
    Refused(Refused),
}
