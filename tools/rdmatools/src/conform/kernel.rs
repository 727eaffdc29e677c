//! The interface of the checks to a kernel: the real one, one with altered answers, or a replay.

use std::fmt;

use nix::errno::Errno;

/// A file that a check has opened. All files are closed at the end of the check.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct File(pub(super) usize);

/// The system call that carries a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum SystemCall {
    Write,
    /// The ioctl of verbs, whose request contains its own length.
    Ioctl,
}

/// The thread or process that makes a call.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Caller {
    /// The thread that opened the file.
    Opener,
    /// Another thread, with the same credentials.
    Thread,
    /// Another thread, with its own credentials.
    OtherCredentials,
    /// A forked child.
    Child,
}

/// The destination of an address in a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Target {
    /// Memory for the response.
    Response,
    /// [`Call::data`].
    Data,
    /// A page without access.
    Nowhere,
}

/// A system call.
///
/// Its request is at the end of a page, and the next page is inaccessible: reading beyond the request fails with
/// EFAULT.
#[derive(Debug, Clone)]
pub(super) struct Call {
    pub(super) means: SystemCall,
    pub(super) caller: Caller,
    /// Headers and request.
    pub(super) bytes: Vec<u8>,
    /// Number of bytes of the write beyond `bytes`, in the inaccessible page.
    pub(super) missing: usize,
    /// Offsets of the addresses in the request, within `bytes`.
    pub(super) pointers: Vec<(usize, Target)>,
    /// Memory at [`Target::Data`], also at the end of a page.
    pub(super) data: Vec<u8>,
    /// Offset of a descriptor in the response.
    pub(super) descriptor: Option<usize>,
}

impl Call {
    /// Creates a write of `bytes` by the thread that opened the file.
    pub(super) fn write(bytes: Vec<u8>) -> Self {
        Self {
            means: SystemCall::Write,
            caller: Caller::Opener,
            bytes,
            missing: 0,
            pointers: Vec::new(),
            data: Vec::new(),
            descriptor: None,
        }
    }

    /// Returns the length of the write.
    pub(super) fn count(&self) -> usize {
        self.bytes.len() + self.missing
    }

    /// Returns the return value of a successful call.
    pub(super) fn expected_return(&self) -> usize {
        match self.means {
            SystemCall::Write => self.count(),
            SystemCall::Ioctl => 0,
        }
    }

    /// Changes the caller.
    pub(super) fn by(self, caller: Caller) -> Self {
        Self { caller, ..self }
    }

    /// Moves all except the first `there` bytes to the inaccessible page.
    pub(super) fn cut_off(mut self, there: usize) -> Self {
        self.missing = self.count() - there;
        self.bytes.truncate(there);
        self
    }

    /// Adds an address at `offset`.
    pub(super) fn pointing(mut self, offset: usize, target: Target) -> Self {
        self.pointers.push((offset, target));
        self
    }
}

/// The answer of the kernel.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Answer {
    /// Return value of the system call, or its errno.
    pub(super) returned: Result<usize, i32>,
    /// Return value of a successful call.
    pub(super) count: usize,
    /// The response memory up to the last byte that the kernel stored.
    pub(super) stored: Vec<u8>,
}

impl Answer {
    /// Returns the outcome, or a description if the answer is invalid.
    pub(super) fn outcome(&self) -> Result<Outcome, String> {
        match self.returned {
            Ok(returned) if returned == self.count => Ok(Outcome::Done(self.stored.len())),
            Ok(returned) => Err(format!("success, but {returned} for {}", self.count)),
            Err(errno) if self.stored.is_empty() => Ok(Outcome::Errno(errno)),
            Err(errno) => Ok(Outcome::Stored(errno, self.stored.len())),
        }
    }
}

/// The outcome of a call.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Outcome {
    /// Success, with this number of response bytes.
    Done(usize),
    Errno(i32),
    /// Failure, with this number of response bytes stored nevertheless.
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

/// A kernel as used by the checks.
pub(super) trait Kernel {
    /// Opens a device node in non-blocking mode.
    fn open(&mut self, node: &str) -> Result<File, i32>;

    /// Returns the number of the descriptor of `file` in this process.
    fn descriptor(&self, file: File) -> u32;

    /// Makes a call on `file`.
    fn call(&mut self, file: File, call: &Call) -> Answer;

    /// Waits until `file` is readable. Returns `true` if it is readable in time.
    fn wait(&mut self, file: File) -> bool;

    /// Closes one file.
    fn close(&mut self, file: File);

    /// Closes all opened files, and the descriptors of responses.
    fn end(&mut self);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn invalid_answer_has_no_outcome() {
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
    fn cut_off_call_keeps_its_length() {
        let call = Call::write(vec![0; 24]).cut_off(12);
        assert_eq!((call.count(), call.bytes.len(), call.missing), (24, 12, 12));
    }
}
