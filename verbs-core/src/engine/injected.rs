//! Completions that the library injects into a completion queue, and internal ones that it removes.

use std::collections::VecDeque;
use std::fmt::Debug;
use std::iter;
use std::sync::Arc;

use super::drain_marker::DrainMarker;
use crate::work::Completion;

/// A queue pair of the library that completes one request, to raise an event for injected completions.
///
/// Its number stays in use until that completion was polled.
pub trait WakeupRequest: Debug + Send + Sync {
    /// Returns `true` if `completion` is that of the request.
    fn completes_with(&self, completion: &Completion) -> bool;

    /// Makes the kernel complete the request and raise the event.
    ///
    /// The completion queue hides the completion from now on.
    fn raise_event(&self);

    /// Destroys the queue pair. Its completion may still be on the queue.
    fn destroy_qp(&self);

    /// Returns `true` if the queue pair was destroyed: its completion is not added after that.
    fn is_destroyed(&self) -> bool;
}

/// The state of a completion queue that is not in its ring.
///
/// It has a separate lock, because a thread that holds the ring may wait for these completions.
#[derive(Debug, Default)]
pub(super) struct InjectedCompletions {
    /// Completions of requests that the driver never completes.
    ///
    /// They follow the requests that the driver has completed.
    pub(super) flushed: VecDeque<Completion>,
    /// Requests that raised an event for flushed completions, and whose own completions were not polled.
    pub(super) wakeups: Vec<Arc<dyn WakeupRequest>>,
    /// Requests whose completions were polled, and whose queue pairs exist: dropping one issues a command.
    pub(super) polled_wakeups: Vec<Arc<dyn WakeupRequest>>,
    /// Markers whose completions were not polled. One may be lost if the queue overruns.
    pub(super) markers: Vec<DrainMarker>,
    /// Keys of bound memory windows. Messages whose completions are here may invalidate them.
    pub(super) bound_keys: Vec<u32>,
}

impl InjectedCompletions {
    pub(super) fn is_empty(&self) -> bool {
        self.flushed.is_empty()
            && self.wakeups.is_empty()
            && self.polled_wakeups.is_empty()
            && self.markers.is_empty()
            && self.bound_keys.is_empty()
    }

    /// Removes the key of a window that was invalidated. Returns `true` if it was that of a bound window.
    pub(super) fn unbind(&mut self, rkey: u32) -> bool {
        let index = self.bound_keys.iter().position(|bound| *bound == rkey);
        index.map(|index| self.bound_keys.swap_remove(index)).is_some()
    }

    /// Merges `count` polled completions in `into` with further and injected ones; returns their number.
    ///
    /// It removes internal completions from the first `count` of `into`, which were polled from the ring. It fills the
    /// rest of `into` from the ring by `poll` until the ring is empty, and then with injected completions.
    ///
    /// The ring comes first. The driver may have added completions before one was injected, after the ring was polled.
    /// Such completions may also follow internal ones.
    pub(super) fn merge<E>(
        &mut self,
        into: &mut [Completion],
        count: usize,
        mut poll: impl FnMut(&mut [Completion]) -> Result<usize, E>,
    ) -> Result<usize, E> {
        let mut count = self.filter(into, count);
        while count < into.len() {
            let rest = &mut into[count..];
            // Collected before the poll: the ring already has all completions of these markers.
            let orphaned = |marker: &&DrainMarker| marker.is_orphaned();
            let orphans: Vec<_> = self.markers.iter().filter(orphaned).cloned().collect();
            match poll(rest) {
                Ok(0) => {
                    // The completion of a wakeup request is on no other queue.
                    self.wakeups.retain(|wakeup| !wakeup.is_destroyed());
                    if self.flushed.is_empty() {
                        self.markers.retain(|marker| !orphans.contains(marker));
                    }
                    let flushed = iter::from_fn(|| self.flushed.pop_front());
                    let more =
                        rest.iter_mut().zip(flushed).map(|(place, flushed)| *place = flushed);
                    match more.count() {
                        0 => break,
                        more => count += self.filter(rest, more),
                    }
                }
                Ok(more) => count += self.filter(rest, more),
                // The caller gets the completions that were polled before; the next poll fails again.
                Err(_) if count > 0 => break,
                Err(error) => return Err(error),
            }
        }
        Ok(count)
    }

    /// Removes internal completions from the first `count` of `into`, and returns the number of the others.
    ///
    /// It processes them in order: the completion of a marker shows that the completions of earlier markers were lost.
    fn filter(&mut self, into: &mut [Completion], count: usize) -> usize {
        let mut left = 0;
        for index in 0..count {
            let completion = &into[index];
            if let Some(rkey) = completion.invalidated_rkey().filter(|_| completion.is_success()) {
                self.unbind(rkey);
            }
            if !self.take_internal(completion) {
                into[left] = into[index];
                left += 1;
            }
        }
        left
    }

    /// Returns `true` if `completion` is that of a wakeup request or a marker, and stops expecting it.
    fn take_internal(&mut self, completion: &Completion) -> bool {
        let wakeup = self.wakeups.iter().position(|wakeup| wakeup.completes_with(completion));
        if let Some(index) = wakeup {
            self.polled_wakeups.push(self.wakeups.swap_remove(index));
            return true;
        }
        let is_own = |marker: &DrainMarker| marker.completes_with(completion);
        if let Some(index) = self.markers.iter().position(is_own) {
            let reached = self.markers.swap_remove(index);
            self.markers.retain(|marker| !marker.precedes(&reached));
            return true;
        }
        false
    }
}

#[cfg(test)]
mod tests;
