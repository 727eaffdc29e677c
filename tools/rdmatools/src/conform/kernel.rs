//! What the checks ask of a kernel: of the real one, of one whose answers are altered on the way, or of a simulated one.

use std::fmt;

use nix::errno::Errno;

/// A file that a check has opened. All are closed when the check ends.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct File(pub(super) usize);

/// Which system call carries the request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Means {
    Write,
    /// The ioctl of verbs, which tells the length of its request in the request.
    Ioctl,
}

/// Who makes the call.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Caller {
    /// The thread that opened the file.
    Opener,
    /// Another thread, with the same credentials.
    Thread,
    /// Another thread, with credentials of its own.
    OtherCredentials,
    /// A forked child.
    Child,
}

/// Where an address in a request leads.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Target {
    /// To memory for the response.
    Response,
    /// To [`Call::data`].
    Data,
    /// To a page that nobody may touch.
    Nowhere,
}

/// A system call. Its request lies at the end of a page, and the next one is not there: what the kernel reads beyond
/// it is EFAULT.
#[derive(Debug, Clone)]
pub(super) struct Call {
    pub(super) means: Means,
    pub(super) caller: Caller,
    /// Headers and request.
    pub(super) bytes: Vec<u8>,
    /// Bytes that are written beyond these, in the page that is not there.
    pub(super) missing: usize,
    /// Where in the request addresses stand, as far as it is there.
    pub(super) pointers: Vec<(usize, Target)>,
    /// What [`Target::Data`] leads to, at the end of a page too.
    pub(super) data: Vec<u8>,
    /// Where the response has a descriptor.
    pub(super) descriptor: Option<usize>,
}

impl Call {
    /// A write of `bytes` by who opened the file.
    pub(super) fn write(bytes: Vec<u8>) -> Self {
        Self {
            means: Means::Write,
            caller: Caller::Opener,
            bytes,
            missing: 0,
            pointers: Vec::new(),
            data: Vec::new(),
            descriptor: None,
        }
    }

    /// The length of the write.
    pub(super) fn count(&self) -> usize {
        self.bytes.len() + self.missing
    }

    /// What the system call returns where it has success.
    pub(super) fn expected_return(&self) -> usize {
        match self.means {
            Means::Write => self.count(),
            Means::Ioctl => 0,
        }
    }

    /// The same by somebody else.
    pub(super) fn by(self, caller: Caller) -> Self {
        Self { caller, ..self }
    }

    /// The same with only the first `there` bytes in memory.
    pub(super) fn cut_off(mut self, there: usize) -> Self {
        self.missing = self.count() - there;
        self.bytes.truncate(there);
        self
    }

    /// The same with an address at `offset`.
    pub(super) fn pointing(mut self, offset: usize, target: Target) -> Self {
        self.pointers.push((offset, target));
        self
    }
}

/// What the kernel answered.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Answer {
    /// What the system call returned, or its errno.
    pub(super) returned: Result<usize, i32>,
    /// What it was to return.
    pub(super) count: usize,
    /// The memory for the response up to the last byte that the kernel stored.
    pub(super) stored: Vec<u8>,
}

impl Answer {
    /// What it comes to; in words, where no answer may be so.
    pub(super) fn outcome(&self) -> Result<Outcome, String> {
        match self.returned {
            Ok(returned) if returned == self.count => Ok(Outcome::Done(self.stored.len())),
            Ok(returned) => Err(format!("success, but {returned} for {}", self.count)),
            Err(errno) if self.stored.is_empty() => Ok(Outcome::Errno(errno)),
            Err(errno) => Ok(Outcome::Stored(errno, self.stored.len())),
        }
    }
}

/// What a call comes to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Outcome {
    /// Success, with so many bytes of response.
    Done(usize),
    Errno(i32),
    /// Failure, and yet so many bytes of response.
    Stored(i32, usize),
}

impl fmt::Display for Outcome {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match *self {
            Self::Done(0) => f.write_str("success"),
            Self::Done(length) => write!(f, "success with {length} bytes"),
            Self::Stored(errno, length) => {
                write!(f, "{}, with {length} bytes stored", Self::Errno(errno))
            }
            Self::Errno(errno) => match Errno::from_raw(errno) {
                Errno::UnknownErrno => write!(f, "errno {errno}"),
                named => write!(f, "{named:?}"),
            },
        }
    }
}

/// A kernel, as the checks see it.
pub(super) trait Kernel {
    /// Opens a device node, non-blocking.
    fn open(&mut self, node: &str) -> Result<File, i32>;

    /// The number of the descriptor that this process has for `file`.
    fn descriptor(&self, file: File) -> u32;

    /// Makes a call on `file`.
    fn call(&mut self, file: File, call: &Call) -> Answer;

    /// Waits until there is something to be read from `file`; no longer than a loaded machine takes.
    fn wait(&mut self, file: File) -> bool;

    /// Closes one file.
    fn close(&mut self, file: File);

    /// Closes everything that was opened, and what came in responses.
    fn end(&mut self);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_no_answer_may_be_is_no_outcome() {
        let answer = |returned, stored: &[u8]| Answer { returned, count: 8, stored: stored.into() };
        assert_eq!(answer(Ok(8), &[1, 2]).outcome(), Ok(Outcome::Done(2)));
        assert_eq!(answer(Err(2), &[]).outcome(), Ok(Outcome::Errno(2)));
        assert_eq!(answer(Ok(7), &[]).outcome().unwrap_err(), "success, but 7 for 8");
        assert_eq!(answer(Err(14), &[0]).outcome(), Ok(Outcome::Stored(14, 1)));
    }

    #[test]
    fn outcomes_have_names() {
        assert_eq!(Outcome::Done(0).to_string(), "success");
        assert_eq!(Outcome::Done(4).to_string(), "success with 4 bytes");
        assert_eq!(Outcome::Errno(22).to_string(), "EINVAL");
        assert_eq!(Outcome::Stored(14, 1).to_string(), "EFAULT, with 1 bytes stored");
        assert_eq!(Outcome::Errno(524).to_string(), "errno 524");
    }

    #[test]
    fn a_call_that_is_cut_off_has_the_same_length() {
        let call = Call::write(vec![0; 24]).cut_off(12);
        assert_eq!((call.count(), call.bytes.len(), call.missing), (24, 12, 12));
    }
}
