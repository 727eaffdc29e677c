//! The two kinds of endpoint: messages over a connection, and datagrams.

use super::keep_alive::KeepAlive;
use super::overrun::Overrun;
use super::watched_keys::WatchedKeys;
use crate::verbs::WcStatus;

/// The part of an endpoint that depends on its kind.
///
/// It is an enumeration instead of a type parameter of the core, so that buffers and messages of both kinds have one
/// type.
#[derive(Debug)]
pub(in crate::endpoint) enum Protocol<B> {
    Messages(Messages<B>),
    Datagrams(Datagrams),
}

/// A reliable connection: a request that fails ends it.
#[derive(Debug)]
pub(in crate::endpoint) struct Messages<B> {
    /// `true` if the queue pair ends only with the connection, which an event reports.
    pub(in crate::endpoint) qp_follows_connection: bool,
    /// The status that the driver gives a receive whose message is too long.
    pub(in crate::endpoint) oversize_status: WcStatus,
    /// The status of a send that the end of the connection has interrupted, besides that of a flush.
    pub(in crate::endpoint) disconnect_status: WcStatus,
    /// Detects that a message may have found no buffer, if that ends the connection.
    pub(super) overrun: Option<Overrun>,
    pub(super) keep_alive: Option<KeepAlive<B>>,
    pub(super) watched_keys: Option<Box<WatchedKeys>>,
}

impl<B> Messages<B> {
    /// Creates the protocol of a connection for which `receives` buffers are posted.
    ///
    /// On iWARP a message that finds no buffer ends the connection.
    pub(in crate::endpoint) fn new(
        is_iwarp: bool,
        receives: usize,
        oversize_status: WcStatus,
        disconnect_status: WcStatus,
        keep_alive: Option<B>,
    ) -> Self {
        Self {
            qp_follows_connection: is_iwarp,
            oversize_status,
            disconnect_status,
            overrun: is_iwarp.then(|| Overrun::new(receives)),
            keep_alive: keep_alive.map(KeepAlive::new),
            watched_keys: None,
        }
    }
}

/// Datagrams: a send that fails stops the queue pair until it is set up again, and ends nothing.
#[derive(Debug, Default)]
pub(in crate::endpoint) struct Datagrams {
    pub(super) recovery: Recovery,
}

/// The steps from a failed request, which fails the queue pair, to a working queue pair.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) enum Recovery {
    /// The queue pair has not failed.
    #[default]
    Done,
    /// A request has failed.
    Failed,
    /// A caller moves the queue pair to ERR.
    MovingToError,
    /// The device flushes all requests.
    Flushing,
    /// The requests have completed, and a caller moves the queue pair back to RTS.
    Resetting,
}
