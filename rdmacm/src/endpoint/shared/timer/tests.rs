use std::fs;
use std::os::fd::AsRawFd;

use nix::poll::{PollFd, PollFlags, PollTimeout, poll};

use super::*;
use crate::sys::process::in_child;

#[track_caller]
fn wait_until_readable(timer: &Timer) {
    let mut descriptors = [PollFd::new(timer.as_fd(), PollFlags::POLLIN)];
    let ready = poll(&mut descriptors, PollTimeout::from(u16::MAX)).expect("poll");
    assert_eq!(ready, 1, "the timer has stopped");
}

#[test]
fn timer_dropped_by_forked_child_continues() {
    let mut timer = Some(
        Timer::new(Duration::from_millis(1), "the timer").expect("the timer should be created"),
    );
    assert!(in_child(|| timer.take().is_some()));
    let timer = timer.expect("the child has a copy");
    // Expirations before the fork do not count.
    timer.clear();
    wait_until_readable(&timer);
}

#[test]
fn only_expired_timer_is_cleared() {
    let new = |interval| Timer::new(interval, "the timer").expect("the timer should be created");
    assert!(!new(Duration::MAX).clear());
    let timer = new(Duration::from_millis(1));
    wait_until_readable(&timer);
    assert!(timer.clear());
}

#[test]
fn dropped_timer_stops_for_other_descriptors() {
    let timer = Timer::new(Duration::MAX, "the timer").expect("the timer should be created");
    let other = timer.as_fd().try_clone_to_owned().expect("the descriptor should be copied");
    let path = format!("/proc/self/fdinfo/{}", other.as_raw_fd());
    let is_running = || {
        let state = fs::read_to_string(&path).expect("the state of the timer should be read");
        assert!(state.contains("it_value"), "{state}");
        !state.contains("it_value: (0, 0)")
    };
    assert!(is_running());
    drop(timer);
    assert!(!is_running());
}
