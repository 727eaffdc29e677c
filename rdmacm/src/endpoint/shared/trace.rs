//! The spans and events of the feature `tracing`, for listeners, connections and sockets.
//!
//! Without the feature the types are empty.
//!
//! No event is reported while the state of a connection is locked, because a subscriber may call the connection: see
//! [`DeferredTrace`].

use std::fmt;
use std::mem;

#[cfg(feature = "tracing")]
use tracing::{Span, debug, debug_span, field};

use crate::cm::Event;
#[cfg(feature = "tracing")]
use crate::cm::EventType;
use crate::registry::Token;

#[cfg(feature = "tracing")]
const TARGET: &str = "rdmacm::endpoint";

/// The span of a listener, connection or socket; by default there is none.
#[derive(Debug, Default)]
pub(in crate::endpoint) struct Trace {
    #[cfg(feature = "tracing")]
    span: Option<Span>,
}

#[cfg(feature = "tracing")]
impl Trace {
    /// Creates the trace of the listener that has `id`.
    pub(in crate::endpoint) fn listener(id: Token, local: Option<impl fmt::Display>) -> Self {
        let span = debug_span!(target: TARGET, "listener", %id, local = field::Empty);
        record(&span, "local", local);
        Self { span: Some(span) }
    }

    /// Creates the trace of the datagram socket that listens with `id`.
    pub(in crate::endpoint) fn socket(id: Token, local: Option<impl fmt::Display>) -> Self {
        let span = debug_span!(target: TARGET, "socket", %id, local = field::Empty);
        record(&span, "local", local);
        Self { span: Some(span) }
    }

    /// Creates the span of the connection with `id`. `peer` is called only if a subscriber is interested.
    pub(in crate::endpoint) fn connection<P: fmt::Display>(
        id: Token,
        peer: impl FnOnce() -> Option<P>,
    ) -> Self {
        let span = debug_span!(
            target: TARGET, "connection", %id, peer = field::Empty, local = field::Empty
        );
        if !span.is_disabled() {
            record(&span, "peer", peer());
        }
        Self { span: Some(span) }
    }

    /// Records the local address.
    pub(in crate::endpoint) fn local(&self, local: Option<impl fmt::Display>) {
        if let Some(span) = &self.span {
            record(span, "local", local);
        }
    }

    /// Records that the attempt begins again with the id `id`.
    pub(in crate::endpoint) fn record_retry(&self, id: Token) {
        if let Some(span) = &self.span {
            record(span, "id", Some(id));
            self.set_state("resolving again");
        }
    }

    /// Reports an event.
    pub(in crate::endpoint) fn event(&self, event: &Event) {
        self.event_of(event.event_type(), event.status());
    }

    fn event_of(&self, kind: EventType, status: i32) {
        if let Some(span) = &self.span {
            debug!(target: TARGET, parent: span, %kind, status, "event");
        }
    }

    /// Reports the new state.
    pub(in crate::endpoint) fn set_state(&self, state: &'static str) {
        if let Some(span) = &self.span {
            debug!(target: TARGET, parent: span, state, "state");
        }
    }

    /// Reports a failure.
    pub(in crate::endpoint) fn failed(&self, error: &impl fmt::Display) {
        if let Some(span) = &self.span {
            debug!(target: TARGET, parent: span, state = "failed", %error, "state");
        }
    }
}

/// The trace of a connection or a socket, which keeps its reports until the state is unlocked.
#[derive(Debug, Default)]
pub(in crate::endpoint) struct DeferredTrace {
    #[cfg(feature = "tracing")]
    span: Option<Span>,
    #[cfg(feature = "tracing")]
    kept: Vec<Report>,
}

/// Reports of a [`DeferredTrace`].
#[cfg(feature = "tracing")]
#[derive(Debug)]
pub(in crate::endpoint) struct Reports(Trace, Vec<Report>);

#[cfg(feature = "tracing")]
#[derive(Debug)]
enum Report {
    Event(EventType, i32),
    State(&'static str),
    Failed(String),
}

#[cfg(feature = "tracing")]
impl DeferredTrace {
    pub(in crate::endpoint) fn new(trace: Trace) -> Self {
        Self { span: trace.span, kept: Vec::new() }
    }

    /// Keeps the report of an event.
    pub(in crate::endpoint) fn event(&mut self, event: &Event) {
        self.keep(|| Report::Event(event.event_type(), event.status()));
    }

    /// Keeps the report of the new state.
    pub(in crate::endpoint) fn set_state(&mut self, state: &'static str) {
        self.keep(|| Report::State(state));
    }

    /// Keeps the report of a failure.
    pub(in crate::endpoint) fn failed(&mut self, error: &impl fmt::Display) {
        self.keep(|| Report::Failed(error.to_string()));
    }

    fn keep(&mut self, report: impl FnOnce() -> Report) {
        if self.span.as_ref().is_some_and(|span| !span.is_disabled()) {
            self.kept.push(report());
        }
    }

    pub(in crate::endpoint) fn has_reports(&self) -> bool {
        !self.kept.is_empty()
    }

    /// Takes the kept reports.
    pub(in crate::endpoint) fn take(&mut self) -> Option<Reports> {
        let kept = mem::take(&mut self.kept);
        (!kept.is_empty()).then(|| Reports(Trace { span: self.span.clone() }, kept))
    }
}

#[cfg(feature = "tracing")]
impl Reports {
    /// Makes the reports, in their order.
    pub(in crate::endpoint) fn make(self) {
        let Self(trace, kept) = self;
        for report in kept {
            match report {
                Report::Event(event_type, status) => trace.event_of(event_type, status),
                Report::State(state) => trace.set_state(state),
                Report::Failed(error) => trace.failed(&error),
            }
        }
    }
}

/// There are no reports without the feature.
#[cfg(not(feature = "tracing"))]
#[derive(Debug)]
pub(in crate::endpoint) enum Reports {}

#[cfg(not(feature = "tracing"))]
impl DeferredTrace {
    pub(in crate::endpoint) fn new(_: Trace) -> Self {
        Self::default()
    }

    pub(in crate::endpoint) fn event(&mut self, _: &Event) {}

    pub(in crate::endpoint) fn set_state(&mut self, _: &'static str) {}

    pub(in crate::endpoint) fn failed(&mut self, _: &impl fmt::Display) {}

    pub(in crate::endpoint) fn has_reports(&self) -> bool {
        false
    }

    pub(in crate::endpoint) fn take(&mut self) -> Option<Reports> {
        None
    }
}

#[cfg(not(feature = "tracing"))]
impl Reports {
    pub(in crate::endpoint) fn make(self) {
        match self {}
    }
}

/// The trace of a request without an answer. Dropping it reports that the request is rejected.
#[derive(Debug)]
pub(in crate::endpoint) struct RequestTrace(Trace);

impl RequestTrace {
    /// Creates the span of the request with `id`: see [`Trace::connection`].
    pub(in crate::endpoint) fn new<P: fmt::Display>(
        id: Token,
        peer: impl FnOnce() -> Option<P>,
    ) -> Self {
        Self(Trace::connection(id, peer))
    }

    /// Returns the trace of a request that was accepted or rejected explicitly.
    pub(in crate::endpoint) fn answered(mut self) -> Trace {
        mem::take(&mut self.0)
    }
}

impl Drop for RequestTrace {
    fn drop(&mut self) {
        self.0.set_state("rejected");
    }
}

#[cfg(feature = "tracing")]
fn record(span: &Span, name: &str, address: Option<impl fmt::Display>) {
    if let Some(address) = address {
        span.record(name, field::display(address));
    }
}

#[cfg(not(feature = "tracing"))]
impl Trace {
    pub(in crate::endpoint) fn listener(_: Token, _: Option<impl fmt::Display>) -> Self {
        Self::default()
    }

    pub(in crate::endpoint) fn socket(_: Token, _: Option<impl fmt::Display>) -> Self {
        Self::default()
    }

    pub(in crate::endpoint) fn connection<P>(_: Token, _: impl FnOnce() -> Option<P>) -> Self {
        Self::default()
    }

    pub(in crate::endpoint) fn local(&self, _: Option<impl fmt::Display>) {}

    pub(in crate::endpoint) fn record_retry(&self, _: Token) {}

    pub(in crate::endpoint) fn event(&self, _: &Event) {}

    pub(in crate::endpoint) fn set_state(&self, _: &'static str) {}

    pub(in crate::endpoint) fn failed(&self, _: &impl fmt::Display) {}
}
