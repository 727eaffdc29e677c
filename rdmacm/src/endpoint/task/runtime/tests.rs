use std::sync::atomic::{AtomicU32, Ordering};
use std::task::Waker;

use nix::sys::epoll::EpollCreateFlags;

use super::*;
use crate::sys::process::in_child;

/// The number of times that the runtime below, or a part of it, was used or dropped.
static USES: AtomicU32 = AtomicU32::new(0);

fn count_use() {
    USES.fetch_add(1, Ordering::Relaxed);
}

/// A runtime that counts its uses, and its own registration and timer.
#[derive(Debug)]
struct Counted;

impl Runtime for Counted {
    fn register(&self, _: Descriptor) -> io::Result<Box<dyn RegisteredFd>> {
        count_use();
        Ok(Box::new(Self))
    }

    fn sleep_until(&self, _: Instant) -> io::Result<Sleep> {
        count_use();
        Ok(Box::pin(Self))
    }

    fn run_blocking(&self, _: BlockingWork) -> Result<(), BlockingWork> {
        count_use();
        Ok(())
    }
}

impl RegisteredFd for Counted {
    fn poll_readable(&self, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        count_use();
        Poll::Pending
    }
}

impl Future for Counted {
    type Output = ();

    fn poll(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<()> {
        count_use();
        Poll::Pending
    }
}

impl Drop for Counted {
    fn drop(&mut self) {
        count_use();
    }
}

#[test]
fn forked_child_uses_no_part_of_runtime() {
    let epoll =
        Epoll::new(EpollCreateFlags::EPOLL_CLOEXEC).expect("the epoll instance should be created");
    let epoll = Arc::new(epoll);
    let runtime = ProcessRuntime::new(Arc::new(Counted));
    let mut parts = Some((
        runtime.register(Arc::clone(&epoll)).expect("the descriptor should be registered"),
        runtime.start_timer(Instant::now()).expect("the timer should be created"),
        runtime,
    ));
    let mut context = Context::from_waker(Waker::noop());
    let before = USES.load(Ordering::Relaxed);
    let child_uses_none = in_child(|| {
        let (registration, mut timer, runtime) = parts.take().expect("the parts should be present");
        let is_refused = |error: Option<io::Error>| {
            error.is_some_and(|error| error.kind() == io::ErrorKind::Unsupported)
        };
        let Poll::Ready(readable) = registration.poll_readable(&mut context) else { return false };
        assert!(is_refused(readable.err()));
        assert!(timer.poll_elapsed(&mut context).is_ready());
        assert!(is_refused(runtime.register(epoll).err()));
        assert!(is_refused(runtime.start_timer(Instant::now()).err()));
        assert!(runtime.run_blocking(Box::new(|| {})).is_err());
        drop((registration, timer, runtime));
        USES.load(Ordering::Relaxed) == before
    });
    assert!(child_uses_none);
    drop(parts);
    assert_eq!(USES.load(Ordering::Relaxed), before + 3, "the parent drops all parts");
}

#[test]
fn raw_descriptor_equals_borrowed_one() {
    let epoll =
        Epoll::new(EpollCreateFlags::EPOLL_CLOEXEC).expect("the epoll instance should be created");
    let number = epoll.0.as_raw_fd();
    let descriptor = Descriptor::new(Arc::new(epoll));
    assert_eq!((descriptor.as_raw_fd(), descriptor.as_fd().as_raw_fd()), (number, number));
}
