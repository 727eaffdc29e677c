//! Two poll groups, each in its own thread, whose members are connected with those of the other.

use std::io::{self, Write};
use std::net::{IpAddr, SocketAddr};
use std::os::fd::AsFd;
use std::time::{Duration, Instant};

use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use rdmacm::ErrorKind;
use rdmacm::cm::{CmId, PortSpace};
use rdmacm::device::Device;
use rdmacm::endpoint::poll_group::{Event, Member, PollGroup, PollGroupConfig};
use rdmacm::endpoint::{Connector, Listener};
use rdmacm_tests::heap::live;
use rdmacm_tests::open_descriptors;

use crate::many::{BUFFERS, SIZE, Side};
use crate::{Outcome, short};

/// Number of concurrent connection attempts.
const ATTEMPTS: usize = 32;
/// The time that all members together have to connect.
const TIMEOUT: Duration = Duration::from_secs(600);

/// A group, and its members by their index.
pub(crate) struct Group {
    group: PollGroup,
    members: Vec<Member>,
    /// Events that were returned and not handled yet.
    events: Vec<Event>,
}

/// Connects `count` members of one group with as many of another one.
pub(crate) fn pair(address: IpAddr, count: usize) -> Outcome<[Group; 2]> {
    let listener = Listener::bind(SocketAddr::new(address, 0))?;
    let server = listener.local_addr().ok_or("the listener has no IP address")?;
    let device = bound(address)?.context()?.device().clone();
    let mut sides = [Group::new(&device, count)?, Group::new(&device, count)?];
    let connector = Connector::new().total_timeout(TIMEOUT);
    let deadline = Instant::now() + TIMEOUT;
    let (mut connecting, mut connected) = (0, [0; 2]);
    loop {
        for (side, connected) in sides.iter_mut().zip(&mut connected) {
            *connected += side.established()?;
        }
        if connected == [count; 2] {
            return Ok(sides);
        }
        // After the last look for events: if all attempts have ended, no event follows until others begin.
        let [clients, _] = &mut sides;
        while connecting < count && connecting < connected[0] + ATTEMPTS {
            clients.members.push(clients.group.connect(&connector, server)?);
            connecting += 1;
        }
        loop {
            match listener.try_accept() {
                Ok(incoming) => {
                    let member = sides[1].group.add(incoming, &[], TIMEOUT)?;
                    sides[1].members.push(member);
                }
                Err(error) if *error.kind() == ErrorKind::WouldBlock => break,
                Err(error) => return Err(error.into()),
            }
        }
        let [clients, servers] = &sides;
        let descriptors = [clients.group.as_fd(), servers.group.as_fd(), listener.as_fd()];
        let mut descriptors = descriptors.map(|fd| PollFd::new(fd, PollFlags::POLLIN));
        let left = deadline.saturating_duration_since(Instant::now());
        if poll(&mut descriptors, PollTimeout::try_from(left)?)? == 0 {
            let limit = TIMEOUT.as_secs();
            let reached = format!("{connected:?} of {count} members each have connected");
            return Err(format!("{reached} after {limit} s").into());
        }
    }
}

/// Returns an id that is bound to the device of `address`.
fn bound(address: IpAddr) -> Outcome<CmId> {
    let id = CmId::new_sync(PortSpace::Tcp)?;
    id.bind(SocketAddr::new(address, 0))?;
    Ok(id)
}

/// Prints an idle member's bytes of the heap, and a group's descriptors, for groups of `count` members.
pub(crate) fn print_idle(address: IpAddr, count: usize) -> Outcome {
    // All groups of a device share its descriptors, which this context keeps open.
    let id = bound(address)?;
    let _context = id.context()?;
    let (heap, descriptors) = (live().bytes, open_descriptors());
    let groups = pair(address, count)?;
    let bytes = (live().bytes - heap) / u64::try_from(groups.len() * count)?;
    let descriptors = (open_descriptors() - descriptors).div_ceil(groups.len());
    writeln!(io::stdout(), "{bytes} {descriptors}")?;
    // The members are not closed one by one, which would take as long as connecting them.
    std::process::exit(0)
}

impl Group {
    fn new(device: &Device, count: usize) -> Outcome<Self> {
        let config = PollGroupConfig::new()
            .receive_buffers(256)
            .send_buffers(256)
            .receive_buffer_size(SIZE)
            .send_buffer_size(SIZE)
            .send_buffers_per_member(BUFFERS)
            .initial_members(u32::try_from(count)?);
        let group = PollGroup::new(device, &config)?;
        Ok(Self { group, members: Vec::with_capacity(count), events: Vec::new() })
    }

    /// Returns the number of members that have connected since the last call.
    fn established(&mut self) -> Outcome<usize> {
        self.group.poll(&mut self.events)?;
        let mut count = 0;
        for event in self.events.drain(..) {
            match event {
                Event::Established(_) => count += 1,
                other => return Err(format!("an unexpected event: {other:?}").into()),
            }
        }
        Ok(count)
    }

    fn post(&mut self, member: Member) -> Outcome {
        let bytes = short(SIZE).ok_or("the messages are long")?;
        Ok(self.group.post_bytes(member, bytes)?)
    }
}

impl Side for Group {
    fn len(&self) -> usize {
        self.members.len()
    }

    fn send_now(&mut self, index: usize) -> Outcome {
        self.post(self.members[index])
    }

    fn receive(
        &mut self,
        count: usize,
        mut then: impl FnMut(&mut Self, usize) -> Outcome,
    ) -> Outcome {
        let mut received = 0;
        while received < count {
            let mut events = std::mem::take(&mut self.events);
            self.group.wait(&mut events, None)?;
            for event in events.drain(..) {
                match event {
                    Event::Message(member, _) => {
                        received += 1;
                        then(self, member.index())?;
                    }
                    other => return Err(format!("an unexpected event: {other:?}").into()),
                }
            }
            self.events = events;
        }
        Ok(())
    }
}
