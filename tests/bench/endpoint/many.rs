//! Many connections in one thread.

use std::net::IpAddr;
use std::time::{Duration, Instant};

use nix::sys::epoll::{Epoll, EpollCreateFlags, EpollEvent, EpollFlags, EpollTimeout};
use nix::sys::resource::{Resource, getrlimit, setrlimit};
use rdmacm::endpoint::{Connection, Settings};
use rdmacm::{ErrorKind, Result};

use crate::safe::{connected, listener};
use crate::{Outcome, both, print_each};

const SIZE: usize = 64;
/// Buffers of each connection, either way.
const BUFFERS: u32 = 4;
/// So many messages of each connection do not count.
const FIRST: usize = 4;
/// How many messages are under way at once, each on another connection.
const UNDER_WAY: usize = 8;

/// Prints how long each of `count` messages takes with `connections`, the servers of which are in one
/// thread's loop and the clients in another one's.
pub(crate) fn measure(address: IpAddr, connections: usize, count: usize) -> Outcome {
    let descriptors = u64::try_from(connections)? * 8 + 64;
    let (_, most) = getrlimit(Resource::RLIMIT_NOFILE)?;
    setrlimit(Resource::RLIMIT_NOFILE, descriptors, descriptors.max(most))?;
    let settings = Settings {
        send_buffers: BUFFERS,
        receive_buffers: BUFFERS,
        buffer_size: SIZE,
        ..Settings::default()
    };
    let listener = listener(address)?;
    let mut clients = Vec::new();
    let mut servers = Vec::new();
    for _ in 0..connections {
        let [client, server] = connected(&listener, &settings)?;
        clients.push(client);
        servers.push(server);
    }
    let loops = [Loop::new(clients)?, Loop::new(servers)?];
    // The first messages of a connection cost more: so each has had some.
    exchange(&loops, (count / 10).max(FIRST * connections))?;
    let time = exchange(&loops, count)?;
    print_each(time, 2 * count)?;
    std::process::exit(0)
}

/// Sends `count` messages there and back; how long that takes.
fn exchange([clients, servers]: &[Loop; 2], count: usize) -> Outcome<Duration> {
    let start = Instant::now();
    both(|| servers.answer(count), || clients.ask(count))?;
    Ok(start.elapsed())
}

/// Connections of one thread, each of which its descriptor tells of.
struct Loop {
    epoll: Epoll,
    connections: Vec<Connection>,
}

impl Loop {
    fn new(connections: Vec<Connection>) -> Outcome<Self> {
        let epoll = Epoll::new(EpollCreateFlags::EPOLL_CLOEXEC)?;
        for (connection, number) in connections.iter().zip(0..) {
            epoll.add(connection, EpollEvent::new(EpollFlags::EPOLLIN, number))?;
        }
        Ok(Self { epoll, connections })
    }

    /// Sends `count` messages, on one connection after the other, and receives their answers.
    fn ask(&self, count: usize) -> Outcome {
        let mut turns = self.connections.iter().cycle().take(count);
        turns.by_ref().take(UNDER_WAY).try_for_each(send)?;
        self.receive(count, |_| turns.next().map_or(Ok(()), send))
    }

    /// Answers `count` messages.
    fn answer(&self, count: usize) -> Outcome {
        self.receive(count, send)
    }

    /// Receives `count` messages, and has `then` know of each by which connection it came.
    fn receive(&self, count: usize, mut then: impl FnMut(&Connection) -> Outcome) -> Outcome {
        let mut received = 0;
        while received < count {
            let mut events = [EpollEvent::empty(); 64];
            let ready = self.epoll.wait(&mut events, EpollTimeout::NONE)?;
            for event in &events[..ready] {
                let connection = &self.connections[usize::try_from(event.data())?];
                while let Some(message) = now(connection.try_recv())? {
                    drop(message.ok_or("the connection has ended")?);
                    received += 1;
                    then(connection)?;
                }
            }
        }
        Ok(())
    }
}

/// Sends a message, for which there is a buffer: hardly more than one goes on a connection at a time.
fn send(connection: &Connection) -> Outcome {
    let mut buffer = now(connection.try_buffer())?.ok_or("there is no buffer")?;
    buffer.set_len(SIZE)?;
    Ok(connection.post(buffer)?)
}

/// What a call that does not wait has got; `None` where it would have to.
fn now<T>(result: Result<T>) -> Result<Option<T>> {
    match result {
        Err(error) if *error.kind() == ErrorKind::WouldBlock => Ok(None),
        other => other.map(Some),
    }
}
