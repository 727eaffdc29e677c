//! Messages over a connection of the safe tier, for a profiler that counts the instructions of each function.
//!
//! Connects to itself at ADDRESS, which chooses the device. `cargo xtask bench posts --device mlx5` compares
//! `send_messages` and `receive_messages` with the low level in `bench-posts`. They are not part of that program, because
//! a second caller of a function of the library changes the code of the first one.

use std::env;
use std::error::Error;
use std::net::{IpAddr, SocketAddr};
use std::thread;
use std::time::{Duration, Instant};

use rdmacm::endpoint::{
    Connection, ConnectionConfig, Connector, DmaMemory, ExportedMemory, Listener, RemoteAccess,
};

type Outcome<T = ()> = Result<T, Box<dyn Error>>;

/// The length of a message.
const MESSAGE: usize = 64;

/// The number of messages that are sent before they are received.
const ROUND: u32 = 16;

/// The number of send buffers: a round, the write behind it, and one late completion.
const SEND_BUFFERS: u32 = ROUND + 2;

/// The time within which the peers connect, and within which written data arrives.
const LIMIT: Duration = Duration::from_secs(60);

fn main() -> Outcome {
    let usage = "usage: bench-connection ADDRESS COUNT";
    let mut arguments = env::args().skip(1);
    let address: IpAddr = arguments.next().ok_or(usage)?.parse()?;
    let count: usize = arguments.next().ok_or(usage)?.parse()?;
    let [client, server] = connect(address)?;
    let memory = DmaMemory::new(1)?;
    let exported = server.export(&memory, .., RemoteAccess::WRITE)?;
    // The numbers of two rounds in sequence differ.
    for number in [1, 2].into_iter().cycle().take(count.div_ceil(ROUND as usize)) {
        send_messages(&client)?;
        write_round(&client, &exported, &memory, number)?;
        receive_messages(&server)?;
    }
    Ok(())
}

fn connect(address: IpAddr) -> Outcome<[Connection; 2]> {
    let config = ConnectionConfig::new()
        .send_buffers(SEND_BUFFERS)
        .receive_buffers(ROUND)
        .send_buffer_size(MESSAGE)
        .receive_buffer_size(MESSAGE);
    let listener = Listener::bind(SocketAddr::new(address, 0))?;
    let server = listener.local_addr().ok_or("the listener has no IP address")?;
    let connector = Connector::new().config(config.clone()).total_timeout(LIMIT);
    thread::scope(|scope| {
        let client = scope.spawn(|| connector.connect(server));
        let server = listener.accept_timeout(LIMIT)?.accept(&config, &[], LIMIT)?;
        let client = client.join().map_err(|_| "the client panicked")??;
        Ok([client, server])
    })
}

/// Sends the messages of a round. The connection polls the completions of the round before.
#[inline(never)]
fn send_messages(client: &Connection) -> Outcome {
    let bytes = [1; MESSAGE];
    for _ in 0..ROUND {
        client.post_bytes(&bytes)?;
    }
    Ok(())
}

/// Receives the messages of a round, which have arrived. The connection posts a receive when a message is dropped.
#[inline(never)]
fn receive_messages(server: &Connection) -> Outcome {
    for _ in 0..ROUND {
        let message = server.recv()?.ok_or("the connection has ended")?;
        if message.len() != MESSAGE {
            return Err("another length".into());
        }
    }
    Ok(())
}

/// Writes `number` to the memory of the server, and waits for it.
///
/// The device executes the write after the messages of the round, so their completions are in the queues when the data
/// arrives.
fn write_round(
    client: &Connection,
    exported: &ExportedMemory,
    memory: &DmaMemory,
    number: u8,
) -> Outcome {
    let mut buffer = client.acquire_buffer()?;
    buffer.copy_from(&[number])?;
    client.post_write(buffer, &exported.remote_memory(), 0)?;
    let deadline = Instant::now() + LIMIT;
    let mut byte = [0];
    while byte != [number] {
        if Instant::now() > deadline {
            return Err("the data of a write did not arrive".into());
        }
        memory.read(0, &mut byte)?;
    }
    Ok(())
}
