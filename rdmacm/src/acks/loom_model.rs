//! Events that are handed out and acknowledged in some threads, and a destroy that waits in another.

use std::ptr::NonNull;

use super::*;
use crate::sync::{check, reads, writes};

/// The memory that threads with events write to, and that the thread which waited for them frees.
#[derive(Clone)]
struct Object(Arc<u64>);

impl Object {
    fn at(&self) -> NonNull<u8> {
        NonNull::from(&*self.0).cast()
    }

    fn is_used(&self) {
        reads(self.at());
    }

    fn is_freed(&self) {
        writes(self.at());
    }
}

/// Starts a thread that uses the object and then acknowledges an event, for each of `events`.
fn user(object: &Object, events: Vec<Unacknowledged>) -> thread::JoinHandle<()> {
    let object = object.clone();
    thread::spawn(move || {
        for event in events {
            object.is_used();
            drop(event);
        }
    })
}

#[test]
fn loom_destroy_follows_every_event() {
    check(|| {
        let (acks, object) = (Arc::new(Acks::default()), Object(Arc::default()));
        let users = [(); 2].map(|()| user(&object, vec![acks.track(true)]));
        // The number of events that the kernel has reported.
        acks.wait(2);
        object.is_freed();
        users.into_iter().for_each(|user| user.join().expect("user should not panic"));
    });
}

#[test]
fn loom_destroy_waits_for_event_not_yet_handed_out() {
    check(|| {
        let (acks, object) = (Arc::new(Acks::default()), Object(Arc::default()));
        let reader = thread::spawn({
            let (acks, object) = (Arc::clone(&acks), object.clone());
            move || {
                for _ in 0..2 {
                    let event = acks.track(true);
                    object.is_used();
                    drop(event);
                }
            }
        });
        acks.wait(2);
        object.is_freed();
        reader.join().expect("reader should not panic");
    });
}

#[test]
fn loom_event_holder_is_known_to_its_thread() {
    check(|| {
        let acks = Arc::new(Acks::default());
        let own = acks.track(true);
        let other = thread::spawn({
            let acks = Arc::clone(&acks);
            move || {
                drop(acks.track(true));
                assert!(!acks.held_by_this_thread());
            }
        });
        assert!(acks.held_by_this_thread());
        drop(own);
        assert!(!acks.held_by_this_thread());
        other.join().expect("the other thread should not panic");
    });
}

#[test]
fn loom_move_waits_for_earlier_events() {
    check(|| {
        let (acks, object) = (Arc::new(Acks::default()), Object(Arc::default()));
        let user = user(&object, vec![acks.track(true)]);
        acks.moved();
        // An event of the new channel does not count.
        drop(acks.track(true));
        acks.wait_for_earlier(1);
        object.is_freed();
        user.join().expect("user should not panic");
    });
}
