//! Copies a file to another machine. The sender writes pieces into exported memory of the receiver,
//! several at a time. The receiver writes the pieces that have arrived to disk:
//! `cargo run --example file_copy receive 0.0.0.0:7471 COPY`
//! `cargo run --example file_copy send 10.0.0.1:7471 FILE`
use rdmacm::endpoint::{
    Connection, ConnectionConfig, Connector, DmaMemory, Listener, RemoteAccess, RemoteMemory,
};
use std::fs::{self, File};
use std::io::{Read, Write};
use std::{error::Error, net::SocketAddr, process::ExitCode, time::Duration};

type Result<T> = std::result::Result<T, Box<dyn Error>>;

const TIMEOUT: Duration = Duration::from_secs(30);
const PIECE: usize = 64 * 1024;
/// The most pieces in flight or unprocessed at the receiver. Each is a write and a message.
const WINDOW: u32 = 16;
/// The first byte of a message. The rest is the content, or the text of an error.
const GOOD: u8 = 0;
const BAD: u8 = 1;

fn config() -> ConnectionConfig {
    ConnectionConfig::new()
        .send_buffers(2 * WINDOW)
        .receive_buffers(2 * WINDOW)
        .send_buffer_size(PIECE)
        // Detects the failure of the other machine. On siw the peer also reads a delayed message.
        .keep_alive_interval(Some(Duration::from_secs(1)))
}

fn post(connection: &Connection, kind: u8, bytes: &[u8]) -> Result<()> {
    let mut buffer = connection.acquire_buffer_timeout(TIMEOUT)?;
    buffer.copy_from(&[&[kind], bytes].concat())?;
    Ok(connection.post_send(buffer)?)
}

fn next(connection: &Connection) -> Result<Vec<u8>> {
    let message = connection.recv_timeout(TIMEOUT)?.ok_or("the other side closed too early")?;
    match message.split_first() {
        Some((&GOOD, bytes)) => Ok(bytes.to_vec()),
        Some((&BAD, text)) => Err(String::from_utf8_lossy(text).into()),
        _ => Err("the other side is not file_copy".into()),
    }
}

fn number(bytes: &[u8]) -> Result<u64> {
    Ok(u64::from_be_bytes(bytes.try_into()?))
}

/// Computes FNV-1a, which detects damage but no forgery.
fn checksum(sum: u64, bytes: &[u8]) -> u64 {
    bytes.iter().fold(sum, |sum, byte| (sum ^ u64::from(*byte)).wrapping_mul(0x100_0000_01b3))
}

/// Sends a file: first its length, then each piece with the checksum of all bytes so far.
fn send(address: &str, path: &str) -> Result<()> {
    let failed = |error| format!("{path}: {error}");
    let mut file = File::open(path).map_err(failed)?;
    let length = file.metadata().map_err(failed)?.len();
    let address: SocketAddr = address.parse()?;
    let connection = Connector::new().config(config()).total_timeout(TIMEOUT).connect(address)?;
    post(&connection, GOOD, &length.to_be_bytes())?;
    let window = RemoteMemory::from_bytes(&next(&connection)?)?;
    let (mut sent, mut written, mut sum) = (0, 0, 0);
    loop {
        while sent < length && sent.abs_diff(written) < window.len() {
            let mut piece = connection.acquire_buffer_timeout(TIMEOUT)?;
            piece.set_len(PIECE.min(usize::try_from(length - sent)?))?;
            file.read_exact(&mut piece).map_err(failed)?;
            sum = checksum(sum, &piece);
            let place = sent % window.len();
            sent += piece.len() as u64;
            connection.post_write(piece, &window, place)?;
            // The message is posted later, so it arrives after the piece.
            post(&connection, GOOD, &sum.to_be_bytes())?;
        }
        written = number(&next(&connection)?)?;
        show(written, length);
        if written == length {
            return Ok(connection.close(TIMEOUT)?);
        }
    }
}

fn show(written: u64, length: u64) {
    let percent = written.saturating_mul(100).checked_div(length).unwrap_or(100);
    let bar = "#".repeat(usize::try_from(percent / 2).unwrap_or(0));
    eprint!("\r[{bar:50}] {percent:3} %{}", if written == length { "\n" } else { "" });
}

/// Receives one file as `path`, which does not change before the file is complete.
fn receive(address: &str, path: &str) -> Result<()> {
    let incoming = Listener::bind(address.parse::<SocketAddr>()?)?.accept()?;
    let connection = incoming.accept(&config(), &[], TIMEOUT)?;
    let memory = DmaMemory::new(PIECE * WINDOW as usize)?;
    let window = connection.export(&memory, .., RemoteAccess::WRITE)?;
    let (descriptor, part) = (window.remote_memory().to_bytes(), format!("{path}.part"));
    let received = take(&connection, &memory, &descriptor, &part).and_then(|length| {
        fs::rename(&part, path).map_err(|error| format!("{path}: {error}"))?;
        post(&connection, GOOD, &length.to_be_bytes())
    });
    if let Err(error) = &received {
        // Both calls may fail: the sender may have ended, and the file may not exist.
        let _ = post(&connection, BAD, format!("the receiver says: {error}").as_bytes());
        let _ = fs::remove_file(&part);
    }
    // The sender closes the connection after the result, and may write to the memory before.
    while let Ok(Some(_)) = connection.recv_timeout(TIMEOUT) {}
    received
}

/// Writes the received pieces to a file. Returns the length of the file.
fn take(connection: &Connection, memory: &DmaMemory, window: &[u8], path: &str) -> Result<u64> {
    let failed = |error| format!("{path}: {error}");
    let length = number(&next(connection)?)?;
    let mut file = File::create(path).map_err(failed)?;
    post(connection, GOOD, window)?;
    let (mut place, mut left, mut sum) = (0, length, 0);
    while left > 0 {
        let due = number(&next(connection)?)?;
        let mut piece = vec![0; PIECE.min(usize::try_from(left)?)];
        memory.read(place, &mut piece)?;
        sum = checksum(sum, &piece);
        if sum != due {
            return Err(format!("{path}: the received bytes have another checksum").into());
        }
        file.write_all(&piece).map_err(failed)?;
        place = (place + PIECE) % memory.len();
        left -= piece.len() as u64;
        if left > 0 {
            post(connection, GOOD, &(length - left).to_be_bytes())?;
        }
    }
    file.sync_all().map_err(failed)?;
    Ok(length)
}

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let done = match arguments.iter().map(String::as_str).collect::<Vec<_>>()[..] {
        // Ends the line of the progress bar.
        ["send", address, file] => send(address, file).inspect_err(|_| eprintln!()),
        ["receive", address, copy] => receive(address, copy),
        _ => Err("usage: file_copy send|receive ADDRESS:PORT FILE".into()),
    };
    let Err(error) = done else { return ExitCode::SUCCESS };
    eprintln!("file_copy: {error}");
    ExitCode::FAILURE
}
