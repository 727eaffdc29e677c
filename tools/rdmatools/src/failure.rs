//! How an applet fails.

use std::io;

use nix::errno::Errno;

/// Why an applet did not do all that it was asked for.
#[derive(Debug)]
pub(crate) enum Failure {
    /// What failed, one sentence each: `cannot add the RDMA link rxe0 (rxe on v0): ...`.
    Failed(Vec<String>),
    /// What it works on is not here, so that nothing was done.
    Absent(String),
    /// The output could not be written.
    Output(io::Error),
}

impl Failure {
    /// A single sentence.
    pub(crate) fn because(message: impl Into<String>) -> Self {
        Self::Failed(vec![message.into()])
    }

    /// The same of `subject`: each sentence begins with it.
    pub(crate) fn about(self, subject: &str) -> Self {
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
        Self::because(error.to_string())
    }
}

impl From<io::Error> for Failure {
    /// Every error of writing to the output.
    fn from(error: io::Error) -> Self {
        Self::Output(error)
    }
}

/// What `wait` comes to. It begins anew where a signal has interrupted it: none is there to end a wait.
pub(crate) fn waited<T>(mut wait: impl FnMut() -> rdmacm::Result<T>) -> rdmacm::Result<T> {
    loop {
        match wait() {
            Err(error) if error.errno() == Errno::EINTR as i32 => {}
            done => return done,
        }
    }
}
