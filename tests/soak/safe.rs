//! A connection of the safe tier.

use std::thread;

use rdmacm::ErrorKind;
use rdmacm::cm::RejectReason;
use rdmacm::endpoint::{
    Buffer, Connection, ConnectionConfig, Connector, DmaMemory, Incoming, Listener, Message,
    RemoteAccess, RemoteMemory,
};

use crate::load::Server;
use crate::round::{Fate, LONG, LONGEST, Part, Round, Side};
use crate::{Outcome, joined};

impl Server for Listener {
    fn listen(address: std::net::IpAddr) -> Outcome<Self> {
        Ok(Self::bind(std::net::SocketAddr::new(address, 0))?)
    }

    fn play(&self, round: &Round) -> Outcome {
        if round.fate == Fate::Abandoned {
            drop(connector().start_connect(address(self)?)?);
            return Ok(());
        }
        thread::scope(|scope| {
            let server = scope.spawn(|| serve(self.accept_timeout(LONG)?, round));
            let client = connect(self, round);
            // Both errors are reported, because one of them alone does not show the cause.
            joined(client, server.join())
        })
    }
}

fn config() -> ConnectionConfig {
    ConnectionConfig::new()
        .send_buffers(2)
        .receive_buffers(4)
        .send_buffer_size(LONGEST)
        .receive_buffer_size(LONGEST)
}

fn connector() -> Connector {
    Connector::new().total_timeout(LONG).config(config())
}

fn address(listener: &Listener) -> Outcome<std::net::SocketAddr> {
    listener.local_addr().ok_or_else(|| "the listener has no IP address".into())
}

fn connect(listener: &Listener, round: &Round) -> Outcome {
    let connected = connector().connect(address(listener)?);
    let connection = match (connected, round.fate) {
        (Err(error), Fate::Rejected) if matches!(error.kind(), ErrorKind::Rejected(_)) => {
            return Ok(());
        }
        (Ok(_), Fate::Rejected) => return Err("a rejected connection was established".into()),
        (connected, _) => connected?,
    };
    for number in 0..round.messages {
        give(&connection, round, Part::ToServer(number))?;
        take(&connection, round, Part::ToClient(number))?;
    }
    if round.remote {
        let descriptor = message(&connection)?;
        let remote = RemoteMemory::from_bytes(&descriptor)?;
        let buffer = filled(&connection, &round.bytes(Part::Remote))?;
        let mut buffer = connection.start_write(buffer, &remote, 0)?.wait_timeout(LONG)?;
        buffer.set_len(round.size)?;
        buffer.fill(0);
        let buffer = connection.start_read(buffer, &remote, 0)?.wait_timeout(LONG)?;
        round.check(Part::Remote, &buffer)?;
        connection.post_send(filled(&connection, b"done")?)?;
    }
    end(&connection, round, Side::Client)
}

fn serve(incoming: Incoming, round: &Round) -> Outcome {
    if round.fate == Fate::Rejected {
        // Otherwise the request is dropped without an answer, which rejects it too.
        if round.rng.clone().roll(2) == 0 {
            incoming.reject(RejectReason::CONSUMER_DEFINED, b"no")?;
        }
        return Ok(());
    }
    let connection = incoming.accept(&config(), &[], LONG)?;
    for number in 0..round.messages {
        take(&connection, round, Part::ToServer(number))?;
        give(&connection, round, Part::ToClient(number))?;
    }
    if round.remote {
        let memory = DmaMemory::new(round.size)?;
        let export = connection.export(&memory, .., RemoteAccess::READ | RemoteAccess::WRITE)?;
        // The message is not waited for: the client may have ended the connection before the acknowledgment.
        connection.post_send(filled(&connection, &export.remote_memory().to_bytes())?)?;
        message(&connection)?;
        let mut found = vec![0; round.size];
        memory.read(0, &mut found)?;
        round.check(Part::Remote, &found)?;
    }
    end(&connection, round, Side::Server)
}

fn filled(connection: &Connection, bytes: &[u8]) -> Outcome<Buffer> {
    let mut buffer = connection.acquire_buffer_timeout(LONG)?;
    buffer.copy_from(bytes)?;
    Ok(buffer)
}

fn give(connection: &Connection, round: &Round, part: Part) -> Outcome {
    Ok(connection.post_send(filled(connection, &round.bytes(part))?)?)
}

fn message(connection: &Connection) -> Outcome<Message> {
    connection.recv_timeout(LONG)?.ok_or_else(|| "the peer has ended the connection".into())
}

fn take(connection: &Connection, round: &Round, part: Part) -> Outcome {
    round.check(part, &message(connection)?)
}

/// Ends the connection, or waits until the peer does.
fn end(connection: &Connection, round: &Round, side: Side) -> Outcome {
    if round.ender != side {
        return match connection.recv_timeout(LONG)? {
            None => Ok(()),
            Some(_) => Err("a message too many".into()),
        };
    }
    // Dropping it without closing would not wait for requests in flight.
    let ended =
        if round.in_order { connection.close(LONG) } else { connection.flush_timeout(LONG) };
    Ok(ended?)
}
