//! Polling for a while before sleeping.

use std::time::{Duration, Instant};

use super::deadline::earlier;

/// So many times is polled between two looks at the clock, which may cost more than polling.
const POLLS: u32 = 64;
/// So many times between two looks at the descriptors, which tell of the rest.
const LOOK: u32 = 1024;

/// How a call polls before it sleeps: the first time that it would, for as long as
/// [`busy_poll`](super::Settings::busy_poll) says.
#[derive(Debug, Default)]
pub(super) struct Spin {
    polls: u32,
    end: Option<Instant>,
    is_over: bool,
}

impl Spin {
    /// Whether it is to poll once more, for `period` in all and not beyond `deadline`.
    #[inline]
    pub(super) fn goes_on(&mut self, period: Duration, deadline: Option<Instant>) -> bool {
        if period.is_zero() || self.is_over {
            return false;
        }
        if self.polls % POLLS == 0 {
            let now = Instant::now();
            if self.polls == 0 {
                self.end = earlier(now.checked_add(period), deadline);
            }
            self.is_over = self.end.is_some_and(|end| now >= end);
        }
        self.polls = self.polls.wrapping_add(1).max(1);
        !self.is_over
    }

    /// Whether it is to look at the descriptors before it polls again.
    #[inline]
    pub(super) fn looks(&self) -> bool {
        self.polls % LOOK == 0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// How often it polls.
    fn polls(period: Duration, deadline: Option<Instant>) -> u32 {
        let mut spin = Spin::default();
        let mut polls = 0;
        while spin.goes_on(period, deadline) {
            polls += 1;
        }
        assert!(!spin.goes_on(period, deadline), "it is over for good");
        polls
    }

    #[test]
    fn it_goes_on_for_a_while_and_not_beyond_a_deadline() {
        let (short, long) = (Duration::from_micros(1), Duration::from_secs(3600));
        assert_eq!(polls(Duration::ZERO, None), 0);
        assert!(polls(short, None) > 0);
        assert_eq!(polls(long, Some(Instant::now())), 0);
        assert!(polls(long, Some(Instant::now() + Duration::from_millis(1))) > 0);
        // So long a time that its end is beyond the clock has none.
        let mut spin = Spin::default();
        let looks = (0..LOOK * 2).filter(|_| spin.goes_on(Duration::MAX, None) && spin.looks());
        assert_eq!(looks.count(), 2);
    }
}
