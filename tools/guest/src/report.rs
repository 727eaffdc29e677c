//! The guest's report: frames on a dedicated channel.
//!
//! A frame is `magic: [u8; 4]`, `kind: u32`, `length: u32` (little-endian) and `length` bytes. The last frame contains
//! the number of frames before it, so lost frames are detected, and a truncated report has no last frame.

use std::io::{self, ErrorKind, Read, Write};

const MAGIC: [u8; 4] = *b"\x01rG\xfe";
const HEADER: usize = 12;
const MAX_PAYLOAD: usize = 1 << 20;

/// A message of the guest.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Frame {
    /// The devices exist and the command starts now.
    Ready {
        /// The release of the running kernel.
        kernel: String,
    },
    /// Bytes that the command wrote to its standard output.
    Output(Vec<u8>),
    /// Bytes that the command wrote to its standard error.
    Error(Vec<u8>),
    /// The guest itself failed; no [`End`](Self::End) follows.
    Failed(String),
    /// The command has ended.
    End {
        /// The result of the command.
        status: Status,
        /// The kernel's taint bits after the command (`/proc/sys/kernel/tainted`).
        taint: u64,
    },
}

/// The result of a command.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Status {
    /// The command exited with this code.
    Exited(i32),
    /// This signal killed the command.
    Signaled(i32),
    /// The command could not be started, for this reason.
    NotStarted(String),
}

impl Frame {
    const READY: u32 = 1;
    const OUTPUT: u32 = 2;
    const ERROR: u32 = 3;
    const FAILED: u32 = 4;
    const EXITED: u32 = 5;
    const SIGNALED: u32 = 6;
    const NOT_STARTED: u32 = 7;
}

/// Writer that counts its frames.
#[derive(Debug)]
pub struct Writer<W> {
    channel: W,
    sent: u64,
}

impl<W: Write> Writer<W> {
    /// Creates a writer of the report on `channel`, which must carry nothing else.
    pub const fn new(channel: W) -> Self {
        Self { channel, sent: 0 }
    }

    /// Sends one frame.
    ///
    /// # Errors
    ///
    /// Returns the error of the channel, or `InvalidInput` for a payload of more than 1 MiB.
    pub fn send(&mut self, frame: &Frame) -> io::Result<()> {
        let mut end = Vec::new();
        let (kind, payload): (u32, &[u8]) = match frame {
            Frame::Ready { kernel } => (Frame::READY, kernel.as_bytes()),
            Frame::Output(bytes) => (Frame::OUTPUT, bytes),
            Frame::Error(bytes) => (Frame::ERROR, bytes),
            Frame::Failed(text) => (Frame::FAILED, text.as_bytes()),
            Frame::End { status, taint } => {
                end.extend_from_slice(&self.sent.to_le_bytes());
                end.extend_from_slice(&taint.to_le_bytes());
                let kind = match status {
                    Status::Exited(code) => {
                        end.extend_from_slice(&code.to_le_bytes());
                        Frame::EXITED
                    }
                    Status::Signaled(signal) => {
                        end.extend_from_slice(&signal.to_le_bytes());
                        Frame::SIGNALED
                    }
                    Status::NotStarted(reason) => {
                        end.extend_from_slice(reason.as_bytes());
                        Frame::NOT_STARTED
                    }
                };
                (kind, &end)
            }
        };
        let length = u32::try_from(payload.len()).map_err(io::Error::other)?;
        if payload.len() > MAX_PAYLOAD {
            return Err(io::Error::new(ErrorKind::InvalidInput, "the frame is longer than 1 MiB"));
        }
        let mut bytes = Vec::with_capacity(HEADER + payload.len());
        bytes.extend_from_slice(&MAGIC);
        bytes.extend_from_slice(&kind.to_le_bytes());
        bytes.extend_from_slice(&length.to_le_bytes());
        bytes.extend_from_slice(payload);
        self.channel.write_all(&bytes)?;
        self.channel.flush()?;
        self.sent += 1;
        Ok(())
    }
}

/// Reader that checks that no frame is missing.
#[derive(Debug)]
pub struct Reader<R> {
    channel: R,
    received: u64,
}

impl<R: Read> Reader<R> {
    /// Creates a reader of the report that arrives on `channel`.
    pub const fn new(channel: R) -> Self {
        Self { channel, received: 0 }
    }

    /// Reads the next frame. Returns `None` if the channel ends between two frames.
    ///
    /// # Errors
    ///
    /// - The error of the channel.
    /// - `UnexpectedEof` if the channel ends inside a frame.
    /// - `InvalidData` for bytes that are not a frame, and for a last frame with a wrong number of frames.
    pub fn receive(&mut self) -> io::Result<Option<Frame>> {
        let mut header = [0; HEADER];
        let mut filled = 0;
        while filled < HEADER {
            match self.channel.read(&mut header[filled..]) {
                Ok(0) if filled == 0 => return Ok(None),
                Ok(0) => return Err(ErrorKind::UnexpectedEof.into()),
                Ok(count) => filled += count,
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
        let [m0, m1, m2, m3, k0, k1, k2, k3, l0, l1, l2, l3] = header;
        if [m0, m1, m2, m3] != MAGIC {
            return Err(invalid("bytes that are not a frame"));
        }
        let length =
            usize::try_from(u32::from_le_bytes([l0, l1, l2, l3])).map_err(io::Error::other)?;
        if length > MAX_PAYLOAD {
            return Err(invalid("a frame longer than 1 MiB"));
        }
        let mut payload = vec![0; length];
        self.channel.read_exact(&mut payload)?;
        let frame = self.decode(u32::from_le_bytes([k0, k1, k2, k3]), payload)?;
        self.received += 1;
        Ok(Some(frame))
    }

    fn decode(&self, kind: u32, payload: Vec<u8>) -> io::Result<Frame> {
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
        Ok(match kind {
            Frame::READY => Frame::Ready { kernel: text(&payload) },
            Frame::OUTPUT => Frame::Output(payload),
            Frame::ERROR => Frame::Error(payload),
            Frame::FAILED => Frame::Failed(text(&payload)),
            Frame::EXITED | Frame::SIGNALED | Frame::NOT_STARTED => {
                let short = || invalid("a last frame that is too short");
                let (sent, rest) = payload.split_first_chunk().ok_or_else(short)?;
                let (taint, rest) = rest.split_first_chunk().ok_or_else(short)?;
                if u64::from_le_bytes(*sent) != self.received {
                    return Err(invalid("a last frame with a wrong number of frames"));
                }
                let number = || rest.try_into().map(i32::from_le_bytes).map_err(|_| short());
                let status = match kind {
                    Frame::EXITED => Status::Exited(number()?),
                    Frame::SIGNALED => Status::Signaled(number()?),
                    _ => Status::NotStarted(text(rest)),
                };
                Frame::End { status, taint: u64::from_le_bytes(*taint) }
            }
            _ => return Err(invalid("a frame of unknown kind")),
        })
    }
}

fn invalid(what: &str) -> io::Error {
    io::Error::new(ErrorKind::InvalidData, what)
}

#[cfg(test)]
mod tests;
