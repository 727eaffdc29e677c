//! The buffers for sending, and the results of the requests that they were posted with.

use std::mem;

use super::queue_io::Slot;
use crate::verbs::WcStatus;

/// The use of a buffer for sending when its request has completed.
#[derive(Debug)]
enum SendSlot<B> {
    /// The buffer becomes free.
    Detached,
    /// A caller waits for the buffer.
    Awaited,
    /// The buffer is ready for the waiting caller.
    ///
    /// If `is_reported`, the caller has got the status of the request.
    Done { buffer: B, status: WcStatus, is_reported: bool },
}

/// The buffers for sending of an endpoint.
#[derive(Debug)]
pub(in crate::endpoint) struct SendSlots<B> {
    free: Vec<B>,
    slots: Box<[SendSlot<B>]>,
    /// The number of requests over these buffers that are posted and have not been polled.
    in_flight: usize,
    /// The status of the first request that failed and for which no caller waited.
    first_error: Option<WcStatus>,
}

impl<B: Slot> SendSlots<B> {
    /// Creates the slots of the buffers `free`, whose indices start at 0.
    pub(super) fn new(free: Vec<B>) -> Self {
        let slots = free.iter().map(|_| SendSlot::Detached).collect();
        Self { free, slots, in_flight: 0, first_error: None }
    }

    /// Returns the number of all buffers, free or in use.
    #[inline(always)]
    pub(super) fn len(&self) -> usize {
        self.slots.len()
    }

    #[inline(always)]
    pub(super) fn in_flight(&self) -> usize {
        self.in_flight
    }

    pub(super) fn free_count(&self) -> usize {
        self.free.len()
    }

    #[inline(always)]
    pub(super) fn take_free(&mut self) -> Option<B> {
        self.free.pop()
    }

    #[inline(always)]
    pub(super) fn return_buffer(&mut self, buffer: B) {
        self.free.push(buffer);
    }

    /// Takes all free buffers.
    pub(super) fn take_all_free(&mut self) -> Vec<B> {
        mem::take(&mut self.free)
    }

    pub(super) fn set_awaited(&mut self, index: usize, is_awaited: bool) {
        self.slots[index] = match is_awaited {
            true => SendSlot::Awaited,
            false => SendSlot::Detached,
        };
    }

    #[inline(always)]
    pub(super) fn on_posted(&mut self) {
        self.in_flight += 1;
    }

    /// Records that the request over `buffer` has completed. Returns `true` if a caller waits for it.
    ///
    /// The buffer itself shows that a request was in flight: the number cannot fall below zero.
    #[inline(always)]
    pub(super) fn complete(&mut self, buffer: B, status: WcStatus) -> bool {
        self.in_flight -= 1;
        let slot = &mut self.slots[buffer.index()];
        match slot {
            SendSlot::Awaited => {
                *slot = SendSlot::Done { buffer, status, is_reported: false };
                true
            }
            _ => {
                self.free.push(buffer);
                false
            }
        }
    }

    /// Returns the status of the request in slot `index`, if it has completed.
    pub(super) fn status(&self, index: usize) -> Option<WcStatus> {
        match self.slots[index] {
            SendSlot::Done { status, .. } => Some(status),
            _ => None,
        }
    }

    /// Records that the caller has got the status of the request in slot `index`.
    pub(super) fn set_reported(&mut self, index: usize) {
        if let SendSlot::Done { is_reported, .. } = &mut self.slots[index] {
            *is_reported = true;
        }
    }

    /// Records that no caller waits for the slot any more.
    ///
    /// Returns the buffer if its request has completed, and the status unless a caller has got it.
    pub(super) fn detach(&mut self, index: usize) -> Option<(B, Option<WcStatus>)> {
        match mem::replace(&mut self.slots[index], SendSlot::Detached) {
            SendSlot::Done { buffer, status, is_reported } => {
                Some((buffer, (!is_reported).then_some(status)))
            }
            SendSlot::Awaited | SendSlot::Detached => None,
        }
    }

    /// Records the failure of a request for which no caller waits.
    ///
    /// Later requests fail because of the first one.
    pub(super) fn set_error(&mut self, status: WcStatus) {
        self.first_error.get_or_insert(status);
    }

    pub(super) fn has_error(&self) -> bool {
        self.first_error.is_some()
    }

    pub(super) fn take_error(&mut self) -> Option<WcStatus> {
        self.first_error.take()
    }
}
