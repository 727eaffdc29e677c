use std::sync::atomic::AtomicBool;

use super::*;

#[test]
fn waits_for_another_thread_to_acknowledge() {
    for wait in [Acks::wait, Acks::wait_for_earlier] {
        assert_waits_for_another_thread(wait);
    }
}

fn assert_waits_for_another_thread(wait: fn(&Acks, u32)) {
    let acks = Arc::new(Acks::default());
    let event = acks.track(true);
    // The event is then an earlier one, for which both calls wait.
    acks.moved();
    assert!(acks.held_by_this_thread());
    let dropped = AtomicBool::new(false);
    thread::scope(|scope| {
        let waiter = scope.spawn(|| {
            assert!(!acks.held_by_this_thread());
            wait(&acks, 1);
            assert!(dropped.load(Ordering::SeqCst), "the call should wait for the acknowledgment");
        });
        while acks.lock().waiting == 0 && !waiter.is_finished() {
            thread::yield_now();
        }
        dropped.store(true, Ordering::SeqCst);
        drop(event);
        waiter.join().expect("the waiter returns");
    });
    assert!(!acks.held_by_this_thread());
}

#[test]
fn holder_is_known_until_event_is_acknowledged() {
    let acks = Arc::new(Acks::default());
    let other = |acks: &Arc<Acks>| {
        thread::scope(|scope| scope.spawn(|| acks.track(true)).join().expect("handed out"))
    };
    // Covers both orders of the first and the last event.
    for order in [[0, 1, 2], [2, 1, 0], [1, 0, 2], [1, 2, 0]] {
        let mut events = [acks.track(true), other(&acks), acks.track(true)].map(Some);
        let mut ours = 2;
        for place in order {
            events[place] = None;
            ours -= usize::from(place != 1);
            assert_eq!(acks.held_by_this_thread(), ours > 0, "{order:?}");
        }
        assert!(acks.lock().outstanding.one.is_none());
    }
}

#[test]
fn acknowledgment_count_wraps() {
    let acks = Arc::new(Acks::default());
    acks.acknowledged.store(u32::MAX, Ordering::Relaxed);
    drop(acks.track(true));
    acks.wait(0);
    acks.wait(u32::MAX);
}

#[test]
fn passed_event_is_acknowledged_without_holder() {
    let acks = Arc::new(Acks::default());
    let event = acks.track(true);
    acks.acknowledge_now();
    assert_eq!(acks.acknowledged(), 1);
    drop(event);
    assert!(!acks.held_by_this_thread());
    acks.wait(2);
    acks.moved();
    acks.acknowledge_now();
    assert_eq!((acks.acknowledged(), acks.lock().recent), (3, 1));
}

#[test]
fn move_waits_for_earlier_events_only() {
    let acks = Arc::new(Acks::default());
    let [early, late] = [(); 2].map(|()| acks.track(true));
    drop(early);
    acks.moved();
    // Two events were reported before the move, and two are acknowledged, but one of these is a later event.
    drop(acks.track(true));
    let earlier = || acks.acknowledged() - acks.lock().recent;
    assert_eq!(earlier(), 1);
    // This event was read before the move and is handed out after it.
    drop(acks.track(false));
    assert_eq!(earlier(), 2);
    drop(late);
    assert_eq!(earlier(), 3);
    acks.wait_for_earlier(3);
    acks.wait(4);
}
