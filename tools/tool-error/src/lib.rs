//! The error type of the project's tools: one text with the operation, its object and the cause.

use std::fmt::{self, Display};

/// An error with a readable text.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Error(String);

/// A result whose error is a text.
pub type Result<T> = std::result::Result<T, Error>;

impl Error {
    /// Creates an error with this text.
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

/// Extension trait that adds the failed operation to an error.
pub trait Context<T> {
    /// Turns an error into `cannot {doing}: {error}`.
    ///
    /// # Errors
    ///
    /// Returns the error of `self`, preceded by the operation.
    fn context(self, doing: &str) -> Result<T>;

    /// Turns an error into `cannot {doing}: {error}`, and computes the text only if there is an error.
    ///
    /// # Errors
    ///
    /// Returns the error of `self`, preceded by the operation.
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn context_is_put_before_cause() {
        let failed: std::result::Result<(), _> = Err("no such file");
        assert_eq!(failed.context("open a"), Err(Error::new("cannot open a: no such file")));
    }
}
