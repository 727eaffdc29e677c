//! [`ChannelWaker`]: the wakeup of threads that wait on a channel to which the kernel moved events.

use std::mem;

/// The user number of the kernel id that wakes a channel. No id of the library has this number.
pub(super) const WAKER_UID: u64 = u64::MAX;

/// The state of the wakeup event of a channel.
///
/// The only event of an internal kernel id wakes the threads that wait on the channel. While the
/// kernel holds this event, no woken thread has found the channel empty. Between the read of the
/// event and [`on_event`](Self::on_event), the event still counts as unread. In that time, a thread
/// that has to wake others leaves this to the thread that read the event.
#[derive(Debug, Default)]
pub(super) struct ChannelWaker {
    /// The kernel's handle of the id whose event has not been processed yet.
    pending: Option<u32>,
    /// `true` if events arrived that this wakeup may not cover.
    needs_another: bool,
}

/// A wakeup whose event was read.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Woken {
    /// The kernel's handle of the id, which the caller has to destroy.
    pub(super) handle: u32,
    /// `true` if another wakeup is due, for events that arrived after this one was sent.
    pub(super) needs_another: bool,
}

impl ChannelWaker {
    /// Returns `true` if the caller has to send a wakeup for events that arrived now.
    pub(super) fn request_wakeup(&mut self) -> bool {
        self.needs_another = self.pending.is_some();
        !self.needs_another
    }

    /// Records a sent wakeup by the kernel's handle of its id.
    pub(super) fn sent(&mut self, handle: u32) {
        self.pending = Some(handle);
    }

    /// Records that the event of the wakeup was read.
    pub(super) fn on_event(&mut self) -> Option<Woken> {
        let handle = self.pending.take()?;
        Some(Woken { handle, needs_another: mem::take(&mut self.needs_another) })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn event_during_wakeup_causes_another_wakeup() {
        let mut waker = ChannelWaker::default();
        assert!(waker.request_wakeup());
        waker.sent(7);
        assert_eq!(waker.on_event(), Some(Woken { handle: 7, needs_another: false }));
        assert_eq!(waker.on_event(), None);
        assert!(waker.request_wakeup());
        waker.sent(8);
        assert!(!waker.request_wakeup() && !waker.request_wakeup(), "one wakeup is enough");
        assert_eq!(waker.on_event(), Some(Woken { handle: 8, needs_another: true }));
        assert!(waker.request_wakeup());
        waker.sent(9);
        assert_eq!(
            waker.on_event(),
            Some(Woken { handle: 9, needs_another: false }),
            "one further wakeup should be enough"
        );
    }
}
