//! [`DestroyError`]: returns the object that could not be destroyed.

use std::fmt;

use super::Error;

/// An object that could not be destroyed, and the error.
///
/// The object is unchanged: it can be used, or destroyed again later.
#[derive(thiserror::Error)]
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

impl<T> fmt::Debug for DestroyError<T> {
    /// Prints the error without the object.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("DestroyError").field("error", &self.error).finish_non_exhaustive()
    }
}

impl<T> From<DestroyError<T>> for Error {
    /// Drops the object.
    fn from(refused: DestroyError<T>) -> Self {
        refused.error
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn debug_text_has_no_object() {
        struct Queue;
        let refused =
            DestroyError::new(Queue, Error::invalid("destroy", "queue 3", "it is in use"));
        let text = format!("{refused:?}");
        assert!(text.starts_with("DestroyError { error: ") && text.ends_with(", .. }"), "{text}");
        assert!(text.contains("queue 3"), "{text}");
    }
}
