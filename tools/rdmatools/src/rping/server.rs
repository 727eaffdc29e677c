//! The listening side: it reads the client's data and writes them back.

use std::collections::HashMap;
use std::io;
use std::net::SocketAddr;
use std::sync::{Arc, Weak};
use std::thread;

use rdmacm::Token;
use rdmacm::cm::{CmId, Event, EventChannel, EventType, PortSpace};

use super::connection::{Connection, unexpected_disconnect};
use super::log::Log;
use super::pattern::{self, SIZES};
use super::peer::Peer;
use crate::failure::{Failure, retry_interrupted};

/// Serves one client on `address`.
pub(super) fn serve_one(address: SocketAddr, log: &Log<'_>) -> Result<(), Failure> {
    let channel = EventChannel::new()?;
    let listener = listen(&channel, address, log)?;
    let mut request = log.expect(&channel, EventType::ConnectRequest, "wait for a client")?;
    let peer = Peer::new(request.take_request().expect("a connection request should have an id"));
    // The event is acknowledged before the listener is destroyed, which waits for the acknowledgment.
    drop(request);
    listener.destroy().map_err(rdmacm::Error::from)?;
    peer.run_with_events(&channel, log, || serve(&peer, log))
}

/// Serves every client on `address`, each in its own thread.
///
/// Ends only after a failure that affects all clients.
pub(super) fn serve_all(address: SocketAddr, log: &Log<'_>) -> Result<(), Failure> {
    let channel = EventChannel::new()?;
    let _listener = listen(&channel, address, log)?;
    thread::scope(|scope| {
        // The id is owned by the client's thread, and dropped with it.
        let mut peers: HashMap<Token, Weak<Peer>> = HashMap::new();
        let failure = loop {
            let mut event = match next_event(&channel, log) {
                Ok(event) => event,
                Err(failure) => break failure,
            };
            if let Some(id) = event.take_request() {
                let peer = Arc::new(Peer::new(id));
                peers.retain(|_, peer| peer.strong_count() > 0);
                peers.insert(peer.id.token(), Arc::downgrade(&peer));
                let serve = move || {
                    if let Err(failure) = serve(&peer, log) {
                        report_failure(failure.with_subject(&client(&peer)));
                    }
                };
                if let Err(error) = thread::Builder::new().spawn_scoped(scope, serve) {
                    // The id was dropped with the closure, which rejects the client.
                    report_failure(Failure::new(format!(
                        "cannot start a client's thread: {error}"
                    )));
                }
            } else if let Some(peer) = peers.get(&event.token()).and_then(Weak::upgrade) {
                peer.handle_event(&event);
            }
        };
        // No event would wake the threads any more.
        peers.values().filter_map(Weak::upgrade).for_each(|peer| peer.stop_events());
        Err(failure)
    })
}

fn listen(channel: &EventChannel, address: SocketAddr, log: &Log<'_>) -> Result<CmId, Failure> {
    let listener = CmId::new(channel, PortSpace::Tcp)?;
    listener.bind(address)?;
    listener.listen(0)?;
    log.debug(listener.token(), format_args!("listening on {address}"))?;
    Ok(listener)
}

fn next_event(channel: &EventChannel, log: &Log<'_>) -> Result<Event, Failure> {
    let event = retry_interrupted(|| channel.get_event())?;
    log.event(&event)?;
    Ok(event)
}

/// Accepts the client and answers its pings until it disconnects.
fn serve(peer: &Peer, log: &Log<'_>) -> Result<(), Failure> {
    let mut connection = Connection::new(peer, usize::from(*SIZES.end()), log)?;
    peer.accept()?;
    while let Some(source) = connection.receive()? {
        let size = usize::try_from(source.size).unwrap_or(usize::MAX);
        connection.read(source, size)?;
        let data = connection.data(size)?;
        log.data("server ping data:", &data)?;
        connection.go_ahead()?;
        let sink = connection.receive()?.ok_or_else(unexpected_disconnect)?;
        // The text is sent up to and including its zero byte.
        let echo = pattern::text(&data).len() + 1;
        connection.write(sink, echo.min(size))?;
        connection.go_ahead()?;
    }
    Ok(())
}

/// Prints the failure of one client to standard error; the other clients are still served.
fn report_failure(failure: Failure) {
    crate::report(Err(failure), "rping", &mut io::stderr());
}

/// Returns a name of the client for messages.
fn client(peer: &Peer) -> String {
    match peer.id.peer_addr() {
        Ok(Some(address)) => format!("client {address}"),
        _ => format!("client {}", peer.id.token()),
    }
}
