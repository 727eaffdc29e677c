//! A clock that needs no system call per reading, independent of the kernel's clock source.
//!
//! # Safety
//!
//! Reading the processor's counter touches no memory.

use std::time::Instant;

/// The processor's counter, and the duration of its steps.
pub(super) struct Clock {
    start: Instant,
    first: u64,
}

impl Clock {
    pub(super) fn start() -> Self {
        Self { start: Instant::now(), first: ticks() }
    }

    /// Returns the duration of a step of the counter in microseconds, averaged since the start.
    pub(super) fn tick(&self) -> f64 {
        let steps = ticks().saturating_sub(self.first).max(1);
        self.start.elapsed().as_secs_f64() * 1e6 / to_f64(steps)
    }
}

/// Returns the current value of the processor's counter.
#[cfg(target_arch = "x86_64")]
#[expect(unsafe_code, reason = "reads the processor's counter")]
#[inline]
pub(super) fn ticks() -> u64 {
    // SAFETY: every processor of the architecture has the instruction, and Linux lets programs use it.
    unsafe { std::arch::x86_64::_rdtsc() }
}

/// Returns the nanoseconds since the first call, on architectures without a supported counter.
#[cfg(not(target_arch = "x86_64"))]
pub(super) fn ticks() -> u64 {
    static FIRST: std::sync::OnceLock<Instant> = std::sync::OnceLock::new();
    let elapsed = FIRST.get_or_init(Instant::now).elapsed();
    u64::try_from(elapsed.as_nanos()).unwrap_or(u64::MAX)
}

/// Converts a count to a floating-point number; large counts lose precision.
pub(super) fn to_f64(count: u64) -> f64 {
    let half =
        |bits: u64| f64::from(u32::try_from(bits & 0xffff_ffff).expect("32 bits should be left"));
    half(count >> 32) * 4_294_967_296.0 + half(count)
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn clock_steps_match_elapsed_time() {
        let clock = Clock::start();
        let (start, first) = (Instant::now(), ticks());
        while start.elapsed() < Duration::from_millis(20) {}
        let micros = to_f64(ticks() - first) * clock.tick();
        assert!(micros > 0.0 && micros.is_finite(), "{micros}");
        assert_eq!([to_f64(7), to_f64(1 << 33)], [7.0, 8_589_934_592.0]);
    }
}
