//! Why a post or a poll failed: what the data path makes, and what the program is told.

use std::borrow::Cow;

use nix::errno::Errno;

use crate::error::{Error, ErrorKind, Result};
use crate::sys::command::Refused;
use crate::verbs::{Context, QpState};

/// Why storing a request, or ringing for it, failed. Nothing is posted, but for
/// [`Refused`](PostError::Refused).
///
/// It is made amid what is to be fast, and so of nothing that takes a call; [`during`](Self::during)
/// puts it into words.
#[derive(Debug, Clone, Copy)]
pub(crate) enum PostError {
    /// The queue holds this many already.
    Full(u32),
    /// The queue cannot hold the request.
    Invalid(&'static str),
    /// The request has more pieces of memory than the queue takes.
    ManyPieces { given: usize, most: u32 },
    /// The request has more bytes in itself than the queue takes.
    ManyBytes { given: usize, most: u32 },
    /// The message has more bytes than there may be.
    Long(u64),
    /// The queue pair is in a state in which nothing can be sent.
    Early(QpState),
    /// The driver refuses the first of as many requests, and the library has taken them back.
    TakenBack { requests: usize, reason: &'static str },
    /// The device or its driver does not do it.
    Unsupported(&'static str),
    /// The library has made so many completions that are not polled that it makes no more.
    Unpolled,
    /// What the kernel shares is out of order.
    Malformed(&'static str),
    /// The doorbell was refused: the request stands in the ring, and the device may come to it later.
    Refused(Refused),
    /// Of what was stored the last so many requests are not posted: the first of those was refused.
    Unposted { errno: i32, unposted: usize },
}

/// What posting comes to.
pub(crate) type Posted<T = ()> = Result<T, PostError>;

impl PostError {
    /// The last `unposted` requests are not posted: a command for them was refused.
    #[cold]
    pub(super) fn unposted(context: &Context, refused: Refused, unposted: usize) -> Self {
        let errno = context.refused("post to", "a queue", refused).errno();
        Self::Unposted { errno, unposted }
    }

    /// The error of `operation` on `subject` of a device.
    #[cold]
    pub(crate) fn during(
        self,
        context: &Context,
        operation: &'static str,
        subject: String,
    ) -> Error {
        let invalid = |errno: Errno, reason: Cow<'static, str>| ErrorKind::Invalid {
            errno: errno as i32,
            reason,
        };
        let kind = match self {
            Self::Full(most) => {
                let reason = format!("the queue is full: {most} requests are outstanding");
                invalid(Errno::ENOMEM, reason.into())
            }
            Self::Unpolled => {
                let reason = "the completion queue holds all the flush errors that it can";
                invalid(Errno::ENOMEM, reason.into())
            }
            Self::Invalid(reason) => invalid(Errno::EINVAL, reason.into()),
            Self::ManyPieces { given, most } => {
                let reason = format!("{given} pieces of memory where {most} are the most");
                invalid(Errno::EINVAL, reason.into())
            }
            Self::ManyBytes { given, most } => {
                let reason = format!("{given} bytes inline where {most} are the most");
                invalid(Errno::EINVAL, reason.into())
            }
            Self::Long(bytes) => {
                invalid(Errno::EINVAL, format!("a message of {bytes} bytes").into())
            }
            Self::Early(state) => {
                let reason = format!("the queue pair is in {state}, and sends need IB_QPS_RTS");
                invalid(Errno::EINVAL, reason.into())
            }
            Self::TakenBack { requests, reason } => {
                let reason = format!(
                    "the driver refuses the first of the last {requests} requests, and none of \
                     them is posted: {reason}"
                );
                invalid(Errno::EINVAL, reason.into())
            }
            Self::Unsupported(what) => ErrorKind::Unsupported(what.into()),
            Self::Malformed(what) => return Error::malformed(operation, subject, what),
            Self::Refused(refused) => return context.refused(operation, &subject, refused),
            Self::Unposted { errno, unposted } => ErrorKind::Unposted { errno, unposted },
        };
        Error::new(operation, subject, kind)
    }
}

/// Why polling failed.
#[derive(Debug)]
pub(crate) enum PollError {
    /// What the kernel shares, or answers, is out of order.
    Malformed(&'static str),
    /// The command was refused.
    Refused(Refused),
}

impl PollError {
    /// The error of `operation` on `what` of a device.
    #[cold]
    pub(crate) fn during(self, context: &Context, operation: &'static str, what: &str) -> Error {
        match self {
            Self::Malformed(how) => {
                let subject = format!("{what} on {}", context.device().name());
                Error::malformed(operation, subject, how)
            }
            Self::Refused(refused) => context.refused(operation, what, refused),
        }
    }
}
