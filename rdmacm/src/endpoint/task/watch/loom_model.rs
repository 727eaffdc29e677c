//! Tasks that sleep, are woken and leave, in every order.

use loom::sync::Condvar;
use loom::thread;

use super::*;
use crate::endpoint::task::runtime::RegisteredFd;
use crate::sync::{check, check_bounded};

/// A descriptor that is readable while it has events, with an edge-triggered registration.
#[derive(Debug, Default)]
struct Source(Mutex<SourceState>);

#[derive(Debug, Default)]
struct SourceState {
    events: u32,
    is_ready: bool,
    waker: Option<Waker>,
}

impl Source {
    fn add_event(&self) {
        let mut state = ignore_poison(self.0.lock());
        state.events += 1;
        state.is_ready = true;
        let waker = state.waker.take();
        drop(state);
        if let Some(waker) = waker {
            waker.wake();
        }
    }

    /// Takes one event and leaves the rest. Returns `true` if there was one.
    fn take(&self) -> bool {
        let mut state = ignore_poison(self.0.lock());
        let found = state.events > 0;
        state.events -= u32::from(found);
        found
    }
}

impl RegisteredFd for Arc<Source> {
    fn poll_readable(&self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let mut state = ignore_poison(self.0.lock());
        if std::mem::take(&mut state.is_ready) {
            return Poll::Ready(Ok(()));
        }
        state.waker = Some(cx.waker().clone());
        Poll::Pending
    }
}

/// The means to sleep of a task's thread.
#[derive(Debug, Default)]
struct Parker {
    is_woken: Mutex<bool>,
    changed: Condvar,
}

impl Wake for Parker {
    fn wake(self: Arc<Self>) {
        *ignore_poison(self.is_woken.lock()) = true;
        self.changed.notify_one();
    }
}

impl Parker {
    fn park(&self) {
        let mut is_woken = ignore_poison(self.is_woken.lock());
        while !*is_woken {
            is_woken = ignore_poison(self.changed.wait(is_woken));
        }
        *is_woken = false;
    }
}

/// Checks and polls until an event was taken, or until it would sleep after `sleeps` sleeps.
///
/// Returns `true` if it has taken an event.
fn run(watch: &Watch, source: &Source, mut sleeps: u32) -> bool {
    let parker = Arc::new(Parker::default());
    let waker = Waker::from(Arc::clone(&parker));
    let mut sleeper = watch.sleeper();
    loop {
        sleeper.set_awake();
        if source.take() {
            return true;
        }
        if sleeper.poll_readable(&mut Context::from_waker(&waker)).is_pending() {
            if sleeps == 0 {
                return false;
            }
            sleeps -= 1;
            parker.park();
        }
    }
}

fn watch() -> (Arc<Source>, Arc<Watch>) {
    let source = Arc::new(Source::default());
    let watch = Arc::new(Watch::of(Registration::of(Box::new(Arc::clone(&source)))));
    (source, watch)
}

/// Begins a task that wants an event, and sleeps until there is one.
fn spawn_task(source: &Arc<Source>, watch: &Arc<Watch>) -> thread::JoinHandle<bool> {
    let (source, watch) = (Arc::clone(source), Arc::clone(watch));
    thread::spawn(move || run(&watch, &source, u32::MAX))
}

/// Checks that dropping a sleeping task after an event passes its wakeup on.
///
/// If the wakeup were lost, the other task would sleep forever.
#[test]
fn loom_departure_passes_wakeup_on() {
    check(|| {
        let (source, watch) = watch();
        let mut leaves = watch.sleeper();
        assert!(leaves.poll_readable(&mut Context::from_waker(Waker::noop())).is_pending());
        let stays = spawn_task(&source, &watch);
        source.add_event();
        drop(leaves);
        assert!(stays.join().expect("the task should not panic"));
    });
}

/// Checks a task that leaves while two events arrive, one for it and one for the other task.
#[test]
fn loom_departure_during_events_is_safe() {
    check_bounded(|| {
        let (source, watch) = watch();
        let (theirs, events) = (Arc::clone(&watch), Arc::clone(&source));
        let leaves = thread::spawn(move || run(&theirs, &events, 0));
        let stays = spawn_task(&source, &watch);
        source.add_event();
        source.add_event();
        leaves.join().expect("the task should not panic");
        assert!(stays.join().expect("the task should not panic"));
    });
}

/// Checks two events that the runtime reports once, to a task that takes one of them.
///
/// The other task must find the other event.
#[test]
fn loom_one_report_serves_two_tasks() {
    check(|| {
        let (source, watch) = watch();
        let other = spawn_task(&source, &watch);
        ignore_poison(source.0.lock()).events = 1;
        source.add_event();
        let mut sleeper = watch.sleeper();
        let _ = sleeper.poll_readable(&mut Context::from_waker(Waker::noop()));
        sleeper.set_awake();
        assert!(source.take());
        drop(sleeper);
        assert!(other.join().expect("the task should not panic"));
    });
}
