//! A connection shared by two threads: one waits for completions, the other one for events.

use std::panic;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

use rdmacm::cm::{CmId, ConnParam, Event, EventChannel, EventType};

use super::log::Log;
use crate::failure::{Failure, retry_interrupted};

/// Interval at which the event thread checks whether the other thread has ended.
///
/// It matters only if the peer has vanished: otherwise `Disconnected` arrives at once.
const END_CHECK_INTERVAL: Duration = Duration::from_secs(1);

pub(super) struct Peer {
    pub(super) id: CmId,
    ended: OnceLock<EventType>,
    /// `true` if no thread reads events any more.
    events_stopped: AtomicBool,
}

impl Peer {
    pub(super) fn new(id: CmId) -> Self {
        Self { id, ended: OnceLock::new(), events_stopped: AtomicBool::new(false) }
    }

    /// Returns the event that ended the connection.
    pub(super) fn ended(&self) -> Option<EventType> {
        self.ended.get().copied()
    }

    /// Handles an event of the id.
    ///
    /// If the connection has ended, it is disconnected, which flushes the queue pair: the thread that waits for
    /// completions receives one. The other side also receives its own `Disconnected`.
    pub(super) fn handle_event(&self, event: &Event) {
        use EventType as T;
        match event.event_type() {
            T::Disconnected | T::Unreachable | T::ConnectError | T::DeviceRemoval => {
                let _ = self.ended.set(event.event_type());
                self.disconnect();
            }
            _ => {}
        }
    }

    /// Accepts the peer.
    ///
    /// Disconnects at once if events are no longer read: a waiting peer would otherwise get no answer.
    pub(super) fn accept(&self) -> rdmacm::Result<()> {
        self.id.accept(&ConnParam::default())?;
        // The flag is checked after the accept. The disconnect of a flag that was set earlier came too early. The
        // disconnect of a flag that is set later is in time.
        if self.events_stopped.load(Ordering::SeqCst) {
            self.disconnect();
        }
        Ok(())
    }

    /// Records that events are no longer read, and disconnects.
    pub(super) fn stop_events(&self) {
        self.events_stopped.store(true, Ordering::SeqCst);
        self.disconnect();
    }

    /// Disconnects, if the connection still exists.
    pub(super) fn disconnect(&self) {
        let _ = self.id.disconnect();
    }

    /// Runs `work` in a second thread, and reads the events of `channel` in this thread.
    ///
    /// `work` uses the connection and disconnects at its end.
    pub(super) fn run_with_events(
        &self,
        channel: &EventChannel,
        log: &Log<'_>,
        work: impl FnOnce() -> Result<(), Failure> + Send,
    ) -> Result<(), Failure> {
        thread::scope(|scope| {
            let worker = thread::Builder::new().spawn_scoped(scope, work);
            let worker = worker.map_err(|error| {
                Failure::new(format!("cannot start the connection's thread: {error}"))
            })?;
            let mut attended = Ok(());
            while attended.is_ok() && self.ended().is_none() && !worker.is_finished() {
                attended = self.next_event(channel, log);
            }
            if attended.is_err() {
                // No event would wake the worker any more.
                self.stop_events();
            }
            let worked = worker.join().unwrap_or_else(|cause| panic::resume_unwind(cause));
            // If events could not be read, that error made the worker end.
            attended.and(worked)
        })
    }

    fn next_event(&self, channel: &EventChannel, log: &Log<'_>) -> Result<(), Failure> {
        if let Some(event) = retry_interrupted(|| channel.get_event_timeout(END_CHECK_INTERVAL))? {
            self.handle_event(&event);
            log.event(&event)?;
        }
        Ok(())
    }
}
