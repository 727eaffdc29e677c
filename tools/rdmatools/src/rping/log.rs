//! What is printed, in whole lines whichever thread prints.

use std::fmt;
use std::io::{self, Write};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Instant;

use rdmacm::Token;
use rdmacm::cm::{CmId, Event, EventChannel, EventType};

use super::pattern;
use crate::failure::{Failure, waited};

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

    /// With `-v`: the data of a ping.
    pub(super) fn data(&self, heading: &str, data: &[u8]) -> io::Result<()> {
        if !self.verbose {
            return Ok(());
        }
        let line = [heading.as_bytes(), b" ", pattern::text(data), b"\n"].concat();
        self.out().write_all(&line)
    }

    /// With `-d`: what happens to an id, and when, in seconds since the program started.
    pub(super) fn debug(&self, id: Token, what: impl fmt::Display) -> io::Result<()> {
        if !self.debug {
            return Ok(());
        }
        // First: the times of the lines ascend, whichever thread prints them.
        let mut out = self.out();
        let seconds = self.started.elapsed().as_secs_f64();
        out.write_all(format!("{seconds:11.6} id {id}: {what}\n").as_bytes())
    }

    /// With `-d`: an event.
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

    /// Waits for `wanted`, which belongs to `doing`: `connect to 10.0.0.1:7174`.
    pub(super) fn expect(
        &self,
        channel: &EventChannel,
        wanted: EventType,
        doing: &str,
    ) -> Result<Event, Failure> {
        let event = waited(|| channel.get_event())?;
        self.event(&event)?;
        match event.failure(wanted) {
            None => Ok(event),
            Some(error) => Err(Failure::because(format!("cannot {doing}: {}", error.kind()))),
        }
    }

    fn out(&self) -> MutexGuard<'_, &'a mut (dyn Write + Send)> {
        self.out.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
