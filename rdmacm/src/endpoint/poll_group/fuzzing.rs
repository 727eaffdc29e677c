//! Fuzz target of a poll group, with forged completions and with events in any order.
//!
//! A completion has any content, belongs to any request or to none, and arrives in either queue, even twice. Queue
//! pairs get any numbers, even the number of another one. The kernel and the device refuse some commands and requests.

use std::collections::{BTreeMap, BTreeSet};
use std::io::Write;
use std::net::SocketAddr;
use std::time::Duration;

use verbs_abi::ib_uverbs_wc;

use super::config::PollGroupConfig;
use super::event::Event;
use super::forged::{ESTABLISHED, ForgedGroup};
use super::group::PollGroup;
use super::link::{MissingResource, Phase};
use super::member_table::Member;
use super::{Message, SendBuffer};
use crate::driver::Capabilities;
use crate::drivers::forged::Request;
use crate::endpoint::connect::connector::Connector;
use crate::error::ErrorKind;
use crate::testing::Input;
use crate::verbs::{Completion, WcStatus};

const RECEIVES: u32 = 5;
const SENDS: u32 = 3;
const LENGTH: usize = 16;
const MAX_HELD: u32 = 2;
const MEMBERS: usize = 4;

/// The events that a member has had.
#[derive(Debug, Default)]
struct Seen {
    is_established: bool,
    has_ended: bool,
}

/// A program with its group, the kernel and the device.
struct World {
    // Declared first, because fields drop in order: messages and buffers return to the group.
    messages: Vec<Message>,
    buffers: Vec<SendBuffer>,
    forged: ForgedGroup,
    members: BTreeMap<Member, Seen>,
    /// Members whose end the program has not received.
    open_members: Vec<Member>,
    /// Members that could not send, and had no [`Event::Writable`] since then.
    unwritable_members: BTreeSet<Member>,
    /// Members that had [`Event::Writable`] after their last attempt to send.
    writable: BTreeSet<Member>,
    /// The number of receive buffers, with the reserve.
    receives: usize,
    /// `true` if since the last poll no event or failure has left work for the next poll.
    is_polled: bool,
}

/// Applies the calls of a program, completions and events that `bytes` describe.
///
/// For any input, the events of each member are in order, and the last one is a single end. No buffer is lost or used
/// twice. No member holds more messages than its limit, and none misses an event for which it waits.
pub fn poll_group(bytes: &[u8]) {
    let mut input = Input(bytes);
    let mut world = World::new(input.byte());
    while !input.is_empty() {
        world.step(&mut input);
        world.forged.receive_commands();
        world.check_idle();
    }
    world.finish();
}

impl World {
    fn new(choice: u8) -> Self {
        let capabilities = Capabilities {
            qp_follows_connection: choice & 1 != 0,
            raises_event_per_read: choice & 2 != 0,
            ..Capabilities::default()
        };
        let config = PollGroupConfig::new()
            .receive_buffers(RECEIVES)
            .send_buffers(SENDS)
            .receive_buffer_size(LENGTH)
            .send_buffer_size(LENGTH)
            .send_buffers_per_member(2)
            .max_held(MAX_HELD)
            .initial_members(2)
            .keep_alive_interval((choice & 4 != 0).then_some(Duration::from_secs(3600)));
        let forged = ForgedGroup::new(capabilities, &config);
        let receives = forged.group.resources.receives.posted();
        Self {
            messages: Vec::new(),
            buffers: Vec::new(),
            forged,
            members: BTreeMap::new(),
            open_members: Vec::new(),
            unwritable_members: BTreeSet::new(),
            writable: BTreeSet::new(),
            receives,
            is_polled: false,
        }
    }

    /// Applies one input.
    fn step(&mut self, input: &mut Input<'_>) {
        let (choice, argument) = (input.byte(), input.byte());
        let place = usize::from(argument);
        let member = self.open_members.get(place % self.open_members.len().max(1)).copied();
        let Self { forged: ForgedGroup { group, device, .. }, .. } = self;
        // After a call that handles an event of the kernel, a poll has further work.
        self.is_polled &= !matches!(choice % 16, 1 | 2 | 6 | 13 | 15);
        match (choice % 16, member) {
            (0, _) => self.add(argument),
            (1, Some(member)) => {
                let (event_type, status) = (u32::from(argument) % 17, u32::from(input.byte() & 3));
                drop(self.forged.deliver(member, event_type, status));
            }
            (2, Some(member)) => drop(self.forged.deliver(member, ESTABLISHED, 0)),
            (3 | 4, _) => self.complete(choice, place, input),
            (5, _) => {
                let mut events = Vec::new();
                self.is_polled = group.poll(&mut events).is_ok();
                self.take(events);
            }
            (6, _) => {
                let mut events = Vec::new();
                let _ = group.wait(&mut events, Some(Duration::ZERO));
                self.take(events);
            }
            (7, Some(member)) => {
                let tried = if argument & 16 == 0 {
                    group.acquire_buffer(member).map(|buffer| self.buffers.push(buffer))
                } else {
                    let bytes = [7; LENGTH + 1];
                    group.post_bytes(member, &bytes[..place % (LENGTH + 2)])
                };
                match tried {
                    Ok(()) => drop(self.writable.remove(&member)),
                    Err(error) if *error.kind() == ErrorKind::WouldBlock => {
                        self.writable.remove(&member);
                        self.unwritable_members.insert(member);
                    }
                    // The buffer that the event offered stays free until the next poll.
                    Err(_) => {}
                }
            }
            (8, _) if !self.buffers.is_empty() => {
                let mut buffer = self.buffers.swap_remove(place % self.buffers.len());
                if argument & 32 != 0 {
                    let _ = buffer.set_len(place % (LENGTH + 2));
                }
                if argument & 64 == 0 {
                    let _ = group.post_send(buffer);
                }
            }
            (9, _) if !self.messages.is_empty() => {
                drop(self.messages.swap_remove(place % self.messages.len()));
            }
            (10, Some(member)) => drop(group.flush(member)),
            (11, Some(member)) => drop(group.close(member)),
            (12, Some(member)) => drop(group.abort(member)),
            (13, _) => match argument & 1 {
                0 => {
                    group.on_attempts_timer();
                    group.end_late_attempts();
                }
                _ => group.on_keep_alive_timer(),
            },
            (14, _) => drop(self.forged.completion_events.write(input.bytes(8))),
            (15, _) => match argument {
                0 => group.on_device_removed(),
                1 => device.device().is_malformed = true,
                _ => device.device().refuses = argument % 3,
            },
            _ => {}
        }
    }

    /// Adds a member that waits for its peer, or one that connects.
    fn add(&mut self, argument: u8) {
        let ForgedGroup { group, .. } = &mut self.forged;
        if group.len() >= MEMBERS {
            return;
        }
        let added = if argument & 128 != 0 {
            group.connect(&Connector::new(), SocketAddr::from(([127, 0, 0, 1], 7471)))
        } else {
            let number = u32::from(argument & 3);
            self.forged.accept(number, argument & 8 != 0, argument & 4 != 0)
        };
        let Ok(member) = added else {
            // The device may have refused a receive. The next poll posts it.
            self.is_polled = false;
            return;
        };
        let earlier = self.members.insert(member, Seen::default());
        assert!(earlier.is_none(), "a handle should name one member");
        self.open_members.push(member);
    }

    /// Completes a request, or a request that does not exist.
    fn complete(&mut self, choice: u8, place: usize, input: &mut Input<'_>) {
        let mut device = self.forged.device.device();
        let mut forged = ib_uverbs_wc::default();
        let mut queue = 1;
        if choice & 128 != 0 {
            forged = input.value();
        }
        if choice & 64 == 0 {
            forged.status = WcStatus::IB_WC_SUCCESS;
            forged.byte_len = u32::from(input.byte() & 31);
        }
        if !device.requests.is_empty() {
            let place = place % device.requests.len();
            let Request { wr_id, qp_num, .. } = device.requests[place];
            if choice & 32 == 0 {
                device.requests.remove(place);
            }
            forged.wr_id = wr_id.into();
            forged.qp_num = qp_num.unwrap_or_else(|| u32::from(input.byte() & 3));
            queue = usize::from(qp_num.is_some());
        }
        let queue = if choice & 16 == 0 { queue } else { 1 - queue };
        device.completions[queue].push_back(Completion(forged));
    }

    /// Asserts that the group has no work while its descriptor is not readable.
    fn check_idle(&mut self) {
        if !self.is_polled || self.forged.is_readable() {
            return;
        }
        let PollGroup {
            members,
            resources,
            unwritable_members,
            is_removed,
            ending,
            events,
            returns,
            ..
        } = &mut self.forged.group;
        assert!(ending.is_empty() && events.is_empty(), "no end or event should be pending");
        assert!(*is_removed || resources.unposted.is_empty(), "all buffers should be posted");
        let (free, mut expected) = (resources.free_sends.len(), 0);
        for (member, link) in members.iter_mut() {
            let missing = link.missing;
            expected += usize::from(missing != MissingResource::None);
            let misses_place = missing == MissingResource::Place && link.core.has_free_buffer();
            let misses_buffer = missing == MissingResource::Buffer && free > self.writable.len();
            let misses_return = missing != MissingResource::None && returns.has_send();
            let misses = misses_place || misses_buffer || misses_return;
            assert!(!(link.is_open() && misses), "{member} can send: {missing:?}");
            assert!(!(link.wants_sent && link.core.has_sent_all()), "{member} has sent all");
            let is_closing = link.phase == Phase::Closing && link.core.end().is_none();
            assert!(!(is_closing && link.core.has_sent_all()), "{member} has closed");
        }
        assert_eq!(*unwritable_members, expected);
    }

    /// Handles events as a program does, and asserts that the state of their members permits them.
    fn take(&mut self, events: Vec<Event>) {
        for event in events {
            let member = event.member();
            let seen = self.members.get_mut(&member).expect("the event should name a member");
            assert!(!seen.has_ended, "{event:?} after the end");
            match event {
                Event::Established(_) => {
                    assert!(!seen.is_established);
                    seen.is_established = true;
                }
                Event::Ended(..) => {
                    seen.has_ended = true;
                    self.open_members.retain(|open| *open != member);
                    self.writable.remove(&member);
                }
                Event::Message(_, message) => {
                    assert!(seen.is_established && message.len() <= LENGTH);
                    assert_eq!(message.member(), member);
                    self.messages.push(message);
                    let is_from_member = |message: &&Message| message.member() == member;
                    let held = self.messages.iter().filter(is_from_member).count();
                    assert!(held <= MAX_HELD as usize, "{held} messages of {member}");
                }
                Event::Writable(_) => {
                    assert!(seen.is_established);
                    assert!(self.unwritable_members.remove(&member), "{member} has waited to send");
                    self.writable.insert(member);
                }
                Event::Sent(_) => assert!(seen.is_established),
            }
        }
    }

    /// Aborts all members, and asserts that each has ended and that all buffers have returned.
    fn finish(mut self) {
        self.forged.device.device().refuses = 0;
        self.forged.device.device().is_malformed = false;
        self.messages.clear();
        self.buffers.clear();
        for member in std::mem::take(&mut self.open_members) {
            let _ = self.forged.group.abort(member);
        }
        // One of the calls may return the error of an earlier one.
        for _ in 0..3 {
            let mut events = Vec::new();
            let _ = self.forged.group.poll(&mut events);
            self.take(events);
            self.messages.clear();
        }
        let PollGroup { members, resources, unwritable_members, .. } = &self.forged.group;
        assert!(members.len() == 0 && self.members.values().all(|seen| seen.has_ended));
        assert_eq!(resources.free_sends.len(), SENDS as usize);
        assert_eq!(resources.unposted.len() + resources.receives.posted(), self.receives);
        assert_eq!(*unwritable_members, 0);
    }
}
