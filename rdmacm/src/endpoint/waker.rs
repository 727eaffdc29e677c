//! The ways to wake the waiters of an endpoint.

use std::task::Waker;
use std::thread::Thread;

use super::core::WaiterId;

/// The thread that sleeps in `epoll_wait`.
#[derive(Debug, Clone, Copy)]
pub(super) struct Reader {
    pub(super) id: WaiterId,
    /// `true` if it sleeps on the thread epoll instance, and not on the descriptor of the endpoint.
    pub(super) uses_thread_epoll: bool,
    /// `true` if it must wake.
    ///
    /// The wakeup of the descriptor stays enabled until it does, unless it sleeps on the thread epoll instance.
    pub(super) is_woken: bool,
}

impl Reader {
    pub(super) fn new(id: WaiterId, uses_thread_epoll: bool) -> Self {
        Self { id, uses_thread_epoll, is_woken: false }
    }
}

/// The way to wake a waiter.
#[derive(Debug)]
pub(super) enum Wake {
    /// A thread that is parked or sleeps in `epoll_wait`.
    Thread(Thread),
    Task(Waker),
    /// An event loop, which the wakeup of the descriptor wakes.
    EventLoop,
}

impl Wake {
    pub(super) fn wake(self) {
        match self {
            Self::Thread(thread) => thread.unpark(),
            Self::Task(waker) => waker.wake(),
            Self::EventLoop => {}
        }
    }
}
