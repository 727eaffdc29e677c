//! Reads and changes of the peer's memory that are under way, for who does other things meanwhile.

use std::fmt;
use std::time::Duration;

use super::buffer::Buffer;
use super::connection::Connection;
#[cfg(doc)]
use super::remote::Rights;
use super::remote::{Change, Remote, WORD, number};
use super::sending::Wanted;
use super::shared::{Operation, Patience};
use super::state::State;
use crate::error::{Error, ErrorKind, Result};
use crate::verbs::SendOperation;

/// A read or a change of the peer's memory that is under way: of [`Connection::start_read`],
/// [`Connection::start_compare_swap`] and [`Connection::start_fetch_add`].
///
/// For event loops, which [try](Self::try_finish) whether it is done when the connection's descriptor is
/// readable; and for threads that have several under way, as many as there are buffers for sending.
///
/// Dropping it leaves it to itself: its buffer comes back to the connection when it is done. It keeps the descriptors of
/// its connection open, also when that has ended, and where it is done the memory registered, as a [`Buffer`] does.
///
/// ```no_run
/// use rdmacm::endpoint::{Connection, Remote};
///
/// /// Both halves of some memory of the peer's, in the time of one.
/// fn halves(connection: &Connection, memory: &Remote) -> rdmacm::Result<[u8; 128]> {
///     let mut both = [0; 128];
///     let mut pending = Vec::new();
///     for offset in [0, 64] {
///         let mut buffer = connection.buffer()?;
///         buffer.set_len(64)?;
///         pending.push(connection.start_read(buffer, memory, offset)?);
///     }
///     for (half, read) in both.chunks_mut(64).zip(pending) {
///         half.copy_from_slice(&read.finish()?);
///     }
///     Ok(both)
/// }
/// ```
#[must_use = "dropped, nobody hears what comes of it"]
pub struct Pending<T> {
    /// Absent when it is over.
    wanted: Option<Wanted>,
    what: Operation,
    length: usize,
    outcome: fn(Buffer) -> T,
}

impl<T> Pending<T> {
    /// What has come of it, where that is known. A buffer that was read into is as long as it was when that began; a
    /// number is what was there before.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::WouldBlock`] where it is under way still: to be tried again when the connection's
    /// [descriptor](Connection#waiting) is readable. Any other one ends it: [`ErrorKind::Disconnected`],
    /// [`ErrorKind::Failed`], also where the peer's device refuses it, [`ErrorKind::Overrun`] and
    /// [`ErrorKind::DeviceGone`] of a connection that has ended; [`ErrorKind::Invalid`] where it is over
    /// already; [`ErrorKind::WrongProcess`] after a fork. Where one of several is refused, those behind it
    /// fail for the same reason: which of them it was is not said. On siw that the peer's device refuses it ends the
    /// connection without a reason: that is [`ErrorKind::Disconnected`].
    pub fn try_finish(&mut self) -> Result<T> {
        self.finish_with(Patience::None)
    }

    /// The same, when it is done.
    ///
    /// # Errors
    ///
    /// As [`try_finish`](Self::try_finish), but never [`ErrorKind::WouldBlock`].
    pub fn finish(mut self) -> Result<T> {
        self.finish_with(Patience::FOREVER)
    }

    /// The same, for at most `timeout`. After that it is on its way still, and nobody hears what comes of it.
    ///
    /// # Errors
    ///
    /// As [`finish`](Self::finish), and [`ErrorKind::TimedOut`].
    pub fn finish_timeout(mut self, timeout: Duration) -> Result<T> {
        self.finish_with(Patience::within(timeout))
    }

    fn finish_with(&mut self, patience: Patience) -> Result<T> {
        let Some(wanted) = self.wanted.take() else {
            let subject = "what was begun with the peer's memory";
            return Err(Error::invalid("finish", subject, "it is over already"));
        };
        let index = wanted.index;
        let sent = |state: &mut State| match patience {
            Patience::None => state.tried(index),
            _ => state.sent(index),
        };
        match wanted.shared().until(self.what, patience, sent) {
            Ok(memory) => {
                let mut buffer = wanted.back(memory);
                buffer.set_len(self.length)?;
                Ok((self.outcome)(buffer))
            }
            Err(error) => {
                if *error.kind() == ErrorKind::WouldBlock {
                    self.wanted = Some(wanted);
                }
                Err(error)
            }
        }
    }
}

impl<T> fmt::Debug for Pending<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let is_over = self.wanted.is_none();
        f.debug_struct("Pending").field("is_over", &is_over).finish_non_exhaustive()
    }
}

impl Connection {
    /// Begins to fill `buffer`, as long as it is, from the peer's memory: as [`read`](Self::read), without
    /// waiting until that is done.
    ///
    /// # Errors
    ///
    /// Those of [`read`](Self::read) that come at once: what is invalid, and the end of the connection. The others
    /// come later, of the [`Pending`].
    pub fn start_read(
        &self,
        buffer: Buffer,
        from: &Remote,
        offset: u64,
    ) -> Result<Pending<Buffer>> {
        self.check_depth(Operation::Read)?;
        let operation = from.reading(offset, buffer.len())?;
        self.start_pending(Operation::Read, buffer, operation, |buffer| buffer)
    }

    /// Begins to compare the number at `offset` of the peer's memory with `compare`, and to store `swap` there if
    /// they are equal: as [`compare_swap`](Self::compare_swap), without waiting until that is done.
    ///
    /// # Errors
    ///
    /// Those of [`compare_swap`](Self::compare_swap) that come at once, and [`ErrorKind::WouldBlock`] where there is
    /// no [buffer](Self::try_buffer) for the answer: nothing has begun then.
    pub fn start_compare_swap(
        &self,
        at: &Remote,
        offset: u64,
        compare: u64,
        swap: u64,
    ) -> Result<Pending<u64>> {
        self.start_change(at, offset, Change::CompareSwap { compare, swap })
    }

    /// Begins to add `add` to the number at `offset` of the peer's memory: as [`fetch_add`](Self::fetch_add), without
    /// waiting until that is done.
    ///
    /// # Errors
    ///
    /// Those of [`start_compare_swap`](Self::start_compare_swap).
    pub fn start_fetch_add(&self, at: &Remote, offset: u64, add: u64) -> Result<Pending<u64>> {
        self.start_change(at, offset, Change::FetchAdd { add })
    }

    fn start_change(&self, at: &Remote, offset: u64, change: Change) -> Result<Pending<u64>> {
        self.check_depth(Operation::Change)?;
        let operation = at.changing(offset, change)?;
        let mut buffer = self.try_buffer()?;
        buffer.set_len(WORD)?;
        self.start_pending(Operation::Change, buffer, operation, |answer| number(&answer))
    }

    fn start_pending<T>(
        &self,
        what: Operation,
        buffer: Buffer,
        operation: SendOperation<'_>,
        outcome: fn(Buffer) -> T,
    ) -> Result<Pending<T>> {
        let length = buffer.len();
        let wanted = self.shared.start_wanted(what, buffer, operation)?;
        Ok(Pending { wanted: Some(wanted), what, length, outcome })
    }
}
