//! A connection as two threads share it: one waits for completions, the other for events.

use std::panic;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

use rdmacm::cm::{CmId, ConnParam, Event, EventChannel, EventType};

use super::log::Log;
use crate::failure::{Failure, waited};

/// How long a thread that reads events may overlook that the other one is done. It matters only
/// where the peer has vanished: else `Disconnected` comes at once.
const LOOK: Duration = Duration::from_secs(1);

pub(super) struct Peer {
    pub(super) id: CmId,
    ended: OnceLock<EventType>,
    /// Nobody reads events any more.
    is_deaf: AtomicBool,
}

impl Peer {
    pub(super) fn new(id: CmId) -> Self {
        Self { id, ended: OnceLock::new(), is_deaf: AtomicBool::new(false) }
    }

    /// The event that ended the connection.
    pub(super) fn ended(&self) -> Option<EventType> {
        self.ended.get().copied()
    }

    /// Takes note of an event of the id.
    ///
    /// If the connection has ended, disconnecting flushes the queue pair: the thread that waits for
    /// completions gets one. And it lets the other side have its own `Disconnected`.
    pub(super) fn heard(&self, event: &Event) {
        use EventType as T;
        match event.event_type() {
            T::Disconnected | T::Unreachable | T::ConnectError | T::DeviceRemoval => {
                let _ = self.ended.set(event.event_type());
                self.disconnect();
            }
            _ => {}
        }
    }

    /// Accepts the peer. Where it will not be heard any more, it is not there for whoever waits for it.
    pub(super) fn accept(&self) -> rdmacm::Result<()> {
        self.id.accept(&ConnParam::default())?;
        // After the accept: who sets it before disconnects too early, and who sets it later disconnects in time.
        if self.is_deaf.load(Ordering::SeqCst) {
            self.disconnect();
        }
        Ok(())
    }

    /// Takes note that nobody will hear of the peer.
    pub(super) fn give_up(&self) {
        self.is_deaf.store(true, Ordering::SeqCst);
        self.disconnect();
    }

    /// Disconnects, if there still is something to disconnect.
    pub(super) fn disconnect(&self) {
        let _ = self.id.disconnect();
    }

    /// Does `work`, which uses the connection and ends by disconnecting, in a second thread, and
    /// reads the events of `channel` meanwhile.
    pub(super) fn attend(
        &self,
        channel: &EventChannel,
        log: &Log<'_>,
        work: impl FnOnce() -> Result<(), Failure> + Send,
    ) -> Result<(), Failure> {
        thread::scope(|scope| {
            let worker = thread::Builder::new().spawn_scoped(scope, work);
            let worker = worker.map_err(|error| {
                Failure::because(format!("cannot start the connection's thread: {error}"))
            })?;
            let mut attended = Ok(());
            while attended.is_ok() && self.ended().is_none() && !worker.is_finished() {
                attended = self.next_event(channel, log);
            }
            if attended.is_err() {
                // Nobody would wake the worker any more.
                self.give_up();
            }
            let worked = worker.join().unwrap_or_else(|cause| panic::resume_unwind(cause));
            // Where events could not be read, that is why the worker came to its end.
            attended.and(worked)
        })
    }

    fn next_event(&self, channel: &EventChannel, log: &Log<'_>) -> Result<(), Failure> {
        if let Some(event) = waited(|| channel.get_event_timeout(LOOK))? {
            self.heard(&event);
            log.event(&event)?;
        }
        Ok(())
    }
}
