use rdmacm::endpoint::{Connection, Connector};
use rdmacm::{Error, ErrorKind};
use std::{io, net::SocketAddr, thread, time::Duration};

/// Connects to a server that may not be started yet.
fn connect(server: SocketAddr, tries: u32) -> Result<Connection, Error> {
    let connector = Connector::new().total_timeout(Duration::from_secs(10));
    for _ in 1..tries {
        match connector.connect(server) {
            // No program listens there, or the server's program has rejected the request.
            Err(error) if is_refused(&error) => thread::sleep(Duration::from_millis(100)),
            done => return done,
        }
    }
    connector.connect(server)
}

fn is_refused(error: &Error) -> bool {
    error.io_kind() == io::ErrorKind::ConnectionRefused
}

/// Returns `true` if a call with a timeout has waited too long.
fn is_timeout(error: &Error) -> bool {
    *error.kind() == ErrorKind::TimedOut
}

/// Returns the private data of a server's rejection.
fn refusal(error: &Error) -> Option<&[u8]> {
    match error.kind() {
        ErrorKind::Rejected(rejection) => Some(&rejection.private_data),
        _ => None,
    }
}
