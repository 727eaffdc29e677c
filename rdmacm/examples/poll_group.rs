//! The echo server for many clients, in one thread with shared buffers:
//! `cargo run --example poll_group 0.0.0.0:7471`, with clients of the example `echo`
use nix::errno::Errno;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use rdmacm::endpoint::poll_group::{Event, Member, Message, PollGroup, PollGroupConfig};
use rdmacm::endpoint::{Incoming, Listener};
use rdmacm::{ErrorKind, Result};
use std::collections::{HashMap, VecDeque};
use std::os::fd::AsFd;
use std::{error::Error, net::SocketAddr, time::Duration};

/// The time in which an accepted connection must be established.
const TIMEOUT: Duration = Duration::from_secs(10);

#[derive(Default)]
struct Server {
    /// The group for the device over which clients connect.
    group: Option<PollGroup>,
    /// Messages that could not be sent back yet, by client.
    unanswered: HashMap<Member, VecDeque<Message>>,
}

impl Server {
    /// Accepts a client. The first client determines the device.
    fn accept(&mut self, incoming: Incoming) -> Result<()> {
        let group = match &mut self.group {
            Some(group) => group,
            none => none.insert(PollGroup::new(&incoming.device()?, &PollGroupConfig::default())?),
        };
        group.add(incoming, &[], TIMEOUT)?;
        Ok(())
    }

    /// Handles all pending events.
    fn serve(&mut self) -> Result<()> {
        let Self { group: Some(group), unanswered } = self else { return Ok(()) };
        let mut events = Vec::new();
        group.poll(&mut events)?;
        for event in events {
            let member = event.member();
            match event {
                Event::Message(_, message) => {
                    unanswered.entry(member).or_default().push_back(message);
                }
                Event::Ended(_, end) => {
                    eprintln!("{member}: {end}");
                    unanswered.remove(&member);
                }
                _ => {}
            }
            if let Some(messages) = unanswered.get_mut(&member) {
                answer(group, member, messages)?;
            }
        }
        Ok(())
    }
}

/// Sends messages back while buffers are free. [`Event::Writable`] reports that more are free.
fn answer(group: &mut PollGroup, member: Member, messages: &mut VecDeque<Message>) -> Result<()> {
    while let Some(message) = messages.front() {
        match group.post_bytes(member, message) {
            Ok(()) => drop(messages.pop_front()),
            // The connection has ended, and its last event follows.
            Err(error) if *error.kind() == ErrorKind::Disconnected => messages.clear(),
            Err(error) if *error.kind() == ErrorKind::WouldBlock => break,
            Err(error) => return Err(error),
        }
    }
    Ok(())
}

fn main() -> std::result::Result<(), Box<dyn Error>> {
    let address = std::env::args().nth(1).and_then(|text| text.parse::<SocketAddr>().ok());
    let listener = Listener::bind(address.ok_or("usage: poll_group ADDRESS:PORT")?)?;
    let mut server = Server::default();
    loop {
        let group = server.group.as_ref().map(AsFd::as_fd);
        let descriptors = [Some(listener.as_fd()), group].into_iter().flatten();
        let mut descriptors: Vec<_> =
            descriptors.map(|descriptor| PollFd::new(descriptor, PollFlags::POLLIN)).collect();
        match poll(&mut descriptors, PollTimeout::NONE) {
            Err(Errno::EINTR) => continue,
            polled => polled?,
        };
        loop {
            match listener.try_accept() {
                Ok(incoming) => {
                    server.accept(incoming).unwrap_or_else(|error| eprintln!("{error}"));
                }
                Err(error) if *error.kind() == ErrorKind::WouldBlock => break,
                Err(error) => return Err(error.into()),
            }
        }
        server.serve()?;
    }
}
