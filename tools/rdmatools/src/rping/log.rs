//! Output of whole lines from several threads.

use std::fmt;
use std::io::{self, Write};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Instant;

use rdmacm::Token;
use rdmacm::cm::{CmId, Event, EventChannel, EventType};

use super::pattern;
use crate::failure::{Failure, retry_interrupted};

pub(super) struct Log<'a> {
    out: Mutex<&'a mut (dyn Write + Send)>,
    verbose: bool,
    debug: bool,
    started: Instant,
}

impl<'a> Log<'a> {
    pub(super) fn new(out: &'a mut (dyn Write + Send), verbose: bool, debug: bool) -> Self {
        Self { out: Mutex::new(out), verbose, debug, started: Instant::now() }
    }

    /// Prints the data of a ping with `-v`.
    pub(super) fn data(&self, heading: &str, data: &[u8]) -> io::Result<()> {
        if !self.verbose {
            return Ok(());
        }
        let line = [heading.as_bytes(), b" ", pattern::text(data), b"\n"].concat();
        self.out().write_all(&line)
    }

    /// Prints an event of an id with `-d`, and its time in seconds since the start of the program.
    pub(super) fn debug(&self, id: Token, what: impl fmt::Display) -> io::Result<()> {
        if !self.debug {
            return Ok(());
        }
        // The lock is taken before the time, so that the times of the lines ascend.
        let mut out = self.out();
        let seconds = self.started.elapsed().as_secs_f64();
        out.write_all(format!("{seconds:11.6} id {id}: {what}\n").as_bytes())
    }

    /// Prints an event with `-d`.
    pub(super) fn event(&self, event: &Event) -> io::Result<()> {
        if !self.debug {
            return Ok(());
        }
        let (name, status) = (event.event_type(), event.status());
        match (event.request().map(CmId::peer_addr), status) {
            (Some(Ok(Some(client))), _) => {
                self.debug(event.token(), format_args!("{name} from {client}"))
            }
            (_, 0) => self.debug(event.token(), name),
            (_, status) => self.debug(event.token(), format_args!("{name}, status {status}")),
        }
    }

    /// Waits for the event `wanted` of an operation `doing`, such as `connect to 10.0.0.1:7174`.
    pub(super) fn expect(
        &self,
        channel: &EventChannel,
        wanted: EventType,
        doing: &str,
    ) -> Result<Event, Failure> {
        let event = retry_interrupted(|| channel.get_event())?;
        self.event(&event)?;
        match event.error_for(wanted) {
            None => Ok(event),
            Some(error) => Err(Failure::new(format!("cannot {doing}: {}", error.kind()))),
        }
    }

    fn out(&self) -> MutexGuard<'_, &'a mut (dyn Write + Send)> {
        self.out.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
