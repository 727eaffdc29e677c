//! The echo server in one thread, an epoll loop without any runtime:
//! `cargo run --example epoll 0.0.0.0:7471`, with clients of the example `echo`
use nix::sys::epoll::{Epoll, EpollCreateFlags, EpollEvent, EpollFlags, EpollTimeout};
use rdmacm::endpoint::{Connection, Listener, Message, Settings};
use rdmacm::{ErrorKind, Result};
use std::collections::{HashMap, VecDeque};
use std::{error::Error, net::SocketAddr, time::Duration};

const LISTENER: u64 = 0;

/// What a call that does not wait has got; `None` where it would have to.
fn now<T>(result: Result<T>) -> Result<Option<T>> {
    match result {
        Err(error) if *error.kind() == ErrorKind::WouldBlock => Ok(None),
        other => other.map(Some),
    }
}

struct Client {
    connection: Connection,
    /// Messages to send back, when there are buffers.
    unanswered: VecDeque<Message>,
}

impl Client {
    /// Does all that can be done now; whether the client has closed the connection.
    fn go_on(&mut self) -> Result<bool> {
        while let Some(received) = now(self.connection.try_recv())? {
            match received {
                Some(message) => self.unanswered.push_back(message),
                None => return Ok(true),
            }
        }
        while !self.unanswered.is_empty() {
            let Some(mut answer) = now(self.connection.try_buffer())? else { break };
            if let Some(message) = self.unanswered.pop_front() {
                answer.copy_from(&message)?;
                self.connection.post(answer)?;
            }
        }
        Ok(false)
    }
}

fn serve(address: SocketAddr) -> std::result::Result<(), Box<dyn Error>> {
    let listener = Listener::bind(address)?;
    let epoll = Epoll::new(EpollCreateFlags::EPOLL_CLOEXEC)?;
    epoll.add(&listener, EpollEvent::new(EpollFlags::EPOLLIN, LISTENER))?;
    let mut clients = HashMap::new();
    let mut number = LISTENER;
    loop {
        let mut events = [EpollEvent::empty(); 64];
        let count = epoll.wait(&mut events, EpollTimeout::NONE)?;
        for event in &events[..count] {
            if event.data() == LISTENER {
                while let Some(incoming) = now(listener.try_incoming())? {
                    // A client that asks and does not go on is waited for.
                    let patience = Duration::from_secs(1);
                    match incoming.accept(&Settings::default(), &[], patience) {
                        Ok(connection) => {
                            number += 1;
                            epoll.add(&connection, EpollEvent::new(EpollFlags::EPOLLIN, number))?;
                            clients
                                .insert(number, Client { connection, unanswered: VecDeque::new() });
                        }
                        Err(error) => eprintln!("{error}"),
                    }
                }
            } else if let Some(client) = clients.get_mut(&event.data()) {
                let has_ended = client.go_on().unwrap_or_else(|error| {
                    eprintln!("{error}");
                    true
                });
                // Dropped, the connection leaves the loop too.
                if has_ended {
                    clients.remove(&event.data());
                }
            }
        }
    }
}

fn main() -> std::result::Result<(), Box<dyn Error>> {
    let address = std::env::args().nth(1).and_then(|text| text.parse().ok());
    serve(address.ok_or("usage: epoll ADDRESS:PORT")?)
}
