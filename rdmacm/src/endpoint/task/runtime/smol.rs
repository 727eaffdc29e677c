//! smol as a [`Runtime`].

use std::io;
use std::task::{Context, Poll};
use std::time::Instant;

use async_io::{Async, Timer};

use super::{BlockingWork, Descriptor, RegisteredFd, Runtime, Sleep};

/// The reactor, the timers and the thread pool that smol has, for any executor.
///
/// They belong to the process. The crate `async-io` has a thread that watches descriptors and timers. The crate
/// `blocking` has up to 500 threads for blocking work.
///
/// # Examples
///
/// ```no_run
/// use std::sync::Arc;
///
/// use rdmacm::endpoint::{Connector, smol::SmolRuntime, task::Connection};
///
/// # async fn connect() -> rdmacm::Result<()> {
/// let runtime = Arc::new(SmolRuntime);
/// let _connection = Connection::connect_with(&Connector::new(), "10.0.0.1:7471", runtime).await?;
/// # Ok(())
/// # }
/// ```
#[derive(Debug, Clone, Copy, Default)]
pub struct SmolRuntime;

impl Runtime for SmolRuntime {
    fn register(&self, descriptor: Descriptor) -> io::Result<Box<dyn RegisteredFd>> {
        // An epoll instance is not read, so it need not be non-blocking.
        Ok(Box::new(Registered(Async::new_nonblocking(descriptor)?)))
    }

    fn sleep_until(&self, deadline: Instant) -> io::Result<Sleep> {
        let timer = Timer::at(deadline);
        Ok(Box::pin(async move {
            timer.await;
        }))
    }

    fn run_blocking(&self, work: BlockingWork) -> Result<(), BlockingWork> {
        blocking::unblock(work).detach();
        Ok(())
    }
}

#[derive(Debug)]
struct Registered(Async<Descriptor>);

impl RegisteredFd for Registered {
    fn poll_readable(&self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        // Each event makes this ready once. The next call asks the kernel again, which reports a descriptor that is
        // readable.
        self.0.poll_readable(cx)
    }
}
