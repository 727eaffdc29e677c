//! The exchange of parameters by which two programs of perftest connect their queue pairs, over TCP.
//!
//! In each step both sides send a record of one length: the client sends first, and the server answers.

use std::io::{self, Read, Write};
use std::net::TcpStream;

use rdmacm::verbs::Mtu;

/// The version that the partner announces, which Debian 12's perftest has too.
const VERSION: &str = "6.06";

/// The value for [`Agreed::cycle`] that the partner proposes. The sides use the larger one.
const CYCLE: u32 = 4096;

/// The value for [`Agreed::cache_line`] that the partner proposes. The sides use the larger one.
const CACHE_LINE: u32 = 64;

/// The bytes that each side sends after the last step.
const DONE: &[u8; 5] = b"done\0";

/// The queue pair and the memory of one side.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(super) struct Record {
    pub(super) lid: u16,
    /// Number of reads and atomics that the side accepts at the same time.
    pub(super) out_reads: u8,
    pub(super) qp_num: u32,
    pub(super) psn: u32,
    pub(super) rkey: u32,
    /// Address of the memory that the peer may access.
    pub(super) vaddr: u64,
    pub(super) gid: [u8; 16],
}

impl Record {
    /// Length of the text: hexadecimal numbers, each with a colon behind it, and a zero byte.
    const LENGTH: usize = 108;

    fn to_bytes(&self) -> [u8; Self::LENGTH] {
        let Self { lid, out_reads, qp_num, psn, rkey, vaddr, gid } = self;
        let gid: String = gid.iter().map(|byte| format!("{byte:02x}:")).collect();
        let numbers = format!("{lid:04x}:{out_reads:04x}:{qp_num:06x}:{psn:06x}:{rkey:08x}");
        // The last number is that of a shared receive queue, which only other connections have.
        let text = format!("{numbers}:{vaddr:016x}:{gid}{:08x}:\0", 0);
        text.into_bytes().try_into().expect("numbers of 24 bits should have six digits")
    }

    fn from_bytes(bytes: &[u8; Self::LENGTH]) -> Option<Self> {
        let text = std::str::from_utf8(bytes).ok()?.strip_suffix(":\0")?;
        let numbers = text.split(':').map(|number| u64::from_str_radix(number, 16).ok());
        let numbers: Vec<u64> = numbers.collect::<Option<_>>()?;
        let ([lid, out_reads, qp_num, psn, rkey, vaddr], rest) = numbers.split_first_chunk()?;
        let (gid, [_srq_num]) = rest.split_last_chunk()?;
        let gid: Vec<u8> =
            gid.iter().map(|byte| u8::try_from(*byte).ok()).collect::<Option<_>>()?;
        Some(Self {
            lid: u16::try_from(*lid).ok()?,
            out_reads: u8::try_from(*out_reads).ok()?,
            qp_num: u32::try_from(*qp_num).ok()?,
            psn: u32::try_from(*psn).ok()?,
            rkey: u32::try_from(*rkey).ok()?,
            vaddr: *vaddr,
            gid: gid.try_into().ok()?,
        })
    }
}

/// The parameters on which the two sides agree before they create their queue pairs.
#[derive(Debug, Clone, Copy)]
pub(super) struct Agreed {
    /// Length of the memory into which the writes of a bandwidth test go, again and again.
    pub(super) cycle: usize,
    /// Distance in bytes between two small writes.
    pub(super) cache_line: usize,
    pub(super) mtu: Mtu,
}

/// The results of a bandwidth test, which the client sends.
#[derive(Debug, Clone, Copy)]
pub(super) struct Report {
    pub(super) size: u64,
    pub(super) iterations: u64,
    pub(super) peak: f64,
    pub(super) average: f64,
    pub(super) message_rate: f64,
}

/// A connection over TCP to the other side.
#[derive(Debug)]
pub(super) struct Exchange {
    pub(super) stream: TcpStream,
    pub(super) is_client: bool,
}

impl Exchange {
    /// Runs one step: sends `ours`, and returns the record of the other side.
    fn swap<const LENGTH: usize>(&mut self, ours: [u8; LENGTH]) -> io::Result<[u8; LENGTH]> {
        let mut theirs = [0; LENGTH];
        if self.is_client {
            self.stream.write_all(&ours)?;
            self.stream.read_exact(&mut theirs)?;
        } else {
            self.stream.read_exact(&mut theirs)?;
            self.stream.write_all(&ours)?;
        }
        Ok(theirs)
    }

    /// Exchanges the versions and the parameters.
    pub(super) fn agree(&mut self, mtu: Mtu) -> io::Result<Agreed> {
        let mut version = [0; 16];
        version[..VERSION.len()].copy_from_slice(VERSION.as_bytes());
        let theirs = self.swap(version)?;
        // Before 5.33 the report of a bandwidth test has another format.
        let theirs = text(&theirs)?;
        if !theirs.parse().is_ok_and(|version: f32| version >= 5.33) {
            return Err(invalid(&format!("perftest {theirs} is too old; install 5.33 or later")));
        }
        let [cycle, cache_line] = [self.maximum(CYCLE)?, self.maximum(CACHE_LINE)?];
        let theirs = self.swap([b'0' + mtu.0, 0])?;
        let theirs: u8 = text(&theirs)?.parse().map_err(|_| invalid("not an MTU"))?;
        Ok(Agreed { cycle, cache_line, mtu: Mtu(mtu.0.min(theirs)) })
    }

    /// Exchanges a number, and returns the larger one.
    fn maximum(&mut self, ours: u32) -> io::Result<usize> {
        let theirs = u32::from_be_bytes(self.swap(ours.to_be_bytes())?);
        Ok(usize::try_from(ours.max(theirs)).expect("32 bits should fit"))
    }

    /// Exchanges the records. The two sides do so repeatedly, to wait for each other.
    pub(super) fn handshake(&mut self, ours: &Record) -> io::Result<Record> {
        let theirs = self.swap(ours.to_bytes())?;
        Record::from_bytes(&theirs).ok_or_else(|| invalid(&String::from_utf8_lossy(&theirs)))
    }

    /// Exchanges the results of a bandwidth test. Returns the other side's bytes and messages.
    pub(super) fn report(&mut self, ours: &Report) -> io::Result<(u64, u64)> {
        let Report { size, iterations, peak, average, message_rate } = *ours;
        let size = u64::from_be_bytes(self.swap(size.to_be_bytes())?);
        let iterations = u64::from_be_bytes(self.swap(iterations.to_be_bytes())?);
        for result in [peak, average, message_rate] {
            self.swap(result.to_be_bytes())?;
        }
        Ok((size, iterations))
    }

    /// Waits until the other side is in the last step. It keeps its memory there until [`end`](Self::end).
    ///
    /// A server waits in the last step for the record of its client, which this side then does not send yet.
    pub(super) fn await_end(&mut self) -> io::Result<()> {
        if !self.is_client {
            self.stream.read_exact(&mut [0; Record::LENGTH])?;
        }
        Ok(())
    }

    /// Completes the last step.
    pub(super) fn end(&mut self, ours: &Record) -> io::Result<()> {
        self.stream.write_all(&ours.to_bytes())?;
        if self.is_client {
            self.stream.read_exact(&mut [0; Record::LENGTH])?;
        }
        let mut done = [0; DONE.len()];
        self.stream.read_exact(&mut done)?;
        if done != *DONE {
            return Err(invalid(&String::from_utf8_lossy(&done)));
        }
        self.stream.write_all(DONE)
    }
}

/// Returns the text before the first zero byte.
fn text(bytes: &[u8]) -> io::Result<&str> {
    let text = bytes.split(|byte| *byte == 0).next().unwrap_or_default();
    std::str::from_utf8(text).map_err(|_| invalid("not text"))
}

fn invalid(what: &str) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, what.to_owned())
}

#[test]
fn record_is_text_of_perftest() {
    // strace printed this text for Debian 12's ib_read_lat, on the emulated card.
    let text = b"0000:0010:000006:b54f27:0000062a:000055a64ea49000:\
        00:00:00:00:00:00:00:00:00:00:ff:ff:0a:00:00:03:00000000:\0";
    let gid = [0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff, 10, 0, 0, 3];
    let record = Record {
        lid: 0,
        out_reads: 16,
        qp_num: 6,
        psn: 0xb5_4f27,
        rkey: 0x62a,
        vaddr: 0x55a6_4ea4_9000,
        gid,
    };
    assert_eq!(&record.to_bytes(), text);
    assert_eq!(Record::from_bytes(text), Some(record));
    for place in [3, 4, 106, 107] {
        let mut wrong = *text;
        wrong[place] = b'x';
        assert_eq!(Record::from_bytes(&wrong), None, "byte {place}");
    }
}
