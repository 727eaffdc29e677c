//! The plan of a measurement, which the client sends to the server in its connection request.

use super::Operation;

/// The steps of both sides: every size for each operation.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Plan {
    pub(super) test: Test,
    pub(super) operations: Vec<Operation>,
    pub(super) smallest: u32,
    pub(super) largest: u32,
    pub(super) iterations: u32,
    /// Maximum number of outstanding requests.
    pub(super) tx_depth: u32,
    pub(super) rx_depth: u32,
    /// Number of requests per signaled request.
    pub(super) moderation: u32,
    /// Number of requests posted with one doorbell.
    pub(super) list: u32,
    /// Largest message sent as inline data, in bytes.
    pub(super) inline: u32,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Test {
    Latency,
    Bandwidth,
}

/// Memory that the peer may read and write.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Remote {
    pub(super) addr: u64,
    pub(super) rkey: u32,
}

impl Remote {
    pub(super) fn to_bytes(self) -> Vec<u8> {
        [&self.addr.to_be_bytes()[..], &self.rkey.to_be_bytes()].concat()
    }

    pub(super) fn from_bytes(bytes: &[u8]) -> Option<Self> {
        let mut words = words(bytes);
        let addr = u64::from(words.next()?) << 32 | u64::from(words.next()?);
        Some(Self { addr, rkey: words.next()? })
    }
}

const MAGIC: u32 = 0x7264_6d70;

impl Plan {
    pub(super) const LENGTH: usize = 44;

    /// Returns the sizes: powers of two times the smallest.
    pub(super) fn sizes(&self) -> impl Iterator<Item = u32> + use<> {
        let largest = self.largest;
        let next = move |size: &u32| size.checked_mul(2).filter(|next| *next <= largest);
        std::iter::successors(Some(self.smallest), next)
    }

    pub(super) fn to_bytes(&self) -> Vec<u8> {
        let bit = |operation: &Operation| 1 << *operation as u32;
        let operations: u32 = self.operations.iter().map(bit).sum();
        let Self { smallest, largest, iterations, tx_depth, rx_depth, .. } = *self;
        let Self { moderation, list, .. } = *self;
        let words = [MAGIC, self.test as u32, operations, smallest, largest, iterations];
        let words = [&words[..], &[tx_depth, rx_depth, moderation, list, self.inline]].concat();
        words.into_iter().flat_map(u32::to_be_bytes).collect()
    }

    /// Decodes a plan, or returns `None` if the bytes are not a plan.
    pub(super) fn from_bytes(bytes: &[u8]) -> Option<Self> {
        let mut words = words(bytes);
        let mut next = || words.next();
        if next()? != MAGIC {
            return None;
        }
        let test = [Test::Latency, Test::Bandwidth].into_iter().nth(next()?.try_into().ok()?)?;
        let operations = next()?;
        let plan = Self {
            test,
            operations: Operation::ALL
                .into_iter()
                .filter(|operation| operations >> *operation as u32 & 1 == 1)
                .collect(),
            smallest: next()?,
            largest: next()?,
            iterations: next()?,
            tx_depth: next()?,
            rx_depth: next()?,
            moderation: next()?,
            list: next()?,
            inline: next()?,
        };
        plan.check().is_ok().then_some(plan)
    }

    /// Returns an error if the plan cannot be executed.
    pub(super) fn check(&self) -> Result<(), &'static str> {
        let Self { tx_depth, moderation, list, .. } = *self;
        match self {
            Self { smallest: 0, .. } | Self { iterations: 0, .. } => {
                Err("sizes and iterations must be at least 1")
            }
            Self { operations, .. } if operations.is_empty() => Err("no operation is selected"),
            _ if self.largest < self.smallest => Err("the largest size is below the smallest"),
            _ if self.largest > Self::MAX_SIZE => {
                Err("the largest size exceeds the maximum of 16 MiB")
            }
            Self { rx_depth: 0 | 1, .. } => Err("the receive depth must be at least 2"),
            Self { tx_depth: 0, .. } | Self { moderation: 0, .. } | Self { list: 0, .. } => {
                Err("depth, moderation and list must be at least 1")
            }
            // Otherwise the queue may be full of unsignaled requests.
            _ if u64::from(moderation) + u64::from(list) > u64::from(tx_depth) + 1 => {
                Err("the sum of moderation and list exceeds the depth of the send queue")
            }
            Self { test: Test::Latency, .. } if list > 1 => {
                Err("lists are not supported for latency")
            }
            _ => Ok(()),
        }
    }

    pub(super) const MAX_SIZE: u32 = 1 << 24;
}

fn words(bytes: &[u8]) -> impl Iterator<Item = u32> {
    let word =
        |word: &[u8]| u32::from_be_bytes(word.try_into().expect("a chunk should have 4 bytes"));
    bytes.chunks_exact(4).map(word)
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;

    pub(in super::super) fn plan() -> Plan {
        Plan {
            test: Test::Bandwidth,
            operations: vec![Operation::Send, Operation::Read],
            smallest: 2,
            largest: 65_536,
            iterations: 1000,
            tx_depth: 128,
            rx_depth: 512,
            moderation: 100,
            list: 1,
            inline: 0,
        }
    }

    #[test]
    fn plan_survives_round_trip() {
        let bytes = plan().to_bytes();
        assert_eq!(bytes.len(), Plan::LENGTH);
        // The message's field adds padding after the plan.
        let padded = [&bytes[..], &[0; 16]].concat();
        assert_eq!(Plan::from_bytes(&padded), Some(plan()));
        assert_eq!(Plan::from_bytes(&bytes[..40]), None);
        assert_eq!(Plan::from_bytes(&[0; 56]), None);
        let remote = Remote { addr: 0x0123_4567_89ab_cdef, rkey: 7 };
        assert_eq!(Plan::LENGTH + remote.to_bytes().len(), 56);
        assert_eq!(Remote::from_bytes(&remote.to_bytes()), Some(remote));
    }

    #[test]
    fn sizes_are_powers_of_two() {
        let sizes: Vec<_> = plan().sizes().collect();
        assert_eq!((sizes.len(), sizes[0], sizes[15]), (16, 2, 65_536));
        let one = Plan { smallest: 100, largest: 100, ..plan() };
        assert_eq!(one.sizes().collect::<Vec<_>>(), [100]);
    }

    #[test]
    fn invalid_plan_is_rejected() {
        for wrong in [
            Plan { smallest: 0, ..plan() },
            Plan { iterations: 0, ..plan() },
            Plan { operations: vec![], ..plan() },
            Plan { largest: 1, ..plan() },
            Plan { largest: u32::MAX, ..plan() },
            Plan { moderation: 129, ..plan() },
            Plan { moderation: 0, ..plan() },
            Plan { list: 30, ..plan() },
            Plan { list: 0, ..plan() },
            Plan { test: Test::Latency, list: 2, ..plan() },
            Plan { rx_depth: 1, ..plan() },
        ] {
            assert!(wrong.check().is_err(), "{wrong:?}");
            assert_eq!(Plan::from_bytes(&wrong.to_bytes()), None);
        }
    }
}
