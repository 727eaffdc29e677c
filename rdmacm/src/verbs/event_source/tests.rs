use std::sync::atomic::AtomicBool;
use std::thread;

use super::*;
use crate::error::NotOwner;
use crate::sys::process::in_child;

#[test]
fn events_find_their_object_while_registered() {
    let completions = Arc::default();
    let event_source = EventSource::of_completion_queue(&completions);
    let number = event_source.user_handle().get();
    let subject = || "queue 7".to_owned();
    event_source.check(subject).expect("no event should be unacknowledged");
    for track in [track, track_completion_event] {
        let (token, event) = track(number).expect("the object exists");
        assert_eq!(token, event_source.token());
        let error = event_source.check(subject).expect_err("an event should be unacknowledged");
        assert!(matches!(error.kind(), ErrorKind::WouldDeadlock(_)), "{error}");
        drop(event);
        event_source.check(subject).expect("the event is acknowledged");
    }
    assert!(acknowledge_completion_event(number));
    event_source.check(subject).expect("the event is acknowledged");
    assert_eq!(completions.events_read().load(Ordering::Relaxed), 2);
    event_source.wait(Reported { asynchronous: 1, completions: 2 });
    drop(event_source);
    assert!(track(number).is_none());
    assert!(track_completion_event(number).is_none());
    assert!(!acknowledge_completion_event(number));
}

#[test]
fn completion_event_of_other_object_is_ignored() {
    let event_source = EventSource::new();
    let number = event_source.user_handle().get();
    assert!(track_completion_event(number).is_none());
    assert!(!acknowledge_completion_event(number));
    assert!(track(number).is_some(), "the object should be known");
}

#[test]
fn forked_child_is_refused_despite_held_locks() {
    let completions = Arc::default();
    let event_source = EventSource::of_completion_queue(&completions);
    let _held = (event_source.events.asynchronous.hold(), completions.hold());
    assert!(in_child(|| {
        let error = event_source.check(String::new).expect_err("the event belongs to the parent");
        matches!(error.kind(), ErrorKind::NotOwner(NotOwner::Forked))
    }));
}

/// The destruction of an object waits until other threads have acknowledged its events of both kinds.
#[test]
fn waiting_ends_with_last_acknowledgment() {
    for is_completion_last in [false, true] {
        let completions = Arc::default();
        let event_source = EventSource::of_completion_queue(&completions);
        let number = event_source.user_handle().get();
        let (_, asynchronous) = track(number).expect("the object exists");
        let (_, completion) = track_completion_event(number).expect("the object exists");
        let (first, last) = match is_completion_last {
            true => (asynchronous, completion),
            false => (completion, asynchronous),
        };
        drop(first);
        let is_over = AtomicBool::new(false);
        thread::scope(|scope| {
            scope.spawn(|| {
                // The other thread usually waits by then.
                (0..100).for_each(|_| thread::yield_now());
                is_over.store(true, Ordering::Relaxed);
                drop(last);
            });
            event_source.wait(Reported { asynchronous: 1, completions: 1 });
            assert!(is_over.load(Ordering::Relaxed), "an event is unacknowledged");
        });
    }
}
