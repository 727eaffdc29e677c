//! Checks of connections, of data that moves over them, and of errors.

use std::net::SocketAddr;
use std::time::{Duration, Instant};

use nix::errno::Errno;
use rdmacm::ErrorKind;
use rdmacm::endpoint::{
    Connection, Connector, DatagramSocket, DmaMemory, Message, RegisteredMemory, RemoteAccess,
    RemoteMemory,
};

use super::peer::{EXPORTED_LEN, Greeting, HELLO, WINDOW, config, datagram_config};
use super::report::{Checks, Problem, ensure};
use super::{LARGEST, TIMEOUT};

/// Lengths of messages, around the sizes of inline data, packets and buffers.
const LENGTHS: [usize; 10] = [1, 7, 64, 65, 255, 1024, 1025, 4096, 4097, LARGEST];

/// Maximum number of first messages of the connecting side. The peer has buffers for all of them.
const HELLOS: u32 = 5;

/// Time until a first message or a datagram without an answer is sent again.
const RESEND: Duration = Duration::from_secs(1);

/// The peer's address, and the local address or `None` for any.
#[derive(Debug, Clone, Copy)]
pub(super) struct Route {
    pub(super) server: SocketAddr,
    pub(super) source: Option<SocketAddr>,
}

impl Route {
    fn connector(&self) -> Connector {
        let connector = Connector::new().total_timeout(TIMEOUT);
        match self.source {
            Some(source) => connector.local_addr(source),
            None => connector,
        }
    }

    /// Connects, and reads the greeting.
    fn connect(&self) -> Result<Link, Problem> {
        let connector = self.connector().config(config().retry_count(3));
        let connection = connector.connect(self.server)?;
        let mut attempts = 0;
        let message = loop {
            // On iWARP the connecting side has to send first. siw may leave the message unread until the next one arrives.
            send(&connection, HELLO, None)?;
            attempts += 1;
            let limit = if attempts < HELLOS { RESEND } else { TIMEOUT };
            match connection.recv_timeout(limit) {
                Err(error) if *error.kind() == ErrorKind::TimedOut && attempts < HELLOS => {}
                message => break message?,
            }
        };
        let greeting = Greeting::from_bytes(&message.ok_or_else(ended)?)?;
        Ok(Link { connection, greeting })
    }

    /// Runs a check on a connection of its own, which is closed afterwards: a late answer cannot reach another check.
    fn on_connection<T>(
        &self,
        check: impl FnOnce(&Link) -> Result<T, Problem>,
    ) -> Result<T, Problem> {
        let link = self.connect()?;
        let found = check(&link)?;
        link.connection.close(TIMEOUT)?;
        Ok(found)
    }
}

/// A connection, and the facts that the peer sends first.
struct Link {
    connection: Connection,
    greeting: Greeting,
}

/// Sends `bytes`, and waits only for a buffer.
fn send(connection: &Connection, bytes: &[u8], imm_data: Option<u32>) -> Result<(), Problem> {
    let mut buffer = connection.acquire_buffer_timeout(TIMEOUT)?;
    buffer.copy_from(bytes)?;
    buffer.set_imm_data(imm_data);
    Ok(connection.post_send(buffer)?)
}

impl Link {
    /// Sends `bytes`, and returns the answer.
    fn ask(&self, bytes: &[u8], imm_data: Option<u32>) -> Result<Message, Problem> {
        send(&self.connection, bytes, imm_data)?;
        self.connection.recv_timeout(TIMEOUT)?.ok_or_else(ended)
    }

    /// Sends `bytes`, and returns when they have come back.
    fn echoes(&self, bytes: &[u8], imm_data: Option<u32>) -> Result<(), Problem> {
        let message = self.ask(bytes, imm_data)?;
        let length = bytes.len();
        ensure(*message == *bytes, format!("a message of {length} bytes came back changed"))?;
        let same = message.imm_data() == imm_data;
        ensure(same, format!("immediate data {imm_data:?} came back as {:?}", message.imm_data()))
    }
}

/// Returns the problem of a peer that has closed the connection.
fn ended() -> Problem {
    Problem::Wrong("the peer closed the connection".into())
}

/// Returns bytes that differ with `seed`.
fn pattern(seed: usize, length: usize) -> Vec<u8> {
    (0..length).map(|at| (seed * 31 + at * 7).to_le_bytes()[0]).collect()
}

/// Checks the peer. Returns the speed, if it could be measured.
pub(super) fn check(route: &Route, checks: &mut Checks<'_>) -> Option<Speed> {
    let mut local = None;
    checks.run("connect", || {
        route.on_connection(|link| {
            let connection = &link.connection;
            // The drivers of iWARP do not report the depths.
            let depths = match (connection.initiator_depth(), connection.responder_resources()) {
                (Some(own), Some(peer)) => {
                    format!(", initiator depth {own}, responder resources {peer}")
                }
                _ => String::new(),
            };
            local = Some((connection.local_addr(), link.greeting.has_datagrams));
            Ok(format!("to {}{depths}", route.server))
        })
    });
    let (local, has_datagrams) = local?;
    checks.run("messages", || route.on_connection(messages));
    checks.optional("immediate data", || {
        route.on_connection(|link| {
            link.echoes(b"with a number", Some(0x1234_5678))?;
            Ok("4 bytes".into())
        })
    });
    checks.run("deadline and completion event", || route.on_connection(events));
    checks.run("writes and reads", || route.on_connection(writes_and_reads));
    checks.optional("atomics", || route.on_connection(atomics));
    checks.optional("window that the peer invalidates", || route.on_connection(window));
    checks.run("refused access", || refused_access(route));
    checks.run("rejected connection", || rejected(route));
    checks.run("64 connections one by one", || {
        for _ in 0..64 {
            route.on_connection(|link| link.echoes(b"one of many", None))?;
        }
        Ok("connected, used and closed".into())
    });
    if has_datagrams {
        checks.run("datagrams", || datagrams(route.server, local));
    } else {
        let why = "the listening side has no datagrams, or runs without --bind ADDR";
        checks.skip("datagrams", why);
    }
    let mut speed = None;
    checks.run("speed", || {
        speed = Some(route.on_connection(measure)?);
        Ok("measured for a second each".into())
    });
    speed
}

fn messages(link: &Link) -> Result<String, Problem> {
    for (seed, length) in LENGTHS.into_iter().enumerate() {
        link.echoes(&pattern(seed, length), None)?;
    }
    Ok(format!("of {} to {} bytes", LENGTHS[0], LARGEST))
}

/// Checks that a wait without a message ends at its deadline, and that a message wakes a waiter.
fn events(link: &Link) -> Result<String, Problem> {
    let early = Duration::from_millis(50);
    let start = Instant::now();
    match link.connection.recv_timeout(early) {
        Err(error) if *error.kind() == ErrorKind::TimedOut => {}
        Err(error) => return Err(error.into()),
        Ok(_) => return Err(Problem::Wrong("a message arrived that was not sent".into())),
    }
    ensure(start.elapsed() >= early, "the wait ended before its deadline")?;
    link.echoes(b"wakes the waiter", None)?;
    Ok("a message wakes a sleeping thread".into())
}

fn writes_and_reads(link: &Link) -> Result<String, Problem> {
    let (connection, exported) = (&link.connection, &link.greeting.exported);
    for (seed, length) in LENGTHS.into_iter().enumerate() {
        let (bytes, offset) = (pattern(seed + 100, length), (seed * 1000) as u64);
        let mut buffer = connection.acquire_buffer_timeout(TIMEOUT)?;
        buffer.copy_from(&bytes)?;
        drop(connection.start_write(buffer, exported, offset)?.wait_timeout(TIMEOUT)?);
        let mut buffer = connection.acquire_buffer_timeout(TIMEOUT)?;
        buffer.set_len(length)?;
        let buffer = connection.start_read(buffer, exported, offset)?.wait_timeout(TIMEOUT)?;
        ensure(*buffer == *bytes, format!("{length} bytes at {offset} were read back changed"))?;
    }
    Ok(format!("of {} to {} bytes", LENGTHS[0], LARGEST))
}

fn atomics(link: &Link) -> Result<String, Problem> {
    let (connection, exported) = (&link.connection, &link.greeting.exported);
    if !exported.access().contains(RemoteAccess::ATOMIC) {
        return Err(Problem::Missing("the peer's device has no atomics".into()));
    }
    let offset = (EXPORTED_LEN - 8) as u64;
    let add = |add| {
        let buffer = connection.acquire_buffer_timeout(TIMEOUT)?;
        connection.start_fetch_add(buffer, exported, offset, add)?.wait_timeout(TIMEOUT)
    };
    let swap = |compare, swap| {
        let buffer = connection.acquire_buffer_timeout(TIMEOUT)?;
        let swapped = connection.start_compare_swap(buffer, exported, offset, compare, swap)?;
        swapped.wait_timeout(TIMEOUT)
    };
    let found = [add(5)?, swap(5, 9)?, swap(5, 11)?, add(u64::MAX)?, add(0)?];
    ensure(
        found == [0, 5, 9, 9, 8],
        format!("the old values are {found:?} and not [0, 5, 9, 9, 8]"),
    )?;
    Ok("compare and swap, fetch and add".into())
}

/// Lets the peer read memory through a window, whose key its answer has to invalidate.
fn window(link: &Link) -> Result<String, Problem> {
    const PART: std::ops::Range<usize> = 256..1280;
    let connection = &link.connection;
    let bytes = pattern(42, PART.len());
    let mut memory = DmaMemory::new(4096)?;
    memory.write(PART.start, &bytes)?;
    let pd = connection.protection_domain()?;
    let registered = RegisteredMemory::new(&pd, &memory, RemoteAccess::empty())?;
    let buffer = connection.acquire_buffer_timeout(TIMEOUT)?;
    let exported = connection.start_export_window(buffer, &registered, PART, RemoteAccess::READ)?;
    let exported = exported.wait_timeout(TIMEOUT)?;
    let message = link.ask(&exported.remote_memory().to_bytes(), Some(WINDOW))?;
    ensure(*message == *bytes, "the peer did not read the bytes that were written")?;
    let key = exported.remote_memory().rkey();
    let invalidated = message.invalidated_key();
    let text = format!("the peer invalidated {invalidated:?} and not the key {key:#x}");
    ensure(invalidated == Some(key) && exported.is_invalidated(), text)?;
    exported.revoke()?;
    registered.revoke()?;
    Ok(format!("of {} bytes", PART.len()))
}

/// Reads with a forged key. The read has to fail, and a new connection has to work afterwards.
fn refused_access(route: &Route) -> Result<String, Problem> {
    let link = route.connect()?;
    let (connection, exported) = (&link.connection, &link.greeting.exported);
    let forged = RemoteMemory::new(
        exported.addr(),
        exported.rkey() ^ 0xff00,
        exported.len(),
        exported.access(),
    )?;
    let mut buffer = connection.acquire_buffer_timeout(TIMEOUT)?;
    buffer.set_len(8)?;
    let refused = connection.start_read(buffer, &forged, 0)?.wait_timeout(TIMEOUT);
    let error = match refused {
        Err(error) => error,
        Ok(_) => return Err(Problem::Wrong("a read by a forged key succeeded".into())),
    };
    ensure(*error.kind() != ErrorKind::TimedOut, format!("a read by a forged key: {error}"))?;
    connection.abort();
    route.on_connection(|link| link.echoes(b"still there", None))?;
    Ok(error.to_string())
}

/// Connects to a port at which no program listens.
fn rejected(route: &Route) -> Result<String, Problem> {
    // Programs rarely listen on port 1, TCP's multiplexer.
    match route.connector().connect(SocketAddr::new(route.server.ip(), 1)) {
        // siw reports only that the peer refused.
        Err(error)
            if matches!(error.kind(), ErrorKind::Rejected(_))
                || error.errno() == Errno::ECONNREFUSED as i32 =>
        {
            Ok(error.to_string())
        }
        Err(error) => Err(error.into()),
        Ok(_) => Err(Problem::Wrong("a program listens on port 1".into())),
    }
}

fn datagrams(server: SocketAddr, local: Option<SocketAddr>) -> Result<String, Problem> {
    let local = local.ok_or_else(|| Problem::Wrong("the local address is unknown".into()))?;
    let local = SocketAddr::new(local.ip(), 0);
    let socket = DatagramSocket::bind(local, &datagram_config())?;
    let peer = socket.start_resolve_peer(server)?.wait_timeout(TIMEOUT)?;
    let mut lost = 0;
    let lengths = [1, 100, socket.mtu()];
    for (seed, length) in lengths.into_iter().enumerate() {
        let bytes = pattern(seed, length);
        let start = Instant::now();
        let message = loop {
            let mut buffer = socket.acquire_buffer_timeout(TIMEOUT)?;
            buffer.copy_from(&bytes)?;
            socket.post_send_to(buffer, &peer)?;
            match receive_datagram(&socket, length)? {
                Some(message) => break message,
                // A datagram may be lost.
                None => lost += 1,
            }
            let text = format!("no datagram of {length} bytes came back");
            ensure(start.elapsed() < TIMEOUT, text)?;
        };
        ensure(*message == *bytes, format!("a datagram of {length} bytes came back changed"))?;
    }
    Ok(format!("of 1 to {} bytes, {lost} lost", socket.mtu()))
}

/// Returns the next datagram of `length` bytes, or `None` after [`RESEND`].
///
/// A datagram of another length is a late answer to an earlier one.
fn receive_datagram(socket: &DatagramSocket, length: usize) -> Result<Option<Message>, Problem> {
    let start = Instant::now();
    loop {
        match socket.recv_from_timeout(RESEND.saturating_sub(start.elapsed())) {
            Ok((message, _)) if message.len() == length => return Ok(Some(message)),
            Ok(_) => {}
            Err(error) if *error.kind() == ErrorKind::TimedOut => return Ok(None),
            Err(error) => return Err(error.into()),
        }
    }
}

/// The speed of a connection.
#[derive(Debug)]
pub(super) struct Speed {
    /// The median of half of a round trip of 64 bytes.
    pub(super) latency_us: f64,
    /// The rate of writes of [`LARGEST`] bytes.
    pub(super) megabytes_per_second: f64,
}

/// Measures the latency and the rate of writes, for a second each.
fn measure(link: &Link) -> Result<Speed, Problem> {
    const TIME: Duration = Duration::from_secs(1);
    let mut times = Vec::new();
    let start = Instant::now();
    while start.elapsed() < TIME && times.len() < 10_000 {
        let before = Instant::now();
        link.echoes(&[7; 64], None)?;
        times.push(before.elapsed());
    }
    times.sort_unstable();
    let latency_us = times[times.len() / 2].as_secs_f64() * 1e6 / 2.0;
    let (connection, exported) = (&link.connection, &link.greeting.exported);
    let (mut bytes, start) = (0.0, Instant::now());
    while start.elapsed() < TIME {
        let mut buffer = connection.acquire_buffer_timeout(TIMEOUT)?;
        buffer.set_len(LARGEST)?;
        connection.post_write(buffer, exported, 0)?;
        bytes += f64::from(u32::try_from(LARGEST).unwrap_or(u32::MAX));
    }
    connection.flush_timeout(TIMEOUT)?;
    let megabytes_per_second = bytes / start.elapsed().as_secs_f64() / 1e6;
    Ok(Speed { latency_us, megabytes_per_second })
}
