//! [`Repeat`], a stream of the results of an async call.

use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use futures_core::{FusedStream, Stream};

/// A stream that calls `make` for each item and awaits the future.
///
/// The stream ends when a future returns `None`.
pub(super) struct Repeat<M, F> {
    make: M,
    future: Pin<Box<Option<F>>>,
    has_ended: bool,
}

impl<M, F> Repeat<M, F> {
    pub(super) fn new(make: M) -> Self {
        Self { make, future: Box::pin(None), has_ended: false }
    }
}

impl<T, M, F> Stream for Repeat<M, F>
where
    M: FnMut() -> F + Unpin,
    F: Future<Output = Option<T>>,
{
    type Item = T;

    fn poll_next(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<T>> {
        let Self { make, future, has_ended } = self.get_mut();
        if *has_ended {
            return Poll::Ready(None);
        }
        let pending = match future.as_mut().as_pin_mut() {
            Some(pending) => pending,
            None => {
                future.set(Some(make()));
                future.as_mut().as_pin_mut().expect("the future was set")
            }
        };
        let item = ready!(pending.poll(context));
        future.set(None);
        *has_ended = item.is_none();
        Poll::Ready(item)
    }
}

impl<T, M, F> FusedStream for Repeat<M, F>
where
    M: FnMut() -> F + Unpin,
    F: Future<Output = Option<T>>,
{
    fn is_terminated(&self) -> bool {
        self.has_ended
    }
}

#[cfg(test)]
mod tests;
