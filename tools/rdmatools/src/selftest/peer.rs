//! The listening side of the checks: it exports memory, and sends each message back.

use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::thread;
use std::time::Duration;

use rdmacm::endpoint::{
    Connection, ConnectionConfig, DatagramConfig, DatagramSocket, Incoming, Listener, Message,
    RemoteAccess, RemoteMemory,
};
use rdmacm::verbs::DmaMemory;
use rdmacm::{Error, ErrorKind};
use verbs_abi::ib_atomic_cap;

use super::report::is_missing;
use super::{LARGEST, TIMEOUT};

/// Interval at which the serving threads check whether they are to end.
const INTERVAL: Duration = Duration::from_millis(100);

/// Bytes of the memory that is exported to each connection.
pub(super) const EXPORTED_LEN: usize = 1 << 17;

/// First message of the connecting side. Later ones with these bytes get no answer.
pub(super) const HELLO: &[u8] = b"rdmatools selftest 1";

/// Immediate data of a message that names a memory window.
///
/// The peer reads through the window, returns the bytes, and invalidates the key of the window.
pub(super) const WINDOW: u32 = 0x5749_4e44;

/// Maximum number of connections at the same time, which limits the memory of the listening side.
///
/// Further clients wait.
const CONNECTIONS: usize = 32;

/// The listening side.
pub(super) struct Peer {
    listener: Listener,
    /// Absent on a device without datagrams, and for an address that belongs to no device.
    datagrams: Option<DatagramSocket>,
    connections: AtomicUsize,
}

/// First message of the listening side: the exported memory, and whether datagrams are served.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Greeting {
    pub(super) exported: RemoteMemory,
    pub(super) has_datagrams: bool,
}

impl Greeting {
    fn to_bytes(&self) -> Vec<u8> {
        let mut bytes = self.exported.to_bytes().to_vec();
        bytes.push(u8::from(self.has_datagrams));
        bytes
    }

    /// Reads a greeting.
    pub(super) fn from_bytes(bytes: &[u8]) -> Result<Self, Error> {
        let (exported, datagrams) = bytes.split_at(bytes.len().min(RemoteMemory::ENCODED_LEN));
        let exported = RemoteMemory::from_bytes(exported)?;
        Ok(Self { exported, has_datagrams: datagrams == [1] })
    }
}

/// Returns the settings of connections.
pub(super) fn config() -> ConnectionConfig {
    let config = ConnectionConfig::new().send_buffers(4).receive_buffers(8);
    config.send_buffer_size(LARGEST).receive_buffer_size(LARGEST)
}

/// Returns the settings of datagram sockets.
pub(super) fn datagram_config() -> DatagramConfig {
    DatagramConfig::new().send_buffers(4).receive_buffers(8)
}

impl Peer {
    /// Listens at `address`, whose port may be 0.
    pub(super) fn bind(address: SocketAddr) -> rdmacm::Result<Self> {
        let listener = Listener::bind(address)?;
        let address = listener.local_addr().unwrap_or(address);
        let datagrams = match address.ip().is_unspecified() {
            true => None,
            false => match DatagramSocket::bind(address, &datagram_config()) {
                Ok(socket) => Some(socket),
                Err(error) if is_missing(error.kind()) => None,
                Err(error) => return Err(error),
            },
        };
        Ok(Self { listener, datagrams, connections: AtomicUsize::new(0) })
    }

    pub(super) fn address(&self) -> Option<SocketAddr> {
        self.listener.local_addr()
    }

    /// Serves until `ends` is set.
    pub(super) fn serve(&self, ends: &AtomicBool) -> rdmacm::Result<()> {
        let is_over = || ends.load(Ordering::Relaxed);
        thread::scope(|scope| {
            scope.spawn(|| {
                while let (Some(socket), false) = (&self.datagrams, is_over()) {
                    // A datagram that cannot be answered is lost, as datagrams may be.
                    match echo_datagram(socket) {
                        Err(error) if *error.kind() != ErrorKind::TimedOut => {
                            thread::sleep(INTERVAL)
                        }
                        _ => {}
                    }
                }
            });
            loop {
                while self.connections.load(Ordering::Relaxed) >= CONNECTIONS && !is_over() {
                    thread::sleep(INTERVAL / 10);
                }
                match self.listener.accept_timeout(INTERVAL) {
                    Ok(incoming) => {
                        self.connections.fetch_add(1, Ordering::Relaxed);
                        scope.spawn(|| {
                            // The client reports the failures of its connection.
                            let _ = self.serve_connection(incoming);
                            self.connections.fetch_sub(1, Ordering::Relaxed);
                        });
                    }
                    Err(error) if *error.kind() == ErrorKind::TimedOut => {}
                    Err(error) => {
                        ends.store(true, Ordering::Relaxed);
                        return Err(error);
                    }
                }
                if is_over() {
                    return Ok(());
                }
            }
        })
    }

    /// Serves a connection until its end.
    fn serve_connection(&self, incoming: Incoming) -> Result<(), Error> {
        let connection = incoming.accept(&config(), b"", TIMEOUT)?;
        let memory = DmaMemory::new(EXPORTED_LEN)?;
        let limits = connection.protection_domain()?.context().query_device()?;
        let atomics = match limits.atomic_cap {
            ib_atomic_cap::IB_ATOMIC_NONE => RemoteAccess::empty(),
            _ => RemoteAccess::ATOMIC,
        };
        let exported =
            connection.export(&memory, .., RemoteAccess::READ | RemoteAccess::WRITE | atomics)?;
        let has_datagrams = self.datagrams.is_some();
        let greeting = Greeting { exported: exported.remote_memory(), has_datagrams };
        if receive(&connection)?.is_none_or(|message| *message != *HELLO) {
            return Ok(());
        }
        let mut buffer = connection.acquire_buffer_timeout(TIMEOUT)?;
        buffer.copy_from(&greeting.to_bytes())?;
        connection.post_send(buffer)?;
        while let Some(message) = receive(&connection)? {
            if *message == *HELLO {
                continue;
            }
            let mut buffer = connection.acquire_buffer_timeout(TIMEOUT)?;
            if message.imm_data() == Some(WINDOW) {
                let window = RemoteMemory::from_bytes(&message)?;
                buffer.set_len(usize::try_from(window.len()).unwrap_or(usize::MAX))?;
                buffer = connection.start_read(buffer, &window, 0)?.wait_timeout(TIMEOUT)?;
                buffer.set_invalidated(Some(&window));
            } else {
                buffer.copy_from(&message)?;
                buffer.set_imm_data(message.imm_data());
            }
            connection.post_send(buffer)?;
        }
        connection.close(TIMEOUT)
    }
}

/// Returns the next message, or `None` at the end of the connection.
fn receive(connection: &Connection) -> rdmacm::Result<Option<Message>> {
    connection.recv_timeout(2 * TIMEOUT)
}

fn echo_datagram(socket: &DatagramSocket) -> rdmacm::Result<()> {
    let (message, sender) = socket.recv_from_timeout(INTERVAL)?;
    let mut buffer = socket.acquire_buffer_timeout(INTERVAL)?;
    buffer.copy_from(&message)?;
    socket.post_send_to(buffer, &sender)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn greeting_is_read_back() {
        let exported =
            RemoteMemory::new(0x1000, 7, 4096, RemoteAccess::READ).expect("a valid range");
        for has_datagrams in [false, true] {
            let greeting = Greeting { exported, has_datagrams };
            let read = Greeting::from_bytes(&greeting.to_bytes()).expect("a whole greeting");
            assert_eq!(read, greeting);
        }
        Greeting::from_bytes(b"short").expect_err("a truncated greeting should be refused");
    }
}
