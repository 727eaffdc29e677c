//! Plan of one connection, decided before it is made, so that both ends know it.

use std::time::Duration;

use rdmacm_tests::rng::Rng;

use crate::Outcome;

/// A time limit that is long enough on a loaded machine.
pub(crate) const LONG: Duration = Duration::from_secs(60);

/// The maximum length of a message in bytes.
pub(crate) const LONGEST: usize = 8192;

/// Outcome of a connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Fate {
    /// The client drops its attempt before it sends a request.
    Abandoned,
    /// The server rejects the request.
    Rejected,
    /// The connection carries data.
    Connected,
}

/// A side of the connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Side {
    Client,
    Server,
}

/// The plan of a connection.
#[derive(Debug, Clone)]
pub(crate) struct Round {
    pub(crate) fate: Fate,
    /// Side that ends the connection when all data has arrived; the other side waits for the end.
    pub(crate) ender: Side,
    /// `true` if the side disconnects, and `false` if it drops the connection.
    pub(crate) in_order: bool,
    /// Number of messages in each direction, in turn. The client begins, as iWARP demands.
    pub(crate) messages: usize,
    /// Bytes of each message.
    pub(crate) size: usize,
    /// `true` if the client also writes to the server's memory, and reads it back.
    pub(crate) remote: bool,
    /// Seed of all bytes.
    seed: u64,
    /// Random decisions that this end makes by itself.
    pub(crate) rng: Rng,
}

impl Round {
    pub(crate) fn new(rng: &mut Rng) -> Self {
        let fate = match rng.roll(8) {
            0 => Fate::Abandoned,
            1 => Fate::Rejected,
            _ => Fate::Connected,
        };
        let ender = if rng.roll(2) == 0 { Side::Client } else { Side::Server };
        Self {
            fate,
            ender,
            in_order: rng.roll(2) == 0,
            messages: 1 + rng.roll(8),
            size: 1 + rng.roll(LONGEST),
            remote: rng.roll(2) == 0,
            seed: rng.number(),
            rng: Rng(rng.number()),
        }
    }

    /// Returns the bytes of one part of the data. No two parts have the same bytes.
    pub(crate) fn bytes(&self, part: Part) -> Vec<u8> {
        let (kind, number) = match part {
            Part::ToClient(number) => (1, number),
            Part::ToServer(number) => (2, number),
            Part::Remote => (3, 0),
        };
        let mut rng = Rng(self.seed.rotate_left(kind) ^ (number as u64 + 1) << 32 | 1);
        // Similar seeds produce similar numbers at first.
        for _ in 0..8 {
            rng.number();
        }
        let mut bytes = Vec::with_capacity(self.size + size_of::<u64>());
        while bytes.len() < self.size {
            bytes.extend(rng.number().to_ne_bytes());
        }
        bytes.truncate(self.size);
        bytes
    }

    /// Checks that the received bytes are those that were sent.
    pub(crate) fn check(&self, part: Part, found: &[u8]) -> Outcome {
        let expected = self.bytes(part);
        if found == expected {
            return Ok(());
        }
        let place = expected.iter().zip(found).position(|(expected, found)| expected != found);
        let place = place.unwrap_or_else(|| expected.len().min(found.len()));
        let (wanted, came) = (expected.len(), found.len());
        Err(format!("DATA WRONG: {part:?}: {came} of {wanted} bytes, different from {place} on")
            .into())
    }

    /// Returns the number of bytes that the connection carries.
    pub(crate) fn volume(&self) -> u64 {
        if self.fate != Fate::Connected {
            return 0;
        }
        let parts = 2 * self.messages + if self.remote { 2 } else { 0 };
        (parts * self.size) as u64
    }
}

/// A part of the data.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Part {
    ToClient(usize),
    ToServer(usize),
    /// Bytes that the client writes to the server's memory.
    Remote,
}
