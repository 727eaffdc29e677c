//! Away from the threads that run tasks: what takes its time in the kernel.

use std::io;
use std::ops::{Deref, DerefMut};
use std::panic;

use tokio::runtime::Handle;

use crate::error::{Error, ErrorKind};

/// Does `work` on a thread that may wait. `None` where the runtime ends before it is begun; it is
/// dropped then.
///
/// It goes on where nobody waits for it any more; what comes of it is dropped there.
pub(super) async fn off<T: Send + 'static>(work: impl FnOnce() -> T + Send + 'static) -> Option<T> {
    let Ok(runtime) = Handle::try_current() else { return Some(work()) };
    match runtime.spawn_blocking(work).await {
        Ok(done) => Some(done),
        Err(error) => match error.try_into_panic() {
            Ok(payload) => panic::resume_unwind(payload),
            Err(_) => None,
        },
    }
}

/// What takes its time to drop: that is done on a thread that may wait, where there is a runtime,
/// and otherwise where it is dropped.
#[derive(Debug)]
pub(super) struct Slow<T: Send + 'static>(Option<T>);

const HELD: &str = "it is taken out only where the value goes";

impl<T: Send + 'static> Slow<T> {
    pub(super) fn new(value: T) -> Self {
        Self(Some(value))
    }

    pub(super) fn into_inner(mut self) -> T {
        self.0.take().expect(HELD)
    }
}

impl<T: Send + 'static> Deref for Slow<T> {
    type Target = T;

    fn deref(&self) -> &T {
        self.0.as_ref().expect(HELD)
    }
}

impl<T: Send + 'static> DerefMut for Slow<T> {
    fn deref_mut(&mut self) -> &mut T {
        self.0.as_mut().expect(HELD)
    }
}

impl<T: Send + 'static> Drop for Slow<T> {
    fn drop(&mut self) {
        let Some(value) = self.0.take() else { return };
        if let Ok(runtime) = Handle::try_current() {
            // Where the runtime ends before, this is dropped there, and the value with it.
            runtime.spawn_blocking(move || drop(value));
        }
    }
}

/// The error of a runtime that does not do what it is asked: it has ended, or the kernel refuses.
pub(super) fn refused(
    operation: &'static str,
    subject: impl Into<std::borrow::Cow<'static, str>>,
    error: &io::Error,
) -> Error {
    let errno = error.raw_os_error().unwrap_or(libc::ECANCELED);
    Error::new(operation, subject, ErrorKind::Os(errno))
}
