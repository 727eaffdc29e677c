//! Tests of subscribers that call the connection that a report is about.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use tracing::span::{Attributes, Id, Record};
use tracing::{Dispatch, Event, Metadata, Subscriber, dispatcher};

use super::*;
use crate::endpoint::Connection;
use crate::endpoint::shared::trace::Trace;

/// A subscriber that reads the statistics of the connection with each report.
struct Caller {
    connection: Connection,
    reports: Arc<AtomicU32>,
    panics: bool,
}

impl Subscriber for Caller {
    fn enabled(&self, _: &Metadata<'_>) -> bool {
        true
    }

    fn new_span(&self, _: &Attributes<'_>) -> Id {
        Id::from_u64(1)
    }

    fn record(&self, _: &Id, _: &Record<'_>) {}

    fn record_follows_from(&self, _: &Id, _: &Id) {}

    fn event(&self, _: &Event<'_>) {
        self.connection.stats().expect("stats should succeed");
        self.reports.fetch_add(1, Ordering::Relaxed);
        assert!(!self.panics, "the subscriber panics");
    }

    fn enter(&self, _: &Id) {}

    fn exit(&self, _: &Id) {}
}

/// Ends a connection with a subscriber. Returns the number of reports.
fn reports_of_end(panics: bool) -> u32 {
    let own = loopback();
    let reports = Arc::<AtomicU32>::default();
    let subscriber =
        Caller { connection: own.connection.clone(), reports: Arc::clone(&reports), panics };
    dispatcher::with_default(&Dispatch::new(subscriber), || {
        let trace = Trace::connection(own.recv_cq.token(), || None::<u8>);
        own.connection.shared.lock_here().state.set_trace(trace);
        own.connection.shared.lock_here().state.on_device_removed();
        own.connection.abort();
    });
    assert_eq!(kind(own.connection.recv()), ErrorKind::DeviceRemoved(libc::ENODEV));
    reports.load(Ordering::Relaxed)
}

#[test]
fn subscriber_calls_connection() {
    assert_eq!(reports_of_end(false), 2, "the removal and the abort should be reported");
}

#[test]
fn panicking_subscriber_stops_no_call() {
    assert_eq!(reports_of_end(true), 2, "the removal and the abort should be reported");
}
