//! A runtime for an executor that the library does not know, as a program may write it.
//!
//! Each descriptor, each deadline and each blocking call has its own thread.

use std::future::{Future, poll_fn};
use std::io;
use std::net::SocketAddr;
use std::pin::pin;
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll, Wake, Waker};
use std::thread::{self, Thread};
use std::time::{Duration, Instant};

use nix::errno::Errno;
use nix::sys::epoll::{Epoll, EpollCreateFlags, EpollEvent, EpollFlags, EpollTimeout};
use nix::sys::eventfd::{EfdFlags, EventFd};
use rdmacm::ErrorKind;
use rdmacm::endpoint::task::{
    BlockingWork, Connection, Descriptor, Listener, RegisteredFd, Runtime, Sleep,
};
use rdmacm::endpoint::{self, ConnectionConfig, Connector, DmaMemory, RemoteAccess};
use rdmacm_tests::wait_until;

use crate::endpoint_connect::objects_at;
use crate::fixtures::{LONG, roce, siw};

#[derive(Debug)]
struct Threads;

/// The flag of an event, and the waker of the task that waits for the event.
#[derive(Debug, Default)]
struct Event(Mutex<(bool, Option<Waker>)>);

impl Event {
    fn happens(&self) {
        let mut state = self.0.lock().expect("no thread should panic");
        state.0 = true;
        let waker = state.1.take();
        drop(state);
        if let Some(waker) = waker {
            waker.wake();
        }
    }

    /// Returns `Ready` once after one or several events.
    fn poll(&self, context: &Context<'_>) -> Poll<()> {
        let (has_happened, waker) = &mut *self.0.lock().expect("no thread should panic");
        if std::mem::take(has_happened) {
            return Poll::Ready(());
        }
        *waker = Some(context.waker().clone());
        Poll::Pending
    }
}

#[derive(Debug)]
struct Registered {
    readable: Arc<Event>,
    stop: Arc<EventFd>,
}

impl Runtime for Threads {
    fn register(&self, descriptor: Descriptor) -> io::Result<Box<dyn RegisteredFd>> {
        const STOP: u64 = 1;
        let epoll = Epoll::new(EpollCreateFlags::EPOLL_CLOEXEC)?;
        epoll.add(&descriptor, EpollEvent::new(EpollFlags::EPOLLIN | EpollFlags::EPOLLET, 0))?;
        let stop = Arc::new(EventFd::from_flags(EfdFlags::EFD_CLOEXEC)?);
        epoll.add(&*stop, EpollEvent::new(EpollFlags::EPOLLIN, STOP))?;
        let readable = Arc::new(Event::default());
        let (happens, stops) = (Arc::clone(&readable), Arc::clone(&stop));
        thread::spawn(move || {
            let _open = (descriptor, stops);
            let mut events = [EpollEvent::empty(); 2];
            loop {
                let count = match epoll.wait(&mut events, EpollTimeout::NONE) {
                    Err(Errno::EINTR) => continue,
                    count => count.expect("the epoll instance should be open"),
                };
                if events[..count].iter().any(|event| event.data() == STOP) {
                    return;
                }
                happens.happens();
            }
        });
        Ok(Box::new(Registered { readable, stop }))
    }

    fn sleep_until(&self, deadline: Instant) -> io::Result<Sleep> {
        let is_over = Arc::new(Event::default());
        let happens = Arc::clone(&is_over);
        thread::spawn(move || {
            thread::sleep(deadline.saturating_duration_since(Instant::now()));
            happens.happens();
        });
        Ok(Box::pin(async move { poll_fn(|context| is_over.poll(context)).await }))
    }

    fn run_blocking(&self, work: BlockingWork) -> Result<(), BlockingWork> {
        thread::spawn(work);
        Ok(())
    }
}

impl RegisteredFd for Registered {
    fn poll_readable(&self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.readable.poll(cx).map(Ok)
    }
}

impl Drop for Registered {
    fn drop(&mut self) {
        self.stop.write(1).expect("the eventfd should be open");
    }
}

struct Unparks(Thread);

impl Wake for Unparks {
    fn wake(self: Arc<Self>) {
        self.0.unpark();
    }
}

/// Runs one task to its end, within a generous time limit.
fn block_on<F: Future>(future: F) -> F::Output {
    let waker = Waker::from(Arc::new(Unparks(thread::current())));
    let mut future = pin!(future);
    let late = Instant::now() + 2 * LONG;
    loop {
        match future.as_mut().poll(&mut Context::from_waker(&waker)) {
            Poll::Ready(output) => return output,
            Poll::Pending => thread::park_timeout(late.saturating_duration_since(Instant::now())),
        }
        assert!(Instant::now() < late, "the task should have been woken");
    }
}

/// Runs a server and a client with three tasks each on one connection.
///
/// Each side has a thread of its own.
fn tasks_exchange_messages(address: SocketAddr) {
    const EACH: u32 = 200;
    let before = objects_at(address);
    let listener = endpoint::Listener::bind(address).expect("listen");
    let listener = Listener::from_blocking_with(listener, Arc::new(Threads)).expect("watch");
    let server = listener.local_addr().expect("an IP address");
    let config = ConnectionConfig::new().send_buffers(2).receive_buffers(8);
    let theirs = config.clone();
    let accepting = thread::spawn(move || {
        block_on(async {
            listener.accept().await.expect("a request").accept(&theirs, &[], LONG).await
        })
    });
    let connector = Connector::new().config(config).total_timeout(LONG);
    let client = block_on(Connection::connect_with(&connector, server, Arc::new(Threads)));
    let client = client.expect("connect");
    let server = accepting.join().expect("server should not panic").expect("accept");
    let export = block_on(async {
        let memory = DmaMemory::new(64).expect("memory");
        server.export(&memory, .., RemoteAccess::READ).await.expect("export")
    });
    block_on(export.revoke()).expect("revoke");
    thread::scope(|scope| {
        let echoing = [(); 3].map(|()| {
            scope.spawn(|| {
                block_on(async {
                    while let Some(message) = server.recv().await.expect("receive") {
                        server.post_bytes(&message).await.expect("post");
                    }
                });
            })
        });
        let asking = [(); 3].map(|()| {
            scope.spawn(|| {
                block_on(async {
                    for number in 0..EACH {
                        client.post_bytes(&number.to_ne_bytes()).await.expect("post");
                        // The answer may belong to any of the tasks.
                        let message = client.recv().await.expect("receive").expect("an answer");
                        assert_eq!(message.len(), 4);
                    }
                });
            })
        });
        for task in asking {
            task.join().expect("the task should not panic");
        }
        block_on(client.close(LONG)).expect("close");
        for task in echoing {
            task.join().expect("the task should not panic");
        }
    });
    block_on(server.close(LONG)).expect("close");
    drop((client, server));
    wait_until("nothing is left", || objects_at(address) == before);
}

#[test]
#[ignore = "needs the test bed: cargo xtask test"]
fn rxe_own_runtime_serves_tasks() {
    tasks_exchange_messages(roce(0));
}

#[test]
#[ignore = "needs the test bed: cargo xtask test"]
fn siw_own_runtime_serves_tasks() {
    tasks_exchange_messages(siw(0));
}

#[test]
#[ignore = "needs the test bed: cargo xtask test"]
fn own_runtime_ends_attempt_at_deadline() {
    let before = objects_at(roce(0));
    let listener = endpoint::Listener::bind(roce(0)).expect("listen");
    let server = listener.local_addr().expect("an IP address");
    let connector = Connector::new().total_timeout(Duration::from_millis(50));
    let connected = block_on(Connection::connect_with(&connector, server, Arc::new(Threads)));
    let error = connected.expect_err("no task should accept");
    assert_eq!(*error.kind(), ErrorKind::TimedOut, "{error}");
    drop(listener);
    wait_until("nothing is left", || objects_at(roce(0)) == before);
}
