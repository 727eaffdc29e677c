//! What is on its way, what has come, and where the buffers are.

use std::collections::VecDeque;
use std::mem;

use super::keep_alive::KeepAlive;
use crate::error::ErrorKind;
use crate::verbs::{Buffer, Completion, WcStatus};

/// What is on its way, what has come, and where the buffers are.
#[derive(Debug)]
pub(super) struct Traffic {
    /// Why nothing moves any more.
    pub(super) end: Option<End>,
    /// The buffers for sending that nobody has.
    pub(super) free: Vec<Buffer>,
    /// What becomes of each buffer for sending when its message was sent.
    pub(super) sends: Vec<Sent>,
    /// How many messages are on their way.
    pub(super) sending: usize,
    /// A message was not sent.
    pub(super) lost: bool,
    /// Messages that nobody has taken.
    pub(super) inbox: VecDeque<Arrived>,
    /// What looks after an idle peer.
    pub(super) keep_alive: Option<KeepAlive>,
    /// The queue pair ends with the connection, of which an event tells, and not for other reasons.
    pub(super) ends_with_connection: bool,
    /// What the driver says of a receive whose message is too long.
    pub(super) too_long: WcStatus,
}

/// How a connection ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum End {
    /// This side has ended it.
    Here,
    /// The peer has, or its kernel.
    There,
    /// A request failed, and the queue pair with it.
    Failed(WcStatus),
    /// The device is gone.
    Gone,
}

/// What becomes of a buffer when its message was sent.
#[derive(Debug)]
pub(super) enum Sent {
    /// It goes to the free ones.
    Unwanted,
    /// Somebody waits for it.
    Wanted,
    /// It is there for who waits.
    Done(Buffer),
}

/// A message.
#[derive(Debug)]
pub(super) struct Arrived {
    pub(super) buffer: Buffer,
    pub(super) length: usize,
    pub(super) imm_data: Option<u32>,
}

impl Sent {
    /// The buffer, where it is there.
    pub(super) fn take(&mut self) -> Option<Buffer> {
        match mem::replace(self, Self::Wanted) {
            Self::Done(buffer) => {
                *self = Self::Unwanted;
                Some(buffer)
            }
            other => {
                *self = other;
                None
            }
        }
    }

    /// The same by who waits no more.
    pub(super) fn give_up(&mut self) -> Option<Buffer> {
        let done = self.take();
        *self = Self::Unwanted;
        done
    }
}

impl Traffic {
    pub(super) fn complete(&mut self, buffer: Buffer, completion: &Completion) {
        let is_success = completion.is_success();
        if let Some(keep_alive) = self.keep_alive.as_mut().filter(|it| it.has_sent(&buffer)) {
            keep_alive.give_back(buffer);
            if !is_success {
                self.failed(completion.status());
            }
            return;
        }
        let Some(sent) = self.sends.get_mut(buffer.index()) else {
            return self.received(buffer, completion);
        };
        self.sending -= 1;
        match sent {
            Sent::Wanted if is_success => *sent = Sent::Done(buffer),
            _ => {
                *sent = Sent::Unwanted;
                self.free.push(buffer);
            }
        }
        if !is_success {
            self.lost = true;
            self.failed(completion.status());
        }
    }

    fn received(&mut self, buffer: Buffer, completion: &Completion) {
        match completion.status() {
            WcStatus::IB_WC_SUCCESS => {
                let length = usize::try_from(completion.byte_len()).expect("32 bits fit");
                let length = length.min(buffer.len());
                let imm_data = completion.imm_data();
                self.inbox.push_back(Arrived { buffer, length, imm_data });
            }
            status if status == self.too_long => self.failed(WcStatus::IB_WC_LOC_LEN_ERR),
            status => self.failed(status),
        }
    }

    fn failed(&mut self, status: WcStatus) {
        let is_flush = status == WcStatus::IB_WC_WR_FLUSH_ERR;
        if !(is_flush && self.ends_with_connection) {
            self.ended(End::Failed(status));
        }
    }

    /// Whether there is nothing more to hear of the peer.
    pub(super) fn is_dead(&self) -> bool {
        matches!(self.end, Some(End::Failed(_) | End::Gone))
    }

    /// Takes note of an end: the first counts, but a flush only says that there is another one, and
    /// this side's own comes behind the peer's.
    pub(super) fn ended(&mut self, end: End) {
        let is_better = match self.end {
            None | Some(End::Failed(WcStatus::IB_WC_WR_FLUSH_ERR)) => true,
            Some(End::There) => end == End::Here,
            Some(_) => false,
        };
        if is_better {
            self.end = Some(end);
            if let Some(keep_alive) = &mut self.keep_alive {
                keep_alive.stop();
            }
        }
    }

    /// Why nothing moves any more, on a connection that has ended.
    pub(super) fn failure(&self) -> Option<ErrorKind> {
        Some(match self.end? {
            End::Here | End::There => ErrorKind::Disconnected,
            End::Failed(status) => ErrorKind::Failed(status),
            End::Gone => ErrorKind::DeviceGone(libc::ENODEV),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const FLUSH: WcStatus = WcStatus::IB_WC_WR_FLUSH_ERR;
    const GONE: WcStatus = WcStatus::IB_WC_RETRY_EXC_ERR;

    fn traffic(ends_with_connection: bool) -> Traffic {
        Traffic {
            end: None,
            free: Vec::new(),
            sends: Vec::new(),
            sending: 0,
            lost: false,
            inbox: VecDeque::new(),
            keep_alive: None,
            ends_with_connection,
            too_long: WcStatus::IB_WC_LOC_LEN_ERR,
        }
    }

    #[test]
    fn the_first_end_that_says_something_counts() {
        for (ends, counts) in [
            ([End::There, End::Failed(GONE)], End::There),
            ([End::Failed(GONE), End::There], End::Failed(GONE)),
            ([End::Failed(FLUSH), End::There], End::There),
            ([End::Failed(FLUSH), End::Failed(GONE)], End::Failed(GONE)),
            ([End::Failed(GONE), End::Failed(FLUSH)], End::Failed(GONE)),
            ([End::There, End::Here], End::Here),
            ([End::Here, End::There], End::Here),
            ([End::Failed(GONE), End::Here], End::Failed(GONE)),
            ([End::Gone, End::There], End::Gone),
        ] {
            let mut traffic = traffic(false);
            assert!(traffic.failure().is_none());
            ends.iter().for_each(|end| traffic.ended(*end));
            assert_eq!(traffic.end, Some(counts), "of {ends:?}");
            assert!(traffic.failure().is_some());
        }
    }

    #[test]
    fn a_flush_is_an_end_where_no_event_tells_of_it() {
        for (ends_with_connection, end) in [(false, Some(End::Failed(FLUSH))), (true, None)] {
            let mut traffic = traffic(ends_with_connection);
            traffic.failed(FLUSH);
            assert_eq!(traffic.end, end);
            traffic.failed(GONE);
            assert_eq!(traffic.end, Some(End::Failed(GONE)));
        }
    }
}
