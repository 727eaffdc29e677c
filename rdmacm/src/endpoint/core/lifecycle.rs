//! The end of an endpoint: its reason, and the record that no further event follows.

use crate::error::{ErrorKind, hint};
use crate::verbs::{AsyncEventType, WcStatus};

/// The reason why an endpoint has ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::endpoint) enum EndReason {
    /// This side has ended it.
    Local,
    /// The peer has ended it, or the peer's kernel.
    Remote,
    /// The kernel of this side may have ended it, because a message found no buffer.
    Overrun,
    /// A request failed, and the queue pair with it.
    Failed(WcStatus),
    /// A request of the peer failed on this side, which an asynchronous event has reported.
    PeerRequestFailed(AsyncEventType),
    /// The state after all requests were flushed, before the reason of the failure is known.
    Unreported,
    /// A poll found a malformed completion, so a request of the endpoint may never complete.
    MalformedCompletion,
    /// The device was removed.
    DeviceRemoved,
}

impl EndReason {
    /// Returns a hint that names the side that ended the endpoint.
    ///
    /// Returns `None` if [`kind`](Self::kind) shows the cause.
    pub(in crate::endpoint) fn hint(self) -> Option<&'static str> {
        match self {
            Self::Local => Some(hint::ENDED_LOCALLY),
            Self::Remote => Some(hint::ENDED_BY_PEER),
            _ => None,
        }
    }

    /// Returns the error of operations after this end.
    pub(in crate::endpoint) fn kind(self) -> ErrorKind {
        match self {
            Self::Local | Self::Remote => ErrorKind::Disconnected,
            Self::Overrun => ErrorKind::ReceiveOverrun,
            Self::Failed(status) => ErrorKind::WorkRequestFailed(status),
            Self::PeerRequestFailed(event_type) => ErrorKind::PeerRequestFailed(event_type),
            Self::Unreported => ErrorKind::UnreportedCause,
            Self::MalformedCompletion => ErrorKind::MalformedResponse(
                "a completion is malformed, so the result of a request is unknown".into(),
            ),
            Self::DeviceRemoved => ErrorKind::DeviceRemoved(libc::ENODEV),
        }
    }
}

/// The end of an endpoint, if it has ended, and its reason.
#[derive(Debug, Default)]
pub(super) struct Lifecycle {
    end: Option<EndReason>,
    /// `true` if the kernel will report no further event.
    ///
    /// It is set after an event that reports the end, after the removal of the device, and after an abort.
    has_no_more_events: bool,
}

impl Lifecycle {
    #[inline(always)]
    pub(super) fn end(&self) -> Option<EndReason> {
        self.end
    }

    /// Records an end, and returns `true` if `end` replaces the known one.
    ///
    /// The first reason counts. But a flush only shows that there is another reason, and an end by this side replaces
    /// one by the peer.
    pub(super) fn set_end(&mut self, end: EndReason) -> bool {
        let is_better = match self.end {
            None | Some(EndReason::Unreported) => true,
            Some(EndReason::Remote) => end == EndReason::Local,
            Some(_) => false,
        };
        is_better && self.end.replace(end) != Some(end)
    }

    pub(super) fn set_no_more_events(&mut self) {
        self.has_no_more_events = true;
    }

    /// Returns `true` if neither the peer nor the kernel will report another event.
    pub(super) fn has_no_more_events(&self) -> bool {
        let has_failed = matches!(
            self.end,
            Some(
                EndReason::Failed(_)
                    | EndReason::PeerRequestFailed(_)
                    | EndReason::Unreported
                    | EndReason::MalformedCompletion
                    | EndReason::DeviceRemoved
            )
        );
        self.has_no_more_events || has_failed
    }

    /// Returns `true` if a caller that closes has no more events to wait for.
    pub(super) fn has_closed(&self) -> bool {
        self.end.is_some_and(|end| end != EndReason::Local || self.has_no_more_events)
    }
}

#[cfg(test)]
mod tests;
