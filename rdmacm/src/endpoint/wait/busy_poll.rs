//! Polling for a while before a thread sleeps.

use std::time::{Duration, Instant};

use super::deadline::earlier;

/// The number of polls between two readings of the clock, which may cost more than polling.
const POLLS_PER_CLOCK: u32 = 64;
/// Number of polls between two checks of the descriptors, which report all other events.
const POLLS_PER_CHECK: u32 = 1024;

/// The polling of a call before it sleeps for the first time.
///
/// Its duration is [`busy_poll`](crate::endpoint::ConnectionConfig::busy_poll).
#[derive(Debug, Default)]
pub(in crate::endpoint) struct BusyPoll {
    polls: u32,
    end: Option<Instant>,
    is_over: bool,
}

impl BusyPoll {
    /// Returns `true` if the call should poll again, for `period` in total and not beyond `deadline`.
    #[inline]
    pub(in crate::endpoint) fn should_poll(
        &mut self,
        period: Duration,
        deadline: Option<Instant>,
    ) -> bool {
        if period.is_zero() || self.is_over {
            return false;
        }
        if self.polls % POLLS_PER_CLOCK == 0 {
            let now = Instant::now();
            if self.polls == 0 {
                self.end = earlier(now.checked_add(period), deadline);
            }
            self.is_over = self.end.is_some_and(|end| now >= end);
        }
        self.polls = self.polls.wrapping_add(1).max(1);
        !self.is_over
    }

    /// Returns `true` if the call should check the descriptors before it polls again.
    #[inline]
    pub(in crate::endpoint) fn should_check_fds(&self) -> bool {
        self.polls % POLLS_PER_CHECK == 0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns the number of polls.
    fn polls(period: Duration, deadline: Option<Instant>) -> u32 {
        let mut spin = BusyPoll::default();
        let mut polls = 0;
        while spin.should_poll(period, deadline) {
            polls += 1;
        }
        assert!(!spin.should_poll(period, deadline), "polling should not begin again");
        polls
    }

    #[test]
    fn busy_poll_lasts_until_limit_or_deadline() {
        let (short, long) = (Duration::from_micros(1), Duration::from_secs(3600));
        assert_eq!(polls(Duration::ZERO, None), 0);
        assert!(polls(short, None) > 0);
        assert_eq!(polls(long, Some(Instant::now())), 0);
        assert!(polls(long, Some(Instant::now() + Duration::from_millis(1))) > 0);
        // A limit beyond the range of the clock never elapses.
        let mut spin = BusyPoll::default();
        let checks = (0..POLLS_PER_CHECK * 2)
            .filter(|_| spin.should_poll(Duration::MAX, None) && spin.should_check_fds());
        assert_eq!(checks.count(), 2);
    }
}
