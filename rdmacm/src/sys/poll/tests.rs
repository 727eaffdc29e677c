use super::*;

use std::fs;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::mpsc;
use std::thread;

use nix::unistd::{Pid, gettid};

fn pipe() -> (OwnedFd, OwnedFd) {
    nix::unistd::pipe().expect("pipe")
}

fn byte(from: &OwnedFd) -> Result<usize, CommandError> {
    nix::unistd::read(from, &mut [0]).map_err(CommandError::Os)
}

/// Returns a deadline that has passed.
fn over() -> Option<Instant> {
    Some(Instant::now())
}

#[test]
fn timed_read_does_not_wait_in_blocking_read() {
    let (from, to) = pipe();
    let (fd, waiting) = (from.as_fd(), Waiting::default());
    let read = || {
        // Imitates another thread that changes the mode just before the read.
        waiting.set_nonblocking(fd, false)?;
        assert!(is_nonblocking(fd).expect("fcntl"), "the read would wait");
        byte(&from)
    };
    assert_eq!(waiting.read_by(fd, over(), read), Ok(None));
    let (tx, rx) = mpsc::channel();
    thread::scope(|scope| {
        let signal_and_read = || {
            tx.send(()).expect("the test listens");
            byte(&from)
        };
        let reader = scope.spawn(move || waiting.read(fd, signal_and_read));
        rx.recv().expect("reader should find nothing to read");
        nix::unistd::write(&to, &[1]).expect("write");
        assert_eq!(reader.join().expect("the reader lives"), Ok(1));
    });
}

/// Waits until a thread of this process sleeps.
fn asleep(thread: Pid) {
    let asleep = || {
        let stat = fs::read_to_string(format!("/proc/self/task/{thread}/stat")).expect("stat");
        stat.rsplit(") ").next().is_some_and(|rest| rest.starts_with('S'))
    };
    while !asleep() {
        thread::yield_now();
    }
}

#[test]
fn mode_and_its_record_change_together() {
    let (from, _to) = pipe();
    let (fd, waiting) = (from.as_fd(), &Waiting::default());
    let has_deadline = || waiting.read_by(fd, over(), || byte(&from)).map(drop);
    let wants_no_waiting = || waiting.set_nonblocking(fd, true);
    let changes: [&(dyn Fn() -> Result<(), CommandError> + Sync); 2] =
        [&has_deadline, &wants_no_waiting];
    for change in changes {
        let held = waiting.by_poll();
        let (tx, rx) = mpsc::channel();
        thread::scope(|scope| {
            scope.spawn(move || {
                tx.send(gettid()).expect("the test listens");
                change().expect("no failure");
            });
            asleep(rx.recv().expect("the thread should send its id"));
            assert!(
                !is_nonblocking(fd).expect("fcntl"),
                "the mode should not change while the lock is held"
            );
            drop(held);
        });
        assert!(is_nonblocking(fd).expect("fcntl"));
        let blocking = flags(fd).expect("fcntl") - OFlag::O_NONBLOCK;
        fcntl(fd, FcntlArg::F_SETFL(blocking)).expect("fcntl");
    }
}
