use std::future::poll_fn;
use std::sync::mpsc;
use std::thread;
use std::time::Duration;

use nix::sys::epoll::{Epoll, EpollCreateFlags, EpollEvent, EpollFlags};
use nix::sys::eventfd::{EfdFlags, EventFd};
use tokio::runtime::Builder;

use super::super::ProcessRuntime;
use super::*;
use crate::sys::process::in_child;

fn descriptor() -> Descriptor {
    let epoll =
        Epoll::new(EpollCreateFlags::EPOLL_CLOEXEC).expect("the epoll instance should be created");
    Descriptor::new(Arc::new(epoll))
}

#[test]
fn runtime_without_io_or_time_is_refused() {
    let mut builders = [(); 3].map(|()| Builder::new_current_thread());
    builders[1].enable_io();
    builders[2].enable_time();
    for builder in &mut builders {
        let runtime = builder.build().expect("the runtime should be created");
        let _inside = runtime.enter();
        let error = TokioRuntime.register(descriptor()).expect_err("the runtime should be refused");
        assert_eq!(error.kind(), io::ErrorKind::Unsupported);
        assert!(error.to_string().contains("enable_all"), "{error}");
    }
    let runtime =
        Builder::new_current_thread().enable_all().build().expect("the runtime should be created");
    let _inside = runtime.enter();
    TokioRuntime.register(descriptor()).expect("the runtime should be accepted");
}

/// Checks a forked child, which shares the epoll instance of the runtime.
#[test]
fn registration_dropped_by_forked_child_stays() {
    let runtime =
        Builder::new_current_thread().enable_all().build().expect("the runtime should be created");
    let _inside = runtime.enter();
    let epoll =
        Epoll::new(EpollCreateFlags::EPOLL_CLOEXEC).expect("the epoll instance should be created");
    let epoll = Arc::new(epoll);
    let event = EventFd::from_flags(EfdFlags::EFD_CLOEXEC).expect("the eventfd should be created");
    epoll
        .add(&event, EpollEvent::new(EpollFlags::EPOLLIN, 0))
        .expect("the event should be watched");
    let mut registration = ProcessRuntime::new(Arc::new(TokioRuntime)).register(epoll).ok();
    assert!(in_child(|| registration.take().is_some()));
    let registration = registration.expect("the descriptor should be registered");
    event.write(1).expect("write should succeed");
    let readable = time::timeout(
        Duration::from_secs(60),
        poll_fn(|context| registration.poll_readable(context)),
    );
    let readable = runtime.block_on(readable).expect("the runtime still watches the descriptor");
    readable.expect("the runtime should not fail");
}

#[test]
fn call_outside_of_runtime_is_refused() {
    let errors =
        [TokioRuntime.register(descriptor()).err(), TokioRuntime.sleep_until(Instant::now()).err()];
    for error in errors {
        assert_eq!(
            error.expect("a call outside of a runtime should fail").kind(),
            io::ErrorKind::Unsupported
        );
    }
    assert!(TokioRuntime.run_blocking(Box::new(|| {})).is_err());
}

/// Requests a stack that is larger than any process can have.
#[test]
fn work_is_returned_if_system_has_no_thread() {
    for (stack, has_threads) in [(1 << 20, true), (1 << 46, false)] {
        let runtime = Builder::new_current_thread().thread_stack_size(stack).build();
        let runtime = runtime.expect("the runtime should be created");
        let _inside = runtime.enter();
        let (reports, ran) = mpsc::channel();
        let work = move || reports.send(thread::current().id()).expect("the test waits");
        match TokioRuntime.run_blocking(Box::new(work)) {
            Ok(()) => assert!(has_threads),
            Err(work) => {
                assert!(!has_threads);
                work();
            }
        }
        let ran = ran.recv().expect("the work should run");
        assert_eq!(ran == thread::current().id(), !has_threads);
    }
}
