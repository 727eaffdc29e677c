//! Threads that create and end connections, and the gate that stops them.

use std::error::Error;
use std::net::IpAddr;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{PoisonError, RwLock, RwLockWriteGuard};

use rdmacm_tests::rng::Rng;

use crate::round::{Fate, Round};
use crate::{Outcome, is_late};

/// A listener. A round uses both ends of a connection to it.
pub(crate) trait Server: Sized {
    fn listen(address: IpAddr) -> Outcome<Self>;
    fn play(&self, round: &Round) -> Outcome;
}

/// State shared by the threads.
#[derive(Debug, Default)]
pub(crate) struct Load {
    /// A lock that each round holds for reading, and a census for writing.
    gate: RwLock<()>,
    over: AtomicBool,
    /// Numbers so far of connections that carried data, of failed attempts, and of bytes.
    connected: AtomicU64,
    broken_off: AtomicU64,
    /// Connections that the kernel reported as too slow.
    late: AtomicU64,
    bytes: AtomicU64,
}

/// Counts of the work so far.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Done {
    pub(crate) connected: u64,
    pub(crate) broken_off: u64,
    pub(crate) late: u64,
    pub(crate) bytes: u64,
}

impl Load {
    /// Waits until no thread is in a round. No round begins until the returned guard is dropped.
    pub(crate) fn still(&self) -> RwLockWriteGuard<'_, ()> {
        self.gate.write().unwrap_or_else(PoisonError::into_inner)
    }

    /// Requests the end of the threads.
    pub(crate) fn end(&self) {
        self.over.store(true, Ordering::Relaxed);
    }

    pub(crate) fn done(&self) -> Done {
        let value = |count: &AtomicU64| count.load(Ordering::Relaxed);
        Done {
            connected: value(&self.connected),
            broken_off: value(&self.broken_off),
            late: value(&self.late),
            bytes: value(&self.bytes),
        }
    }

    /// Runs rounds on the device of `address` until the end is requested, a few with each listener.
    pub(crate) fn play<S: Server>(&self, address: IpAddr, seed: u64) -> Outcome {
        let mut rng = Rng(seed);
        loop {
            let _playing = self.gate.read().unwrap_or_else(PoisonError::into_inner);
            if self.over.load(Ordering::Relaxed) {
                return Ok(());
            }
            let server = S::listen(address)?;
            for _ in 0..=rng.roll(4) {
                let round = Round::new(&mut rng);
                let played = server.play(&round);
                if played.as_ref().is_err_and(|error| is_late(&**error)) {
                    self.late.fetch_add(1, Ordering::Relaxed);
                    continue;
                }
                played.map_err(|error| -> Box<dyn Error + Send + Sync> {
                    let tier = std::any::type_name::<S>();
                    format!("{tier} on {address}, {round:?}: {error}").into()
                })?;
                let count = match round.fate {
                    Fate::Connected => &self.connected,
                    Fate::Abandoned | Fate::Rejected => &self.broken_off,
                };
                count.fetch_add(1, Ordering::Relaxed);
                self.bytes.fetch_add(round.volume(), Ordering::Relaxed);
            }
        }
    }
}
