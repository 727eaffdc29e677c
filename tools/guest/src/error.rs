//! Errors as text that says what was being done, to what, and what came back.

use std::fmt::{self, Display};

/// What went wrong, ready to be shown.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Error(String);

/// A result whose error is text.
pub type Result<T> = std::result::Result<T, Error>;

impl Error {
    /// An error with this text.
    pub fn new(text: impl Into<String>) -> Self {
        Self(text.into())
    }
}

impl Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for Error {}

/// Adds to an error what was being done.
pub trait Context<T> {
    /// The error becomes `cannot {doing}: {error}`.
    ///
    /// # Errors
    /// The one it was called on.
    fn context(self, doing: &str) -> Result<T>;

    /// The same, with a text that is made only when it is needed.
    ///
    /// # Errors
    /// The one it was called on.
    fn with_context(self, doing: impl FnOnce() -> String) -> Result<T>;
}

impl<T, E: Display> Context<T> for std::result::Result<T, E> {
    fn context(self, doing: &str) -> Result<T> {
        self.with_context(|| doing.to_owned())
    }

    fn with_context(self, doing: impl FnOnce() -> String) -> Result<T> {
        self.map_err(|error| Error(format!("cannot {}: {error}", doing())))
    }
}
