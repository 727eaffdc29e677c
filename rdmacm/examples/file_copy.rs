//! Copies a file to another machine: writes it into memory that the receiver has given, several
//! pieces at a time, while the receiver writes those to disk that have come:
//! `cargo run --example file_copy receive 0.0.0.0:7471 COPY`
//! `cargo run --example file_copy send 10.0.0.1:7471 FILE`
use rdmacm::endpoint::{Connection, Connector, Export, Listener, Memory, Remote, Rights, Settings};
use std::fs::{self, File};
use std::io::{Read, Write};
use std::{error::Error, net::SocketAddr, process::ExitCode, time::Duration};

type Result<T> = std::result::Result<T, Box<dyn Error>>;

const TIMEOUT: Duration = Duration::from_secs(30);
const PIECE: usize = 64 * 1024;
/// So many pieces are on their way, or wait at the receiver. Each is a write and a message.
const WINDOW: u32 = 16;
/// The first byte of a message. The rest is the request, or the reason why it is refused.
const GOOD: u8 = 0;
const BAD: u8 = 1;

fn settings() -> Settings {
    Settings {
        send_buffers: 2 * WINDOW,
        receive_buffers: 2 * WINDOW,
        send_buffer_size: PIECE,
        // The other side's death is noticed; and siw leaves no message lying that is not the last.
        keep_alive: Some(Duration::from_secs(1)),
        ..Settings::default()
    }
}

fn say(connection: &Connection, kind: u8, bytes: &[u8]) -> Result<()> {
    let mut buffer = connection.buffer_timeout(TIMEOUT)?;
    buffer.copy_from(&[&[kind], bytes].concat())?;
    Ok(connection.post(buffer)?)
}

fn hear(connection: &Connection) -> Result<Vec<u8>> {
    let message = connection.recv_timeout(TIMEOUT)?.ok_or("the other side has gone too early")?;
    match message.split_first() {
        Some((&GOOD, bytes)) => Ok(bytes.to_vec()),
        Some((&BAD, text)) => Err(String::from_utf8_lossy(text).into()),
        _ => Err("the other side is no file_copy".into()),
    }
}

fn number(bytes: &[u8]) -> Result<u64> {
    Ok(u64::from_be_bytes(bytes.try_into()?))
}

/// FNV-1a: finds what was damaged, not what was forged.
fn checksum(sum: u64, bytes: &[u8]) -> u64 {
    bytes.iter().fold(sum, |sum, byte| (sum ^ u64::from(*byte)).wrapping_mul(0x100_0000_01b3))
}

/// Sends a file: first its length, then with each piece the checksum of all up to there.
fn send(address: &str, path: &str) -> Result<()> {
    let failed = |error| format!("{path}: {error}");
    let mut file = File::open(path).map_err(failed)?;
    let length = file.metadata().map_err(failed)?.len();
    let address: SocketAddr = address.parse()?;
    let connection = Connector::new().settings(settings()).timeout(TIMEOUT).connect(address)?;
    say(&connection, GOOD, &length.to_be_bytes())?;
    let window = Remote::from_bytes(&hear(&connection)?)?;
    let (mut sent, mut written, mut sum) = (0, 0, 0);
    loop {
        while sent < length && sent.abs_diff(written) < window.len() {
            let mut piece = connection.buffer_timeout(TIMEOUT)?;
            piece.set_len(PIECE.min(usize::try_from(length - sent)?))?;
            file.read_exact(&mut piece).map_err(failed)?;
            sum = checksum(sum, &piece);
            let place = sent % window.len();
            sent += piece.len() as u64;
            connection.post_write(piece, &window, place)?;
            // Posted later, the message arrives when the piece is there.
            say(&connection, GOOD, &sum.to_be_bytes())?;
        }
        written = number(&hear(&connection)?)?;
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

/// Receives one file as `path`, where nothing changes before all of it is there.
fn receive(address: &str, path: &str) -> Result<()> {
    let incoming = Listener::bind(address.parse::<SocketAddr>()?)?.incoming()?;
    let connection = incoming.accept(&settings(), &[], TIMEOUT)?;
    let memory = Memory::new(PIECE * WINDOW as usize)?;
    let window = connection.export(&memory, Rights::WRITE)?;
    let part = format!("{path}.part");
    let received = take(&connection, &memory, &window, &part).and_then(|length| {
        fs::rename(&part, path).map_err(|error| format!("{path}: {error}"))?;
        say(&connection, GOOD, &length.to_be_bytes())
    });
    if let Err(error) = &received {
        // The sender may be gone, and the file never made.
        let _ = say(&connection, BAD, format!("the receiver says: {error}").as_bytes());
        let _ = fs::remove_file(&part);
    }
    // The sender goes when it has heard that. Until then it writes, and must be able to.
    while let Ok(Some(_)) = connection.recv_timeout(TIMEOUT) {}
    received
}

/// Writes what comes to a file; its length.
fn take(connection: &Connection, memory: &Memory, window: &Export, path: &str) -> Result<u64> {
    let failed = |error| format!("{path}: {error}");
    let length = number(&hear(connection)?)?;
    let mut file = File::create(path).map_err(failed)?;
    say(connection, GOOD, &window.descriptor())?;
    let (mut place, mut left, mut sum) = (0, length, 0);
    while left > 0 {
        let due = number(&hear(connection)?)?;
        let mut piece = vec![0; PIECE.min(usize::try_from(left)?)];
        memory.read(place, &mut piece)?;
        sum = checksum(sum, &piece);
        if sum != due {
            return Err(format!("{path}: what has come is not what was sent").into());
        }
        file.write_all(&piece).map_err(failed)?;
        place = (place + PIECE) % memory.len();
        left -= piece.len() as u64;
        if left > 0 {
            say(connection, GOOD, &(length - left).to_be_bytes())?;
        }
    }
    file.sync_all().map_err(failed)?;
    Ok(length)
}

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let done = match arguments.iter().map(String::as_str).collect::<Vec<_>>()[..] {
        // The line of the bar ends.
        ["send", address, file] => send(address, file).inspect_err(|_| eprintln!()),
        ["receive", address, copy] => receive(address, copy),
        _ => Err("usage: file_copy send|receive ADDRESS:PORT FILE".into()),
    };
    let Err(error) = done else { return ExitCode::SUCCESS };
    eprintln!("file_copy: {error}");
    ExitCode::FAILURE
}
