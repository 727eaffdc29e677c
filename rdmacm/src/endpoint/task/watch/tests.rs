//! Tests of tasks that sleep and leave in every way.
//!
//! They use a descriptor that the test makes readable, and a small runtime of this file, with real descriptors, threads
//! and an executor.

use std::future::Future;
use std::pin::{Pin, pin};
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::task::ready;
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use nix::errno::Errno;
use nix::sys::epoll::{EpollCreateFlags, EpollEvent, EpollFlags, EpollTimeout};
use nix::sys::eventfd::{EfdFlags, EventFd};

use super::*;
use crate::endpoint::task::runtime::{BlockingWork, Descriptor, RegisteredFd, Runtime, Sleep};
use crate::endpoint::task::test_executor::block_on;
use crate::sys::process::in_child;

/// A registration that behaves as one of Tokio: it remembers readiness until it is consumed.
#[derive(Debug, Default)]
struct Ready(Mutex<(bool, Option<Waker>)>);

impl Ready {
    /// Makes the descriptor readable.
    fn fire(&self) {
        let mut state = ignore_poison(self.0.lock());
        state.0 = true;
        let waker = state.1.take();
        drop(state);
        if let Some(waker) = waker {
            waker.wake();
        }
    }
}

impl RegisteredFd for Arc<Ready> {
    fn poll_readable(&self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let (is_ready, waker) = &mut *ignore_poison(self.0.lock());
        if std::mem::take(is_ready) {
            return Poll::Ready(Ok(()));
        }
        *waker = Some(cx.waker().clone());
        Poll::Pending
    }
}

/// The number of times that a task was woken.
#[derive(Debug, Default)]
struct Woken(AtomicU32);

impl Wake for Woken {
    fn wake(self: Arc<Self>) {
        self.0.fetch_add(1, Ordering::Relaxed);
    }
}

/// A task that sleeps on a watch.
struct Task<'a> {
    sleeper: Sleeper<'a>,
    woken: Arc<Woken>,
}

impl<'a> Task<'a> {
    fn new(watch: &'a Watch) -> Self {
        Self { sleeper: watch.sleeper(), woken: Arc::default() }
    }

    /// Returns a task that sleeps.
    fn asleep(watch: &'a Watch) -> Self {
        let mut task = Self::new(watch);
        assert!(task.poll().is_pending());
        task
    }

    fn poll(&mut self) -> Poll<io::Result<()>> {
        let waker = Waker::from(Arc::clone(&self.woken));
        self.sleeper.poll_readable(&mut Context::from_waker(&waker))
    }

    /// Checks without a result, and polls.
    fn look_and_poll(&mut self) -> Poll<io::Result<()>> {
        self.sleeper.set_awake();
        self.poll()
    }

    fn wakeups(&self) -> u32 {
        self.woken.0.load(Ordering::Relaxed)
    }
}

fn watch() -> (Arc<Ready>, Watch) {
    let ready = Arc::new(Ready::default());
    let watch = Watch::of(Registration::of(Box::new(Arc::clone(&ready))));
    (ready, watch)
}

#[test]
fn readiness_wakes_single_task() {
    let (ready, watch) = watch();
    let mut tasks = [(); 3].map(|()| Task::asleep(&watch));
    ready.fire();
    assert_eq!(tasks.each_ref().map(Task::wakeups), [1, 0, 0]);
    // The woken task finds no result and sleeps again, as the last one.
    assert!(tasks[0].look_and_poll().is_pending());
    ready.fire();
    assert_eq!(tasks.each_ref().map(Task::wakeups), [1, 1, 0]);
}

/// Checks a task whose waker belongs to the parent's executor.
#[test]
fn task_dropped_by_forked_child_wakes_none() {
    let (ready, watch) = watch();
    let (mut first, second) = (Some(Task::asleep(&watch)), Task::asleep(&watch));
    ready.fire();
    let wakes_none = in_child(|| {
        drop(first.take());
        second.wakeups() == 0
    });
    assert!(wakes_none);
    drop(first);
    assert_eq!(second.wakeups(), 1);
}

#[test]
fn woken_task_that_leaves_wakes_next() {
    let (ready, watch) = watch();
    let [first, mut second, third] = [(); 3].map(|()| Task::asleep(&watch));
    ready.fire();
    // The woken task is dropped before it is polled.
    drop(first);
    assert_eq!((second.wakeups(), third.wakeups()), (1, 0));
    // The second task has found its result, and there may be more results.
    second.sleeper.set_awake();
    drop(second);
    assert_eq!(third.wakeups(), 1);
}

#[test]
fn task_that_was_not_woken_leaves_quietly() {
    let (ready, watch) = watch();
    let [mut first, second, third] = [(); 3].map(|()| Task::asleep(&watch));
    drop(second);
    // A change of the endpoint has woken the first task.
    first.sleeper.set_awake();
    drop(first);
    assert_eq!(third.wakeups(), 0);
    ready.fire();
    assert_eq!(third.wakeups(), 1);
}

#[test]
fn readiness_between_look_and_poll_is_kept() {
    let (ready, watch) = watch();
    let mut task = Task::asleep(&watch);
    ready.fire();
    task.sleeper.set_awake();
    // The check may or may not see an event that arrives meanwhile.
    ready.fire();
    assert!(task.poll().is_ready());
    assert!(task.look_and_poll().is_pending());
}

#[test]
fn readiness_before_first_poll_is_kept() {
    let (ready, watch) = watch();
    ready.fire();
    let mut task = Task::new(&watch);
    assert!(task.poll().is_ready());
    let other = Task::asleep(&watch);
    drop(task);
    assert_eq!(other.wakeups(), 1, "the task has left without a further check");
}

/// A registration that becomes ready while it is polled.
#[derive(Debug)]
struct WakesAtOnce;

impl RegisteredFd for WakesAtOnce {
    fn poll_readable(&self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        cx.waker().wake_by_ref();
        Poll::Pending
    }
}

#[test]
fn readiness_during_poll_wakes_task() {
    let watch = Watch::of(Registration::of(Box::new(WakesAtOnce)));
    let task = Task::asleep(&watch);
    assert_eq!(task.wakeups(), 1);
    // The first task holds its wakeup until it leaves.
    let other = Task::asleep(&watch);
    assert_eq!(other.wakeups(), 1);
    drop(task);
}

/// A runtime that is written by hand.
#[derive(Debug)]
struct OwnRuntime;

/// A thread that watches a descriptor.
#[derive(Debug)]
struct OwnRegistered {
    ready: Arc<Ready>,
    stop: Arc<EventFd>,
    reactor: Option<JoinHandle<()>>,
}

fn own_runtime() -> ProcessRuntime {
    ProcessRuntime::new(Arc::new(OwnRuntime))
}

impl Runtime for OwnRuntime {
    fn register(&self, descriptor: Descriptor) -> io::Result<Box<dyn RegisteredFd>> {
        let epoll = Epoll::new(EpollCreateFlags::EPOLL_CLOEXEC)?;
        epoll.add(&descriptor, EpollEvent::new(EpollFlags::EPOLLIN | EpollFlags::EPOLLET, 0))?;
        let stop = Arc::new(EventFd::from_flags(EfdFlags::EFD_CLOEXEC)?);
        epoll.add(&*stop, EpollEvent::new(EpollFlags::EPOLLIN, 1))?;
        let ready = Arc::new(Ready::default());
        let (fires, keeps) = (Arc::clone(&ready), Arc::clone(&stop));
        let react = move || {
            let _open = (&descriptor, keeps);
            let mut events = [EpollEvent::empty(); 2];
            loop {
                let count = match epoll.wait(&mut events, EpollTimeout::NONE) {
                    Err(Errno::EINTR) => continue,
                    count => count.expect("the epoll instance is open"),
                };
                if events[..count].iter().any(|event| event.data() == 1) {
                    return;
                }
                fires.fire();
            }
        };
        let reactor = Some(thread::spawn(react));
        Ok(Box::new(OwnRegistered { ready, stop, reactor }))
    }

    fn sleep_until(&self, deadline: Instant) -> io::Result<Sleep> {
        let is_over = Arc::new(Ready::default());
        let fires = Arc::clone(&is_over);
        thread::spawn(move || {
            thread::sleep(deadline.saturating_duration_since(Instant::now()));
            fires.fire();
        });
        Ok(Box::pin(async move {
            poll_fn(|context| is_over.poll_readable(context))
                .await
                .expect("waiting for the timer should not fail");
        }))
    }

    fn run_blocking(&self, work: BlockingWork) -> Result<(), BlockingWork> {
        thread::spawn(work);
        Ok(())
    }
}

impl RegisteredFd for OwnRegistered {
    fn poll_readable(&self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.ready.poll_readable(cx)
    }
}

impl Drop for OwnRegistered {
    fn drop(&mut self) {
        self.stop.write(1).expect("the eventfd is open");
        let reactor = self.reactor.take().expect("the reactor is taken only on drop");
        reactor.join().expect("the reactor should not panic");
    }
}

/// Takes one item from `source`, as a connection takes a message.
///
/// Each check finds one item and leaves the rest.
async fn take(watch: &Watch, source: &EventFd) {
    let mut sleeper = watch.sleeper();
    poll_fn(|context| {
        loop {
            sleeper.set_awake();
            match source.read() {
                Err(Errno::EAGAIN) => {}
                taken => {
                    assert_eq!(taken, Ok(1));
                    return Poll::Ready(());
                }
            }
            ready!(sleeper.poll_readable(context)).expect("the runtime watches");
        }
    })
    .await;
}

/// Polls `future` until it has been pending `count` times, and drops it then.
async fn until_pending<F: Future>(future: F, count: u32) -> Option<F::Output> {
    let mut future = pin!(future);
    let mut left = count;
    poll_fn(move |context| match future.as_mut().poll(context) {
        Poll::Ready(output) => Poll::Ready(Some(output)),
        Poll::Pending if left == 0 => Poll::Ready(None),
        Poll::Pending => {
            left -= 1;
            Poll::Pending
        }
    })
    .await
}

/// Checks three tasks that take items of a thread and sometimes drop a waiting call.
///
/// A call is dropped before or after its task was woken. If a wakeup were lost, some items would not be taken.
#[test]
fn own_runtime_loses_no_wakeup() {
    const COUNT: u32 = 3000;
    let flags = EfdFlags::EFD_CLOEXEC | EfdFlags::EFD_NONBLOCK | EfdFlags::EFD_SEMAPHORE;
    let source = EventFd::from_flags(flags).expect("the eventfd should be created");
    let epoll =
        Epoll::new(EpollCreateFlags::EPOLL_CLOEXEC).expect("the epoll instance should be created");
    epoll.add(&source, EpollEvent::new(EpollFlags::EPOLLIN, 0)).expect("add");
    let watch = Watch::new(&own_runtime(), Arc::new(epoll)).expect("register");
    let (taken, has_ended) = (AtomicU32::new(0), AtomicBool::new(false));
    thread::scope(|scope| {
        for number in 0..3 {
            let (watch, source, taken, has_ended) = (&watch, &source, &taken, &has_ended);
            scope.spawn(move || {
                for round in number.. {
                    let take = take(watch, source);
                    let was_taken = match round % 4 {
                        0 => block_on(until_pending(take, 0)).is_some(),
                        1 => block_on(until_pending(take, 1)).is_some(),
                        _ => {
                            block_on(take);
                            true
                        }
                    };
                    if has_ended.load(Ordering::Relaxed) {
                        return;
                    }
                    taken.fetch_add(u32::from(was_taken), Ordering::Relaxed);
                }
            });
        }
        for number in 1..=COUNT {
            source.write(1).expect("write");
            // At times, all tasks sleep.
            let is_behind = || taken.load(Ordering::Relaxed) < number;
            let late = Instant::now() + Duration::from_secs(120);
            while number % 3 == 0 && is_behind() {
                assert!(
                    Instant::now() < late,
                    "{number} wakeups were sent, and not all were taken"
                );
                thread::yield_now();
            }
        }
        has_ended.store(true, Ordering::Relaxed);
        // Each of the three takes one more at most.
        source.write(100).expect("write");
    });
}

#[test]
fn own_runtime_has_deadlines() {
    use crate::endpoint::task::deadline::until_deadline;

    let soon = Some(Instant::now() + Duration::from_millis(5));
    let never: Pin<Box<dyn Future<Output = ()>>> = Box::pin(std::future::pending());
    let runtime = own_runtime();
    let late = block_on(until_deadline(&runtime, soon, never)).expect("there is a timer");
    assert_eq!(late, None);
    let early = until_deadline(&runtime, soon, async { 1 });
    assert_eq!(
        block_on(early).expect("no timer is needed"),
        Some(1),
        "a future that is ready should not be late"
    );
    let unbounded = until_deadline(&runtime, None, async { 2 });
    assert_eq!(block_on(unbounded).expect("no timer is needed"), Some(2));
}
