//! Poll groups: messages of many members, and the events that the group reports of them.

use std::collections::VecDeque;
use std::future::{Future, poll_fn};
use std::net::SocketAddr;
use std::os::fd::AsFd;
use std::pin::pin;
use std::sync::mpsc;
use std::task::Poll;
use std::thread;
use std::time::{Duration, Instant};

use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use rdmacm::endpoint::poll_group::{Event, Member, MemberEnd, Message, PollGroupConfig};
use rdmacm::endpoint::{Connection, ConnectionConfig, Connector, Listener, PollGroup, task};
use rdmacm::{Error, ErrorKind};

use crate::child::in_child;
use crate::endpoint_connect::objects_at;
use crate::fixtures::{LONG, device, roce, roce_name, siw};
use crate::rng::Rng;

/// Returns the config of a small group, for tests that count buffers.
pub(crate) fn small() -> PollGroupConfig {
    PollGroupConfig::new()
        .receive_buffers(16)
        .send_buffers(16)
        .send_buffers_per_member(8)
        .initial_members(8)
}

/// A poll group, and the events that the test has not handled.
pub(crate) struct Group {
    pub(crate) group: PollGroup,
    pub(crate) events: VecDeque<Event>,
}

impl Group {
    pub(crate) fn new(address: SocketAddr, config: &PollGroupConfig) -> Self {
        let name = if address.ip() == siw(0).ip() { "siw0" } else { roce_name() };
        let group = PollGroup::new(&device(name), config).expect("poll group");
        Self { group, events: VecDeque::new() }
    }

    /// Waits for the next event.
    #[track_caller]
    pub(crate) fn next(&mut self) -> Event {
        while self.events.is_empty() {
            let mut events = Vec::new();
            let count = self.group.wait(&mut events, Some(LONG)).expect("wait");
            assert!(count > 0, "no event within {LONG:?}");
            self.events.extend(events);
        }
        self.events.pop_front().expect("an event should be pending")
    }

    #[track_caller]
    pub(crate) fn expect_established(&mut self, member: Member) {
        let event = self.next();
        assert!(matches!(&event, Event::Established(found) if *found == member), "{event:?}");
    }

    #[track_caller]
    pub(crate) fn message(&mut self, member: Member) -> Message {
        match self.next() {
            Event::Message(found, message) if found == member => message,
            other => panic!("{other:?} instead of a message of {member}"),
        }
    }

    /// Waits for the end of `member`, which must be the next event.
    #[track_caller]
    pub(crate) fn end(&mut self, member: Member) -> MemberEnd {
        match self.next() {
            Event::Ended(found, end) if found == member => end,
            other => panic!("{other:?} instead of the end of {member}"),
        }
    }

    /// Returns the kind of the failure with which `member` ends.
    #[track_caller]
    pub(crate) fn failure(&mut self, member: Member) -> ErrorKind {
        self.error(member).kind().clone()
    }

    /// Returns the error with which `member` ends.
    #[track_caller]
    pub(crate) fn error(&mut self, member: Member) -> Error {
        match self.end(member) {
            MemberEnd::Failed(error) => error,
            other => panic!("{other:?} instead of a failure of {member}"),
        }
    }

    /// Closes `peer`, and asserts that this ends `member`.
    #[track_caller]
    pub(crate) fn expect_closed_by(&mut self, peer: &Connection, member: Member) {
        thread::scope(|scope| {
            let closes = scope.spawn(|| peer.close(LONG).expect("close"));
            assert!(matches!(self.end(member), MemberEnd::Peer));
            closes.join().expect("peer should not panic");
        });
    }

    /// Asserts that the group has no event.
    #[track_caller]
    pub(crate) fn expect_quiet(&mut self) {
        let mut events = Vec::new();
        self.group.wait(&mut events, Some(Duration::from_millis(50))).expect("wait");
        self.events.extend(events);
        assert!(self.events.is_empty(), "{:?}", self.events);
    }

    /// Accepts a plain connection as a new member.
    #[track_caller]
    pub(crate) fn accepts(
        &mut self,
        listener: &Listener,
        config: &ConnectionConfig,
    ) -> (Connection, Member) {
        let server = listener.local_addr().expect("an IP address");
        thread::scope(|scope| {
            let connector = Connector::new().config(config.clone()).total_timeout(LONG);
            let client = scope.spawn(move || connector.connect(server).expect("connect"));
            let incoming = listener.accept_timeout(LONG).expect("a request");
            let member = self.group.add(incoming, b"welcome", LONG).expect("add");
            self.expect_established(member);
            (client.join().expect("client should not panic"), member)
        })
    }

    /// Connects a new member to a plain connection.
    #[track_caller]
    pub(crate) fn connects(
        &mut self,
        listener: &Listener,
        config: &ConnectionConfig,
    ) -> (Connection, Member) {
        let server = listener.local_addr().expect("an IP address");
        let connector = Connector::new().private_data(b"hello");
        let member = self.group.connect(&connector, server).expect("connect");
        thread::scope(|scope| {
            let accepted = scope.spawn(|| {
                let incoming = listener.accept_timeout(LONG).expect("a request");
                incoming.accept(config, b"welcome", LONG).expect("accept")
            });
            self.expect_established(member);
            (accepted.join().expect("server should not panic"), member)
        })
    }

    /// Connects a member to another member of the group. Returns the connecting member, then the accepting one.
    #[track_caller]
    pub(crate) fn connects_to_itself(&mut self, listener: &Listener) -> (Member, Member) {
        let server = listener.local_addr().expect("an IP address");
        let asking = self.group.connect(&Connector::new(), server).expect("connect");
        let deadline = Instant::now() + LONG;
        let incoming = loop {
            match listener.try_accept() {
                Ok(incoming) => break incoming,
                Err(error) => assert_eq!(*error.kind(), ErrorKind::WouldBlock, "{error}"),
            }
            assert!(Instant::now() < deadline, "no request within {LONG:?}");
            let mut events = Vec::new();
            self.group.wait(&mut events, Some(Duration::from_millis(10))).expect("wait");
            assert!(events.is_empty(), "{events:?}");
        };
        let accepted = self.group.add(incoming, &[], LONG).expect("add");
        let mut established = [self.next(), self.next()].map(|event| match event {
            Event::Established(member) => member,
            event => panic!("{event:?}"),
        });
        established.sort_unstable();
        let mut both = [asking, accepted];
        both.sort_unstable();
        assert_eq!(established, both);
        (asking, accepted)
    }
}

#[track_caller]
pub(crate) fn receives_bytes(connection: &Connection, bytes: &[u8]) {
    let message = connection.recv_timeout(LONG).expect("receive").expect("a message");
    assert_eq!(*message, *bytes);
}

fn messages_go_both_ways(address: SocketAddr) {
    let before = objects_at(address);
    let mut group = Group::new(address, &small());
    let listener = Listener::bind(address).expect("listen");
    let config = ConnectionConfig::default();
    let (first, one) = group.accepts(&listener, &config);
    let (second, two) = group.connects(&listener, &config);
    assert_eq!(group.group.len(), 2);
    assert_eq!(group.group.peer_addr(one), first.local_addr());
    assert!(group.group.private_data(two).starts_with(b"welcome"));
    assert!(first.private_data().starts_with(b"welcome"));
    // On iWARP the connecting side sends first.
    first.post_bytes(b"from the first").expect("post");
    let message = group.message(one);
    assert_eq!((&*message, message.member()), (&b"from the first"[..], one));
    group.group.post_bytes(two, b"to the second").expect("post");
    receives_bytes(&second, b"to the second");
    second.post_bytes(b"from the second").expect("post");
    assert_eq!(*group.message(two), *b"from the second");
    let mut buffer = group.group.acquire_buffer(one).expect("a buffer");
    buffer.copy_from(&message).expect("the value should fit");
    drop(message);
    group.group.post_send(buffer).expect("post");
    receives_bytes(&first, b"from the first");
    group.group.post_bytes(one, b"").expect("post");
    receives_bytes(&first, b"");
    group.group.flush(one).expect("flush");
    let event = group.next();
    assert!(matches!(&event, Event::Sent(member) if *member == one), "{event:?}");
    let counters = group.group.stats(one).expect("member should not have ended");
    assert_eq!((counters.messages_received, counters.messages_sent), (1, 2));
    group.expect_closed_by(&first, one);
    assert_eq!((group.group.len(), group.group.stats(one)), (1, None));
    drop((group, second, listener));
    assert_eq!(objects_at(address), before);
}

#[test]
#[ignore = "needs the test bed: cargo xtask test"]
fn rxe_messages_go_both_ways() {
    messages_go_both_ways(roce(0));
}

#[test]
#[ignore = "needs the test bed: cargo xtask test"]
fn siw_messages_go_both_ways() {
    messages_go_both_ways(siw(0));
}

/// Returns bytes that identify a message and its connection.
pub(crate) fn bytes(seed: u64, longest: usize) -> Vec<u8> {
    let mut rng = Rng(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1);
    let length = rng.roll(longest + 1);
    (0..length).map(|_| rng.number().to_le_bytes()[0]).collect()
}

/// Checks that each member echoes messages of all sizes without loss or repetition.
fn echoes_are_whole(address: SocketAddr) {
    const PEERS: u64 = 8;
    const MESSAGES: u64 = 200;
    // The group has fewer buffers than messages in flight, so members wait for places and buffers.
    let receives = if address.ip() == siw(0).ip() { 128 } else { 24 };
    let config = PollGroupConfig::new()
        .receive_buffers(receives)
        .send_buffers(6)
        .send_buffers_per_member(2)
        .max_held(64)
        .initial_members(8);
    let mut group = Group::new(address, &config);
    let listener = Listener::bind(address).expect("listen");
    let peers: Vec<_> =
        (0..PEERS).map(|_| group.accepts(&listener, &ConnectionConfig::default()).0).collect();
    thread::scope(|scope| {
        let workers = (0..).zip(&peers).map(|(number, peer)| {
            scope.spawn(move || {
                let mut answers = 0;
                for message in 0..MESSAGES {
                    peer.post_bytes(&bytes(number * MESSAGES + message, 4096)).expect("post");
                    // At most 12 messages are in flight.
                    while message - answers >= 12 {
                        receives_bytes(peer, &bytes(number * MESSAGES + answers, 4096));
                        answers += 1;
                    }
                }
                for answer in answers..MESSAGES {
                    receives_bytes(peer, &bytes(number * MESSAGES + answer, 4096));
                }
                peer.close(LONG).expect("close");
            })
        });
        let workers: Vec<_> = workers.collect();
        let mut ended = 0;
        let mut unanswered = std::collections::HashMap::<Member, VecDeque<Message>>::new();
        while ended < PEERS {
            let member = match group.next() {
                Event::Message(member, message) => {
                    unanswered.entry(member).or_default().push_back(message);
                    member
                }
                Event::Writable(member) => member,
                Event::Ended(_, MemberEnd::Peer) => {
                    ended += 1;
                    continue;
                }
                other => panic!("{other:?}"),
            };
            let waiting = unanswered.entry(member).or_default();
            while let Some(message) = waiting.front() {
                match group.group.post_bytes(member, message) {
                    Ok(()) => waiting.pop_front(),
                    Err(error) if *error.kind() == ErrorKind::WouldBlock => break,
                    Err(error) => panic!("{error}"),
                };
            }
        }
        workers.into_iter().for_each(|worker| worker.join().expect("worker should not panic"));
    });
}

#[test]
#[ignore = "needs the test bed: cargo xtask test"]
fn rxe_echoes_are_whole() {
    echoes_are_whole(roce(0));
}

#[test]
#[ignore = "needs the test bed: cargo xtask test"]
fn siw_echoes_are_whole() {
    echoes_are_whole(siw(0));
}

/// Checks that a call without a send slot or buffer gets one event when it can succeed.
#[test]
#[ignore = "needs the test bed: cargo xtask test"]
fn writable_follows_would_block_once() {
    let config = small().send_buffers(3).send_buffers_per_member(2);
    let mut group = Group::new(roce(0), &config);
    let listener = Listener::bind(roce(0)).expect("listen");
    let config = ConnectionConfig::default();
    let (first, one) = group.accepts(&listener, &config);
    let (_second, two) = group.accepts(&listener, &config);
    let blocks = |group: &mut Group, member| {
        let error = group.group.acquire_buffer(member).expect_err("no buffer should be free");
        assert_eq!(*error.kind(), ErrorKind::WouldBlock, "{error}");
    };
    let kept = [one, one, two].map(|member| group.group.acquire_buffer(member).expect("a buffer"));
    // The first member has no free place, and the second one finds no free buffer.
    [one, one, two, two].into_iter().for_each(|member| blocks(&mut group, member));
    group.expect_quiet();
    let [mut sent, _kept, _also_kept] = kept;
    sent.copy_from(b"sent").expect("the value should fit");
    group.group.post_send(sent).expect("post");
    receives_bytes(&first, b"sent");
    let writable = group.next();
    // The member that has waited longest for a buffer is first. The next one follows, because the first has taken no
    // buffer.
    assert!(matches!(&writable, Event::Writable(member) if *member == two), "{writable:?}");
    let writable = group.next();
    assert!(matches!(&writable, Event::Writable(member) if *member == one), "{writable:?}");
    group.expect_quiet();
    let taken = group.group.acquire_buffer(two).expect("a buffer");
    blocks(&mut group, one);
    group.expect_quiet();
    drop(taken);
    let writable = group.next();
    assert!(matches!(&writable, Event::Writable(member) if *member == one), "{writable:?}");
    drop(group.group.acquire_buffer(one).expect("a buffer"));
    group.expect_quiet();
}

fn is_readable(group: &PollGroup, timeout: PollTimeout) -> bool {
    let mut fds = [PollFd::new(group.as_fd(), PollFlags::POLLIN)];
    poll(&mut fds, timeout).expect("poll") > 0
}

/// Waits for the descriptor until a poll returns an event.
#[track_caller]
fn polled(group: &mut Group) -> Event {
    let long = PollTimeout::try_from(LONG).expect("the value should fit");
    loop {
        let mut events = Vec::new();
        group.group.poll(&mut events).expect("poll");
        group.events.extend(events);
        match group.events.pop_front() {
            Some(event) => return event,
            None => {
                assert!(is_readable(&group.group, long), "the descriptor should become readable")
            }
        }
    }
}

fn descriptor_reports_events(address: SocketAddr) {
    let mut group = Group::new(address, &small());
    let listener = Listener::bind(address).expect("listen");
    let (client, member) = group.accepts(&listener, &ConnectionConfig::default());
    for round in 0..100_u32 {
        let bytes = round.to_ne_bytes();
        client.post_bytes(&bytes).expect("post");
        match polled(&mut group) {
            Event::Message(_, message) => assert_eq!(*message, bytes),
            other => panic!("{other:?}"),
        }
        group.group.post_bytes(member, &bytes).expect("post");
        receives_bytes(&client, &bytes);
    }
    // The descriptor is not readable after all events are read.
    let settled = (0..10).any(|_| {
        let mut events = Vec::new();
        group.group.poll(&mut events).expect("poll");
        assert!(events.is_empty(), "{events:?}");
        !is_readable(&group.group, PollTimeout::ZERO)
    });
    assert!(settled, "the descriptor should not stay readable");
    // The group also reports events that calls of this side have caused.
    group.group.flush(member).expect("flush");
    let sent = polled(&mut group);
    assert!(matches!(sent, Event::Sent(_)), "{sent:?}");
    group.group.abort(member).expect("abort");
    let ended = polled(&mut group);
    assert!(matches!(ended, Event::Ended(_, MemberEnd::Local)), "{ended:?}");
    assert!(client.recv_timeout(LONG).expect("receive").is_none());
}

#[test]
#[ignore = "needs the test bed: cargo xtask test"]
fn rxe_descriptor_reports_events() {
    descriptor_reports_events(roce(0));
}

#[test]
#[ignore = "needs the test bed: cargo xtask test"]
fn siw_descriptor_reports_events() {
    descriptor_reports_events(siw(0));
}

/// Checks that the first dropped buffer wakes a group whose buffers were all held.
#[test]
#[ignore = "needs the test bed: cargo xtask test"]
fn message_dropped_by_thread_wakes_group() {
    for (receives, by_descriptor) in [(1_u8, false), (1, true), (2, false), (2, true)] {
        let mut group = Group::new(roce(0), &small().receive_buffers(receives.into()));
        let listener = Listener::bind(roce(0)).expect("listen");
        let (client, member) = group.accepts(&listener, &ConnectionConfig::default());
        (0..=receives).for_each(|number| client.post_bytes(&[number]).expect("post"));
        let (gives, takes) = mpsc::channel::<Message>();
        let worker = thread::spawn(move || {
            let held: Vec<_> = takes.iter().take(receives.into()).collect();
            // The group can begin to wait in this time. The result does not depend on the time.
            thread::sleep(Duration::from_millis(200));
            drop(held);
        });
        for number in 0..receives {
            let message = group.message(member);
            assert_eq!(*message, [number]);
            gives.send(message).expect("worker should not panic");
        }
        let last = if by_descriptor { polled(&mut group) } else { group.next() };
        assert!(matches!(&last, Event::Message(_, message) if **message == [receives]), "{last:?}");
        worker.join().expect("worker should not panic");
    }
}

/// Messages outlive their member and their group.
#[test]
#[ignore = "needs the test bed: cargo xtask test"]
fn message_outlives_member_and_group() {
    let before = objects_at(roce(0));
    let mut group = Group::new(roce(0), &small());
    let listener = Listener::bind(roce(0)).expect("listen");
    let (client, member) = group.accepts(&listener, &ConnectionConfig::default());
    client.post_bytes(b"kept").expect("post");
    let message = group.message(member);
    let buffer = group.group.acquire_buffer(member).expect("a buffer");
    group.expect_closed_by(&client, member);
    // Another member may have the same queue pair number now. It must not get the buffer.
    let (client, other) = group.accepts(&listener, &ConnectionConfig::default());
    let error = group.group.post_send(buffer).expect_err("the member should have ended");
    assert_eq!(*error.kind(), ErrorKind::Disconnected, "{error}");
    client.post_bytes(b"other").expect("post");
    assert_eq!(*group.message(other), *b"other");
    assert_eq!(*message, *b"kept");
    drop((group, client, listener));
    assert_eq!(*message, *b"kept");
    drop(message);
    assert_eq!(objects_at(roce(0)), before);
}

#[test]
#[ignore = "needs the test bed: cargo xtask test"]
fn forked_child_is_refused() {
    let mut group = Group::new(roce(0), &small());
    let listener = Listener::bind(roce(0)).expect("listen");
    let server = listener.local_addr().expect("an IP address");
    let (client, member) = group.accepts(&listener, &ConnectionConfig::default());
    client.post_bytes(b"before").expect("post");
    let message = group.message(member);
    let buffer = group.group.acquire_buffer(member).expect("a buffer");
    in_child(|| {
        let Group { group, .. } = &mut group;
        let refused = [
            group.wait(&mut Vec::new(), None).map(drop),
            group.poll(&mut Vec::new()).map(drop),
            group.acquire_buffer(member).map(drop),
            group.post_bytes(member, b"no").map(drop),
            group.flush(member),
            group.close(member),
            group.abort(member),
            group.connect(&Connector::new(), server).map(drop),
        ];
        for result in refused {
            let error = result.expect_err("the group should belong to the parent");
            assert!(matches!(error.kind(), ErrorKind::NotOwner(_)), "{error}");
        }
        let error = group.post_send(buffer).expect_err("the group should belong to the parent");
        assert!(matches!(error.kind(), ErrorKind::NotOwner(_)), "{error}");
        drop(message);
    });
    group.group.post_bytes(member, b"after").expect("post");
    receives_bytes(&client, b"after");
    in_child(|| drop(group));
}

/// Checks that an event that has arrived counts even after the deadline of the attempt.
#[test]
#[ignore = "needs the test bed: cargo xtask test"]
fn event_counts_after_deadline() {
    const TIMEOUT: Duration = Duration::from_millis(100);
    let listener = Listener::bind(roce(0)).expect("listen");
    let server = listener.local_addr().expect("an IP address");
    let mut group = Group::new(roce(0), &small());
    let mut is_established = || {
        thread::scope(|scope| {
            let client = scope.spawn(|| Connector::new().total_timeout(LONG).connect(server));
            let incoming = listener.accept_timeout(LONG).expect("a request");
            let member = group.group.add(incoming, &[], TIMEOUT).expect("add");
            let client = client.join().expect("client should not panic");
            // The deadline passes. The event of the kernel arrives in the meantime.
            thread::sleep(2 * TIMEOUT);
            let mut events = Vec::new();
            group.group.wait(&mut events, Some(LONG)).expect("wait");
            drop(client);
            match events[..] {
                [Event::Established(found)] => found == member,
                // The event of the kernel was late.
                [Event::Ended(..)] => false,
                _ => panic!("{events:?}"),
            }
        })
    };
    assert!(
        (0..5).any(|_| is_established()),
        "an attempt should be established after the deadline"
    );
}

/// Polls a future once and drops it. Returns its result if it was ready.
async fn poll_once<T>(future: impl Future<Output = T>) -> Option<T> {
    let mut future = pin!(future);
    poll_fn(|context| {
        Poll::Ready(match future.as_mut().poll(context) {
            Poll::Ready(result) => Some(result),
            Poll::Pending => None,
        })
    })
    .await
}

/// Sends the messages of `member` back, in one task, until the member ends.
async fn echo_until_end(group: PollGroup, member: Member) -> MemberEnd {
    let mut group = task::PollGroup::from_blocking(group).expect("register");
    let mut events = Vec::new();
    loop {
        // A future that is dropped loses no event.
        match poll_once(group.wait(&mut events)).await {
            Some(waited) => waited.expect("wait"),
            None => group.wait(&mut events).await.expect("wait"),
        };
        for event in events.drain(..) {
            match event {
                Event::Message(member, message) => {
                    group.get_mut().post_bytes(member, &message).expect("post");
                }
                Event::Ended(found, end) if found == member => return end,
                other => panic!("{other:?} instead of a message of {member}"),
            }
        }
    }
}

fn task_serves_member(address: SocketAddr, run: impl FnOnce(PollGroup, Member) -> MemberEnd) {
    let listener = Listener::bind(address).expect("listen");
    let mut group = Group::new(address, &small());
    let (client, member) = group.accepts(&listener, &ConnectionConfig::default());
    thread::scope(|scope| {
        let asking = scope.spawn(|| {
            // More messages than receive buffers, and more than a task handles without a pause.
            for number in 0..200 {
                client.post_bytes(&[number]).expect("post");
                receives_bytes(&client, &[number]);
            }
            client.close(LONG).expect("close");
        });
        let end = run(group.group, member);
        assert!(matches!(end, MemberEnd::Peer), "{end:?}");
        asking.join().expect("client should not panic");
    });
}

fn run_on_tokio(group: PollGroup, member: Member) -> MemberEnd {
    // The task may move from thread to thread.
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build();
    let runtime = runtime.expect("a runtime");
    let task = runtime.spawn(echo_until_end(group, member));
    runtime.block_on(task).expect("task should not panic")
}

#[test]
#[ignore = "needs the test bed: cargo xtask test"]
fn task_serves_group() {
    task_serves_member(roce(0), run_on_tokio);
    task_serves_member(roce(0), |group, member| smol::block_on(echo_until_end(group, member)));
}

#[test]
#[ignore = "needs the test bed: cargo xtask test"]
fn siw_task_serves_group() {
    task_serves_member(siw(0), run_on_tokio);
}
