use super::*;

#[test]
fn messages_for_all_receives_are_suspected() {
    for (messages, suspected) in [(0, false), (2, false), (3, true), (4, true)] {
        let mut overrun = Overrun::new(3);
        overrun.on_polled(messages, 0);
        assert_eq!(overrun.is_suspected(), suspected, "{messages} messages");
    }
}

#[test]
fn receives_are_polled_while_one_is_missing() {
    let overrun = Overrun::new(3);
    let polled = [2, 3, 4].map(|receiving| overrun.must_poll_receives(receiving));
    assert_eq!(polled, [true, false, false]);
}

#[test]
fn reposted_receives_count_from_next_poll() {
    let mut overrun = Overrun::new(3);
    overrun.on_polled(2, 3);
    overrun.on_polled(2, 1);
    assert!(!overrun.is_suspected());
    // Two were posted, possibly after the message.
    overrun.on_polled(1, 2);
    assert!(overrun.is_suspected());
}

#[test]
fn only_message_clears_suspicion() {
    let mut overrun = Overrun::new(1);
    overrun.on_polled(1, 1);
    overrun.on_polled(0, 2);
    assert!(overrun.is_suspected());
    overrun.on_polled(1, 2);
    assert!(!overrun.is_suspected());
}
