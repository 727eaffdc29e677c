//! Message loads, their programs, and the options that both programs share.

use std::fmt;
use std::path::Path;

use rdmacm::device::{Device, DriverId};

use crate::run::Program;
use crate::scheduler;

/// Maker of a program.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Maker {
    Ours,
    C,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Test {
    Latency,
    Bandwidth,
}

impl Test {
    /// Returns the name as it is in the names of all programs.
    fn name(self) -> &'static str {
        match self {
            Self::Latency => "lat",
            Self::Bandwidth => "bw",
        }
    }
}

/// The messages of one run, which are of one kind.
#[derive(Debug, Clone, Copy)]
pub(super) struct Load {
    pub(super) test: Test,
    /// `send`, `write` or `read`.
    pub(super) operation: &'static str,
    /// Bytes of a message.
    pub(super) size: u32,
    pub(super) messages: u32,
    /// Number of messages that are posted at once.
    pub(super) list: u32,
    /// `true` if the programs sleep until an event arrives. Otherwise they poll, as ours always do.
    pub(super) asleep: bool,
}

impl fmt::Display for Load {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { test, operation, .. } = self;
        match test {
            Test::Latency => write!(f, "{operation} latency"),
            Test::Bandwidth if self.list > 1 => {
                write!(f, "{operation} rate, inline in lists of {}", self.list)
            }
            Test::Bandwidth => write!(f, "{operation} bandwidth"),
        }
    }
}

/// Number of messages of a run, for sizes up to [`FULL_SIZE`].
///
/// Each run of larger messages has the number of bytes of a run with this size.
const LATENCY_MESSAGES: u32 = 1000;
const BANDWIDTH_MESSAGES: u32 = 4000;
const FULL_SIZE: u32 = 4096;

/// Receives that are posted: perftest's own choice for sends.
const RECEIVES: u32 = 512;
/// Requests in flight for bandwidth: perftest's own choice.
const DEPTH: u32 = 128;
/// Number of requests per completion for sizes up to [`MODERATED_SIZE`], as in perftest.
///
/// Each larger message has a completion.
const MODERATION: u32 = 100;
const MODERATED_SIZE: u32 = 8192;

impl Load {
    pub(super) fn new(test: Test, operation: &'static str, size: u32) -> Self {
        let messages = match test {
            Test::Latency => LATENCY_MESSAGES,
            Test::Bandwidth => BANDWIDTH_MESSAGES,
        };
        let messages = messages * FULL_SIZE / size.max(FULL_SIZE);
        Self { test, operation, size, messages, list: 1, asleep: false }
    }

    /// Returns our program or that of perftest: its server on the address, or a client of it.
    pub(super) fn program(&self, maker: Maker, place: &Place<'_>, side: Side) -> Program {
        let Self { test, operation, .. } = self;
        let Place { directory, device, address, port, .. } = place;
        let program = match maker {
            Maker::Ours => Program::new(directory.join("rdmatools"))
                .args([test.name(), "-o", operation, "--json"])
                .args(["-I", &self.inline().to_string()]),
            // perftest connects by rdma_cm, and continues if the processor's clock is not the one that it expects.
            Maker::C => Program::new(format!("ib_{operation}_{}", test.name())).args([
                "-R",
                "-F",
                "-d",
                device.name(),
            ]),
        };
        let mut program = program.args(["-p", port]).args(self.options());
        if maker == Maker::C {
            program = program.arg(match test {
                // The program prints cycles of the processor.
                Test::Latency => "-C",
                // The program does not read the time for every message.
                Test::Bandwidth => "-N",
            });
            if self.asleep {
                program = program.arg("-e");
            }
            if device.driver() == Some(DriverId::RDMA_DRIVER_SIW) {
                // siw has only the classic functions for posting.
                program = program.arg("--use_old_post_send");
            }
        }
        let program = match (side, maker) {
            (Side::Client, _) => program.arg(address),
            (Side::Server, Maker::Ours) => program.args(["-b", address]),
            (Side::Server, Maker::C) => program,
        };
        scheduler::on(side as usize, &program)
    }

    /// Returns the limit of inline data of our requests, in bytes.
    ///
    /// It is 0 for single requests, since perftest sends inline data only on devices that it knows, and these are not
    /// among them. Lists carry small messages inline, which is fastest for our programs; perftest has no lists.
    fn inline(&self) -> u32 {
        if self.list > 1 { self.size } else { 0 }
    }

    /// Returns the options that both programs get.
    fn options(&self) -> Vec<String> {
        let (depth, moderation) = match self.test {
            Test::Latency => (1, 1),
            Test::Bandwidth if self.list > 1 => (DEPTH, self.list),
            Test::Bandwidth if self.size > MODERATED_SIZE => (DEPTH, 1),
            Test::Bandwidth => (DEPTH, MODERATION),
        };
        let mut options =
            vec![("-s", self.size), ("-n", self.messages), ("-t", depth), ("-Q", moderation)];
        if self.operation == "send" {
            options.push(("-r", RECEIVES));
        }
        if self.list > 1 {
            options.push(("-l", self.list));
        }
        options.into_iter().flat_map(|(name, value)| [name.to_owned(), value.to_string()]).collect()
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Side {
    Server,
    Client,
}

/// Device, address and directory of the measurements.
#[derive(Debug, Clone, Copy)]
pub(super) struct Place<'a> {
    /// The directory of our programs.
    pub(super) directory: &'a Path,
    pub(super) device: &'a Device,
    pub(super) address: &'a str,
    pub(super) port: &'a str,
    /// Cycles of the processor in a microsecond.
    pub(super) cycles: f64,
}
