//! A key-value store. Clients read the table with one-sided reads, in which the server's program
//! takes no part. They send new values to the server in messages:
//! `cargo run --example key_value server 0.0.0.0:7471`
//! `cargo run --example key_value client 10.0.0.1:7471 color=red shape=round color`
use rdmacm::endpoint::{Connection, ConnectionConfig, Connector, Incoming, Listener};
use rdmacm::endpoint::{DmaMemory, RemoteAccess, RemoteMemory};
use std::sync::{Arc, Mutex};
use std::{error::Error, net::SocketAddr, process::ExitCode, thread, time::Duration};

type Result<T> = std::result::Result<T, Box<dyn Error>>;
/// The lengths of key and value, the key, the value, zeros, and from `SUM` on a checksum.
type Entry = [u8; ENTRY];

const TIMEOUT: Duration = Duration::from_secs(10);
const ENTRIES: usize = 1024;
const ENTRY: usize = 256;
const SUM: usize = ENTRY - 8;

/// Returns a configuration with keep-alive, which detects the failure of an idle peer and, on siw,
/// makes the peer read a delayed message.
fn config() -> ConnectionConfig {
    ConnectionConfig::new().keep_alive_interval(Some(Duration::from_secs(1)))
}

/// Computes FNV-1a from zero. The result is zero for a free entry, which consists of zeros.
fn checksum(bytes: &[u8]) -> u64 {
    bytes.iter().fold(0, |sum, byte| (sum ^ u64::from(*byte)).wrapping_mul(0x100_0000_01b3))
}

fn new_entry(key: &str, value: &str) -> Result<Entry> {
    let text = [key, value].concat();
    if key.is_empty() || text.len() > SUM - 2 {
        let most = SUM - 2;
        return Err(format!("{key:?}: the key is empty, or the entry exceeds {most} bytes").into());
    }
    let mut entry = [0; ENTRY];
    (entry[0], entry[1]) = (u8::try_from(key.len())?, u8::try_from(value.len())?);
    entry[2..][..text.len()].copy_from_slice(text.as_bytes());
    let sum = checksum(&entry[..SUM]);
    entry[SUM..].copy_from_slice(&sum.to_be_bytes());
    Ok(entry)
}

/// Returns the place and the value of `key`, or a free place if there is no such key. The search
/// begins at a place that the key determines, and continues while other keys are in the way.
fn find(key: &str, read: impl Fn(usize) -> Result<Entry>) -> Result<(usize, Option<String>)> {
    let first = usize::try_from(checksum(key.as_bytes()) % ENTRIES as u64)?;
    for number in (first..ENTRIES).chain(0..first) {
        let place = number * ENTRY;
        let entry = read(place)?;
        let (lengths, text) = entry[..SUM].split_at(2);
        let (here, rest) = text.split_at_checked(lengths[0].into()).ok_or("no such key fits")?;
        if here.is_empty() {
            return Ok((place, None));
        } else if here == key.as_bytes() {
            let value = rest.get(..lengths[1].into()).ok_or("no such value fits")?;
            return Ok((place, Some(String::from_utf8(value.to_vec())?)));
        }
    }
    Err("the table is full".into())
}

/// Writes the entry that a client has sent as `key=value`.
fn put(table: &Mutex<DmaMemory>, message: &[u8]) -> Result<()> {
    let (key, value) = std::str::from_utf8(message)?.split_once('=').ok_or("there is no value")?;
    let new = new_entry(key, value)?;
    let mut table = table.lock().expect("no thread panics with the lock");
    let (place, _) = find(key, |place| {
        let mut entry = [0; ENTRY];
        table.read(place, &mut entry)?;
        Ok(entry)
    })?;
    Ok(table.write(place, &new)?)
}

/// Serves a client. An empty message asks for the descriptor of the table, others are new entries.
fn serve(client: Incoming, table: &Mutex<DmaMemory>) -> Result<()> {
    let connection = client.accept(&config(), &[], TIMEOUT)?;
    let rights = RemoteAccess::READ;
    let export = connection.export(&table.lock().expect("no thread panics with it"), .., rights)?;
    while let Some(message) = connection.recv()? {
        if message.is_empty() {
            connection.post_bytes(&export.remote_memory().to_bytes())?;
        } else {
            let refusal = put(table, &message).err().map(|error| error.to_string());
            connection.post_bytes(refusal.unwrap_or_default().as_bytes())?;
        }
    }
    Ok(connection.close(TIMEOUT)?)
}

fn server(address: &str) -> Result<()> {
    let listener = Listener::bind(address.parse::<SocketAddr>()?)?;
    let table = Arc::new(Mutex::new(DmaMemory::new(ENTRY * ENTRIES)?));
    loop {
        let (client, table) = (listener.accept()?, Arc::clone(&table));
        thread::spawn(move || serve(client, &table).unwrap_or_else(|error| eprintln!("{error}")));
    }
}

fn ask(connection: &Connection, text: &str) -> Result<Vec<u8>> {
    let mut question = connection.acquire_buffer_timeout(TIMEOUT)?;
    question.copy_from(text.as_bytes())?;
    connection.post_send(question)?;
    Ok(connection.recv_timeout(TIMEOUT)?.ok_or("the server closed the connection")?.to_vec())
}

/// Reads an entry, and repeats that if the checksum shows that the server has written meanwhile.
fn read(connection: &Connection, table: &RemoteMemory, place: usize) -> Result<Entry> {
    for _ in 0..100_000 {
        let mut buffer = connection.acquire_buffer_timeout(TIMEOUT)?;
        buffer.set_len(ENTRY)?;
        let buffer = connection.start_read(buffer, table, place as u64)?.wait_timeout(TIMEOUT)?;
        if buffer[SUM..] == checksum(&buffer[..SUM]).to_be_bytes() {
            return Ok(buffer[..].try_into()?);
        }
    }
    Err("the entry changed during each read".into())
}

fn client(address: &str, commands: &[&str]) -> Result<()> {
    let address: SocketAddr = address.parse()?;
    let connection = Connector::new().config(config()).total_timeout(TIMEOUT).connect(address)?;
    let table = RemoteMemory::from_bytes(&ask(&connection, "")?)?;
    for command in commands {
        if command.contains('=') {
            let refusal = ask(&connection, command)?;
            if !refusal.is_empty() {
                return Err(String::from_utf8_lossy(&refusal).into());
            }
        } else {
            let (_, value) = find(command, |place| read(&connection, &table, place))?;
            println!("{}", value.ok_or_else(|| format!("{command}: there is no such key"))?);
        }
    }
    Ok(connection.close(TIMEOUT)?)
}

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let done = match arguments.iter().map(String::as_str).collect::<Vec<_>>()[..] {
        ["server", address] => server(address),
        ["client", address, ref commands @ ..] => client(address, commands),
        _ => Err("usage: key_value server|client ADDRESS:PORT [KEY=VALUE|KEY]...".into()),
    };
    let Err(error) = done else { return ExitCode::SUCCESS };
    eprintln!("key_value: {error}");
    ExitCode::FAILURE
}
