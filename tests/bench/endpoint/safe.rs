//! The ends of a connection of the safe tier.

use std::net::{IpAddr, SocketAddr};
use std::os::fd::{AsFd, BorrowedFd};
use std::thread;
use std::time::Duration;

use rdmacm::endpoint::{
    Buffer, Connection, ConnectionConfig, Connector, DmaMemory, ExportedMemory, Listener,
    RemoteAccess, RemoteMemory,
};
use rdmacm::{ErrorKind, Result};

use crate::many::{self, Member};
use crate::{DEPTH, End, Outcome, Waiting, short};

/// Time within which the two ends must connect.
const TIMEOUT: Duration = Duration::from_secs(20);

pub(crate) struct Safe {
    connection: Connection,
    size: usize,
    /// The peer's memory.
    remote: RemoteMemory,
    /// Export of the peer's memory.
    _export: ExportedMemory,
}

/// Returns two connected ends.
pub(crate) fn pair(address: IpAddr, waiting: Waiting, size: usize) -> Outcome<[Safe; 2]> {
    let config = ConnectionConfig::new()
        .send_buffers(DEPTH)
        .receive_buffers(DEPTH)
        .send_buffer_size(size)
        .receive_buffer_size(size)
        .busy_poll(match waiting {
            Waiting::Sleeps | Waiting::SleepsForData => Duration::ZERO,
            Waiting::Polls => TIMEOUT,
        });
    let ends = connected(&listener(address)?, &config)?;
    let memory = DmaMemory::new(size)?;
    let export =
        |end: &Connection| end.export(&memory, .., RemoteAccess::READ | RemoteAccess::WRITE);
    let exports = [export(&ends[0])?, export(&ends[1])?];
    let remotes = [exports[1].remote_memory(), exports[0].remote_memory()];
    let ([client, server], [of_client, of_server]) = (ends, exports);
    Ok([
        Safe { connection: client, size, remote: remotes[0], _export: of_client },
        Safe { connection: server, size, remote: remotes[1], _export: of_server },
    ])
}

/// Returns `count` connections for a loop.
pub(crate) fn many(address: IpAddr, count: usize) -> Outcome<Vec<[Connection; 2]>> {
    let config = ConnectionConfig::new()
        .send_buffers(many::BUFFERS)
        .receive_buffers(many::BUFFERS)
        .send_buffer_size(many::SIZE)
        .receive_buffer_size(many::SIZE);
    let listener = listener(address)?;
    (0..count).map(|_| connected(&listener, &config)).collect()
}

fn listener(address: IpAddr) -> Result<Listener> {
    Listener::bind(SocketAddr::new(address, 0))
}

/// Returns a client and its server.
fn connected(listener: &Listener, config: &ConnectionConfig) -> Outcome<[Connection; 2]> {
    let server = listener.local_addr().ok_or("the listener has no IP address")?;
    let connector = Connector::new().config(config.clone()).total_timeout(TIMEOUT);
    thread::scope(|scope| {
        let client = scope.spawn(|| connector.connect(server));
        let incoming = listener.accept_timeout(TIMEOUT)?;
        let server = incoming.accept(config, &[], TIMEOUT)?;
        let client = client.join().map_err(|_| "the client panicked")??;
        Ok([client, server])
    })
}

impl Safe {
    fn sized(&self, mut buffer: Buffer) -> Result<Buffer> {
        buffer.set_len(self.size)?;
        Ok(buffer)
    }
}

impl Member for Connection {
    fn descriptors(&self) -> Outcome<[Option<BorrowedFd<'_>>; 2]> {
        Ok([Some(self.as_fd()), None])
    }

    fn wake(&mut self) -> Outcome {
        Ok(())
    }

    fn receive_now(&mut self) -> Outcome<bool> {
        match self.try_recv() {
            Ok(message) => message.map(|_| true).ok_or_else(|| "the connection has ended".into()),
            Err(error) if *error.kind() == ErrorKind::WouldBlock => Ok(false),
            Err(error) => Err(error.into()),
        }
    }

    fn send_now(&mut self) -> Outcome {
        let bytes = short(many::SIZE).ok_or("the messages do not fit into post_bytes")?;
        Ok(self.try_post_bytes(bytes)?)
    }
}

impl End for Safe {
    fn post(&mut self) -> Outcome {
        match short(self.size) {
            Some(bytes) => self.connection.post_bytes(bytes)?,
            None => self.connection.post_send(self.sized(self.connection.acquire_buffer()?)?)?,
        }
        Ok(())
    }

    fn receive(&mut self) -> Outcome {
        self.connection.recv()?.map(drop).ok_or_else(|| "the connection has ended".into())
    }

    fn write(&mut self) -> Outcome {
        let buffer = self.sized(self.connection.acquire_buffer()?)?;
        Ok(self.connection.post_write(buffer, &self.remote, 0)?)
    }

    fn read(&mut self) -> Outcome {
        let buffer = self.sized(self.connection.acquire_buffer()?)?;
        self.connection.start_read(buffer, &self.remote, 0)?.wait()?;
        Ok(())
    }

    fn flush(&mut self) -> Outcome {
        Ok(self.connection.flush()?)
    }
}
