//! Many random operations of all kinds at the same time.

use std::collections::HashSet;
use std::env;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::{Duration, Instant};

use rdmacm::ErrorKind;
use rdmacm::cm::{CmId, ConnParam, Event, EventChannel, EventType};
use rdmacm_tests::open_descriptors;

use crate::fixtures::{LONG, channel, id, listen, objects, roce};
use crate::rng::Rng;

/// Returns the duration of the random operations.
///
/// The default suffices for thousands of each kind. The environment can set another number of seconds.
fn time() -> Duration {
    let seconds = env::var("RDMACM_TEST_STRESS_SECONDS").unwrap_or_else(|_| "10".to_owned());
    Duration::from_secs(seconds.parse().expect("a number of seconds"))
}

/// State shared by the threads.
struct SharedState {
    channels: [EventChannel; 3],
    ids: Mutex<Vec<Arc<CmId>>>,
    listener: CmId,
    server: SocketAddr,
}

impl SharedState {
    fn new() -> Self {
        let channels = [(); 3].map(|()| channel());
        let (listener, server) = listen(&channels[0], roce(0));
        Self { channels, ids: Mutex::default(), listener, server }
    }

    fn add(&self, id: CmId) {
        self.ids.lock().expect("no thread should panic").push(Arc::new(id));
    }

    /// Returns a random id, which other threads may use as well.
    fn some_id(&self, rng: &mut Rng) -> Option<Arc<CmId>> {
        let ids = self.ids.lock().expect("no thread should panic");
        (!ids.is_empty()).then(|| Arc::clone(&ids[rng.roll(ids.len())]))
    }

    fn take_id(&self, rng: &mut Rng) -> Option<Arc<CmId>> {
        let mut ids = self.ids.lock().expect("no thread should panic");
        (!ids.is_empty()).then(|| {
            let place = rng.roll(ids.len());
            ids.swap_remove(place)
        })
    }

    /// Does one random operation.
    fn step(&self, rng: &mut Rng, held: &mut Vec<Event>) {
        let channel = &self.channels[rng.roll(3)];
        match rng.roll(8) {
            0 if self.ids.lock().expect("no thread should panic").len() < 64 => {
                let id = id(channel);
                id.resolve_addr(None, self.server, LONG).expect("resolve the address");
                self.add(id);
            }
            1 => {
                // A waiting thread must hold no event for which another thread may wait.
                held.clear();
                if let Some(id) = self.some_id(rng) {
                    migrated(&id, channel);
                }
            }
            2 => {
                held.clear();
                migrated(&self.listener, channel);
            }
            3 => {
                held.clear();
                // If the other thread uses the id, the last one of both threads drops the id.
                if let Some(id) = self.take_id(rng).and_then(Arc::into_inner) {
                    id.destroy().expect("destroy");
                }
            }
            4 => drop(self.take_id(rng)),
            5 => held.truncate(rng.roll(4)),
            _ => {
                if let Some(mut event) = channel.get_event_timeout(Duration::ZERO).expect("look") {
                    self.react(&mut event, rng);
                    held.push(event);
                }
            }
        }
    }

    /// Takes the next step of the connection that the event is about.
    fn react(&self, event: &mut Event, rng: &mut Rng) {
        let param = ConnParam { qp_num: 1, ..ConnParam::default() };
        if let Some(request) = event.take_request() {
            // The request is on the channel from which it was read, wherever its listener was before.
            request.local_addr().expect("a command should reach the request");
            if rng.roll(2) == 0 {
                misplaced_at_most(request.accept(&param));
            }
            return self.add(request);
        }
        let ids = self.ids.lock().expect("no thread should panic").clone();
        let Some(id) = ids.into_iter().find(|id| id.token() == event.token()) else { return };
        misplaced_at_most(match event.event_type() {
            EventType::AddrResolved => id.resolve_route(LONG),
            EventType::RouteResolved => id.connect(&param),
            EventType::Established => id.disconnect(),
            _ => Ok(()),
        });
    }
}

/// Asserts that a failed call failed because its id or its peer was in another state.
fn misplaced_at_most(result: rdmacm::Result<()>) {
    if let Err(error) = result {
        assert_eq!(error.errno(), libc::EINVAL, "{error}");
    }
}

fn migrated(id: &CmId, channel: &EventChannel) {
    if let Err(error) = id.migrate(channel) {
        assert!(matches!(error.kind(), ErrorKind::DeviceRemoved(_)), "{error}");
    }
}

#[test]
#[ignore = "needs the test bed: cargo xtask test"]
fn two_threads_survive_random_operations() {
    let before = (objects(), open_descriptors());
    let shared = SharedState::new();
    let end = Instant::now() + time();
    let steps: usize = thread::scope(|scope| {
        let play = |seed| {
            let shared = &shared;
            scope.spawn(move || {
                let (mut rng, mut held, mut steps) = (Rng(seed), Vec::new(), 0);
                while Instant::now() < end {
                    shared.step(&mut rng, &mut held);
                    steps += 1;
                }
                steps
            })
        };
        let players = [play(0x9e37_79b9_7f4a_7c15), play(0x2545_f491_4f6c_dd1d)];
        players.map(|player| player.join().expect("player should not panic")).into_iter().sum()
    });
    assert!(steps > 1000, "only {steps} steps");
    drop(shared);
    assert_eq!((objects(), open_descriptors()), before);
}

#[test]
#[ignore = "needs the test bed: cargo xtask test"]
fn ten_thousand_ids_leave_nothing() {
    const COUNT: usize = 10_000;
    const MOVED: usize = 20;
    let before = (objects(), open_descriptors());
    let (old, new) = (channel(), channel());
    let ids: Vec<_> = (0..COUNT).map(|_| id(&old)).collect();
    for id in &ids {
        id.resolve_addr(None, roce(7471), LONG).expect("resolve the address");
    }
    // For each moved id, the kernel searches all pending events.
    let moved = || ids.iter().step_by(MOVED);
    for id in moved() {
        id.migrate(&new).expect("migrate");
    }
    let read = |channel: &EventChannel, count: usize| {
        let next = |_| {
            channel
                .expect_event(EventType::AddrResolved)
                .expect("the address should be resolved")
                .token()
        };
        (0..count).map(next).collect::<HashSet<_>>()
    };
    let (here, there) = (read(&new, moved().count()), read(&old, COUNT - moved().count()));
    assert_eq!(here, moved().map(CmId::token).collect());
    assert_eq!(&here | &there, ids.iter().map(CmId::token).collect());
    for id in ids {
        id.destroy().expect("destroy");
    }
    drop((old, new));
    assert_eq!((objects(), open_descriptors()), before);
}
