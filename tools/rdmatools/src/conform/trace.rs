//! Recording of a kernel's answers, and replay of a recording.

use std::cell::RefCell;
use std::fmt;
use std::str::FromStr;
use std::vec::IntoIter;

use nix::errno::Errno;
use nix::libc::ENOMSG;

use super::kernel::{Answer, Call, File, Kernel, Outcome, SystemCall};

/// One answer of the kernel to a check. Its text form is a line.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Line {
    /// Number of a descriptor: `descriptor 5`.
    Descriptor(u32),
    /// Digest of the request, result, and response: `3f0a9c11 success 04000000`.
    Call { request: u32, errno: Option<i32>, stored: Vec<u8> },
}

/// Returns a digest of a request (FNV-1a), which rarely is equal for two requests.
fn digest(call: &Call) -> u32 {
    let mut digest = 0x811c_9dc5_u32;
    let mut add = |bytes: &[u8]| {
        for byte in bytes {
            digest = (digest ^ u32::from(*byte)).wrapping_mul(0x0100_0193);
        }
    };
    add(&call.bytes);
    add(&call.data);
    let missing = u8::try_from(call.missing % 251).expect("the remainder should be below 251");
    add(&[missing, u8::from(call.means == SystemCall::Ioctl)]);
    let Call { caller, pointers, .. } = call;
    add(format!("{caller:?}{pointers:?}").as_bytes());
    digest
}

impl fmt::Display for Line {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Descriptor(number) => write!(f, "descriptor {number}"),
            Self::Call { request, errno, stored } => {
                write!(f, "{request:08x} ")?;
                match errno {
                    None => f.write_str("success")?,
                    Some(errno) => write!(f, "{}", Outcome::Errno(*errno))?,
                }
                f.write_str(if stored.is_empty() { "" } else { " " })?;
                stored.iter().try_for_each(|byte| write!(f, "{byte:02x}"))
            }
        }
    }
}

impl FromStr for Line {
    type Err = ();

    fn from_str(line: &str) -> Result<Self, ()> {
        let words: Vec<&str> = line.split(' ').collect();
        let (request, result, stored) = match words[..] {
            ["descriptor", number] => {
                return number.parse().map(Self::Descriptor).map_err(drop);
            }
            [request, result] => (request, result, ""),
            [request, result, stored] => (request, result, stored),
            _ => return Err(()),
        };
        let request = u32::from_str_radix(request, 16).map_err(drop)?;
        let errno = match result {
            "success" => None,
            name => {
                let named = (1..200).find(|raw| format!("{:?}", Errno::from_raw(*raw)) == name);
                Some(named.ok_or(())?)
            }
        };
        let byte = |at| u8::from_str_radix(stored.get(at..at + 2)?, 16).ok();
        let stored = (0..stored.len()).step_by(2).map(byte).collect::<Option<_>>();
        Ok(Self::Call { request, errno, stored: stored.ok_or(())? })
    }
}

/// A kernel that records its answers.
pub(super) struct Traced<'a> {
    kernel: &'a mut dyn Kernel,
    lines: RefCell<Vec<Line>>,
}

impl<'a> Traced<'a> {
    pub(super) fn new(kernel: &'a mut dyn Kernel) -> Self {
        Self { kernel, lines: RefCell::default() }
    }

    /// Returns the lines since the last call.
    pub(super) fn take(&mut self) -> Vec<Line> {
        self.lines.take()
    }
}

impl Kernel for Traced<'_> {
    fn open(&mut self, node: &str) -> Result<File, i32> {
        self.kernel.open(node)
    }

    fn descriptor(&self, file: File) -> u32 {
        let number = self.kernel.descriptor(file);
        self.lines.borrow_mut().push(Line::Descriptor(number));
        number
    }

    fn call(&mut self, file: File, call: &Call) -> Answer {
        let answer = self.kernel.call(file, call);
        let (errno, stored) = (answer.returned.err(), answer.stored.clone());
        self.lines.get_mut().push(Line::Call { request: digest(call), errno, stored });
        answer
    }

    fn wait(&mut self, file: File) -> bool {
        self.kernel.wait(file)
    }

    fn close(&mut self, file: File) {
        self.kernel.close(file);
    }

    fn end(&mut self) {
        self.kernel.end();
    }
}

/// A kernel that replays recorded answers.
pub(super) struct Replayed {
    calls: IntoIter<Line>,
    descriptors: RefCell<IntoIter<Line>>,
}

impl Replayed {
    pub(super) fn new(lines: &[Line]) -> Self {
        let (descriptors, calls): (Vec<_>, Vec<_>) =
            lines.iter().cloned().partition(|line| matches!(line, Line::Descriptor(_)));
        Self { calls: calls.into_iter(), descriptors: descriptors.into_iter().into() }
    }
}

impl Kernel for Replayed {
    fn open(&mut self, _: &str) -> Result<File, i32> {
        Ok(File(0))
    }

    fn descriptor(&self, _: File) -> u32 {
        match self.descriptors.borrow_mut().next() {
            Some(Line::Descriptor(number)) => number,
            _ => u32::MAX,
        }
    }

    fn call(&mut self, _: File, call: &Call) -> Answer {
        let count = call.expected_return();
        match self.calls.next() {
            Some(Line::Call { request, errno, stored }) if request == digest(call) => {
                Answer { returned: errno.map_or(Ok(count), Err), count, stored }
            }
            // The recording has no answer to this request.
            _ => Answer { returned: Err(ENOMSG), count, stored: Vec::new() },
        }
    }

    fn wait(&mut self, _: File) -> bool {
        true
    }

    fn close(&mut self, _: File) {}

    fn end(&mut self) {}
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_survive_round_trip() {
        for text in ["descriptor 7", "0000ffff success", "1234abcd EINVAL", "0 success 00ff10"] {
            let line: Line = text.parse().unwrap();
            let written = line.to_string();
            assert_eq!(written.parse::<Line>().unwrap(), line);
            assert!(written.ends_with(text), "{written}");
        }
        for text in ["", "descriptor x", "x success", "0 ENONSENSE", "0 success 0"] {
            assert!(text.parse::<Line>().is_err(), "{text:?}");
        }
    }

    #[test]
    fn different_request_has_no_answer() {
        let call = Call::write(vec![1, 2, 3]);
        let lines = [Line::Call { request: digest(&call), errno: None, stored: vec![9] }];
        let mut kernel = Replayed::new(&lines);
        assert_eq!(kernel.call(File(0), &call).outcome(), Ok(Outcome::Done(1)));
        for other in [call.clone().cut_off(2), Call::write(vec![1, 2, 4])] {
            let answer = Replayed::new(&lines).call(File(0), &other);
            assert_eq!(answer.returned, Err(ENOMSG));
        }
    }
}
