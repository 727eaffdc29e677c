//! [`NotOwner`]: the reason why the kernel refuses commands on a file that was opened earlier.

/// The reason why an object does not belong to the caller.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum NotOwner {
    /// The process forked after opening it.
    #[error("before a fork")]
    Forked,
    /// The process changed its credentials (setuid, capabilities, user namespace) after opening it.
    #[error("with other credentials")]
    Credentials,
}
