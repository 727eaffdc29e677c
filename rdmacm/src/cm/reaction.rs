//! The reaction of an id to an event before the caller gets the event.
//!
//! [`plan`] changes the state of the id in one pass under its lock, and decides on further work. [`Inner::react`] does
//! that work after the lock is released, because it issues commands.

use super::own_qp::OwnQp;
use super::parse::{EventType, RawEvent};
use super::record::{Inner, State};
use super::resolution::Resolution;
use super::transition;
use crate::verbs::{Context, Ece};

/// The type and status of an event that the caller gets.
type Reported = (EventType, i32);

/// The reaction to an event.
#[derive(Debug)]
enum Plan {
    /// The caller gets the event, or no event.
    Report(Option<Reported>),
    /// The queue pair moves to ERR, then the caller gets the event, if any.
    Flush(OwnQp, Option<Reported>),
    /// The peer has accepted, with its ECE options.
    ///
    /// The queue pair moves to RTS, and the connection is confirmed.
    Confirm(OwnQp, Ece),
    /// The subnet administrator has answered: the services are read.
    ReadServices,
}

/// Applies an event to the state of its id.
fn plan(state: &mut State, raw: &RawEvent) -> Plan {
    use EventType as T;
    let event_type = raw.event_type();
    let event = Some((event_type, raw.status()));
    // With some drivers the kernel moves queue pairs to ERR when their connection ends. The library must then flush the
    // requests that are posted later. It does so after it has moved the queue pair to ERR itself.
    let follow = |state: &State, event| {
        let qp = state.qp.clone().filter(OwnQp::ends_with_connection);
        qp.map_or(Plan::Report(event), |qp| Plan::Flush(qp, event))
    };
    match event_type {
        T::Established => {
            state.established = true;
            Plan::Report(event)
        }
        // On RoCE this event also arrives for an established connection if the hardware address of the neighbor has
        // changed. The connection continues.
        T::Unreachable => follow(state, event),
        T::ConnectError | T::TimewaitExit => {
            state.established = false;
            follow(state, event)
        }
        T::DeviceRemoval => {
            state.established = false;
            state.removed = true;
            state.context.iter().for_each(Context::mark_removed);
            follow(state, event)
        }
        T::Disconnected | T::Rejected => {
            state.established = false;
            // The caller already got the event that connecting has failed.
            let is_news = !state.connect_failed;
            let rejected = state.qp.clone().filter(|_| is_news && event_type == T::Rejected);
            match rejected {
                Some(qp) => Plan::Flush(qp, event),
                None => follow(state, event.filter(|_| is_news)),
            }
        }
        T::ConnectResponse => match state.qp.clone() {
            Some(qp) => Plan::Confirm(qp, raw.ece()),
            None => {
                state.remote_ece = raw.ece();
                Plan::Report(event)
            }
        },
        T::AddrinfoResolved if matches!(state.resolution, Resolution::Pending) => {
            Plan::ReadServices
        }
        T::AddrinfoResolved => Plan::Report(Some((event_type, 0))),
        T::AddrinfoError => {
            state.resolution = Resolution::None;
            Plan::Report(event)
        }
        _ => Plan::Report(event),
    }
}

impl Inner {
    /// Reacts to an event that is about this id.
    ///
    /// Returns the event type and status that the caller gets, or `None` if the caller gets no event.
    pub(super) fn react(&self, raw: &RawEvent) -> Option<Reported> {
        let plan = plan(&mut self.state(), raw);
        match plan {
            Plan::Report(event) => event,
            Plan::Flush(qp, event) => {
                // If this fails, no further cleanup is possible.
                let _ = self.flush(&qp);
                event
            }
            Plan::Confirm(qp, ece) => Some(self.finish_connecting(&qp, ece)),
            Plan::ReadServices => Some(self.read_services()),
        }
    }

    /// Brings the queue pair of an accepted connection to RTS, and confirms the connection.
    fn finish_connecting(&self, qp: &OwnQp, ece: Ece) -> Reported {
        let steps = transition::connected(None);
        let finish = || {
            self.take_ece_answer(qp, ece)?;
            self.apply_steps(&steps, qp)?;
            self.confirm()
        };
        match finish() {
            Ok(()) => {
                self.state().record_ece(qp);
                (EventType::Established, 0)
            }
            Err(error) => {
                let _ = self.flush(qp);
                self.state().connect_failed = true;
                (EventType::ConnectError, -error.errno())
            }
        }
    }
}

#[cfg(test)]
mod tests;
