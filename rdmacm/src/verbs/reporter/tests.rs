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
    for hand_out in [hand_out, hand_out_completion] {
        let (token, event) = hand_out(number).expect("the object exists");
        assert_eq!(token, reporter.token());
        let error = reporter.check(subject).expect_err("an event is out");
        assert!(matches!(error.kind(), ErrorKind::WouldDeadlock(_)), "{error}");
        drop(event);
        reporter.check(subject).expect("the event is acknowledged");
    }
    assert!(pass_completion(number));
    reporter.check(subject).expect("the event is acknowledged");
    assert_eq!(completions.handed_out().load(Ordering::Relaxed), 2);
    reporter.wait(Reported { asynchronous: 1, completions: 2 });
    drop(reporter);
    assert!(hand_out(number).is_none());
    assert!(hand_out_completion(number).is_none());
    assert!(!pass_completion(number));
}

#[test]
fn completion_event_of_other_object_is_ignored() {
    let reporter = EventSource::new();
    let number = reporter.user_handle().get();
    assert!(hand_out_completion(number).is_none());
    assert!(!pass_completion(number));
    assert!(hand_out(number).is_some(), "the object should be known");
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
