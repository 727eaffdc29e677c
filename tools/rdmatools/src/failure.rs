//! Errors of the applets.

use std::io;

use nix::errno::Errno;

/// The cause and the hint if the machine has no RDMA device.
pub(crate) const NO_DEVICE: &str = "there is no RDMA device; load the driver of the card, or add a software device: \
    rdmatools link add rxe0 type rxe netdev NETDEV";

/// The reason why an applet did not complete its task.
#[derive(Debug)]
pub(crate) enum Failure {
    /// Failed operations, one sentence each: `cannot add the RDMA link rxe0 (rxe on v0): ...`.
    Failed(Vec<String>),
    /// The required device or node does not exist, and nothing was done.
    Unavailable(String),
    /// The output could not be written.
    Output(io::Error),
}

impl Failure {
    /// Creates a failure with a single sentence.
    pub(crate) fn new(message: impl Into<String>) -> Self {
        Self::Failed(vec![message.into()])
    }

    /// Adds `subject` to the beginning of each sentence.
    pub(crate) fn with_subject(self, subject: &str) -> Self {
        match self {
            Self::Failed(messages) => Self::Failed(
                messages.iter().map(|message| format!("{subject}: {message}")).collect(),
            ),
            other => other,
        }
    }
}

impl From<rdmacm::Error> for Failure {
    fn from(error: rdmacm::Error) -> Self {
        Self::new(error.to_string())
    }
}

impl From<io::Error> for Failure {
    /// Converts an error of writing to the output.
    fn from(error: io::Error) -> Self {
        Self::Output(error)
    }
}

/// Calls `wait` until it succeeds or fails, and retries after a signal: no signal handler ends a wait.
pub(crate) fn retry_interrupted<T>(
    mut wait: impl FnMut() -> rdmacm::Result<T>,
) -> rdmacm::Result<T> {
    loop {
        match wait() {
            Err(error) if error.errno() == Errno::EINTR as i32 => {}
            done => return done,
        }
    }
}
