//! The executors that run the tests of tasks: Tokio with one thread and with two, and smol. The functions of this module
//! work on each of them.

use std::future::Future;
use std::net::SocketAddr;
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use rdmacm_tests::wait_until;
use smol::future::FutureExt;
use tokio::runtime::{Builder, Handle, Runtime};

use crate::endpoint_connect::objects_at;
use crate::fixtures::LONG;

/// Returns Tokio with one thread, and with two.
pub(crate) fn tokios() -> [Runtime; 2] {
    [Builder::new_current_thread(), Builder::new_multi_thread()].map(|mut builder| {
        builder.worker_threads(2).max_blocking_threads(8).enable_all().build().expect("a runtime")
    })
}

/// Runs a test on each executor, in a task, which may move between threads. Checks that no object is left at `address`
/// afterwards.
pub(crate) fn on_each_executor<F>(address: SocketAddr, test: impl Fn() -> F)
where
    F: Future<Output = ()> + Send + 'static,
{
    on_each_tokio(address, &test);
    let before = objects_at(address);
    let test = smol::spawn(test());
    smol::block_on(in_time(test));
    // This function does not wait for tasks and threads that the test has started.
    wait_until("all objects are destroyed", || objects_at(address) == before);
}

/// Runs a test on each Tokio runtime. Checks that no object is left at `address` when the runtime has ended.
pub(crate) fn on_each_tokio<F>(address: SocketAddr, test: impl Fn() -> F)
where
    F: Future<Output = ()> + Send + 'static,
{
    let before = objects_at(address);
    for runtime in tokios() {
        let test = runtime.spawn(test());
        runtime.block_on(async { in_time(test).await }).expect("the test should not panic");
        drop(runtime);
        assert_eq!(objects_at(address), before);
    }
}

/// Waits for `future`, which must not wait forever.
pub(crate) async fn in_time<F: Future>(future: F) -> F::Output {
    named_in_time("the test", future).await
}

/// Waits for `future`, which must not wait forever. The failure names it by `name`.
pub(crate) async fn named_in_time<F: Future>(name: &str, future: F) -> F::Output {
    let ended = timeout(LONG, future).await;
    ended.unwrap_or_else(|Elapsed| panic!("{name} should not wait forever"))
}

/// The error of a future that was not ready in time.
#[derive(Debug)]
pub(crate) struct Elapsed;

/// Waits for `future` for at most `limit`.
pub(crate) async fn timeout<F: Future>(limit: Duration, future: F) -> Result<F::Output, Elapsed> {
    let in_time = async { Ok(future.await) };
    let late = async {
        sleep(limit).await;
        Err(Elapsed)
    };
    in_time.or(late).await
}

pub(crate) async fn sleep(duration: Duration) {
    match Handle::try_current() {
        Ok(_) => tokio::time::sleep(duration).await,
        Err(_) => drop(smol::Timer::after(duration).await),
    }
}

pub(crate) async fn yield_now() {
    match Handle::try_current() {
        Ok(_) => tokio::task::yield_now().await,
        Err(_) => smol::future::yield_now().await,
    }
}

/// Runs `future` as a task of its own.
pub(crate) fn spawn<F>(future: F) -> Task<F::Output>
where
    F: Future<Output: Send> + Send + 'static,
{
    match Handle::try_current() {
        Ok(tokio) => Task::Tokio(tokio.spawn(future)),
        Err(_) => Task::Smol(Some(smol::spawn(future))),
    }
}

/// Runs `work` on a thread that may block.
pub(crate) fn spawn_blocking<T: Send + 'static>(
    work: impl FnOnce() -> T + Send + 'static,
) -> Task<T> {
    match Handle::try_current() {
        Ok(tokio) => Task::Tokio(tokio.spawn_blocking(work)),
        Err(_) => Task::Smol(Some(smol::unblock(work))),
    }
}

/// A task that continues if this handle is dropped. Awaiting it returns its output, or panics as the task did.
pub(crate) enum Task<T> {
    Tokio(tokio::task::JoinHandle<T>),
    Smol(Option<smol::Task<T>>),
    Aborted(Pin<Box<dyn Future<Output = Option<T>> + Send>>),
}

/// The error of an aborted task.
#[derive(Debug)]
pub(crate) struct Aborted;

impl<T: Send + 'static> Task<T> {
    /// Drops the future of the task. Awaiting the task waits for the drop.
    pub(crate) fn abort(&mut self) {
        match self {
            Self::Tokio(task) => task.abort(),
            Self::Smol(task) => {
                let task = task.take().expect("a task should be aborted once");
                *self = Self::Aborted(Box::pin(task.cancel()));
            }
            Self::Aborted(_) => {}
        }
    }
}

impl<T> Future for Task<T> {
    type Output = Result<T, Aborted>;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        match &mut *self {
            Self::Tokio(task) => Pin::new(task).poll(context).map(|ended| {
                ended.map_err(|error| match error.try_into_panic() {
                    Ok(payload) => std::panic::resume_unwind(payload),
                    Err(_) => Aborted,
                })
            }),
            Self::Smol(task) => {
                let task = task.as_mut().expect("the task should exist until the drop");
                Pin::new(task).poll(context).map(Ok)
            }
            Self::Aborted(ended) => ended.as_mut().poll(context).map(|ended| ended.ok_or(Aborted)),
        }
    }
}

impl<T> Drop for Task<T> {
    fn drop(&mut self) {
        if let Self::Smol(task) = self {
            if let Some(task) = task.take() {
                task.detach();
            }
        }
    }
}
