//! Writing nothing every so often: to see whether an idle peer is there still, or to have its kernel look.

use std::time::Duration;

use nix::sys::time::TimeSpec;
use nix::sys::timerfd::{ClockId, Expiration, TimerFd, TimerFlags, TimerSetTimeFlags};

#[cfg(doc)]
use crate::cm::CmId;
use crate::error::{Error, Result};
use crate::verbs::{Buffer, BufferQueues, SendOperation};

/// Longer than anybody waits, and fit for the kernel.
const LONGEST: Duration = Duration::from_secs(u32::MAX as u64);

/// How often and how many times the peer's kernel is to look after a first message.
pub(super) const FIRST: Duration = Duration::from_millis(100);
const FIRST_TIMES: u32 = 8;

/// An RDMA write without bytes, which the peer's device acknowledges and nobody there notices.
const NOTHING: SendOperation<'static> = SendOperation::Write { remote_addr: 0, rkey: 0 };

/// What it takes to write nothing every so often.
#[derive(Debug)]
pub(super) struct KeepAlive {
    /// Readable when it is time; absent once the connection has ended.
    timer: Option<TimerFd>,
    /// Absent while a write is on its way.
    buffer: Option<Buffer>,
    /// How many more writes there are to be, where they end.
    left: Option<u32>,
}

impl KeepAlive {
    /// Writes `every` so often, with a buffer of its own, as each request has one.
    pub(super) fn new(every: Duration, buffer: Buffer) -> Result<Self> {
        let failed = |errno| Error::os("make", "what keeps a connection alive", errno);
        let flags = TimerFlags::TFD_CLOEXEC | TimerFlags::TFD_NONBLOCK;
        let timer = TimerFd::new(ClockId::CLOCK_MONOTONIC, flags).map_err(failed)?;
        let interval = Expiration::Interval(TimeSpec::from(every.min(LONGEST)));
        timer.set(interval, TimerSetTimeFlags::empty()).map_err(failed)?;
        Ok(Self { timer: Some(timer), buffer: Some(buffer), left: None })
    }

    /// Has it end soon, and before that with the first message that comes: it is there so that the peer's
    /// kernel looks at what it has of a side that has just connected. siw lets a first message lie that
    /// comes while its side accepts, until something else comes: see [`CmId::accept`].
    pub(super) fn end_soon(&mut self) {
        self.left = Some(FIRST_TIMES);
    }

    /// The peer has said something.
    pub(super) fn heard(&mut self) {
        if self.left.is_some() {
            self.stop();
        }
    }

    /// What is readable when it is time.
    pub(super) fn timer(&self) -> Option<&TimerFd> {
        self.timer.as_ref()
    }

    /// It is time: writes, unless the last write is on its way still.
    pub(super) fn is_due(&mut self, queues: &mut BufferQueues) {
        let Some(timer) = &self.timer else { return };
        // Read, so that it becomes readable again. Another thread may have done so.
        let _ = timer.wait();
        if let Some(left) = &mut self.left {
            *left = left.saturating_sub(1);
            if *left == 0 {
                self.stop();
            }
        }
        if let Some(buffer) = self.buffer.take() {
            // Refused only where the connection is about to end.
            if let Err(refused) = queues.send(buffer, 0, NOTHING) {
                self.buffer = refused.buffer;
            }
        }
    }

    /// The write has completed.
    pub(super) fn give_back(&mut self, buffer: Buffer) {
        self.buffer = Some(buffer);
    }

    /// The connection has ended: the timer wakes nobody any more.
    pub(super) fn stop(&mut self) {
        if let Some(timer) = self.timer.take() {
            // Who has forked has another descriptor of it, with which it would stay in the poll.
            timer.unset().expect("a timer that was set is unset");
        }
    }
}
