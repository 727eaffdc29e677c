//! [`DestroyError`]: returns the object that could not be destroyed.

use super::Error;

/// An object that could not be destroyed, and the error.
///
/// The object is unchanged: it can be used, or destroyed again later.
#[derive(Debug, thiserror::Error)]
#[error("{error}")]
pub struct DestroyError<T> {
    object: T,
    error: Error,
}

impl<T> DestroyError<T> {
    pub(crate) fn new(object: T, error: Error) -> Self {
        Self { object, error }
    }

    /// Returns the reason of the failure.
    pub fn error(&self) -> &Error {
        &self.error
    }

    /// Returns the object and the error.
    pub fn into_parts(self) -> (T, Error) {
        (self.object, self.error)
    }
}

impl<T> From<DestroyError<T>> for Error {
    /// Drops the object.
    fn from(refused: DestroyError<T>) -> Self {
        refused.error
    }
}
