use super::*;

#[test]
fn messages_for_all_receives_are_suspected() {
    for (messages, is_suspected) in [(0, false), (2, false), (3, true), (4, true)] {
        let mut starvation = Starvation::new(3);
        let last = starvation.current_poll();
        starvation.on_polled(messages, 0);
        assert_eq!(starvation.is_suspected(last), is_suspected, "{messages} messages");
    }
}

#[test]
fn later_message_clears_suspicion() {
    let mut starvation = Starvation::new(1);
    let silent = starvation.current_poll();
    starvation.on_polled(1, 2);
    let polled_later = starvation.current_poll();
    starvation.on_polled(1, 2);
    assert!(starvation.is_suspected(silent) && !starvation.is_suspected(polled_later));
    starvation.on_polled(2, 2);
    assert!(starvation.is_suspected(polled_later));
}

#[test]
fn new_member_is_not_suspected() {
    let mut starvation = Starvation::new(1);
    starvation.on_polled(1, 1);
    let new = starvation.current_poll();
    assert!(!starvation.is_suspected(new));
    starvation.on_polled(0, 1);
    assert!(!starvation.is_suspected(new));
}

#[test]
fn poll_without_message_suspects_nothing() {
    let mut starvation = Starvation::new(0);
    let last = starvation.current_poll();
    starvation.on_polled(0, 0);
    assert!(!starvation.is_suspected(last));
}
