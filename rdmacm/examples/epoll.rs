//! The echo server in one thread, an epoll loop without a runtime:
//! `cargo run --example epoll 0.0.0.0:7471`, with clients of the example `echo`
use nix::errno::Errno;
use nix::sys::epoll::{Epoll, EpollCreateFlags, EpollEvent, EpollFlags, EpollTimeout};
use rdmacm::endpoint::{Connecting, Connection, ConnectionConfig, Incoming, Listener, Message};
use rdmacm::{ErrorKind, Result};
use std::collections::{HashMap, VecDeque};
use std::time::{Duration, Instant};
use std::{error::Error, net::SocketAddr};

const LISTENER: u64 = 0;
/// The time in which an accepted connection must be established.
const TIMEOUT: Duration = Duration::from_secs(10);

/// Returns the result of a call that does not wait, or `None` if the call would have to wait.
fn now<T>(result: Result<T>) -> Result<Option<T>> {
    match result {
        Err(error) if *error.kind() == ErrorKind::WouldBlock => Ok(None),
        other => other.map(Some),
    }
}

struct Client {
    connection: Connection,
    /// Received messages that wait for a free buffer to be sent back.
    unanswered: VecDeque<Message>,
}

impl Client {
    /// Receives and answers without waiting. Returns `true` if the client has closed the connection.
    fn advance(&mut self) -> Result<bool> {
        while let Some(received) = now(self.connection.try_recv())? {
            match received {
                Some(message) => self.unanswered.push_back(message),
                None => return Ok(true),
            }
        }
        while let Some(message) = self.unanswered.front() {
            if now(self.connection.try_post_bytes(message))?.is_none() {
                break;
            }
            self.unanswered.pop_front();
        }
        Ok(false)
    }
}

struct Server {
    epoll: Epoll,
    listener: Listener,
    /// Accepted connections that are not established yet.
    accepted: HashMap<u64, Connecting>,
    clients: HashMap<u64, Client>,
}

impl Server {
    /// Accepts a request without waiting, so that the loop serves other clients meanwhile.
    fn accept(
        &mut self,
        number: u64,
        incoming: Incoming,
    ) -> std::result::Result<(), Box<dyn Error>> {
        let connecting = incoming.start_accept(&ConnectionConfig::default(), &[], TIMEOUT)?;
        self.epoll.add(&connecting, EpollEvent::new(EpollFlags::EPOLLIN, number))?;
        self.accepted.insert(number, connecting);
        Ok(())
    }

    /// Serves a client without waiting. Returns `true` if the client has closed the connection.
    fn serve(&mut self, number: u64) -> Result<bool> {
        if let Some(connecting) = self.accepted.get_mut(&number) {
            let Some(connection) = now(connecting.try_wait())? else { return Ok(false) };
            // The connection has the same descriptor, which the epoll instance has already.
            self.accepted.remove(&number);
            self.clients.insert(number, Client { connection, unanswered: VecDeque::new() });
        }
        self.clients.get_mut(&number).map_or(Ok(true), Client::advance)
    }

    /// Returns the time until the first deadline of an accepted connection.
    fn timeout(&self) -> EpollTimeout {
        let first = self.accepted.values().filter_map(Connecting::deadline).min();
        first.map_or(EpollTimeout::NONE, |first| {
            let rest = first.saturating_duration_since(Instant::now()) + Duration::from_millis(1);
            EpollTimeout::try_from(rest).unwrap_or(EpollTimeout::MAX)
        })
    }

    fn run(&mut self) -> std::result::Result<(), Box<dyn Error>> {
        self.epoll.add(&self.listener, EpollEvent::new(EpollFlags::EPOLLIN, LISTENER))?;
        let mut number = LISTENER;
        let mut events = [EpollEvent::empty(); 64];
        loop {
            let count = match self.epoll.wait(&mut events, self.timeout()) {
                Err(Errno::EINTR) => 0,
                waited => waited?,
            };
            let mut due: Vec<_> = events[..count].iter().map(EpollEvent::data).collect();
            // An attempt whose deadline has passed returns the error when it is tried.
            let present = Some(Instant::now());
            let late = self.accepted.iter().filter(|(_, client)| client.deadline() <= present);
            due.extend(late.map(|(number, _)| *number));
            for which in due {
                if which == LISTENER {
                    while let Some(incoming) = now(self.listener.try_accept())? {
                        number += 1;
                        self.accept(number, incoming).unwrap_or_else(|error| eprintln!("{error}"));
                    }
                    continue;
                }
                let has_ended = self.serve(which).unwrap_or_else(|error| {
                    eprintln!("{error}");
                    true
                });
                // Dropping the connection closes the descriptor, which leaves the epoll instance.
                if has_ended {
                    self.accepted.remove(&which);
                    self.clients.remove(&which);
                }
            }
        }
    }
}

fn main() -> std::result::Result<(), Box<dyn Error>> {
    let address = std::env::args().nth(1).and_then(|text| text.parse::<SocketAddr>().ok());
    let listener = Listener::bind(address.ok_or("usage: epoll ADDRESS:PORT")?)?;
    let epoll = Epoll::new(EpollCreateFlags::EPOLL_CLOEXEC)?;
    let (accepted, clients) = Default::default();
    Server { epoll, listener, accepted, clients }.run()
}
