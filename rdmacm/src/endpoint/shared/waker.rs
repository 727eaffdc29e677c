//! The ways to wake the waiters of an endpoint.

use std::task::Waker;
use std::thread::Thread;

use crate::endpoint::core::WaiterId;

/// The thread that sleeps in `epoll_wait`.
#[derive(Debug, Clone, Copy)]
pub(in crate::endpoint) struct Reader {
    pub(in crate::endpoint) id: WaiterId,
    /// `true` if the thread sleeps on the thread epoll instance, and not on the descriptor of the endpoint.
    pub(in crate::endpoint) uses_thread_epoll: bool,
    /// `true` if the thread must wake.
    ///
    /// The wakeup of the descriptor stays enabled until the thread wakes, unless it sleeps on the thread epoll
    /// instance.
    pub(in crate::endpoint) is_woken: bool,
}

impl Reader {
    pub(in crate::endpoint) fn new(id: WaiterId, uses_thread_epoll: bool) -> Self {
        Self { id, uses_thread_epoll, is_woken: false }
    }
}

/// The way to wake a waiter.
#[derive(Debug)]
pub(in crate::endpoint) enum Wake {
    /// A thread that is parked or sleeps in `epoll_wait`.
    Thread(Thread),
    Task(Waker),
    /// An event loop, which the wakeup of the descriptor wakes.
    EventLoop,
}

impl Wake {
    pub(in crate::endpoint) fn wake(self) {
        match self {
            Self::Thread(thread) => thread.unpark(),
            Self::Task(waker) => waker.wake(),
            Self::EventLoop => {}
        }
    }
}
