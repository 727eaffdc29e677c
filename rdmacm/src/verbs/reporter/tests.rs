use super::*;
use crate::error::NotOwner;
use crate::sys::process::in_child;

#[test]
fn events_find_their_object_while_registered() {
    let completions = Arc::default();
    let reporter = EventSource::of_completion_queue(&completions);
    let number = reporter.user_handle().get();
    let subject = || "queue 7".to_owned();
    reporter.check(subject).expect("no event is out");
    for track in [track, track_completion_event] {
        let (token, event) = track(number).expect("the object exists");
        assert_eq!(token, reporter.token());
        let error = reporter.check(subject).expect_err("an event is out");
        assert!(matches!(error.kind(), ErrorKind::WouldDeadlock(_)), "{error}");
        drop(event);
        reporter.check(subject).expect("the event is acknowledged");
    }
    assert!(acknowledge_completion_event(number));
    reporter.check(subject).expect("the event is acknowledged");
    assert_eq!(completions.events_read().load(Ordering::Relaxed), 2);
    reporter.wait(Reported { asynchronous: 1, completions: 2 });
    drop(reporter);
    assert!(track(number).is_none());
    assert!(track_completion_event(number).is_none());
    assert!(!acknowledge_completion_event(number));
}

#[test]
fn completion_event_of_other_object_is_ignored() {
    let reporter = EventSource::new();
    let number = reporter.user_handle().get();
    assert!(track_completion_event(number).is_none());
    assert!(!acknowledge_completion_event(number));
    assert!(track(number).is_some(), "the object should be known");
}

#[test]
fn forked_child_is_refused_despite_held_locks() {
    let completions = Arc::default();
    let reporter = EventSource::of_completion_queue(&completions);
    let _held = (reporter.events.asynchronous.hold(), completions.hold());
    assert!(in_child(|| {
        let error = reporter.check(String::new).expect_err("the event belongs to the parent");
        matches!(error.kind(), ErrorKind::NotOwner(NotOwner::Forked))
    }));
}
